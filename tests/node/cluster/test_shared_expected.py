"""Clients of a dead node's partitions go to their next owner while the slots are recovered.

A transaction that locks the dead node's row keeps the recovery from its end, for as long as a test
wants.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import asyncpg
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from tests.node.cluster.shared_cluster import WAIT_S, SharedCluster
from tests.node.supervisor.test_nodes import QUIET, consume, create, numbered, produce
from tests.postgres import PostgresServer
from tests.waiting import wait_until

SIZE, DEAD = 3, 3
PARTITIONS = 6
OF_DEAD = f"slots WHERE node_id = {DEAD}"


@pytest.fixture
def cluster(tmp_path: Path, postgres_server: PostgresServer) -> Iterator[SharedCluster]:
    cluster = SharedCluster(tmp_path, postgres_server, SIZE)
    cluster.spread_after = "0s"
    yield cluster
    cluster.kill_all()


@contextmanager
def locked(url: str) -> Iterator[None]:
    """Hold a lock on the row of the dead node's journal."""
    settings = {"search_path": "trilogue", "idle_in_transaction_session_timeout": "0"}
    rows = f"SELECT node_id FROM shared_journals WHERE node_id = {DEAD} FOR UPDATE"
    with asyncio.Runner() as runner:
        connection = runner.run(asyncpg.connect(url, server_settings=settings))
        try:
            runner.run(connection.execute("BEGIN"))
            assert runner.run(connection.fetchval(rows)) == DEAD
            yield
        finally:
            runner.run(connection.close())  # which ends the transaction


def leaders(admin: AdminClient) -> set[int]:
    topic = admin.list_topics("orders", timeout=WAIT_S).topics["orders"]
    return {each.leader for each in topic.partitions.values()}


def test_a_producer_waits_at_the_next_owner_while_slots_are_recovered(cluster: SharedCluster):
    nodes = cluster.start_all()
    create(nodes[0], "orders", PARTITIONS)
    produce(nodes[0], "orders", numbered(0, 60), PARTITIONS)
    living = ",".join(each.kafka for each in nodes[:2])
    admin = AdminClient({"bootstrap.servers": living, **QUIET})
    assert DEAD in leaders(admin)
    producer = Producer({"bootstrap.servers": living, "enable.idempotence": True, **QUIET})
    acked: list[object] = []

    with locked(cluster.url):
        cluster.lose(nodes[DEAD - 1])
        wait_until(lambda: DEAD not in leaders(admin), "next owners", WAIT_S)
        assert cluster.count(OF_DEAD) > 0, "it is still the owner"
        for number, value in enumerate(numbered(60, 60)):
            producer.produce(
                "orders",
                value,
                partition=number % PARTITIONS,
                on_delivery=lambda error, message: error or acked.append(message),
            )
        wait_until(lambda: producer.poll(0.1) == 0 and acked, "others go on", WAIT_S)
        assert len(acked) < 60
        assert cluster.count(OF_DEAD) > 0

    assert producer.flush(WAIT_S) == 0
    assert len(acked) == 60
    assert cluster.count(OF_DEAD) == 0
    assert sorted(consume(nodes[0], "readers", "orders", 120)) == sorted(numbered(0, 120))
    wait_until(lambda: cluster.count("slot_moves") == 0, "no wish is left", WAIT_S)
    for node in nodes[:2]:
        assert node.stop() == 0, node.output
