"""Pending acks of a subscription, compared with a set of offsets for each transaction."""

from __future__ import annotations

import random
from typing import Final

import pytest

from trilogue.broker.cursors.cursor_facts import NOTHING_BELOW, subscription_key
from trilogue.broker.cursors.position import Cursor
from trilogue.broker.errors import TooManyTransactions, TransactionConflict
from trilogue.broker.transactions.pending_acks import REMOVED_SINGLY_MAX, PendingAcks, Release
from trilogue.broker.transactions.records import (
    DeferredAck,
    decode_pending_ack,
    encode_pending_ack,
)
from trilogue.broker.transactions.transaction import VersionedContents, merge_acks

KEY: Final = subscription_key(7, "s")
END: Final = 40
NAMES: Final = ("a", "b", "c")


def a_cursor() -> Cursor:
    return Cursor(KEY, 0, 5, {})


def ranges_of(offsets: set[int]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for offset in sorted(offsets):
        if found and found[-1][1] == offset:
            found[-1] = found[-1][0], offset + 1
        else:
            found.append((offset, offset + 1))
    return found


def individual(*ranges: tuple[int, int]) -> DeferredAck:
    return DeferredAck(KEY, 5, NOTHING_BELOW, ranges)


def cumulative(until: int) -> DeferredAck:
    return DeferredAck(KEY, 5, until)


class World:
    """The pending acks under test, a cursor, and the sets that they stand for."""

    def __init__(self) -> None:
        self.pending = PendingAcks()
        self.cursor = a_cursor()
        self.acked: set[int] = set()
        self.sets: dict[str, set[int]] = {}
        self.acks: dict[str, list[DeferredAck]] = {}
        self.releases: list[Release] = []
        self.pending.listeners.append(self.releases.append)

    def others(self, name: str) -> set[int]:
        return set().union(*(found for each, found in self.sets.items() if each != name))

    def try_ack(self, name: str, ack: DeferredAck, offsets: set[int]) -> None:
        if ack.until > NOTHING_BELOW:
            wanted = not offsets & self.others(name)
            wanted = wanted and ack.until > max(self.cursor.mark, self.cumulative(name))
        else:
            taken = self.acked | self.others(name)
            wanted = not offsets & taken and not offsets <= self.sets.get(name, set())
        try:
            self.pending.check(name, self.cursor, ack)
        except TransactionConflict:
            assert not wanted, (name, ack)
            return
        assert wanted, (name, ack)
        self.pending.add(name, ack)
        self.sets.setdefault(name, set()).update(offsets)
        self.acks.setdefault(name, []).append(ack)

    def cumulative(self, name: str) -> int:
        return max((ack.until for ack in self.acks.get(name, ())), default=0)

    def end(self, name: str, *, commit: bool) -> None:
        if commit:
            for ack in merge_acks(self.acks.get(name, ())):
                self.cursor.ack_until(ack.until)
                for each in ack.ranges:
                    self.cursor.ack(*each)
            self.acked |= self.sets.get(name, set())
        self.pending.release(name, committed=commit)
        found = self.sets.pop(name, set())
        self.acks.pop(name, None)
        if found and not commit:
            assert self.releases[-1].first <= min(found)

    def check(self) -> None:
        claimed = self.acked.union(*self.sets.values())
        view = self.pending.claim(self.cursor)
        assert view.missing(0, END) == ranges_of(set(range(END)) - claimed)
        for offset in range(END):
            free = (each for each in range(offset, END + 1) if each not in claimed)
            assert view.first_missing(offset) == next(free)
        assert view.acked_above or not (claimed - set(range(view.mark)))
        if not self.sets:
            assert view is self.cursor


@pytest.mark.parametrize("seed", range(30))
def test_claimed_offsets_are_those_of_the_sets(seed: int):
    chance, world = random.Random(seed), World()
    for _ in range(200):
        name = chance.choice(NAMES)
        act = chance.random()
        if act < 0.55:
            start = chance.randrange(END)
            end = min(END, start + chance.randint(1, 4))
            world.try_ack(name, individual((start, end)), set(range(start, end)))
        elif act < 0.7:
            until = chance.randint(1, END)
            world.try_ack(name, cumulative(until), set(range(until)) - world.acked)
        else:
            world.end(name, commit=act < 0.8)
        world.check()


@pytest.mark.parametrize("count", [REMOVED_SINGLY_MAX, REMOVED_SINGLY_MAX + 1])
def test_ranges_of_a_transaction_are_removed_from_between_those_of_another(count: int):
    pending, cursor = PendingAcks(), a_cursor()
    for number in range(count):
        pending.add("a", individual((4 * number, 4 * number + 1)))
        pending.add("b", individual((4 * number + 2, 4 * number + 3)))

    pending.release("a", committed=False)

    wanted = ranges_of({4 * number + 2 for number in range(count)})
    claimed = pending.of_subscription(cursor)
    assert claimed is not None
    assert len(claimed) == count
    free = ranges_of(set(range(4 * count)) - {start for start, _ in wanted})
    assert claimed.missing(0, 4 * count) == free


def test_small_acks_become_few():
    """Those that are durable are merged; newer ones stay as they are."""
    contained = VersionedContents()
    for change in range(1, 5_001):
        contained.acks.add(change, individual((change, change + 1)), change - 1)

    assert len(contained.acks) < 1_100
    (ack,) = contained.until(5_000).acks
    assert list(ack.ranges) == [(1, 5_001)]
    (ack,) = contained.until(4_999).acks
    assert list(ack.ranges) == [(1, 5_000)]


def test_pending_acks_of_a_subscription_are_bounded():
    pending = PendingAcks(ranges_max=2)
    pending.add("a", individual((1, 2), (3, 4)))

    with pytest.raises(TooManyTransactions):
        pending.check("b", a_cursor(), individual((5, 6)))


@pytest.mark.parametrize("ack", [individual(), individual((1, 2), (5, 9)), cumulative(12)])
def test_an_ack_in_a_transaction_is_read_as_it_was_written(ack: DeferredAck):
    name, found = decode_pending_ack(encode_pending_ack("tx", ack))

    assert name == "tx"
    assert found._replace(ranges=tuple(found.ranges)) == ack
