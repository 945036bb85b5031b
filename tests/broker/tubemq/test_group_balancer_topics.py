"""Topics of balanced groups that go and come again, and large ones."""

from __future__ import annotations

from tests.broker.balance_room import TERMS, Room, T, some
from trilogue.broker.names import TopicName
from trilogue.broker.tubemq.balanced_group import BalanceSettings
from trilogue.broker.tubemq.group_balancer import GroupBalancer
from trilogue.broker.tubemq.rebalance_events import EventKind


def test_recreated_topic_is_disconnected_and_connected_again():
    room = Room()
    room.join("a", "b")
    room.settle("a", "b")
    had = room.has("a")

    room.balances.topic_gone(T)
    room.balances.topic_changed(T)

    first = room.beat("a")
    assert first is not None
    assert (first.kind, first.parts) == (EventKind.DISCONNECT, had)
    second = room.beat("a", first, report=())
    assert second is not None
    assert (second.kind, second.parts) == (EventKind.CONNECT, had)
    room.beat("a", second, report=had)
    room.settle("a", "b")
    assert sorted(room.has("a") + room.has("b")) == list(some(0, 1, 2, 3))


def test_joins_of_many_members_share_one_assignment():
    room, requested = Room(), 0

    def count(_topic: TopicName) -> int:
        nonlocal requested
        requested += 1
        return 10_000

    balances = GroupBalancer(BalanceSettings(), count)
    for number in range(100):
        balances.join("g", f"m{number}", TERMS, room.now_ms)
        balances.heartbeat("g", f"m{number}", room.now_ms)
        room.now_ms += 10

    assert requested <= 4, "in a second"
    balances.heartbeat("g", "m99", room.now_ms + 1_000)
    assert len(balances.member("g", "m99").wanted) == 100
