"""More cases: partitions and several topics, HTTP, the synchronous face, and another client."""

from __future__ import annotations

import asyncio
from collections import Counter

import pulsar
import pytest

from tests.client.pulsar.cases import (
    CASES,
    FROM_START,
    TOGETHER,
    WAIT_S,
    Service,
    case,
    numbers,
    receive,
    values,
)
from trilogue.client.pulsar import (
    Compression,
    EndOfTopic,
    Hashing,
    Message,
    MessageId,
    PulsarClient,
    PulsarError,
    sync,
)


@case
async def partitions_are_chosen_by_key_and_all_received(service: Service) -> None:
    await service.request(service.admin.make_partitioned, service.topic, 3)
    async with service.client() as client:
        consumer = await client.subscribe(service.topic, "s")
        for hashing in Hashing:
            producer = await client.producer(service.topic, hashing=hashing)
            sent = [
                await producer.submit(b"%d" % number, key=f"key-{number % 5}")
                for number in range(30)
            ]
            await producer.flush()
            got = await receive(consumer, 30)
            by_key = {one.key: one.id.partition for one in got}

            assert {future.result().partition for future in sent} <= {0, 1, 2}
            assert {(one.key, one.id.partition) for one in got} == set(by_key.items())
            for key in by_key:
                order = [int(one.value or b"") for one in got if one.key == key]
                assert order == sorted(order)
        spread = await client.producer(service.topic, batching=None)
        ids = [await spread.send(b"x") for _ in range(6)]
        assert Counter(one.partition for one in ids) == {0: 2, 1: 2, 2: 2}
        assert await client.partitions(service.topic) == 3
        assert len(await consumer.last_message_ids()) == 3


@case
async def several_topics_and_patterns_are_received_together(service: Service) -> None:
    topics = [f"{service.topic}-{letter}" for letter in "abc"]
    async with service.client() as client:
        for topic in topics[:2]:
            await numbers(client, topic, 1)
        listed = await client.subscribe(topics[:2], "s", **FROM_START)
        pattern = f"{service.topic.replace('.', '[.]')}-[a-c]"
        matching = await client.subscribe_pattern(pattern, "p", **FROM_START)
        await numbers(client, topics[2], 1)
        await matching.refresh_topics()

        assert sorted([one.topic[-1] for one in await receive(listed, 2)]) == ["a", "b"]
        assert sorted([one.topic[-1] for one in await receive(matching, 3)]) == ["a", "b", "c"]
        assert [topic for topic in await client.topics() if topic.endswith(topics[0])]


@case
async def the_end_of_a_terminated_topic_is_told(service: Service) -> None:
    async with service.client() as client:
        await numbers(client, service.topic, 3)
        consumer = await client.subscribe(service.topic, "s", **FROM_START)
        producer = await client.producer(service.topic)
        await service.request(service.admin.terminate, service.topic)
        got = []
        async for message in consumer:
            got.append(message.value)
            await consumer.ack(message)

        assert got == [b"0", b"1", b"2"]
        with pytest.raises(EndOfTopic):
            await consumer.receive(WAIT_S)
        with pytest.raises(PulsarError, match="TopicTerminatedError"):
            await producer.send(b"late")


@case
async def a_topic_is_found_over_http(service: Service) -> None:
    await service.request(service.admin.make_partitioned, f"{service.topic}-p", 2)
    async with PulsarClient(service.http) as client:
        assert await client.partitions(f"{service.topic}-p") == 2
        consumer = await client.subscribe([service.topic, f"{service.topic}-p"], "s")
        await numbers(client, service.topic, 1)
        await numbers(client, f"{service.topic}-p", 1)

        assert await values(consumer, 2) == [b"0", b"0"]
        assert [one for one in await client.topics() if one.endswith(service.topic)]


@case
async def what_the_broker_counts_is_told(service: Service) -> None:
    async with service.client() as client:
        consumer = await client.subscribe(service.topic, "s", name="me", queue_size=10)
        await numbers(client, service.topic, 3, batching=None)
        await receive(consumer, 2)
        (stats,) = (await consumer.stats()).values()

        assert (stats.consumerName, stats.type) == ("me", "Exclusive")
        assert (stats.availablePermits, stats.msgBacklog) == (7, 3)


@case
async def many_messages_at_once_all_arrive_in_order(service: Service) -> None:
    count = 20_000
    async with service.client() as client:
        consumer = await client.subscribe(service.topic, "s")
        producer = await client.producer(service.topic, max_pending=5000)

        async def send() -> None:
            for number in range(count):
                await producer.submit(b"%d" % number)
            await producer.flush()

        sending = asyncio.ensure_future(send())
        got: list[Message] = []
        while len(got) < count:
            some = await consumer.receive_many(500, WAIT_S)
            await consumer.ack_through(some[-1])
            got += some
        await sending

        assert [one.value for one in got] == [b"%d" % number for number in range(count)]
        assert [one.sequence_id for one in got] == list(range(count))


