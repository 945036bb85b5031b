"""What one step of a connection sends to a non-persistent topic, compiled and uncompiled."""

from __future__ import annotations

import pytest

from tests.gateway.loop import on_loop
from tests.gateway.pulsar.readers import SHARED, messages, offsets, payloads, received, subscribe
from tests.gateway.pulsar.rig import (
    NOW_MS,
    Peer,
    Rig,
    frame_of,
    section,
    send_frame,
    settle,
    use_fast_path,
)
from trilogue.broker.names import parse_pulsar
from trilogue.entry.pulsar.pulsar_batch import PulsarMessage, build_batch
from trilogue.gateway.pulsar.settings import PulsarSettings
from trilogue.wire.pulsar.pulsar_pb2 import BrokerEntryMetadata, FeatureFlags, MessageMetadata

TOPIC = "non-persistent://public/default/t"
BATCHES, CHECKSUMS = 4, 6  # protocol versions that know them


@pytest.fixture(autouse=True, params=["installed", "uncompiled"])
def fast_path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections take frames by the installed module, or by its .py."""
    use_fast_path(request.param, monkeypatch)


def sends(*values: bytes, producer_id: int = 1) -> bytes:
    """Some SENDs, which come with one receive."""
    return b"".join(send_frame(producer_id, number, each) for number, each in enumerate(values))


async def sequence_ids(peer: Peer) -> list[tuple[str, int]]:
    """The kind and sequence id of each answer."""
    return [(each.field, each.command.sequence_id) for each in await received(peer)]


def batch(*values: bytes) -> bytes:
    """A section with a batch."""
    metadata = MessageMetadata(producer_name="rig", sequence_id=0, publish_time=NOW_MS)
    return build_batch(
        [PulsarMessage(index, value, None, False, False, None, 0, -1, ())
         for index, value in enumerate(values)], metadata)  # fmt: skip


@on_loop
async def test_messages_of_one_step_are_sent_with_one_write_to_each_peer():
    async with Rig() as rig:
        writer = await rig.connected()
        readers = [await rig.connected() for _ in range(2)]
        for number, each in enumerate(readers):
            await subscribe(each, TOPIC, f"s{number}")
        await writer.producer(TOPIC)
        await settle()
        peers = [writer, *readers]
        before = [each.transport.writes for each in peers]

        writer.give(sends(*(b"%d" % number for number in range(20))))
        await settle()

        assert [each.transport.writes for each in peers] == [count + 1 for count in before]
        receipts = [each.command for each in await received(writer)]
        assert [each.sequence_id for each in receipts] == list(range(20))
        sent = [each.message_id.entryId for each in receipts]
        assert [await offsets(each) for each in readers] == [sent, sent]


@on_loop
async def test_answers_keep_their_order_around_a_refused_message():
    async with Rig() as rig:
        writer, reader = await rig.connected(), await rig.connected()
        await subscribe(reader, TOPIC)
        await writer.producer(TOPIC)
        damaged = send_frame(1, 1, body=b"\x0e\x01\0\0\0\0" + b"\0\0\0\0")

        writer.give(send_frame(1, 0, b"a") + damaged + send_frame(1, 2, b"c"))

        found = [("send_receipt", 0), ("send_error", 1), ("send_receipt", 2)]
        assert await sequence_ids(writer) == found
        assert await payloads(reader) == [b"a", b"c"]


@on_loop
async def test_a_producer_that_is_closed_behind_its_messages_has_its_receipts_first():
    async with Rig() as rig:
        writer, reader = await rig.connected(), await rig.connected()
        await subscribe(reader, TOPIC)
        await writer.producer(TOPIC)
        close = frame_of("close_producer", producer_id=1, request_id=7)

        writer.give(sends(b"a", b"b") + close + sends(b"late"))

        fields = [each.field for each in await received(writer)]
        assert fields == ["send_receipt", "send_receipt", "success"]
        assert await payloads(reader) == [b"a", b"b"]


@on_loop
async def test_producers_of_two_topics_and_of_a_stored_one_share_a_connection():
    async with Rig() as rig:
        writer = await rig.connected()
        readers = [await rig.connected() for _ in range(2)]
        for reader, topic in zip(readers, (TOPIC, f"{TOPIC}2"), strict=True):
            await subscribe(reader, topic)
        await writer.producer(TOPIC, 1)
        await writer.producer(f"{TOPIC}2", 2)
        await writer.producer("stored", 3)

        writer.give(b"".join(sends(b"%d" % number, producer_id=number)
                             for number in (1, 2, 3, 1, 2)))  # fmt: skip

        answered = [(each.field, each.command.producer_id) for each in await received(writer)]
        assert sorted(answered) == [("send_receipt", number) for number in (1, 1, 2, 2, 3)]
        assert [await payloads(each) for each in readers] == [[b"1", b"1"], [b"2", b"2"]]


@on_loop
async def test_messages_beyond_the_permits_of_a_step_are_dropped():
    async with Rig() as rig:
        writer, reader = await rig.connected(), await rig.connected()
        await subscribe(reader, TOPIC, permits=3)
        await writer.producer(TOPIC)

        frames = [send_frame(1, number, body=batch(b"a", b"b")) for number in range(4)]
        writer.give(b"".join(frames))

        assert len(await messages(reader)) == 2  # the second one overdraws the permits
        topic = rig.broker.non_persistent.find_topic(parse_pulsar(TOPIC))
        counted = topic.subscriptions["s"]
        assert (counted.sent.messages, counted.dropped.messages) == (4, 4)
        gateway = rig.gateway
        assert (gateway.messages_in, gateway.messages_out, gateway.messages_dropped) == (8, 4, 4)
        size = len(batch(b"a", b"b"))
        assert (gateway.bytes_out, gateway.bytes_dropped) == (2 * size, 2 * size)


@on_loop
async def test_shared_consumers_take_turns_within_a_step():
    async with Rig() as rig:
        writer = await rig.connected()
        readers = [await rig.connected() for _ in range(2)]
        for each in readers:
            await subscribe(each, TOPIC, kind=SHARED)
        await writer.producer(TOPIC)

        writer.give(sends(b"1", b"2", b"3", b"4", b"5"))

        shares = [await payloads(each) for each in readers]
        assert sorted(map(len, shares)) == [2, 3]
        assert sorted(shares[0] + shares[1]) == [b"1", b"2", b"3", b"4", b"5"]


@on_loop
async def test_a_consumer_on_the_connection_of_its_producer_gets_the_messages():
    async with Rig() as rig:
        peer = await rig.connected()
        await subscribe(peer, TOPIC)
        await peer.producer(TOPIC)

        peer.give(sends(b"a", b"b"))

        fields = sorted(each.field for each in await received(peer))
        assert fields == ["message", "message", "send_receipt", "send_receipt"]


@on_loop
async def test_old_clients_get_what_they_know():
    """No batches, then no checksums; and a section without a checksum gets one for the others."""
    async with Rig() as rig:
        writer, reader = await rig.connected(), await rig.connected()
        oldest, older = await rig.connected(BATCHES - 1), await rig.connected(CHECKSUMS - 1)
        for number, each in enumerate((reader, oldest, older)):
            await subscribe(each, TOPIC, f"s{number}")
        await writer.producer(TOPIC)
        plain = section(b"bare")[6:]

        writer.give(send_frame(1, 0, body=batch(b"a", b"b")) + send_frame(1, 1, body=plain))

        assert [each.section for each in await messages(reader)] == [batch(b"a", b"b"),
                                                                     section(b"bare")]  # fmt: skip
        assert [each.section for each in await messages(older)] == [batch(b"a", b"b")[6:], plain]
        assert len(await messages(oldest)) == 3


@on_loop
async def test_broker_entry_metadata_is_added_where_it_is_wanted():
    async with Rig(pulsar=PulsarSettings(adds_broker_timestamp=True)) as rig:
        flags = FeatureFlags(supports_broker_entry_metadata=True)
        writer, reader = await rig.connected(), await rig.connected(feature_flags=flags)
        await subscribe(reader, TOPIC)
        await writer.producer(TOPIC)

        writer.give(sends(b"a"))

        (message,) = await messages(reader)
        size = int.from_bytes(message.section[2:6], "big")
        added = BrokerEntryMetadata.FromString(message.section[6 : 6 + size])
        assert added.broker_timestamp == rig.now_ms
        assert message.section[6 + size :] == section(b"a")


@on_loop
async def test_a_producer_without_encryption_is_refused_message_by_message():
    async with Rig() as rig:
        writer, reader = await rig.connected(), await rig.connected()
        await subscribe(reader, TOPIC)
        await writer.producer(TOPIC)
        await rig.policies("public/default", encryptionRequired=True)
        keyed = section(b"x", encryption_keys=[{"key": "k", "value": b"v"}])

        writer.give(send_frame(1, 0) + send_frame(1, 1, body=keyed))

        assert await sequence_ids(writer) == [("send_error", 0), ("send_receipt", 1)]
        assert len(await messages(reader)) == 1


@on_loop
async def test_the_publish_rate_is_counted_message_by_message():
    async with Rig() as rig:
        writer = await rig.connected()
        await writer.producer(TOPIC)
        rate = {"publishThrottlingRateInMsg": 2, "publishThrottlingRateInByte": -1}
        await rig.policies("public/default", publishRate=rate)

        writer.give(sends(*(b"%d" % number for number in range(10))))
        await settle()

        assert 2 <= writer.answered <= 4


@on_loop
async def test_a_send_of_a_producer_that_never_was_ends_the_connection():
    async with Rig() as rig:
        writer = await rig.connected()
        await writer.producer(TOPIC)

        writer.give(sends(b"a") + sends(b"b", producer_id=8))
        await settle()

        assert writer.is_cut
