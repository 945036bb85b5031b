"""A share partition against a model of one state per offset, and its journal against its memory."""

from __future__ import annotations

import random

import pytest

from tests.broker.fakes import FakeTimers
from trilogue.broker.cursors.share_positions import SharePositions
from trilogue.broker.errors import DiskFull, InvalidRecordState
from trilogue.broker.groups.share.partition import (
    Acknowledgement,
    AcknowledgeType,
    AcquiredRange,
    AcquireLimits,
    ShareLimits,
)
from trilogue.broker.groups.share.partitions import SharePartitions
from trilogue.log.errors import DiskFull as LogDiskFull

ACCEPT, RELEASE, REJECT = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT
RENEW, GAP = AcknowledgeType.RENEW, AcknowledgeType.GAP
LOCK_S = 30
ANY = AcquireLimits(1_000)


class Bounds:
    start_offset = 0
    high_watermark = 1_000_000


class Room:
    """One share partition, its facts, and a clock that only tests move."""

    def __init__(self, limits: ShareLimits | None = None, mark: int = 0) -> None:
        self.timers = FakeTimers()
        self.bounds = Bounds()
        self.facts: list[tuple[int, bytes]] = []
        self.limits = limits or ShareLimits()
        self.is_full = False
        self.positions = self.make_positions()
        self.shares = SharePartitions(
            self.positions, self.timers, self.timers.now_ms, lambda _: self.limits
        )
        self.share = self.shares.start("g", 1, mark)

    def make_positions(self) -> SharePositions:
        positions = SharePositions(lambda _: True, lambda _: self.bounds)
        positions.attach(self)
        return positions

    def add_fact(self, kind: int, payload: bytes, _acks_from_memory: bool = False) -> None:
        if self.is_full:
            raise LogDiskFull("full")
        self.facts.append((kind, payload))

    def on_commit(self, callback) -> None:
        callback(None)

    def acquire(self, member: str, start: int, end: int, **how) -> list[AcquiredRange]:
        limits = AcquireLimits(how.pop("records", 1_000), **how)
        return self.share.acquire(member, start, end, limits)[0]

    def ack(self, member: str, start: int, end: int, kind: AcknowledgeType) -> None:
        self.share.acknowledge(member, [Acknowledgement(start, end, kind)])

    def restarted(self) -> Room:
        """Another room with the journal of this one."""
        other = Room(self.limits)
        other.facts = [*self.facts]
        other.positions = SharePositions(lambda _: True, lambda _: self.bounds)
        for kind, payload in self.facts:
            other.positions.replay(kind, payload)
        other.positions.attach(other)
        other.shares = SharePartitions(
            other.positions, other.timers, other.timers.now_ms, lambda _: other.limits
        )
        found = other.shares.find_partition("g", 1)
        assert found is not None
        other.share = found
        return other


def test_a_batch_is_acquired_once_and_accepted():
    room = Room()

    assert room.acquire("a", 0, 10) == [(0, 10, 1)]
    assert room.acquire("b", 0, 10) == []
    room.ack("a", 0, 10, ACCEPT)

    assert room.share.position.mark == 10
    assert room.share.next_offset() == 10


def test_a_record_that_another_member_acquired_is_not_acknowledged():
    room = Room()
    room.acquire("a", 0, 10)

    with pytest.raises(InvalidRecordState):
        room.ack("b", 0, 10, ACCEPT)
    with pytest.raises(InvalidRecordState):
        room.ack("a", 5, 11, ACCEPT)
    room.ack("a", 5, 6, ACCEPT)
    with pytest.raises(InvalidRecordState):
        room.ack("a", 4, 7, ACCEPT)

    assert room.share.position.ranges() == [(5, 6)]


