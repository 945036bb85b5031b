from __future__ import annotations

import pytest

from tests.log.rig import Rig, header_of, make_entry
from trilogue.entry.walk import walk_headers
from trilogue.log.errors import OffsetOutOfRange
from trilogue.log.jobs.flush import flush
from trilogue.log.partition_log import PartitionLog, SegmentSlice, TailSlice
from trilogue.log.segments.manifest import PartitionRange
from trilogue.log.segments.segment_info import FlushJob, FlushResult, segment_name


@pytest.fixture
def rig() -> Rig:
    rig = Rig()
    rig.open()
    return rig


@pytest.fixture
def partition(rig: Rig) -> PartitionLog:
    return rig.log.partition(1)


def bases(found: TailSlice | SegmentSlice | None) -> list[int]:
    """The base offsets of the entries in an answer."""
    assert found is not None
    data = found.run() if isinstance(found, SegmentSlice) else b"".join(found.slices)
    if isinstance(found, TailSlice):
        assert len(data) == found.size
    return [each[2] for each in walk_headers(data)]


def flush_all(rig: Rig) -> FlushResult:
    """Do what the node does with sealed files."""
    rig.log.seal()
    files = list(rig.log.sealed)
    segment_id = len(rig.segments) + 1
    job = FlushJob(
        journal_paths=tuple(str(file.path) for file in files),
        segment_path=str(rig.directory.segments / segment_name(segment_id)),
        segment_id=segment_id,
        last_sequence=files[-1].last_sequence,
        flushed_through=rig.flushed_through,
        flushed_ends={each: known.flushed_end for each, known in rig.ranges.items()},
        known=frozenset(rig.ranges),
        start_offsets={each: known.start_offset for each, known in rig.ranges.items()},
        cluster_id=bytes(16),
        node_id=1,
        node_epoch=1,
        now_ms=0,
    )
    result = flush(job, rig.fs)
    rig.flushed_through = result.last_sequence
    if result.segment is not None:
        rig.segments.append(result.segment)
    for each, end in result.ends.items():
        rig.ranges[each] = PartitionRange(rig.ranges[each].start_offset, end, end)
    rig.log.apply_flush(result)
    return result


def test_offsets_are_given_in_order_and_written_into_the_copy(
    rig: Rig, partition: PartitionLog
) -> None:
    sent = make_entry(span=3)
    before = bytes(sent)

    assert [rig.commit(1, sent), rig.commit(1), rig.commit(2)] == [0, 3, 0]

    assert bytes(sent) == before, "the producer's bytes are the caller's"
    assert bases(partition.read(0, 1000)) == [0, 3]
    stored = rig.content()[:100]
    assert int.from_bytes(stored[12:16], "big") == partition.owner_epoch
    assert stored[16:] == before[16:], "all that the checksum covers is as it was sent"


def test_replica_reads_entries_that_are_not_durable(rig: Rig, partition: PartitionLog) -> None:
    rig.append()

    assert bases(partition.read(0, 1000, is_replica=True)) == [0]
    assert bases(partition.read(0, 1000)) == []
    with pytest.raises(OffsetOutOfRange):
        partition.read(2, 1000, is_replica=True)


def test_nothing_is_read_before_it_is_durable(rig: Rig, partition: PartitionLog) -> None:
    rig.append()

    assert (partition.end_offset, partition.high_watermark) == (1, 0)
    assert partition.read(0, 1000) == TailSlice([], 0)
    assert partition.read(1, 1000) == TailSlice([], 0), "up to the end it is only early"
    rig.loop.run()
    assert bases(partition.read(0, 1000)) == [0]


def test_a_read_never_passes_the_high_watermark(rig: Rig, partition: PartitionLog) -> None:
    rig.commit()
    rig.append()

    assert bases(partition.read(0, 10_000)) == [0]


