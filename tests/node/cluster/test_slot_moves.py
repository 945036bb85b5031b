"""Slots go from node to node of a cluster with `ack=shared`, and clients go on."""

from __future__ import annotations

import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.node.cluster.shared_cluster import WAIT_S, SharedCluster
from tests.node.supervisor.test_nodes import QUIET, consume, create, numbered
from tests.postgres import PostgresServer
from tests.server import Server, run_trilogue

SIZE = 3
PARTITIONS = 6
LISTEN_BY_NODE = ("kafka", "pulsar", "tubemq-master", "tubemq-broker")

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def cluster(tmp_path: Path, postgres_server: PostgresServer) -> Iterator[SharedCluster]:
    made = SharedCluster(tmp_path, postgres_server, SIZE)
    made.spread_after = "0s"
    yield made
    made.kill_all()


def move(cluster: SharedCluster, *words: str) -> subprocess.CompletedProcess[str]:
    return run_trilogue("nodes", *words, "--cluster", cluster.url, timeout=WAIT_S)


def owners(cluster: SharedCluster) -> list[int]:
    query = "SELECT node_id FROM trilogue.slots ORDER BY slot"
    return [int(row[0]) for row in cluster.postgres.run(query, cluster.url)]


def wait_until_connected(cluster: SharedCluster, node_ids: set[int]) -> None:
    """Wait until PostgreSQL has connections for the presence of these nodes, and no others."""
    query = (
        "SELECT node_id FROM trilogue.node_leases JOIN pg_stat_activity "
        "ON application_name = 'trilogue node ' || encode(home, 'hex')"
    )
    found: set[int] = set()
    end_s = time.monotonic() + WAIT_S
    while found != node_ids:
        assert time.monotonic() < end_s, f"{found} are connected, not {node_ids}"
        time.sleep(0.1)
        found = {int(row[0]) for row in cluster.postgres.run(query, cluster.url)}


class Sender:
    """An idempotent producer of librdkafka, and what it has sent."""

    def __init__(self, nodes: list[Server]) -> None:
        servers = ",".join(node.kafka for node in nodes)
        self.failed: list[object] = []
        self.sent: list[bytes] = []
        self._producer = Producer(
            {"bootstrap.servers": servers, "enable.idempotence": True, **QUIET}
        )
        create(nodes[0], "orders", PARTITIONS)

    def send(self, count: int) -> None:
        """Send some more, and wait until all of them are acknowledged."""
        more = numbered(len(self.sent), count)
        for number, value in enumerate(more):
            self._producer.produce(
                "orders", value, partition=number % PARTITIONS, on_delivery=self._delivered
            )
        assert self._producer.flush(WAIT_S) == 0
        self.sent += more

    def _delivered(self, error: object, _message: object) -> None:
        if error is not None:
            self.failed.append(error)


def test_producers_go_on_while_slots_move(cluster: SharedCluster):
    nodes = cluster.start_all(WAIT_S)
    sender = Sender(nodes)
    sender.send(300)
    for words in (("drain", "1"), ("move", "0", "3", "6", "--to", "1")):
        done: list[subprocess.CompletedProcess[str]] = []
        mover = threading.Thread(target=lambda w=words, d=done: d.append(move(cluster, *w)))
        mover.start()
        sender.send(300)
        mover.join()
        assert done[0].returncode == 0, done[0].stderr + nodes[0].output
        sender.send(300)

    assert sender.failed == []
    assert {slot for slot, owner in enumerate(owners(cluster)) if owner == 1} == {0, 3, 6}
    found = consume(nodes[1], "readers", "orders", len(sender.sent))
    assert sorted(found) == sorted(sender.sent)
    output = "".join(node.output for node in nodes)
    assert "segment.missing" not in output
    assert "node.again" not in output, "a node gives and gets slots without a new start"
    for node in nodes:
        assert node.stop() == 0, node.output


def is_open(connection: socket.socket) -> bool:
    """Whether a peer that has sent nothing keeps a connection open."""
    try:
        return bool(connection.recv(1))
    except BlockingIOError:
        return True


