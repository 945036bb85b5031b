"""Settings of a served node: the files they are in by default, and SIGHUP, which reads them."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from tests.node.clients import consume, produce
from tests.server import Server, clean_environment, launch_server, start_server
from tests.waiting import wait_until

WAIT_S = 60
OPEN_TERMINAL = """import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])"""


def write(file: Path, **values: object) -> None:
    """Write settings; `__` stands for a dot and `_` for a dash."""
    lines = [
        f"{json.dumps(name.replace('__', '.').replace('_', '-'))} = {json.dumps(value)}\n"
        for name, value in values.items()
    ]
    draft = file.with_suffix(".draft")
    draft.write_text("".join(lines))
    draft.replace(file)


def reload_settings(server: Server) -> str:
    """Send SIGHUP; return the lines that the node has logged until it had read its settings."""
    before = len(server.output)
    server.signal(signal.SIGHUP)
    wait_until(
        lambda: any(
            "settings.read" in line or "settings.not_read" in line
            for line in server.output[before:].splitlines(keepends=True)
            if line.endswith("\n")
        ),
        "the settings",
        WAIT_S,
    )
    return server.output[before:]


def describe(server: Server, kind: str, name: str) -> dict[str, str]:
    """Return what Kafka's administration sees of a resource."""
    admin = AdminClient({"bootstrap.servers": server.kafka})
    resource = ConfigResource(ConfigResource.Type[kind], name)
    (future,) = admin.describe_configs([resource], request_timeout=WAIT_S).values()
    return {each.name: each.value for each in future.result().values()}


def test_settings_change_under_clients_that_stay_connected(tmp_path: Path):
    file = tmp_path / "own.toml"
    write(file, topics__retention="7d", log__level="info", tail__limit="256MiB")
    with start_server(tmp_path / "data", arguments=["--config", str(file)]) as server:
        assert f"settings.file path={file}" in server.output
        admin = AdminClient({"bootstrap.servers": server.kafka})
        for future in admin.create_topics([NewTopic("t", 1, 1)]).values():
            future.result(WAIT_S)
        errors: list[object] = []
        producer = Producer({"bootstrap.servers": server.kafka, "error_cb": errors.append})
        producer.produce("t", b"before")
        assert producer.flush(WAIT_S) == 0

        write(
            file,
            topics__retention="3d",
            topics__default_partitions=4,
            log__level="debug",
            log__format="json",
            tail__limit="512MiB",
            connections__unsent_memory="64MiB",
            merge__rate="1MiB",
        )
        output = reload_settings(server)
        producer.produce("t", b"after")
        assert producer.flush(WAIT_S) == 0
        assert errors == []

        line = json.loads(next(each for each in output.splitlines() if '"settings.read"' in each))
        assert line["level"] == "warning"
        assert line["at_next_start"] == "tail.limit"
        assert set(line["applied"].split(",")) == {
            "topics.retention", "topics.default-partitions", "connections.unsent-memory",
            "merge.rate", "log.level", "log.format",
        }  # fmt: skip
        assert describe(server, "TOPIC", "t")["retention.ms"] == str(3 * 86_400_000)
        assert describe(server, "BROKER", "1")["log.retention.ms"] == str(3 * 86_400_000)
        for future in admin.create_topics([NewTopic("new", -1, -1)]).values():
            future.result(WAIT_S)
        assert len(admin.list_topics("new", timeout=WAIT_S).topics["new"].partitions) == 4
        assert consume(server, "t", 2) == [b"before", b"after"]
        assert server.stop() == 0


def test_a_file_that_cannot_be_read_changes_nothing(tmp_path: Path):
    file = tmp_path / "own.toml"
    write(file, topics__retention="7d")
    with start_server(tmp_path / "data", arguments=["--config", str(file)]) as server:
        file.write_text("[topics\n")
        assert f'settings.not_read problem="config file {file}' in reload_settings(server)

        write(file, topics__retentoin="1d")
        assert "did you mean topics.retention" in reload_settings(server)

        write(file, topics__retention="7d")
        assert 'applied="" at_next_start=""' in reload_settings(server)
        assert produce(server, "t", [b"served"]) == [0]