@case
async def code_without_asyncio_uses_it_too(service: Service) -> None:
    def work() -> list[bytes | None]:
        with sync.PulsarClient(service.url) as client:
            with client.producer(service.topic) as producer:
                first = producer.send(b"one", key="k")
                later = producer.submit(b"two")
                rest = producer.submit_many([(b"%d" % number, {}) for number in range(3)])
                producer.flush()
                assert later.result().place > first.place
                assert len({one.result() for one in rest}) == 3
                assert producer.last_sequence_id == 4
            with client.subscribe(service.topic, "s", **FROM_START) as consumer:
                got = consumer.receive_many(5, WAIT_S)
                while len(got) < 5:
                    got += consumer.receive_many(5, WAIT_S)
                consumer.ack(got[0])
                consumer.ack_many(got[1:3])
                consumer.ack_through(got[4])
                consumer.seek(first)
                assert next(iter(consumer)).value == b"two"
                consumer.unsubscribe()
            with client.reader(service.topic, inclusive=True) as reader:
                assert reader.has_message_available()
            assert client.partitions(service.topic) == 0
            return [one.value for one in got]

    assert await asyncio.to_thread(work) == [b"one", b"two", b"0", b"1", b"2"]


QUIET = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
THEIR_CODECS = {
    Compression.NONE: pulsar.CompressionType.NONE,
    Compression.LZ4: pulsar.CompressionType.LZ4,
    Compression.ZLIB: pulsar.CompressionType.ZLib,
    Compression.ZSTD: pulsar.CompressionType.ZSTD,
    Compression.SNAPPY: pulsar.CompressionType.SNAPPY,
}
BODIES = [b"plain" * 50, b"\x00\xff" * 1000, b"x" * 100_000]


@case
async def another_client_reads_what_ours_wrote(service: Service) -> None:
    large = bytes(range(256)) * 24_000

    def read(count: int, ids: list[MessageId]) -> list[tuple[bytes, str, dict[str, str], int]]:
        client = pulsar.Client(service.url, logger=QUIET)
        try:
            begin = pulsar.InitialPosition.Earliest
            consumer = client.subscribe(service.topic, "them", initial_position=begin)
            got = [consumer.receive(10_000) for _ in range(count)]
            for one in got:
                consumer.acknowledge(one)
            reader = client.create_reader(
                service.topic, pulsar.MessageId.deserialize(ids[4].to_bytes())
            )
            assert reader.read_next(10_000).data() == got[5].data()
            assert MessageId.from_bytes(got[4].message_id().serialize()).place == ids[4].place
            return [
                (one.data(), one.partition_key(), one.properties(), one.event_timestamp())
                for one in got
            ]
        finally:
            client.close()

    async with service.client() as client:
        ids, expected = [], []
        for codec in Compression:
            for batching in (TOGETHER, None):
                producer = await client.producer(
                    service.topic, compression=codec, batching=batching
                )
                futures = [
                    await producer.submit(body, key="k", properties={"a": "ü"}, event_time_ms=9)
                    for body in BODIES
                ]
                await producer.close()
                ids += [future.result() for future in futures]
                expected += [(body, "k", {"a": "ü"}, 9) for body in BODIES]
        producer = await client.producer(service.topic, batching=None, chunking=True)
        await producer.send(large)
        expected.append((large, "", {}, 0))

        assert await asyncio.to_thread(read, len(expected), ids) == expected


@case
async def ours_reads_what_another_client_wrote(service: Service) -> None:
    large = bytes(range(256)) * 24_000

    def write() -> list[bytes]:
        client = pulsar.Client(service.url, logger=QUIET)
        ids = []
        try:
            for codec in THEIR_CODECS.values():
                for batching in (True, False):
                    producer = client.create_producer(
                        service.topic, compression_type=codec, batching_enabled=batching,
                        batching_max_publish_delay_ms=10_000,
                    )  # fmt: skip
                    for body in BODIES:
                        producer.send_async(
                            body, lambda _result, one: ids.append(one.serialize()),
                            partition_key="k", properties={"a": "ü"}, event_timestamp=9,
                            ordering_key="o",
                        )  # fmt: skip
                    producer.flush()
                    producer.close()
            producer = client.create_producer(
                service.topic, chunking_enabled=True, batching_enabled=False
            )
            ids.append(producer.send(large).serialize())
            return ids
        finally:
            client.close()

    async with service.client() as client:
        consumer = await client.subscribe(service.topic, "s")
        ids = [MessageId.from_bytes(one) for one in await asyncio.to_thread(write)]
        got = await receive(consumer, len(ids))

        assert [one.value for one in got] == BODIES * 10 + [large]
        assert [one.id.place for one in got] == [one.place for one in ids]
        assert {(one.key, one.ordering_key) for one in got[:-1]} == {("k", b"o")}
        assert {one.event_time_ms for one in got[:-1]} == {9}
        assert all(one.properties == {"a": "ü"} for one in got[:-1])


ALL = CASES
"""These and those of cases.py, which this module has loaded."""
