"""`trilogue serve --nodes`: clients of Kafka and Pulsar at several nodes of one directory."""

from __future__ import annotations

import json
import os
import select
import signal
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pulsar
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.gateway.http.console.page import ConsoleClient, Page
from tests.server import Server, launch_server, run_trilogue, start_server
from trilogue import __version__

LISTEN = dict.fromkeys(("kafka", "pulsar", "http"), "127.0.0.1:0")
WAIT_S = 60.0
QUIET = {"log_level": 0}
SILENT = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with start_server(tmp_path / "data", listen=LISTEN, nodes=2) as started:
        yield started
        started.stop()


def start_again(server: Server, **settings: object) -> Server:
    assert server.stop() == 0
    return start_server(server.data, listen=LISTEN, **settings)


def admin(server: Server) -> AdminClient:
    return AdminClient({"bootstrap.servers": server.kafka, **QUIET})


def create(server: Server, topic: str, partitions: int) -> None:
    client = admin(server)  # which must outlive its answer
    client.create_topics([NewTopic(topic, partitions)])[topic].result(WAIT_S)


def leaders(server: Server, topic: str) -> dict[int, int]:
    client = admin(server)
    found = client.list_topics(topic, timeout=WAIT_S).topics[topic]
    return {number: each.leader for number, each in found.partitions.items()}


def produce(server: Server, topic: str, values: list[bytes], partitions: int) -> None:
    """Send with acks=all and idempotence; return when all are acknowledged."""
    errors: list[object] = []
    producer = Producer(
        {"bootstrap.servers": server.kafka, "enable.idempotence": True, "linger.ms": 5, **QUIET}
    )
    for number, value in enumerate(values):
        producer.produce(
            topic,
            value,
            partition=number % partitions,
            on_delivery=lambda error, _message: error and errors.append(error),
        )
    assert producer.flush(WAIT_S) == 0
    assert errors == []


def consume(server: Server, group: str, topic: str, count: int) -> list[bytes]:
    """Read as a member of a group, and commit."""
    consumer = Consumer(
        {
            "bootstrap.servers": server.kafka,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **QUIET,
        }
    )
    consumer.subscribe([topic])
    read: list[bytes] = []
    ends = time.monotonic() + WAIT_S
    while len(read) < count and time.monotonic() < ends:
        message = consumer.poll(0.5)
        if message is not None and message.error() is None:
            read.append(message.value())
    if read:
        consumer.commit(asynchronous=False)
    consumer.close()
    return read


def pids_of_nodes(server: Server) -> list[int]:
    found = subprocess.run(
        ["pgrep", "-P", str(server.pid)], capture_output=True, text=True, check=True
    )
    return [int(each) for each in found.stdout.split()]


