"""The tail of one partition: its entries that are not yet in a segment, in memory, as on disk.

Positions count the bytes of entries ever appended here; they never go back, and a byte keeps its
position when older ones are dropped.

    chunks    [.....old....][..............][......................    ]
    starts     ^             ^               ^
    index      ^      ^       ^      ^        ^      ^         ^           one mark per 4 KiB
              start                                            end

Chunks never change their size, because a transport may be sending a view of one; an entry never
crosses from one into the next, so whoever looks inside finds it whole. They grow from 512 bytes (a
node may have ten thousand partitions that hardly speak) to 256 KiB, by what the partition keeps; a
large entry gets a chunk of its own. See chunks.py for where they come from and go.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator
from struct import Struct
from typing import Final

from trilogue.log.chunks import Budget
from trilogue.log.errors import TailFull

SMALLEST_CHUNK: Final = 512
LARGEST_CHUNK: Final = 256 << 10
OWN_CHUNK: Final = LARGEST_CHUNK // 8
GRANULE: Final = 4096
COPIED_BELOW: Final = 4096
"""Slices this small are copied for readers: a view would keep a whole chunk alive."""

_STAMP: Final = Struct(">qii")  # the first bytes of an entry: base offset, length, owner epoch
_SPAN: Final = Struct(">qi11xi")  # base offset, length, last offset delta
_TIMES: Final = Struct(">qi11xi8xq")  # and the maximum timestamp
_LENGTH_PREFIX: Final = 12


class Tail:
    """Entries in order, found by offset or by time."""

    __slots__ = (
        "_budget",
        "_fill",
        "_next_mark",
        "_offsets",
        "_positions",
        "_room",
        "_starts",
        "_taken",
        "_times",
        "_view",
        "_views",
        "end",
        "start",
    )

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self.start = 0  # position of the first byte kept
        self.end = 0  # position of the next byte
        self._views: list[memoryview] = []  # one per chunk
        self._starts = array("q")  # position of each chunk's first byte
        self._view = _NOTHING  # of the last chunk
        self._fill = 0
        self._room = 0
        self._taken = SMALLEST_CHUNK  # bytes of the last chunk but one
        self._offsets = array("q")  # the index: base offset and position of an entry, and the
        self._positions = array("q")
        self._times = array("q")  # maximum timestamp from it up to the next mark
        self._next_mark = 0

    @property
    def size(self) -> int:
        """Bytes of entries kept."""
        return self.end - self.start

    # -- appending -------------------------------------------------------------------------

    def append(
        self, entry: memoryview, size: int, base_offset: int, owner_epoch: int, max_timestamp: int
    ) -> memoryview:
        """Copy an entry, give it its offset and epoch, and return the copy. The hot path."""
        fill = self._fill
        after = fill + size
        if after > self._room:
            self._grow(size)
            fill = 0
            after = size
        stored = self._view[fill:after]
        stored[:] = entry
        _STAMP.pack_into(stored, 0, base_offset, size - _LENGTH_PREFIX, owner_epoch)
        self._fill = after
        position = self.end
        self.end = position + size
        if position >= self._next_mark:
            self._offsets.append(base_offset)
            self._positions.append(position)
            self._times.append(max_timestamp)
            self._next_mark = position + GRANULE
        elif max_timestamp > self._times[-1]:
            self._times[-1] = max_timestamp
        return stored

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
        self._view = budget.chunk(room)
        self._views.append(self._view)
        self._starts.append(self.end)
        self._fill = 0
        self._room = len(self._view)

    # -- reading ---------------------------------------------------------------------------

    def locate(self, offset: int) -> int:
        """The position of the entry that contains the offset, else of the next one, else the end.

        Nothing below the first entry kept is known here.
        """
        mark = bisect_right(self._offsets, offset) - 1
        if mark < 0:
            return self.start
        for position, base_offset, _, last_offset_delta in self._walk(self._positions[mark]):
            if base_offset + last_offset_delta >= offset:
                return position
        return self.end

    def boundary(self, position: int, limit: int) -> int:
        """The last end of an entry at or below `limit`, walking from the entry at `position`."""
        mark = bisect_right(self._positions, limit) - 1
        end = max(position, self._positions[mark]) if mark >= 0 else position
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

    def slices(self, position: int, end: int) -> list[memoryview | bytes]:
        """The bytes between two ends of entries: views, or copies of what is small.

        Copies of everything when memory is short: who reads slowly must not hold it.
        """
        found: list[memoryview | bytes] = []
        if position >= end:
            return found
        starts, views = self._starts, self._views
        copied_below = end + 1 if self._budget.is_crowded else COPIED_BELOW
        at = bisect_right(starts, position) - 1
        while position < end:
            start = starts[at]
            after = starts[at + 1] if at + 1 < len(starts) else self.end
            stop = min(end, after)
            view = views[at][position - start : stop - start]
            found.append(bytes(view) if stop - position < copied_below else view)
            position = stop
            at += 1
        return found

    def find_time(self, timestamp_ms: int, position: int, end: int) -> tuple[int, int] | None:
        """The first entry from `position` on that may hold a message of this time or later.

        Returns (position, end of the entry), or None when there is none before `end`.
        """
        positions, times = self._positions, self._times
        mark = max(bisect_right(positions, position) - 1, 0)
        while mark < len(positions) and positions[mark] < end:
            if times[mark] >= timestamp_ms:
                after = positions[mark + 1] if mark + 1 < len(positions) else self.end
                for at, length, max_timestamp in self._walk_times(max(position, positions[mark])):
                    if at >= min(after, end):
                        break
                    if max_timestamp >= timestamp_ms:
                        return at, at + length
            mark += 1
        return None

    def max_timestamp(self, end: int) -> int:
        """The largest timestamp of the entries before `end`; -1 when there is none."""
        positions = self._positions
        whole = bisect_right(positions, end) - 1  # marks whose range ends at or before `end`
        largest = max(self._times[:whole], default=-1) if whole > 0 else -1
        if whole >= 0:
            for at, _, max_timestamp in self._walk_times(positions[whole]):
                if at >= end:
                    break
                largest = max(largest, max_timestamp)
        return largest

    def _walk(self, position: int) -> Iterator[tuple[int, int, int, int]]:
        """Yield (position, base offset, length, last offset delta) from an entry's position on."""
        starts, views, last = self._starts, self._views, self.end
        unpack = _SPAN.unpack_from
        at = bisect_right(starts, position) - 1
        while position < last:
            start = starts[at]
            after = starts[at + 1] if at + 1 < len(starts) else last
            view = views[at]
            while position < after:
                base_offset, length, last_offset_delta = unpack(view, position - start)
                length += _LENGTH_PREFIX
                yield position, base_offset, length, last_offset_delta
                position += length
            at += 1

    def _walk_times(self, position: int) -> Iterator[tuple[int, int, int]]:
        """Yield (position, length, maximum timestamp) from an entry's position on."""
        starts, views = self._starts, self._views
        while position < self.end:
            at = bisect_right(starts, position) - 1
            _, length, _, max_timestamp = _TIMES.unpack_from(views[at], position - starts[at])
            length += _LENGTH_PREFIX
            yield position, length, max_timestamp
            position += length

    # -- dropping --------------------------------------------------------------------------

    def drop_before(self, position: int, offset: int) -> None:
        """Forget everything before a position, which is where the entry at `offset` starts."""
        if position <= self.start:
            return
        self.start = position
        if position >= self.end:  # all of it; what comes starts afresh
            self._forget()
            return
        starts = self._starts
        gone = bisect_right(starts, position) - 1
        del starts[:gone], self._views[:gone]
        mark = bisect_right(self._positions, position) - 1
        del self._offsets[:mark], self._positions[:mark], self._times[:mark]
        self._offsets[0] = offset  # its granule may have begun in a chunk that is gone
        self._positions[0] = position

    def _forget(self) -> None:
        self._views = []
        self._view = _NOTHING
        self._starts = array("q")
        self._offsets = array("q")
        self._positions = array("q")
        self._times = array("q")
        self._fill = self._room = 0
        self._next_mark = self.end


_NOTHING = memoryview(bytearray())
