"""Share groups: members, their partitions, names that other kinds of groups have, restarts."""

from __future__ import annotations

import pytest

from tests.broker.consumer_room import Room, names
from trilogue.broker.errors import (
    FencedMemberEpoch,
    GroupMaxSize,
    GroupNotEmpty,
    InconsistentProtocol,
    UnknownGroup,
    UnknownMember,
)
from trilogue.broker.groups.classic.members import JoinRequest
from trilogue.broker.groups.group import SHARE
from trilogue.broker.groups.reconciliation import LEAVE_EPOCH
from trilogue.broker.groups.share.members import ShareHeartbeat, ShareHeartbeatResponse

SESSION_S = 45
DELAYED_S = 1  # more than the first assignment of a group waits


@pytest.fixture
def room() -> Room:
    made = Room()
    made.t = made.topic("t", 3)
    return made


def beat(room: Room, member: str, epoch: int, *topics: str) -> ShareHeartbeatResponse:
    named = names(*topics) if topics else None
    return room.broker.share_groups.heartbeat(ShareHeartbeat("g", member, epoch, topics=named))


def join(room: Room, *members: str) -> list[ShareHeartbeatResponse]:
    """Let the first members of a group join at once, and wait until they have partitions."""
    joined = [beat(room, member, 0, "t") for member in members]
    room.timers.advance(DELAYED_S)
    return [
        beat(room, member, response.epoch) for member, response in zip(members, joined, strict=True)
    ]


def partitions(response: ShareHeartbeatResponse) -> dict[bytes, list[int]]:
    return {topic: sorted(indexes) for topic, indexes in (response.assigned or {}).items()}


def test_the_first_member_reads_all_partitions(room: Room):
    (joined,) = join(room, "a")

    assert partitions(joined) == {room.t: [0, 1, 2]}
    assert joined.heartbeat_interval_ms == 5_000
    group = room.broker.share_groups.find_group("g")
    assert (group.state_name, group.type, group.protocol_type) == ("Stable", SHARE, "share")


def test_first_members_that_come_at_once_divide_the_partitions(room: Room):
    first = beat(room, "a", 0, "t")
    assert (partitions(first), first.heartbeat_interval_ms) == ({}, 200)

    beat(room, "b", 0, "t")
    room.timers.advance(DELAYED_S)

    shares = [partitions(beat(room, member, first.epoch))[room.t] for member in "ab"]
    assert sorted(index for share in shares for index in share) == [0, 1, 2]


def test_a_group_that_its_members_left_waits_again(room: Room):
    join(room, "a")
    beat(room, "a", LEAVE_EPOCH)
    beat(room, "b", 0, "t")
    beat(room, "b", LEAVE_EPOCH)
    room.timers.advance(DELAYED_S)

    assert not partitions(beat(room, "c", 0, "t"))


def test_a_group_that_leaves_while_it_waits_assigns_nothing(room: Room):
    """Another node assigns its partitions."""
    beat(room, "a", 0, "t")
    group = room.broker.share_groups.find_group("g")
    before = group.target_epoch

    room.broker.groups.release(lambda name: name == "g")
    room.timers.advance(DELAYED_S)

    assert (group.target_epoch, group.target) == (before, {})


def test_members_share_partitions_when_there_are_more_members(room: Room):
    join(room, *"abcd")

    group = room.broker.share_groups.find_group("g")
    shares = [sorted(member.assigned[room.t]) for member in group.members]
    assert all(len(share) == 1 for share in shares)
    assert {index for share in shares for index in share} == {0, 1, 2}
    assert len({member.epoch for member in group.members}) == 1


def test_a_member_hears_of_new_partitions(room: Room):
    (joined,) = join(room, "a")
    room.grow("t", 5)

    assert partitions(beat(room, "a", joined.epoch)) == {room.t: [0, 1, 2, 3, 4]}


