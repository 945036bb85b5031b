"""Rules of subscriptions, one by one; together they are tried in test_subscription_model.py."""

from __future__ import annotations

import pytest

from trilogue.broker.cursors.cursor_facts import NOTHING_BELOW, subscription_key
from trilogue.broker.cursors.position import Position
from trilogue.broker.errors import KeyRangesTaken, SubscriptionBusy
from trilogue.broker.subscriptions.consumer import DEMAND_MAX, SubscriptionConsumer
from trilogue.broker.subscriptions.shared_dispatch import SharedLimits
from trilogue.broker.subscriptions.subscription import NOTHING, Subscription, SubscriptionType
from trilogue.broker.transactions.pending_acks import ClaimedOffsets, SubscriptionAcks
from trilogue.broker.transactions.records import DeferredAck


class Room:
    """A subscription of one partition whose entries have `size` messages each."""

    def __init__(
        self, kind: SubscriptionType, *, size: int = 1, index: int = -1, **limits: int
    ) -> None:
        self.kind = kind
        self.size = size
        self.acked = Position(0)
        self.subscription = Subscription(
            self.acked, partition_index=index, limits=SharedLimits(**limits)
        )
        self.keys: dict[int, int] = {}
        self.due: dict[int, int] = {}

    def join(self, name: str = "", *, demand: int = 0, **how: object) -> SubscriptionConsumer:
        member = SubscriptionConsumer(name, **how)
        self.subscription.join(member, self.kind)
        self.subscription.add_demand(member, demand)
        return member

    def hand_out(self, end: int, *, now_ms: int = 0) -> list[tuple[int, str]]:
        """Let everything below `end` go to who takes it: (base, who)."""
        found = []
        self.subscription.release_due(now_ms)
        self.subscription.begin_turn()
        while (offset := self.subscription.next_offset()) != NOTHING and offset < end:
            base = offset - offset % self.size
            key = self.keys.get(base, 0 if self.kind is SubscriptionType.KEY_SHARED else -1)
            member = self.subscription.offer(
                base, base + self.size, key, self.due.get(base, -1), now_ms
            )
            if member is not None:
                found.append((base, member.name))
        return found

    def ack(self, member: SubscriptionConsumer, base: int) -> None:
        self.acked.ack(base, base + self.size)
        self.subscription.settle(member, base)


def bases(found: list[tuple[int, str]]) -> list[int]:
    return [base for base, _ in found]


# ---- who may take part


def test_an_exclusive_subscription_has_one_member():
    room = Room(SubscriptionType.EXCLUSIVE)
    room.join("a")

    with pytest.raises(SubscriptionBusy):
        room.join("b")


@pytest.mark.parametrize("kind", SubscriptionType)
@pytest.mark.parametrize("other", SubscriptionType)
def test_subscription_type_cannot_change_while_a_consumer_is_connected(kind, other):
    if kind is other:
        return
    room = Room(kind)
    member = room.join("a")

    with pytest.raises(SubscriptionBusy):
        room.subscription.join(SubscriptionConsumer("b"), other)
    room.subscription.leave(member)
    room.subscription.join(SubscriptionConsumer("b"), other)

    assert room.subscription.kind is other


def test_sticky_and_automatic_keys_do_not_mix():
    room = Room(SubscriptionType.KEY_SHARED)
    room.join("a", ranges=((0, 9),))

    with pytest.raises(SubscriptionBusy):
        room.join("b")


def test_refused_consumer_reserves_no_key_ranges():
    room = Room(SubscriptionType.KEY_SHARED)
    room.join("a", ranges=((0, 9),))

    with pytest.raises(KeyRangesTaken):
        room.join("b", ranges=((10, 19), (9, 9)))
    room.join("c", ranges=((10, 19),))

    assert [member.name for member in room.subscription.members] == ["a", "c"]


# ---- demand


@pytest.mark.parametrize(
    "kind", [SubscriptionType.EXCLUSIVE, SubscriptionType.SHARED, SubscriptionType.KEY_SHARED]
)
def test_demand_counts_messages_and_an_entry_is_not_split(kind):
    room = Room(kind, size=4)
    member = room.join("a", demand=5)

    assert bases(room.hand_out(100)) == [0, 4]
    assert member.demand == -3
    room.subscription.add_demand(member, 3)
    assert room.hand_out(100) == []
    room.subscription.add_demand(member, 1)
    assert bases(room.hand_out(100)) == [8]


