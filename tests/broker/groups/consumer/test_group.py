"""The responses to members of a consumer group: KIP-848, with the details of Kafka 4.3.1."""

from __future__ import annotations

import pytest

from tests.broker.consumer_room import BEAT_MS, REBALANCE_S, SESSION_S, Room, names, refused, some
from trilogue.broker.errors import (
    FencedInstance,
    FencedMemberEpoch,
    GroupMaxSize,
    InvalidPattern,
    InvalidRequest,
    StaleMemberEpoch,
    UnknownMember,
    UnreleasedInstance,
    UnsupportedAssignor,
)
from trilogue.broker.groups.reconciliation import LEAVE_EPOCH, STATIC_LEAVE_EPOCH

SIX = range(6)


@pytest.fixture
def room() -> Room:
    made = Room()
    made.t = made.topic("t")
    return made


def test_a_lone_member_gets_everything_with_its_first_heartbeat(room: Room):
    response = room.join("a", "t")

    assert response == ("a", 2, BEAT_MS, some(room.t, *SIX))
    assert room.group.state_name == "Stable"
    assert room.heartbeat("a").assigned is None  # as it was


def test_a_second_member_gets_its_share_when_the_first_has_given_it_up(room: Room):
    room.join("a", "t")

    assert room.join("b", "t") == ("b", 3, BEAT_MS, {})
    assert room.group.state_name == "Reconciling"
    assert room.heartbeat("a") == ("a", 2, BEAT_MS, some(room.t, 0, 1, 2))
    assert room.heartbeat("a").assigned is None
    assert room.heartbeat("b") == ("b", 3, BEAT_MS, None)
    assert room.heartbeat("a", owned=some(room.t, *SIX)).epoch == 2
    assert room.heartbeat("a", owned=some(room.t, 0, 1, 2)) == ("a", 3, BEAT_MS, None)
    assert room.heartbeat("b") == ("b", 3, BEAT_MS, some(room.t, 3, 4, 5))
    assert room.group.state_name == "Stable"


def test_full_heartbeat_returns_the_full_assignment(room: Room):
    room.join("a", "t")

    full = {"rebalance_timeout_ms": 1, "topics": names("t"), "owned": some(room.t, *SIX)}
    assert room.heartbeat("a", **full).assigned == some(room.t, *SIX)
    for missing, nothing in (("rebalance_timeout_ms", -1), ("topics", None), ("owned", None)):
        assert room.heartbeat("a", **(full | {missing: nothing})).assigned is None


def test_a_member_that_goes_leaves_its_share_to_the_others(room: Room):
    room.join("a", "t")
    room.join("b", "t")
    room.settle("a", "b")

    assert room.heartbeat("a", LEAVE_EPOCH) == ("a", LEAVE_EPOCH, 0, None)

    assert room.group.state_name == "Assigning"
    assert room.heartbeat("b").assigned == some(room.t, *SIX)


def test_the_last_member_leaves_a_group_that_is_empty(room: Room):
    room.join("a", "t")
    room.heartbeat("a", LEAVE_EPOCH)

    assert (room.group.state_name, room.group.is_empty) == ("Empty", True)
    assert not room.group.subscribes_to(*names("t"))
    refused(UnknownMember, lambda: room.heartbeat("a", 3))
    assert room.join("b", "t").assigned == some(room.t, *SIX)


def test_a_silent_member_goes_with_its_session(room: Room):
    room.join("a", "t")
    room.join("b", "t")
    room.settle("a", "b")

    room.timers.advance(SESSION_S - 1)
    room.heartbeat("b")
    room.timers.advance(2)

    assert room.heartbeat("b").assigned == some(room.t, *SIX)
    refused(UnknownMember, lambda: room.heartbeat("a"))


def test_a_member_that_does_not_give_up_in_time_goes(room: Room):
    """KIP-848: the rebalance timeout bounds revocation; heartbeats alone do not help."""
    room.join("a", "t")
    room.join("b", "t")
    room.heartbeat("a")

    for _ in range(REBALANCE_S - 1):
        room.timers.advance(1)
        room.heartbeat("a")
        room.heartbeat("b")
    room.timers.advance(1)

    refused(UnknownMember, lambda: room.heartbeat("a"))
    assert room.heartbeat("b").assigned == some(room.t, *SIX)


