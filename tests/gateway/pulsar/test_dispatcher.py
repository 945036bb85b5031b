"""MESSAGE: the bytes that leave, where they are read from, and who gets how much in a turn."""

from __future__ import annotations

import struct

import pytest
from crc32c import crc32c

from tests.gateway.kafka.rig import batch as kafka_batch
from tests.gateway.loop import on_loop
from tests.gateway.pulsar.readers import (
    EXCLUSIVE,
    FAILOVER,
    KEY_SHARED,
    SHARED,
    ack,
    fill,
    fill_batch,
    ids,
    mark,
    messages,
    offsets,
    payload,
    payloads,
    received,
    subscribe,
)
from tests.gateway.pulsar.rig import Answer, Rig, section, send_frame, settle
from tests.log.ledger import data, marker
from trilogue.entry.control import Outcome, build_marker
from trilogue.entry.walk import read_header
from trilogue.gateway.pulsar.settings import PulsarSettings
from trilogue.wire.pulsar.pulsar_pb2 import BrokerEntryMetadata, MessageMetadata

KINDS = [EXCLUSIVE, SHARED, FAILOVER, KEY_SHARED]


def metadata(found: Answer) -> MessageMetadata:
    (size,) = struct.unpack_from(">I", found.section, 6)
    return MessageMetadata.FromString(found.section[10 : 10 + size])


@pytest.mark.parametrize("version", range(22))
@on_loop
async def test_a_message_is_what_its_producer_sent_for_every_version(version):
    """Protocol, payload commands: the checksum is for clients that know it, from version 6 on."""
    async with Rig() as rig:
        rig.topic("t")
        producer = await rig.connected()
        await producer.producer("t")
        sent = section(b"hello", properties=[{"key": "a", "value": "b"}], replicated_from="x")
        producer.give(send_frame(1, 0, body=sent))
        peer = await rig.connected(version)

        await subscribe(peer)
        (found,) = await messages(peer)

        assert found.section == (sent if version >= 6 else sent[6:])


@pytest.mark.parametrize("version", [0, 3, 4, 21])
@on_loop
async def test_clients_that_know_no_batches_get_messages_one_by_one(version):
    """docs/reference/wire/pulsar.md, ProtocolVersion: 4 batches."""
    async with Rig() as rig:
        rig.topic("t")
        await fill_batch(rig, b"a", b"b", b"c")
        peer = await rig.connected(version)

        await subscribe(peer)
        found = await messages(peer)

        if version >= 4:
            assert [each.command.message_id.entryId for each in found] == [0]
            return
        assert [each.command.message_id.entryId for each in found] == [0, 1, 2]
        assert [each.section[-1:] for each in found] == [b"a", b"b", b"c"]


@pytest.mark.parametrize("reported", ["timestamp", "index", "both", "off"])
@pytest.mark.parametrize(("version", "declares"), [(21, True), (21, False), (17, True)])
@on_loop
async def test_broker_entry_metadata_is_for_clients_that_declare_it(reported, version, declares):
    """Protocol, frames: 0e02, size, metadata; only where both sides declare it."""
    settings = PulsarSettings(
        adds_broker_timestamp=reported in {"timestamp", "both"},
        adds_entry_index=reported in {"index", "both"},
    )
    async with Rig(pulsar=settings) as rig:
        rig.topic("t")
        await fill_batch(rig, b"a", b"b", b"c")
        features = {"supports_broker_entry_metadata": declares}
        peer = await rig.connected(version, feature_flags=features)

        await subscribe(peer)
        (found,) = await messages(peer)

        if reported == "off" or not declares or version < 18:
            assert found.section[:2] == b"\x0e\x01"
            return
        assert found.section[:2] == b"\x0e\x02"
        (size,) = struct.unpack_from(">I", found.section, 2)
        response = BrokerEntryMetadata.FromString(found.section[6 : 6 + size])
        assert found.section[6 + size :][:2] == b"\x0e\x01"
        assert response.HasField("broker_timestamp") == (reported in {"timestamp", "both"})
        assert response.HasField("index") == (reported in {"index", "both"})
        assert response.broker_timestamp in {0, rig.now_ms}
        assert response.index in {0, 2}, "of the last message"


