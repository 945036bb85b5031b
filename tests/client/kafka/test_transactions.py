"""Transactions of our Kafka client: all or nothing, fencing, positions, failures."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any

import pytest

from tests.server import Server
from trilogue.client.errors import ClientError
from trilogue.client.kafka import (
    EARLIEST,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    KafkaClient,
    ProducerFenced,
    sync,
)

WAIT_S = 20.0
Test = Callable[[KafkaClient, str], Coroutine[Any, Any, None]]


def with_client(test: Test) -> Callable[..., None]:
    """Run a test with a client and a topic of its own."""

    @wraps(test)
    def run(server: Server, request: pytest.FixtureRequest) -> None:
        async def run_in_client() -> None:
            async with KafkaClient(server.kafka) as client:
                topic = request.node.name.replace("_", "-")
                await client.admin.create_topic(topic, partitions=2)
                await test(client, topic)

        asyncio.run(asyncio.wait_for(run_in_client(), 60))

    del run.__wrapped__  # type: ignore[attr-defined]
    return run


async def read(client: KafkaClient, topic: str, count: int, isolation: int) -> list[bytes]:
    consumer = await client.consumer(reset_to=EARLIEST, isolation=isolation)
    try:
        await consumer.assign([(topic, 0), (topic, 1)])
        found: list[bytes] = []
        while len(found) < count:
            found += [each.value or b"" for each in await consumer.poll(WAIT_S)]
        found += [each.value or b"" for each in await consumer.poll(0.2)]
        return sorted(found)
    finally:
        await consumer.close()


class Expected(Exception):
    """What a test raises within a transaction."""


@with_client
async def test_committed_messages_are_read_and_aborted_ones_are_not(client, topic):
    producer = await client.producer(transactional_id=topic)
    for number in range(3):
        async with producer.transaction():
            await producer.send(topic, b"in-%d" % number, partition=number % 2)
            await producer.submit(topic, b"also-in-%d" % number, partition=0)

    async def fail() -> None:
        async with producer.transaction():
            await producer.send(topic, b"out", partition=0)
            await producer.submit(topic, b"out too", partition=1)
            raise Expected

    with pytest.raises(Expected):
        await fail()

    async with producer.transaction() as transaction:
        await producer.send(topic, b"out by hand")
        await transaction.abort()
    async with producer.transaction():
        await producer.send(topic, b"last", partition=1)

    committed = await read(client, topic, 7, READ_COMMITTED)
    assert committed == sorted(
        [*(b"in-%d" % n for n in range(3)), *(b"also-in-%d" % n for n in range(3)), b"last"]
    )
    assert b"out" in await read(client, topic, 9, READ_UNCOMMITTED)


@with_client
async def test_an_empty_transaction_commits_and_aborts(client, topic):
    producer = await client.producer(transactional_id=topic)
    async with producer.transaction():
        pass
    async with producer.transaction() as transaction:
        await transaction.abort()
    async with producer.transaction():
        await producer.send(topic, b"one")

    assert await read(client, topic, 1, READ_COMMITTED) == [b"one"]


@with_client
async def test_a_second_producer_of_the_id_ends_the_first(client, topic):
    first = await client.producer(transactional_id=topic)
    second = await client.producer(transactional_id=topic)

    async def go_on() -> None:
        async with first.transaction() as transaction:
            await first.send(topic, b"first")
            async with second.transaction():
                await second.send(topic, b"second")
            await transaction.commit()

    with pytest.raises(ProducerFenced):
        await go_on()

    with pytest.raises(ProducerFenced):
        async with first.transaction():
            pass

    assert await read(client, topic, 1, READ_COMMITTED) == [b"second"]


@with_client
async def test_positions_move_with_the_transaction(client, topic):
    source = await client.producer()
    for number in range(4):
        await source.send(topic, b"%d" % number, partition=0)
    consumer = await client.consumer(
        topic, group=topic, reset_to=EARLIEST, auto_commit_s=None, isolation=READ_COMMITTED
    )
    producer = await client.producer(transactional_id=topic)
    seen: list[bytes] = []
    while len(seen) < 4:
        seen += [each.value for each in await consumer.poll(WAIT_S)]

    async def fail() -> None:
        async with producer.transaction() as transaction:
            await transaction.send_positions(consumer, {(topic, 0): 2})
            raise Expected

    with pytest.raises(Expected):
        await fail()

    assert await consumer.committed([(topic, 0)]) == {}
    async with producer.transaction() as transaction:
        await transaction.send_positions(consumer)
    committed = await consumer.committed([(topic, 0)])

    assert [each.offset for each in committed.values()] == [4]


@with_client
async def test_messages_are_sent_within_transactions_only(client, topic):
    producer = await client.producer(transactional_id=topic)
    with pytest.raises(ClientError, match="begin a transaction"):
        await producer.send(topic, b"one")
    with pytest.raises(ClientError, match="no transactional_id"):
        (await client.producer()).transaction()


@with_client
async def test_a_message_that_is_not_stored_aborts_its_transaction(client, topic):
    producer = await client.producer(transactional_id=topic, create_topics=False)
    await client.admin.create_topic(f"{topic}-small", settings={"max.message.bytes": "1000"})

    async def send_both() -> None:
        async with producer.transaction():
            await producer.send(topic, b"good", partition=0)
            await producer.submit(f"{topic}-small", bytes(5_000))

    with pytest.raises(ClientError, match="aborted"):
        await send_both()

    async with producer.transaction():
        await producer.send(topic, b"next", partition=0)

    assert await read(client, topic, 1, READ_COMMITTED) == [b"next"]


@with_client
async def test_a_transaction_that_takes_too_long_is_aborted_by_the_server(client, topic):
    producer = await client.producer(transactional_id=topic, transaction_timeout_s=1.0)

    async def take_long() -> None:
        async with producer.transaction():
            await producer.send(topic, b"late", partition=0)
            await asyncio.sleep(3.0)  # by design: longer than the transaction may take
            await producer.send(topic, b"later", partition=0)

    with pytest.raises(ClientError):
        await take_long()

    again = await client.producer(transactional_id=topic)
    async with again.transaction():
        await again.send(topic, b"in time", partition=0)
    assert await read(client, topic, 1, READ_COMMITTED) == [b"in time"]


def test_without_asyncio(server: Server):
    with sync.KafkaClient(server.kafka) as client:
        client.admin.create_topic("tx-sync")
        with client.producer(transactional_id="tx-sync") as producer:
            with producer.transaction():
                producer.send("tx-sync", b"one")
            aborted = producer.transaction()
            with aborted:
                producer.send("tx-sync", b"two")
                aborted.abort()
        with client.consumer(isolation=READ_COMMITTED, reset_to=EARLIEST) as consumer:
            consumer.assign([("tx-sync", 0)])
            assert [each.value for each in consumer.poll(WAIT_S)] == [b"one"]