def numbered(first: int, count: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


def test_partitions_and_groups_are_spread_and_every_client_finds_them(server: Server):
    create(server, "orders", 4)

    assert sorted(leaders(server, "orders").values()) == [1, 1, 2, 2]
    produce(server, "orders", numbered(0, 400), 4)
    for group in ("billing", "shipping", "search", "audit", "mail"):  # of both nodes
        assert sorted(consume(server, group, "orders", 400)) == sorted(numbered(0, 400))
    client = admin(server)
    described = client.describe_cluster().result(WAIT_S)
    assert {node.id for node in described.nodes} == {1, 2}
    found = client.list_consumer_groups().result(WAIT_S).valid
    assert {each.group_id for each in found} == {"billing", "shipping", "search", "audit", "mail"}
    check_consoles(server, {each.group_id for each in found})


def check_consoles(server: Server, groups: set[str]) -> None:
    """The consoles of both nodes have all groups, and lead to each other."""
    console = ConsoleClient(server.http)
    listed = [Page(console.client.get(console.get("/groups").links[node]).text) for node in "12"]
    assert [{row[0] for row in page.rows[1:]} for page in listed] == [groups, groups]

    name = min(row[0] for row in listed[0].rows if row[3] == "at node 2")
    elsewhere = console.get("/group", 421, name=name)
    assert f"node 2 coordinates group {name}" in elsewhere.text
    shown = console.follow(elsewhere, "Open it at that node")
    assert f"Group {name}" in shown.text
    assert [row[3:] for row in shown.rows if row[0].endswith("/orders")] == [["100", "0"]] * 4
    topic = console.get("/topic", name="orders")
    assert len([row for row in topic.rows if row[-1] == "at node 2"]) == 2
    assert "public/default/orders" in console.follow(topic, "at node 2").text
    assert "page at the others" in console.get("/topics").text
    console.client.close()


def test_topics_that_one_node_creates_alters_and_deletes_are_so_at_the_other(server: Server):
    for number in range(6):
        topic = f"topic-{number}"
        create(server, topic, 2)
        produce(server, topic, numbered(0, 20), 2)
    client = admin(server)
    client.delete_topics(["topic-0"])["topic-0"].result(WAIT_S)
    create(server, "topic-0", 2)  # another topic of the same name

    assert leaders(server, "topic-0").keys() == {0, 1}
    produce(server, "topic-0", numbered(100, 20), 2)
    assert sorted(consume(server, "readers", "topic-0", 20)) == sorted(numbered(100, 20))


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGSTOP], ids=["kill9", "stopped"])
def test_a_node_that_dies_or_hangs_is_started_again_and_loses_nothing(tmp_path: Path, end: int):
    with start_server(
        tmp_path / "data", listen=LISTEN, nodes=2, settings={"nodes.silence": "1s"}
    ) as server:
        create(server, "orders", 4)
        produce(server, "orders", numbered(0, 400), 4)
        assert len(consume(server, "billing", "orders", 400)) == 400
        doors = dict(server.doors)

        for pid in pids_of_nodes(server):
            os.kill(pid, end)
            produce(server, "orders", numbered(1_000, 100), 4)

        read = consume(server, "billing", "orders", 200)
        assert sorted(read) == sorted(2 * numbered(1_000, 100)), "committed positions hold"
        assert len(consume(server, "audit", "orders", 600)) == 600
        assert server.wait_ready().doors == doors, "a node has the same ports again"
        assert server.stop() == 0


def test_the_number_of_nodes_changes_between_starts(server: Server):
    create(server, "orders", 6)
    produce(server, "orders", numbered(0, 300), 6)
    assert len(consume(server, "billing", "orders", 300)) == 300

    for nodes in (3, 1, 2):
        server = start_again(server, nodes=nodes)
        assert set(leaders(server, "orders").values()) == set(range(1, nodes + 1))
        produce(server, "orders", numbered(1_000 * nodes, 60), 6)
        read = consume(server, "billing", "orders", 60)
        assert sorted(read) == sorted(numbered(1_000 * nodes, 60))
    assert len(consume(server, "audit", "orders", 480)) == 480
    assert server.stop() == 0


def test_slots_move_with_the_journals_of_killed_nodes(server: Server):
    create(server, "orders", 4)
    produce(server, "orders", numbered(0, 400), 4)
    assert len(consume(server, "billing", "orders", 400)) == 400
    server.kill9()

    with start_server(server.data, listen=LISTEN, nodes=1) as alone:
        assert set(leaders(alone, "orders").values()) == {1}
        assert len(consume(alone, "audit", "orders", 400)) == 400
        produce(alone, "orders", numbered(500, 40), 4)
        assert sorted(consume(alone, "billing", "orders", 40)) == sorted(numbered(500, 40))
        assert alone.stop() == 0


def test_pulsar_clients_are_sent_to_the_owner_of_each_topic(server: Server):
    client = pulsar.Client(server.pulsar, logger=SILENT)
    path = f"{server.http}/admin/v2/persistent/public/default/parts/partitions"
    httpx.put(path, json=4).raise_for_status()
    for topic in ("first", "second", "third", "parts"):
        consumer = client.subscribe(topic, "readers", pulsar.ConsumerType.Shared)
        producer = client.create_producer(topic)
        for value in numbered(0, 40):
            producer.send_async(value, lambda _result, _id: None)
        producer.flush()
        read = [consumer.receive(round(WAIT_S * 1_000)) for _ in range(40)]
        assert sorted(each.data() for each in read) == sorted(numbered(0, 40))
        for each in read:
            consumer.acknowledge(each)
    assert sorted(consume(server, "kafka", "parts", 40)) == sorted(numbered(0, 40))
    client.close()