def test_parts_of_a_batch_go_different_ways():
    room = Room()
    room.acquire("a", 0, 9)

    for start, kind in ((0, ACCEPT), (3, RELEASE), (6, REJECT)):
        room.ack("a", start, start + 3, kind)

    assert room.share.position.mark == 3
    assert room.share.next_offset() == 3
    assert room.acquire("b", 0, 9) == [(3, 6, 2)]


def test_no_record_is_delivered_more_often_than_the_limit():
    room = Room(ShareLimits(delivery_count=3))
    for count in (1, 2, 3):
        assert room.acquire("a", 0, 1) == [(0, 1, count)]
        room.ack("a", 0, 1, RELEASE)

    assert room.acquire("a", 0, 1) == []
    assert room.share.position.mark == 1


def test_the_last_delivery_of_a_record_is_alone():
    room = Room(ShareLimits(delivery_count=5))
    sizes = []
    for _ in range(6):
        ((start, end, count),) = room.acquire("a", 0, 8)
        sizes.append((end - start, count))
        room.ack("a", start, end, RELEASE)

    assert sizes == [(8, 1), (8, 2), (8, 3), (4, 4), (1, 5), (1, 5)]


def test_a_lock_times_out_and_the_record_is_delivered_again():
    room = Room()
    woken: list[int] = []
    room.acquire("a", 0, 5)
    room.share.watch("waiting", lambda: woken.append(1))

    room.timers.advance(LOCK_S - 1)
    assert room.acquire("b", 0, 5) == []
    room.timers.advance(2)

    assert woken == [1]
    assert room.acquire("b", 0, 5) == [(0, 5, 2)]
    with pytest.raises(InvalidRecordState):
        room.ack("a", 0, 5, ACCEPT)


def test_a_renewed_lock_begins_again():
    room = Room()
    room.acquire("a", 0, 5)
    room.timers.advance(LOCK_S - 5)
    room.ack("a", 0, 3, RENEW)

    room.timers.advance(10)

    assert room.acquire("b", 0, 5) == [(3, 5, 2)]
    room.ack("a", 0, 3, ACCEPT)
    assert room.share.position.mark == 3


def test_the_end_of_a_session_takes_its_deliveries_back():
    room = Room()
    room.acquire("a", 0, 5)
    room.acquire("b", 5, 8)

    room.share.release_member("a")

    assert room.acquire("c", 0, 8) == [(0, 5, 1)]


def test_a_strict_limit_cuts_a_batch_and_a_soft_one_does_not():
    room = Room()

    assert room.acquire("a", 0, 10, records=3, is_strict=True) == [(0, 3, 1)]
    assert room.acquire("a", 0, 10, records=3) == [(3, 10, 1)]


def test_no_new_records_are_acquired_while_too_many_are_in_flight():
    room = Room(ShareLimits(locks_max=10))
    room.acquire("a", 0, 10)

    assert room.share.next_offset() is None
    assert room.acquire("a", 10, 20) == []
    room.ack("a", 3, 4, RELEASE)
    assert room.share.next_offset() == 3
    room.ack("a", 0, 3, ACCEPT)
    room.acquire("a", 3, 4)
    assert room.share.next_offset() == 10


def test_records_that_retention_removed_are_let_go():
    room = Room()
    room.acquire("a", 0, 10)
    room.ack("a", 2, 4, RELEASE)

    room.bounds.start_offset = 5

    assert room.share.next_offset() == 10
    room.ack("a", 0, 10, ACCEPT)  # what is below the start is ignored
    assert room.share.position.mark == 10


def test_a_refusal_of_the_journal_changes_nothing():
    room = Room()
    room.acquire("a", 0, 10)
    room.is_full = True

    with pytest.raises(DiskFull):
        room.ack("a", 0, 10, ACCEPT)
    room.timers.advance(LOCK_S + 1)  # the lock cannot be given back either
    room.is_full = False

    room.ack("a", 0, 4, ACCEPT)
    room.timers.advance(2)
    assert room.acquire("b", 0, 10) == [(4, 10, 2)]


