"""Verbs that use what only Trilogue has, and how many modules a verb loads."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

import trilogue
from tests.cli.kafka_cli import Shell
from tests.server import Server, clean_environment, command_line, start_server
from trilogue.cli.doctor_server import check_disk, dangers
from trilogue.client.kafka import Setting
from trilogue.client.kafka.admin.model import LogDir
from trilogue.client.tubemq import TubeClient

TOKEN = "open-sesame"
HEAVY = ("rich", "starlette", "trilogue.node", "trilogue.broker", "trilogue.log", "urllib.request")
LOADED_AT_MOST = {
    ("topics", "list"): 48,
    ("groups", "list"): 60,
    ("produce", "verbs", "--value", "1"): 68,
    ("consume", "verbs"): 86,
}
"""Modules of ours, packages not counted: each costs about a millisecond."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    data = tmp_path_factory.mktemp("cli") / "data"
    with start_server(data, settings={"tubemq.web-token": TOKEN}) as made:
        Shell(made.kafka).run("topics", "create", "verbs")
        yield made


@pytest.fixture
def shell(server: Server) -> Shell:
    return Shell(server.kafka, server.doors["http"])


def call(server: Server, method: str, path: str) -> dict[str, object]:
    request = urllib.request.Request(f"{server.http}{path}", method=method)
    with urllib.request.urlopen(request, timeout=90) as answer:
        return json.loads(answer.read() or b"{}")


def package(name: str) -> bool:
    """Whether a module is the `__init__` of a folder, which costs little."""
    return (Path(trilogue.__file__).parent.parent / name.replace(".", "/")).is_dir()


@pytest.mark.parametrize("words", LOADED_AT_MOST, ids=" ".join)
def test_a_verb_loads_little(server: Server, words: tuple[str, ...]):
    """Counted, because times depend on the machine."""
    program = (
        "import sys\nfrom trilogue.cli.main import main\n"
        "try:\n    main(sys.argv[1:])\nexcept SystemExit as end:\n    assert not end.code\n"
        "print(*sys.modules, sep='\\n', file=sys.stderr)"
    )
    body = subprocess.run(
        [sys.executable, "-c", program, *words],
        env=clean_environment({"TRILOGUE_BOOTSTRAP": server.kafka}),
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True, timeout=110,
    )  # fmt: skip
    names = body.stderr.split()

    ours = [name for name in names if name.startswith("trilogue") and not package(name)]
    assert len(ours) <= LOADED_AT_MOST[words], ours
    assert [name for name in names if name.startswith(HEAVY)] == []


def test_messages_to_a_partition_that_the_topic_lacks_are_counted_as_not_sent(shell: Shell):
    line = json.dumps({"value": "x", "partition": 7})

    assert (
        shell.refused("produce", "verbs", "--value", "x", "--partition", "7")
        == "trilogue: verbs has the partitions 0 to 0, not 7\n"
    )
    assert shell.refused("produce", "verbs", "--json", stdin=f"{line}\n{line}\n").endswith(
        "trilogue: 2 messages not sent, 0 acknowledged\n"
    )


@pytest.mark.parametrize("words", [("--help",), ("topics", "--help"), ("tpics",)], ids=" ".join)
def test_help_and_usage_errors_load_neither_rich_nor_a_client(words: tuple[str, ...]):
    program = (
        "import sys\nfrom trilogue.cli.main import main\n"
        "try:\n    main(sys.argv[1:])\nexcept SystemExit:\n    pass\n"
        "heavy = 'rich', 'trilogue.client.'\n"
        "print('loaded', *(one for one in sys.modules if one.startswith(heavy)))"
    )
    body = subprocess.run(
        [sys.executable, "-c", program, *words],
        env=clean_environment(), capture_output=True, text=True, check=True, timeout=110,
    )  # fmt: skip
    assert body.stdout.splitlines()[-1] == "loaded"
    assert "Usage: trilogue" in body.stdout + body.stderr


def test_subscriptions_of_all_three_protocols_are_reported(server: Server, shell: Shell):
    new = "type=op_modify&method=admin_add_new_topic_record&brokerId=1&topicName=all"
    call(server, "GET", f"/webapi.htm?{new}&numPartitions=2&createUser=me&confModAuthToken={TOKEN}")
    call(server, "PUT", "/admin/v2/persistent/public/default/all/subscription/by-pulsar")
    shell.run("produce", "all", "-p", "0", stdin="1\n2\n3\n")
    shell.run("groups", "reset", "by-kafka", "-t", "all", "--to", "1", "--execute")
    asyncio.run(read_by_tubemq(server))

    rows = {row["protocol"]: row for row in shell.json("subscriptions", "list", "all")}
    parts = shell.json("subscriptions", "describe", "all", "by-pulsar")

    assert {name: row["subscription"] for name, row in rows.items()} == {
        "kafka": "by-kafka", "pulsar": "by-pulsar", "tubemq": "by-tubemq",
    }  # fmt: skip
    assert rows["kafka"]["backlog"] == 2
    assert rows["pulsar"]["backlog"] == 3
    assert rows["tubemq"]["backlog"] is not None
    assert [(one["partition"], one["backlog"]) for one in parts] == [(0, 3), (1, 0)]
    assert len(shell.json("subscriptions", "list")) >= 3
    assert "did you mean by-pulsar" in shell.refused("subscriptions", "describe", "all", "by-pulsr")


