"""`trilogue nodes move` and `drain`: clients of Kafka and Pulsar while slots move."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pulsar
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.server import Server, run_trilogue, start_server

LISTEN = dict.fromkeys(("kafka", "pulsar", "http"), "127.0.0.1:0")
WAIT_S = 60.0
QUIET = {"log_level": 0}
SILENT = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with start_server(tmp_path / "data", listen=LISTEN, nodes=2) as started:
        yield started
        assert started.stop() == 0


def move(server: Server, *words: str) -> subprocess.CompletedProcess[str]:
    return run_trilogue("nodes", *words, "--data", str(server.data))


def slots(server: Server) -> dict[int, list[int]]:
    """Return the slots of each node, as soon as all nodes answer."""
    ends = time.monotonic() + WAIT_S
    while True:
        listed = run_trilogue("nodes", "list", "--json", "--server", server.kafka)
        if listed.returncode == 0 or time.monotonic() > ends:
            return {row["id"]: row["slots"] for row in json.loads(listed.stdout)}


def numbered(first: int, count: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


def test_producers_and_members_of_a_group_go_on_while_slots_move(server: Server):
    client = AdminClient({"bootstrap.servers": server.kafka, **QUIET})
    client.create_topics([NewTopic("orders", 4)])["orders"].result(WAIT_S)
    producer = Producer({"bootstrap.servers": server.kafka, "enable.idempotence": True, **QUIET})
    assignments: list[int] = []
    consumer = Consumer(
        {
            "bootstrap.servers": server.kafka,
            "group.id": "billing",
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 100,
            **QUIET,
        }
    )
    consumer.subscribe(["orders"], on_assign=lambda _, parts: assignments.append(len(parts)))
    failed: list[object] = []
    read: list[bytes] = []

    def send(first: int) -> None:
        for number, value in enumerate(numbered(first, 200)):
            producer.produce(
                "orders",
                value,
                partition=number % 4,
                on_delivery=lambda error, _: error and failed.append(error),
            )
        assert producer.flush(WAIT_S) == 0

    def poll(count: int) -> None:
        ends = time.monotonic() + WAIT_S
        while len(read) < count and time.monotonic() < ends:
            message = consumer.poll(0.5)
            if message is not None and message.error() is None:
                read.append(message.value())

    send(0)
    poll(200)
    for round_, words in enumerate((("drain", "1"), ("move", "0", "2", "5", "--to", "1")), 1):
        mover = threading.Thread(target=move, args=(server, *words))
        mover.start()
        send(round_ * 1_000)
        poll(200 * (round_ + 1))
        mover.join()

    assert failed == []
    assert sorted(read) == sorted(numbered(0, 200) + numbered(1_000, 200) + numbered(2_000, 200))
    assert assignments == [4], "no rebalance"
    assert slots(server)[1] == [0, 2, 5]
    consumer.close()


def test_producers_and_consumers_of_pulsar_go_on_while_slots_move(server: Server):
    client = pulsar.Client(server.pulsar, logger=SILENT)
    topics = [f"topic-{number}" for number in range(4)]
    producers = [client.create_producer(topic) for topic in topics]
    consumer = client.subscribe(topics, "readers", pulsar.ConsumerType.Shared)
    acked: set[bytes] = set()

    def receive(count: int) -> None:
        while len(acked) < count:
            message = consumer.receive(round(WAIT_S * 1_000))
            acked.add(message.data())
            consumer.acknowledge(message)

    for round_, words in enumerate((("drain", "2"), ("drain", "1"), ("move", "3", "--to", "1"))):
        mover = threading.Thread(target=move, args=(server, *words))
        mover.start()
        for value in numbered(round_ * 1_000, 50):
            for number, producer in enumerate(producers):
                producer.send(b"%d-%s" % (number, value))
        mover.join()
        receive(200 * (round_ + 1))

    assert len(acked) == 600
    assert slots(server)[1] == [3]
    client.close()


def test_a_move_goes_on_when_a_node_is_killed_meanwhile(server: Server):
    listed = run_trilogue("nodes", "list", "--json", "--server", server.kafka)
    producer = Producer({"bootstrap.servers": server.kafka, "acks": "all", **QUIET})
    for value in numbered(0, 100):
        producer.produce("orders", value)
    assert producer.flush(WAIT_S) == 0

    mover = threading.Thread(target=move, args=(server, "drain", "2"))
    mover.start()
    os.kill(json.loads(listed.stdout)[1]["pid"], signal.SIGKILL)
    mover.join()

    for value in numbered(100, 100):
        producer.produce("orders", value)
    assert producer.flush(WAIT_S) == 0
    if 2 in slots(server):  # the request came after the kill and was refused
        assert move(server, "drain", "2").returncode == 0
    assert slots(server) == {1: [*range(16)]}


def test_wrong_moves_are_refused(server: Server, tmp_path: Path):
    assert "there is no slot 99" in move(server, "move", "99", "--to", "1").stderr
    assert "there is no node 7" in move(server, "move", "1", "--to", "7").stderr
    assert "there is no node 7" in move(server, "drain", "7").stderr
    assert "0 moved" in move(server, "move", "0", "--to", "1").stdout
    other = run_trilogue("nodes", "drain", "1", "--data", str(tmp_path))
    assert other.returncode == 1
    assert "no supervisor of several nodes answers" in other.stderr
