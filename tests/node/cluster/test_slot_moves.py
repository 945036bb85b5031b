"""`trilogue nodes move` and `drain` in a cluster with `ack=shared`: clients go on while slots move."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from tests.node.cluster.shared_cluster import WAIT_S, SharedCluster
from tests.node.supervisor.test_nodes import QUIET, consume, create, numbered
from tests.postgres import PostgresServer
from tests.server import Server, run_trilogue

SIZE = 3
SLOTS = 16


@pytest.fixture
def cluster(tmp_path: Path, postgres_server: PostgresServer) -> Iterator[SharedCluster]:
    made = SharedCluster(tmp_path, postgres_server, SIZE)
    yield made
    made.kill_all()


def start_all(cluster: SharedCluster) -> list[Server]:
    nodes = [cluster.launch(each, f"node-{each}") for each in range(1, SIZE + 1)]
    return [node.wait_ready(WAIT_S) for node in nodes]


def move(cluster: SharedCluster, *words: str) -> subprocess.CompletedProcess[str]:
    return run_trilogue("nodes", *words, "--cluster", cluster.url, timeout=WAIT_S)


def owners(cluster: SharedCluster) -> list[int]:
    query = "SELECT node_id FROM trilogue.slots ORDER BY slot"
    return [int(row[0]) for row in cluster.postgres.run(query, cluster.url)]


def test_producers_and_members_of_a_group_go_on_while_slots_move(cluster: SharedCluster):
    nodes = start_all(cluster)
    servers = ",".join(node.kafka for node in nodes)
    create(nodes[0], "orders", 6)
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, **QUIET})
    failed: list[object] = []

    def send(first: int) -> None:
        for number, value in enumerate(numbered(first, 300)):
            producer.produce(
                "orders",
                value,
                partition=number % 6,
                on_delivery=lambda error, _: error and failed.append(error),
            )
        assert producer.flush(WAIT_S) == 0

    send(0)
    sent = numbered(0, 300)
    for round_, words in enumerate((("drain", "1"), ("move", "0", "3", "6", "--to", "1")), 1):
        done: list[subprocess.CompletedProcess[str]] = []
        mover = threading.Thread(target=lambda words=words, done=done: done.append(move(cluster, *words)))
        mover.start()
        send(round_ * 1_000)
        sent += numbered(round_ * 1_000, 300)
        mover.join()
        print(done[0].stdout, done[0].stderr)
        assert done[0].returncode == 0, done[0].stderr + nodes[0].output
        send(round_ * 1_000 + 500)
        sent += numbered(round_ * 1_000 + 500, 300)

    assert failed == []
    assert {slot for slot, owner in enumerate(owners(cluster)) if owner == 1} == {0, 3, 6}
    assert sorted(consume(nodes[1], "readers", "orders", len(sent))) == sorted(sent)
    for node in nodes:
        assert node.stop() == 0, node.output
        print(node.output[-3000:])


def test_slots_of_a_dead_node_are_served_by_the_living(cluster: SharedCluster):
    nodes = start_all(cluster)
    servers = ",".join(node.kafka for node in nodes)
    create(nodes[0], "orders", 6)
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, **QUIET})
    failed: list[object] = []

    def send(first: int) -> None:
        for number, value in enumerate(numbered(first, 300)):
            producer.produce(
                "orders",
                value,
                partition=number % 6,
                on_delivery=lambda error, _: error and failed.append(error),
            )
        assert producer.flush(WAIT_S) == 0

    send(0)
    cluster.lose(nodes[0])
    send(1_000)
    assert failed == []
    assert set(owners(cluster)) == {2, 3}
    sent = numbered(0, 300) + numbered(1_000, 300)
    assert sorted(consume(nodes[1], "readers", "orders", len(sent))) == sorted(sent)
    for node in nodes[1:]:
        assert node.stop() == 0, node.output
        print(node.output[-5000:])
