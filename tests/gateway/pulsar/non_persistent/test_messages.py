"""Messages of non-persistent topics: sent at once, to consumers that are ready, and gone."""

from __future__ import annotations

import pytest

from tests.gateway.loop import on_loop
from tests.gateway.pulsar.readers import (
    FAILOVER,
    KEY_SHARED,
    SHARED,
    ack,
    offsets,
    payloads,
    received,
    subscribe,
)
from tests.gateway.pulsar.rig import Peer, Rig
from trilogue.broker.names import parse_pulsar
from trilogue.broker.non_persistent.topics import IDLE_S, NonPersistentTopic
from trilogue.wire.pulsar.errors import ServerError

TOPIC = "non-persistent://public/default/t"


def topic_of(rig: Rig, name: str = TOPIC) -> NonPersistentTopic:
    found = rig.broker.non_persistent.find_topic(parse_pulsar(name))
    assert found is not None
    return found


async def send(peer: Peer, *values: bytes, topic: str = TOPIC, producer_id: int = 9) -> list[int]:
    """Send messages from a producer of their own; gives the entry ids of the receipts."""
    await peer.producer(topic, producer_id)
    found = []
    for number, value in enumerate(values):
        peer.send(producer_id, number, value)
        found.append((await peer.answer("send_receipt")).message_id.entryId)
    await peer.request("close_producer", "success", producer_id=producer_id)
    return found


@on_loop
async def test_a_message_goes_to_each_subscription_and_is_not_stored():
    async with Rig() as rig:
        writer, first, second = [await rig.connected() for _ in range(3)]
        await subscribe(first, TOPIC, "a")
        await subscribe(second, TOPIC, "b", kind=SHARED)
        rig.fail_disk("write")

        sent = await send(writer, b"one", b"two")

        assert [await offsets(first), await offsets(second)] == [sent, sent]
        assert not rig.broker.cluster.topics_in(topic_of(rig).name.topic.namespace_name)


@on_loop
async def test_a_consumer_gets_nothing_that_was_sent_before_it_came():
    async with Rig() as rig:
        writer, reader = await rig.connected(), await rig.connected()
        await send(writer, b"early")
        await subscribe(reader, TOPIC)

        await send(writer, b"late")

        assert await payloads(reader) == [b"late"]


@on_loop
async def test_messages_beyond_the_permits_are_acknowledged_dropped_and_counted():
    async with Rig() as rig:
        writer, reader = await rig.connected(), await rig.connected()
        await subscribe(reader, TOPIC, permits=2)

        await send(writer, b"1", b"2", b"3", b"4")

        assert await payloads(reader) == [b"1", b"2"]
        dropped = topic_of(rig).subscriptions["s"].dropped
        assert (dropped.messages, topic_of(rig).received.messages) == (2, 4)
        reader.send_command("flow", consumer_id=1, messagePermits=1)
        await send(writer, b"5", b"6")
        assert await payloads(reader) == [b"5"]


@on_loop
async def test_a_connection_that_does_not_read_holds_no_messages():
    async with Rig() as rig:
        writer, reader = await rig.connected(), await rig.connected()
        await subscribe(reader, TOPIC, permits=100_000)
        reader.stream.pause_writing()

        await send(writer, *(b"x" * 10_000 for _ in range(50)))

        held = topic_of(rig).subscriptions["s"]
        assert (held.sent.messages, held.dropped.messages) == (0, 50)
        reader.stream.resume_writing()
        await send(writer, b"after")
        assert await payloads(reader) == [b"after"]