def test_a_reset_moves_the_start_of_a_group():
    room = Room()
    room.acquire("a", 0, 10)
    room.ack("a", 0, 5, ACCEPT)

    room.shares.reset("g", 1, 2)

    assert room.share.next_offset() == 2
    assert room.acquire("b", 0, 10) == [(2, 10, 1)]


def test_a_snapshot_keeps_positions_and_counts():
    room = Room()
    room.acquire("a", 0, 10)
    room.ack("a", 2, 4, ACCEPT)
    room.ack("a", 6, 8, RELEASE)

    (row,) = room.positions.snapshot()
    other = room.make_positions()
    other.load(row.value)

    found = other.find_position("g", 1)
    assert found is not None
    assert (found.mark, found.ranges(), found.delivered) == (0, [(2, 4)], [(6, 8, 1)])


def test_positions_of_a_deleted_group_stay_away():
    room = Room()
    room.acquire("a", 0, 10)
    room.ack("a", 0, 5, ACCEPT)

    assert room.shares.remove("g").done
    assert room.share.is_gone

    other = room.make_positions()
    for kind, payload in room.facts:
        other.replay(kind, payload)
    assert other.find_position("g", 1) is None


class Model:
    """A state for each offset. After a restart acquired records are free, with the stored count."""

    end, limit = 40, 4

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.room = Room(ShareLimits(delivery_count=self.limit, locks_max=15))
        self.owners: dict[int, str] = {}
        self.counts = dict.fromkeys(range(self.end), 0)
        self.stored = dict(self.counts)
        self.done: set[int] = set()

    def step(self) -> None:
        member = self.chance.choice("abc")
        start = self.chance.randrange(self.end)
        stop = min(self.end, start + self.chance.randrange(1, 9))
        event = self.chance.randrange(10)
        if event < 4:
            self.acquire(member, start, stop)
        elif event < 8:
            self.acknowledge(member, start, stop)
        elif event == 8:
            self.release(member)
        else:
            self.restart()

    def acquire(self, member: str, start: int, stop: int) -> None:
        how = {"records": self.chance.randrange(1, 12), "is_strict": self.chance.random() < 0.5}
        for low, high, count in self.room.acquire(member, start, stop, **how):
            for offset in range(low, high):
                assert offset not in self.done
                assert offset not in self.owners
                self.counts[offset] += 1
                assert self.counts[offset] == count <= self.limit
                self.owners[offset] = member

    def acknowledge(self, member: str, start: int, stop: int) -> None:
        kind = self.chance.choice([ACCEPT, RELEASE, REJECT, GAP, RENEW])
        named = range(max(start, self.room.share.position.mark), stop)
        if any(self.owners.get(offset) != member for offset in named):
            with pytest.raises(InvalidRecordState):
                self.room.ack(member, start, stop, kind)
            return
        self.room.ack(member, start, stop, kind)
        for offset in named if kind is not RENEW else ():
            del self.owners[offset]
            if kind is not RELEASE or self.counts[offset] >= self.limit:
                self.done.add(offset)
            self.stored[offset] = self.counts[offset]

    def release(self, member: str) -> None:
        self.room.share.release_member(member)
        for offset in [each for each, owner in self.owners.items() if owner == member]:
            del self.owners[offset]
            self.counts[offset] -= 1

    def restart(self) -> None:
        self.room = self.room.restarted()
        self.counts = dict(self.stored)
        self.owners.clear()

    def check(self) -> None:
        share = self.room.share
        assert {each for each in range(self.end) if share.position.contains(each)} == self.done
        first = share.next_offset()
        if first is not None and first < self.end:
            assert first not in self.done
            assert first not in self.owners


@pytest.mark.parametrize("seed", range(12))
def test_any_course_of_events_agrees_with_a_model(seed: int):
    model = Model(seed)
    for _ in range(400):
        model.step()
        model.check()
