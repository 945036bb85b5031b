"""What our Pulsar client promises about transactions, for any broker; see cases.py."""

from __future__ import annotations

import asyncio

import pytest

from tests.client.pulsar.cases import (
    FROM_START,
    TOGETHER,
    WAIT_S,
    Case,
    Service,
    numbers,
    receive,
    values,
)
from trilogue.client.errors import ClientError
from trilogue.client.pulsar import (
    Consumer,
    SubscriptionType,
    TimedOut,
    TransactionAborted,
    TransactionConflict,
    TransactionNotFound,
    TransactionState,
    sync,
)

TRANSACTION_CASES: list[Case] = []


def case(work: Case) -> Case:
    TRANSACTION_CASES.append(work)
    return work


class Expected(Exception):
    """What a case raises within a transaction."""


async def check_silent(consumer: Consumer) -> None:
    """Check that nothing is there to be received."""
    with pytest.raises(TimedOut):
        await consumer.receive(0.3)


@case
async def messages_of_a_transaction_are_received_after_its_commit(service: Service) -> None:
    async with service.client() as client:
        consumer = await client.subscribe(service.topic, "s")
        for batching in (None, TOGETHER):
            producer = await client.producer(service.topic, batching=batching)
            async with client.transaction() as transaction:
                sent = [await producer.submit(b"%d" % n, transaction=transaction) for n in range(3)]
                if batching is None:
                    await asyncio.gather(*sent)
                await check_silent(consumer)
                assert transaction.state is TransactionState.OPEN
            assert transaction.state is TransactionState.COMMITTED
            got = await receive(consumer, 3)

            assert [one.value for one in got] == [b"0", b"1", b"2"]
            assert [one.id for one in got] == [future.result() for future in sent]
            await producer.close()


@case
async def nothing_of_an_aborted_transaction_is_received(service: Service) -> None:
    async with service.client() as client:
        consumer = await client.subscribe(service.topic, "s")
        producer = await client.producer(service.topic)

        async def fail() -> None:
            async with client.transaction() as transaction:
                await producer.send(b"out", transaction=transaction)
                await producer.submit(b"out too", transaction=transaction)
                raise Expected

        with pytest.raises(Expected):
            await fail()
        by_hand = await client.begin_transaction()
        await producer.send(b"out by hand", transaction=by_hand)
        await by_hand.abort()
        async with by_hand:
            assert by_hand.state is TransactionState.ABORTED
        with pytest.raises(TransactionAborted):
            await producer.send(b"too late", transaction=by_hand)
        await producer.send(b"last")

        assert await values(consumer, 1) == [b"last"]


@case
async def a_producer_mixes_messages_of_several_transactions(service: Service) -> None:
    async with service.client() as client:
        consumer = await client.subscribe(service.topic, "s")
        producer = await client.producer(service.topic, batching=TOGETHER)
        committed, aborted = await client.begin_transaction(), await client.begin_transaction()
        assert committed.id != aborted.id
        for number in range(4):
            for transaction in (committed, None, aborted):
                name = b"none" if transaction is None else str(transaction.id).encode()
                await producer.submit(b"%d %s" % (number, name), transaction=transaction)
        await asyncio.gather(committed.commit(), aborted.abort(), producer.flush())

        wanted = [b"none", str(committed.id).encode()]
        got = {message.value for message in await receive(consumer, 8)}
        assert got == {b"%d %s" % (number, name) for number in range(4) for name in wanted}
        await check_silent(consumer)


@case
async def a_transaction_spans_topics_and_partitions(service: Service) -> None:
    await service.request(service.admin.make_partitioned, service.topic, 3)
    other = f"{service.topic}-other"
    async with service.client() as client:
        consumer = await client.subscribe([service.topic, other], "s")
        first, second = await client.producer(service.topic), await client.producer(other)
        for commit in (True, False, True):
            transaction = await client.begin_transaction()
            for number in range(6):
                await first.submit(b"%d" % commit, key=f"{number}", transaction=transaction)
            await second.submit(b"%d" % commit, transaction=transaction)
            await (transaction.commit() if commit else transaction.abort())

        assert set(await values(consumer, 14)) == {b"1"}
        await check_silent(consumer)


@case
async def acks_take_effect_when_their_transaction_commits(service: Service) -> None:
    async with service.client() as client:
        for batching in (None, TOGETHER):
            options = {"type": SubscriptionType.SHARED, **FROM_START}
            topic = f"{service.topic}-{batching is None}"
            await numbers(client, topic, 4, batching=batching)
            consumer = await client.subscribe(topic, "s", **options)
            aborted = await client.begin_transaction()
            for message in await receive(consumer, 4):
                await consumer.ack(message, transaction=aborted)
            await check_silent(consumer)
            await aborted.abort()

            again = await receive(consumer, 4)
            assert [one.value for one in again] == [b"0", b"1", b"2", b"3"]
            async with client.transaction() as transaction:
                for message in again[:3]:
                    await consumer.ack(message, transaction=transaction)
            await consumer.ack(again[3])
            await consumer.close()
            async with await client.subscribe(topic, "s", **options) as other:
                await check_silent(other)


