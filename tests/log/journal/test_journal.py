"""Windows, files and the order of events; what survives is recovery's and the model's affair."""

from __future__ import annotations

import errno

import pytest
from msgspec.structs import replace

from tests.log.rig import SMALL, Rig, header_of, make_entry
from trilogue.log.errors import DiskFull, FrameTooLarge, StorageFailed, TailFull
from trilogue.log.files import BLOCK
from trilogue.log.journal.frame import CLEAN, MAX_ENTRY, Frame, decode_file_header, iter_frames

FACT = 7


@pytest.fixture
def rig() -> Rig:
    rig = Rig()
    rig.open()
    return rig


def frames(rig: Rig) -> list[Frame]:
    found = []
    for path in rig.journal_files():
        data = memoryview(rig.fs.read(path))
        header = decode_file_header(data) if path.suffix == ".journal" else None
        if header is not None:
            found += iter_frames(data, header)
    return sorted(found, key=lambda frame: frame.sequence)


def tight(**changes: int) -> Rig:
    rig = Rig(limits=replace(SMALL, journal=replace(SMALL.journal, **changes)))
    rig.open()
    return rig


# -- windows -------------------------------------------------------------------------------------


def test_entries_of_one_loop_iteration_share_a_frame(rig: Rig) -> None:
    for partition_id in (1, 2, 3, 1):
        rig.append(partition_id)
    rig.log.journal.add_fact(FACT, b"fact")
    rig.loop.run()

    (frame,) = frames(rig)
    assert (frame.entry_count, frame.fact_count) == (4, 1)
    assert rig.log.journal.counts.commits == 1


def test_the_next_window_fills_while_one_commits(rig: Rig) -> None:
    outcomes: list[int] = []
    rig.append()
    rig.log.journal.on_commit(lambda _: outcomes.append(1))
    rig.loop.turn()  # the commit is under way
    for _ in range(3):
        rig.append()
    rig.log.journal.on_commit(lambda _: outcomes.append(2))

    rig.loop.turn()
    assert outcomes == [1]
    rig.loop.run()

    assert outcomes == [1, 2]
    assert [frame.entry_count for frame in frames(rig)] == [1, 3]
    assert [(frame.sequence, frame.durable_through) for frame in frames(rig)] == [(1, 0), (2, 1)]


def test_a_full_window_gives_way_to_another(rig: Rig) -> None:
    for _ in range(10):
        rig.append(1, make_entry(9000))
    rig.loop.run()

    assert [frame.entry_count for frame in frames(rig)] == [3, 3, 3, 1]


def test_facts_count_towards_the_windows_room(rig: Rig) -> None:
    for _ in range(5):
        rig.log.journal.add_fact(FACT, bytes(10_000))
    rig.append(1, make_entry(10_000))
    rig.loop.run()

    assert [(frame.entry_count, frame.fact_count) for frame in frames(rig)] == [(0, 3), (1, 2)]


def test_an_entry_larger_than_a_window_is_one_of_its_own(rig: Rig) -> None:
    rig.append(1)
    rig.append(1, make_entry(200_000))
    rig.append(1, make_entry(5000))
    rig.loop.run()

    assert [frame.entry_count for frame in frames(rig)] == [1, 1, 1]
    assert len(rig.content()) == 205_100


def test_no_entry_or_fact_is_larger_than_a_frame_takes(rig: Rig) -> None:
    header = header_of(make_entry())
    with pytest.raises(FrameTooLarge):
        rig.log.partition(1).append(memoryview(bytes(MAX_ENTRY + 1)), header)
    with pytest.raises(FrameTooLarge):
        rig.log.journal.add_fact(FACT, bytes(2 << 20))
    assert rig.commit() == 0