async def read_by_tubemq(server: Server) -> None:
    async with TubeClient(server.tubemq) as client:
        consumer = await client.consumer("all", group="by-tubemq")
        await consumer.confirm(await consumer.get())


def test_subscriptions_list_without_http_lists_kafka_groups_and_warns(server: Server):
    body = Shell(server.kafka).run("subscriptions", "list", "verbs")

    assert "only Kafka's groups" in body.stderr
    assert "--http HOST:PORT" in body.stderr
    assert "no HTTP listener" in Shell(server.kafka, "127.0.0.1:1").refused(
        "subscriptions", "list", "verbs"
    )


def test_doctor_checks_a_server_and_writes_only_with_write_option(server: Server, shell: Shell):
    looked = shell.json("doctor", "--server", server.kafka)
    wrote = shell.json("doctor", "--server", server.kafka, "--write")

    assert [one for one in looked if one["verdict"] == "fail"] == []
    assert not [one for one in looked if "log.flush" in one["seen"]]  # ours syncs anyhow
    seen = {one["look"]: one["seen"] for one in wrote}
    assert "serving" in seen["http listener"]
    assert seen["tubemq listener"] == f"{server.doors['tubemq-broker']} answers"
    assert seen["round trip"].startswith("100 messages")
    assert "round trip" not in {one["look"] for one in looked}
    assert [row["topic"] for row in shell.json("topics", "list", "doctor")] == []


@pytest.mark.parametrize(
    ("gib", "free", "verdict"),
    [(252, 100, "ok"), (252, 11, "warn"), (4, 0.5, "fail"), (252, 0.5, "fail"), (4, 2, "ok")],
)
def test_a_disk_without_a_gib_of_free_space_fails(gib, free, verdict):
    """A large disk of which few percent are free still takes messages for long."""
    disk = LogDir("/data", {}, total_bytes=gib << 30, usable_bytes=int(free * 2**30))
    assert check_disk(1, disk).verdict == verdict


def test_settings_that_lose_messages_are_named():
    def body(**values: str) -> list[str]:
        rows = {name.replace("_", "."): value for name, value in values.items()}
        found = dangers({name: Setting(name, value) for name, value in rows.items()}, nodes=1)
        return [what for what, _, _ in found]

    assert body(unclean_leader_election_enable="true") == ["unclean.leader.election.enable=true"]
    assert body(log_flush_interval_messages="9") == ["log.flush.interval.messages=9"]
    assert body(listeners="PLAINTEXT://0.0.0.0:9092") == ["listeners=PLAINTEXT://0.0.0.0:9092"]
    assert body(listeners="PLAINTEXT://127.0.0.1:9092,SSL://:9093") == []
    assert body(log_dirs="/tmp/kafka-logs") == ["log.dirs=/tmp/kafka-logs"]
    copies = {"min.insync.replicas": Setting("min.insync.replicas", "1")}
    assert [what for what, _, _ in dangers(copies, nodes=3)] == ["min.insync.replicas=1"]


def test_a_reader_that_goes_away_ends_it_as_any_program(server: Server, shell: Shell):
    shell.run("topics", "create", "long")
    shell.run("produce", "long", stdin="\n".join(str(one) * 100 for one in range(20_000)))
    reading = subprocess.Popen(
        [*command_line("consume", "long", "-s", server.kafka)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=clean_environment({}),
    )  # fmt: skip
    assert reading.stdout is not None
    assert reading.stderr is not None
    reading.stdout.readline()
    reading.stdout.close()

    assert reading.wait(60) == 141
    assert reading.stderr.read() == b""
    reading.stderr.close()


def test_following_ends_with_the_signal(server: Server, shell: Shell):
    shell.run("topics", "create", "followed")
    shell.run("produce", "followed", stdin="1\n")
    reading = subprocess.Popen(
        [*command_line("consume", "followed", "--follow", "-s", server.kafka)],
        stdout=subprocess.PIPE, env=clean_environment({}),
    )  # fmt: skip
    assert reading.stdout is not None
    first = reading.stdout.readline()
    shell.run("produce", "followed", "--value", "2")
    second = reading.stdout.readline()
    reading.terminate()

    assert (first, second) == (b"1\n", b"2\n")
    assert reading.wait(60) == 130
    reading.stdout.close()


def test_produce_from_stdin_ends_on_sigterm_after_sending_its_lines(server: Server, shell: Shell):
    shell.run("topics", "create", "typed")
    with subprocess.Popen(
        [*command_line("produce", "typed", "-s", server.kafka)],
        stdin=subprocess.PIPE, env=clean_environment({}),
    ) as writing:  # fmt: skip
        assert writing.stdin is not None
        writing.stdin.write(b"one\n")
        writing.stdin.flush()
        while not shell.lines("consume", "typed"):
            pass
        writing.terminate()

        assert writing.wait(90) == 130
    assert shell.lines("consume", "typed") == ["one"]


def test_produce_sends_any_size_that_the_topic_takes(server, tmp_path):
    shell = Shell(server.kafka)
    shell.run("topics", "create", "large", "--set", "max.message.bytes=6000000")
    (tmp_path / "file").write_bytes(b"x" * (5 << 20) + b"\n" + b"y" * 7_000_000)

    detail = shell.refused("produce", "large", str(tmp_path / "file"))

    assert "trilogue: 1 message not sent, 1 acknowledged" in detail
    assert len(shell.run("consume", "large").stdout) == (5 << 20) + 1