def test_a_read_begins_with_the_entry_that_contains_the_offset(
    rig: Rig, partition: PartitionLog
) -> None:
    for _ in range(5):
        rig.commit(1, make_entry(span=10))

    for offset in (20, 25, 29):
        assert bases(partition.read(offset, 200)) == [20, 30]


def test_a_read_returns_whole_entries_and_at_least_one_if_requested(
    rig: Rig, partition: PartitionLog
) -> None:
    for _ in range(3):
        rig.commit(1, make_entry(100))

    assert bases(partition.read(0, 299)) == [0, 1]
    assert bases(partition.read(0, 1)) == [0]
    assert partition.read(0, 99, at_least_one=False) == TailSlice([], 0)
    assert bases(partition.read(0, 100, at_least_one=False)) == [0]


def test_offsets_that_never_were_are_out_of_range(rig: Rig, partition: PartitionLog) -> None:
    rig.commit()
    for offset in (-1, 2, 2**62):
        with pytest.raises(OffsetOutOfRange) as error:
            partition.read(offset, 100)
        assert (error.value.offset, error.value.start_offset, error.value.end_offset) == (
            offset,
            0,
            1,
        )


def test_waiter_is_called_once_when_the_high_watermark_moves(
    rig: Rig, partition: PartitionLog
) -> None:
    called: list[int] = []
    partition.wait(lambda: called.append(partition.high_watermark))
    forget = partition.wait(lambda: called.append(-1))
    rig.log.partition(2).wait(lambda: called.append(-2))
    forget()
    forget()

    rig.append()
    rig.append()
    assert called == []
    rig.loop.run()
    rig.commit()

    assert called == [2]


def test_all_high_watermarks_of_a_window_move_before_any_waiter_is_called(rig: Rig) -> None:
    seen: list[tuple[int, int]] = []
    for each in (1, 2):
        rig.log.partition(each).wait(
            lambda: seen.append(
                (rig.log.partition(1).high_watermark, rig.log.partition(2).high_watermark)
            )
        )
    rig.append(1)
    rig.append(2)
    rig.loop.run()

    assert seen == [(1, 1), (1, 1)]


def test_a_waiter_that_raises_does_not_affect_others(
    rig: Rig, partition: PartitionLog, caplog: pytest.LogCaptureFixture
) -> None:
    called: list[int] = []

    def wrong() -> None:
        raise ValueError

    partition.wait(wrong)
    partition.wait(lambda: called.append(1))
    rig.commit()

    assert called == [1]
    assert "partition.callback_failed" in caplog.messages


def test_a_waiter_may_wait_again_from_within(rig: Rig, partition: PartitionLog) -> None:
    called: list[int] = []

    def again() -> None:
        called.append(partition.high_watermark)
        partition.wait(again)

    partition.wait(again)
    rig.commit()
    rig.commit()

    assert called == [1, 2]


def test_after_the_flush_reads_below_go_to_the_segment(rig: Rig, partition: PartitionLog) -> None:
    for _ in range(5):
        rig.commit(1, make_entry(1000, span=2))
    before = rig.content()
    result = flush_all(rig)
    rig.commit(1, make_entry(1000))

    cold = partition.read(3, 1 << 20)
    hot = partition.read(10, 1 << 20)

    assert result.ends == {1: 10}
    assert isinstance(cold, SegmentSlice)
    assert bases(cold) == [2, 4, 6, 8]
    assert cold.next_offset == 10
    assert bases(hot) == [10]
    assert bytes(partition.read(0, 1 << 20).run()) == before  # type: ignore[union-attr]
    assert partition.tail_bytes == 1000
    assert partition.size_bytes == 6000
    assert [extent.end_offset for extent in partition.extents] == [10]


