"""SEEK and GET_LAST_MESSAGE_ID by raw frames, and how ids become offsets."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.gateway.kafka.rig import batch as kafka_batch
from tests.gateway.loop import on_loop
from tests.gateway.pulsar.readers import (
    ABSENT,
    FAILOVER,
    LATEST,
    SHARED,
    ack,
    fill,
    fill_batch,
    ids,
    mark,
    offsets,
    received,
    subscribe,
)
from tests.gateway.pulsar.rig import Peer, Rig, settle
from tests.waiting import run_ready_tasks
from trilogue.gateway.pulsar.entry_search import find_last_entry
from trilogue.gateway.pulsar.last_message import KEPT_S
from trilogue.gateway.pulsar.message_ids import (
    decode_acked_ranges,
    encode_ack_set,
    first_unacked,
    signed,
)
from trilogue.wire.pulsar.errors import ServerError

LATEST_ID = {"ledgerId": (1 << 63) - 1, "entryId": (1 << 63) - 1}
EARLIEST_ID = {"ledgerId": ABSENT, "entryId": ABSENT}


async def seek(peer: Peer, **where: object) -> None:
    """SEEK, as a real broker answers it: the consumer is closed, then success."""
    number = peer.number()
    peer.send_command("seek", consumer_id=1, request_id=number, **where)
    assert (await peer.answer("close_consumer")).consumer_id == 1
    assert number == (await peer.answer("success")).request_id


async def filled(rig: Rig) -> None:
    """Messages 0 to 2, a batch of four at 3, and one at 7."""
    rig.topic("t")
    await fill(rig, b"0", b"1", b"2")
    await fill_batch(rig, b"3", b"4", b"5", b"6")
    await fill(rig, b"7")


@pytest.mark.parametrize("flushed", [False, True])
@pytest.mark.parametrize(
    ("entry", "expected"),
    [(2, [2, 3, 7]), (3, [3, 7]), (5, [3, 7]), (0, [0, 1, 2, 3, 7]), (-1, [0, 1, 2, 3, 7]),
     (7, [7]), (8, []), (999, [])],
)  # fmt: skip
@on_loop
async def test_a_seek_puts_the_subscription_at_the_entry_that_contains_an_id(
    entry, expected, flushed
):
    async with Rig() as rig:
        await filled(rig)
        if flushed:
            await rig.flush()
        peer = await rig.connected()
        await subscribe(peer)
        await received(peer)
        ack(peer, ids(rig, 7), ack_type=1)

        await seek(peer, message_id=ids(rig, entry)[0])
        await subscribe(peer)

        assert expected == await offsets(peer)


@pytest.mark.parametrize(
    ("message_id", "expected"), [(EARLIEST_ID, [0, 1, 2, 3, 7]), (LATEST_ID, [])]
)
@on_loop
async def test_a_seek_to_an_end(message_id, expected):
    async with Rig() as rig:
        await filled(rig)
        peer = await rig.connected()
        await subscribe(peer, permits=0)

        await seek(peer, message_id=message_id)
        await subscribe(peer)

        assert expected == await offsets(peer)


@on_loop
async def test_seek_into_a_batch_sends_its_ack_set():
    """Seen with a real broker: the set comes back in MESSAGE."""
    async with Rig() as rig:
        await filled(rig)
        peer = await rig.connected()
        await subscribe(peer, permits=0)

        await seek(peer, message_id=ids(rig, 3, ack_set=[0b1100])[0])
        await subscribe(peer)

        first, second = await received(peer)
        assert (first.command.message_id.entryId, list(first.command.ack_set)) == (3, [0b1100])
        assert second.command.message_id.entryId == 7
        assert mark(rig) == 5


@pytest.mark.parametrize("flushed", [False, True])
@on_loop
async def test_a_seek_to_a_time_is_inclusive(flushed):
    """wire/pulsar: seek by time is inclusive."""
    async with Rig() as rig:
        rig.topic("t")
        for number in range(5):
            await fill(rig, b"x", publish_time=rig.now_ms + number * 1_000)
        if flushed:
            await rig.flush()
        peer = await rig.connected()
        await subscribe(peer, permits=0)

        for after_ms, expected in ((3_000, [3, 4]), (2_001, [3, 4]), (9_000, []), (-1, [0, 1])):
            await seek(peer, message_publish_time=rig.now_ms + after_ms)
            await subscribe(peer, permits=2)
            assert expected == await offsets(peer)


@on_loop
async def test_a_seek_sends_all_consumers_of_the_subscription_off():
    async with Rig() as rig:
        await filled(rig)
        peer, other = await rig.connected(), await rig.connected()
        await subscribe(peer, kind=SHARED, permits=0)
        await subscribe(other, kind=SHARED, permits=0)

        await seek(peer, message_id=ids(rig, 2)[0])

        await other.answer("close_consumer")
        assert not peer.connection.consumers
        assert not other.connection.consumers


@on_loop
async def test_a_seek_is_durable_before_it_is_answered():
    async with Rig() as rig:
        await filled(rig)
        peer = await rig.connected()
        await subscribe(peer, permits=0)

        peer.send_command("seek", consumer_id=1, request_id=9, message_id=LATEST_ID)
        facts = rig.log.journal.counts.facts
        assert not peer.answered
        await peer.answer("close_consumer")

        assert rig.log.journal.counts.facts > facts
        assert mark(rig) == 8


@on_loop
async def test_acks_and_demand_that_cross_a_seek_do_nothing():
    async with Rig() as rig:
        await filled(rig)
        peer = await rig.connected()
        await subscribe(peer, permits=8)
        await received(peer)

        peer.send_command("seek", consumer_id=1, request_id=9, message_id=EARLIEST_ID)
        for _ in range(2):
            await run_ready_tasks()
        assert rig.gateway.subscriptions.of(ids(rig, 0)[0]["ledgerId"])["s"].closing
        ack(peer, ids(rig, 7), ack_type=1)
        peer.send_command("flow", consumer_id=1, messagePermits=100)
        found = [each.field for each in await received(peer)]
        await subscribe(peer)

        assert found == ["close_consumer", "success"]
        assert await offsets(peer) == [0, 1, 2, 3, 7]


@on_loop
async def test_subscribe_during_a_seek_is_refused_or_closed():
    async with Rig() as rig:
        await filled(rig)
        peer, other = await rig.connected(), await rig.connected()
        await subscribe(peer, kind=SHARED, permits=0)

        peer.send_command("seek", consumer_id=1, request_id=9, message_id=LATEST_ID)
        other.send_command(
            "subscribe", request_id=8, topic="t", subscription="s", subType=SHARED, consumer_id=1
        )
        found = [each.field for each in await received(other)]

        assert found in (["error"], ["success"], ["success", "close_consumer"])
        if found == ["error"]:
            await subscribe(other, kind=SHARED)


@on_loop
async def test_a_reader_that_is_not_durable_seeks_as_well():
    """It comes again with the same name; nothing but memory knows where it goes on."""
    async with Rig() as rig:
        await filled(rig)
        peer = await rig.connected()
        await subscribe(peer, durable=False, start_message_id=LATEST_ID)
        assert await offsets(peer) == []

        await seek(peer, message_id=ids(rig, 3)[0])
        await subscribe(peer, durable=False, start_message_id=LATEST_ID)

        assert await offsets(peer) == [3, 7]
        peer.transport.close()
        await settle()
        partition_id = rig.broker.cluster.topic(rig.name("t")).partitions[0].partition_id
        assert not rig.gateway.subscriptions.of(partition_id)


@pytest.mark.parametrize("field", ["seek", "getLastMessageId"])
@on_loop
async def test_a_consumer_that_is_not_there_gets_an_error(field):
    async with Rig() as rig:
        peer = await rig.connected()

        refused = await peer.request(field, "error", consumer_id=9)

        assert refused.error == ServerError.MetadataError


@on_loop
async def test_a_seek_to_nowhere_is_refused():
    async with Rig() as rig:
        rig.topic("t")
        peer = await rig.connected()
        await subscribe(peer)

        refused = await peer.request("seek", "error", consumer_id=1)

        assert refused.error == ServerError.NotAllowedError
        assert peer.connection.consumers


# ---- GET_LAST_MESSAGE_ID


async def last(peer: Peer) -> tuple[int, int, int, int]:
    """Entry, batch index and partition of the last message; the mark-delete entry."""
    found = await peer.request("getLastMessageId", "getLastMessageIdResponse", consumer_id=1)
    last_id = found.last_message_id
    mark_delete = found.consumer_mark_delete_position
    return (
        signed(last_id.entryId), last_id.batch_index, last_id.partition, signed(mark_delete.entryId)
    )  # fmt: skip


@on_loop
async def test_an_empty_topic_has_no_last_message():
    async with Rig() as rig:
        rig.topic("t")
        peer = await rig.connected()
        await subscribe(peer)

        found = await peer.request("getLastMessageId", "getLastMessageIdResponse", consumer_id=1)

        assert (
            found.last_message_id.ledgerId,
            found.last_message_id.entryId,
        ) == (ABSENT, ABSENT)


@pytest.mark.parametrize("flushed", [False, True])
@on_loop
async def test_the_last_message_of_a_batch_is_its_last_index(flushed):
    async with Rig() as rig:
        rig.topic("t", 2)
        await fill(rig, b"0", topic="t-partition-1")
        peer = await rig.connected()
        await subscribe(peer, "t-partition-1", permits=0)
        assert await last(peer) == (0, -1, 1, -1)

        await fill_batch(rig, b"1", b"2", b"3", topic="t-partition-1")
        if flushed:
            await rig.flush()

        assert await last(peer) == (1, 2, 1, -1)


@on_loop
async def test_the_mark_delete_position_is_before_the_entry_with_the_mark():
    async with Rig() as rig:
        await filled(rig)
        peer = await rig.connected()
        await subscribe(peer, kind=FAILOVER, permits=0)
        await received(peer)

        found = []
        for entry, ack_set in ((1, ()), (3, (0b1100,)), (3, ()), (7, ())):
            ack(peer, ids(rig, entry, ack_set=ack_set), ack_type=1)
            await settle()
            found.append((await last(peer))[3])

        assert found == [1, 2, 6, 7]


@on_loop
async def test_the_last_message_is_read_again_after_a_change_only(monkeypatch):
    searches = []

    async def search(*args):
        searches.append(args)
        return await find_last_entry(*args)

    monkeypatch.setattr("trilogue.gateway.pulsar.seek.find_last_entry", search)
    async with Rig() as rig:
        await filled(rig)
        peer = await rig.connected()
        await subscribe(peer, permits=0)

        found = [await last(peer) for _ in range(5)]
        assert found == [found[0]] * 5
        assert len(searches) == 1

        await fill(rig, b"new")
        assert (await last(peer))[0] > found[0][0]
        assert len(searches) == 2

        await asyncio.sleep(KEPT_S)  # compaction changes no offset
        await last(peer)
        assert len(searches) == 3


@on_loop
async def test_where_all_is_acked_the_mark_delete_position_is_that_of_the_last_message():
    """Readers of the latest message, inclusive, request its id before they seek to it."""
    async with Rig() as rig:
        rig.topic("t")
        await fill_batch(rig, b"1", b"2", b"3")
        peer = await rig.connected()

        await subscribe(peer, initialPosition=LATEST)

        assert await last(peer) == (0, 2, -1, 0)


@on_loop
async def test_the_last_message_of_a_kafka_batch():
    async with Rig() as rig:
        topic = rig.topic("t")
        topic.partitions[0].append(memoryview(kafka_batch("a", "b", "c")), now_ms=rig.now_ms)
        await settle()
        peer = await rig.connected()
        await subscribe(peer, permits=0)

        assert await last(peer) == (0, 2, -1, -1)


@on_loop
async def test_last_message_id_is_minus_one_after_retention():
    async with Rig() as rig:
        await filled(rig)
        peer = await rig.connected()
        await subscribe(peer, permits=0)

        rig.broker.cluster.topic(rig.name("t")).partitions[0].log.retain_from(8)

        assert (await last(peer))[0] == -1


# ---- sets of acks


@pytest.mark.parametrize(
    ("count", "acked", "words"),
    [
        (10, [(3, 4)], (1015,)),
        (10, [], ()),
        (64, [(0, 1)], (-2,)),
        (65, [(0, 64)], (0, 1)),
        (130, [(1, 130)], (1,)),
    ],
)
def test_ack_set_words_have_ones_for_remaining_messages(count, acked, words):
    """docs/reference/wire/pulsar.md: little word first, zeros at the end are left out."""
    missing, at = [], 0
    for start, end in [*acked, (count, count)]:
        if at < start:
            missing.append((at, start))
        at = end

    assert words == encode_ack_set(0, count, missing)


@given(st.integers(1, 300), st.sets(st.integers(0, 299)), st.integers(0, 1 << 40))
def test_sets_of_acks_come_back(count, left, base):
    kept = sorted(each for each in left if each < count)
    if not kept or len(kept) == count:
        return
    words = encode_ack_set(base, base + count, [(base + each, base + each + 1) for each in kept])

    acked = decode_acked_ranges(base, base + count, words)

    offsets = [base + each for each in range(count) if each not in left]
    assert offsets == [each for start, end in acked for each in range(start, end)]
    assert all(end < start for (_, end), (start, _) in pairwise(acked))
    assert base + kept[0] == first_unacked(base, base + count, words)


@given(st.integers(1, 200), st.lists(st.integers(-(1 << 63), (1 << 63) - 1), max_size=8))
def test_any_ack_set_decodes_within_its_entry(count, words):
    acked = decode_acked_ranges(5, 5 + count, words)

    assert all(5 <= start < end <= 5 + count for start, end in acked)
    assert 5 <= first_unacked(5, 5 + count, words) <= 5 + count