def test_demand_is_bounded_and_never_goes_back():
    member = SubscriptionConsumer("a")

    member.add_demand(2**32 - 1)
    member.add_demand(-5)
    member.add_demand(2**32 - 1)

    assert member.demand == DEMAND_MAX


def test_acked_messages_of_an_entry_use_no_permits():
    room = Room(SubscriptionType.SHARED, size=4)
    room.acked.ack(1, 3)
    member = room.join("a", demand=3)

    assert bases(room.hand_out(100)) == [0, 4]
    assert member.demand == -3
    assert member.unacked == 6


def test_stuck_consumer_gets_no_messages_and_the_others_continue():
    room = Room(SubscriptionType.SHARED)
    slow, quick = room.join("slow", demand=100), room.join("quick", demand=100)

    room.subscription.set_waits(slow, waits=True)
    assert {"quick"} == {name for _, name in room.hand_out(30)}
    room.subscription.set_waits(slow, waits=False)
    room.subscription.set_waits(quick, waits=True)
    assert {"slow"} == {name for _, name in room.hand_out(40)}


# ---- exclusive and failover


def test_the_active_member_is_the_first_by_priority_then_by_name():
    room = Room(SubscriptionType.FAILOVER)
    room.join("b", priority=1)
    room.join("z")
    room.join("a", priority=1)
    assert room.subscription.active.name == "z"
    room.join("y")
    assert room.subscription.active.name == "y"


def test_partitions_of_a_topic_have_their_active_members_in_turn():
    active = []
    for index in range(4):
        room = Room(SubscriptionType.FAILOVER, index=index)
        for name in "cab":
            room.join(name)
        room.join("0", priority=1)
        active.append(room.subscription.active.name)

    assert active == ["a", "b", "c", "a"]


def test_a_takeover_hands_out_what_the_one_before_has_not_acked_in_order():
    room = Room(SubscriptionType.FAILOVER)
    first = room.join("a", demand=10)
    room.join("b", demand=10)
    room.hand_out(6)
    room.ack(first, 0)
    room.ack(first, 3)

    room.subscription.leave(first)

    assert room.hand_out(6) == [(1, "b"), (2, "b"), (4, "b"), (5, "b")]


def test_giving_back_begins_again_at_the_first_unacked_message():
    room = Room(SubscriptionType.EXCLUSIVE)
    member = room.join("a", demand=100)
    room.hand_out(4)
    room.ack(member, 1)

    room.subscription.give_back(member, [3], epoch=7)

    assert bases(room.hand_out(4)) == [0, 2, 3]
    assert member.epoch == 7


def test_an_epoch_does_not_go_back():
    room = Room(SubscriptionType.EXCLUSIVE)
    member = room.join("a", epoch=5)

    room.subscription.give_back(member, None, epoch=3)

    assert member.epoch == 5


def test_only_the_active_member_gives_back():
    room = Room(SubscriptionType.FAILOVER)
    room.join("a", demand=100)
    other = room.join("b", demand=100)
    room.hand_out(4)

    room.subscription.give_back(other)

    assert room.hand_out(4) == []


# ---- shared


def test_members_have_turns_of_twenty_messages():
    room = Room(SubscriptionType.SHARED)
    room.join("a", demand=100)
    room.join("b", demand=100)

    found = room.hand_out(60)

    assert [name for _, name in found] == ["a"] * 20 + ["b"] * 20 + ["a"] * 20


def test_messages_that_come_one_by_one_go_round():
    room = Room(SubscriptionType.SHARED)
    room.join("a", demand=100)
    room.join("b", demand=100)

    found = [room.hand_out(end)[0][1] for end in range(1, 5)]

    assert found == ["a", "b", "a", "b"]


def test_a_lower_priority_number_is_served_first():
    room = Room(SubscriptionType.SHARED)
    room.join("second", priority=1, demand=10)
    room.join("first", demand=3)

    assert [name for _, name in room.hand_out(5)] == ["first"] * 3 + ["second"] * 2


def test_messages_of_a_lost_consumer_are_redelivered_first_and_in_order():
    room = Room(SubscriptionType.SHARED)
    lost = room.join("lost", demand=5)
    room.hand_out(5)
    room.ack(lost, 2)
    room.join("other", demand=100)

    room.subscription.leave(lost)

    assert bases(room.hand_out(7)) == [0, 1, 3, 4, 5, 6]
    assert room.subscription.redeliveries(0) == 0