def test_several_nodes_read_their_settings_again(tmp_path: Path):
    file = tmp_path / "own.toml"
    write(file, topics__retention="7d")
    with start_server(
        tmp_path / "data", arguments=["--config", str(file), "--nodes", "2"]
    ) as server:
        write(file, topics__retention="3d", nodes=3)
        server.signal(signal.SIGHUP)
        line = "settings.read applied=topics.retention"
        wait_until(lambda: server.output.count(line) == 3, server.output, WAIT_S)
        assert describe(server, "BROKER", "2")["log.retention.ms"] == str(3 * 86_400_000)
        assert server.stop() == 0


def test_a_terminal_that_closes_stops_the_server(tmp_path: Path):
    """The signal is the same; under `nohup` it is ignored."""
    ours, theirs = pty.openpty()
    ready = tmp_path / "ready"
    process = subprocess.Popen(
        [
            sys.executable, "-c",
            OPEN_TERMINAL,
            sys.executable, "-m", "trilogue.cli.main", "serve",
            "--data", str(tmp_path / "data"), "--ready-file", str(ready),
            "--listen", "kafka=127.0.0.1:0", "--listen", "http=off", "--listen", "pulsar=off",
            "--listen", "tubemq-master=off", "--listen", "tubemq-broker=off",
        ],
        stdin=theirs, stdout=theirs, stderr=subprocess.DEVNULL, start_new_session=True,
        env=clean_environment(),
    )  # fmt: skip
    try:
        os.close(theirs)
        wait_until(ready.exists, "the server", WAIT_S)
        os.close(ours)
        assert process.wait(WAIT_S) == 0
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("folder", ["XDG_CONFIG_HOME", "HOME"])
def test_settings_are_in_the_users_file_by_default(tmp_path: Path, folder: str):
    home = tmp_path / "home" if folder == "XDG_CONFIG_HOME" else tmp_path / "home" / ".config"
    file = home / "trilogue" / "trilogue.toml"
    file.parent.mkdir(parents=True)
    write(file, topics__retention="3d")
    environment = {**clean_environment(), folder: str(tmp_path / "home")}
    if folder == "HOME":
        environment.pop("XDG_CONFIG_HOME", None)
    del environment["TRILOGUE_CONFIG"]

    def find_origin(**more: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "trilogue.cli.main", "config", "--json"],
            env={**environment, **more}, capture_output=True, text=True, check=True,
        )  # fmt: skip
        return str(json.loads(done.stdout)["topics.retention"]["origin"])

    assert find_origin() == f"file {file}"
    assert find_origin(TRILOGUE_CONFIG="") == "default"
    assert find_origin(TRILOGUE_CONFIG="/dev/null") == "default"


def test_a_default_file_that_is_wrong_is_named(tmp_path: Path):
    file = tmp_path / "trilogue" / "trilogue.toml"
    file.parent.mkdir()
    file.mkdir()  # also root cannot read that
    environment = {"XDG_CONFIG_HOME": str(tmp_path)}
    server = launch_default(tmp_path, environment)
    assert server.wait() == 2
    assert server.output.strip() == f"trilogue: config file {file}: Is a directory"


def launch_default(tmp_path: Path, environment: dict[str, str]) -> Server:
    """Start a server that looks for the file of its user."""
    return launch_server(
        tmp_path / "data", environment=environment, wrapper=["env", "-u", "TRILOGUE_CONFIG"]
    )


def test_verbs_log_in_by_the_users_file(tmp_path: Path):
    """The file that a secured node writes for clients, in its place."""
    with start_server(tmp_path / "data", arguments=["--secure"]) as server:
        place = tmp_path / "config" / "trilogue"
        place.mkdir(parents=True)
        (place / "client.conf").write_bytes(
            (server.data / "clients" / "librdkafka.conf").read_bytes()
        )
        environment = {**clean_environment(), "XDG_CONFIG_HOME": str(tmp_path / "config")}
        del environment["TRILOGUE_CLIENT_CONFIG"]
        command = [sys.executable, "-m", "trilogue.cli.main", "topics"]

        done = subprocess.run(
            [*command, "create", "made"], env=environment, capture_output=True, text=True,
            check=False,
        )  # fmt: skip

        assert done.returncode == 0, done.stderr
        (place / "client.conf").write_text("security.protocol=nothing\n")
        done = subprocess.run(
            [*command, "list"], env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 2
        assert str(place / "client.conf") in done.stderr
        assert len(done.stderr.splitlines()) == 1
