# ruff: noqa: ERA001 -- the next line is for the compiler
# cython: annotation_typing=False
"""When the entries of a tail became durable, for searches by append time.

Entries do not record when they were appended, frames do. Frames carry the broker's time, which may
jump back. For each step of 16 KiB the latest time of a frame with entries in it is kept, so that a
search never passes over what it looks for.

Compiled (append_times.pxd adds the types), since `note` runs once per partition and commit;
uncompiled it is plain Python. See docs/decisions/0061.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right

STEP = 16 << 10  # bytes of the tail per append time: a search may return so many too many
NO_TIME = -1


class AppendTimes:
    """The latest append time of each step of a tail, by position."""

    __slots__ = ("_ends", "_step_end", "_times", "newest")

    def __init__(self) -> None:
        self.newest = NO_TIME  # since the last step
        self._step_end = STEP  # position where the current step ends
        self._ends: array[int] | None = None  # position where each step ends
        self._times: array[int] | None = None

    def note(self, end: int, append_time_ms: int) -> None:
        """Record the append time of the frame whose entries end at this position of the tail."""
        if append_time_ms > self.newest:  # noqa: PLR1730 -- per commit; max() is a call
            self.newest = append_time_ms
        if end >= self._step_end:
            self._end_step(end)

    def _end_step(self, end: int) -> None:
        if self._ends is None or self._times is None:
            self._ends, self._times = array("q"), array("q")
        self._ends.append(end)
        self._times.append(self.newest)
        self._step_end = end + STEP
        self.newest = NO_TIME

    def find_position(self, timestamp_ms: int, position: int, end: int) -> int | None:
        """Return a position, from `position` on, at or before all entries of this time or later.

        None when everything up to `end` is older.
        """
        at = position
        if self._ends is not None and self._times is not None:
            for number in range(bisect_right(self._ends, position), len(self._ends)):
                if self._times[number] >= timestamp_ms:
                    return at
                at = self._ends[number]
        return at if at < end and self.newest >= timestamp_ms else None

    def drop_before(self, position: int, end: int) -> None:
        """Forget the times of what was dropped from the tail, which ends at `end`."""
        if position >= end:
            self._ends = self._times = None
            self._step_end = end + STEP
            self.newest = NO_TIME
        elif self._ends is not None and self._times is not None:
            dropped = bisect_right(self._ends, position)
            del self._ends[:dropped], self._times[:dropped]
