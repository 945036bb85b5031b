"""Subscriptions against what must be true of them, whatever members do and in whatever order.

The world is a list of entries, who has which of them, and which offsets are acked. Nothing of how
the subscription finds its answers is repeated here: each entry that is handed out is held against
the rules of its kind, and in the end everything must have been acked by some consumer.
"""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from trilogue.broker.cursors.position import Position
from trilogue.broker.subscriptions.consumer import SubscriptionConsumer
from trilogue.broker.subscriptions.shared_dispatch import SharedLimits
from trilogue.broker.subscriptions.subscription import NOTHING, Subscription, SubscriptionType

LIMITS = SharedLimits(
    member_unacked=12, unacked=30, look_ahead_per_member=6, look_ahead=20, delayed=5
)
RUN = settings(max_examples=25, stateful_step_count=40, deadline=None)
KEYS = 5
MEMBERS = 5


class World(RuleBasedStateMachine):
    kind = SubscriptionType.SHARED
    hashing = True
    sticky = False
    out_of_order = False

    def __init__(self) -> None:
        super().__init__()
        self.acked = Position(0)
        self.subscription = Subscription(self.acked, limits=LIMITS, hashing=self.hashing)
        self.entries: list[tuple[int, int, int, int]] = []  # base, end, key, due; key -1 is hidden
        self.end = 0
        self.now_ms = 0
        self.has: dict[int, SubscriptionConsumer] = {}  # base -> who has it
        self.given_back: dict[int, int] = {}
        self.names = 0

    @property
    def members(self) -> list[SubscriptionConsumer]:
        return list(self.subscription.members)

    # ---- what happens

    @initialize()
    def begin(self) -> None:
        self.join(0, 0)
        self.append(1, 0, 0)

    @rule(keys=st.lists(st.integers(0, KEYS - 1), min_size=1, max_size=8))
    def append_some(self, keys: list[int]) -> None:
        for key in keys:
            self.append(1 + key % 2, key, 0)

    @rule(count=st.integers(1, 4), key=st.integers(-1, KEYS - 1), later=st.integers(0, 3))
    def append(self, count: int, key: int, later: int) -> None:
        due = self.now_ms + later * 10 if later == 3 and not self.kind.is_single else -1
        self.entries.append((self.end, self.end + count, key, due))
        self.end += count

    @precondition(lambda self: len(self.members) < MEMBERS)
    @rule(priority=st.integers(0, 1), name=st.integers(0, 3))
    def join(self, priority: int, name: int) -> None:
        if self.kind is SubscriptionType.EXCLUSIVE and self.members:
            return
        ranges = None
        if self.sticky:
            taken = {member.ranges for member in self.members}
            free = [((at * 13_107, (at + 1) * 13_107 - 1),) for at in range(MEMBERS)]
            ranges = next(each for each in free if each not in taken)
        self.names += 1
        member = SubscriptionConsumer(
            f"{name}", priority=priority, ranges=ranges, out_of_order=self.out_of_order
        )
        self.subscription.join(member, self.kind)

    @precondition(lambda self: len(self.members) > 1)
    @rule(which=st.integers(0, 9))
    def leave(self, which: int) -> None:
        member = self.members[which % len(self.members)]
        self.subscription.leave(member)
        self._lost(member)

    def _lost(self, member: SubscriptionConsumer) -> None:
        self.has = {base: each for base, each in self.has.items() if each is not member}

    @rule(which=st.integers(0, 9), count=st.integers(1, 20))
    def add_demand(self, which: int, count: int) -> None:
        if self.members:
            self.subscription.add_demand(self.members[which % len(self.members)], count)

    @rule(which=st.integers(0, 9), count=st.integers(1, 20))
    def demand_and_receive(self, which: int, count: int) -> None:
        self.add_demand(which, count)
        self.hand_out(50)

    @rule(turns=st.integers(1, 30))
    def hand_out(self, turns: int) -> None:
        subscription = self.subscription
        subscription.begin_turn()
        for _ in range(turns):
            offset = subscription.next_offset()
            if offset == NOTHING or offset >= self.end:
                break
            base, end, key, due = next(each for each in self.entries if offset < each[1])
            assert base <= offset, "there are no holes here"
            if key < 0:
                subscription.skip(base, end)
                self.acked.ack(base, end)
                continue
            before = {member.joined: member.demand for member in self.members}
            member = subscription.offer(base, end, self._key(key), due, self.now_ms)
            if member is not None:
                assert before[member.joined] > 0, "it asked for nothing"
                assert due <= self.now_ms, "too early"
                self._check(base, end, key, member)
                self.has[base] = member

    def _key(self, key: int) -> int:
        return key * 13_107 + 7 if self.kind is SubscriptionType.KEY_SHARED else -1

    def _check(self, base: int, end: int, key: int, member: SubscriptionConsumer) -> None:
        assert member in self.members
        assert self.acked.missing(base, end), "all of it was acked"
        if self.kind.is_single:
            assert member is self.subscription.active
            return
        assert base not in self.has, "somebody has it"
        assert self.subscription.redeliveries(base) == self.given_back.get(base, 0)
        if self.kind is not SubscriptionType.KEY_SHARED:
            return
        for other, stop, other_key, due in self.entries:
            if other_key != key or not self.acked.missing(other, stop):
                continue
            if not self.out_of_order:
                assert self.has.get(other, member) is member, "two work on one key"
            if other < base and due < 0:
                assert other in self.has, "overtaken by its own key"

    @precondition(lambda self: self.has)
    @rule(which=st.integers(0, 99), part=st.integers(0, 3), foreign=st.booleans())
    def ack(self, which: int, part: int, foreign: bool) -> None:
        base = sorted(self.has)[which % len(self.has)]
        member = self.has[base]
        end = next(each[1] for each in self.entries if each[0] == base)
        if part and base + part < end:
            self.acked.ack(base, base + part)
        else:
            self.acked.ack(base, end)
        if foreign:
            member = self.members[which % len(self.members)]
        self.subscription.settle(member, base)
        if not self.acked.missing(base, end):
            del self.has[base]

    @precondition(lambda self: self.members)
    @rule(which=st.integers(0, 9), several=st.booleans())
    def give_back(self, which: int, several: bool) -> None:
        member = self.members[which % len(self.members)]
        mine = [base for base, each in self.has.items() if each is member]
        bases = None if several else mine[:1]
        self.subscription.give_back(member, bases)
        if self.kind.is_single:
            return
        for base in mine if several else mine[:1]:
            del self.has[base]
            self.given_back[base] = self.given_back.get(base, 0) + 1

    @rule(later=st.integers(1, 40))
    def wait(self, later: int) -> None:
        self.now_ms += later
        self.subscription.release_due(self.now_ms)

    @precondition(lambda self: self.names % 3 == 2)
    @rule(until=st.integers(0, 99))
    def ack_from_elsewhere(self, until: int) -> None:
        """A mark is moved up by administration, or because messages are too old."""
        until = min(until, self.end)
        edge = max((end for _, end, _, _ in self.entries if end <= until), default=0)
        self.acked.ack_until(edge)
        self.subscription.settle_all()
        self.has = {
            base: member
            for base, member in self.has.items()
            if self.acked.missing(base, next(e[1] for e in self.entries if e[0] == base))
        }

    @precondition(lambda self: self.names % 4 == 3)
    @rule(mark=st.integers(0, 99))
    def seek(self, mark: int) -> None:
        self.acked.reset(min(mark, self.end))
        self.subscription.reset()
        self.has.clear()
        self.given_back.clear()

    # ---- what must hold

    @invariant()
    def counts_are_right(self) -> None:
        if self.kind.is_single:
            return
        for member in self.members:
            mine = [base for base, each in self.has.items() if each is member]
            assert sorted(member.handed) == sorted(mine)
            left = sum(
                stop - start
                for base in mine
                for start, stop in self.acked.missing(
                    base, next(each[1] for each in self.entries if each[0] == base)
                )
            )
            assert member.unacked == left
        assert self.subscription.unacked == sum(member.unacked for member in self.members)

    def teardown(self) -> None:
        """Nothing is lost: with members that take and ack everything, everything is acked."""
        if not self.members or self.sticky:
            return
        self.now_ms += 1_000
        for _ in range(3 * len(self.entries) + 3):
            self.subscription.release_due(self.now_ms)
            for member in self.members:
                self.subscription.add_demand(member, 100)
            self.hand_out(100)
            for base, member in list(self.has.items()):
                end = next(each[1] for each in self.entries if each[0] == base)
                self.acked.ack(base, end)
                self.subscription.settle(member, base)
            self.has.clear()
            if self.acked.mark == self.end:
                break
        assert self.acked.mark == self.end, "something was lost"


class KeyShared(World):
    kind = SubscriptionType.KEY_SHARED


class Halved(KeyShared):
    hashing = False


class Sticky(KeyShared):
    sticky = True


class OutOfOrder(KeyShared):
    out_of_order = True


class Exclusive(World):
    kind = SubscriptionType.EXCLUSIVE


class Failover(World):
    kind = SubscriptionType.FAILOVER


@pytest.mark.parametrize(
    "world",
    [World, KeyShared, Halved, Sticky, OutOfOrder, Exclusive, Failover],
    ids=lambda world: world.__name__,
)
def test_subscriptions_keep_their_promises(world: type[World]) -> None:
    """No message lost; on shared kinds none with two; keys in order; demand is respected."""
    run_state_machine_as_test(world, settings=RUN)
