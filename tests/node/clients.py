"""A foreign client in two functions: what was acknowledged, and what can be read."""

from __future__ import annotations

from confluent_kafka import Consumer, Producer


def produce(server, topic, values):
    """Offsets of the values, in their order; each was acknowledged."""
    offsets = []

    def delivered(error, message):
        assert error is None, error
        offsets.append(message.offset())

    producer = Producer({"bootstrap.servers": server.kafka, "acks": "all", "linger.ms": 1})
    for value in values:
        producer.produce(topic, value, on_delivery=delivered)
    assert producer.flush(60) == 0
    return offsets


def consume(server, topic, count):
    """The first values of a topic of one partition."""
    consumer = Consumer(
        {"bootstrap.servers": server.kafka, "group.id": "g", "auto.offset.reset": "earliest",
         "enable.auto.commit": False}
    )  # fmt: skip
    consumer.subscribe([topic])
    values = []
    try:
        while len(values) < count:
            message = consumer.poll(60)
            assert message is not None, f"{len(values)} of {count} came"
            assert message.error() is None, message.error()
            values.append(message.value())
    finally:
        consumer.close()
    return values
