"""A share partition (one partition of a share group): who acquires which records, and what follows.

    free      -> acquired   by a fetch of a member; its delivery count grows by one
    acquired  -> done       accepted, rejected, or without a record at this offset (gap)
              -> free       released, or the record lock (acquisition lock) expired; where it was
                            delivered as often as the group allows it is done instead
              -> acquired   renewed: the lock begins again

Records that were delivered often are delivered in smaller portions, and alone before they are given
up: a record that ends its consumers does not take its neighbours with it.

Records that a session still had when it ended were perhaps never seen by its client: they are free
with the count of the delivery before, as in Kafka. KIP-932; details as Kafka 4.3.1 has them.

It is a state machine without a log or a socket: the caller reads batches from `next_offset()`,
reports which of their offsets have records (`skip` the others) and acquires some of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import NamedTuple

import msgspec

from trilogue.broker.cursors.share_facts import SharePosition, UnackedRange
from trilogue.broker.cursors.share_positions import SharePositions
from trilogue.broker.errors import BrokerError, InvalidRecordState
from trilogue.broker.groups.classic.members import ResettableTimer, Timers
from trilogue.broker.groups.share.in_flight import FREE, InFlightRange, InFlightRanges

THROTTLED_FROM = 2  # deliveries before, at least
RETRY_MS = 1_000  # after the journal refused a fact


class AcknowledgeType(IntEnum):
    """What a member says about an acquired record. Numbers are Kafka's."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


class Acknowledgement(NamedTuple):
    """One type of acknowledgement for the offsets [start, end)."""

    start: int
    end: int
    type: AcknowledgeType


class AcquiredRange(NamedTuple):
    """Records [start, end) that a member acquired, and the number of this delivery."""

    start: int
    end: int
    deliveries: int


class AcquireLimits(NamedTuple):
    """How much one fetch acquires. With `is_strict` a batch may be acquired in part."""

    records: int
    is_strict: bool = False
    is_first: bool = True  # the fetch has acquired nothing of the partition so far


class ShareLimits(msgspec.Struct, frozen=True):
    """What holds for the records of one group."""

    delivery_count: int = 5
    lock_ms: int = 30_000
    locks_max: int = 2_000


class _Outcome:
    """What becomes of ranges in flight: done, or given back."""

    def __init__(self, delivery_count: int) -> None:
        self._delivery_count = delivery_count
        self.ranges: dict[InFlightRange, bool] = {}  # whether it is done
        self.done: list[tuple[int, int]] = []
        self.released: list[UnackedRange] = []

    def add(self, part: InFlightRange, *, is_released: bool) -> None:
        """Add a range; one that was delivered as often as it may be is done in any case."""
        if part in self.ranges:
            return
        is_done = not is_released or part.count >= self._delivery_count
        self.ranges[part] = is_done
        if is_done:
            self.done.append((part.start, part.end))
        else:
            self.released.append(UnackedRange(part.start, part.end, part.count))


