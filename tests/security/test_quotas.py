"""One quota of a user holds for what the user's Kafka and Pulsar clients do together."""

from __future__ import annotations

import contextlib
import socket

import pytest
from confluent_kafka import Producer

from tests.security.live_node import LiveNode
from trilogue.broker.access.users import make_user
from trilogue.broker.quotas.quotas import DEFAULT, QuotaEntity, QuotaKind

pulsar = pytest.importorskip("pulsar")

USER, PASSWORD = "alice", "wonder"
RATE = 20_000.0  # bytes a second; as many at once after a pause
SIZE = 30_000

pytestmark = [pytest.mark.full, pytest.mark.timeout(60)]


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    folder = tmp_path_factory.mktemp("quotas")
    settings = {"access.authenticate": "true"}
    with LiveNode(folder, settings, ("kafka-sasl", "pulsar", "tubemq-broker")) as live:
        live.make_topic("orders")
        broker = live.node.storage.broker
        user = make_user(USER, PASSWORD.encode(), live.node.now_ms(), key=live.key)
        live.write(broker.users.plan_put(user))
        rates = {QuotaKind.PRODUCED: RATE}
        live.write(broker.quotas.plan_alter([(QuotaEntity(USER), rates)]))
        yield live


def test_quota_of_a_user_is_shared_by_pulsar_and_kafka_producers(node):
    client = pulsar.Client(
        f"pulsar://{node.doors['pulsar']}",
        authentication=pulsar.AuthenticationBasic(USER, PASSWORD),
        logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
    )
    producer = client.create_producer("orders-partition-0")
    throttled_ms = []
    kafka = Producer(
        {
            "bootstrap.servers": node.doors["kafka-sasl"],
            "security.protocol": "sasl_plaintext",
            "sasl.mechanism": "PLAIN",
            "sasl.username": USER,
            "sasl.password": PASSWORD,
            "throttle_cb": lambda event: throttled_ms.append(event.throttle_time),
        }
    )
    quotas = node.node.storage.broker.quotas

    kafka.list_topics("orders", 10)  # connected before the debt is made
    for _ in range(2):
        producer.send(b"x" * SIZE)  # waits for the receipt; the second one is read 0.5 s later
    waits = quotas.waits[QuotaKind.PRODUCED]
    kafka.produce("orders", b"x")
    left = kafka.flush(30)
    kafka.poll(1)
    client.close()

    assert waits == 2
    assert left == 0
    assert throttled_ms, "the debt is the user's, whoever made it"


@pytest.mark.parametrize("listener", ["kafka-sasl", "pulsar", "tubemq-broker"])
def test_new_connections_of_an_address_are_limited_at_every_listener(node, listener):
    broker = node.node.storage.broker
    everyone = QuotaEntity(address=DEFAULT)
    node.write(broker.quotas.plan_alter([(everyone, {QuotaKind.CONNECTIONS: 2.0})]))
    host, port = node.doors[listener].split(":")
    try:
        opened = [socket.create_connection((host, int(port)), 10) for _ in range(6)]
        closed = 0
        for each in opened:
            each.settimeout(2.0)
            with contextlib.suppress(TimeoutError):
                closed += not each.recv(1)
            each.close()
    finally:
        node.write(broker.quotas.plan_alter([(everyone, {QuotaKind.CONNECTIONS: None})]))

    assert closed >= 2, "those that came too early are closed when their time has come"
