"""The position of one reader in one partition: a mark, and acked ranges above it.

Everything below the mark (Pulsar: the mark-delete position) is acked. A committed offset of Kafka
or TubeMQ is the case without ranges; the cursor of a Pulsar subscription has a range for each run
of messages that was acked ahead of the mark. Ranges are half-open, sorted, and neither overlap nor
touch, and the first one does not touch the mark, because it would move it. They are kept in two
packed arrays, the starts and the ends, 16 bytes a range, allocated with the first range: a lookup
is a bisection, an insertion moves memory, and ranges that the mark has passed are cut off in bulk,
not one by one.

All numbers are offsets. Of an entry that is acked in part, the acked messages are ranges.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right
from typing import Final, NamedTuple
from typing import Protocol as Port

from trilogue.broker.facts import DEFAULT_RETENTION, Protocol

PASSED_MAX: Final = 1_024  # unused places at the front of the arrays, or half of the array
INT64: Final = 8

_NO_RANGES: Final = array("q")  # shared by all positions without ranges, and never changed


class AckedOffsets(Port):
    """A set of offsets that dispatch passes over: a position, or one with pending acks."""

    @property
    def mark(self) -> int:
        """The first offset that is not in it."""

    @property
    def acked_above(self) -> int:
        """Not zero if offsets above the mark are in it."""

    def first_missing(self, offset: int, /) -> int:
        """Return the first offset at or after `offset` that is not in it."""

    def missing(self, start: int, end: int, /) -> list[tuple[int, int]]:
        """Return the ranges of [start, end) that are not in it, in order."""

    def is_pending(self, start: int, end: int, /) -> bool:
        """Whether some of [start, end) are acked by a transaction that is open."""


class PositionKey(NamedTuple):
    """What identifies a position on this node."""

    protocol: Protocol
    name: str  # of the group, or of the subscription
    partition_id: int


class Position:
    """A set of offsets of which nearly all members are below the mark."""

    __slots__ = ("_ends", "_first", "_starts", "acked_above", "mark")

    def __init__(self, mark: int = 0) -> None:
        self.mark = mark  # the first offset that is not acked
        self.acked_above = 0  # count of acked offsets above the mark
        self._starts = self._ends = _NO_RANGES
        self._first = 0  # the mark has passed the ranges before this index

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.mark}, {self.ranges()})"

    @property
    def range_count(self) -> int:
        """The number of ranges above the mark."""
        return len(self._starts) - self._first

    # -- changes

    def ack(self, start: int, end: int) -> bool:
        """Add the offsets from `start` up to but not including `end`; False if none is new."""
        if start <= self.mark:
            return self.ack_until(end)
        if start >= end:
            return False
        starts, ends, first = self._starts, self._ends, self._first
        low = bisect_left(ends, start, first)
        high = bisect_right(starts, end, low)
        if low == high:  # touches no range
            self._insert(low, start, end)
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
        """Add everything below `end`; False if all of it is acked already."""
        if end <= self.mark:
            return False
        if self.acked_above:
            starts, ends, first = self._starts, self._ends, self._first
            passed = bisect_right(starts, end, first)
            if passed > first:  # these ranges begin at or below the new mark
                self.acked_above -= sum(ends[first:passed]) - sum(starts[first:passed])
                end = max(end, ends[passed - 1])
                self._drop_ranges(passed)
        self.mark = end
        return True

    def reset(self, mark: int) -> None:
        """Begin again: everything below `mark` is acked, and nothing above it."""
        self.mark = mark
        self.acked_above = self._first = 0
        self._starts = self._ends = _NO_RANGES

    def _insert(self, at: int, start: int, end: int) -> None:
        self.acked_above += end - start
        if self._starts is _NO_RANGES:
            self._starts, self._ends = array("q", (start,)), array("q", (end,))
        elif at == self._first > 0:  # in the place of a range that the mark has passed
            self._first = at - 1
            self._starts[at - 1], self._ends[at - 1] = start, end
        else:
            self._starts.insert(at, start)
            self._ends.insert(at, end)

    def _drop_ranges(self, first: int) -> None:
        if first == len(self._starts) or (first > PASSED_MAX and first * 2 > len(self._starts)):
            del self._starts[:first]
            del self._ends[:first]
            first = 0
        self._first = first

    # -- lookups

    def contains(self, offset: int) -> bool:
        """Whether an offset is acked."""
        if offset < self.mark:
            return True
        at = bisect_right(self._starts, offset, self._first) - 1
        return at >= self._first and offset < self._ends[at]

    def first_missing(self, offset: int) -> int:
        """Return the first offset at or after `offset` that is not acked."""
        if offset < self.mark:
            return self.mark
        at = bisect_right(self._starts, offset, self._first) - 1
        return max(offset, self._ends[at]) if at >= self._first else offset

    def is_pending(self, start: int, end: int) -> bool:
        """Return False: what is in a position is acked for good."""
        del start, end
        return False

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

    # -- the form on disk

    def pack_ranges(self, limit: int) -> bytes:
        """Return the lowest `limit` ranges: all starts, then all ends, big-endian i64."""
        some = slice(self._first, self._first + limit)
        return _swap_bytes(self._starts[some]) + _swap_bytes(self._ends[some])

    def unpack_ranges(self, packed: bytes) -> None:
        """Take over the ranges that `pack_ranges` returned; the position has none so far.

        Raises ValueError where `pack_ranges` cannot have returned these bytes.
        """
        if len(packed) % (2 * INT64):
            raise ValueError(f"{len(packed)} bytes of ranges")
        if not packed:
            return
        middle = len(packed) // 2
        starts = array("q", _swap_bytes(array("q", packed[:middle])))
        ends = array("q", _swap_bytes(array("q", packed[middle:])))
        before = self.mark
        for start, end in zip(starts, ends, strict=True):
            if not before < start < end:
                raise ValueError(f"range {start} to {end} after {before}")
            before = end
        self._starts, self._ends = starts, ends
        self.acked_above = sum(ends) - sum(starts)


class CommittedOffset(Position):
    """A position of Kafka or TubeMQ: the mark alone, with what the client committed beside it."""

    __slots__ = ("committed_ms", "metadata", "owner_epoch", "retention_ms")

    def __init__(
        self,
        mark: int,
        owner_epoch: int,
        metadata: str,
        committed_ms: int,
        retention_ms: int = DEFAULT_RETENTION,
    ) -> None:
        self.mark = mark
        self.acked_above = self._first = 0
        self._starts = self._ends = _NO_RANGES
        self.owner_epoch = owner_epoch
        self.metadata = metadata
        self.committed_ms = committed_ms
        self.retention_ms = retention_ms  # after the commit, where the client named a time

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CommittedOffset) and self._fields() == other._fields()

    def __hash__(self) -> int:
        return hash(self._fields())

    def _fields(self) -> tuple[int, int, str, int, int]:
        details = self.owner_epoch, self.metadata, self.committed_ms, self.retention_ms
        return self.mark, *details


class Cursor(Position):
    """The position of a durable subscription of Pulsar, with the texts that its owner gave it."""

    __slots__ = ("created_ms", "expired", "gone", "key", "properties")

    def __init__(
        self, key: PositionKey, mark: int, created_ms: int, properties: dict[str, str]
    ) -> None:
        super().__init__(mark)
        self.key = key
        self.created_ms = created_ms
        self.properties = properties
        self.gone = False  # deleted, perhaps with its partition
        self.expired = 0  # messages that were skipped as their policy says, since the start

    @property
    def name(self) -> str:
        """The subscription's name, unique in its partition."""
        return self.key.name

    @property
    def partition_id(self) -> int:
        """The partition whose offsets these are."""
        return self.key.partition_id


def _swap_bytes(numbers: array[int]) -> bytes:
    """Convert between the machine's byte order and big-endian; the argument is a copy already."""
    if sys.byteorder == "little":
        numbers.byteswap()
    return numbers.tobytes()