@pytest.mark.parametrize("kind", KINDS)
@on_loop
async def test_messages_come_from_segments_and_from_memory_alike(kind):
    async with Rig() as rig:
        rig.topic("t")
        values = [b"%d" % number for number in range(40)]
        await fill(rig, *values[:20])
        await rig.flush()
        await fill(rig, *values[20:])
        peer = await rig.connected()

        await subscribe(peer, kind=kind)
        found = [each for each in await received(peer) if each.field == "message"]

        assert values == [payload(each.section) for each in found]
        assert rig.executor.runs


@on_loop
async def test_redelivered_messages_are_read_from_a_segment():
    async with Rig() as rig:
        rig.topic("t")
        await fill(rig, *(b"%d" % number for number in range(10)))
        peer = await rig.connected()
        await subscribe(peer, kind=SHARED)
        await messages(peer)
        await rig.flush()

        peer.send_command(
            "redeliverUnacknowledgedMessages", consumer_id=1, message_ids=ids(rig, 3, 7)
        )

        assert await payloads(peer) == [b"3", b"7"]


@on_loop
async def test_new_messages_leave_in_the_turn_in_which_they_are_durable():
    async with Rig() as rig:
        rig.topic("t")
        peer, producer = await rig.connected(), await rig.connected()
        await subscribe(peer)
        await producer.producer("t")
        await settle()

        producer.send(1, 0, b"x")
        assert not peer.answered, "it is not durable yet"
        while not producer.answered:
            await settle()

        assert await payloads(peer) == [b"x"]


@on_loop
async def test_a_turn_hands_out_so_much_and_then_others_have_theirs():
    async with Rig() as rig:
        rig.topic("t")
        rig.topic("small")
        await fill(rig, *[b"x" * 30_000] * 20)
        await fill(rig, b"y", topic="small")
        peer, other = await rig.connected(), await rig.connected()
        await subscribe(peer, permits=0)
        await subscribe(other, "small", permits=0)

        peer.send_command("flow", consumer_id=1, messagePermits=1_000)
        other.send_command("flow", consumer_id=1, messagePermits=1_000)
        order = [b"t"] * len(await received(other))
        written = len(peer.transport.frames()) - 2

        assert order == [b"t"]
        assert written < 25
        assert len(await messages(peer)) == 20


@on_loop
async def test_stuck_consumer_gets_no_more_messages_and_the_others_continue():
    async with Rig() as rig:
        rig.topic("t")
        stuck, other = await rig.connected(), await rig.connected()
        await subscribe(stuck, kind=SHARED)
        stuck.transport.stuck = True
        await fill(rig, *[b"x" * 60_000] * 20)
        held = stuck.transport.unsent
        await subscribe(other, kind=SHARED)
        await fill(rig, *[b"y" * 60_000] * 20)

        assert stuck.transport.unsent == held < 512 << 10
        assert 20 + 20 > len(await received(other)) >= 20
        stuck.transport.unstick()
        await fill(rig, *[b"z" * 60_000] * 20)
        await settle()
        assert len(stuck.transport.frames()) + len(other.transport.frames()) >= 60


@on_loop
async def test_markers_and_holes_are_passed_and_count_as_acked():
    async with Rig() as rig:
        topic = rig.topic("t")
        plog = topic.partitions[0].log
        await fill(rig, b"0")
        marker = memoryview(
            build_marker(
                Outcome.COMMIT,
                producer_id=7,
                producer_epoch=0,
                coordinator_epoch=0,
                timestamp_ms=rig.now_ms,
            )
        )
        plog.append(marker, read_header(marker))
        await fill(rig, b"2")
        peer = await rig.connected()

        await subscribe(peer)
        assert await offsets(peer) == [0, 2]
        ack(peer, ids(rig, 0))

        assert mark(rig) == 2


