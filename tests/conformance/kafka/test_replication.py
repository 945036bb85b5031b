"""Replication that librdkafka requests of one node: refused with advice, or taken as one copy."""

from __future__ import annotations

import socket
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from tests.brokers import Trilogue
from tests.conformance.kafka.test_configs import call_admin, described

DEADLINE_S = 60.0
REPLICATED = {
    "a factor of 3": NewTopic("factor", 1, 3),
    "two in sync": NewTopic("in-sync", 1, 1, config={"min.insync.replicas": "2"}),
}


@pytest.fixture(params=[False, True], ids=["by default", "accepted"])
def served(request, tmp_path: Path):
    settings = {"kafka.accept-replication": str(request.param).lower()}
    broker = Trilogue(tmp_path / "data", settings).start()
    yield request.param, broker
    broker.kill9()


def test_a_topic_with_copies_is_refused_with_advice_or_has_one(served):
    accepts, broker = served
    for kind, topic in REPLICATED.items():
        if not accepts:
            with pytest.raises(KafkaException, match=r"kafka\.accept-replication") as refused:
                call_admin(broker.address, "create_topics", topic)
            assert "one synced copy" in str(refused.value), kind
            continue
        call_admin(broker.address, "create_topics", topic)

        metadata = AdminClient({"bootstrap.servers": broker.address}).list_topics(
            timeout=DEADLINE_S
        )
        assert metadata.topics[topic.topic].partitions[0].replicas == [1]
        assert described(broker.address, topic.topic)["min.insync.replicas"].value == "1"
    if accepts:
        assert broker.output.count("topic.replication_taken_as_1") == len(REPLICATED)


def test_an_http_request_at_the_port_is_named_in_the_log_and_cut(tmp_path: Path):
    broker = Trilogue(tmp_path / "data", {}).start()
    host, _, port = broker.address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=DEADLINE_S) as peer:
            peer.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
            with suppress(ConnectionResetError):
                assert peer.recv(1) == b""

        assert "this is an HTTP request" in broker.output
    finally:
        broker.kill9()