def test_redelivered_messages_are_sent_again_and_counted():
    room = Room(SubscriptionType.SHARED)
    member = room.join("a", demand=100)
    room.hand_out(5)

    room.subscription.give_back(member, [1, 3, 77])
    assert bases(room.hand_out(6)) == [1, 3, 5]
    assert [room.subscription.redeliveries(base) for base in (1, 2, 3)] == [1, 0, 1]
    room.subscription.give_back(member)
    assert bases(room.hand_out(6)) == [0, 1, 2, 3, 4, 5]
    assert room.subscription.redeliveries(1) == 2


def test_very_many_are_given_back_at_once_and_in_order():
    room = Room(SubscriptionType.SHARED)
    member = room.join("a", demand=100_000)
    room.hand_out(10_000)
    for base in range(0, 10_000, 3):
        room.ack(member, base)

    room.subscription.give_back(member, reversed(range(10_000)))

    assert [base for base in range(10_000) if base % 3] == bases(room.hand_out(10_000))


def test_a_member_with_too_much_unacked_waits_until_half_is_acked():
    room = Room(SubscriptionType.SHARED, member_unacked=4)
    member = room.join("a", demand=100)

    assert bases(room.hand_out(10)) == [0, 1, 2, 3]
    room.ack(member, 0)
    assert room.hand_out(10) == []
    room.ack(member, 1)
    assert bases(room.hand_out(10)) == [4, 5]


def test_a_subscription_with_too_much_unacked_waits_until_half_is_acked():
    room = Room(SubscriptionType.SHARED, unacked=4)
    members = {name: room.join(name, demand=100) for name in "ab"}
    found = dict(room.hand_out(10))
    assert len(found) == 4

    for base in (0, 1):
        assert room.hand_out(10) == []
        room.ack(members[found[base]], base)

    assert len(room.hand_out(10)) == 2


def test_other_limits_hold_at_once():
    room = Room(SubscriptionType.SHARED)
    room.join("a", demand=100)
    room.hand_out(5)

    room.subscription.set_limits(SharedLimits(member_unacked=3))
    assert room.hand_out(10) == []
    room.subscription.set_limits(SharedLimits(member_unacked=0, unacked=0))
    assert len(room.hand_out(10)) == 5


def test_an_ack_of_what_another_has_counts():
    room = Room(SubscriptionType.SHARED)
    first = room.join("a", demand=1)
    room.hand_out(1)
    other = room.join("b")

    room.ack(other, 0)

    assert 0 == first.unacked == room.subscription.unacked
    assert not first.handed


def test_messages_acked_before_redelivery_are_not_sent():
    room = Room(SubscriptionType.SHARED)
    member = room.join("a", demand=100)
    room.hand_out(3)
    room.subscription.give_back(member)
    room.ack(member, 1)
    room.acked.ack(2, 3)  # without the consumer that acked it

    assert bases(room.hand_out(4)) == [0, 3]


def test_parts_of_one_message_stay_with_one_member():
    """Chunks: the first goes to any consumer, the others follow it."""
    room = Room(SubscriptionType.SHARED)
    room.join("a", demand=100)
    room.join("b", demand=100)
    room.keys = dict.fromkeys(range(0, 60, 2), 5)

    found = room.hand_out(60)

    assert len({name for base, name in found if not base % 2}) == 1


def test_last_consumer_to_leave_rewinds_to_the_mark_delete_position():
    room = Room(SubscriptionType.SHARED)
    member = room.join("a", demand=100)
    room.hand_out(5)
    room.ack(member, 0)
    room.subscription.give_back(member, [1])

    room.subscription.leave(member)
    room.join("b", demand=100)

    assert bases(room.hand_out(5)) == [1, 2, 3, 4]
    assert room.subscription.redeliveries(1) == 0


def test_an_abort_counts_as_a_redelivery_and_a_commit_ends_the_count():
    room = Room(SubscriptionType.SHARED)
    member = room.join("a", demand=10)
    room.hand_out(3)
    pending = SubscriptionAcks()

    def ack_in_transaction() -> None:
        pending.add("t", DeferredAck(subscription_key(1, "s"), 0, NOTHING_BELOW, ((0, 2),)))
        room.subscription.set_claimed(ClaimedOffsets(room.acked, pending))
        for base in (0, 1):
            room.subscription.settle(member, base)

    ack_in_transaction()
    room.ack(member, 2)
    first = pending.remove("t")
    room.subscription.set_claimed(room.acked)
    room.subscription.reopen(first)
    assert bases(room.hand_out(3)) == [0, 1]
    assert [room.subscription.redeliveries(base) for base in range(3)] == [1, 1, 0]

    ack_in_transaction()
    assert room.subscription.redeliveries(0) == 1, "another abort counts on"
    pending.remove("t")
    room.acked.ack(0, 2)
    room.subscription.set_claimed(room.acked)
    room.subscription.settle_all()
    assert [room.subscription.redeliveries(base) for base in range(3)] == [0, 0, 0]


