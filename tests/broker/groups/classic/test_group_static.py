"""Static members: who comes back under its instance id goes on, and fences who it was."""

from __future__ import annotations

import pytest

from tests.broker.group_room import (
    DELAY_S,
    REBALANCE_S,
    SESSION_S,
    Room,
    completing,
    refused,
    stable,
)
from trilogue.broker.errors import FencedInstance, IllegalGeneration, UnknownMember
from trilogue.broker.groups.classic.states import GroupState


@pytest.fixture
def static() -> Room:
    """Instance "a" (a-1) leads instance "b" (b-2); everyone has an assignment."""
    room = Room()
    stable(room, ("a", "b"))
    return room


def test_rejoining_static_member_fences_its_former_member_id(static: Room):
    static.join(instance_id="b")

    assert static.ids == ["a-1", "b-3"]
    for call in (
        lambda: static.group.heartbeat("b-2", 1, "b"),
        lambda: static.group.sync("b-2", 1, "b"),
        lambda: static.group.check_commit("b-2", 1, "b"),
        lambda: static.group.leave("b-2", "b"),
        lambda: static.join("b-2", instance_id="b"),
    ):
        refused(FencedInstance, call)
    refused(UnknownMember, lambda: static.group.heartbeat("b-2", 1))
    refused(UnknownMember, lambda: static.group.heartbeat("b-2", 1, "c"))
    static.group.heartbeat("b-3", 1, "b")


def test_a_former_self_that_waits_is_notified_that_it_is_fenced():
    room = Room()
    joining = room.join(instance_id="i")
    again = room.join(instance_id="i")
    room.timers.advance(DELAY_S * 2)
    syncing = room.group.sync(again.result().member_id, 1, "i")
    room.join(instance_id="i")

    assert isinstance(joining.error, FencedInstance)
    assert syncing.done


def test_a_former_self_that_waits_for_its_assignment_is_notified_that_it_is_fenced():
    room = Room()
    completing(room, ("a", "b"))
    syncing = room.group.sync("b-2", 1, "b")

    room.join(instance_id="b")

    assert isinstance(syncing.error, FencedInstance)


def test_a_static_leader_that_comes_back_takes_itself_for_a_follower(static: Room):
    joined = static.join(instance_id="a").result()

    assert (joined.member_id, joined.leader_id, joined.members) == ("a-3", "a-1", ())
    assert joined.skip_assignment is False
    assert static.sync("a-3", "a").result().assignment == b"one"


def test_static_leader_that_supports_it_skips_assignment(static: Room):
    joined = static.join(instance_id="a", can_skip_assignment=True).result()

    assert (joined.leader_id, joined.skip_assignment) == ("a-3", True)
    assert [each.member_id for each in joined.members] == ["a-3", "b-2"]


@pytest.mark.parametrize("can_skip", [False, True])
def test_a_static_follower_that_comes_back_follows(static: Room, can_skip: bool):
    joined = static.join(instance_id="b", can_skip_assignment=can_skip).result()

    assert (joined.leader_id, joined.skip_assignment, joined.members) == ("a-1", False, ())
    assert static.sync("b-3", "b").result().assignment == b"two"


def test_a_static_member_keeps_its_place_while_the_others_rebalance():
    room = Room()
    room.join(instance_id="a")
    room.join(instance_id="b", session_timeout_ms=600_000)
    room.timers.advance(DELAY_S * 2)
    room.group.sync("b-2", 1, "b")
    room.group.sync("a-1", 1, "a", assignments={"b-2": b"two"})

    newcomer = room.join()
    room.join("a-1", instance_id="a")
    room.timers.advance(REBALANCE_S)
    room.sync("m-3")
    room.group.sync("a-1", 2, "a", assignments={"b-2": b"new"})
    refused(IllegalGeneration, lambda: room.group.heartbeat("b-2", 1, "b"))
    for _ in range(REBALANCE_S // 5 + 1):
        room.beat("m-3", "a-1")
        room.timers.advance(5)
    back = room.join(instance_id="b")

    assert newcomer.result().generation == back.result().generation == 2
    assert room.ids == ["a-1", "b-4", "m-3"]
    assert room.sync("b-4", "b").result().assignment == b"new"


def test_a_static_member_that_stays_away_goes_with_its_session(static: Room):
    static.timers.advance(SESSION_S - 1)
    static.group.heartbeat("a-1", 1, "a")
    static.timers.advance(2)

    assert static.ids == ["a-1"]
    assert static.state is GroupState.PREPARING


def test_rebalance_waits_for_absent_static_members_until_their_sessions_end():
    room = Room()
    room.join(instance_id="a", rebalance_timeout_ms=1, session_timeout_ms=60_000)
    dynamic = room.join(rebalance_timeout_ms=1_000)
    room.timers.advance(DELAY_S * 2)
    first, second = room.ids
    room.sync(second)
    room.sync(first, "a")
    room.group.leave(dynamic.result().member_id)

    room.timers.advance(50)
    away = room.state, room.ids
    room.timers.advance(11)

    assert away == (GroupState.PREPARING, ["a-1"])
    assert (room.state, room.ids, room.timers.pending) == (GroupState.EMPTY, [], 0)


def test_a_static_member_may_be_sent_away_by_its_instance(static: Room):
    static.group.leave("", "b")

    assert static.ids == ["a-1"]
