"""Replication factors that clients ask for in a cluster with `ack=shared`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from tests.node.cluster.shared_cluster import WAIT_S, SharedCluster
from tests.node.supervisor.test_nodes import QUIET
from tests.postgres import PostgresServer

SIZE = 3

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def cluster(tmp_path: Path, postgres_server: PostgresServer) -> Iterator[SharedCluster]:
    made = SharedCluster(tmp_path, postgres_server, SIZE)
    yield made
    made.kill_all()


def refusal(client: AdminClient, topic: NewTopic) -> object:
    with pytest.raises(KafkaException) as raised:
        client.create_topics([topic])[topic.topic].result(WAIT_S)
    return raised.value.args[0].code()


def test_as_many_replicas_as_nodes_are_accepted_and_in_sync(cluster: SharedCluster):
    nodes = [cluster.launch(each, f"node-{each}") for each in range(1, SIZE + 1)]
    for node in nodes:
        node.wait_ready(WAIT_S)
    client = AdminClient({"bootstrap.servers": nodes[0].kafka, **QUIET})
    in_sync = {"min.insync.replicas": "2"}
    orders = NewTopic("orders", 6, replication_factor=3, config=in_sync)
    client.create_topics([orders])["orders"].result(WAIT_S)

    partitions = client.list_topics("orders", timeout=WAIT_S).topics["orders"].partitions
    assert len(partitions) == 6
    for partition in partitions.values():
        assert partition.replicas[0] == partition.leader
        assert sorted(partition.replicas) == sorted(partition.isrs) == [1, 2, 3]
    resource = ConfigResource(ConfigResource.Type.TOPIC, "orders")
    other = AdminClient({"bootstrap.servers": nodes[2].kafka, **QUIET})
    described = other.describe_configs([resource])[resource].result(WAIT_S)
    assert described["min.insync.replicas"].value == "2", "as it was requested"
    too_many = NewTopic("more", 1, replication_factor=4)
    assert refusal(client, too_many) == KafkaError.INVALID_REPLICATION_FACTOR
    too_safe = NewTopic("safer", 1, replication_factor=3, config={"min.insync.replicas": "4"})
    assert refusal(client, too_safe) == KafkaError.INVALID_CONFIG
    for node in nodes:
        assert node.stop() == 0, node.output
