"""The compiled way of an entry through the log and its plain twin put the same bytes in place."""

from __future__ import annotations

from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as some

from tests.pure import load_pure
from trilogue.entry.entry import Record
from trilogue.entry.kafka_batch import build_batch, read_header
from trilogue.log import hot
from trilogue.log.errors import DiskFull

PURE = load_pure("trilogue.log.hot")
ROOM = 600


def entry(size: int) -> memoryview:
    return memoryview(build_batch([Record(0, 1_000 + size, None, b"x" * size)]))


def world(room) -> SimpleNamespace:  # noqa: C901 -- the other halves
    """A journal, a tail and two partitions, of the smallest kind; `told` is what they were told."""
    told: list[object] = []

    class Window(room.HotWindow):
        def __init__(self) -> None:
            self.view = memoryview(bytearray(2 * ROOM))
            self.used, self.limit, self.entry_count = 64, 2 * ROOM, 0
            self.facts, self.known, self.followers = [], [], []
            self.marks, self.waiters = [], []

    class Journal(room.HotJournal):
        def refuse(self):
            raise DiskFull("full")

        def _turn(self, size, most):
            told.append(("turn", size, most))
            self._filling.close()
            windows.append(Window())
            self._filling = windows[-1]
            return self._filling

        def _arm_for(self, patient):
            told.append(("arm", patient))
            self._armed = not patient

        def _wait_for(self, callback):
            told.append("wait")

    class Tail(room.HotTail):
        def __init__(self) -> None:
            self.start = self.end = self._fill = self._room = self._next_mark = 0
            self._latest, self._chunk = -1, bytearray()

        def _mark(self, position, base_offset):
            told.append(("mark", position, base_offset))
            self._next_mark = position + 400

        def _grow(self, size):
            self._chunk = bytearray(max(size, ROOM))
            chunks.append(self._chunk)
            self._fill, self._room = 0, len(self._chunk)

    class Times(room.HotAppendTimes):
        def __init__(self) -> None:
            self.newest, self._next = -1, 300

        def _step(self, end):
            told.append(("step", end, self.newest))
            self._next = end + 300

    class Partition(room.HotPartition):
        def __init__(self, number) -> None:
            self.partition_id, self.owner_epoch, self.patient = number, 3, False
            self.high_watermark = self.end_offset = 10 * number
            self.tail_formats = self._end_position = self._visible = 0
            self._previous, self._window, self._transactions = (0, 0), None, None
            self._journal, self._tail, self._waiting = journal, Tail(), {}
            self._append_times = Times()

    windows, chunks = [Window()], []
    journal = Journal()
    journal.refusal = journal._failure = None
    journal._filling, journal._armed, journal.durable_ms = windows[0], False, 5
    partitions = [Partition(1), Partition(2)]
    return SimpleNamespace(
        journal=journal, partitions=partitions, windows=windows, chunks=chunks, told=told
    )


def seen(these: SimpleNamespace) -> list[object]:
    windows = [(bytes(each.view), each.used, each.entry_count) for each in these.windows]
    positions = [
        (
            each.end_offset,
            each.high_watermark,
            each._previous,
            each.tail_formats,
            each._tail._latest,
        )
        for each in these.partitions
    ]
    return [windows, positions, list(map(bytes, these.chunks)), these.told]


@given(steps=some.lists(some.tuples(some.integers(0, 1), some.integers(0, 300)), max_size=12))
def test_twins_put_the_same_bytes_in_place(steps):
    found = []
    for room in (hot, PURE):
        these = world(room)
        for number, size in steps:
            batch = entry(size)
            these.partitions[number].append(batch, read_header(batch))
            these.journal.on_commit(lambda _: None)
        for window in these.windows:
            window.close()
            window.advance()
        found.append(seen(these))

    assert found[0] == found[1]


def test_twins_refuse_before_anything_happens():
    for room in (hot, PURE):
        these = world(room)
        before = seen(these)
        these.journal.refusal = DiskFull("full")
        batch = entry(3)
        try:
            these.partitions[0].append(batch, read_header(batch))
        except DiskFull:
            assert seen(these) == before
        else:
            raise AssertionError("not refused")


def test_one_reader_s_mistake_keeps_no_other_waiting():
    for room in (hot, PURE):
        these = world(room)
        heard: list[int] = []
        partition = these.partitions[0]
        partition._waiting = {1: lambda: 1 / 0, 2: lambda heard=heard: heard.append(1)}

        partition.wake()

        assert heard == [1]
        assert not partition._waiting


def test_an_entry_longer_than_was_said_is_written_nowhere():
    for room in (hot, PURE):
        (tail,) = {world(room).partitions[0]._tail}
        batch = entry(9)
        try:
            tail.append(batch, len(batch) - 1, 0, 3, 5)
        except ValueError:
            assert not any(tail._chunk)
        else:
            raise AssertionError("not refused")