def test_entries_appended_during_a_flush_stay_in_memory(rig: Rig, partition: PartitionLog) -> None:
    rig.commit(1, make_entry(1000))
    rig.log.seal()
    rig.commit(1, make_entry(1000))
    rig.append(1, make_entry(1000))

    flush_files = list(rig.log.sealed)
    rig.log.apply_flush(FlushResult(None, {1: 1}, flush_files[-1].last_sequence, 0, 0, 0))

    assert bases(partition.read(1, 5000)) == [1]
    assert partition.flushed_end == 1
    rig.loop.run()
    assert bases(partition.read(1, 5000)) == [1, 2]


def test_a_hole_before_the_tail_is_passed_over(rig: Rig, partition: PartitionLog) -> None:
    """Compaction and salvage leave holes: the next entry answers."""
    rig.commit()
    rig.log.seal()
    rig.log.apply_flush(FlushResult(None, {1: 1}, 1, 0, 0, 0))
    rig.commit()

    assert bases(partition.read(0, 1000)) == [1]


def test_a_time_is_found_in_memory_and_in_segments(rig: Rig, partition: PartitionLog) -> None:
    for time_ms in (100, 300, 200):
        rig.commit(1, make_entry(1000, time_ms=time_ms))
    flush_all(rig)
    for time_ms in (150, 400, 500):
        rig.commit(1, make_entry(1000, time_ms=time_ms))
    rig.append(1, make_entry(1000, time_ms=900))

    found = {
        time_ms: bases(partition.offset_for_time(time_ms))
        for time_ms in (0, 100, 101, 300, 301, 450)
    }

    assert found == {0: [0], 100: [0], 101: [1], 300: [1], 301: [4], 450: [5]}
    assert partition.offset_for_time(501) is None, "900 is not durable yet"
    assert partition.max_timestamp == 500
    assert bases(partition.offset_for_time(200, from_offset=2)) == [2]
    assert bases(partition.offset_for_time(200, from_offset=3)) == [4]
    empty = partition.offset_for_time(250, from_offset=2)
    assert isinstance(empty, SegmentSlice)
    assert bytes(empty.run()) == b"", "the segment has it, but not from there on"
    assert empty.next_offset == 3


def test_an_empty_partition_has_no_time(partition: PartitionLog) -> None:
    assert partition.max_timestamp == -1
    assert partition.offset_for_time(0) is None


def test_retention_moves_the_start_never_beyond_durable_entries(
    rig: Rig, partition: PartitionLog
) -> None:
    for _ in range(4):
        rig.commit(1, make_entry(1000))
    flush_all(rig)
    rig.commit(1, make_entry(1000))
    rig.append(1, make_entry(1000))

    partition.retain_from(2)
    assert partition.start_offset == 2
    assert bases(partition.read(2, 5000)) == [2, 3]
    with pytest.raises(OffsetOutOfRange):
        partition.read(1, 5000)
    partition.retain_from(1)
    assert partition.start_offset == 2, "it never moves back"

    partition.retain_from(4)
    assert partition.extents == []
    assert bases(partition.read(4, 5000)) == [4]

    partition.retain_from(99)
    assert partition.start_offset == 5
    assert partition.tail_bytes == 1000
    rig.loop.run()
    assert bases(partition.read(5, 5000)) == [5]


def test_views_that_a_reader_holds_stay_true_after_the_flush(
    rig: Rig, partition: PartitionLog
) -> None:
    rig.commit(1, make_entry(9000, fill=1))
    found = partition.read(0, 10_000)
    assert isinstance(found, TailSlice)
    before = b"".join(found.slices)

    flush_all(rig)
    for fill in range(20):
        rig.commit(1, make_entry(9000, fill=fill))

    assert b"".join(found.slices) == before


def test_the_header_may_be_of_another_buffer_than_the_entry(rig: Rig) -> None:
    """Stamping makes a copy: what counts is the entry given and the header given."""
    entry = make_entry(span=4, time_ms=77)

    rig.log.partition(1).append(memoryview(bytearray(entry)), header_of(entry))
    rig.loop.run()

    assert rig.log.partition(1).high_watermark == 4
    assert rig.log.partition(1).max_timestamp == 77
