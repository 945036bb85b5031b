"""What our TubeMQ client promises its users, for any server: run against the real one
(test_real_server.py) and against ours (tests/conformance/tubemq/test_own_client.py).

Each case gets a `Service`, which creates unused topics.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest

from tests.waiting import wait_on_loop
from trilogue.client.tubemq import (
    Balance,
    Batch,
    Bound,
    Confirm,
    Connections,
    Consumer,
    Message,
    NoMessage,
    Position,
    Producer,
    Sent,
    TubeClient,
    TubeError,
    sync,
)

WAIT_S = 90.0
Case = Callable[["Service"], Awaitable[None]]
CASES: list[Case] = []
_numbers = itertools.count(1)


@dataclass(frozen=True)
class Service:
    """A master's address, and unused topics."""

    address: str
    topic: Callable[[int], str]
    """Makes one with so many partitions."""

    @contextlib.asynccontextmanager
    async def client(self, **options: Any) -> AsyncIterator[TubeClient]:
        async with TubeClient(self.address, heartbeat_s=1.0, **options) as client:
            yield client


def case(work: Case) -> Case:
    CASES.append(work)
    return work


def name(work: Case) -> str:
    return work.__name__  # type: ignore[attr-defined]


def group(prefix: str = "group") -> str:
    return f"{prefix}-{time.time_ns()}-{next(_numbers)}"


def bodies(batch: Batch) -> list[bytes]:
    return [message.body for message in batch]


def typed(topic: str, body: bytes, kind: str) -> Message:
    message = Message(topic, body)
    message.put_system_header(kind, "202611211200")
    return message


async def sender(client: TubeClient, topic: str, **options: Any) -> Producer:
    """A producer of a topic that is usable."""
    producer = await client.producer(topic, **options)
    await wait_on_loop(lambda: producer.metadata.places(topic), 60)
    return producer


async def numbers(client: TubeClient, topic: str, count: int, first: int = 0) -> list[Sent]:
    """Send b"0", b"1", ... and return where they are."""
    producer = await sender(client, topic)
    some = range(first, first + count)
    futures = [await producer.submit(Message(topic, b"%d" % number)) for number in some]
    await producer.flush()
    await producer.close()
    return [future.result() for future in futures]


async def take(consumer: Consumer, count: int) -> list[Message]:
    """Get and confirm so many messages, of whichever partitions."""
    found: list[Message] = []
    while len(found) < count:
        batch = await consumer.get(WAIT_S)
        found += batch.messages
        await consumer.confirm(batch)
    return found


async def nothing(consumer: Consumer, wait_s: float = 0.5) -> None:
    with pytest.raises(NoMessage):
        await consumer.get(wait_s)


async def has(consumer: Consumer, count: int) -> None:
    """Wait until a consumer has so many partitions."""
    await wait_on_loop(lambda: len(consumer.partitions) == count, 60)


@case
async def messages_come_back_as_they_were(service: Service) -> None:
    topic = service.topic(1)
    async with service.client() as client:
        producer = await sender(client, topic)
        with_all = typed(topic, b"\x00\xff" * 100, "typeA")
        with_all.attributes |= {"k": "ü", "l": "x y"}
        sent = [
            await producer.send(one)
            for one in (
                Message(topic, b"plain"),
                Message(topic, b"with", {"k": "v"}),
                with_all,
                Message(topic, bytes(20_000)),
                Message(topic, b"x" * 300_000),
            )
        ]
        consumer = await client.consumer(topic, group=group())
        got = await take(consumer, 5)

        assert [one.message_id for one in got] == [one.message_id for one in sent]
        assert [len(one.body) for one in got] == [5, 4, 200, 20_000, 300_000]
        assert [one.attributes for one in got[:2]] == [{}, {"k": "v"}]
        assert got[2].attributes == {
            "$msgType$": "typeA", "$msgTime$": "202611211200", "k": "ü", "l": "x y",
        }  # fmt: skip
        assert (got[2].type, got[2].time) == ("typeA", "202611211200")
        assert [one.offset for one in sent] == sorted(one.offset for one in sent)
        assert all(abs(one.append_time_ms - time.time() * 1000) < 60_000 for one in sent)