def test_a_member_that_leaves_makes_room_for_the_others(room: Room):
    first, second = join(room, "a", "b")
    assert len(partitions(first)[room.t]) + len(partitions(second)[room.t]) == 3

    assert beat(room, "b", LEAVE_EPOCH).epoch == LEAVE_EPOCH

    assert partitions(beat(room, "a", first.epoch)) == {room.t: [0, 1, 2]}
    with pytest.raises(UnknownMember):
        beat(room, "b", second.epoch)


def test_a_silent_member_goes(room: Room):
    beat(room, "a", 0, "t")

    room.timers.advance(SESSION_S + 1)

    assert room.broker.share_groups.find_group("g").state_name == "Empty"


def test_a_wrong_epoch_is_fenced(room: Room):
    joined = beat(room, "a", 0, "t")

    with pytest.raises(FencedMemberEpoch):
        beat(room, "a", joined.epoch + 1)
    assert beat(room, "a", joined.epoch).epoch == joined.epoch


def test_a_group_has_a_limit_of_members(room: Room):
    for number in range(200):
        beat(room, f"m{number}", 0, "t")

    with pytest.raises(GroupMaxSize):
        beat(room, "another", 0, "t")


def test_other_kinds_of_members_are_refused(room: Room):
    beat(room, "a", 0, "t")
    classic = JoinRequest("g", "", "consumer", (("range", b"m"),), 10_000, 10_000)

    for is_empty in (False, True):
        with pytest.raises(InconsistentProtocol):
            room.broker.groups.join(classic).result()
        with pytest.raises(UnknownGroup):
            room.join("b", "t")
        with pytest.raises(UnknownGroup):
            room.broker.groups.check_commit("g", "", -1)
        if not is_empty:
            beat(room, "a", LEAVE_EPOCH)


def test_the_name_of_another_kind_of_group_is_refused(room: Room):
    room.join("b", "t")

    with pytest.raises(UnknownGroup):
        beat(room, "a", 0, "t")


def test_members_go_on_after_a_restart(room: Room):
    joined = beat(room, "a", 0, "t")
    after = Room(meta=room.meta)
    after.replay(room.log.facts)

    group = after.broker.share_groups.find_group("g")
    assert [member.member_id for member in group.members] == ["a"]
    again = beat(after, "a", joined.epoch)
    assert again.epoch > joined.epoch
    assert partitions(again) == {room.t: [0, 1, 2]}


def test_an_empty_group_keeps_its_name_and_epoch_over_a_restart(room: Room):
    beat(room, "a", 0, "t")
    beat(room, "a", LEAVE_EPOCH)
    epoch = room.broker.share_groups.find_group("g").epoch
    after = Room(meta=room.meta)
    after.replay(room.log.facts)

    group = after.broker.share_groups.find_group("g")
    assert (group.epoch, group.state_name) == (epoch, "Empty")
    assert [each.type for each in after.broker.group_admin.listed()] == [SHARE]


def test_a_group_without_members_is_deleted_with_its_positions(room: Room):
    beat(room, "a", 0, "t")
    partition_id = room.topics["t"].partitions[0].partition_id
    room.broker.share_partitions.start("g", partition_id, 0)
    with pytest.raises(GroupNotEmpty):
        room.broker.group_admin.delete("g")
    beat(room, "a", LEAVE_EPOCH)

    room.broker.group_admin.delete("g")

    with pytest.raises(UnknownGroup):
        room.broker.share_groups.find_group("g")
    assert not room.broker.share_partitions.positions.of_group("g")


def test_a_group_with_positions_does_not_expire(room: Room):
    beat(room, "a", 0, "t")
    partition_id = room.topics["t"].partitions[0].partition_id
    room.broker.share_partitions.start("g", partition_id, 0)
    beat(room, "a", LEAVE_EPOCH)

    for _ in room.broker.group_expiry.remove_expired(10**15, 1):
        pass

    assert room.broker.group_admin.known("g").type == SHARE


def test_positions_go_with_their_topic(room: Room):
    partition_id = room.topics["t"].partitions[0].partition_id
    share = room.broker.share_partitions.start("g", partition_id, 0)

    room.delete("t")

    assert share.is_gone
    assert room.broker.share_partitions.find_partition("g", partition_id) is None
