"""Exclusive and failover subscriptions: one member at a time reads, in order.

Of several, the active one is the first by priority, then by name; partitions of one topic begin to
count at their own number, so that each member has its share of them. When another becomes active,
reading begins again at the first message that is not acked, and so it does when the active one
gives back: no list of what was handed out is kept.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from typing import Final

from trilogue.broker.acks import Acked
from trilogue.broker.member import Member
from trilogue.broker.spans import Spans

NOTHING: Final = -1


def _rank(member: Member) -> tuple[int, str, int]:
    return member.priority, member.name, member.joined


class Single:
    """Who reads an exclusive or failover subscription, and how far it has come."""

    def __init__(self, acked: Acked, partition_index: int) -> None:
        self.position = acked.mark
        self.active: Member | None = None
        self.spans = Spans()
        self._acked = acked
        self._index = max(0, partition_index)
        self._members: list[Member] = []  # by rank

    def add(self, member: Member) -> None:
        """Let a member take part; it may become the active one."""
        insort(self._members, member, key=_rank)
        self._choose()

    def remove(self, member: Member) -> None:
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
        """Say from where to read the next entry; NOTHING if the active member takes none."""
        active = self.active
        if active is None or not active.ready:
            return NOTHING
        self.position = self._acked.first_missing(self.position)
        return self.position

    def offer(self, base: int, end: int) -> Member | None:
        """Hand an entry to the active member; it is the one that contains `next_offset`."""
        active = self.active
        assert active is not None, "nobody asked for this entry"
        assert end > self.position, "an entry that was offered before"
        self.position = end
        acked = self._acked
        left = end - base
        if acked.acked_above or base < acked.mark:
            left = sum(stop - start for start, stop in acked.missing(base, end))
            if not left:
                return None
        active.demand -= left
        self.spans.note(base, end)
        return active

    def skip(self, start: int, end: int) -> None:
        """Nothing stands at these offsets: never ask for them again."""
        if start <= self.position < end:
            self.position = end

    def settle_all(self) -> None:
        """Something was acked."""
        self.spans.drop_before(self._acked.mark)

    def rewind(self) -> None:
        """Begin again with what is not acked."""
        self.position = self._acked.mark
