"""Partitions that clients of each protocol add get the topic's subscriptions, at all nodes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pulsar
import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from tests.node.cluster.shared_cluster import LISTEN, SharedCluster
from tests.postgres import PostgresServer
from tests.server import Server, start_server

NAME = "public/default/parts"
TOKEN = "a token of the web API"
WAIT_S = 60.0
SILENT = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)

pytestmark = [pytest.mark.full, pytest.mark.timeout(300)]


def add_by_kafka(node: Server, count: int) -> None:
    admin = AdminClient({"bootstrap.servers": node.kafka, "log_level": 0})
    admin.create_partitions([NewPartitions("parts", count)])["parts"].result(WAIT_S)


def add_by_pulsar(node: Server, count: int) -> None:
    path = f"{node.http}/admin/v2/persistent/{NAME}/partitions"
    assert httpx.post(path, json=count, timeout=WAIT_S).status_code == 204


def add_by_tubemq(node: Server, count: int) -> None:
    params = {
        "type": "op_modify",
        "method": "admin_modify_topic_info",
        "confModAuthToken": TOKEN,
        "modifyUser": "me",
        "brokerId": 1,
        "topicName": "parts",
        "numPartitions": count,
    }
    path = f"{node.http}/webapi.htm"
    reply = httpx.get(path, params=params, follow_redirects=True, timeout=WAIT_S)
    assert reply.json().get("result"), reply.text


def check(nodes: list[Server], begin: str, adds: list[Callable[[Server, int], None]]) -> None:
    """Add partitions by each protocol at each node; each partition then has both subscriptions."""
    root = f"{nodes[0].http}/admin/v2/persistent/{NAME}"
    httpx.put(f"{root}/partitions", json=2, timeout=WAIT_S).raise_for_status()
    client = pulsar.Client(begin, logger=SILENT)
    for name in ("readers", "kept/with a slash"):
        client.subscribe(f"persistent://{NAME}", name, properties={"by": "test"}).close()
    total = 2
    for node, add in itertools.product(nodes, adds):
        total += len(nodes) + 1
        add(node, total)
        for index in range(total):
            path = f"{root}-partition-{index}/stats"
            stats = httpx.get(path, follow_redirects=True, timeout=WAIT_S).json()
            assert set(stats["subscriptions"]) == {"readers", "kept/with a slash"}, (index, add)
    producer = client.create_producer(f"persistent://{NAME}")
    for value in range(10 * total):
        producer.send(b"%d" % value)
    consumer = client.subscribe(f"persistent://{NAME}", "readers")
    values = {int(consumer.receive(60_000).data()) for _ in range(10 * total)}
    assert values == set(range(10 * total))
    client.close()


ADDS: list[Callable[[Server, int], None]] = [add_by_kafka, add_by_pulsar, add_by_tubemq]


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Server]:
    settings = {"tubemq.web-token": TOKEN}
    with start_server(tmp_path / "data", listen=LISTEN, nodes=2, settings=settings) as server:
        yield server
        server.stop()


def test_partitions_added_by_each_protocol_are_subscribed_at_both_nodes(nodes: Server) -> None:
    check([nodes], nodes.pulsar, ADDS)


def test_partitions_added_at_each_of_three_machines_are_subscribed(
    tmp_path: Path, postgres_server: PostgresServer
):
    cluster = SharedCluster(tmp_path, postgres_server, 3)
    try:
        started = [
            cluster.launch(each, f"node-{each}", tubemq__web_token=TOKEN) for each in (1, 2, 3)
        ]
        machines = [each.wait_ready(WAIT_S) for each in started]
        check(machines, machines[0].pulsar, ADDS)
    finally:
        cluster.kill_all()