@pytest.mark.parametrize("flushed", [False, True])
@on_loop
async def test_nothing_of_an_aborted_or_open_transaction_is_seen(flushed):
    """Protocol, transactions: entries of open or aborted ones are not delivered."""
    async with Rig() as rig:
        plog = rig.topic("t").partitions[0].log
        for entry in (
            data(None),
            data(7),
            marker(7, Outcome.ABORT),
            data(None),
            data(8),
            data(None),
        ):
            plog.append(memoryview(entry), read_header(entry))
        await settle()
        if flushed:
            await rig.flush()
        peer = await rig.connected()

        await subscribe(peer)

        assert await offsets(peer) == [0, 3]
        ack(peer, ids(rig, 0, 3))
        assert mark(rig) == 4


@on_loop
async def test_dispatch_skips_messages_removed_by_retention():
    async with Rig() as rig:
        topic = rig.topic("t")
        await fill(rig, *[b"x"] * 10)
        peer = await rig.connected()
        await subscribe(peer, permits=3)
        await messages(peer)

        topic.partitions[0].log.retain_from(6)
        peer.send_command("flow", consumer_id=1, messagePermits=100)

        assert await offsets(peer) == [6, 7, 8, 9]


@on_loop
async def test_chunks_of_one_message_go_to_one_consumer():
    async with Rig() as rig:
        rig.topic("t")
        first, second = await rig.connected(), await rig.connected()
        await subscribe(first, kind=SHARED)
        await subscribe(second, kind=SHARED)
        for message in range(6):
            for chunk in range(3):
                await fill(
                    rig,
                    b"x",
                    uuid=f"m-{message}",
                    num_chunks_from_msg=3,
                    chunk_id=chunk,
                    total_chunk_msg_size=3,
                )

        whole = [{metadata(each).uuid for each in await messages(peer)} for peer in (first, second)]

        assert len(whole[0]) + len(whole[1]) == 6
        assert all(whole)


# ---- entries of other protocols


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("flushed", [False, True])
@on_loop
async def test_kafka_batches_are_converted(kind, flushed):
    async with Rig() as rig:
        topic = rig.topic("t")
        topic.partitions[0].append(memoryview(kafka_batch("a", "b", "c")), now_ms=rig.now_ms)
        await fill(rig, b"d")
        topic.partitions[0].append(memoryview(kafka_batch("e")), now_ms=rig.now_ms)
        await settle()
        if flushed:
            await rig.flush()
        peer = await rig.connected()

        await subscribe(peer, kind=kind)
        found = [each for each in await received(peer) if each.field == "message"]

        assert [each.command.message_id.entryId for each in found] == [0, 3, 4]
        assert metadata(found[0]).num_messages_in_batch == 3
        for each in found:
            (crc,) = struct.unpack_from(">I", each.section, 2)
            assert crc == crc32c(each.section[6:])
        ack(peer, ids(rig, 0, 3, 4))
        await settle()
        assert mark(rig) == 5


@on_loop
async def test_large_conversions_leave_the_loop():
    async with Rig() as rig:
        topic = rig.topic("t")
        values = [b"%d" % number * 1_000 for number in range(100)]
        topic.partitions[0].append(memoryview(kafka_batch(*values)), now_ms=rig.now_ms)
        await fill(rig, b"after")
        await settle()
        runs = rig.executor.runs
        peer = await rig.connected()

        await subscribe(peer)

        assert await offsets(peer) == [0, 100]
        assert rig.executor.runs > runs


@on_loop
async def test_unconvertible_messages_are_skipped_and_counted(caplog):
    async with Rig(pulsar=PulsarSettings(message_bytes_max=65_536)) as rig:
        topic = rig.topic("t")
        topic.partitions[0].append(
            memoryview(kafka_batch("small", b"x" * 100_000, "too")), now_ms=rig.now_ms
        )
        await settle()
        peer = await rig.connected()

        await subscribe(peer)
        found = await messages(peer)

        assert [each.command.message_id.entryId for each in found] == [0, 2]
        assert any(record.message == "conversion.skipped" for record in caplog.records)
        ack(peer, ids(rig, 0, 2))
        assert mark(rig) == 3
