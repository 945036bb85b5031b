"""What our Kafka client promises about transactions, for any server; see cases.py."""

from __future__ import annotations

import asyncio

import pytest

from tests.client.kafka.cases import (
    FROM_START,
    WAIT_S,
    Case,
    Service,
    collecting,
    reader,
    take,
    values,
)
from trilogue.client.errors import ClientError
from trilogue.client.kafka import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    KafkaClient,
    ProducerFenced,
    sync,
)

TRANSACTION_CASES: list[Case] = []
case = collecting(TRANSACTION_CASES)


class Expected(Exception):
    """What a case raises within a transaction."""


async def read(client: KafkaClient, topic: str, count: int, isolation: int) -> list[bytes]:
    """Return so many values of both partitions, and those that come although none should."""
    async with await reader(client, topic, 0, 1, isolation=isolation) as consumer:
        found = await values(consumer, count)
        found += [each.value for each in await consumer.poll(0.2)]
        return sorted(value or b"" for value in found)


@case
async def committed_messages_are_read_and_aborted_ones_are_not(service: Service) -> None:
    topic = service.topic
    async with service.made(2) as client:
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


@case
async def an_empty_transaction_commits_and_aborts(service: Service) -> None:
    topic = service.topic
    async with service.made(2) as client:
        producer = await client.producer(transactional_id=topic)
        async with producer.transaction():
            pass
        async with producer.transaction() as transaction:
            await transaction.abort()
        async with producer.transaction():
            await producer.send(topic, b"one")

        assert await read(client, topic, 1, READ_COMMITTED) == [b"one"]


@case
async def a_second_producer_of_the_id_ends_the_first(service: Service) -> None:
    topic = service.topic
    async with service.made(2) as client:
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


@case
async def positions_move_with_the_transaction(service: Service) -> None:
    topic = service.topic
    async with service.made(2) as client:
        source = await client.producer()
        for number in range(4):
            await source.send(topic, b"%d" % number, partition=0)
        consumer = await client.consumer(
            topic, group=topic, auto_commit_s=None, isolation=READ_COMMITTED, **FROM_START
        )
        producer = await client.producer(transactional_id=topic)
        await take(consumer, 4)

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


@case
async def messages_are_sent_within_transactions_only(service: Service) -> None:
    topic = service.topic
    async with service.made(2) as client:
        producer = await client.producer(transactional_id=topic)
        with pytest.raises(ClientError, match="begin a transaction"):
            await producer.send(topic, b"one")
        with pytest.raises(ClientError, match="no transactional_id"):
            (await client.producer()).transaction()


@case
async def a_message_that_is_not_stored_aborts_its_transaction(service: Service) -> None:
    topic = service.topic
    async with service.made(2) as client:
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


@case
async def a_transaction_that_takes_too_long_is_aborted_by_the_server(service: Service) -> None:
    topic = service.topic
    async with service.made(2) as client:
        producer = await client.producer(transactional_id=topic, transaction_timeout_s=1.0)

        async def take_long() -> None:
            async with producer.transaction():
                await producer.send(topic, b"late", partition=0)
                while True:  # real servers look every 10 s
                    await asyncio.sleep(1.0)
                    await producer.send(topic, b"later", partition=0)

        with pytest.raises(ClientError):
            await take_long()

        again = await client.producer(transactional_id=topic)
        async with again.transaction():
            await again.send(topic, b"in time", partition=0)
        assert await read(client, topic, 1, READ_COMMITTED) == [b"in time"]


@case
async def a_prepared_transaction_is_ended_by_another_process(service: Service) -> None:
    topic = service.topic
    async with service.made(2) as client, service.client() as other:
        for commit in (True, False):
            producer = await client.producer(transactional_id=f"{topic}-{commit}")
            async with producer.transaction() as transaction:
                await producer.submit(topic, b"%d" % commit, partition=0)
                prepared = await transaction.prepare()
            with pytest.raises(ClientError, match="prepared"):
                await producer.begin_transaction()
            await producer.close()
            await other.admin.end_transaction(prepared, commit=commit)
        assert await read(client, topic, 1, READ_COMMITTED) == [b"1"]


@case
async def a_program_without_asyncio_has_them_too(service: Service) -> None:
    async with service.made():
        await asyncio.to_thread(commit_and_abort, service)


def commit_and_abort(service: Service) -> None:
    topic = service.topic
    with sync.KafkaClient(service.address) as client:
        with client.producer(transactional_id=topic) as producer:
            with producer.transaction():
                producer.send(topic, b"one")
            with producer.transaction() as aborted:
                producer.send(topic, b"two")
                aborted.abort()
        with client.consumer(isolation=READ_COMMITTED, **FROM_START) as consumer:
            consumer.assign([(topic, 0)])
            assert [each.value for each in consumer.poll(WAIT_S)] == [b"one"]
