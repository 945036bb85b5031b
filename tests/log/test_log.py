from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.fakes import FakeLoop
from tests.log.rig import SMALL, Rig, make_entry
from tests.log.test_partition_log import flush_all
from trilogue.log import log as log_module
from trilogue.log.errors import AlreadyLocked, StorageFailed, TailFull
from trilogue.log.partition_log import PartitionLog, SegmentSlice, TailSlice
from trilogue.log.segments.manifest import PartitionRange
from trilogue.log.segments.segment_info import FlushResult


@pytest.fixture
def rig() -> Rig:
    rig = Rig()
    rig.open()
    return rig


def test_a_second_log_on_the_same_data_is_refused(rig: Rig) -> None:
    loop = rig.loop
    with pytest.raises(AlreadyLocked):
        rig.open()
    rig.loop = loop


def test_partitions_come_and_go(rig: Rig) -> None:
    made = rig.log.create_partition(9, 4, start_offset=100)
    assert rig.log.partition(9) is made
    with pytest.raises(ValueError, match="exists"):
        rig.log.create_partition(9, 4)
    assert rig.commit(9) == 100

    called: list[int] = []
    made.wait(lambda: called.append(1))
    rig.append(9)
    rig.log.drop_partition(9)
    rig.log.drop_partition(9)
    assert called == [1], "who waits learns that it is gone"
    with pytest.raises(KeyError):
        rig.log.partition(9)
    rig.loop.run()
    assert rig.commit(1) == 0


def test_a_flush_frees_memory_and_files(rig: Rig) -> None:
    rig.loop.work()
    for _ in range(30):
        rig.commit(1, make_entry(5000))
        rig.commit(2, make_entry(100))
    before = rig.log.tail_bytes
    contents = {
        each: bytes(b"".join(found.slices))
        for each in (1, 2)
        if isinstance(found := rig.log.partition(each).read(0, 1 << 30), TailSlice)
    }

    result = flush_all(rig)
    rig.loop.work()

    assert result.segment is not None
    assert rig.log.tail_bytes == 0 < before
    assert rig.log.tail_entries == 0
    assert not rig.log.sealed
    assert len(rig.journal_files()) <= 4
    assert rig.log.flushed_through == result.last_sequence
    for each, content in contents.items():
        cold = rig.log.partition(each).read(0, 1 << 30)
        assert isinstance(cold, SegmentSlice)
        assert bytes(cold.run()) == content
    rig.restart()
    for each, content in contents.items():
        cold = rig.log.partition(each).read(0, 1 << 30)
        assert isinstance(cold, SegmentSlice)
        assert bytes(cold.run()) == content


def test_recycled_files_serve_again(rig: Rig) -> None:
    for _ in range(6):
        for _ in range(20):
            rig.commit(1, make_entry(5000))
        flush_all(rig)
        rig.loop.work()

    assert len(rig.journal_files()) <= 5
    assert rig.log.partition(1).high_watermark == 120
    rig.restart()
    assert rig.log.partition(1).high_watermark == 120


def test_tails_of_many_partitions_go_a_thousand_in_a_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = Rig(partitions=5)
    rig.open()
    monkeypatch.setattr(log_module, "LET_GO_IN_A_TURN", 2)
    for each in (1, 2, 1):
        rig.commit(each)
    for each in range(3, 6):
        rig.commit(each)
    contents = {each: rig.content(each) for each in range(1, 6)}

    flush_all(rig)

    assert [rig.log.partition(each).flushed_end for each in range(1, 6)] == [2, 1, 0, 0, 0]
    for each in range(1, 6):
        found = rig.log.partition(each).read(0, 1 << 30)
        data = found.run() if isinstance(found, SegmentSlice) else b"".join(found.slices)
        assert bytes(data) == contents[each]
    rig.log.drop_partition(4)
    rig.loop.work()
    assert [rig.log.partition(each).flushed_end for each in (1, 2, 3, 5)] == [2, 1, 1, 1]
    assert rig.log.tail_bytes == 0