def test_a_member_that_has_given_up_has_all_the_time_it_wants(room: Room):
    room.join("a", "t")
    room.join("b", "t")
    room.settle("a", "b")

    for _ in range(3 * REBALANCE_S // 30):
        room.timers.advance(30)
        room.heartbeat("a")
        room.heartbeat("b")

    assert len(room.group.members) == 2


def test_a_member_that_is_ahead_or_behind_is_fenced(room: Room):
    room.join("a", "t")
    room.join("b", "t")

    refused(FencedMemberEpoch, lambda: room.heartbeat("a", 99))
    refused(FencedMemberEpoch, lambda: room.heartbeat("b", 1))
    refused(UnknownMember, lambda: room.heartbeat("nobody", 1))
    refused(UnknownMember, lambda: room.heartbeat("nobody", LEAVE_EPOCH))


def test_a_member_joins_again_and_keeps_what_it_has(room: Room):
    room.join("a", "t")
    room.join("b", "t")
    room.settle("a", "b")

    assert room.join("a", "t") == ("a", 3, BEAT_MS, some(room.t, 0, 1, 2))


def test_other_subscriptions_begin_another_epoch_and_the_same_ones_do_not(room: Room):
    u = room.topic("u", 2)
    room.join("a", "t")

    assert room.heartbeat("a", topics=names("t", "nowhere")).epoch == 3
    assert room.heartbeat("a", topics=names("t", "nowhere")).epoch == 3
    room.heartbeat("a", topics=names("u"))
    assert room.heartbeat("a", owned={}) == ("a", 4, BEAT_MS, some(u, 0, 1))
    room.heartbeat("a", topics=frozenset())
    assert room.heartbeat("a", owned={}) == ("a", 5, BEAT_MS, None)
    assert room.group.state_name == "Stable"


def test_topic_changes_reach_subscribed_members_with_a_heartbeat(room: Room):
    room.join("a", "t", "later")
    assert room.heartbeat("a").assigned is None

    later = room.topic("later", 1)
    assert room.heartbeat("a").assigned == some(room.t, *SIX) | some(later, 0)
    room.grow("later", 3)
    assert room.heartbeat("a").assigned == some(room.t, *SIX) | some(later, 0, 1, 2)
    room.delete("t")
    assert room.heartbeat("a").assigned == some(later, 0, 1, 2)
    assert room.heartbeat("a", owned=some(later, 0, 1, 2)).epoch == room.group.epoch
    again = room.topic("t", 1)
    assert room.heartbeat("a").assigned == some(later, 0, 1, 2) | some(again, 0)
    room.topic("other")
    assert room.heartbeat("a") == ("a", room.group.epoch, BEAT_MS, None)


def test_a_pattern_is_looked_up_with_the_heartbeat_that_brings_it(room: Room):
    response = room.join("a", pattern="t.*")
    assert response.assigned == some(room.t, *SIX)

    t2 = room.topic("t2", 1)
    assert room.heartbeat("a").assigned == some(room.t, *SIX) | some(t2, 0)
    room.topic("other")
    assert room.heartbeat("a").assigned is None
    room.heartbeat("a", pattern="")
    assert room.heartbeat("a", owned={}).epoch == room.group.epoch
    refused(InvalidPattern, lambda: room.heartbeat("a", pattern="("))


def test_pattern_matches_only_topics_with_permission(room: Room):
    room.topic("t2")

    response = room.join("a", pattern="t.*", may_see=lambda name: name.name == "t")

    assert response.assigned == some(room.t, *SIX)


def test_the_assignor_that_most_members_want_is_taken_at_the_next_target(room: Room):
    room.join("a", "t", assignor="range")
    room.join("b", "t", assignor="uniform")
    room.join("c", "t", assignor="range")
    room.settle("a", "b", "c")

    assert room.group.assignor == "range"
    assert room.shares() == {"a": [0, 1], "b": [2, 3], "c": [4, 5]}
    refused(UnsupportedAssignor, lambda: room.heartbeat("a", assignor="cleverest"))


def test_refused_heartbeat_changes_nothing(room: Room):
    room.join("a", "t")
    room.join("s", "t", instance_id="i")
    room.settle("a", "s")
    before = room.group.epoch

    for fields in ({"assignor": "cleverest"}, {"pattern": "("}):
        with pytest.raises(InvalidPattern if "pattern" in fields else UnsupportedAssignor):
            room.join("b", "t", **fields)
    refused(UnreleasedInstance, lambda: room.join("b", "t", instance_id="i"))

    assert (room.group.epoch, len(room.group.members)) == (before, 2)
    assert room.group.state_name == "Stable"


def test_numbers_of_members_and_of_their_topics_are_limited():
    room = Room(size_max=2, topics_max=2)
    room.join("a")
    room.join("b")

    refused(GroupMaxSize, lambda: room.join("c"))
    room.join("b")
    refused(InvalidRequest, lambda: room.join("a", "t", "u", "v"))
    room.heartbeat("b", LEAVE_EPOCH)
    room.join("c")


# -- static members


def test_a_static_member_that_is_away_keeps_its_share_for_the_next_claimant(room: Room):
    room.join("a1", "t", instance_id="i")
    room.join("b", "t")
    room.settle("a1", "b")
    epoch = room.group.epoch

    assert room.heartbeat("a1", STATIC_LEAVE_EPOCH, instance_id="i") == (
        "a1",
        STATIC_LEAVE_EPOCH,
        0,
        None,
    )
    assert room.heartbeat("b").assigned is None
    back = room.join("a2", "t", instance_id="i")

    assert back == ("a2", epoch, BEAT_MS, some(room.t, 0, 1, 2))
    assert room.group.state_name == "Stable"
    refused(UnknownMember, lambda: room.heartbeat("a1", 3))
    refused(FencedInstance, lambda: room.heartbeat("a1", 3, instance_id="i"))


def test_a_static_member_that_does_not_come_back_goes_with_its_session(room: Room):
    room.join("a", "t", instance_id="i")
    room.join("b", "t")
    room.settle("a", "b")
    room.heartbeat("a", STATIC_LEAVE_EPOCH, instance_id="i")

    room.timers.advance(SESSION_S - 1)
    room.heartbeat("b")
    room.timers.advance(1)

    assert room.heartbeat("b").assigned == some(room.t, *SIX)


def test_static_member_cannot_return_with_the_id_of_another_member(room: Room):
    room.join("a", "t", instance_id="i")
    room.join("b", "t")
    room.settle("a", "b")
    room.heartbeat("a", STATIC_LEAVE_EPOCH, instance_id="i")

    refused(InvalidRequest, lambda: room.join("b", "t", instance_id="i"))

    assert room.join("a2", "t", instance_id="i").assigned == some(room.t, 0, 1, 2)
    assert room.heartbeat("b").epoch == room.group.epoch


def test_a_static_member_may_come_back_under_its_own_id_and_with_other_subscriptions(room: Room):
    u = room.topic("u", 1)
    room.join("a", "t", instance_id="i")
    room.heartbeat("a", STATIC_LEAVE_EPOCH, instance_id="i")
    refused(FencedMemberEpoch, lambda: room.heartbeat("a", 2, instance_id="i"))
    room.heartbeat("a", STATIC_LEAVE_EPOCH, instance_id="i")

    assert room.join("a", "u", instance_id="i").assigned == some(u, 0)


def test_partitions_revoked_from_a_static_member_are_free_when_it_leaves(room: Room):
    room.join("a", "t", instance_id="i")
    room.join("b", "t")
    room.heartbeat("a")

    room.heartbeat("a", STATIC_LEAVE_EPOCH, instance_id="i")

    assert room.heartbeat("b").assigned == some(room.t, 3, 4, 5)


def test_an_instance_belongs_to_one_living_member(room: Room):
    room.join("a", "t", instance_id="i")

    refused(UnreleasedInstance, lambda: room.join("b", "t", instance_id="i"))
    refused(FencedInstance, lambda: room.heartbeat("b", 2, instance_id="i"))
    refused(FencedInstance, lambda: room.heartbeat("b", LEAVE_EPOCH, instance_id="i"))
    refused(UnknownMember, lambda: room.heartbeat("a", 2, instance_id="j"))
    room.heartbeat("a", LEAVE_EPOCH, instance_id="i")
    assert room.join("b", "t", instance_id="i").assigned == some(room.t, *SIX)


# -- positions


def test_positions_are_moved_by_members_at_their_epoch(room: Room):
    room.join("a", "t")
    groups = room.broker.groups

    groups.check_commit("g", "a", 2)
    groups.check_commit("g", "a", 2, "any instance")
    for epoch in (-1, 0, 1, 3):
        refused(StaleMemberEpoch, lambda epoch=epoch: groups.check_commit("g", "a", epoch))
    refused(UnknownMember, lambda: groups.check_commit("g", "b", 2))
    refused(UnknownMember, lambda: groups.check_commit("g", "", -1))
    room.heartbeat("a", LEAVE_EPOCH)
    groups.check_commit("g", "", -1)
    refused(UnknownMember, lambda: groups.check_commit("g", "a", 2))


def test_offsets_are_committed_at_the_epoch_since_which_a_partition_is_owned(room: Room):
    """KIP-1251: as Kafka 4.3.1."""
    room.join("a", "t")
    room.join("b", "t")
    room.settle("a", "b")
    check = room.group.check_partition_commit
    kept = min(room.group.members.find_member("a").assigned[room.t])
    moved = min(room.group.members.find_member("b").assigned[room.t])

    refused(StaleMemberEpoch, lambda: room.broker.groups.check_commit("g", "a", 2))
    check("a", 2, room.t, kept)
    check("a", 3, room.t, kept)
    check("b", 3, room.t, moved)
    refused(StaleMemberEpoch, lambda: check("a", 2, room.t, moved))
    refused(StaleMemberEpoch, lambda: check("b", 2, room.t, moved))
    refused(StaleMemberEpoch, lambda: check("a", 1, room.t, kept))
    refused(StaleMemberEpoch, lambda: check("a", 4, room.t, kept))
    refused(StaleMemberEpoch, lambda: check("a", -1, room.t, kept))
    refused(StaleMemberEpoch, lambda: check("a", 2, bytes(16), kept))
    refused(UnknownMember, lambda: check("c", 2, room.t, kept))


def test_offsets_of_a_partition_that_is_being_revoked_are_still_committed(room: Room):
    room.join("a", "t")
    room.join("b", "t")
    room.heartbeat("a")
    revoking = min(room.group.members.find_member("a").revoking[room.t])
    check = room.group.check_partition_commit

    check("a", 2, room.t, revoking)
    room.settle("a", "b")
    refused(StaleMemberEpoch, lambda: check("a", 2, room.t, revoking))


def test_offset_fetch_is_allowed_at_the_current_epoch_and_without_a_member(room: Room):
    room.join("a", "t")
    groups = room.broker.groups

    groups.check_fetch("g", "a", 2)
    groups.check_fetch("g", None, -1)
    refused(StaleMemberEpoch, lambda: groups.check_fetch("g", "a", 1))
    refused(UnknownMember, lambda: groups.check_fetch("g", "b", 2))
    refused(UnknownMember, lambda: groups.check_fetch("g", "", -1))


# -- much work


def test_a_target_that_takes_long_is_made_between_heartbeats(room: Room):
    """Who joins meanwhile is at the former target's epoch with nothing, as at a Kafka 4.3."""
    room.topic("u", 4)
    room.join("a", "u")
    room.broker.consumer_groups.context.turns.at_once = 0

    assert room.join("b", "u") == ("b", 2, BEAT_MS, {})
    assert room.group.state_name == "Assigning"
    assert room.heartbeat("a").assigned is None
    room.timers.advance(0.02)
    room.settle("a", "b")

    assert [len(each) for each in room.shares().values()] == [2, 2]
    assert room.heartbeat("b").epoch == 3


def test_member_joins_at_epoch_1_while_the_first_target_is_computed(room: Room):
    room.topic("u", 4)
    room.broker.consumer_groups.context.turns.at_once = 0

    assert room.join("a", "u") == ("a", 1, BEAT_MS, {})
    room.timers.advance(0.02)

    assert room.heartbeat("a").epoch == 2
    assert room.shares() == {"a": [0, 1, 2, 3]}


def test_members_that_leave_or_return_during_an_assignment_are_in_its_result(room: Room):
    """A static member may go by another id when the target is done."""
    room.topic("u", 4)
    for each in ("a", "b", "c"):
        room.join(each, "u", instance_id=f"i-{each}" if each == "b" else None)
    room.broker.consumer_groups.context.turns.at_once = 0
    room.join("d", "u")
    room.heartbeat("b", STATIC_LEAVE_EPOCH, instance_id="i-b")

    assert room.join("b2", "u", instance_id="i-b").epoch == 4
    room.heartbeat("c", LEAVE_EPOCH)
    room.timers.advance(0.02)

    assert room.group.target.keys() == {"a", "b2", "d"}
    for _ in range(3):
        room.heartbeat("a")
        room.timers.advance(0.02)
    room.settle("a", "b2", "d")
    assert sorted(map(len, room.shares().values())) == [1, 1, 2]


def test_targets_that_are_much_work_let_time_go_by():
    room = Room()
    for each in range(3):
        room.topic(f"t{each}", 1_000)
    topics = [f"t{each}" for each in range(3)]
    room.join("a", *topics)
    room.join("b", *topics)

    assert room.join("c", *topics).epoch == 3
    assert room.group.state_name == "Assigning"
    room.timers.advance(0.1)

    room.settle("a", "b", "c")
    assert {len(room.shares()[each]) for each in "abc"} == {1_000}


def test_members_come_soon_while_the_group_changes_and_then_as_usual():
    room = Room(heartbeat_interval_ms=5_000)
    room.topic("t", 4)
    intervals = [room.join("a", "t").heartbeat_interval_ms]
    intervals += [room.heartbeat("a").heartbeat_interval_ms for _ in range(6)]
    assert intervals == [200, 400, 800, 1_600, 3_200, 5_000, 5_000]

    room.join("b", "t")
    waits = [room.heartbeat("b").heartbeat_interval_ms for _ in range(6)]
    assert waits == [400, 800, 1_000, 1_000, 1_000, 1_000]  # for what a has
    assert room.heartbeat("a").heartbeat_interval_ms == 200


def test_the_more_members_there_are_the_later_they_come():
    room = Room(groups_max=200, heartbeat_interval_ms=2_000)
    room.topic("t")
    for each in range(150):
        room.join(f"m{each}", "t", group=f"g{each}")

    assert room.join("a", "t").heartbeat_interval_ms == 302
    for each in range(150):
        room.heartbeat(f"m{each}", LEAVE_EPOCH, group=f"g{each}")
    assert room.join("b", "t").heartbeat_interval_ms == 200


def test_total_size_of_groups_is_limited_and_members_stay():
    room = Room(total_max=100)
    room.topic("t", 50)
    room.join("a", "t", group="one")  # 20 and a name, a topic seen, 50 partitions
    room.join("b", "t", "u", group="two")

    refused(GroupMaxSize, lambda: room.join("c", "t", group="three"))
    refused(GroupMaxSize, lambda: room.heartbeat("a", group="one", topics=names("t", "v")))
    assert room.heartbeat("a", group="one").epoch == 2
    room.heartbeat("a", LEAVE_EPOCH, group="one")
    room.heartbeat("b", LEAVE_EPOCH, group="two")
    assert room.broker.consumer_groups.context.load.total == 0
    room.join("c", "t", group="three")