def test_administration_of_a_partition_is_redirected_to_its_owner(server: Server):
    root = f"{server.http}/admin/v2/persistent/public/default"
    httpx.put(f"{root}/parts/partitions", json=4).raise_for_status()
    brokers = httpx.get(f"{server.http}/admin/v2/brokers/standalone").json()
    assert len(set(brokers)) == 2

    for number in range(4):
        stats = httpx.get(f"{root}/parts-partition-{number}/stats", follow_redirects=True)
        assert stats.status_code == 200
        assert stats.url.netloc.decode() in brokers
    owners = {
        httpx.get(f"{server.http}/lookup/v2/topic/persistent/public/default/{name}").json()[
            "httpUrl"
        ]
        for name in (f"parts-partition-{number}" for number in range(4))
    }
    assert owners == {f"http://{each}" for each in brokers}
    for broker in brokers:  # both have partitions of the namespace
        path = f"{server.http}/admin/v2/brokers/standalone/{broker}/ownedNamespaces"
        owned = httpx.get(path, follow_redirects=True)
        assert owned.url.netloc.decode() == broker
        assert "public/default/0x00000000_0xffffffff" in owned.json()


def test_administration_of_a_whole_topic_reaches_all_owners(server: Server):
    root = f"{server.http}/admin/v2/persistent/public/default/parts"
    one = f"{root}/subscription/readers"
    httpx.put(f"{root}/partitions", json=4).raise_for_status()
    assert httpx.put(one).status_code == 204
    assert httpx.put(one).status_code == 409
    client = pulsar.Client(server.pulsar, logger=SILENT)
    producer = client.create_producer("parts")
    for value in numbered(0, 40):
        producer.send_async(value, lambda _result, _id: None)
    producer.flush()

    whole = httpx.get(f"{root}/partitioned-stats").json()
    assert whole["msgInCounter"] == 40
    assert whole["subscriptions"]["readers"]["msgBacklog"] == 40
    assert len(whole["partitions"]) == 4
    assert len({each["ownerBroker"] for each in whole["partitions"].values()}) == 2
    internal = httpx.get(f"{root}/partitioned-internalStats").json()
    assert sum(each["numberOfEntries"] for each in internal["partitions"].values()) == 40
    assert httpx.get(f"{root}/subscriptions").json() == ["readers"]
    assert httpx.post(f"{one}/skip_all").status_code == 204
    backlog = httpx.get(f"{root}/partitioned-stats").json()["subscriptions"]["readers"][
        "msgBacklog"
    ]
    assert backlog == 0
    for number in range(4):  # each at its owner
        found = httpx.get(f"{root}-partition-{number}/subscriptions", follow_redirects=True)
        assert found.json() == ["readers"]
    assert httpx.delete(one).status_code == 204
    assert httpx.delete(one).status_code == 404
    assert httpx.get(f"{root}/subscriptions").json() == []
    client.close()
    ended = httpx.post(f"{root}/terminate/partitions")
    assert ended.status_code == 200, ended.text
    assert sorted(ended.json()) == ["0", "1", "2", "3"]
    internal = httpx.get(f"{root}/partitioned-internalStats").json()
    assert {each["state"] for each in internal["partitions"].values()} == {"Terminated"}


def test_a_topic_is_known_at_every_node_when_its_creation_is_acknowledged(server: Server):
    create(server, "seen", 1)
    for number in range(10):
        create(server, f"topic-{number}", 2)
        producer = Producer({"bootstrap.servers": server.kafka, "acks": 0, **QUIET})
        for partition in (0, 1):  # without an answer, and so without a second try
            producer.produce(f"topic-{number}", b"x", partition=partition)
        assert producer.flush(WAIT_S) == 0
        assert len(consume(server, f"group-{number}", f"topic-{number}", 2)) == 2


def test_a_directory_of_several_nodes_is_in_use_once(server: Server):
    second = launch_server(server.data, listen=LISTEN)

    assert second.wait() == 1
    assert "is in use by another process" in second.output


def test_nodes_end_with_their_supervisor(server: Server):
    nodes = pids_of_nodes(server)
    descriptors = [os.pidfd_open(pid) for pid in nodes]

    server.kill9()

    for descriptor in descriptors:  # readable when the process has ended
        assert select.select([descriptor], [], [], WAIT_S)[0]
        os.close(descriptor)