def epochs(cluster: SharedCluster, node_id: int) -> dict[int, int]:
    """Return the epoch of each slot of a node."""
    query = f"SELECT slot, epoch FROM trilogue.slots WHERE node_id = {node_id} ORDER BY slot"
    return {int(slot): int(epoch) for slot, epoch in cluster.postgres.run(query, cluster.url)}


def connect_idle(address: str) -> socket.socket:
    """Connect, send nothing, and never wait."""
    host, _, port = address.rpartition(":")
    connection = socket.create_connection((host, int(port)))
    connection.setblocking(False)
    return connection


def test_a_node_that_gives_slots_serves_its_others_without_a_pause(cluster: SharedCluster):
    """Its process, its connections and the epochs of its other slots stay, and slots come back."""
    nodes = cluster.start_all(WAIT_S)
    sender = Sender(nodes)
    idle = [connect_idle(nodes[0].doors[each]) for each in LISTEN_BY_NODE]
    before = epochs(cluster, 1)
    slot, *others = before
    sender.send(300)
    for owner in ("2", "1"):
        moved = move(cluster, "move", str(slot), "--to", owner)
        assert moved.returncode == 0, moved.stderr
        sender.send(300)

    after = epochs(cluster, 1)
    assert {each: after[each] for each in others} == {each: before[each] for each in others}
    assert after[slot] == before[slot] + 2
    assert all(map(is_open, idle))
    assert "node.again" not in nodes[0].output
    assert nodes[0].output.count("slots.given") == 1
    assert nodes[0].output.count("slots.adopted") == 1
    assert sender.failed == []
    found = consume(nodes[0], "readers", "orders", len(sender.sent))
    assert sorted(found) == sorted(sender.sent)
    for each in idle:
        each.close()
    for node in nodes:
        assert node.stop() == 0, node.output


def test_slots_of_a_dead_node_are_served_by_the_living(cluster: SharedCluster):
    """Its machine is gone with its disk; started again it has no slots until it is given some."""
    nodes = cluster.start_all(WAIT_S)
    sender = Sender(nodes)
    sender.send(300)
    wait_until_connected(cluster, {1, 2, 3})
    cluster.lose(nodes[0])
    wait_until_connected(cluster, {2, 3})
    sender.send(300)

    assert sender.failed == []
    assert set(owners(cluster)) == {2, 3}
    again = cluster.start(1, "another machine")
    planned = move(cluster, "rebalance", "--dry-run")
    assert planned.returncode == 0, planned.stderr
    assert set(owners(cluster)) == {2, 3}, "nothing has moved"
    moved = move(cluster, "rebalance")
    assert moved.returncode == 0, moved.stderr
    count = owners(cluster).count(1)
    assert count > 0
    assert f"{count} would move" in planned.stdout
    sender.send(300)
    found = consume(again, "readers", "orders", len(sender.sent))
    assert sorted(found) == sorted(sender.sent)
    for node in (again, *nodes[1:]):
        assert node.stop() == 0, node.output


def test_wrong_moves_in_a_cluster_are_refused(cluster: SharedCluster):
    assert "no cluster with ack=shared" in move(cluster, "drain", "1").stderr
    node = cluster.start(1, "node-1")
    assert "there is no slot 99" in move(cluster, "move", "99", "--to", "1").stderr
    assert "there is no node 7" in move(cluster, "move", "1", "--to", "7").stderr
    assert "node 1 is the only one" in move(cluster, "drain", "1").stderr
    assert "0 moved" in move(cluster, "move", "0", "--to", "1").stdout
    away = move(cluster, "move", "1", "--to", "1")
    assert "node 2 was not started with ack=shared" in away.stderr
    nowhere = run_trilogue("nodes", "drain", "1")
    assert "--data DIR or --cluster URL" in nowhere.stderr

    other = cluster.start(2, "node-2", cluster__spread_after=-1)
    node.signal(signal.SIGSTOP)
    late = move(cluster, "move", "0", "--to", "2", "--timeout", "0.5")
    node.signal(signal.SIGCONT)
    assert "not all moved within 0.5 s" in late.stderr
    assert cluster.count("slot_moves") == 0, "the move is withdrawn"
    assert other.stop() == 0, other.output
