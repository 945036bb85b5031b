"""Which offsets of one partition have been acked: a mark, and acked ranges above it.

Everything below the mark is acked. Ranges above it are half-open, sorted, and neither overlap nor
touch, nor does the first touch the mark: it would move it. They stand in two packed arrays, the
starts and the ends, 16 bytes a range: to find is to bisect, to insert is to move memory, and what
the mark has passed at the front is cut off now and then, not each time.

All in offsets: of an entry that is acked in parts, the parts are ranges.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right
from typing import Final

PASSED_MAX: Final = 1_024  # places at the front that may be unused, or half of all
INT64: Final = 8


class Acked:
    """A set of offsets, of which nearly all that are in it are below the mark."""

    __slots__ = ("_ends", "_first", "_starts", "acked_above", "mark")

    def __init__(self, mark: int = 0) -> None:
        self.mark = mark  # the first offset that is not acked
        self.acked_above = 0  # how many offsets above the mark are
        self._starts = array("q")
        self._ends = array("q")
        self._first = 0  # the ranges before this place have been passed by the mark

    def __repr__(self) -> str:
        return f"Acked({self.mark}, {self.ranges()})"

    @property
    def range_count(self) -> int:
        """How many ranges stand above the mark."""
        return len(self._starts) - self._first

    # -- moving

    def ack(self, start: int, end: int) -> bool:
        """Add the offsets from `start` up to but not including `end`; False if none was new."""
        if start <= self.mark:
            return self.ack_until(end)
        if start >= end:
            return False
        starts, ends, first = self._starts, self._ends, self._first
        low = bisect_left(ends, start, first)
        high = bisect_right(starts, end, low)
        if low == high:  # touches none
            self.acked_above += end - start
            if low == first > 0:  # the place of one that was passed
                self._first = first - 1
                starts[first - 1], ends[first - 1] = start, end
            else:
                starts.insert(low, start)
                ends.insert(low, end)
            return True
        if high == low + 1 and starts[low] <= start and end <= ends[low]:
            return False
        start, end = min(start, starts[low]), max(end, ends[high - 1])
        covered = sum(ends[low:high]) - sum(starts[low:high])
        self.acked_above += end - start - covered
        starts[low], ends[low] = start, end
        if high > low + 1:
            del starts[low + 1 : high]
            del ends[low + 1 : high]
        return True

    def ack_until(self, end: int) -> bool:
        """Add everything below `end`; False if that was acked already."""
        if end <= self.mark:
            return False
        starts, ends, first = self._starts, self._ends, self._first
        passed = bisect_right(starts, end, first)
        if passed > first:  # these begin at or below the new mark
            self.acked_above -= sum(ends[first:passed]) - sum(starts[first:passed])
            end = max(end, ends[passed - 1])
            self._pass(passed)
        self.mark = end
        return True

    def reset(self, mark: int) -> None:
        """Begin again: everything below `mark` is acked, and nothing above."""
        self.mark = mark
        self.acked_above = self._first = 0
        del self._starts[:]
        del self._ends[:]

    def _pass(self, first: int) -> None:
        if (first > PASSED_MAX and first * 2 > len(self._starts)) or first == len(self._starts):
            del self._starts[:first]
            del self._ends[:first]
            first = 0
        self._first = first

    # -- asking

    def contains(self, offset: int) -> bool:
        """Whether an offset is acked."""
        if offset < self.mark:
            return True
        at = bisect_right(self._starts, offset, self._first) - 1
        return at >= self._first and offset < self._ends[at]

    def first_missing(self, offset: int) -> int:
        """Return the first offset from `offset` on that is not acked."""
        if offset < self.mark:
            return self.mark
        at = bisect_right(self._starts, offset, self._first) - 1
        return max(offset, self._ends[at]) if at >= self._first else offset

    def missing(self, start: int, end: int) -> list[tuple[int, int]]:
        """Return the ranges of [start, end) that are not acked, in order."""
        start = max(start, self.mark)
        if start >= end:
            return []
        starts, ends = self._starts, self._ends
        low = bisect_right(ends, start, self._first)
        high = bisect_left(starts, end, low)
        found: list[tuple[int, int]] = []
        for at in range(low, high):
            if start < starts[at]:
                found.append((start, starts[at]))
            start = ends[at]
        if start < end:
            found.append((start, end))
        return found

    def ranges(self) -> list[tuple[int, int]]:
        """Return the acked ranges above the mark, in order."""
        return list(zip(self._starts[self._first :], self._ends[self._first :], strict=True))

    # -- keeping

    def packed(self, limit: int) -> bytes:
        """Return the ranges, the lowest `limit` of them: all starts, then all ends, big-endian."""
        some = slice(self._first, self._first + limit)
        return _swapped(self._starts[some]).tobytes() + _swapped(self._ends[some]).tobytes()

    @classmethod
    def unpacked(cls, mark: int, packed: bytes) -> Acked:
        """Take over what `packed` gave; raises ValueError where no `packed` can have given it."""
        if len(packed) % (2 * INT64):
            raise ValueError(f"{len(packed)} bytes of ranges")
        made = cls(mark)
        middle = len(packed) // 2
        starts, ends = made._starts, made._ends
        starts.frombytes(packed[:middle])
        ends.frombytes(packed[middle:])
        made._starts, made._ends = starts, ends = _swapped(starts), _swapped(ends)
        before = mark
        for start, end in zip(starts, ends, strict=True):
            if not before < start < end:
                raise ValueError(f"range {start} to {end} after {before}")
            before = end
        made.acked_above = sum(ends) - sum(starts)
        return made


def _swapped(numbers: array[int]) -> array[int]:
    """Between the machine's order of bytes and the disk's; the array is a copy already."""
    if sys.byteorder == "little":
        numbers.byteswap()
    return numbers