@case
async def many_messages_are_sent_at_once_and_read_in_order(service: Service) -> None:
    topic = service.topic(4)
    async with service.client() as client:
        sent = await numbers(client, topic, 3000)
        consumer = await client.consumer(topic, group=group())
        order: dict[str, list[int]] = {}
        count = 0
        while count < 3000:
            batch = await consumer.get(WAIT_S)
            order.setdefault(batch.partition, []).extend(map(int, bodies(batch)))
            count += len(batch)
            await consumer.confirm(batch)

        assert {one.partition for one in sent} == set(order)
        assert all(found == sorted(found) for found in order.values())
        assert sorted(one for found in order.values() for one in found) == list(range(3000))
        expected = {one.partition: [] for one in sent}
        for number, one in enumerate(sent):
            expected[one.partition].append(number)
        assert order == expected


@case
async def topics_come_and_go_with_what_is_published(service: Service) -> None:
    first, second = service.topic(1), service.topic(1)
    async with service.client() as client:
        producer = await sender(client, first)
        assert await producer.publish("not-there") == set()
        for topic, code in ((second, 443), ("not-there", 444)):
            with pytest.raises(TubeError) as refused:
                await producer.send(Message(topic, b"x"))
            assert refused.value.err_code == code
        await producer.publish(second)
        await wait_on_loop(lambda: producer.metadata.places(second), 60)
        assert (await producer.send(Message(second, b"x"))).topic == second
        await producer.unpublish(first)
        with pytest.raises(TubeError) as refused:
            await producer.send(Message(first, b"x"))
        assert refused.value.err_code == 443


@case
async def the_largest_message_fits_and_a_larger_one_does_not(service: Service) -> None:
    topic = service.topic(1)
    async with service.client() as client:
        producer = await sender(client, topic)
        most = producer.message_size_max(topic)
        assert await producer.send(Message(topic, b"x" * most))
        with pytest.raises(TubeError) as refused:
            await producer.send(Message(topic, b"x" * (most + 1)))
        assert refused.value.err_code == 445
        (got,) = await take(await client.consumer(topic, group=group()), 1)

        assert len(got.body) == most


@case
async def what_is_rolled_back_comes_again_and_what_is_confirmed_does_not(
    service: Service,
) -> None:
    topic, name_ = service.topic(1), group()
    async with service.client() as client:
        await numbers(client, topic, 3)
        for confirm in (Confirm.AT_ONCE, Confirm.NEXT_GET):
            consumer = await client.consumer(
                topic, group=f"{name_}-{confirm.name}", confirm=confirm
            )
            for _ in range(2):
                batch = await consumer.get(WAIT_S)
                assert bodies(batch) == [b"0", b"1", b"2"]
                await consumer.rollback(batch)
            await consumer.confirm(await consumer.get(WAIT_S))
            await nothing(consumer)
            await consumer.close()
            again = await client.consumer(topic, group=f"{name_}-{confirm.name}", confirm=confirm)
            await has(again, 1)
            await nothing(again)
            await again.close()


@case
async def a_group_goes_on_where_it_stopped_also_in_the_middle(service: Service) -> None:
    topic, name_ = service.topic(1), group()
    async with service.client() as client:
        await numbers(client, topic, 2)
        first = await client.consumer(topic, group=name_)
        await take(first, 2)
        await numbers(client, topic, 2, first=2)
        unconfirmed = await first.get(WAIT_S)
        assert bodies(unconfirmed) == [b"2", b"3"]
        await first.close()
        second = await client.consumer(topic, group=name_)

        assert bodies(await second.get(WAIT_S)) == [b"2", b"3"]


