"""Transactions of librdkafka: what readers of committed data see, through kill -9 too."""

from __future__ import annotations

import itertools
import time

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from tests.brokers import Broker
from tests.conformance.clients import DEADLINE

pytestmark = pytest.mark.timeout(300)
_groups = itertools.count()


def producer(address: str, name: str = "tx", **more: object) -> Producer:
    made = Producer(
        {"bootstrap.servers": address, "transactional.id": name, "linger.ms": 1, **more}
    )
    made.init_transactions(DEADLINE)
    return made


def read(address: str, topic: str, count: int, isolation: str = "read_committed") -> list[bytes]:
    """Return the first messages of a topic, or all there are when fewer come within a while."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": f"reader-{next(_groups)}",
            "auto.offset.reset": "earliest",
            "isolation.level": isolation,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[bytes] = []
    ends = time.monotonic() + DEADLINE
    while len(found) < count and time.monotonic() < ends:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            found.append(message.value())
    # Once more, for what should not be there.
    message = consumer.poll(0.5)
    if message is not None and message.error() is None:
        found.append(message.value())
    consumer.close()
    return found


def write(made: Producer, topic: str, *values: bytes) -> None:
    for value in values:
        made.produce(topic, value, partition=0)
    assert made.flush(DEADLINE) == 0


def test_committed_messages_are_read_and_aborted_ones_are_not(broker: Broker, topic: str):
    made = producer(broker.address)
    for value, commits in ((b"a", True), (b"b", False), (b"c", True)):
        made.begin_transaction()
        write(made, topic, value)
        if commits:
            made.commit_transaction(DEADLINE)
        else:
            made.abort_transaction(DEADLINE)
    made.begin_transaction()
    write(made, topic, b"open")

    assert read(broker.address, topic, 2) == [b"a", b"c"]
    assert read(broker.address, topic, 4, "read_uncommitted") == [b"a", b"b", b"c", b"open"]
    made.abort_transaction(DEADLINE)


def test_positions_are_committed_with_the_transaction(broker: Broker, topic: str):
    made = producer(broker.address)
    made.begin_transaction()
    write(made, topic, b"input")
    made.commit_transaction(DEADLINE)
    group = f"pipe-{topic}"
    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": group})
    position = TopicPartition(topic, 0, 1)

    made.begin_transaction()
    made.send_offsets_to_transaction([position], consumer.consumer_group_metadata(), DEADLINE)
    made.abort_transaction(DEADLINE)
    assert consumer.committed([position], DEADLINE)[0].offset < 0
    made.begin_transaction()
    made.send_offsets_to_transaction([position], consumer.consumer_group_metadata(), DEADLINE)
    made.commit_transaction(DEADLINE)
    assert consumer.committed([position], DEADLINE)[0].offset == 1
    consumer.close()


def test_a_second_producer_of_the_id_fences_the_first(broker: Broker, topic: str):
    old = producer(broker.address)
    old.begin_transaction()
    write(old, topic, b"zombie")
    young = producer(broker.address)
    young.begin_transaction()
    write(young, topic, b"young")
    young.commit_transaction(DEADLINE)

    with pytest.raises(KafkaException) as caught:
        old.commit_transaction(DEADLINE)
    assert caught.value.args[0].fatal()
    assert read(broker.address, topic, 1) == [b"young"]


def test_an_open_transaction_survives_kill_nine_and_commits(own_broker: Broker):
    made = producer(own_broker.address, **{"transaction.timeout.ms": 60_000})
    made.begin_transaction()
    write(made, "topic", b"committed before")
    made.commit_transaction(DEADLINE)
    made.begin_transaction()
    write(made, "topic", b"open at the kill")

    own_broker.kill9()
    own_broker.start()

    assert read(own_broker.address, "topic", 1) == [b"committed before"]
    write(made, "topic", b"after the kill")
    made.commit_transaction(DEADLINE)
    expected = [b"committed before", b"open at the kill", b"after the kill"]
    assert read(own_broker.address, "topic", 3) == expected


def test_a_transaction_whose_producer_is_gone_ends_by_its_timeout(own_broker: Broker):
    made = producer(own_broker.address, **{"transaction.timeout.ms": 5_000})
    made.begin_transaction()
    write(made, "topic", b"left open")
    plain = Producer({"bootstrap.servers": own_broker.address})
    write(plain, "topic", b"behind it")
    own_broker.kill9()
    own_broker.start()

    assert read(own_broker.address, "topic", 1) == [b"behind it"]
