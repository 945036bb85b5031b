"""Fetch: waits, limits, order, errors, and the source of the bytes."""

from __future__ import annotations

import struct

import pytest

from tests.gateway.kafka.produce.test_produce import request as produce
from tests.gateway.kafka.rig import Rig, batch, settle, versions
from tests.gateway.loop import on_loop
from tests.waiting import pass_time
from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.wire.kafka.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState


def fetch(
    topic: str,
    *offsets: int,
    topic_id: bytes = bytes(16),
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 50 << 20,
    partition_max_bytes: int = 1 << 20,
    **how: int,
) -> FetchRequest:
    """Fetch partition 0, 1, ... from these offsets."""
    epoch = how.pop("current_leader_epoch", -1)
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        topics=[
            FetchTopic(
                topic=topic,
                topic_id=topic_id,
                partitions=[
                    FetchPartition(
                        partition=index,
                        fetch_offset=offset,
                        partition_max_bytes=partition_max_bytes,
                        current_leader_epoch=epoch,
                    )
                    for index, offset in enumerate(offsets)
                ],
            )
        ],
        **how,
    )


def partitions(response) -> list:
    (topic,) = response.responses
    return topic.partitions


def bases(records) -> list[int]:
    """The base offsets of the whole batches in a response."""
    found, at, data = [], 0, bytes(records or b"")
    while at + 12 <= len(data):
        base, length = struct.unpack_from(">qi", data, at)
        at += 12 + length
        assert at <= len(data), "a batch was cut"
        found.append(base)
    return found


async def fill(rig: Rig, topic: str, *values: str, index: int = 0) -> None:
    peer = rig.peer()
    for value in values:
        await peer.request(produce(topic, batch(value), index=index), 7)
    peer.transport.close()


@pytest.mark.parametrize("version", versions(1)[4:])  # before: test_down_convert.py
@on_loop
async def test_every_version_reads_what_was_written(version):
    async with Rig() as rig:
        topic = rig.topic("t", partitions=2)
        await fill(rig, "t", "a", "b", index=1)

        requested = fetch("t", 0, 1, topic_id=topic.topic_id)
        empty, full = partitions(await rig.peer().request(requested, version))

        assert (empty.partition_index, empty.error_code, empty.high_watermark) == (0, 0, 0)
        assert bytes(empty.records) == b""
        assert (full.partition_index, full.error_code, full.high_watermark) == (1, 0, 2)
        assert full.last_stable_offset == 2
        assert bases(full.records) == [1]
        assert bytes(full.records)[12:16] == struct.pack(">i", 3)  # the owner's epoch


@on_loop
async def test_a_batch_comes_back_as_it_was_sent_but_for_offset_and_epoch():
    async with Rig() as rig:
        rig.topic("t")
        sent = batch("x" * 100, "y", codec=4)
        await rig.peer().request(produce("t", sent), 7)

        (found,) = partitions(await rig.peer().request(fetch("t", 0), 11))

        assert bytes(found.records)[16:] == sent[16:]


# ---- waiting


@on_loop
async def test_fetch_answers_at_once_when_there_is_enough():
    async with Rig() as rig:
        rig.topic("t")
        await fill(rig, "t", "a")
        begin = rig.loop.time()

        await rig.peer().request(fetch("t", 0, max_wait_ms=10_000), 11)

        assert rig.loop.time() - begin < 0.01


@on_loop
async def test_fetch_waits_its_time_and_then_answers_empty():
    async with Rig() as rig:
        rig.topic("t")
        begin = rig.loop.time()

        (found,) = partitions(await rig.peer().request(fetch("t", 0, max_wait_ms=500), 11))

        assert rig.loop.time() - begin == pytest.approx(0.5, abs=0.01)
        assert (found.error_code, bytes(found.records)) == (0, b"")


@on_loop
async def test_a_fetch_of_no_partitions_has_nothing_to_wait_for():
    async with Rig() as rig:
        rig.topic("t")
        begin = rig.loop.time()

        answer = await rig.peer().request(fetch("t", max_wait_ms=60_000), 9)

        assert (answer.error_code, rig.loop.time() - begin) == (0, 0)


@on_loop
async def test_a_waiting_fetch_is_answered_when_a_batch_is_durable():
    async with Rig() as rig:
        rig.topic("t", partitions=2)
        reader = rig.peer()
        reader.send(fetch("t", 0, 0, max_wait_ms=60_000), 11)
        await settle()
        assert reader.answered == 0
        begin = rig.loop.time()

        await fill(rig, "t", "a", index=1)
        await settle()

        assert rig.loop.time() - begin < 0.01
        empty, full = partitions(reader.answer())
        assert (bases(empty.records), bases(full.records)) == ([], [0])


@on_loop
async def test_fetch_waits_until_min_bytes():
    async with Rig() as rig:
        rig.topic("t")
        reader = rig.peer()
        size = len(batch("a"))
        reader.send(fetch("t", 0, max_wait_ms=60_000, min_bytes=3 * size), 11)
        for _ in range(2):
            await fill(rig, "t", "a")
            await pass_time(0.1)
            assert reader.answered == 0

        await fill(rig, "t", "a")
        await pass_time(0.1)

        assert bases(partitions(reader.answer())[0].records) == [0, 1, 2]


