"""Ends of owner epochs, and offsets by the time at which entries became durable."""

from __future__ import annotations

import pytest

from tests.log.ledger import data, flush_all, retain
from tests.log.rig import Rig
from trilogue.log.partition_log import PartitionLog
from trilogue.log.partition_lookups import EpochEnd, SegmentLookup, end_of_epoch
from trilogue.log.segments.segment import BLOCK_TARGET, EpochStart
from trilogue.log.tail.append_times import STEP

SECOND = 1000


@pytest.fixture
def rig() -> Rig:
    made = Rig(partitions=2)
    made.open()
    return made


def write(rig: Rig, count: int, *, size: int = 10, later_ms: int = 0) -> None:
    """Entries of one message each; before each the clock moves."""
    for _ in range(count):
        rig.loop.time_ms += later_ms
        rig.commit(1, memoryview(data(None, size=size)))


def epoch_end(partition: PartitionLog, epoch: int) -> tuple[int, int]:
    found = partition.epoch_end(epoch)
    return found.run() if isinstance(found, SegmentLookup) else found


def by_append_time(
    partition: PartitionLog, time_ms: int, from_offset: int | None = None
) -> int | None:
    found = partition.offset_for_append_time(time_ms, from_offset)
    return found.run() if isinstance(found, SegmentLookup) else found


# ── owner epochs ──────────────────────────────────────────────────────────────────────────────


def restarts(rig: Rig, *, flushed: bool) -> PartitionLog:
    """Three lives: 0-2 by epoch 1, nothing by 2, 3-4 by 3, 5 by 4."""
    write(rig, 3)
    for count in (0, 2, 1):
        if flushed and count:
            flush_all(rig)
        rig.restart()
        write(rig, count)
    return rig.log.partition(1)


@pytest.mark.parametrize("flushed", [False, True])
def test_an_epoch_ends_where_the_next_one_with_entries_begins(rig: Rig, flushed: bool):
    partition = restarts(rig, flushed=flushed)

    found = {epoch: epoch_end(partition, epoch) for epoch in range(-1, 6)}

    assert found == {
        -1: (-1, -1),
        0: (0, 0),  # older than all known epochs: Kafka returns an epoch without entries
        1: (1, 3),
        2: (1, 3),  # gave out no offset: the largest before it
        3: (3, 5),
        4: (4, 6),  # the owner's
        5: (-1, -1),  # an epoch without an owner so far
    }


def test_a_flush_forgets_no_epoch(rig: Rig):
    partition = restarts(rig, flushed=False)
    before = [epoch_end(partition, epoch) for epoch in range(6)]
    result = flush_all(rig)

    assert result.segment is not None
    assert isinstance(partition.epoch_end(1), SegmentLookup)
    assert [epoch_end(partition, epoch) for epoch in range(6)] == before
    rig.restart()
    partition = rig.log.partition(1)
    assert [epoch_end(partition, epoch) for epoch in range(4)] == before[:4]
    assert epoch_end(partition, 5) == (5, 6)


@pytest.mark.parametrize("flushed", [False, True])
def test_an_epoch_that_lies_below_the_start_is_forgotten(rig: Rig, flushed: bool):
    partition = restarts(rig, flushed=flushed)
    if flushed:
        flush_all(rig)

    retain(rig, 1, 4)

    assert [epoch_end(partition, epoch) for epoch in (1, 2, 3)] == [(1, 4), (2, 4), (3, 5)]


def test_epoch_of_the_owner_ends_at_the_durable_end(rig: Rig):
    write(rig, 2)
    rig.append(1)

    assert rig.log.partition(1).epoch_end(1) == EpochEnd(1, 2)


def test_epochs_below_the_start_offset_are_ignored():
    starts = [EpochStart(2, 0), EpochStart(4, 10), EpochStart(6, 20)]

    assert end_of_epoch(3, starts, 0) == (2, 10)
    assert end_of_epoch(3, starts, 10) == (3, 10)
    assert end_of_epoch(3, starts, 12) == (3, 12)
    assert end_of_epoch(5, starts, 12) == (4, 20)
    assert end_of_epoch(1, starts, 5, below=1) == (1, 5)
    assert end_of_epoch(7, starts, 0) == 6


# ── append times ──────────────────────────────────────────────────────────────────────────────


def test_the_tail_is_searched_by_steps(rig: Rig):
    write(rig, 100, size=1000, later_ms=SECOND)
    partition = rig.log.partition(1)
    last_ms = rig.loop.time_ms

    found = {late: by_append_time(partition, last_ms - late * SECOND) for late in (99, 50, 20, 0)}

    for late, offset in found.items():
        assert offset is not None
        assert 99 - late - STEP // 1000 <= offset <= 99 - late
    assert by_append_time(partition, last_ms + 1) is None
    assert by_append_time(partition, last_ms - 50 * SECOND, 80) == 80


def test_segments_are_searched_by_blocks(rig: Rig):
    per_block = BLOCK_TARGET // 1100
    write(rig, 5 * per_block, size=1000, later_ms=SECOND)
    last_ms = rig.loop.time_ms
    while rig.log.sealed or rig.log.tail_bytes:
        flush_all(rig)
    partition = rig.log.partition(1)

    for late in (0, per_block, 3 * per_block):
        wanted = 5 * per_block - 1 - late
        offset = by_append_time(partition, last_ms - late * SECOND)
        assert offset is not None
        assert wanted - BLOCK_TARGET // 1000 <= offset <= wanted
    assert by_append_time(partition, 0) == 0
    assert by_append_time(partition, 0, 7) == 7
    assert by_append_time(partition, last_ms + 1) is None


def test_a_search_goes_from_segments_over_to_the_tail(rig: Rig):
    write(rig, 3, later_ms=SECOND)
    flush_all(rig)
    write(rig, 1, later_ms=60 * SECOND)
    partition = rig.log.partition(1)

    assert by_append_time(partition, rig.loop.time_ms) == 3
    assert by_append_time(partition, rig.loop.time_ms - 60 * SECOND) == 0
    rig.restart()
    assert by_append_time(rig.log.partition(1), 1_700_000_063_000) == 3


@pytest.mark.parametrize("flushed", [False, True])
def test_where_the_clock_jumped_back_the_first_of_that_time_counts(rig: Rig, flushed: bool):
    write(rig, 2, later_ms=SECOND)
    far_ms = rig.loop.time_ms + 3600 * SECOND
    rig.loop.time_ms = far_ms
    write(rig, 1)  # 2: an hour ahead
    rig.loop.time_ms = far_ms - 3590 * SECOND
    write(rig, 2, size=2 * STEP, later_ms=SECOND)  # 3, 4
    now_ms = rig.loop.time_ms
    if flushed:
        flush_all(rig)
    partition = rig.log.partition(1)

    found = by_append_time(partition, now_ms)
    assert found is not None
    assert found <= 2
    assert by_append_time(partition, now_ms, 3) in {3, 4}
    assert by_append_time(partition, far_ms + 1) is None


def test_search_finds_only_durable_entries(rig: Rig):
    rig.append(1)

    assert by_append_time(rig.log.partition(1), 0) is None


def test_retention_bounds_the_search(rig: Rig):
    write(rig, 10, later_ms=SECOND)
    retain(rig, 1, 6)

    assert by_append_time(rig.log.partition(1), 0) == 6