@case
async def a_group_begins_where_its_position_says(service: Service) -> None:
    topic = service.topic(1)
    async with service.client() as client:
        await numbers(client, topic, 3)
        groups = {position: group(position.name) for position in Position}
        consumers = {
            position: await client.consumer(
                topic, group=groups[position], initial_position=position
            )
            for position in Position
        }
        for consumer in consumers.values():
            await has(consumer, 1)
        await numbers(client, topic, 1, first=3)
        got = {
            position: [one.body for one in await take(consumer, 4 if not position else 1)]
            for position, consumer in consumers.items()
        }
        assert got == {
            Position.FIRST: [b"0", b"1", b"2", b"3"],
            Position.LAST: [b"3"],
            Position.ALWAYS_LAST: [b"3"],
        }
        for consumer in consumers.values():
            await consumer.close()
        await numbers(client, topic, 1, first=4)
        last = await client.consumer(
            topic, group=groups[Position.LAST], initial_position=Position.LAST
        )
        always = await client.consumer(
            topic, group=groups[Position.ALWAYS_LAST], initial_position=Position.ALWAYS_LAST
        )
        await has(always, 1)
        assert [one.body for one in await take(last, 1)] == [b"4"]
        await nothing(always)


@case
async def filters_let_only_their_types_through(service: Service) -> None:
    """AaAa and BBBB have the same hash in Java."""
    topic = service.topic(1)
    async with service.client() as client:
        producer = await sender(client, topic)
        for number, kind in enumerate(["AaAa", "BBBB", "other", "AaAa", "more"]):
            await producer.send(typed(topic, b"%d" % number, kind))
        await producer.send(Message(topic, b"none"))
        one = await client.consumer({topic: ["AaAa"]}, group=group())
        two = await client.consumer({topic: ["BBBB", "more"]}, group=group())

        assert await filtered(one, producer, topic) == [b"0", b"3"]
        assert await filtered(two, producer, topic) == [b"1", b"4"]
        await nothing(one)
        await producer.send(typed(topic, b"new", "AaAa"))
        assert await filtered(one, producer, topic) == [b"new"]


async def filtered(consumer: Consumer, producer: Producer, topic: str) -> list[bytes]:
    """The next pack of a consumer with filters.

    A real broker shows these only what is in its files, and writes there when a message comes and
    the last time was long ago.
    """
    async with asyncio.timeout(60):
        while True:
            try:
                batch = await consumer.get(1)
            except NoMessage:
                await producer.send(typed(topic, b"later", "later"))
            else:
                await consumer.confirm(batch)
                return bodies(batch)


@case
async def offsets_can_be_seen_and_set(service: Service) -> None:
    topic = service.topic(1)
    async with service.client() as client:
        sent = await numbers(client, topic, 5)
        consumer = await client.consumer(topic, group=group())
        await take(consumer, 5)
        (key,) = consumer.partitions
        at = consumer.offsets()[key]
        assert at.current == at.maximum > sent[4].offset
        await consumer.set_offset(key, sent[2].offset)

        assert consumer.offsets()[key].current == sent[2].offset
        assert [one.body for one in await take(consumer, 3)] == [b"2", b"3", b"4"]


@case
async def two_consumers_share_and_one_takes_over(service: Service) -> None:
    topic, name_ = service.topic(4), group()
    async with service.client() as client:
        first = await client.consumer(topic, group=name_)
        await has(first, 4)
        second = await client.consumer(topic, group=name_)
        await has(second, 2)
        await has(first, 2)
        assert not set(first.partitions) & set(second.partitions)
        await numbers(client, topic, 100)
        got: list[bytes] = []
        both = [asyncio.ensure_future(collect(one, got)) for one in (first, second)]
        await wait_on_loop(lambda: len(got) == 100)
        await first.close()
        await has(second, 4)
        await numbers(client, topic, 100, first=100)
        await wait_on_loop(lambda: len(got) >= 200)
        await second.close()
        await asyncio.gather(*both)

        assert {int(body) for body in got} == set(range(200))
        assert len(got) == 200