@on_loop
async def test_min_bytes_are_reached_over_all_partitions_together():
    async with Rig() as rig:
        rig.topic("t", partitions=2)
        size = len(batch("a"))
        await fill(rig, "t", "a", index=0)
        await fill(rig, "t", "a", index=1)
        begin = rig.loop.time()

        await rig.peer().request(fetch("t", 0, 0, max_wait_ms=60_000, min_bytes=2 * size), 11)

        assert rig.loop.time() - begin < 0.01


@on_loop
async def test_records_that_are_not_durable_are_not_returned():
    """The high watermark follows the fsync."""
    async with Rig() as rig:
        topic = rig.topic("t")
        writer, reader = rig.peer(), rig.peer()
        writer.send(produce("t", batch("a")), 7)
        assert topic.partitions[0].log.end_offset == 1

        reader.send(fetch("t", 0), 11)

        (found,) = partitions(reader.answer())
        assert (found.high_watermark, bytes(found.records)) == (0, b"")


@on_loop
async def test_a_long_poll_does_not_keep_later_requests_from_being_taken():
    async with Rig() as rig:
        topic = rig.topic("t")
        peer = rig.peer()
        peer.send(fetch("t", 0, max_wait_ms=60_000), 11)
        peer.send(produce("t", batch("a")), 7)
        assert topic.partitions[0].log.end_offset == 1

        await settle()

        assert bases(partitions(peer.answer())[0].records) == [0]
        assert peer.answer().responses[0].partition_responses[0].base_offset == 0


@on_loop
async def test_a_fetch_behind_a_long_poll_is_looked_at_when_its_turn_comes():
    async with Rig() as rig:
        rig.topic("t", partitions=2)
        peer = rig.peer()
        peer.send(fetch("t", 0, max_wait_ms=60_000), 11)
        peer.send(fetch("t", 0, 0), 11)
        await settle()

        await fill(rig, "t", "a")
        await settle()

        assert bases(partitions(peer.answer())[0].records) == [0]
        assert bases(partitions(peer.answer())[0].records) == [0]


@on_loop
async def test_a_closed_connection_leaves_no_one_waiting():
    async with Rig() as rig:
        topic = rig.topic("t")
        peer = rig.peer()
        peer.send(fetch("t", 0, max_wait_ms=60_000), 11)
        await settle()
        assert waiting(topic) == 1

        peer.transport.close()

        assert waiting(topic) == 0


def waiting(topic) -> int:
    return len(topic.partitions[0].log._appender.watchers)


@on_loop
async def test_a_draining_listener_answers_long_polls_at_once():
    async with Rig() as rig:
        rig.topic("t")
        peer = rig.peer()
        peer.send(fetch("t", 0, max_wait_ms=60_000), 11)
        await settle()

        peer.session.drain()

        assert bytes(partitions(peer.answer())[0].records) == b""
        assert peer.is_cut


@on_loop
async def test_a_topic_that_is_deleted_meanwhile_ends_the_wait():
    async with Rig() as rig:
        topic = rig.topic("t")
        peer = rig.peer()
        peer.send(fetch("t", 0, max_wait_ms=60_000), 11)
        await settle()
        plan = rig.broker.cluster.plan_delete(topic.name)
        rig.meta.write_now(plan.ops(), plan.preconditions)

        plan.apply()
        await settle()

        assert partitions(peer.answer())[0].error_code == 3


# ---- limits


@on_loop
async def test_the_first_batch_is_returned_whole_even_above_the_limits():
    """Since v3."""
    async with Rig() as rig:
        rig.topic("t", partitions=2)
        await fill(rig, "t", "a" * 1_000, "b" * 1_000)
        await fill(rig, "t", "c" * 1_000, index=1)

        requested = fetch("t", 0, 0, max_bytes=10, partition_max_bytes=10)
        first, second = partitions(await rig.peer().request(requested, 11))

        assert bases(first.records) == [0]
        assert bases(second.records) == []
        assert (second.error_code, second.high_watermark) == (0, 1)


@on_loop
async def test_partition_limits_cut_between_batches():
    async with Rig() as rig:
        rig.topic("t")
        await fill(rig, "t", *("a" * 100 for _ in range(5)))
        size = len(batch("a" * 100))

        requested = fetch("t", 1, partition_max_bytes=3 * size - 1)
        (found,) = partitions(await rig.peer().request(requested, 11))

        assert bases(found.records) == [1, 2]


@on_loop
async def test_partitions_are_filled_in_the_order_of_the_request():
    async with Rig() as rig:
        rig.topic("t", partitions=3)
        for index in range(3):
            await fill(rig, "t", *("a" * 100 for _ in range(3)), index=index)
        size = len(batch("a" * 100))

        requested = fetch("t", 0, 0, 0, max_bytes=4 * size)
        found = partitions(await rig.peer().request(requested, 11))

        assert [bases(each.records) for each in found] == [[0, 1, 2], [0], []]