@case
async def cumulative_acks_take_effect_when_their_transaction_commits(service: Service) -> None:
    async with service.client() as client:
        await numbers(client, service.topic, 4, batching=TOGETHER)
        consumer = await client.subscribe(service.topic, "s", **FROM_START)
        async with client.transaction() as aborted:
            await consumer.ack_through((await receive(consumer, 3))[2], transaction=aborted)
            await aborted.abort()

        again = await receive(consumer, 4)
        assert [one.value for one in again] == [b"0", b"1", b"2", b"3"]
        async with client.transaction() as transaction:
            await consumer.ack_through(again[2], transaction=transaction)
        await consumer.close()
        async with await client.subscribe(service.topic, "s", **FROM_START) as other:
            assert await values(other, 1) == [b"3"]
            await check_silent(other)


@case
async def a_shared_subscription_has_no_cumulative_acks(service: Service) -> None:
    async with service.client() as client:
        await numbers(client, service.topic, 1)
        options = {"type": SubscriptionType.SHARED, **FROM_START}
        consumer = await client.subscribe(service.topic, "s", **options)
        (message,) = await receive(consumer, 1)
        transaction = await client.begin_transaction()
        with pytest.raises(ClientError, match="no order"):
            await consumer.ack_through(message, transaction=transaction)
        with pytest.raises(TransactionAborted, match="no order"):
            await transaction.commit()


@case
async def what_is_read_and_what_is_written_become_one(service: Service) -> None:
    target = f"{service.topic}-target"
    async with service.client() as client:
        await numbers(client, service.topic, 3, batching=None)
        source = await client.subscribe(service.topic, "s", **FROM_START)
        sink = await client.subscribe(target, "s")
        producer = await client.producer(target)
        for message in await receive(source, 3):
            async with client.transaction() as transaction:
                await producer.send(message.value, transaction=transaction)
                await source.ack(message, transaction=transaction)

        assert await values(sink, 3) == [b"0", b"1", b"2"]
        await source.close()
        async with await client.subscribe(service.topic, "s", **FROM_START) as again:
            await check_silent(again)


@case
async def a_message_is_acked_in_one_transaction(service: Service) -> None:
    async with service.client() as client:
        await numbers(client, service.topic, 1)
        options = {"type": SubscriptionType.SHARED, **FROM_START}
        consumer = await client.subscribe(service.topic, "s", **options)
        sink = await client.subscribe(f"{service.topic}-sink", "s")
        producer = await client.producer(f"{service.topic}-sink")
        (message,) = await receive(consumer, 1)
        first, second = await client.begin_transaction(), await client.begin_transaction()
        await consumer.ack(message, transaction=first)
        await producer.send(b"not to be seen", transaction=second)

        with pytest.raises(TransactionConflict):
            await consumer.ack(message, transaction=second)
        with pytest.raises(TransactionAborted, match="TransactionConflict"):
            await second.commit()
        assert second.state is TransactionState.ABORTED
        await first.commit()

        await check_silent(sink)
        await consumer.close()
        async with await client.subscribe(service.topic, "s", **options) as again:
            await check_silent(again)


@case
async def a_transaction_that_takes_too_long_is_aborted_by_the_broker(service: Service) -> None:
    async with service.client() as client:
        consumer = await client.subscribe(service.topic, "s")
        producer = await client.producer(service.topic)
        transaction = await client.begin_transaction(timeout_s=3.0)
        await producer.send(b"late", transaction=transaction)
        await producer.send(b"in time")

        assert await values(consumer, 1) == [b"in time"]
        with pytest.raises((TransactionAborted, TransactionNotFound)):
            await transaction.commit()
        await check_silent(consumer)


@case
async def a_closed_client_leaves_no_transaction_open(service: Service) -> None:
    async with service.client() as reading:
        consumer = await reading.subscribe(service.topic, "s")

        async def close_within() -> None:
            async with service.client() as client, client.transaction() as transaction:
                producer = await client.producer(service.topic)
                await producer.submit(b"open", transaction=transaction)
                await client.close()

        with pytest.raises(TransactionAborted):
            await close_within()
        async with await reading.producer(service.topic) as producer:
            await producer.send(b"next")

        assert (await consumer.receive(WAIT_S)).value == b"next"


@case
async def an_empty_transaction_commits_and_aborts(service: Service) -> None:
    async with service.client() as client:
        async with client.transaction():
            pass
        async with client.transaction() as transaction:
            await transaction.abort()
        await transaction.abort()
        with pytest.raises(TransactionAborted):
            await transaction.commit()


@case
async def a_program_without_asyncio_has_transactions_too(service: Service) -> None:
    await asyncio.to_thread(commit_and_abort, service)


def commit_and_abort(service: Service) -> None:
    with (
        sync.PulsarClient(service.url) as client,
        client.producer(service.topic) as producer,
        client.subscribe(service.topic, "s") as consumer,
    ):
        with client.transaction() as transaction:
            producer.send(b"one", transaction=transaction)
            producer.submit(b"two", transaction=transaction)
        with client.transaction(timeout_s=30.0) as aborted:
            producer.send(b"three", transaction=aborted)
            aborted.abort()
        assert (transaction.state, aborted.state) == (
            TransactionState.COMMITTED,
            TransactionState.ABORTED,
        )
        got = [consumer.receive(WAIT_S) for _ in range(2)]
        assert [one.value for one in got] == [b"one", b"two"]
        last = client.begin_transaction()
        assert last.id.least > transaction.id.least
        consumer.ack_many(got, transaction=last)
        last.commit()
        with pytest.raises(TimedOut):
            consumer.receive(0.2)