class SharePartition:
    """See the module. `limits` returns the group's limits of this moment."""

    def __init__(
        self,
        position: SharePosition,
        positions: SharePositions,
        timers: Timers,
        now_ms: Callable[[], int],
        limits: Callable[[], ShareLimits],
    ) -> None:
        self.position = position
        self._positions = positions
        self._now_ms = now_ms
        self._limits = limits
        self._in_flight = InFlightRanges()
        self._timer = ResettableTimer(timers, self._expire_locks)
        self._timer_ms: int | None = None  # when it rings
        self._frontier = position.mark  # nothing from here on was delivered since the start
        self._watchers: dict[object, Callable[[], None]] = {}
        self._next_readers: dict[object, Callable[[], None]] = {}
        self.is_reading = False  # a fetch reads; another one would read the same records

    # -- what there is to acquire

    @property
    def is_gone(self) -> bool:
        """Whether the position was deleted, perhaps with its partition."""
        return self.position.gone

    def next_offset(self) -> int | None:
        """Return the first offset that may be acquired; None while too much is in flight."""
        self.follow_start()
        free = self._in_flight.first_free
        if free is not None:
            return free
        if self._in_flight.records >= self._limits().locks_max:
            return None
        return self.position.first_missing(self._frontier)

    def skip(self, start: int, end: int) -> None:
        """Pass over offsets that have no record to deliver; acquired ones stay as they are."""
        for each in self._free_ranges(start, end):
            for whole in self._in_flight.cut_out(each.start, each.end):
                self._in_flight.remove(whole)
            self._positions.skip(self.position, each.start, each.end)

    def acquire(
        self, member_id: str, start: int, end: int, limits: AcquireLimits
    ) -> tuple[list[AcquiredRange], bool]:
        """Acquire the free records of a batch within limits; returns also whether that is all.

        A batch whose first record is within the limit is acquired as a whole, unless the limit is
        strict.
        """
        rules = self._limits()
        deadline_ms = self._now_ms() + rules.lock_ms
        acquired: list[AcquiredRange] = []
        left, is_over = limits.records, False
        for piece in self._free_ranges(start, end):
            is_full = self._in_flight.records >= rules.locks_max and piece.start >= self._frontier
            is_last_delivery = _is_last(piece, rules.delivery_count)
            waits = is_last_delivery and (bool(acquired) or not limits.is_first)
            is_over = is_full or waits or (left <= 0 and limits.is_strict)
            if is_over:
                break
            stop = min(piece.end, piece.start + left) if limits.is_strict else piece.end
            portion = _portion(piece, rules.delivery_count)
            is_over = piece.start + portion < stop or is_last_delivery
            stop = min(stop, piece.start + portion)
            self._acquire(member_id, piece.start, stop, piece.deliveries, deadline_ms)
            append_acquired(acquired, AcquiredRange(piece.start, stop, piece.deliveries + 1))
            left -= stop - piece.start
            if is_over:
                break
        if acquired:
            self._wait_for(deadline_ms)
        return acquired, is_over or left <= 0

    # -- what becomes of it

    def acknowledge(self, member_id: str, given: Iterable[Acknowledgement]) -> None:
        """Apply acknowledgements of a member, all or none; raises InvalidRecordState.

        Offsets below the mark are ignored: they are done already, or gone from the log.
        """
        self.follow_start()
        mark = self.position.mark
        checked = [each._replace(start=max(each.start, mark)) for each in given if each.end > mark]
        for each in checked:
            self._check_acquired(member_id, each.start, each.end)
        outcome = _Outcome(self._limits().delivery_count)
        renewed: list[InFlightRange] = []
        for start, end, kind in checked:
            for part in self._in_flight.cut_out(start, end):
                if kind is AcknowledgeType.RENEW:
                    renewed.append(part)
                else:
                    outcome.add(part, is_released=kind is AcknowledgeType.RELEASE)
        self._apply(outcome)
        for part in renewed:
            part.deadline_ms = self._now_ms() + self._limits().lock_ms

    def release_member(self, member_id: str) -> None:
        """Give back what a member has, as if the last delivery had not been: its session ended."""
        found = [each for each in self._in_flight if each.member_id == member_id]
        for each in found:
            self._in_flight.change(each, FREE, each.count - 1, 0)
        if found:
            self._notify()

    def follow_start(self) -> None:
        """Let go of records below the partition's start."""
        if not self._positions.follow_start(self.position):
            return
        mark = self.position.mark
        for each in self._in_flight.cut_out(0, mark):
            self._in_flight.remove(each)
        self._move_frontier(mark)

    def reset(self, mark: int) -> None:
        """Begin again at an offset."""
        self._in_flight.clear()
        self._frontier = mark
        self._notify()

    # -- who waits for records

    def watch(self, watcher: object, callback: Callable[[], None]) -> None:
        """Call back once, under this key, when records may be acquired again.

        While another fetch reads, that is when it has read.
        """
        watchers = self._next_readers if self.is_reading else self._watchers
        watchers[watcher] = callback

    def unwatch(self, watcher: object) -> None:
        """Withdraw a callback."""
        self._watchers.pop(watcher, None)
        self._next_readers.pop(watcher, None)

    def end_read(self) -> None:
        """Let another fetch read."""
        self.is_reading = False
        readers, self._next_readers = self._next_readers, {}
        for callback in readers.values():
            callback()

    def close(self) -> None:
        """Stop the timer and wake who waits: the position is deleted."""
        self._timer.stop()
        self._in_flight.clear()
        self._notify()

    # -- inside

    def _free_ranges(self, start: int, end: int) -> list[UnackedRange]:
        """Return the offsets of [start, end) that may be acquired, with their counts so far."""
        found: list[UnackedRange] = []
        below = min(end, self._frontier)
        if start < below:
            for each in self._in_flight.overlapping(start, below):
                if not each.is_acquired:
                    low, high = max(start, each.start), min(below, each.end)
                    found.append(UnackedRange(low, high, each.count))
        for low, high in self.position.missing(max(start, self._frontier), end):
            found += self._count_stored(low, high)
        return found

    def _count_stored(self, start: int, end: int) -> list[UnackedRange]:
        """Split offsets by the delivery counts that are stored from before a restart."""
        found: list[UnackedRange] = []
        for each in self.position.delivered:
            if start >= end or each.start >= end:
                break
            if each.end <= start:
                continue
            if start < each.start:
                found.append(UnackedRange(start, each.start, 0))
            start = max(start, each.start)
            found.append(UnackedRange(start, min(end, each.end), each.deliveries))
            start = found[-1].end
        if start < end:
            found.append(UnackedRange(start, end, 0))
        return found

    def _acquire(self, member_id: str, start: int, end: int, count: int, deadline_ms: int) -> None:
        if start >= self._frontier:
            self._in_flight.add(InFlightRange(start, end, count + 1, member_id, deadline_ms))
            self._move_frontier(end)
            return
        for each in self._in_flight.cut_out(start, end):
            self._in_flight.change(each, member_id, each.count + 1, deadline_ms)

    def _move_frontier(self, end: int) -> None:
        """Count everything below `end` as delivered; what is not done there is free."""
        if end <= self._frontier:
            return
        for start, stop in self.position.missing(self._frontier, end):
            self._add_missing(start, stop)
        self._frontier = end

    def _add_missing(self, start: int, end: int) -> None:
        for each in self._in_flight.overlapping(start, end):
            if start < each.start:
                self._add_free(start, each.start)
            start = max(start, each.end)
        if start < end:
            self._add_free(start, end)

    def _add_free(self, start: int, end: int) -> None:
        for each in self._count_stored(start, end):
            self._in_flight.add(InFlightRange(*each))

    def _check_acquired(self, member_id: str, start: int, end: int) -> None:
        """Refuse offsets that the member has not acquired."""
        at = start
        for each in self._in_flight.overlapping(start, end):
            if each.start > at or each.member_id != member_id:
                break
            at = each.end
        if at < end:
            raise InvalidRecordState(
                f"the record at offset {max(at, start)} is not acquired by this member"
            )

    def _apply(self, outcome: _Outcome) -> None:
        """Store an outcome, then move the ranges; a refusal of the journal changes nothing."""
        if not outcome.ranges:
            return
        self._positions.write(self.position, outcome.done, outcome.released)
        for part, is_done in outcome.ranges.items():
            if is_done:
                self._in_flight.remove(part)
            else:
                self._in_flight.change(part, FREE, part.count, 0)
        self._notify()

    def _wait_for(self, deadline_ms: int) -> None:
        """Ring at a deadline, unless the timer rings earlier."""
        if self._timer_ms is None or deadline_ms < self._timer_ms:
            self._timer_ms = deadline_ms
            self._timer.set(max(0, deadline_ms - self._now_ms()))

    def _expire_locks(self) -> None:
        """Give back what was not acknowledged in time."""
        self._timer_ms = None
        now_ms = self._now_ms()
        outcome = _Outcome(self._limits().delivery_count)
        for each in self._in_flight:
            if each.is_acquired and each.deadline_ms <= now_ms:
                outcome.add(each, is_released=True)
        try:
            self._apply(outcome)
        except BrokerError:  # the disk is full: the locks hold a little longer
            self._wait_for(now_ms + RETRY_MS)
            return
        following = self._in_flight.first_deadline_ms
        if following is not None:
            self._wait_for(following)

    def _notify(self) -> None:
        watchers, self._watchers = self._watchers, {}
        for callback in watchers.values():
            callback()


def _is_last(piece: UnackedRange, delivery_count: int) -> bool:
    """Whether records are delivered for the last time, alone."""
    return piece.deliveries >= THROTTLED_FROM and piece.deliveries + 1 >= delivery_count


def _portion(piece: UnackedRange, delivery_count: int) -> int:
    """Return how many records are delivered together: fewer, the more often they were before."""
    if _is_last(piece, delivery_count):
        return 1
    halved_from = max(THROTTLED_FROM, (delivery_count + 1) // 2)
    size = piece.end - piece.start
    return max(1, size >> max(0, piece.deliveries - halved_from + 1))


def append_acquired(acquired: list[AcquiredRange], added: AcquiredRange) -> None:
    """Append a range, or make the last one longer."""
    if acquired and acquired[-1].end == added.start and acquired[-1].deliveries == added.deliveries:
        acquired[-1] = acquired[-1]._replace(end=added.end)
    else:
        acquired.append(added)
