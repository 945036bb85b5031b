"""Acks of open transactions: offsets that no consumer gets until their transaction has ended.

An offset is acked by one transaction at most: a second one gets TransactionConflict. When the
transaction commits, its acks move the cursor; when it aborts, its offsets are dispatched again.

    PendingAcks           all subscriptions that have pending acks, by key
    SubscriptionAcks      those of one subscription: who has which offsets
    ClaimedOffsets        what dispatch passes over: the acked offsets and the pending ones

Everything here is derived from the content of the transactions (transaction.py), which is what the
journal has.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, TypeAlias

from trilogue.broker.cursors.cursor_facts import NOTHING_BELOW
from trilogue.broker.cursors.position import Cursor, Position, PositionKey
from trilogue.broker.errors import TooManyTransactions, TransactionConflict
from trilogue.broker.transactions.records import DeferredAck

SubscriptionId: TypeAlias = tuple[PositionKey, int]  # with the time of its creation
RANGES_MAX: Final = 200_000  # of one subscription
RANGES_IN_ALL_MAX: Final = 500_000
REMOVED_SINGLY_MAX: Final = 64  # of one transaction


class Release(NamedTuple):
    """Offsets that are not pending any more: those of one subscription, from `first` on."""

    key: PositionKey
    first: int
    committed: bool


class SubscriptionAcks:
    """The pending acks of one subscription: disjoint ranges in order, each of one transaction."""

    __slots__ = ("_by_name", "_ends", "_names", "_starts", "cumulative_by", "until")

    def __init__(self) -> None:
        self.until = 0  # everything below is acked by the transaction `cumulative_by`
        self.cumulative_by = ""
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._names: list[str] = []
        self._by_name: dict[str, list[int]] = {}  # starts

    def __bool__(self) -> bool:
        return bool(self._starts or self.cumulative_by)

    def __len__(self) -> int:
        return len(self._starts)

    @property
    def transactions(self) -> set[str]:
        """The transactions that have acked messages."""
        return {*self._by_name, *([self.cumulative_by] if self.cumulative_by else [])}

    def first_missing(self, offset: int) -> int:
        """Return the first offset at or after `offset` that is not pending."""
        offset = max(offset, self.until)
        at = bisect_right(self._starts, offset) - 1
        while 0 <= at < len(self._starts) and self._starts[at] <= offset < self._ends[at]:
            offset = self._ends[at]
            at += 1
        return offset

    def missing(self, start: int, end: int) -> list[tuple[int, int]]:
        """Return the ranges of [start, end) that are not pending, in order."""
        found: list[tuple[int, int]] = []
        start = max(start, self.until)
        for at in range(bisect_right(self._ends, start), len(self._starts)):
            if self._starts[at] >= end:
                break
            if start < self._starts[at]:
                found.append((start, self._starts[at]))
            start = self._ends[at]
        if start < end:
            found.append((start, end))
        return found

    def holders(self, start: int, end: int) -> set[str]:
        """Return the transactions that have acked offsets of [start, end)."""
        first, last = bisect_right(self._ends, start), bisect_left(self._starts, end)
        found = set(self._names[first:last])
        if start < self.until:
            found.add(self.cumulative_by)
        return found

    def add(self, name: str, ack: DeferredAck) -> int:
        """Add acks that were checked; return how many ranges more there are."""
        before = len(self._starts)
        if ack.until > NOTHING_BELOW:
            self.until, self.cumulative_by = max(self.until, ack.until), name
        for each in ack.ranges:
            for start, end in self.missing(*each):
                self._insert(name, start, end)
        return len(self._starts) - before

    def remove(self, name: str) -> int:
        """Remove the acks of a transaction; return the first offset of them, or -1."""
        starts = self._by_name.pop(name, [])
        first = min(starts, default=-1)
        if len(starts) <= REMOVED_SINGLY_MAX:
            for start in starts:
                at = bisect_left(self._starts, start)
                del self._starts[at], self._ends[at], self._names[at]
        else:
            kept = [at for at, each in enumerate(self._names) if each != name]
            self._starts = [self._starts[at] for at in kept]
            self._ends = [self._ends[at] for at in kept]
            self._names = [self._names[at] for at in kept]
        if self.cumulative_by == name:
            self.until, self.cumulative_by, first = 0, "", 0
        return first

    def _insert(self, name: str, start: int, end: int) -> None:
        at = bisect_left(self._starts, start)
        if at and self._ends[at - 1] == start and self._names[at - 1] == name:
            self._ends[at - 1] = end
            return
        self._starts.insert(at, start)
        self._ends.insert(at, end)
        self._names.insert(at, name)
        self._by_name.setdefault(name, []).append(start)


class ClaimedOffsets:
    """What no consumer is sent: what is acked, and what open transactions have acked."""

    __slots__ = ("_acked", "_pending")

    def __init__(self, acked: Position, pending: SubscriptionAcks) -> None:
        self._acked = acked
        self._pending = pending

    @property
    def mark(self) -> int:
        """The first offset that is not claimed by a run from the start."""
        return max(self._acked.mark, self._pending.until)

    @property
    def acked_above(self) -> int:
        """Not zero if offsets above the mark are claimed."""
        return self._acked.acked_above + len(self._pending)

    def first_missing(self, offset: int) -> int:
        """Return the first offset at or after `offset` that is not claimed."""
        while True:
            found = self._pending.first_missing(self._acked.first_missing(offset))
            if found == offset:
                return found
            offset = found

    def missing(self, start: int, end: int) -> list[tuple[int, int]]:
        """Return the ranges of [start, end) that are not claimed, in order."""
        found: list[tuple[int, int]] = []
        for each in self._acked.missing(start, end):
            found += self._pending.missing(*each)
        return found

    def is_pending(self, start: int, end: int) -> bool:
        """Whether some of [start, end) are acked by a transaction that is open."""
        return self._pending.missing(start, end) != [(start, end)]


class PendingAcks:
    """The pending acks of all subscriptions."""

    def __init__(self, ranges_max: int = RANGES_MAX) -> None:
        self._ranges_max = ranges_max
        self._range_count = 0  # of all subscriptions
        self._subscriptions: dict[SubscriptionId, SubscriptionAcks] = {}
        self._by_transaction: dict[str, dict[SubscriptionId, int]] = {}  # with counts of ranges
        self.listeners: list[Callable[[Release], object]] = []

    def of_subscription(self, cursor: Cursor) -> SubscriptionAcks | None:
        """Return the pending acks of a subscription, or None."""
        return self._subscriptions.get((cursor.key, cursor.created_ms))

    def claim(self, cursor: Cursor) -> ClaimedOffsets | Cursor:
        """Return what consumers of a subscription are not sent."""
        pending = self.of_subscription(cursor)
        return cursor if pending is None else ClaimedOffsets(cursor, pending)

    def check(self, name: str, acked: Position, ack: DeferredAck) -> None:
        """Check that a transaction may have these acks.

        Raises TransactionConflict for offsets that are acked, or pending in another transaction,
        and if nothing is new; TooManyTransactions if the subscription has too many pending acks.
        """
        pending = self._subscriptions.get((ack.key, ack.created_ms)) or SubscriptionAcks()
        if len(pending) + len(ack.ranges) > self._ranges_max:
            raise TooManyTransactions(f"a subscription has up to {self._ranges_max} pending acks")
        if self._range_count + len(ack.ranges) > RANGES_IN_ALL_MAX:
            raise TooManyTransactions(f"subscriptions have up to {RANGES_IN_ALL_MAX} pending acks")
        until, ranges = ack.until, list(ack.ranges)
        new = until > NOTHING_BELOW
        if until > NOTHING_BELOW:
            below = min(acked.mark, until)
            if until <= max(acked.mark, pending.until) or pending.holders(below, until) - {name}:
                raise _conflict(below, until)
        for start, end in ranges:
            if acked.missing(start, end) != [(start, end)] or pending.holders(start, end) - {name}:
                raise _conflict(start, end)
            new = new or bool(pending.missing(start, end))
        if ranges and not new:
            raise _conflict(*ranges[0])

    def add(self, name: str, ack: DeferredAck) -> None:
        """Add acks that were checked, or that the journal has."""
        if ack.is_empty:
            return
        subscription = ack.subscription
        count = self._subscriptions.setdefault(subscription, SubscriptionAcks()).add(name, ack)
        counts = self._by_transaction.setdefault(name, {})
        counts[subscription] = counts.get(subscription, 0) + count
        self._range_count += count

    def range_count(self, name: str) -> int:
        """Return how many ranges a transaction has acked."""
        return sum(self._by_transaction.get(name, {}).values())

    def release(
        self,
        name: str,
        *,
        committed: bool,
        subscriptions: Iterable[SubscriptionId] | None = None,
    ) -> None:
        """Remove the acks of a transaction that has ended, in some subscriptions or all; notify."""
        counts = self._by_transaction.get(name, {})
        for subscription in list(counts) if subscriptions is None else subscriptions:
            count = counts.pop(subscription, None)
            if count is None:
                continue
            self._range_count -= count
            if not counts:
                del self._by_transaction[name]
            pending = self._subscriptions[subscription]
            first = pending.remove(name)
            if not pending:
                del self._subscriptions[subscription]
            for listener in self.listeners:
                listener(Release(subscription[0], first, committed))


def _conflict(start: int, end: int) -> TransactionConflict:
    return TransactionConflict(f"a message from {start} to {end} is acked by another transaction")
