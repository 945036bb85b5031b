"""One quota of a user holds for what the user's Kafka and Pulsar clients do together."""

from __future__ import annotations

import contextlib
import selectors
import socket

import pytest
from confluent_kafka import Producer

from tests.security.live_node import LiveNode
from tests.waiting import wait_until
from trilogue.broker.access.users import make_user
from trilogue.broker.quotas.quotas import DEFAULT, QuotaEntity, QuotaKind

pulsar = pytest.importorskip("pulsar")

USER, PASSWORD = "alice", "wonder"
RATE = 20_000.0  # bytes a second; as many at once after a pause
SIZE = 30_000

pytestmark = [pytest.mark.full, pytest.mark.timeout(120)]


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

    kafka.list_topics("orders", 60)  # connected before the debt is made
    producer.send(b"x" * SIZE)  # waits for the receipt; the next one is read 0.5 s later

    def is_throttled():
        producer.send(b"x" * SIZE)  # the debt of a second, in which a slow machine may be late
        kafka.produce("orders", b"x")
        assert kafka.flush(60) == 0
        kafka.poll(1)
        return throttled_ms

    wait_until(is_throttled, "a Kafka producer throttled for the debt of a Pulsar producer")
    client.close()

    assert quotas.waits[QuotaKind.PRODUCED] >= 3


@pytest.mark.parametrize("listener", ["kafka-sasl", "pulsar", "tubemq-broker"])
def test_new_connections_of_an_address_are_limited_at_every_listener(node, listener, caplog):
    broker = node.node.storage.broker
    everyone = QuotaEntity(address=DEFAULT)
    node.write(broker.quotas.plan_alter([(everyone, {QuotaKind.CONNECTIONS: 2.0})]))
    address = node.doors[listener].split(":")
    with selectors.DefaultSelector() as selector, contextlib.ExitStack() as opened:
        opened.callback(
            lambda: node.write(
                broker.quotas.plan_alter([(everyone, {QuotaKind.CONNECTIONS: None})])
            )
        )
        for _ in range(20):
            peer = opened.enter_context(socket.create_connection(address, 60))
            selector.register(peer, selectors.EVENT_READ)
        # None of the listeners speaks first: what can be read is the end of the connection.
        wait_until(
            lambda: len(selector.select(0)) >= 2,
            "the end of those that came too early, when their time has come",
            timeout_s=60,
        )

    assert caplog.messages.count("listener.address_early") >= 2
