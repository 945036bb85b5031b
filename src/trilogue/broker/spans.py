"""Which offsets belong to one entry, for entries that were handed out in order and not acked yet.

Whoever acks names an entry; this says where it ends without asking the log. It remembers a bounded
number of them: for the others the log is asked.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from typing import Final

REMEMBERED: Final = 100_000


class Spans:
    """(base, end) of entries, by offset."""

    __slots__ = ("_bases", "_ends", "_first")

    def __init__(self) -> None:
        self._bases = array("q")
        self._ends = array("q")
        self._first = 0  # those before are not needed any more

    def __len__(self) -> int:
        return len(self._bases) - self._first

    def note(self, base: int, end: int) -> None:
        """Remember an entry behind all that are known; one among them is known already."""
        ends = self._ends
        if ends and base < ends[-1]:
            return
        self._bases.append(base)
        ends.append(end)
        if len(ends) - self._first > REMEMBERED:
            self._first += REMEMBERED // 2
            self._tidy()

    def find(self, offset: int) -> tuple[int, int] | None:
        """Return the entry that contains an offset, if it is remembered."""
        at = bisect_right(self._bases, offset, self._first) - 1
        if at < self._first or offset >= self._ends[at]:
            return None
        return self._bases[at], self._ends[at]

    def drop_before(self, offset: int) -> None:
        """Forget the entries that end at or before an offset."""
        self._first = bisect_right(self._ends, offset, self._first)
        if self._first > 1_024 and 2 * self._first > len(self._ends):
            self._tidy()

    def clear(self) -> None:
        """Forget all."""
        self._first = len(self._ends)
        self._tidy()

    def _tidy(self) -> None:
        del self._bases[: self._first]
        del self._ends[: self._first]
        self._first = 0
