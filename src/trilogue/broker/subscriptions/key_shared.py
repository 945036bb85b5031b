"""Which consumer of a Key_Shared subscription has which keys (PIP-34, PIP-119).

A key's hash names one of 65,536 slots; slots belong to consumers by one of three rules:

    ConsistentHash    every consumer has 100 points on a ring of slots; a slot belongs to the next
                      point to the right. A consumer that joins or leaves moves only the keys of its
                      own points.
    AutoSplit         a new consumer takes half of the largest range; one that leaves gives its
                      range to the neighbour on the left.
    StickyRanges      consumers choose their own ranges; a slot may belong to none.

Clients do not see the slots of the first two rules. Those of StickyRanges they compute themselves,
as hash mod 65,536, where 0 counts as 1.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right, insort
from hashlib import shake_128
from heapq import heappop, heappush
from typing import Final, Protocol

from trilogue.broker.errors import KeyRangesTaken
from trilogue.broker.subscriptions.consumer import SubscriptionConsumer

SLOTS: Final = 65_536
POINTS: Final = 100  # of one member on the ring
FULL_MEMBERS: Final = 1_000  # with more than these, those that come have fewer points
RANGES_MAX: Final = 1_024  # that one consumer may request


class KeyAssigner(Protocol):
    """One of the three rules."""

    def add(self, member: SubscriptionConsumer) -> None:
        """Give a new member its share; raises KeyRangesTaken where it cannot have it."""

    def remove(self, member: SubscriptionConsumer) -> None:
        """Give the share of a member that goes to others."""

    def member_of(self, hashed: int) -> SubscriptionConsumer | None:
        """Return the consumer that has the keys of this hash."""


class ConsistentHash:
    """Consistent hashing."""

    def __init__(self) -> None:
        self._slots: list[int] = []  # those that have a point, in order
        self._points: dict[int, list[int]] = {}  # slot -> who has points there: `joined`, in order
        self._members: dict[int, SubscriptionConsumer] = {}
        self._own: dict[int, tuple[int, array[int]]] = {}  # which of its name one is, its slots
        self._twins: dict[str, int] = {}  # how many have a name
        self._free: dict[str, list[int]] = {}  # heap: numbers below it that no twin has now

    def add(self, member: SubscriptionConsumer) -> None:
        """Put its points on the ring: by its name, so that a name finds its keys again."""
        number = self._twins.get(member.name, 0)
        self._twins[member.name] = number + 1
        free = self._free.get(member.name)
        if free:  # one of them went
            number = heappop(free)
        points_of_it = max(1, POINTS * FULL_MEMBERS // max(len(self._members), FULL_MEMBERS))
        slots = _slots_of(member.name, number, points_of_it)
        self._own[member.joined] = number, slots
        self._members[member.joined] = member
        for slot in slots:
            points = self._points.get(slot)
            if points is None:
                self._points[slot] = [member.joined]
                insort(self._slots, slot)
            else:
                insort(points, member.joined)

    def remove(self, member: SubscriptionConsumer) -> None:
        """Take its points away."""
        del self._members[member.joined]
        number, slots = self._own.pop(member.joined)
        self._twins[member.name] -= 1
        if self._twins[member.name]:
            heappush(self._free.setdefault(member.name, []), number)
        else:
            del self._twins[member.name]
            self._free.pop(member.name, None)
        for slot in slots:
            points = self._points[slot]
            points.remove(member.joined)
            if not points:
                del self._points[slot]
                del self._slots[bisect_left(self._slots, slot)]

    def member_of(self, hashed: int) -> SubscriptionConsumer | None:
        """Go to the right from the slot of the hash to the next point."""
        slots = self._slots
        if not slots:
            return None
        at = bisect_left(slots, hashed % SLOTS)
        return self._members[self._points[slots[at if at < len(slots) else 0]][0]]


def _slots_of(name: str, number: int, count: int) -> array[int]:
    """Return the slots of the first `count` points of a name's so many-th twin.

    No client sees them, so one digest has all of them: a hash for each point took 2 ms a consumer.
    """
    points = array("H", shake_128(f"{name}/{number}".encode()).digest(2 * count))
    if sys.byteorder == "big":
        points.byteswap()  # the nodes of a cluster agree
    return array("H", sorted(set(points)))


class AutoSplit:
    """Ranges that are halved for newcomers."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._members: list[SubscriptionConsumer] = []

    def add(self, member: SubscriptionConsumer) -> None:
        """Take the right half of the largest range, the leftmost one; raises KeyRangesTaken."""
        if not self._starts:
            self._starts.append(0)
            self._members.append(member)
            return
        if len(self._starts) == SLOTS:
            raise KeyRangesTaken(f"each of the {SLOTS} slots of keys has a consumer")
        ends = [*self._starts[1:], SLOTS]
        sizes = [end - start for start, end in zip(self._starts, ends, strict=True)]
        largest = max(range(len(sizes)), key=sizes.__getitem__)
        self._starts.insert(largest + 1, self._starts[largest] + (sizes[largest] + 1) // 2)
        self._members.insert(largest + 1, member)

    def remove(self, member: SubscriptionConsumer) -> None:
        """Leave its range to the neighbour on the left, the first one to the right."""
        at = self._members.index(member)
        del self._members[at]
        del self._starts[at]
        if self._starts:
            self._starts[0] = 0

    def member_of(self, hashed: int) -> SubscriptionConsumer | None:
        """Find the range that the slot of the hash is in."""
        if not self._starts:
            return None
        return self._members[bisect_right(self._starts, hashed % SLOTS) - 1]


class StickyRanges:
    """Ranges that members brought: both ends belong to them, as on the wire."""

    def __init__(self) -> None:
        self._ranges: list[
            tuple[int, int, SubscriptionConsumer]
        ] = []  # by their starts; none overlap

    def add(self, member: SubscriptionConsumer) -> None:
        """Take the ranges that it requests, all or none; raises KeyRangesTaken."""
        wanted = sorted(member.ranges or ())
        if not 1 <= len(wanted) <= RANGES_MAX:
            raise KeyRangesTaken(f"{len(wanted)} ranges: 1 to {RANGES_MAX} are allowed")
        before = -1
        for start, end in wanted:
            if not 0 <= start <= end < SLOTS:
                raise KeyRangesTaken(f"{start} to {end} is no range of 0 to {SLOTS - 1}")
            if start <= before:
                raise KeyRangesTaken(f"the ranges up to {before} and from {start} on overlap")
            before = end
            at = bisect_right(self._ranges, end, key=_start_of) - 1
            if at >= 0 and self._ranges[at][1] >= start:  # the last one that begins before `end`
                first, last, _ = self._ranges[at]
                raise KeyRangesTaken(f"{first} to {last} is taken: no room for {start}-{end}")
        for start, end in wanted:
            insort(self._ranges, (start, end, member), key=_start_of)

    def remove(self, member: SubscriptionConsumer) -> None:
        """Remove its ranges; their slots belong to no consumer then."""
        for start, _ in member.ranges or ():
            del self._ranges[bisect_left(self._ranges, start, key=_start_of)]

    def member_of(self, hashed: int) -> SubscriptionConsumer | None:
        """Find whose range the slot of the hash is in, if anybody's."""
        slot = hashed % SLOTS or 1
        at = bisect_right(self._ranges, slot, key=_start_of) - 1
        if at < 0 or slot > self._ranges[at][1]:
            return None
        return self._ranges[at][2]


def _start_of(taken: tuple[int, int, SubscriptionConsumer]) -> int:
    return taken[0]


def make_key_assigner(first: SubscriptionConsumer, *, hashing: bool) -> KeyAssigner:
    """Return the rule of a subscription whose first consumer joins.

    Consumers with ranges of their own keep those; the node's setting decides for others.
    """
    if first.ranges is not None:
        return StickyRanges()
    return ConsistentHash() if hashing else AutoSplit()
