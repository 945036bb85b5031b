"""Producers and transactions that a broker knows of: each client that has words for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import closing

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Consumer, Producer
from kafka import KafkaProducer

from tests.conformance.clients import DEADLINE, EVERYONE, Client, Record, each
from tests.conformance.clients.administrators import (
    CONFLUENT,
    KAFKA_PYTHON,
    Administrator,
    able,
)
from tests.conformance.clients.driven import Driven
from tests.conformance.clients.kafka_programs import PROGRAMS
from tests.conformance.kafka.families.families import refusal


@pytest.mark.parametrize("client", each(EVERYONE))
def test_every_idempotent_producer_is_known(address: str, topic: str, client: Client):
    CONFLUENT.create(address, topic, 1)
    client.write(address, topic, [Record(b"k", b"v")] * 3, idempotent=True)

    (reported,) = KAFKA_PYTHON.producers(address, topic, 0)

    assert reported["id"] >= 0
    assert (reported["epoch"], reported["sequence"], reported["open_from"]) == (0, 2, -1)


@pytest.mark.parametrize("admin", able("producers"))
def test_every_client_sees_the_same_producers(address: str, topic: str, admin: Administrator):
    CONFLUENT.create(address, topic, 1)
    for _ in range(2):
        EVERYONE[0].write(address, topic, [Record(b"k", b"v")] * 3, idempotent=True)
    EVERYONE[0].write(address, topic, [Record(b"k", b"v")] * 3, idempotent=False)

    response = admin.request("producers", address, topic=topic, partition=0)

    assert len({one["id"] for one in response}) == 2
    assert [(one["epoch"], one["sequence"], one["open_from"]) for one in response] == [
        (0, 2, -1)
    ] * 2


@pytest.mark.parametrize("admin", able("transactions", "describe_transaction"))
def test_a_transaction_that_no_client_began_is_not_there(
    address: str, topic: str, admin: Administrator
):
    """A real one creates its transaction topic at the first request, and kafka-python does not
    wait for that."""
    assert topic not in admin.request("transactions", address)

    response = refusal(lambda: admin.request("describe_transaction", address, transaction=topic))

    names = ("transactionalidnotfound", "coordinatornotavailable")
    assert any(name in response for name in names), response


def of_librdkafka(address: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": address, "transactional.id": topic, "log_level": 2})
    producer.init_transactions(DEADLINE)
    producer.begin_transaction()
    producer.produce(topic, b"v")
    producer.commit_transaction(DEADLINE)


def of_kafka_python(address: str, topic: str) -> None:
    producer = KafkaProducer(bootstrap_servers=address, transactional_id=topic)
    try:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"v")
        producer.commit_transaction()
    finally:
        producer.close(DEADLINE)


def of_aiokafka(address: str, topic: str) -> None:
    async def write() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=address, transactional_id=topic)
        try:
            await producer.start()
            async with producer.transaction():
                await producer.send_and_wait(topic, b"v")
        finally:
            await producer.stop()

    asyncio.run(asyncio.wait_for(write(), DEADLINE))


def of_program(program: Driven) -> Callable[[str, str], None]:
    def write(address: str, topic: str) -> None:
        program.write(address, topic, [Record(b"k", b"v")], idempotent=True, transaction=topic)

    return write


WRITERS = [
    *(
        pytest.param(one, id=one.__name__[3:])
        for one in (of_librdkafka, of_kafka_python, of_aiokafka)
    ),
    *(
        pytest.param(of_program(one), id=one.name, marks=[pytest.mark.java] * ("java" in one.name))
        for one in PROGRAMS
    ),
]


@pytest.mark.parametrize("write", WRITERS)
def test_a_committed_transaction_is_read(
    address: str, topic: str, write: Callable[[str, str], None]
):
    CONFLUENT.create(address, topic, 1)
    write(address, topic)

    options = {
        "bootstrap.servers": address,
        "group.id": topic,
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
    }
    with closing(Consumer(options)) as consumer:
        consumer.subscribe([topic])
        message = consumer.poll(DEADLINE)
        assert message is not None
        assert message.value() == b"v"
