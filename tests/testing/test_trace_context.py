"""The trace context of a message (W3C `traceparent`, `tracestate`) for clients of each protocol."""

from __future__ import annotations

import pulsar
import pytest
from confluent_kafka import Consumer, Producer

from trilogue.client.tubemq import Message
from trilogue.client.tubemq.sync import TubeClient
from trilogue.testing import start_broker

WAIT_S = 60
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
STATE = "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"
CONTEXT = {"traceparent": PARENT, "tracestate": STATE}


@pytest.fixture(scope="module")
def broker():
    with start_broker() as broker:
        yield broker


@pytest.fixture(scope="module")
def topic(broker):
    """A topic with one message of each protocol, all of one trace."""
    producer = Producer({"bootstrap.servers": broker.kafka, "linger.ms": 0})
    producer.produce("traced", b"kafka", headers=list(CONTEXT.items()))
    assert producer.flush(WAIT_S) == 0
    client = pulsar.Client(broker.pulsar)
    client.create_producer("traced-partition-0").send(b"pulsar", properties=CONTEXT)
    client.close()
    with TubeClient(broker.tubemq) as tubemq:
        # its attributes cannot have `,` and `=`, which tracestate has
        tubemq.producer("traced").send(Message("traced", b"tubemq", {"traceparent": PARENT}))
    return "traced"


EXPECTED = {b"kafka": CONTEXT, b"pulsar": CONTEXT, b"tubemq": {"traceparent": PARENT}}


def test_a_kafka_client_gets_it_as_headers(broker, topic):
    consumer = Consumer(
        {"bootstrap.servers": broker.kafka, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    found = {}
    for _ in EXPECTED:
        message = consumer.poll(WAIT_S)
        found[message.value()] = {
            name: value.decode()
            for name, value in message.headers() or ()
            if name.startswith("trace")
        }
    consumer.close()

    assert found == EXPECTED


def test_a_pulsar_client_gets_it_as_properties(broker, topic):
    client = pulsar.Client(broker.pulsar)
    reader = client.create_reader(f"{topic}-partition-0", pulsar.MessageId.earliest)
    found = {}
    for _ in EXPECTED:
        message = reader.read_next(WAIT_S * 1000)
        found[message.data()] = {
            name: value for name, value in message.properties().items() if name.startswith("trace")
        }
    client.close()

    assert found == EXPECTED


def test_a_tubemq_client_gets_it_as_attributes(broker, topic):
    found = {}
    with TubeClient(broker.tubemq) as client, client.consumer(topic, group="g") as consumer:
        for message in consumer:
            found[message.body] = message.attributes.get("traceparent")
            if len(found) == len(EXPECTED):
                break

    assert found == dict.fromkeys(EXPECTED, PARENT)