@on_loop
async def test_acks_redelivery_and_seek_are_answered_and_have_no_effect():
    async with Rig() as rig:
        writer, reader = await rig.connected(), await rig.connected()
        await subscribe(reader, TOPIC)
        (entry,) = await send(writer, b"m")
        await received(reader)

        reader.send_command("redeliverUnacknowledgedMessages", consumer_id=1)
        ack(reader, [{"ledgerId": 0, "entryId": entry}], request_id=7)
        answered = await reader.answer("ackResponse")
        await reader.request(
            "seek", "success", consumer_id=1, message_id={"ledgerId": 0, "entryId": 0}
        )
        refused = await reader.request("getLastMessageId", "error", consumer_id=1)

        assert not answered.HasField("error")
        assert refused.error == ServerError.NotAllowedError
        assert await received(reader) == []


@on_loop
async def test_the_active_consumer_of_a_failover_subscription_is_notified():
    async with Rig() as rig:
        first, second = await rig.connected(), await rig.connected()
        await subscribe(first, TOPIC, kind=FAILOVER, consumer_name="a")
        await subscribe(second, TOPIC, kind=FAILOVER, consumer_name="b")
        changes = [each.command.is_active for each in await received(second)]

        first.transport.close()

        changes += [each.command.is_active for each in await received(second)]
        assert changes == [False, True]


@on_loop
async def test_a_key_goes_to_one_consumer():
    async with Rig() as rig:
        writer = await rig.connected()
        readers = [await rig.connected() for _ in range(2)]
        for number, each in enumerate(readers):
            await subscribe(each, TOPIC, kind=KEY_SHARED, consumer_name=f"c{number}")
        await writer.producer(TOPIC)

        for number in range(40):
            key = f"k{number % 8}"
            writer.send(1, number, key.encode(), metadata_partition_key=key)

        keys = [set(await payloads(each)) for each in readers]
        assert len(keys[0]) + len(keys[1]) == 8
        assert not keys[0] & keys[1]


@on_loop
async def test_a_message_in_a_transaction_is_refused():
    async with Rig() as rig:
        peer = await rig.connected()
        await peer.producer(TOPIC)

        peer.send(1, 0, txnid_least_bits=1, txnid_most_bits=0)

        assert (await peer.answer("send_error")).error == ServerError.NotAllowedError


@on_loop
async def test_damaged_messages_are_refused_and_reach_no_consumer():
    async with Rig() as rig:
        writer, reader = await rig.connected(), await rig.connected()
        await subscribe(reader, TOPIC)
        await writer.producer(TOPIC)

        writer.send(1, 0, body=b"\x0e\x01\0\0\0\0" + b"\0\0\0\0")

        assert (await writer.answer("send_error")).error == ServerError.ChecksumError
        assert await received(reader) == []


@on_loop
async def test_a_topic_that_is_not_used_is_discarded():
    async with Rig() as rig:
        peer = await rig.connected()
        await subscribe(peer, TOPIC)
        topics, now_s = rig.broker.non_persistent, rig.gateway.loop.time()
        topics.discard_idle(now_s + 2 * IDLE_S)
        assert len(list(topics)) == 1  # it is used

        peer.transport.close()
        topics.discard_idle(now_s + 2.5 * IDLE_S)
        topics.discard_idle(now_s + 4 * IDLE_S)

        assert list(topics) == []


@pytest.mark.parametrize("partition", [0, 2])
def test_partitions_have_their_numbers(partition: int):
    @on_loop
    async def scenario():
        async with Rig() as rig:
            await rig.policies(
                "public/default",
                autoTopicCreation={
                    "allowAutoTopicCreation": True,
                    "topicType": "partitioned",
                    "defaultNumPartitions": 3,
                },
            )
            peer = await rig.connected()
            counted = await peer.request(
                "partitionMetadata", "partitionMetadataResponse", topic=TOPIC
            )
            name = f"{TOPIC}-partition-{partition}"
            reader = await rig.connected()
            await subscribe(reader, name)
            await send(peer, b"m", topic=name)

            (message,) = await received(reader)

            assert counted.partitions == 3
            assert message.command.message_id.partition == partition
            again = await peer.request(
                "producer", "error", topic=f"{TOPIC}-partition-3", producer_id=5
            )
            assert again.error == ServerError.TopicNotFound

    scenario()