def test_padding_is_zeros_and_nothing_of_the_window_before(rig: Rig) -> None:
    rig.commit(1, make_entry(8000, fill=0xFF))
    rig.commit(1, make_entry(100, fill=0xFF))
    rig.commit(1, make_entry(100, fill=0xFF))

    for frame in frames(rig):
        data = rig.fs.read(rig.journal_files()[0])
        assert data[frame.position + frame.length : frame.end].strip(b"\0") == b""


def test_callbacks_never_run_before_on_commit_returns(rig: Rig) -> None:
    """A callback that runs before `on_commit` returns would surprise the caller."""
    outcomes: list[object] = []

    rig.log.journal.on_commit(outcomes.append)
    assert outcomes == []
    rig.loop.run()
    assert outcomes == [None]


def test_callbacks_run_when_the_newest_addition_is_durable(rig: Rig) -> None:
    """Wherever that is: still filling, full and waiting, or on its way to the disk."""
    outcomes: list[tuple[str, int]] = []
    partition = rig.log.partition(1)

    def record_commit(name: str) -> None:
        rig.log.journal.on_commit(lambda _: outcomes.append((name, partition.high_watermark)))

    for _ in range(4):
        rig.append(1, make_entry(9000))
    record_commit("filling")
    rig.log.journal.add_fact(FACT, bytes(30_000))  # the window before is full now
    for _ in range(3):
        rig.append(1, make_entry(9000))
    rig.loop.run()
    rig.append()
    rig.loop.turn()
    record_commit("on its way")
    rig.loop.run()
    record_commit("durable long since")
    rig.loop.run()

    assert outcomes == [("filling", 4), ("on its way", 8), ("durable long since", 8)]