async def collect(consumer: Consumer, into: list[bytes]) -> None:
    async def callback(batch: Batch) -> None:
        into.extend(bodies(batch))

    await consumer.run(callback, at_once=2)


@case
async def clients_that_balance_themselves_divide_by_their_numbers(service: Service) -> None:
    topic, name_ = service.topic(4), group()
    options: dict[str, Any] = {"balance": Balance.CLIENT, "source_count": 2}
    async with service.client() as client:
        await numbers(client, topic, 40)
        first = await client.consumer(topic, group=name_, node_id=0, **options)
        second = await client.consumer(topic, group=name_, node_id=1, **options)
        await has(first, 2)
        await has(second, 2)
        with pytest.raises(TubeError) as refused:
            await client.consumer(topic, group=name_, node_id=1, **options)
        assert refused.value.err_code == 430
        got = await take(first, 20) + await take(second, 20)

        assert {int(one.body) for one in got} == set(range(40))


@case
async def a_partition_has_one_reader_until_that_one_leaves(service: Service) -> None:
    topic, name_ = service.topic(2), group()
    async with service.client(connections=Connections.OBJECT) as client:
        sent = await numbers(client, topic, 10)
        first = await client.consumer(topic, group=name_, balance=Balance.MANUAL)
        second = await client.consumer(topic, group=name_, balance=Balance.MANUAL)
        await wait_on_loop(lambda: len(first.available()) == 2, 60)
        await wait_on_loop(lambda: len(second.available()) == 2, 60)
        key = first.available()[0]
        mine = [one for one in sent if one.partition == key]
        await first.connect(key, mine[3].offset)
        with pytest.raises(TubeError) as refused:
            await second.connect(key)
        assert refused.value.err_code == 410
        assert len(await take(first, 2)) == 2
        await first.disconnect(key)
        await second.connect(key, mine[0].offset)

        assert len(await take(second, 5)) == 5


@case
async def members_of_a_group_agree(service: Service) -> None:
    topic, name_ = service.topic(1), group()
    async with service.client() as client:
        await client.consumer(topic, group=name_)
        codes = []
        bound = Bound(session_key="k", consumers=1)
        for topics, options in (
            ({topic: ["a"]}, {}),
            (topic, {"bound": bound}),
            ("not-there", {}),
        ):
            other = group() if topics == "not-there" else name_
            with pytest.raises(TubeError) as refused:
                await client.consumer(topics, group=other, **options)
            codes.append(refused.value.err_code)

        assert codes == [426, 424, 431]


@case
async def a_bound_reading_begins_at_its_offsets(service: Service) -> None:
    topic = service.topic(2)
    async with service.client() as client:
        sent = await numbers(client, topic, 20)
        by_key: dict[str, list[Sent]] = {}
        for one in sent:
            by_key.setdefault(one.partition, []).append(one)
        offsets = {key: found[5].offset for key, found in by_key.items()}
        bound = Bound(session_key=group("key"), consumers=1, offsets=offsets)
        consumer = await client.consumer(topic, group=group(), bound=bound)
        got = await take(consumer, 10)

        expected = {one.message_id for found in by_key.values() for one in found[5:]}
        assert {one.message_id for one in got} == expected


@case
async def the_synchronous_face_does_all_of_it(service: Service) -> None:
    topic = service.topic(1)
    await asyncio.to_thread(all_in_a_thread, service.address, topic)


def all_in_a_thread(address: str, topic: str) -> None:
    with sync.TubeClient(address, heartbeat_s=1.0) as client:
        with client.producer() as producer:
            while topic not in producer.publish(topic):
                pass
            futures = producer.submit_many(Message(topic, b"%d" % one) for one in range(100))
            producer.flush()
            assert len({future.result().offset for future in futures}) == 100
        with client.consumer(topic, group=group()) as consumer:
            got = []
            for message in consumer:
                got.append(int(message.body))
                if len(got) == 100:
                    break

    assert got == list(range(100))
