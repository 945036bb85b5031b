"""Exclusive and failover subscriptions: one member at a time reads, in order.

Of several, the active one is the first by priority, then by name; partitions of one topic begin to
count at their own number, so that each member has its share of them. When another becomes active,
reading begins again at the first message that is not acked, and so it does when the active one
gives back: no list of what was handed out is kept.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right, insort
from typing import Final

from trilogue.broker.cursors.position import AckedOffsets
from trilogue.broker.subscriptions.consumer import SubscriptionConsumer

NOTHING: Final = -1
REMEMBERED: Final = 100_000


class EntrySpans:
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

    def find_span(self, offset: int) -> tuple[int, int] | None:
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


def _rank(member: SubscriptionConsumer) -> tuple[int, str, int]:
    return member.priority, member.name, member.joined


class SingleActiveConsumer:
    """The active consumer of an exclusive or failover subscription, and its position."""

    def __init__(self, acked: AckedOffsets, partition_index: int) -> None:
        self.position = acked.mark
        self.active: SubscriptionConsumer | None = None
        self.spans = EntrySpans()
        self.acked = acked
        self._index = max(0, partition_index)
        self._members: list[SubscriptionConsumer] = []  # by rank

    def add(self, member: SubscriptionConsumer) -> None:
        """Let a member take part; it may become the active one."""
        insort(self._members, member, key=_rank)
        self._choose()

    def remove(self, member: SubscriptionConsumer) -> None:
        """Let a member go; another may become the active one."""
        del self._members[bisect_left(self._members, _rank(member), key=_rank)]
        self._choose()

    def _choose(self) -> None:
        ranked = self._members
        active = None
        if ranked:
            first = bisect_right(ranked, ranked[0].priority, key=lambda each: each.priority)
            active = ranked[self._index % first]
        if active is not self.active:
            self.active = active
            self.rewind()

    def next_offset(self) -> int:
        """Return the offset of the next entry; NOTHING if the active consumer takes none."""
        active = self.active
        if active is None or not active.ready:
            return NOTHING
        self.position = self.acked.first_missing(self.position)
        return self.position

    def offer(self, base: int, end: int) -> SubscriptionConsumer | None:
        """Hand an entry to the active member; it is the one that contains `next_offset`."""
        active = self.active
        assert active is not None, "no consumer received this entry"
        assert end > self.position, "an entry that was offered before"
        self.position = end
        acked = self.acked
        left = end - base
        if acked.acked_above or base < acked.mark:
            left = sum(stop - start for start, stop in acked.missing(base, end))
            if not left:
                return None
        active.demand -= left
        self.spans.note(base, end)
        return active

    def skip(self, start: int, end: int) -> None:
        """Skip offsets without messages: they are not requested again."""
        if start <= self.position < end:
            self.position = end

    def settle_all(self) -> None:
        """Something was acked."""
        self.spans.drop_before(self.acked.mark)

    def reopen(self, offset: int) -> None:
        """Hand out offsets from this one on again that a transaction gave back."""
        self.position = min(self.position, max(offset, self.acked.mark))

    def rewind(self) -> None:
        """Begin again with what is not acked."""
        self.position = self.acked.mark
