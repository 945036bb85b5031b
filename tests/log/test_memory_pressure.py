"""Who makes producers wait, and for how long: not slow readers, not a flush that cannot be."""

from __future__ import annotations

import errno
from collections.abc import Callable
from threading import Thread, current_thread, main_thread

import pytest
from msgspec.structs import replace

from tests.log.rig import SMALL, Rig, make_entry
from trilogue.log import log as log_module
from trilogue.log.errors import DiskFull
from trilogue.log.partition_log import TailSlice
from trilogue.log.segments.segment_info import FlushResult

TAIL = replace(SMALL, tail_bytes=256 << 10)


def fill(rig: Rig, share: float, partition_id: int = 1) -> None:
    while rig.log.tail_bytes < share * TAIL.tail_bytes:
        rig.commit(partition_id, make_entry(10_000))


def test_readers_that_never_take_what_they_were_sent_do_not_stop_producers():
    """Views hold the tail's memory, so under memory pressure readers get copies."""
    rig = Rig(limits=TAIL)
    log = rig.open()
    held: list[TailSlice] = []
    for share in (0.3, 0.6, 0.75):
        fill(rig, share)
        found = log.partition(1).read(0, 1 << 30)
        assert isinstance(found, TailSlice)
        held.append(found)
    assert any(isinstance(each, memoryview) for each in held[0].slices)
    assert all(isinstance(each, bytes) for each in held[2].slices)
    assert b"".join(held[2].slices).startswith(b"".join(held[1].slices))

    end = log.partition(1).high_watermark
    log.apply_flush(FlushResult(None, {1: end}, log.journal.last_sequence, 0, 0, 0))

    assert log.tail_bytes > 0
    assert not log.under_pressure


def test_producers_are_refused_when_the_flush_they_wait_for_is_stuck():
    """A full disk refuses appends at once, since a producer that waits learns nothing."""
    rig = Rig(limits=TAIL)
    log = rig.open()
    relieved: list[bool] = []
    fill(rig, 0.8)
    log.on_relief(lambda: relieved.append(True))
    rig.loop.run()
    assert relieved == []

    log.flush_stuck()
    rig.loop.run()

    assert relieved == [True]
    assert not log.under_pressure
    with pytest.raises(DiskFull):
        fill(rig, 2)
    log.apply_flush(FlushResult(None, {}, 0, 0, 0, 0))
    assert log.under_pressure


def test_memory_released_stepwise_by_a_flush_does_not_seal_the_next_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A file ends early only where nothing else makes room: here the room comes by itself."""
    monkeypatch.setattr(log_module, "LET_GO_IN_A_TURN", 1)
    rig = Rig(limits=TAIL, partitions=5)
    log = rig.open()
    for each, share in enumerate((0.02, 0.06, 0.1, 0.14, 0.95), 1):
        fill(rig, share, each)
    log.seal()
    rig.commit(1, make_entry(100))
    relieved: list[bool] = []
    log.on_relief(lambda: relieved.append(True))
    rig.loop.run()
    sealed = list(rig.sealed)
    assert relieved == []

    flush_sealed(rig)
    rig.loop.run()

    assert relieved == [True]
    assert rig.sealed == sealed, "the file that has just begun goes on"


def flush_sealed(rig: Rig) -> None:
    """As after a flush of all that is sealed: the rest of the tail stays."""
    log, sealed = rig.log, rig.sealed[-1]
    ends = {each: log.partition(each).high_watermark for each in range(1, 6)}
    ends[1] -= 1  # what came later
    log.apply_flush(FlushResult(None, ends, sealed.last_sequence, 0, 0, 0))


def test_a_journal_file_does_not_end_where_there_is_no_room_for_the_next():
    """Positions are still committed on a full disk: a file in the making must not fail them."""
    rig = Rig(limits=TAIL)
    log = rig.open()
    rig.commit()
    rig.fs.free = 0
    rig.fs.fail("create", errno.ENOSPC)

    log.seal(rig.loop.now_ms() + TAIL.journal.file_age_ms)
    rig.commit()

    assert (rig.sealed, rig.failures) == ([], [])
    rig.fs.free = 1 << 40
    log.seal(rig.loop.now_ms() + TAIL.journal.file_age_ms)
    assert len(rig.sealed) == 1


def test_relief_may_come_from_any_thread():
    """A reader that went away is often freed by the collector, in the thread it runs in."""
    rig = Rig(limits=TAIL)
    log = rig.open()
    relieved: list[bool] = []
    threads: list[bool] = []
    fill(rig, 0.5)
    held = [log.partition(1).read(0, 1 << 30)]
    end = log.partition(1).high_watermark
    log.apply_flush(FlushResult(None, {1: end}, log.journal.last_sequence, 0, 0, 0))
    fill(rig, 0.85)
    log.on_relief(lambda: relieved.append(True))
    rig.loop.run()
    call_soon = rig.loop.call_soon

    def on_the_loop_only(callback: Callable[[], object]) -> None:
        threads.append(current_thread() is main_thread())
        call_soon(callback)

    rig.loop.call_soon = on_the_loop_only  # type: ignore[method-assign]
    freeing = Thread(target=held.clear)
    freeing.start()
    freeing.join()
    rig.loop.run()

    assert relieved == [True]
    assert False not in threads