def test_ports_that_collide_are_named_before_anything_starts(tmp_path: Path):
    server = launch_server(
        tmp_path / "data",
        listen={"kafka": "127.0.0.1:29000", "pulsar": "127.0.0.1:29100"},
        nodes=2,
    )

    assert server.wait() == 2
    assert "would both listen on 127.0.0.1:29100" in server.output
    assert not (tmp_path / "data").exists()


def test_nodes_are_listed_with_processes_addresses_and_slots(server: Server):
    listed = run_trilogue("nodes", "list", "--json", "--server", server.kafka)

    first, second = json.loads(listed.stdout)
    assert (first["id"], second["id"]) == (1, 2)
    assert {first["pid"], second["pid"]} == set(pids_of_nodes(server))
    assert first["doors"] == server.doors
    assert first["slots"] == list(range(0, 16, 2))
    assert second["slots"] == list(range(1, 16, 2))
    assert "127.0.0.1:" in run_trilogue("nodes", "list", "--server", server.kafka).stdout


def describe_nodes(server: Server, *arguments: str) -> list[dict[str, Any]]:
    described = run_trilogue("nodes", "describe", "--json", *arguments, "--server", server.kafka)
    assert described.returncode == 0, described
    rows: list[dict[str, Any]] = json.loads(described.stdout)
    return rows


def test_nodes_are_described_with_what_they_own_and_how_far_they_lag(server: Server):
    create(server, "orders", 4)
    produce(server, "orders", numbered(0, 400), 4)
    assert sorted(consume(server, "billing", "orders", 400)) == sorted(numbered(0, 400))

    rows = describe_nodes(server)
    named = describe_nodes(server, "2")
    table = run_trilogue("nodes", "describe", "2", "--server", server.kafka)
    unknown = run_trilogue("nodes", "describe", "7", "--server", server.kafka)

    led = leaders(server, "orders")
    assert [each["id"] for each in rows] == [1, 2]
    assert {each["pid"] for each in rows} == set(pids_of_nodes(server))
    assert [each["version"] for each in rows] == [__version__] * 2
    assert rows[0]["slots"] + rows[1]["slots"] == [*range(0, 16, 2), *range(1, 16, 2)]
    assert [each["partitions"] for each in rows] == [
        sum(leader == node for leader in led.values()) for node in (1, 2)
    ]
    assert sum(each["groups"] for each in rows) == 1
    for row in rows:  # written to the journal, and not flushed yet
        assert row["unflushed_bytes"] > 0
        assert row["flushes_waiting"] == 0
        assert row["commit_ms"] > 0
        assert "leads" not in row
    expected = [number for number, leader in sorted(led.items()) if leader == 2]
    assert named[0]["leads"] == {"orders": expected}
    assert f"node 2 leads orders: {','.join(map(str, expected))}" in table.stdout
    assert table.stdout.split()[:2] == ["id", "version"]
    assert unknown.returncode == 2
    assert "no node 7 serves; these do: 1, 2" in unknown.stderr


def test_nodes_outlive_a_stop_of_their_supervisor(tmp_path: Path):
    settings = {"nodes.silence": "4s"}  # more than a busy machine keeps a node from its turn
    with start_server(tmp_path / "data", listen=LISTEN, nodes=2, settings=settings) as server:
        create(server, "orders", 4)
        before = pids_of_nodes(server)

        server.signal(signal.SIGSTOP)
        time.sleep(5)  # by design: longer than nodes may be silent
        produce(server, "orders", numbered(0, 40), 4)
        server.signal(signal.SIGCONT)
        create(server, "later", 2)

        time.sleep(1.5)  # for the supervisor to look
        assert pids_of_nodes(server) == before
        assert server.stop() == 0


def test_nodes_wait_while_another_process_writes_to_meta(tmp_path: Path):
    with start_server(tmp_path / "data", listen=LISTEN, nodes=2) as server:
        create(server, "orders", 4)
        before = pids_of_nodes(server)
        with closing(sqlite3.connect(server.data / "meta.sqlite", isolation_level=None)) as meta:
            meta.execute("BEGIN IMMEDIATE")
            client = admin(server)
            created = client.create_topics([NewTopic("later", 2)], request_timeout=WAIT_S)["later"]
            produce(server, "orders", numbered(0, 40), 4)
            assert not created.done()
            time.sleep(6)
            meta.execute("ROLLBACK")

        created.result(WAIT_S)
        assert pids_of_nodes(server) == before
        assert server.stop() == 0