def test_a_tail_that_is_large_takes_a_turn_of_its_own_to_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A few partitions with much give back as much memory as very many with little."""
    rig = Rig(partitions=3)
    rig.open()
    monkeypatch.setattr(log_module, "LET_GO_IN_A_TURN", 4)
    monkeypatch.setattr(log_module, "LET_GO_BYTES", 1_000)
    for each in (1, 2, 3):
        rig.commit(each, make_entry(5_000))

    flush_all(rig)

    assert [rig.log.partition(each).flushed_end for each in (1, 2, 3)] == [1, 0, 0]
    rig.loop.work()
    assert [rig.log.partition(each).flushed_end for each in (1, 2, 3)] == [1, 1, 1]
    assert rig.log.tail_bytes == 0


def test_tails_go_for_a_millisecond_in_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """However few they are: those of partitions whose memory is cold took 15 ms together."""
    rig = Rig(partitions=5)
    rig.open()
    for each in range(1, 6):
        rig.commit(each)
    flushed = PartitionLog.flushed

    def take_time(partition: PartitionLog, end_offset: int) -> None:
        flushed(partition, end_offset)
        rig.loop.seconds += 0.6 * log_module.LET_GO_S

    monkeypatch.setattr(PartitionLog, "flushed", take_time)
    flush_all(rig)

    assert [rig.log.partition(each).flushed_end for each in range(1, 6)] == [1, 1, 0, 0, 0]
    rig.loop.work()
    assert [rig.log.partition(each).flushed_end for each in range(1, 6)] == [1] * 5
    assert rig.log.tail_bytes == 0


def test_flushed_bytes_still_in_memory_count_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Retention by size would take a flush's worth too much."""
    rig = Rig(partitions=2)
    rig.open()
    monkeypatch.setattr(log_module, "LET_GO_IN_A_TURN", 1)
    rig.commit(1)
    rig.commit(2)
    waiting = rig.log.partition(2)
    size = waiting.size_bytes

    flush_all(rig)

    assert waiting.flushed_end == 0
    assert (waiting.extents, waiting.size_bytes, waiting.tail_bytes) == ([], size, size)
    rig.loop.work()
    (extent,) = waiting.extents
    assert (extent.size, waiting.size_bytes, waiting.tail_bytes) == (size, size, 0)


def test_a_flush_of_a_dropped_partition_has_no_effect(rig: Rig) -> None:
    rig.commit(1)
    rig.commit(2)
    rig.log.drop_partition(1)

    result = flush_all(rig)

    assert set(result.ends) == {1, 2}
    assert rig.log.dead_segments() == []
    assert [extent.partition_id for extent in rig.log.partition(2).extents] == [2]


def test_dead_segments_are_named_and_once_forgotten_gone(rig: Rig) -> None:
    rig.commit(1)
    flush_all(rig)
    rig.commit(1)
    rig.commit(2)
    flush_all(rig)

    assert rig.log.apply_retention({1: 1, 99: 5}) == [1]
    assert rig.log.apply_retention({1: 2}) == [1]
    rig.log.drop_partition(2)
    assert rig.log.dead_segments() == [1, 2]

    forgotten = rig.log.forget_segment(1)

    assert forgotten is not None
    assert forgotten.segment_id == 1
    assert rig.log.forget_segment(1) is None
    assert rig.log.dead_segments() == [2]


def test_retention_survives_a_restart_in_meta(rig: Rig) -> None:
    for _ in range(3):
        rig.commit(1)
    flush_all(rig)
    rig.commit(1)
    rig.ranges[1] = PartitionRange(2, 3, 3)

    rig.restart()

    assert rig.log.partition(1).start_offset == 2
    assert rig.log.partition(1).high_watermark == 4


def test_pressure_rises_with_the_tail_and_relief_comes_with_the_flush() -> None:
    rig = Rig(limits=replace(SMALL, tail_bytes=200_000))
    rig.open()
    relieved: list[int] = []
    rig.log.on_relief(lambda: relieved.append(0))
    rig.loop.run()
    assert relieved == [0], "there was no pressure"
    while not rig.log.under_pressure:
        rig.commit(1, make_entry(9000))
    assert rig.log.tail_limit * 0.8 <= rig.log.tail_bytes < rig.log.tail_limit
    rig.log.on_relief(lambda: relieved.append(1))
    rig.loop.run()
    assert relieved == [0]

    flush_all(rig)
    rig.loop.run()

    assert relieved == [0, 1]


