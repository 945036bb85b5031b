# ruff: noqa: ERA001 -- the next line is for the compiler
# cython: annotation_typing=False
"""The tail of one partition: its entries that are not yet in a segment, in memory, as on disk.

A position counts the bytes of all entries ever appended here; it never goes back, and a byte keeps
its position when older ones are dropped.

    chunks    [.....older..][..............][....the one that fills    ]
    starts     ^             ^               ^begin
    index      .      ^       ^      ^        ^      ^         ^           one mark per 4 KiB
              start                                            end

A chunk never changes its size, because a transport may be sending a view of it; an entry never
crosses from one chunk into the next, so a reader of a chunk finds whole entries. Chunks grow from
256 bytes to 256 KiB, by what the partition keeps; a large entry gets a chunk of its own. chunks.py
is where they come from and go.

A node may have ten thousand partitions that are almost idle, so what a tail needs only when it
holds more is made only then: the list of older chunks with the second chunk, the index with the
second mark (the first is `start`). Chunks under 4 KiB are never lent, since readers get copies of
so little: they are plain bytearrays, counted here and not when they are collected.

Compiled (tail.pxd adds the types), since `append` runs once per entry; uncompiled it is plain
Python. See docs/decisions/0061.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator
from typing import Final, TypeAlias

import cython

from trilogue.entry.header import LENGTH_PREFIX, SPAN, TIMED_SPAN
from trilogue.log.errors import TailFull
from trilogue.log.tail.chunks import Budget

if not cython.compiled:  # tail.pxd imports the compiled version
    from trilogue.entry.memory import copy_view, stamp_header

Chunk: TypeAlias = "bytearray | memoryview"

SMALLEST_CHUNK: Final = 256
LARGEST_CHUNK: Final = 256 << 10
OWN_CHUNK: Final = LARGEST_CHUNK // 8
GRANULE: Final = 4096
COPIED_BELOW: Final = 4096
"""Slices this small are copied for readers: a view would keep a whole chunk alive."""
NO_TIMESTAMP: Final = -1


class _OlderChunks:
    """The chunks before the one that fills."""

    __slots__ = ("chunks", "starts")

    def __init__(self) -> None:
        self.chunks: list[Chunk] = []
        self.starts = array("q")  # position of each chunk's first byte


class _MarkIndex:
    """Marks inside the tail: an entry's base offset and position, and the time before it.

    `times` has the maximum timestamp up to each mark from the one before (or the start of all).
    """

    __slots__ = ("offsets", "positions", "times")

    def __init__(self) -> None:
        self.offsets = array("q")
        self.positions = array("q")
        self.times = array("q")


_NO_CHUNK: Final = memoryview(bytearray())
_NONE_OLDER: Final = _OlderChunks()  # never added to
_NO_MARKS: Final = _MarkIndex()


class Tail:
    """Entries in order, found by offset or by time."""

    __slots__ = (
        "_begin",
        "_budget",
        "_chunk",
        "_fill",
        "_index",
        "_latest",
        "_next_mark",
        "_older",
        "_previous_fill",
        "_room",
        "end",
        "start",
    )

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self.start = 0  # position of the first byte kept
        self.end = 0  # position of the next byte
        self._older = _NONE_OLDER
        self._chunk: Chunk = _NO_CHUNK  # the one that fills
        self._begin = 0  # position of its first byte
        self._fill = 0  # bytes used of it
        self._room = 0  # its size
        self._previous_fill = SMALLEST_CHUNK  # bytes used of the chunk before
        self._index = _NO_MARKS
        self._latest = NO_TIMESTAMP  # the maximum timestamp since the last mark
        self._next_mark = 0  # position from which on the next entry gets a mark

    @property
    def size(self) -> int:
        """Bytes of entries kept."""
        return self.end - self.start

    # -- appending -------------------------------------------------------------------------

    def append(
        self, entry: memoryview, size: int, base_offset: int, owner_epoch: int, max_timestamp: int
    ) -> memoryview:
        """Copy an entry of `size` bytes, set its base offset and epoch, and return the copy.

        Raises `TailFull`, or `ValueError` for an entry of another size; nothing is appended then.
        """
        fill = self._fill
        after = fill + size
        if after > self._room:
            self._add_chunk(size)
            fill = 0
            after = size
        chunk = self._chunk
        view = chunk if isinstance(chunk, memoryview) else memoryview(chunk)
        stored = view[fill:after]
        copy_view(stored, 0, entry)
        stamp_header(stored, base_offset, size, owner_epoch)
        self._fill = after
        position = self.end
        self.end = position + size
        if position >= self._next_mark:
            self._mark(position, base_offset)
            self._latest = max_timestamp
        elif max_timestamp > self._latest:
            self._latest = max_timestamp
        return stored

    def _mark(self, position: int, base_offset: int) -> None:
        self._next_mark = position + GRANULE
        if position == self.start:
            return
        if self._index is _NO_MARKS:
            self._index = _MarkIndex()
        self._index.times.append(self._latest)
        self._index.offsets.append(base_offset)
        self._index.positions.append(position)

    def _add_chunk(self, size: int) -> None:
        budget = self._budget
        if budget.used >= budget.limit:
            raise TailFull(f"{budget.used} bytes wait to be flushed")
        self._previous_fill = max(self._fill, SMALLEST_CHUNK)
        room = size
        if size <= OWN_CHUNK:  # waste at most a quarter, and no more than the last chunk used
            most = min(max(self.size // 4, SMALLEST_CHUNK), 2 * self._previous_fill, LARGEST_CHUNK)
            # Rounded up: in twice the room of one entry two must fit, or chunks never grow.
            room = max(size, -(-most // SMALLEST_CHUNK) * SMALLEST_CHUNK)
        chunk = budget.chunk(room) if room >= COPIED_BELOW else budget.small(room)
        if self._fill:
            if self._older is _NONE_OLDER:
                self._older = _OlderChunks()
            self._older.chunks.append(self._chunk)
            self._older.starts.append(self._begin)
        self._chunk = chunk
        self._begin = self.end
        self._fill = 0
        self._room = len(chunk)

    # -- reading ---------------------------------------------------------------------------

    def locate(self, offset: int) -> int:
        """Return the position of the entry that contains the offset, else of the next, else `end`.

        Entries below `start` are not found.
        """
        mark = bisect_right(self._index.offsets, offset) - 1
        origin = self._index.positions[mark] if mark >= 0 else self.start
        for position, base_offset, _, last_offset_delta in self._walk(origin):
            if base_offset + last_offset_delta >= offset:
                return position
        return self.end

    def boundary(self, position: int, limit: int) -> int:
        """Return the last end of an entry at or below `limit`, from the entry at `position` on."""
        mark = bisect_right(self._index.positions, limit) - 1
        end = max(position, self._index.positions[mark]) if mark >= 0 else position
        for at, _, length, _ in self._walk(end):
            if at + length > limit:
                break
            end = at + length
        return end

    def entry_end(self, position: int) -> int:
        """Return the position where the entry at `position` ends."""
        for at, _, length, _ in self._walk(position):
            return at + length
        return position

    def offset_at(self, position: int) -> int:
        """Return the base offset of the entry at `position`, which is before the end."""
        chunk, begin, _ = self._around(position)
        base_offset, *_ = SPAN.unpack_from(chunk, position - begin)
        return int(base_offset)

    def slices(self, position: int, end: int) -> list[memoryview | bytes]:
        """Return the bytes between two ends of entries: views, or copies where they are few.

        Copies of everything when memory is short: a slow reader must not hold chunks then.
        """
        slices: list[memoryview | bytes] = []
        if position >= end:
            return slices
        copied_below = end + 1 if self._budget.is_crowded else COPIED_BELOW
        while position < end:
            chunk, begin, after = self._around(position)
            stop = min(end, after)
            part = chunk[position - begin : stop - begin]
            if stop - position < copied_below or isinstance(part, bytearray):
                slices.append(bytes(part))
            else:
                slices.append(part)
            position = stop
        return slices

    def find_time(self, timestamp_ms: int, position: int, end: int) -> tuple[int, int] | None:
        """Find the first entry from `position` on that may hold a message of this time or later.

        Returns its position and its end, or None when there is none before `end`.
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
        """Return the largest timestamp of the entries before `end` in ms; -1 = there is none."""
        positions = self._index.positions
        whole = bisect_right(positions, end)  # marks at or before `end`
        largest = max(self._index.times[:whole], default=NO_TIMESTAMP)
        for at, _, max_timestamp in self._walk_times(positions[whole - 1] if whole else self.start):
            if at >= end:
                break
            largest = max(largest, max_timestamp)
        return largest

    def _around(self, position: int) -> tuple[Chunk, int, int]:
        """Return the chunk with the byte at a position, its own start and that of the next."""
        if position >= self._begin:
            return self._chunk, self._begin, self.end
        starts = self._older.starts
        at = bisect_right(starts, position) - 1
        after = starts[at + 1] if at + 1 < len(starts) else self._begin
        return self._older.chunks[at], starts[at], after

    def _walk(self, position: int) -> Iterator[tuple[int, int, int, int]]:
        """Yield (position, base offset, length, last offset delta) from an entry's position on."""
        last = self.end
        unpack = SPAN.unpack_from
        while position < last:
            chunk, begin, after = self._around(position)
            while position < after:
                base_offset, length, last_offset_delta = unpack(chunk, position - begin)
                length += LENGTH_PREFIX
                yield position, base_offset, length, last_offset_delta
                position += length

    def _walk_times(self, position: int) -> Iterator[tuple[int, int, int]]:
        """Yield (position, length, maximum timestamp) from an entry's position on."""
        while position < self.end:
            chunk, begin, after = self._around(position)
            while position < after:
                _, length, _, max_timestamp = TIMED_SPAN.unpack_from(chunk, position - begin)
                length += LENGTH_PREFIX
                yield position, length, max_timestamp
                position += length

    # -- dropping --------------------------------------------------------------------------

    def drop_before(self, position: int) -> None:
        """Drop everything before a position, which is the start of an entry."""
        if position <= self.start:
            return
        self.start = position
        if position >= self.end:  # all of it
            self._drop_all()
            return
        older = self._older
        dropped = len(older.starts)
        if position < self._begin:
            dropped = bisect_right(older.starts, position) - 1
        self._release(older.chunks[:dropped])
        del older.starts[:dropped], older.chunks[:dropped]
        index = self._index
        passed = bisect_right(index.positions, position)
        del index.offsets[:passed], index.positions[:passed], index.times[:passed]

    def _drop_all(self) -> None:
        self._release([*self._older.chunks, self._chunk])
        self._older = _NONE_OLDER
        self._chunk = _NO_CHUNK
        self._begin = self.end
        self._index = _NO_MARKS
        self._fill = self._room = 0
        self._next_mark = self.end

    def _release(self, chunks: list[Chunk]) -> None:
        """Take small chunks off the count; large ones are counted until their last view is gone."""
        size = sum(len(chunk) for chunk in chunks if isinstance(chunk, bytearray))
        if size:
            self._budget.take_back(size)
