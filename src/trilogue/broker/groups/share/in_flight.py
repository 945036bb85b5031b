"""The records of one partition that a share group has in flight: acquired, or given back.

    offsets   done | in flight: ranges, some acquired by members, some free again | never delivered
              mark                                                               frontier

A range has one state, one owner, one delivery count and one deadline; it is split where a part of
it changes. Which offsets are done is in the position (broker/cursors/share_facts.py).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator

FREE = ""  # in place of a member's id


class InFlightRange:
    """Records that were delivered and are not done: [start, end)."""

    __slots__ = ("count", "deadline_ms", "end", "member_id", "start")

    def __init__(
        self, start: int, end: int, count: int, member_id: str = FREE, deadline_ms: int = 0
    ) -> None:
        self.start = start
        self.end = end
        self.count = count  # of deliveries
        self.member_id = member_id
        self.deadline_ms = deadline_ms  # of the acquisition lock

    @property
    def is_acquired(self) -> bool:
        """Whether a member has it now."""
        return self.member_id != FREE


class InFlightRanges:
    """All ranges in flight, by offset."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._by_start: dict[int, InFlightRange] = {}
        self._free: list[int] = []  # the starts of those that no member has, in order
        self.records = 0  # in all of them

    def __len__(self) -> int:
        return len(self._starts)

    def __iter__(self) -> Iterator[InFlightRange]:
        """Iterate over the ranges of this moment, in order."""
        return iter([self._by_start[start] for start in self._starts])

    @property
    def first_free(self) -> int | None:
        """The first offset that was given back; None without one."""
        return self._free[0] if self._free else None

    @property
    def first_deadline_ms(self) -> int | None:
        """The earliest deadline of an acquired range; None without one."""
        deadlines = (each.deadline_ms for each in self._by_start.values() if each.is_acquired)
        return min(deadlines, default=None)

    def add(self, added: InFlightRange) -> None:
        """Add a range that overlaps no other one."""
        insort(self._starts, added.start)
        self._by_start[added.start] = added
        if not added.is_acquired:
            insort(self._free, added.start)
        self.records += added.end - added.start

    def remove(self, removed: InFlightRange) -> None:
        """Remove a range."""
        del self._starts[bisect_left(self._starts, removed.start)]
        del self._by_start[removed.start]
        if not removed.is_acquired:
            del self._free[bisect_left(self._free, removed.start)]
        self.records -= removed.end - removed.start

    def change(self, changed: InFlightRange, member_id: str, count: int, deadline_ms: int) -> None:
        """Give a range another owner, count and deadline."""
        was_free = not changed.is_acquired
        changed.member_id, changed.count, changed.deadline_ms = member_id, count, deadline_ms
        if was_free and changed.is_acquired:
            del self._free[bisect_left(self._free, changed.start)]
        elif not was_free and not changed.is_acquired:
            insort(self._free, changed.start)

    def overlapping(self, start: int, end: int) -> list[InFlightRange]:
        """Return the ranges with offsets in [start, end), in order."""
        low = bisect_right(self._starts, start) - 1
        if low < 0 or self._by_start[self._starts[low]].end <= start:
            low += 1
        high = bisect_left(self._starts, end, low)
        return [self._by_start[each] for each in self._starts[low:high]]

    def cut_out(self, start: int, end: int) -> list[InFlightRange]:
        """Return the ranges within [start, end), splitting those that reach beyond it."""
        found = []
        for each in self.overlapping(start, end):
            if each.start < start:
                found.append(self._split(each, start))
            else:
                found.append(each)
            if found[-1].end > end:
                self._split(found[-1], end)
        return found

    def clear(self) -> None:
        """Remove all ranges."""
        self._starts.clear()
        self._by_start.clear()
        self._free.clear()
        self.records = 0

    def _split(self, whole: InFlightRange, at: int) -> InFlightRange:
        """Cut a range in two; return the second part."""
        rest = InFlightRange(at, whole.end, whole.count, whole.member_id, whole.deadline_ms)
        self.records -= whole.end - at
        whole.end = at
        self.add(rest)
        return rest