def test_one_callers_mistake_does_not_keep_the_others_waiting(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    outcomes: list[object] = []

    def wrong(_: object) -> None:
        raise ValueError

    rig.append()
    rig.log.journal.on_commit(wrong)
    rig.log.journal.on_commit(outcomes.append)
    rig.loop.run()

    assert outcomes == [None]
    assert "journal.callback_failed" in caplog.messages
    assert rig.commit() == 1


def test_too_many_full_windows_refuse_more_until_the_disk_catches_up(rig: Rig) -> None:
    appended = 0
    while rig.log.journal.refusal is None:
        rig.append(1, make_entry(9000))
        appended += 1
    with pytest.raises(TailFull):
        rig.append(1, make_entry(9000))
    rig.log.journal.add_fact(FACT, b"facts may still pass")

    rig.loop.run()

    in_flight, queued, filling = 3, 3 * rig.log.journal.limits.queued_windows, 1
    assert appended == in_flight + queued + filling
    assert rig.log.partition(1).high_watermark == appended
    assert rig.commit() == appended


# -- files ---------------------------------------------------------------------------------------


def test_a_file_is_sealed_when_it_is_full_and_a_frame_may_stretch_beyond() -> None:
    rig = tight(first_file_bytes=64 << 10)
    for _ in range(3):
        rig.commit(1, make_entry(30_000))
    (sealed,) = rig.sealed

    assert sealed.size > rig.limits.journal.file_bytes
    assert (sealed.first_sequence, sealed.last_sequence, sealed.entry_count) == (1, 2, 2)
    assert list(rig.log.sealed) == rig.sealed


def test_a_file_is_sealed_after_so_many_entries() -> None:
    rig = tight(file_entries=5)
    for _ in range(11):
        rig.commit()

    assert [file.entry_count for file in rig.sealed] == [5, 5]
    assert rig.log.journal.unsealed_entries == 1
    assert rig.log.tail_entries == 11


def test_a_file_is_sealed_when_it_has_had_data_for_too_long(rig: Rig) -> None:
    rig.log.seal(rig.loop.now_ms())
    rig.commit()
    since = rig.log.journal.unsealed_since_ms
    assert since is not None

    rig.log.seal(since + rig.limits.journal.file_age_ms - 1)
    assert rig.sealed == []
    rig.log.seal(since + rig.limits.journal.file_age_ms)
    assert [file.last_sequence for file in rig.sealed] == [1]
    rig.log.seal()
    assert len(rig.sealed) == 1, "an empty file is not sealed"
    assert rig.log.journal.unsealed_since_ms is None


def test_a_seal_requested_during_a_commit_happens_after_it(rig: Rig) -> None:
    rig.append()
    rig.loop.turn()
    rig.log.seal()
    assert rig.sealed == []
    rig.append()

    rig.loop.run()

    assert [file.last_sequence for file in rig.sealed] == [1]
    assert [frame.sequence for frame in frames(rig)] == [1, 2]


def test_the_seal_is_seen_after_its_frames_effects_and_before_any_later(rig: Rig) -> None:
    events: list[str] = []
    rig.log.on_sealed = lambda file: events.append(
        f"sealed {file.last_sequence} at {rig.log.partition(1).high_watermark}"
    )
    rig.append()
    rig.log.journal.on_commit(lambda _: events.append("durable 1"))
    rig.loop.turn()
    rig.log.seal()
    rig.append()
    rig.log.journal.on_commit(lambda _: events.append("durable 2"))
    rig.loop.run()

    assert events == ["durable 1", "sealed 1 at 1", "durable 2"]


def test_the_second_file_is_made_after_the_first_frame(rig: Rig) -> None:
    rig.loop.work()
    assert len(rig.journal_files()) == 1

    rig.commit()
    rig.loop.work()

    assert len(rig.journal_files()) == 2


def test_a_spare_is_prepared_in_the_background_and_used_next(rig: Rig) -> None:
    rig.commit()
    rig.loop.work()
    rig.log.seal()
    before = rig.fs.counts["sync_directory"]

    rig.commit()

    assert rig.fs.counts["sync_directory"] == before, "nothing was made on the loop"
    assert rig.log.journal.counts.spares_late == 0
    spare = rig.fs.read(rig.journal_files()[1])
    assert len(spare) == rig.limits.journal.file_bytes


def test_the_journal_goes_on_when_the_spare_is_late_and_files_keep_their_order(rig: Rig) -> None:
    for _ in range(3):
        rig.commit()
        rig.log.seal()
    rig.commit()
    assert rig.log.journal.counts.spares_late == 3

    rig.loop.work()  # the spare that was late had a smaller number than what is written now
    rig.commit()
    rig.log.seal()
    rig.commit()

    numbers = [file.number for file in rig.sealed]
    assert numbers == sorted(numbers)
    content = rig.content()
    rig.restart()
    assert rig.content() == content
    assert [frame.sequence for frame in frames(rig)] == list(range(1, 7))


def test_the_small_first_file_is_left_as_soon_as_a_spare_is_ready() -> None:
    rig = tight(first_file_bytes=16 << 10)
    for _ in range(4):
        rig.commit()
    assert rig.sealed == [], "nothing better is there"

    rig.loop.work()
    rig.commit()

    assert len(rig.sealed) == 1


def test_a_spare_that_cannot_be_made_is_tried_again(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    rig.fs.fail("create", errno.ENOSPC)
    rig.commit()
    rig.loop.work()
    assert "journal.spare_failed" in caplog.messages

    rig.log.seal()
    rig.commit()
    rig.loop.work()
    rig.log.seal()
    rig.commit()

    assert rig.log.journal.counts.spares_late == 1


# -- trouble -------------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", ["write", "sync"])
def test_after_an_error_nothing_is_acknowledged_and_nothing_taken(operation: str, rig: Rig) -> None:
    outcomes: list[object] = []
    rig.commit()
    rig.append()
    rig.log.journal.on_commit(outcomes.append)
    rig.loop.turn()
    rig.append()  # fills while the other one fails
    rig.log.journal.on_commit(outcomes.append)
    rig.fs.fail(operation)
    rig.loop.ready.insert(0, lambda: None)
    rig.loop.run()
    writes = rig.fs.counts["write"]

    rig.log.journal.on_commit(outcomes.append)
    rig.loop.run()

    assert outcomes[0] is None, "that one had been written"
    assert [type(each) for each in outcomes[1:]] == [StorageFailed, StorageFailed]
    assert [type(each) for each in rig.failures] == [StorageFailed]
    assert rig.log.partition(1).high_watermark == 2
    for take in (rig.append, lambda: rig.log.journal.add_fact(FACT, b"")):
        with pytest.raises(StorageFailed):
            take()
    rig.log.close()
    assert rig.fs.counts["write"] == writes, "written again after an error"


def test_a_file_that_cannot_be_opened_is_an_error_too(rig: Rig) -> None:
    outcomes: list[object] = []
    rig.commit()
    rig.log.seal()
    rig.fs.fail("create", errno.EIO)

    rig.append()
    rig.log.journal.on_commit(outcomes.append)
    rig.loop.run()

    assert [type(each) for each in outcomes] == [StorageFailed]
    assert len(rig.failures) == 1


def test_a_full_disk_is_seen_before_the_write_and_passes_by_itself() -> None:
    journal = replace(SMALL.journal, min_free_bytes=1 << 20)
    rig = Rig(limits=replace(SMALL, tail_bytes=16 << 20, journal=journal))
    rig.open()
    rig.commit()
    rig.fs.free = 1000
    while rig.log.journal.refusal is None:
        rig.commit(1, make_entry(15 * BLOCK))
    assert rig.log.journal.counts.bytes_written < 5 << 20
    with pytest.raises(DiskFull, match="1000 bytes"):
        rig.append()
    rig.log.journal.add_fact(FACT, b"what frees room may still pass")
    rig.loop.run()
    assert rig.content(1, 0)

    rig.fs.free = 1 << 30
    with pytest.raises(DiskFull):
        rig.append()  # it does not look every time
    rig.loop.pass_time(1)

    assert rig.commit() > 0


def test_a_disk_that_is_full_at_the_start_can_be_read() -> None:
    rig = Rig(limits=replace(SMALL, journal=replace(SMALL.journal, min_free_bytes=1 << 20)))
    rig.open()
    rig.commit()
    rig.fs.free = 0
    rig.restart()

    assert rig.content()
    with pytest.raises(DiskFull):
        rig.append()
    rig.loop.work()
    assert len(rig.journal_files()) == 2, "no spare is made on a full disk"


# -- end -----------------------------------------------------------------------------------------


def test_close_writes_pending_entries_and_a_clean_frame(rig: Rig) -> None:
    outcomes: list[object] = []
    rig.append()
    rig.loop.turn()  # under way
    rig.append()
    rig.log.journal.on_commit(outcomes.append)

    rig.shut()

    assert outcomes == [None]
    assert [frame.entry_count for frame in frames(rig)] == [1, 1, 0]
    last = frames(rig)[-1]
    assert last.flags == CLEAN
    assert last.durable_through == 2
    with pytest.raises(StorageFailed):
        rig.append()
    rig.log.close()


def test_close_without_work_writes_nothing(rig: Rig) -> None:
    rig.shut()

    assert frames(rig) == []


def test_close_with_full_windows_waiting_writes_them_all(rig: Rig) -> None:
    for _ in range(9):
        rig.append(1, make_entry(9000))
    rig.shut()

    rig.open()
    assert len(rig.content()) == 9 * 9000


def test_an_error_while_closing_is_reported_as_any_other(rig: Rig) -> None:
    outcomes: list[object] = []
    rig.append()
    rig.log.journal.on_commit(outcomes.append)
    rig.fs.fail("sync")

    rig.shut()

    assert [type(each) for each in outcomes] == [StorageFailed]
    assert len(rig.failures) == 1


def test_no_file_is_made_in_the_background_after_close(rig: Rig) -> None:
    jobs, rig.loop.jobs = rig.loop.jobs, []
    rig.shut()
    before = rig.journal_files()

    for job in jobs:
        job()

    assert rig.journal_files() == before