def test_bytes_held_by_a_reader_count_until_released() -> None:
    rig = Rig(limits=replace(SMALL, tail_bytes=200_000))
    rig.open()
    while rig.log.tail_bytes < 100_000:
        rig.commit(1, make_entry(9000))
    found = rig.log.partition(1).read(0, 1 << 30)

    flush_all(rig)
    held = rig.log.tail_bytes
    del found

    assert held >= 90_000
    assert rig.log.tail_bytes == 0


def test_one_callers_mistake_keeps_no_other_from_relief(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    relieved: list[int] = []

    def wrong() -> None:
        raise ValueError

    rig.log.on_relief(wrong)
    rig.log.on_relief(lambda: relieved.append(1))
    rig.loop.run()

    assert relieved == [1]
    assert "log.relief_failed" in caplog.messages


def test_relief_that_was_short_is_none() -> None:
    rig = Rig(limits=replace(SMALL, tail_bytes=200_000))
    rig.open()
    while not rig.log.under_pressure:
        rig.commit(1, make_entry(9000))
    relieved: list[int] = []
    rig.log.on_relief(lambda: relieved.append(1))
    rig.log.seal()
    end = rig.log.partition(1).high_watermark
    last = rig.log.sealed[-1].last_sequence
    rig.log.apply_flush(FlushResult(None, {1: end}, last, 0, 0, 0))
    while not rig.log.under_pressure:
        rig.append(1, make_entry(9000))

    rig.loop.turn()

    assert relieved == []


def test_many_entries_are_pressure_too() -> None:
    rig = Rig(limits=replace(SMALL, tail_entries=10))
    rig.open()
    for _ in range(7):
        rig.commit()
    assert not rig.log.under_pressure
    rig.commit()
    assert rig.log.under_pressure
    flush_all(rig)
    assert not rig.log.under_pressure


def test_beyond_the_tails_limit_appending_is_refused_and_goes_on_after_the_flush() -> None:
    rig = Rig(limits=replace(SMALL, tail_bytes=100_000))
    rig.open()
    while rig.log.tail_bytes < 100_000:
        rig.commit(1, make_entry(40_000))
    with pytest.raises(TailFull):
        rig.append(1, make_entry(40_000))
    rig.log.journal.add_fact(1, b"facts may use the rest")
    end = rig.log.partition(1).end_offset

    flush_all(rig)

    assert rig.commit(1, make_entry(40_000)) == end
    rig.restart()
    assert rig.log.partition(1).high_watermark == end + 1


def test_a_tail_beyond_its_limit_is_recovered_all_the_same() -> None:
    rig = Rig(limits=replace(SMALL, tail_bytes=500_000))
    rig.open()
    for _ in range(40):
        rig.commit(1, make_entry(9000))
    rig.limits = replace(rig.limits, tail_bytes=100_000)

    rig.restart()

    assert rig.log.partition(1).high_watermark == 40
    assert rig.log.under_pressure


def test_unused_memory_goes_back_with_time(rig: Rig) -> None:
    for _ in range(5):
        rig.commit(1, make_entry(90_000))
    flush_all(rig)
    assert rig.log._budget.pooled > 0

    rig.log.seal(rig.loop.now_ms())
    rig.log.seal(rig.loop.now_ms())

    assert rig.log._budget.pooled == 0


def test_a_failed_journal_is_reported_once(rig: Rig) -> None:
    rig.append()
    rig.fs.fail("sync")
    rig.loop.run()
    rig.log.journal.on_commit(lambda _: None)
    rig.loop.run()

    assert [type(each) for each in rig.failures] == [StorageFailed]


def test_the_reserve_is_made_in_the_background_where_there_is_room() -> None:
    rig = Rig(limits=replace(SMALL, reserve_bytes=1 << 20))
    rig.open()
    assert not rig.fs.exists(rig.directory.reserve)
    rig.loop.work()
    assert rig.fs.exists(rig.directory.reserve)

    rig = Rig(limits=replace(SMALL, reserve_bytes=1 << 20))
    rig.fs.free = 2 << 20
    rig.open()
    rig.loop.work()
    assert not rig.fs.exists(rig.directory.reserve)


def test_a_closed_log_refuses_and_can_be_opened_again(rig: Rig) -> None:
    rig.commit()
    rig.shut()
    with pytest.raises(StorageFailed, match="closed"):
        rig.append()
    assert isinstance(rig.loop, FakeLoop)

    rig.open()

    assert len(rig.content()) == 100
    assert rig.commit() == 1
