"""What our Pulsar client promises its users, for any broker: run against the real one
(test_real_server.py) and against ours (tests/conformance/pulsar/test_own_client.py).

Each case gets a `Service` with an unused topic name.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest

from tests.conformance.pulsar.pulsar_admin import Admin
from trilogue.client.pulsar import (
    EARLIEST,
    LATEST,
    AccessMode,
    Batching,
    Compression,
    Consumer,
    InitialPosition,
    Message,
    MessageId,
    PulsarClient,
    PulsarError,
    SubscriptionType,
    TimedOut,
)
from trilogue.wire.pulsar.errors import ServerError

WAIT_S = 90.0
FROM_START = {"initial_position": InitialPosition.EARLIEST}
TOGETHER = Batching(max_delay_s=60)
Case = Callable[["Service"], Awaitable[None]]
CASES: list[Case] = []


@dataclass(frozen=True)
class Service:
    """A broker, and a topic of this case alone."""

    address: str
    http: str
    topic: str

    @property
    def url(self) -> str:
        return f"pulsar://{self.address}"

    @contextlib.asynccontextmanager
    async def client(self, **options: Any) -> AsyncIterator[PulsarClient]:
        async with PulsarClient(self.url, **options) as client:
            yield client

    @property
    def admin(self) -> Admin:
        return Admin(self.http)

    async def request(self, request: Callable[..., Any], *arguments: Any) -> Any:
        """An administration request, which blocks."""
        return await asyncio.to_thread(request, *arguments)


def case(work: Case) -> Case:
    CASES.append(work)
    return work


def name(work: Case) -> str:
    return work.__name__  # type: ignore[attr-defined]


async def receive(consumer: Consumer, count: int) -> list[Message]:
    return [await consumer.receive(WAIT_S) for _ in range(count)]


async def values(consumer: Consumer, count: int) -> list[bytes | None]:
    return [message.value for message in await receive(consumer, count)]


async def numbers(client: PulsarClient, topic: str, count: int, **options: Any) -> list[MessageId]:
    """Send b"0", b"1", ... and return where they are."""
    async with await client.producer(topic, **options) as producer:
        futures = [await producer.submit(b"%d" % number) for number in range(count)]
        await producer.flush()
        return [future.result() for future in futures]


@case
async def messages_come_back_as_they_were(service: Service) -> None:
    async with service.client() as client:
        consumer = await client.subscribe(service.topic, "s")
        for codec in Compression:
            for batching in (None, TOGETHER):
                producer = await client.producer(
                    service.topic, compression=codec, batching=batching
                )
                more = {"key": "k", "properties": {"a": "ü"}, "event_time_ms": 7}
                futures = [
                    await producer.submit(b"plain" * 100),
                    await producer.submit(b"", key=b"\xff\x00", ordering_key=b"o"),
                    await producer.submit(None, key="gone"),
                    await producer.submit(b"\x00" * 200_000, **more),
                ]
                await producer.close()
                got = await receive(consumer, 4)

                assert [one.id for one in got] == [future.result() for future in futures]
                assert [one.value for one in got] == [
                    b"plain" * 100, b"", None, b"\x00" * 200_000,
                ]  # fmt: skip
                assert [one.key_bytes for one in got] == [None, b"\xff\x00", b"gone", b"k"]
                assert got[1].ordering_key == b"o"
                assert (got[3].properties, got[3].event_time_ms) == ({"a": "ü"}, 7)
                assert {one.producer_name for one in got} == {producer.name}


@case
async def ids_are_ordered_as_the_messages(service: Service) -> None:
    async with service.client() as client:
        ids = await numbers(client, service.topic, 5, batching=TOGETHER)
        ids += await numbers(client, service.topic, 5, batching=None)

        assert ids == sorted(ids, key=lambda one: one.place)
        assert len(set(ids)) == 10


@case
async def a_message_larger_than_a_frame_comes_in_chunks(service: Service) -> None:
    large = bytes(range(256)) * 40_000
    async with service.client() as client:
        consumer = await client.subscribe(service.topic, "s")
        producer = await client.producer(service.topic, batching=None, chunking=True)
        message_id = await producer.send(large, key="k")
        await producer.send(b"after")
        first, second = await receive(consumer, 2)
        await consumer.ack(first)
        await consumer.ack(second)
        await consumer.close()
        again = await client.subscribe(service.topic, "s")
        with pytest.raises(TimedOut):
            await again.receive(0.2)

        assert (first.value, first.key, second.value) == (large, "k", b"after")
        assert first.id == message_id
        assert first.id.first_chunk is not None


@case
async def what_is_acknowledged_does_not_come_again(service: Service) -> None:
    async with service.client() as client:
        consumer = await client.subscribe(service.topic, "s", ack_receipts=True)
        await numbers(client, service.topic, 4, batching=None)
        messages = await receive(consumer, 4)
        await consumer.ack(messages[0])
        await consumer.ack(messages[2])
        await consumer.close()
        again = await client.subscribe(service.topic, "s", ack_receipts=True)
        assert await values(again, 2) == [b"1", b"3"]

        await again.ack_through(messages[3])
        await again.close()
        last = await client.subscribe(service.topic, "s")
        with pytest.raises(TimedOut):
            await last.receive(0.2)


@case
async def a_batch_may_be_acknowledged_message_by_message(service: Service) -> None:
    async with service.client() as client:
        options = {"batch_index_acks": True, "ack_receipts": True}
        consumer = await client.subscribe(service.topic, "s", **options)
        await numbers(client, service.topic, 6, batching=TOGETHER)
        messages = await receive(consumer, 6)
        await consumer.ack(messages[1])
        await consumer.close()
        second = await client.subscribe(service.topic, "s", **options)
        got = await receive(second, 5)
        assert [one.value for one in got] == [b"0", b"2", b"3", b"4", b"5"]

        await second.ack_through(got[2])
        await second.close()
        third = await client.subscribe(service.topic, "s", **options)
        assert await values(third, 2) == [b"4", b"5"]


@case
async def what_is_not_wanted_now_comes_again_counted(service: Service) -> None:
    async with service.client() as client:
        consumer = await client.subscribe(
            service.topic, "s", type=SubscriptionType.SHARED, nack_delay_s=0.05
        )
        await numbers(client, service.topic, 3, batching=None)
        messages = await receive(consumer, 3)
        consumer.nack(messages[1])
        again = await consumer.receive(WAIT_S)
        assert (again.value, again.redelivery_count) == (b"1", 1)

        consumer.redeliver()
        got = await receive(consumer, 3)
        assert sorted(one.value or b"" for one in got) == [b"0", b"1", b"2"]


@case
async def an_exclusive_consumer_gets_everything_again_in_order(service: Service) -> None:
    async with service.client() as client:
        consumer = await client.subscribe(service.topic, "s", queue_size=2)
        await numbers(client, service.topic, 6, batching=None)
        assert await values(consumer, 3) == [b"0", b"1", b"2"]
        consumer.redeliver()

        assert await values(consumer, 6) == [b"%d" % number for number in range(6)]


@case
async def a_small_queue_and_none_at_all_get_everything(service: Service) -> None:
    async with service.client() as client:
        for size in (0, 1, 3):
            consumer = await client.subscribe(service.topic, f"s{size}", queue_size=size)
            await numbers(client, service.topic, 7, batching=None)
            await numbers(client, service.topic, 7, batching=TOGETHER)
            expected = [b"%d" % number for number in range(7)] * 2
            assert await values(consumer, 14) == expected
            await consumer.close()


@case
async def a_subscription_is_moved_by_id_and_by_time(service: Service) -> None:
    async with service.client() as client:
        consumer = await client.subscribe(service.topic, "s", queue_size=3)
        batched = await numbers(client, service.topic, 4, batching=TOGETHER)
        alone = await numbers(client, service.topic, 4, batching=None)
        messages = await receive(consumer, 8)

        for number, where in enumerate(batched[:3]):
            await consumer.seek(where)
            assert await values(consumer, 1) == [b"%d" % (number + 1)]
            await consumer.seek(where, inclusive=True)
            assert await values(consumer, 2) == [b"%d" % number, b"%d" % (number + 1)]
        await consumer.seek(batched[3])
        assert await values(consumer, 1) == [b"0"]
        await consumer.seek(alone[1])
        assert await values(consumer, 2) == [b"2", b"3"]
        await consumer.seek(alone[1], inclusive=True)
        assert await values(consumer, 1) == [b"1"]
        await consumer.seek(EARLIEST)
        assert await values(consumer, 8) == [one.value for one in messages]
        await consumer.seek(time_ms=messages[0].publish_time_ms)
        assert await values(consumer, 1) == [b"0"]
        await consumer.seek(LATEST)
        with pytest.raises(TimedOut):
            await consumer.receive(0.2)


@case
async def a_reader_begins_anywhere_and_knows_the_end(service: Service) -> None:
    async with service.client() as client:
        ids = await numbers(client, service.topic, 4, batching=TOGETHER)
        ids += await numbers(client, service.topic, 3, batching=None)
        reader = await client.reader(service.topic)
        got = []
        while await reader.has_message_available():
            got.append((await reader.receive(WAIT_S)).value)
        assert got == [b"0", b"1", b"2", b"3", b"0", b"1", b"2"]

        for start, first in ((ids[1], b"2"), (ids[3], b"0"), (ids[5], b"2")):
            assert await values(await client.reader(service.topic, start), 1) == [first]
        for start, first in ((ids[1], b"1"), (ids[3], b"3"), (ids[5], b"1")):
            at = await client.reader(service.topic, start, inclusive=True)
            assert await values(at, 1) == [first]
        end = await client.reader(service.topic, LATEST)
        assert not await end.has_message_available()
        await numbers(client, service.topic, 1)
        assert await end.has_message_available()
        assert await values(end, 1) == [b"0"]


@case
async def a_reader_goes_back_by_id_and_by_time(service: Service) -> None:
    now_s = time.time()
    async with service.client(clock=lambda: now_s) as client:
        await numbers(client, service.topic, 2, batching=None)
        now_s += 1
        later = await numbers(client, service.topic, 3, batching=None)
        reader = await client.reader(service.topic, queue_size=2)
        messages = await receive(reader, 5)
        assert [one.value for one in messages] == [b"0", b"1", b"0", b"1", b"2"]

        await reader.seek(later[0])
        assert await values(reader, 2) == [b"1", b"2"]
        await reader.seek(time_ms=messages[2].publish_time_ms)
        assert [one.id for one in await receive(reader, 3)] == later
        await reader.seek(later[0], inclusive=True)
        assert await values(reader, 1) == [b"0"]
        await reader.seek(time_ms=messages[2].publish_time_ms)
        assert await reader.has_message_available()
        assert [one.id for one in await receive(reader, 3)] == later
        assert not await reader.has_message_available()


@case
async def the_last_message_id_is_that_of_the_last_message(service: Service) -> None:
    async with service.client() as client:
        consumer = await client.subscribe(service.topic, "s")
        assert [one.entry_id for one in await consumer.last_message_ids()] == [-1]

        ids = await numbers(client, service.topic, 3, batching=TOGETHER)
        assert [one.place for one in await consumer.last_message_ids()] == [ids[2].place]


@case
async def a_new_subscription_begins_at_the_end_or_the_beginning(service: Service) -> None:
    async with service.client() as client:
        await numbers(client, service.topic, 2)
        late = await client.subscribe(service.topic, "late")
        early = await client.subscribe(service.topic, "early", **FROM_START)
        await (await client.producer(service.topic)).send(b"new")

        assert await values(late, 1) == [b"new"]
        assert await values(early, 3) == [b"0", b"1", b"new"]


@case
async def a_subscription_is_gone_when_it_is_unsubscribed(service: Service) -> None:
    async with service.client() as client:
        consumer = await client.subscribe(service.topic, "s")
        await numbers(client, service.topic, 2)
        await consumer.unsubscribe()
        again = await client.subscribe(service.topic, "s")
        with pytest.raises(TimedOut):
            await again.receive(0.2)


@case
async def exclusive_access_is_given_to_one_producer(service: Service) -> None:
    async with service.client() as client, service.client() as other:
        first = await client.producer(service.topic, access=AccessMode.EXCLUSIVE)
        with pytest.raises(PulsarError) as refused:
            await other.producer(service.topic, access=AccessMode.EXCLUSIVE)
        waiting = asyncio.ensure_future(
            other.producer(service.topic, access=AccessMode.WAIT_FOR_EXCLUSIVE)
        )
        await first.send(b"first")
        assert not waiting.done()
        await first.close()
        second = await waiting
        await second.send(b"second")

        assert refused.value.error is ServerError.ProducerFenced


@case
async def a_producer_that_is_fenced_out_stays_out(service: Service) -> None:
    async with service.client() as client, service.client() as other:
        first = await client.producer(service.topic, access=AccessMode.EXCLUSIVE)
        await first.send(b"first")
        second = await other.producer(service.topic, access=AccessMode.EXCLUSIVE_WITH_FENCING)
        await second.send(b"second")

        with pytest.raises(PulsarError, match="ProducerFenced"):
            await first.send(b"third")


@case
async def a_name_belongs_to_one_producer(service: Service) -> None:
    async with service.client() as client, service.client() as other:
        await client.producer(service.topic, name="mine")
        with pytest.raises(PulsarError, match="ProducerBusy"):
            await other.producer(service.topic, name="mine")


@case
async def an_exclusive_subscription_has_one_consumer(service: Service) -> None:
    async with service.client() as client, service.client() as other:
        await client.subscribe(service.topic, "s")
        with pytest.raises(PulsarError, match="ConsumerBusy"):
            await other.subscribe(service.topic, "s")


@case
async def a_failover_subscription_has_one_active_consumer_at_a_time(service: Service) -> None:
    failover = SubscriptionType.FAILOVER
    async with service.client() as client, service.client() as other:
        consumers = [
            await one.subscribe(service.topic, "s", type=failover) for one in (client, other)
        ]
        await numbers(client, service.topic, 4, batching=None)
        receiving = [asyncio.ensure_future(one.receive(WAIT_S)) for one in consumers]
        done, _ = await asyncio.wait(receiving, return_when=asyncio.FIRST_COMPLETED)
        (first,) = done
        active = receiving.index(first)
        assert [one.is_active for one in consumers] == [number == active for number in range(2)]

        await consumers[active].close()
        message = await receiving[1 - active]
        assert message.value == b"0"
        assert consumers[1 - active].is_active


@case
async def a_shared_subscription_divides_the_messages(service: Service) -> None:
    shared = SubscriptionType.SHARED
    async with service.client() as client, service.client() as other:
        consumers = [
            await one.subscribe(service.topic, "s", type=shared, queue_size=5)
            for one in (client, other)
        ]
        await numbers(client, service.topic, 40, batching=None)
        got = await asyncio.gather(*(receive(one, 10) for one in consumers))

        found = [one.value for some in got for one in some]
        assert len(set(found)) == 20


@case
async def a_key_stays_with_one_consumer(service: Service) -> None:
    shared = SubscriptionType.KEY_SHARED
    async with service.client() as client, service.client() as other:
        ranges = (((0, 32767),), ((32768, 65535),))
        consumers = [
            await one.subscribe(service.topic, "s", type=shared, hash_ranges=two)
            for one, two in zip((client, other), ranges, strict=True)
        ]
        producer = await client.producer(service.topic, batching=None)
        for number in range(40):
            await producer.submit(b"x", key=f"key-{number % 10}")
        await producer.flush()
        keys: list[set[str | None]] = [set(), set()]
        count = 0
        for number, consumer in enumerate(consumers):
            with contextlib.suppress(TimedOut):
                while count < 40:
                    keys[number].add((await consumer.receive(0.5)).key)
                    count += 1

        assert count == 40
        assert not keys[0] & keys[1]
        assert all(keys)