@pytest.mark.parametrize("kind", [SubscriptionType.SHARED, SubscriptionType.KEY_SHARED])
def test_an_abort_gives_back_entries_in_their_order(kind: SubscriptionType):
    """Those of which all was acked, and those of which a part was."""
    room = Room(kind, size=2)
    member = room.join("a", demand=10)
    assert bases(room.hand_out(4)) == [0, 2]
    pending = SubscriptionAcks()
    pending.add("t", DeferredAck(subscription_key(1, "s"), 0, NOTHING_BELOW, ((0, 3),)))
    room.subscription.set_claimed(ClaimedOffsets(room.acked, pending))
    for base in (0, 2):
        room.subscription.settle(member, base)

    first = pending.remove("t")
    room.subscription.set_claimed(room.acked)
    room.subscription.reopen(first)

    assert bases(room.hand_out(6)) == [0, 2, 4]


# ---- key-shared


def keys_of(room: Room, name: str) -> list[int]:
    """Keys that a member would have now."""
    assigner = room.subscription._shared_dispatch._assigner
    return [key for key in range(200) if assigner.member_of(key * 331).name == name]


def test_a_key_moves_when_what_the_one_before_has_of_it_is_acked():
    room = Room(SubscriptionType.KEY_SHARED)
    first = room.join("a", demand=100)
    room.keys = {base: base * 331 for base in range(200)}
    room.hand_out(200)
    second = room.join("b", demand=200)
    moved = keys_of(room, "b")[0]
    room.keys |= {100: moved * 331, 101: moved * 331}
    assert moved < 100

    assert 100 not in bases(room.hand_out(102))
    room.ack(first, moved)

    assert [each for each in room.hand_out(102) if each[0] >= 100][:2] == [(100, "b"), (101, "b")]
    assert second.unacked


def test_a_key_moves_at_once_where_order_does_not_matter():
    room = Room(SubscriptionType.KEY_SHARED)
    room.join("a", demand=100, out_of_order=True)
    room.keys = {base: base * 331 for base in range(200)}
    room.hand_out(200)
    room.join("b", demand=200, out_of_order=True)
    moved = keys_of(room, "b")[0]
    room.keys[100] = moved * 331

    assert (100, "b") in room.hand_out(101)


def test_reading_ahead_for_members_that_take_nothing_is_bounded():
    room = Room(SubscriptionType.KEY_SHARED, look_ahead_per_member=10)
    room.join("a", demand=0)
    room.join("b", demand=10_000)
    mine = keys_of(room, "a")[0]
    room.keys = dict.fromkeys(range(1000), mine * 331)

    room.hand_out(1_000)

    assert room.subscription.position == 20


# ---- what is due later


def test_a_message_waits_for_its_time_and_the_others_do_not_wait_for_it():
    room = Room(SubscriptionType.SHARED)
    room.join("a", demand=100)
    room.due = {0: 500, 1: 300}

    assert bases(room.hand_out(3, now_ms=100)) == [2]
    assert room.subscription.next_due_ms == 300
    assert bases(room.hand_out(3, now_ms=300)) == [1]
    assert bases(room.hand_out(3, now_ms=500)) == [0]
    assert room.subscription.next_due_ms is None


def test_how_many_messages_wait_for_their_time_is_bounded():
    room = Room(SubscriptionType.SHARED, delayed=3)
    room.join("a", demand=100)
    room.due = dict.fromkeys(range(10), 500)

    room.hand_out(10)

    assert 3 == room.subscription.delayed == room.subscription.position


def test_exclusive_members_do_not_wait_for_delayed_messages():
    """As with a real broker: it delays for shared kinds only."""
    room = Room(SubscriptionType.EXCLUSIVE)
    room.join("a", demand=100)
    room.due = {0: 500}

    assert bases(room.hand_out(2)) == [0, 1]