@on_loop
async def test_an_offset_inside_a_batch_gets_the_batch_that_holds_it():
    async with Rig() as rig:
        rig.topic("t")
        await rig.peer().request(produce("t", batch("a", "b", "c")), 7)

        (found,) = partitions(await rig.peer().request(fetch("t", 2), 11))

        assert bases(found.records) == [0]


@pytest.mark.parametrize("version", [11, 12, 17])
@on_loop
async def test_no_replica_is_better_for_any_rack(version):
    """KIP-392: there is one node, and no preferred read replica."""
    async with Rig() as rig:
        topic = rig.topic("t")
        await fill(rig, "t", "a")
        requested = fetch("t", 0, topic_id=topic.topic_id)
        requested.rack_id = "elsewhere"

        (found,) = partitions(await rig.peer().request(requested, version))

        assert (found.preferred_read_replica, bases(found.records)) == (-1, [0])


@on_loop
async def test_less_than_min_bytes_is_enough_when_no_more_fits():
    """A client with max_bytes below min_bytes would wait each time."""
    async with Rig() as rig:
        rig.topic("t")
        await fill(rig, "t", "a" * 100, "b" * 100)
        begin = rig.loop.time()

        requested = fetch("t", 0, min_bytes=10_000, max_bytes=150, max_wait_ms=60_000)
        (found,) = partitions(await rig.peer().request(requested, 11))

        assert bases(found.records) == [0]
        assert rig.loop.time() - begin < 0.01


# ---- errors


@pytest.mark.parametrize("offset", [-1, 3, 2**62])
@on_loop
async def test_an_offset_outside_the_log_is_out_of_range_at_once(offset):
    async with Rig() as rig:
        rig.topic("t")
        await fill(rig, "t", "a", "b")
        begin = rig.loop.time()

        requested = fetch("t", offset, max_wait_ms=60_000)
        (found,) = partitions(await rig.peer().request(requested, 11))

        assert (found.error_code, found.high_watermark) == (1, -1)
        assert rig.loop.time() - begin < 0.01


@pytest.mark.parametrize(("epoch", "code"), [(3, 0), (-1, 0), (0, 0), (2, 74), (4, 75)])
@on_loop
async def test_the_leader_epoch_that_a_client_knows_is_checked(epoch, code):
    async with Rig() as rig:
        rig.topic("t")
        for version in (9, 11, 12, 16):
            topic_id = rig.gateway.topic("t").topic_id
            requested = fetch("t", 0, current_leader_epoch=epoch, topic_id=topic_id)
            answer = await rig.peer().request(requested, version)

            (found,) = partitions(answer)
            assert found.error_code == code
            if code == 74 and version >= 12:
                assert found.current_leader.leader_epoch == 3
            if code == 74 and version >= 16:
                assert [each.host for each in answer.node_endpoints] == ["broker.example"]


@on_loop
async def test_unknown_topics_partitions_and_ids_have_errors_per_partition():
    async with Rig() as rig:
        rig.topic("t")
        await fill(rig, "t", "a")

        assert partitions(await rig.peer().request(fetch("u", 0), 11))[0].error_code == 3
        good, bad = partitions(await rig.peer().request(fetch("t", 0, 0), 11))
        assert (good.error_code, bases(good.records), bad.error_code) == (0, [0], 3)
        unknown = fetch("", 0, topic_id=bytes(range(16)))
        assert partitions(await rig.peer().request(unknown, 13))[0].error_code == 100


@pytest.mark.parametrize("version", [4, 11, 12, 15, 18])
@on_loop
async def test_fetch_as_a_follower_is_refused(version, caplog):
    """CVE-2018-1288: a forged replica id gets nothing."""
    async with Rig() as rig:
        topic = rig.topic("t")
        await fill(rig, "t", "a")
        requested = fetch("t", 0, topic_id=topic.topic_id)
        requested.replica_id = 1
        requested.replica_state = ReplicaState(replica_id=1, replica_epoch=1)

        peer = rig.peer()

        for _ in range(2):
            (found,) = partitions(await peer.request(requested, version))
            assert (found.error_code, bytes(found.records)) == (29, b"")

        assert caplog.messages.count("fetch.forged_replica") == 1


@on_loop
async def test_fetch_without_permission_is_denied():
    async with Rig() as rig:
        rig.topic("t")
        await fill(rig, "t", "a")
        rig.rules.deny(Operation.READ, ResourceKind.TOPIC, "public/default/t")

        (found,) = partitions(await rig.peer().request(fetch("t", 0), 11))

        assert (found.error_code, bytes(found.records)) == (29, b"")


@pytest.mark.parametrize(("isolation_level", "expected"), [(0, None), (1, [])])
@on_loop
async def test_read_committed_reports_that_nothing_was_aborted(isolation_level, expected):
    async with Rig() as rig:
        rig.topic("t")

        requested = fetch("t", 0, isolation_level=isolation_level)
        (found,) = partitions(await rig.peer().request(requested, 11))

        assert found.aborted_transactions == expected
