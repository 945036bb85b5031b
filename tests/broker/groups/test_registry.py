from __future__ import annotations

from itertools import count

import pytest

from tests.broker.fakes import FakeTimers
from tests.broker.node_room import Node
from trilogue.broker.errors import (
    GroupMaxSize,
    GroupUnavailable,
    IllegalGeneration,
    InvalidGroupName,
    MemberIdRequired,
    RebalanceInProgress,
    UnknownGroup,
    UnknownMember,
)
from trilogue.broker.facts import CursorMove, Protocol
from trilogue.broker.groups.classic.members import GroupSettings, JoinRequest
from trilogue.broker.groups.classic.states import GroupState
from trilogue.broker.groups.registry import GroupRegistry


class Room:
    def __init__(self, **settings) -> None:
        self.timers = FakeTimers()
        ids = count(1)
        self.groups = GroupRegistry(
            GroupSettings(**settings),
            self.timers,
            lambda: str(next(ids)),
            now_ms=self.timers.now_ms,
        )

    def join(self, group: str = "g", member_id: str = "", **fields):
        protocols = (("range", b"m"),)
        return self.groups.join(
            JoinRequest(group, member_id, "consumer", protocols, 10_000, 60_000, **fields)
        )

    def member(self, group: str = "g") -> str:
        promise = self.join(group)
        self.timers.advance(1)
        return promise.result().member_id

    @property
    def names(self) -> list[str]:
        return [group.name for group in self.groups]


def test_first_join_creates_the_group():
    room = Room()

    member_id = room.member()
    synced = room.groups.sync("g", member_id, 1, assignments={member_id: b"all"})
    room.groups.heartbeat("g", member_id, 1)
    room.groups.check_commit("g", member_id, 1)

    group = room.groups.find_group("g")
    assert group is not None
    assert group.state is GroupState.STABLE
    assert synced.result().assignment == b"all"
    assert (room.names, len(room.groups)) == (["g"], 1)


def test_groups_do_not_know_each_other():
    room = Room()
    member_id = room.member("g")
    room.member("h")

    with pytest.raises(UnknownMember):
        room.groups.heartbeat("h", member_id, 1)


def test_errors_of_join_and_sync_are_in_the_promise():
    room = Room()

    assert isinstance(room.join(member_id="who").error, UnknownMember)
    assert isinstance(room.join(member_id_required=True).error, MemberIdRequired)
    assert isinstance(room.groups.sync("g", "who", 1).error, UnknownMember)
    assert isinstance(room.groups.sync("h", "who", 1).error, UnknownMember)


@pytest.mark.parametrize("name", ["", "x" * 1_025, "é" * 513])
def test_a_group_needs_a_name_of_some_length(name: str):
    assert isinstance(Room().join(name).error, InvalidGroupName)


def test_a_call_without_a_name_names_no_group():
    room = Room()

    assert isinstance(room.groups.sync("", "m", 1).error, InvalidGroupName)
    with pytest.raises(InvalidGroupName):
        room.groups.heartbeat("", "m", 1)
    with pytest.raises(InvalidGroupName):
        room.groups.leave("", "m")


def test_requests_of_an_unknown_group_raise_unknown_member():
    room = Room()

    with pytest.raises(UnknownMember):
        room.groups.heartbeat("g", "m", 1)
    with pytest.raises(UnknownMember):
        room.groups.leave("g", "m")
    with pytest.raises(IllegalGeneration):
        room.groups.check_commit("g", "m", 0)
    room.groups.check_commit("g", "", -1)
    assert room.names == []


def test_a_name_with_members_is_not_free_for_manual_commits():
    room = Room()
    member_id = room.member()
    with pytest.raises(UnknownMember):
        room.groups.check_commit("g", "", -1)

    room.groups.leave("g", member_id)

    room.groups.check_commit("g", "", -1)
    assert room.names == ["g"]


def test_where_there_are_too_many_the_group_that_is_empty_longest_is_forgotten():
    room = Room(groups_max=3)
    members = {name: room.member(name) for name in ("a", "b", "c")}
    room.groups.leave("b", members["b"])
    room.groups.leave("a", members["a"])
    group_b = room.groups.find_group("b")

    room.member("d")

    assert room.names == ["a", "c", "d"]
    assert group_b is not None
    assert group_b.state is GroupState.DEAD


