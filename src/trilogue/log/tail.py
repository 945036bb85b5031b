"""The tail of one partition: its entries that are not yet in a segment, in memory, as on disk.

Positions count the bytes of entries ever appended here; they never go back, and a byte keeps its
position when older ones are dropped.

    chunks    [.....older..][..............][....the one that fills    ]
    starts     ^             ^               ^begin
    index      .      ^       ^      ^        ^      ^         ^           one mark per 4 KiB
              start                                            end

Chunks never change their size, because a transport may be sending a view of one; an entry never
crosses from one into the next, so whoever looks inside finds it whole. They grow from 256 bytes to
256 KiB, by what the partition keeps; a large entry gets a chunk of its own. See chunks.py for where
they come from and go.

A node may have ten thousand partitions that hardly speak, so what a tail needs only when it holds
more is made only then: the list of older chunks with the second one, the index with the second
mark (the first is `start`). Chunks under 4 KiB are never lent, since readers get copies of what is
so small: they are plain bytearrays, counted here and not when they die.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator
from struct import Struct
from typing import Final

from trilogue.log.chunks import Budget
from trilogue.log.errors import TailFull
from trilogue.log.hot import Chunk, HotTail

SMALLEST_CHUNK: Final = 256
LARGEST_CHUNK: Final = 256 << 10
OWN_CHUNK: Final = LARGEST_CHUNK // 8
GRANULE: Final = 4096
COPIED_BELOW: Final = 4096
"""Slices this small are copied for readers: a view would keep a whole chunk alive."""
NO_TIMESTAMP: Final = -1

_SPAN: Final = Struct(">qi11xi")  # base offset, length, last offset delta
_TIMES: Final = Struct(">qi11xi8xq")  # and the maximum timestamp
_LENGTH_PREFIX: Final = 12


class _Older:
    """The chunks before the one that fills."""

    __slots__ = ("chunks", "starts")

    def __init__(self) -> None:
        self.chunks: list[Chunk] = []
        self.starts = array("q")  # position of each one's first byte


class _Index:
    """Marks inside the tail: an entry's base offset and position, and what came before it.

    `times` has the maximum timestamp up to each mark from the one before (or the start of all).
    """

    __slots__ = ("offsets", "positions", "times")

    def __init__(self) -> None:
        self.offsets = array("q")
        self.positions = array("q")
        self.times = array("q")


_NONE_OLDER: Final = _Older()  # never added to
_NO_MARKS: Final = _Index()


class Tail(HotTail):
    """Entries in order, found by offset or by time."""

    __slots__ = ("_begin", "_budget", "_index", "_older", "_taken")

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self.start = 0
        self.end = 0
        self._older = _NONE_OLDER
        self._chunk = _NOTHING
        self._begin = 0  # position of its first byte
        self._fill = 0
        self._room = 0
        self._taken = SMALLEST_CHUNK  # bytes of the chunk before
        self._index = _NO_MARKS
        self._latest = NO_TIMESTAMP
        self._next_mark = 0

    @property
    def size(self) -> int:
        """Bytes of entries kept."""
        return self.end - self.start

    # -- appending -------------------------------------------------------------------------

    def _mark(self, position: int, base_offset: int) -> None:
        self._next_mark = position + GRANULE
        if position == self.start:
            return
        if self._index is _NO_MARKS:
            self._index = _Index()
        self._index.times.append(self._latest)
        self._index.offsets.append(base_offset)
        self._index.positions.append(position)

    def _grow(self, size: int) -> None:
        budget = self._budget
        if budget.used >= budget.limit:
            raise TailFull(f"{budget.used} bytes wait to be flushed")
        self._taken = max(self._fill, SMALLEST_CHUNK)
        room = size
        if size <= OWN_CHUNK:  # waste at most a quarter, and no more than the last one took
            most = min(max(self.size // 4, SMALLEST_CHUNK), 2 * self._taken, LARGEST_CHUNK)
            # Rounded up: in twice the room of one entry two must fit, or chunks never grow.
            room = max(size, -(-most // SMALLEST_CHUNK) * SMALLEST_CHUNK)
        chunk = budget.chunk(room) if room >= COPIED_BELOW else budget.small(room)
        if self._fill:
            if self._older is _NONE_OLDER:
                self._older = _Older()
            self._older.chunks.append(self._chunk)
            self._older.starts.append(self._begin)
        self._chunk = chunk
        self._begin = self.end
        self._fill = 0
        self._room = len(chunk)

    # -- reading ---------------------------------------------------------------------------

    def locate(self, offset: int) -> int:
        """The position of the entry that contains the offset, else of the next one, else the end.

        Nothing below the first entry kept is known here.
        """
        mark = bisect_right(self._index.offsets, offset) - 1
        origin = self._index.positions[mark] if mark >= 0 else self.start
        for position, base_offset, _, last_offset_delta in self._walk(origin):
            if base_offset + last_offset_delta >= offset:
                return position
        return self.end

    def boundary(self, position: int, limit: int) -> int:
        """The last end of an entry at or below `limit`, walking from the entry at `position`."""
        mark = bisect_right(self._index.positions, limit) - 1
        end = max(position, self._index.positions[mark]) if mark >= 0 else position
        for at, _, length, _ in self._walk(end):
            if at + length > limit:
                break
            end = at + length
        return end

    def entry_end(self, position: int) -> int:
        """Where the entry at this position ends."""
        for at, _, length, _ in self._walk(position):
            return at + length
        return position

    def offset_at(self, position: int) -> int:
        """The base offset of the entry that starts at this position, which is before the end."""
        chunk, begin, _ = self._around(position)
        base_offset, *_ = _SPAN.unpack_from(chunk, position - begin)
        return int(base_offset)

    def slices(self, position: int, end: int) -> list[memoryview | bytes]:
        """The bytes between two ends of entries: views, or copies of what is small.

        Copies of everything when memory is short: who reads slowly must not hold it.
        """
        found: list[memoryview | bytes] = []
        if position >= end:
            return found
        copied_below = end + 1 if self._budget.is_crowded else COPIED_BELOW
        while position < end:
            chunk, begin, after = self._around(position)
            stop = min(end, after)
            part = chunk[position - begin : stop - begin]
            if stop - position < copied_below or isinstance(part, bytearray):
                found.append(bytes(part))
            else:
                found.append(part)
            position = stop
        return found

    def find_time(self, timestamp_ms: int, position: int, end: int) -> tuple[int, int] | None:
        """The first entry from `position` on that may hold a message of this time or later.

        Returns (position, end of the entry), or None when there is none before `end`.
        """
        positions, times = self._index.positions, self._index.times
        for mark in range(bisect_right(positions, position), len(positions) + 1):
            begin = positions[mark - 1] if mark else self.start
            if begin >= end:
                break
            if (times[mark] if mark < len(times) else self._latest) >= timestamp_ms:
                after = positions[mark] if mark < len(positions) else self.end
                for at, length, max_timestamp in self._walk_times(max(position, begin)):
                    if at >= min(after, end):
                        break
                    if max_timestamp >= timestamp_ms:
                        return at, at + length
        return None

    def max_timestamp(self, end: int) -> int:
        """The largest timestamp of the entries before `end`; -1 when there is none."""
        positions = self._index.positions
        whole = bisect_right(positions, end)  # marks at or before `end`
        largest = max(self._index.times[:whole], default=NO_TIMESTAMP)
        for at, _, max_timestamp in self._walk_times(positions[whole - 1] if whole else self.start):
            if at >= end:
                break
            largest = max(largest, max_timestamp)
        return largest

    def _around(self, position: int) -> tuple[Chunk, int, int]:
        """The chunk with the byte at a position, where it begins, and where the next one does."""
        if position >= self._begin:
            return self._chunk, self._begin, self.end
        starts = self._older.starts
        at = bisect_right(starts, position) - 1
        after = starts[at + 1] if at + 1 < len(starts) else self._begin
        return self._older.chunks[at], starts[at], after

    def _walk(self, position: int) -> Iterator[tuple[int, int, int, int]]:
        """Yield (position, base offset, length, last offset delta) from an entry's position on."""
        last = self.end
        unpack = _SPAN.unpack_from
        while position < last:
            chunk, begin, after = self._around(position)
            while position < after:
                base_offset, length, last_offset_delta = unpack(chunk, position - begin)
                length += _LENGTH_PREFIX
                yield position, base_offset, length, last_offset_delta
                position += length

    def _walk_times(self, position: int) -> Iterator[tuple[int, int, int]]:
        """Yield (position, length, maximum timestamp) from an entry's position on."""
        while position < self.end:
            chunk, begin, after = self._around(position)
            while position < after:
                _, length, _, max_timestamp = _TIMES.unpack_from(chunk, position - begin)
                length += _LENGTH_PREFIX
                yield position, length, max_timestamp
                position += length

    # -- dropping --------------------------------------------------------------------------

    def drop_before(self, position: int) -> None:
        """Forget everything before a position, which is where an entry starts."""
        if position <= self.start:
            return
        self.start = position
        if position >= self.end:  # all of it; what comes starts afresh
            self._forget()
            return
        older = self._older
        gone = len(older.starts)
        if position < self._begin:
            gone = bisect_right(older.starts, position) - 1
        self._give_back(older.chunks[:gone])
        del older.starts[:gone], older.chunks[:gone]
        index = self._index
        passed = bisect_right(index.positions, position)
        del index.offsets[:passed], index.positions[:passed], index.times[:passed]

    def _forget(self) -> None:
        self._give_back([*self._older.chunks, self._chunk])
        self._older = _NONE_OLDER
        self._chunk = _NOTHING
        self._begin = self.end
        self._index = _NO_MARKS
        self._fill = self._room = 0
        self._next_mark = self.end

    def _give_back(self, chunks: list[Chunk]) -> None:
        """Say that small chunks are gone; large ones say it when their last view is."""
        size = sum(len(chunk) for chunk in chunks if isinstance(chunk, bytearray))
        if size:
            self._budget.take_back(size)


_NOTHING = memoryview(bytearray())
