"""What our Kafka client promises who sends, for any server; see cases.py."""

from __future__ import annotations

import asyncio
from typing import Any

import confluent_kafka
import pytest

from tests.client.kafka.cases import (
    WAIT_S,
    Case,
    Service,
    collecting,
    numbers,
    reader,
    take,
    values,
)
from trilogue.client.kafka import (
    Acks,
    Compression,
    Hashing,
    KafkaError,
    MessageTooLarge,
)

SENDING_CASES: list[Case] = []
case = collecting(SENDING_CASES)


@case
async def messages_come_back_as_they_were(service: Service) -> None:
    async with service.made() as client:
        for codec in Compression:
            producer = await client.producer(compression=codec, linger_s=1.0)
            futures = [
                await producer.submit(service.topic, b"plain" * 100),
                await producer.submit(service.topic, b"", key=b"\xff\x00"),
                await producer.submit(service.topic, None, key="gone"),
                await producer.submit(
                    service.topic, bytes(200_000), headers=[("a", b"1"), ("ü", None), ("a", b"")],
                    timestamp_ms=1_700_000_000_000,
                ),
            ]  # fmt: skip
            await producer.close()
        sent = [future.result() for future in futures]
        got = (await take(await reader(client, service.topic), 4 * len(Compression)))[-4:]

        assert [one.offset for one in got] == [one.offset for one in sent]
        assert [one.timestamp for one in got] == [one.timestamp for one in sent]
        assert [one.value for one in got] == [b"plain" * 100, b"", None, bytes(200_000)]
        assert [one.key for one in got] == [None, b"\xff\x00", b"gone", None]
        assert got[3].headers == (("a", b"1"), ("ü", None), ("a", b""))
        assert got[3].timestamp == 1_700_000_000_000


@case
async def order_is_kept_in_each_partition(service: Service) -> None:
    async with service.made(3) as client:
        producer = await client.producer(batch_bytes=500, compression=Compression.LZ4)
        sent = await numbers(producer, service.topic, 2000)
        got = await take(await reader(client, service.topic, 0, 1, 2), 2000)

        assert {one.partition for one in sent} == {0, 1, 2}
        places = {(one.partition, one.offset): one.value for one in got}
        assert [int(places[one.partition, one.offset] or b"") for one in sent] == list(range(2000))
        for partition in range(3):
            offsets = [one.offset for one in sent if one.partition == partition]
            assert offsets == list(range(len(offsets)))


@case
async def keys_go_where_other_clients_send_them(service: Service) -> None:
    keys = [b"k%d" % number for number in range(40)] + [b"", b"a", b"ab", "ключ".encode()]
    async with service.made(7) as client:
        for hashing, theirs in ((Hashing.MURMUR2, "murmur2"), (Hashing.CRC32, "consistent")):
            producer = await client.producer(hashing=hashing)
            ours = [(await producer.submit(service.topic, b"o", key=key)) for key in keys]
            await producer.flush()
            other = confluent_kafka.Producer(
                {"bootstrap.servers": service.address, "partitioner": theirs}
            )
            found: dict[bytes, int] = {}

            def delivered(_error: Any, message: Any, found: dict[bytes, int] = found) -> None:
                found[message.key() or b""] = message.partition()

            for key in keys:
                other.produce(service.topic, b"t", key=key, on_delivery=delivered)
            await asyncio.to_thread(other.flush, WAIT_S)

            # librdkafka's "consistent" takes an empty key for none.
            compared = [at for at, key in enumerate(keys) if key]
            assert [ours[at].result().partition for at in compared] == [
                found[keys[at]] for at in compared
            ]


@case
async def each_kind_of_acknowledgement_is_asked_for(service: Service) -> None:
    async with service.made() as client:
        offsets = []
        for acks in (Acks.ALL, Acks.LEADER, Acks.NONE):
            producer = await client.producer(acks=acks)
            offsets += [one.offset for one in await numbers(producer, service.topic, 3)]
            await producer.close()
        got = await values(await reader(client, service.topic), 9)

        assert offsets == [0, 1, 2, 3, 4, 5, -1, -1, -1]
        assert got == [b"0", b"1", b"2"] * 3


@case
async def a_batch_that_is_too_large_for_the_topic_is_split(service: Service) -> None:
    async with service.made(max_message_bytes="2000") as client:
        producer = await client.producer(linger_s=5.0)
        futures = [await producer.submit(service.topic, b"%0500d" % one) for one in range(20)]
        large = await producer.submit(service.topic, bytes(3000))
        futures += [await producer.submit(service.topic, b"%0500d" % one) for one in range(20, 25)]
        await producer.flush()
        got = await values(await reader(client, service.topic), 25)

        assert [future.result().offset for future in futures] == list(range(25))
        assert [int(value or b"") for value in got] == list(range(25))
        with pytest.raises(KafkaError, match="MESSAGE_TOO_LARGE"):
            large.result()
        with pytest.raises(MessageTooLarge):
            await producer.submit(service.topic, bytes(2 << 20))


@case
async def a_topic_that_is_not_there_is_made_or_refused(service: Service) -> None:
    async with service.client(request_timeout_s=5.0) as client:
        careful = await client.producer(create_topics=False)
        with pytest.raises(KafkaError, match="UNKNOWN_TOPIC_OR_PARTITION"):
            await careful.send(service.topic, b"x")
        with pytest.raises(KafkaError, match="INVALID_TOPIC_EXCEPTION"):
            await careful.send("no/such topic", b"x")
        producer = await client.producer()

        assert (await producer.send(service.topic, b"x")).offset == 0
        with pytest.raises(KafkaError, match="UNKNOWN_TOPIC_OR_PARTITION"):
            await producer.send(service.topic, b"x", partition=99)