def test_a_principal_has_as_many_groups_with_members_as_it_leaves_free():
    room = Room(groups_max=4)
    own = [room.join(name, creator="User:a") for name in ("a-1", "a-2", "a-3")]
    others = [room.join(name, creator=f"User:{name}") for name in ("b", "c")]
    room.timers.advance(1)

    assert isinstance(own[2].error, GroupMaxSize)
    assert "User:a has 2 groups" in str(own[2].error)
    assert [each.error for each in (*own[:2], *others)] == [None] * 4

    room.groups.leave("a-1", own[0].result().member_id)
    assert isinstance(room.join("a-1", creator="User:a").error, GroupMaxSize)  # 1 has it, 1 is free
    room.groups.leave("b", others[0].result().member_id)
    assert room.join("a-1", creator="User:a").error is None


def test_groups_of_clients_without_a_name_have_no_bound_of_their_own():
    room = Room(groups_max=2)

    assert [room.join(name).error for name in ("a", "b")] == [None, None]


def test_a_group_that_has_members_again_is_not_forgotten():
    room = Room(groups_max=2)
    first, _ = room.member("a"), room.member("b")
    room.groups.leave("a", first)
    room.member("a")

    assert isinstance(room.join("c").error, GroupUnavailable)
    assert room.names == ["a", "b"]


def test_group_that_empties_during_a_join_is_removed():
    """An answer may be acted upon inside the call that gave it: here the member leaves at once."""
    room = Room(groups_max=1)
    room.join().then(lambda _: room.groups.leave("g", "-1"))

    again = room.join(member_id="-1")
    room.member("h")

    assert isinstance(again.error, UnknownMember)
    assert room.names == ["h"]


def test_a_group_of_ids_that_were_only_handed_out_makes_room():
    room = Room(groups_max=1)
    room.join("a", member_id_required=True)

    room.member("b")

    assert room.names == ["b"]


def test_a_rebalance_is_heard_through_the_front():
    room = Room()
    member_id = room.member()
    room.join()

    with pytest.raises(RebalanceInProgress):
        room.groups.heartbeat("g", member_id, 1)


# -- one group in the place of another


def test_a_group_takes_the_place_of_one_without_members_which_ends():
    room = Room()
    assert isinstance(room.join(member_id_required=True).error, MemberIdRequired)
    former = room.groups.find_group("g")
    assert former is not None

    room.groups.replace("g", room.groups.classic("g"))

    assert former.state_name == "Dead"
    assert room.timers.pending == 0
    assert room.names == ["g"]


def test_a_group_with_members_that_is_put_in_place_is_remembered_as_occupied():
    room, other = Room(), Room()
    other.member()
    group = other.groups.find_group("g")
    assert group is not None

    room.groups.replace("g", group)

    record = room.groups.records.get("g")
    assert record is not None
    assert (record.type, record.empty_since_ms) == ("classic", -1)


def test_a_new_name_in_the_registry_needs_room_and_a_name():
    room = Room(groups_max=1)
    room.member()

    with pytest.raises(GroupUnavailable):
        room.groups.replace("h", room.groups.classic("h"))
    with pytest.raises(InvalidGroupName):
        room.groups.replace("", room.groups.classic(""))


def test_member_without_a_record_is_unknown_after_a_restart():
    room = Room()
    room.groups.records.mark_empty("g", "classic", "consumer")

    with pytest.raises(UnknownMember):
        room.groups.check_commit("g", "before", 5)
    with pytest.raises(IllegalGeneration):
        room.groups.check_commit("never", "before", 5)
    room.groups.check_commit("g", "", -1)


def test_of_groups_that_made_room_only_those_with_positions_are_remembered():
    """Names are free to make up: what is remembered of them must not outgrow the groups."""
    room = Room(groups_max=2, initial_delay_ms=0)
    positions = {"kept"}
    room.groups.has_positions = positions.__contains__
    for name in ("kept", *map(str, range(5))):
        room.groups.leave(name, room.member(name))

    assert room.groups.records.names() == ["kept", "3", "4"]


def test_a_name_with_positions_only_is_a_group_of_another_kind():
    node = Node(3)
    node.create("orders", 1)
    node.loop.run()
    node.broker.commit(Protocol.KAFKA, "g", [CursorMove(node.partition(0).partition_id, 1)])
    node.loop.run()
    for registry, kind in (
        (node.broker.share_groups, "share group"),
        (node.broker.streams_groups, "streams group"),
    ):
        with pytest.raises(UnknownGroup, match=rf"Group g is not a {kind}\."):
            registry.find_group("g")
        with pytest.raises(UnknownGroup, match=r"Group other not found\."):
            registry.find_group("other")
