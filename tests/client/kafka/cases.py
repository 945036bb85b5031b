"""What our Kafka client promises its users, for any server: run against ours and a real Kafka
(tests/conformance/kafka/test_own_client.py, TRILOGUE_TEST_REAL=1).

Each case gets a `Service` with an unused topic name.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any

import confluent_kafka
import pytest

from trilogue.client.kafka import (
    EARLIEST,
    LATEST,
    Assignor,
    Consumer,
    GroupProtocol,
    KafkaClient,
    KafkaError,
    Message,
    NoPosition,
    Partition,
    Producer,
    Sent,
    TimedOut,
    granted,
)
from trilogue.wire.kafka.errors import ErrorCode

WAIT_S = 90.0
QUICK = {"heartbeat_s": 0.2, "max_wait_s": 0.1, "session_timeout_s": 10.0}
FROM_START = {**QUICK, "reset_to": EARLIEST}
Case = Callable[["Service"], Awaitable[None]]
CASES: list[Case] = []


@dataclass(frozen=True)
class Service:
    """A server, and a topic of this case alone, which is not made yet."""

    address: str
    topic: str

    @contextlib.asynccontextmanager
    async def client(self, **options: Any) -> AsyncIterator[KafkaClient]:
        async with KafkaClient(self.address, **options) as client:
            yield client

    @contextlib.asynccontextmanager
    async def made(self, partitions: int = 1, **settings: str) -> AsyncIterator[KafkaClient]:
        """A client, and the topic made."""
        async with self.client() as client:
            named = {name.replace("_", "."): value for name, value in settings.items()}
            await client.admin.create_topic(self.topic, partitions, named)
            yield client


def collecting(cases: list[Case]) -> Callable[[Case], Case]:
    """A decorator that adds to a list."""

    def add(work: Case) -> Case:
        cases.append(work)
        return work

    return add


case = collecting(CASES)


def name(work: Case) -> str:
    return work.__name__  # type: ignore[attr-defined]


async def take(consumer: Consumer, count: int) -> list[Message]:
    """So many messages; fewer when they do not come."""
    got: list[Message] = []
    async with asyncio.timeout(WAIT_S):
        while len(got) < count:
            got += await consumer.poll(WAIT_S, count - len(got))
    return got


async def values(consumer: Consumer, count: int) -> list[bytes | None]:
    return [message.value for message in await take(consumer, count)]


async def reader(client: KafkaClient, topic: str, *partitions: int, **options: Any) -> Consumer:
    """A consumer of partitions, from their first message on."""
    consumer = await client.consumer(**{**FROM_START, **options})
    await consumer.assign([(topic, number) for number in partitions or (0,)])
    return consumer


async def numbers(producer: Producer, topic: str, count: int, **more: Any) -> list[Sent]:
    """Send b"0", b"1", ... and return where they are."""
    futures = [await producer.submit(topic, b"%d" % number, **more) for number in range(count)]
    await producer.flush()
    return [future.result() for future in futures]


async def until(
    done: Callable[[], bool], *consumers: Consumer, got: list[Message] | None = None
) -> None:
    """Poll until something is so; what came goes to `got`."""
    async with asyncio.timeout(WAIT_S):
        while not done():
            for some in await asyncio.gather(*(one.poll(0.1) for one in consumers)):
                if got is not None:
                    got += some


@case
async def a_group_goes_on_where_it_stopped(service: Service) -> None:
    async with service.made(2) as client:
        await numbers(await client.producer(batch_bytes=100), service.topic, 100)
        group = service.topic
        async with await client.consumer(service.topic, group=group, **FROM_START) as first:
            before = await take(first, 40)
            await first.commit()
            committed = await first.committed(first.assignment)
            await take(first, 10)
            await first.commit(committed)
            for one, position in committed.items():
                first.seek(one, position.offset)
        async with await client.consumer(service.topic, group=group, **FROM_START) as second:
            after = await take(second, 60)

        assert sum(position.offset for position in committed.values()) == 40
        assert sorted(int(one.value or b"") for one in before + after) == list(range(100))


@case
async def what_was_dealt_with_is_committed_by_itself(service: Service) -> None:
    async with service.made() as client:
        await numbers(await client.producer(), service.topic, 10)
        options = {**FROM_START, "auto_commit_s": 0.05, "group": service.topic}
        async with await client.consumer(service.topic, **options) as consumer:
            await take(consumer, 4)
            await consumer.poll(0.0, 1)  # came back: the four are done, what it gets now is not
            committed = 0
            async with asyncio.timeout(WAIT_S):
                while (
                    committed != 4
                ):  # some of the four, while they came in pieces; never the fifth
                    for one in (await consumer.committed([(service.topic, 0)])).values():
                        assert committed <= one.offset <= 4
                        committed = one.offset
        at_the_end = await client.admin.group_offsets(service.topic)
        assert [one.offset for one in at_the_end.values()] == [5]


async def share(service: Service, **more: Any) -> list[tuple[str, list[Partition]]]:
    """Two members share; one leaves, the other gets everything; the listener calls of the first."""
    committed: list[tuple[str, list[Partition]]] = []
    async with service.made(4) as client:
        producer = await client.producer(batch_bytes=100)
        await numbers(producer, service.topic, 50)
        options = {**FROM_START, "group": service.topic, **more}
        first = await client.consumer(
            service.topic, **options,
            on_assigned=lambda some: committed.append(("+", some)),
            on_revoked=lambda some: committed.append(("-", some)),
        )  # fmt: skip
        got = await take(first, 50)
        second = await client.consumer(service.topic, **options)
        both = first, second
        await until(lambda: all(len(one.assignment) == 2 for one in both), *both, got=got)
        assert not first.assignment & second.assignment
        await numbers(producer, service.topic, 50)
        await until(lambda: len(got) >= 100, *both, got=got)
        await second.close()
        await until(lambda: len(first.assignment) == 4, first, got=got)
        await numbers(producer, service.topic, 50)
        await until(lambda: len(got) >= 150, first, got=got)
        await first.close()
        described = await client.admin.describe_groups([service.topic])

        places = [(one.partition, one.offset) for one in got]
        assert len(places) == len(set(places)) == 150  # nothing twice, nothing left out
        assert [one.state for one in described.values()] == ["Empty"]  # type: ignore[union-attr]
    return committed


@case
async def members_share_and_give_everything_up_before(service: Service) -> None:
    committed = await share(service)

    kinds = [(kind, len(some)) for kind, some in committed]
    assert kinds == [("+", 4), ("-", 4), ("+", 2), ("-", 2), ("+", 4), ("-", 4)]


@case
async def members_share_and_keep_what_they_may(service: Service) -> None:
    """KIP-429: only what another member gets is given up."""
    committed = await share(service, assignors=(Assignor.COOPERATIVE_STICKY,))

    kinds = [(kind, len(some)) for kind, some in committed if some]
    assert kinds == [("+", 4), ("-", 2), ("+", 2), ("-", 4)]


@contextlib.contextmanager
def where_the_server_shares() -> Iterator[None]:
    """A real Kafka 3.9 does only if that is switched on."""
    try:
        yield
    except KafkaError as refused:
        if refused.error is not ErrorCode.UNSUPPORTED_VERSION:
            raise
        pytest.skip("the server does not share partitions out")


@case
async def a_member_gets_what_the_server_says(service: Service) -> None:
    """KIP-848."""
    async with service.made(2) as client:
        await numbers(await client.producer(batch_bytes=100), service.topic, 20)
        options = {**FROM_START, "group": service.topic, "protocol": GroupProtocol.CONSUMER}
        async with await client.consumer(service.topic, **options) as consumer:
            with where_the_server_shares():
                got = await take(consumer, 20)
            await consumer.commit()
            described = granted(await client.admin.describe_groups([service.topic]))[service.topic]
            assert (described.type, described.state) == ("consumer", "Stable")
            (member,) = described.members
            assert set(member.assignment) == set(member.target) == consumer.assignment
        committed = granted(await client.admin.group_offsets(service.topic))

        assert sorted(int(one.value or b"") for one in got) == list(range(20))
        assert sum(one.offset for one in committed.values()) == 20


@case
async def members_share_what_the_server_says(service: Service) -> None:
    """KIP-848; slow, as members hear of each other with their heartbeats, every five seconds."""
    with where_the_server_shares():
        committed = await share(service, protocol=GroupProtocol.CONSUMER)

    kinds = [(kind, len(some)) for kind, some in committed if some]
    assert kinds == [("+", 4), ("-", 2), ("+", 2), ("-", 4)]


@case
async def members_of_two_libraries_share_a_group(service: Service) -> None:
    async with service.made(4) as client:
        other = confluent_kafka.Consumer(
            {"bootstrap.servers": service.address, "group.id": service.topic,
             "auto.offset.reset": "earliest", "session.timeout.ms": 10000,
             "heartbeat.interval.ms": 200}
        )  # fmt: skip
        theirs: set[Partition] = set()
        done = False

        def assigned(consumer: Any, partitions: list[Any]) -> None:
            theirs.update(Partition(one.topic, one.partition) for one in partitions)
            consumer.assign(partitions)

        def polling() -> None:
            other.subscribe(
                [service.topic], on_assign=assigned, on_revoke=lambda *_: theirs.clear()
            )
            while not done:
                other.poll(0.1)
            other.close()

        thread = asyncio.create_task(asyncio.to_thread(polling))
        ours = await client.consumer(service.topic, group=service.topic, **FROM_START)
        try:
            await until(lambda: len(ours.assignment) == len(theirs) == 2, ours)
            assert not theirs & ours.assignment
        finally:
            done = True
        await until(lambda: len(ours.assignment) == 4, ours)
        await thread


@case
async def a_static_member_comes_back_to_its_partitions(service: Service) -> None:
    """KIP-345: a static member that returns within the session time-out causes no rebalance."""
    committed: list[str] = []
    async with service.made(4) as client:
        options = {**FROM_START, "group": service.topic}
        stays = await client.consumer(
            service.topic, instance_id="a", **options, on_revoked=lambda _: committed.append("-")
        )
        goes = await client.consumer(service.topic, instance_id="b", **options)
        await until(lambda: len(stays.assignment) == len(goes.assignment) == 2, stays, goes)
        had, before = goes.assignment, len(committed)
        await goes.close()
        back = await client.consumer(service.topic, instance_id="b", **options)
        await until(lambda: bool(back.assignment), stays, back)

        assert back.assignment == had
        assert len(committed) == before


@case
async def a_member_goes_anywhere_in_its_partitions(service: Service) -> None:
    async with service.made(2) as client:
        producer = await client.producer()
        for number in range(10):
            stamp = 1_000_000 + number * 1000
            await producer.submit(service.topic, b"%d" % number, partition=0, timestamp_ms=stamp)
        await producer.send(service.topic, b"other", partition=1)
        await producer.flush()
        place = (service.topic, 0)
        consumer = await reader(client, service.topic, 0)

        assert await consumer.position(place) == 0
        consumer.seek(place, 7)
        assert await values(consumer, 3) == [b"7", b"8", b"9"]
        consumer.seek(place, EARLIEST)
        assert await values(consumer, 2) == [b"0", b"1"]
        consumer.seek(place, 1)
        assert await values(consumer, 1) == [b"1"]
        consumer.seek_to_time(place, 1_004_500)
        assert await values(consumer, 1) == [b"5"]
        consumer.seek_to_time(place, 9_999_999_999_999)
        assert await consumer.position(place) == 10
        consumer.seek(place, LATEST)
        assert await consumer.position(place) == 10
        assert await consumer.lag() == {Partition(*place): 0}
        found = await consumer.offsets({place: 1_002_000, (service.topic, 1): LATEST})
        assert [found[place].offset, found[service.topic, 1].offset] == [2, 1]

        await consumer.assign([place, (service.topic, 1)])
        consumer.pause(place)
        consumer.seek(place, 0)
        assert await values(consumer, 1) == [b"other"]
        with pytest.raises(TimedOut):
            await consumer.get(0.3)
        assert consumer.paused == {Partition(*place)}
        consumer.resume(place)
        assert await values(consumer, 1) == [b"0"]


@case
async def where_nobody_was_the_options_say_where_to_begin(service: Service) -> None:
    async with service.made() as client:
        producer = await client.producer()
        await numbers(producer, service.topic, 3)
        late = await reader(client, service.topic, reset_to=LATEST)
        assert await late.position((service.topic, 0)) == 3
        nowhere = await reader(client, service.topic, reset_to=None)
        with pytest.raises(NoPosition):
            await nowhere.poll(WAIT_S)


@case
async def a_position_that_is_gone_is_left_as_the_options_say(service: Service) -> None:
    async with service.made() as client:
        await numbers(await client.producer(), service.topic, 10)
        place = (service.topic, 0)
        assert await client.admin.delete_records({place: 6}) == {Partition(*place): 6}
        early = await reader(client, service.topic)
        early.seek(place, 2)
        strict = await reader(client, service.topic, reset_to=None)
        strict.seek(place, 2)

        assert await values(early, 1) == [b"6"]
        with pytest.raises(NoPosition, match="OFFSET_OUT_OF_RANGE"):
            await strict.poll(WAIT_S)


@case
async def topics_that_match_are_read_also_when_they_are_new(service: Service) -> None:
    async with service.made() as client:
        producer = await client.producer()
        await numbers(producer, service.topic, 3)
        consumer = await client.consumer(
            pattern=rf"{service.topic}.*", group=service.topic, metadata_age_s=0.2, **FROM_START
        )
        got = await values(consumer, 3)
        await client.admin.create_topic(f"{service.topic}.more", 1)
        await numbers(producer, f"{service.topic}.more", 2)
        got += await values(consumer, 2)

        assert sorted(got) == [b"0", b"0", b"1", b"1", b"2"]


@case
async def partitions_that_are_added_are_read(service: Service) -> None:
    async with service.made() as client:
        consumer = await client.consumer(
            service.topic, group=service.topic, metadata_age_s=0.2, **FROM_START
        )
        await until(lambda: len(consumer.assignment) == 1, consumer)
        await client.admin.create_partitions({service.topic: 3})
        await until(lambda: len(consumer.assignment) == 3, consumer)
        producer = await client.producer()
        await producer.send(service.topic, b"new", partition=2)

        assert await values(consumer, 1) == [b"new"]


@case
async def a_member_that_does_not_poll_loses_its_place(service: Service) -> None:
    lost: list[Partition] = []
    async with service.made(2) as client:
        options = {**FROM_START, "group": service.topic}
        slow = await client.consumer(service.topic, max_poll_s=0.5, **options, on_lost=lost.extend)
        await until(lambda: len(slow.assignment) == 2, slow)
        other = await client.consumer(service.topic, **options)
        await until(lambda: len(other.assignment) == 2, other)

        assert len(lost) == 2
        assert not slow.assignment
        await until(lambda: len(slow.assignment) == len(other.assignment) == 1, slow, other)


@case
async def many_partitions_are_read_at_once(service: Service) -> None:
    """More partitions than one session update names: only changed ones are in it."""
    async with service.made(60) as client:
        producer = await client.producer(linger_s=0.005)
        consumer = await reader(client, service.topic, *range(60))
        for round_ in range(3):
            for number in range(0, 60, 1 + round_):
                await producer.submit(service.topic, b"%d" % round_, partition=number)
            await producer.flush()
            got = await take(consumer, len(range(0, 60, 1 + round_)))
            assert sorted(one.partition for one in got) == list(range(0, 60, 1 + round_))
            assert {one.value for one in got} == {b"%d" % round_}
