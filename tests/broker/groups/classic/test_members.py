"""The rules of membership beside the table: who may join, who leads, what is chosen, bounds."""

from __future__ import annotations

import pytest

from tests.broker.group_room import (
    COOPERATIVE,
    DELAY_S,
    RANGE,
    REBALANCE_S,
    SESSION_S,
    Room,
    completing,
    preparing,
    refused,
    stable,
)
from trilogue.broker.errors import (
    GroupMaxSize,
    IllegalGeneration,
    InconsistentProtocol,
    InvalidSessionTimeout,
    MemberIdRequired,
    RebalanceInProgress,
    UnknownMember,
)
from trilogue.broker.groups.classic.members import (
    ClassicMembers,
    GroupMemory,
    GroupSettings,
    JoinRequest,
    JoinResultMember,
)
from trilogue.broker.groups.classic.states import GroupState

# -- ids that are handed out


def test_a_new_member_gets_its_id_first_and_joins_with_it():
    room = Room()
    with pytest.raises(MemberIdRequired) as required:
        room.join(member_id_required=True, client_id="c" * 300)
    assert (room.ids, room.state) == ([], GroupState.EMPTY)

    promise = room.join(required.value.member_id, member_id_required=True)
    room.timers.advance(DELAY_S * 2)

    assert required.value.member_id == "c" * 255 + "-1"
    assert promise.result().member_id == required.value.member_id


def test_an_id_that_was_handed_out_expires_with_the_session_timeout():
    room = Room()
    refused(MemberIdRequired, lambda: room.join(member_id_required=True))

    room.timers.advance(SESSION_S)

    refused(UnknownMember, lambda: room.join("m-1"))


def test_a_rebalance_waits_for_ids_that_were_handed_out():
    room = Room()
    stable(room)
    refused(MemberIdRequired, lambda: room.join(member_id_required=True))
    waiting = [room.join(each, protocols=COOPERATIVE) for each in ("m-1", "m-2")]
    before = waiting[0].done

    joined = room.join("m-3")

    assert before is False
    assert joined.result().generation == waiting[0].result().generation == 2


@pytest.mark.parametrize("how", ["expires", "leaves"])
def test_a_rebalance_goes_on_when_an_id_is_given_up(how: str):
    room = Room()
    stable(room)
    refused(MemberIdRequired, lambda: room.join(member_id_required=True, session_timeout_ms=6_000))
    waiting = [room.join(each, protocols=COOPERATIVE) for each in ("m-1", "m-2")]

    if how == "leaves":
        room.group.leave("m-3")
    else:
        room.timers.advance(6)

    assert all(promise.done for promise in waiting)


def test_an_id_handed_out_is_for_a_dynamic_member():
    room = Room()
    refused(MemberIdRequired, lambda: room.join(member_id_required=True))

    refused(UnknownMember, lambda: room.join("m-1", instance_id="i"))


def test_a_static_member_needs_no_id_first():
    room = Room()

    promise = room.join(instance_id="i", member_id_required=True)
    room.timers.advance(DELAY_S)

    assert promise.result().member_id == "i-1"
    assert promise.result().members == (JoinResultMember("i-1", "i", b"m"),)


# -- leaving and expiring


def test_unknown_member_cannot_leave():
    room = Room()
    stable(room)

    refused(UnknownMember, lambda: room.group.leave("m-9"))
    refused(UnknownMember, lambda: room.group.leave("", "nobody"))
    refused(UnknownMember, lambda: room.group.leave("", None))


def test_when_the_last_member_leaves_the_group_is_empty_and_free_for_manual_commits():
    room = Room()
    stable(room)
    room.group.leave("m-1")
    room.group.leave("m-2")

    assert (room.state, room.group.generation, room.group.protocol) == (GroupState.EMPTY, 2, "")
    assert room.timers.pending == 0
    room.group.check_commit("", -1)
    room.group.check_commit("m-1", -1)
    room.group.check_commit("", -1, "instance")
    refused(UnknownMember, lambda: room.group.check_commit("m-1", 1))


def test_a_member_without_signs_of_life_is_let_go():
    room = Room()
    stable(room)
    room.timers.advance(SESSION_S - 1)
    room.beat("m-2")

    room.timers.advance(1)

    assert (room.ids, room.state) == (["m-2"], GroupState.PREPARING)


def test_a_member_that_waits_for_an_answer_does_not_expire():
    room = Room()
    stable(room)
    waiting = room.join("m-2", protocols=COOPERATIVE)
    refused(RebalanceInProgress, lambda: room.beat("m-2"))
    for _ in range(4):
        refused(RebalanceInProgress, lambda: room.beat("m-1"))
        room.timers.advance(SESSION_S - 1)

    assert not waiting.done
    assert room.ids == ["m-1", "m-2"]


def test_a_newcomer_that_waits_too_long_is_let_go():
    room = Room(new_member_timeout_ms=20_000)
    stable(room)
    newcomer = room.join()
    for _ in range(4):
        refused(RebalanceInProgress, lambda: room.beat("m-1", "m-2"))
        refused(RebalanceInProgress, lambda: room.beat("m-2"))
        room.timers.advance(5)

    assert isinstance(newcomer.error, UnknownMember)
    assert room.ids == ["m-1", "m-2"]


def test_second_join_of_a_member_ends_the_first():
    room = Room()
    stable(room)
    first = room.join("m-2", protocols=COOPERATIVE)

    second = room.join("m-2", protocols=COOPERATIVE)
    room.join("m-1")

    assert isinstance(first.error, RebalanceInProgress)
    assert second.result().generation == 2


def test_an_answer_may_be_acted_upon_at_once():
    """A reply may make the next request of the same client be handled inside the call."""
    room = Room()
    assignments = []

    def sync(promise):
        synced = room.group.sync(promise.result().member_id, 1, assignments={"m-1": b"all"})
        synced.then(lambda each: assignments.append(each.result().assignment))

    room.join().then(sync)
    room.timers.advance(DELAY_S)

    assert (room.state, assignments) == (GroupState.STABLE, [b"all"])


def test_when_no_member_joins_again_in_time_the_group_is_empty():
    room = Room()
    stable(room, (None, None))
    room.join()
    room.group.leave("m-3")

    for _ in range(REBALANCE_S // 5):
        refused(RebalanceInProgress, lambda: room.beat("m-1"))
        refused(RebalanceInProgress, lambda: room.beat("m-2"))
        room.timers.advance(5)

    assert (room.state, room.ids, room.timers.pending) == (GroupState.EMPTY, [], 0)


# -- generations


def test_wrong_generation_raises_illegal_generation():
    room = Room()
    stable(room)

    for call in (
        lambda: room.group.heartbeat("m-1", 0),
        lambda: room.group.sync("m-1", 2),
        lambda: room.group.check_commit("m-1", 2),
        lambda: room.group.check_commit("m-1", -1),
    ):
        refused(IllegalGeneration, call)
    refused(UnknownMember, lambda: room.group.check_commit("m-9", 1))
    refused(UnknownMember, lambda: room.group.check_commit("", 1))
    refused(UnknownMember, lambda: room.group.check_commit("", -1, "i"))


# -- protocols


def test_a_member_must_share_the_kind_and_one_of_the_protocols():
    room = Room()
    stable(room)

    for fields in (
        {"protocol_type": "connect"},
        {"protocols": (("sticky", b""),)},
        {"protocols": ()},
        {"protocol_type": ""},
    ):
        refused(InconsistentProtocol, lambda fields=fields: room.join(**fields))
    assert room.state is GroupState.STABLE


@pytest.mark.parametrize("begin", [preparing, completing, stable])
def test_sync_with_another_protocol_is_refused_in_every_state(begin):
    room = Room()
    begin(room)
    generation = room.group.generation

    for protocol in ({"protocol_type": "connect"}, {"protocol": "sticky"}):
        refused(
            InconsistentProtocol,
            lambda protocol=protocol: room.group.sync("m-2", generation, **protocol),
        )


def test_the_only_member_may_change_its_protocols():
    room = Room()
    room.join()
    room.timers.advance(DELAY_S)

    joined = room.join("m-1", protocol_type="connect", protocols=(("sessioned", b"x"),)).result()

    assert (joined.protocol_type, joined.protocol) == ("connect", "sessioned")


VOTES = [
    # each member's list, best liked first; what is chosen
    (["ab"], "a"),
    (["ab", "ba", "ba"], "b"),
    (["ab", "ba"], "a"),  # the leader decides
    (["ba", "ab"], "b"),
    (["abc", "bc", "cb"], "b"),
    (["abc", "cb", "cb"], "c"),
    (["xa", "ya", "za"], "a"),
]


@pytest.mark.parametrize(("lists", "chosen"), VOTES)
def test_the_protocol_that_most_like_best_of_those_that_all_have_is_chosen(lists, chosen):
    members = ClassicMembers(GroupSettings())
    for index, names in enumerate(lists):
        protocols = tuple((name, b"") for name in names)
        members.add(str(index), JoinRequest("g", "", "consumer", protocols, 0, 0))

    assert members.vote() == chosen


def test_a_member_that_syncs_for_another_protocol_is_refused():
    room = Room()
    stable(room)

    for fields in ({"protocol_type": "connect"}, {"protocol": "sticky"}):
        refused(InconsistentProtocol, lambda fields=fields: room.group.sync("m-1", 1, **fields))
    again = room.group.sync("m-1", 1, protocol_type="consumer", protocol="range")
    assert again.result().assignment == b"one"


def test_a_leader_that_does_not_rejoin_in_time_leads_no_more():
    room = Room()
    stable(room)
    promise = room.join("m-2", protocols=COOPERATIVE)

    for _ in range(REBALANCE_S // 5):
        refused(RebalanceInProgress, lambda: room.beat("m-1"))
        room.timers.advance(5)

    assert promise.result().leader_id == "m-2"
    assert len(promise.result().members) == 1


# -- bounds


@pytest.mark.parametrize("timeout_ms", [5_999, 1_800_001, -1])
def test_a_session_timeout_has_limits(timeout_ms: int):
    room = Room()

    refused(InvalidSessionTimeout, lambda: room.join(session_timeout_ms=timeout_ms))
    assert (room.ids, room.state) == ([], GroupState.EMPTY)


@pytest.mark.parametrize("timeout_ms", [6_000, 1_800_000])
def test_a_session_timeout_may_be_as_long_as_its_limits(timeout_ms: int):
    assert not Room().join(session_timeout_ms=timeout_ms).done


def test_a_group_has_a_largest_size_that_counts_ids_handed_out():
    room = Room(size_max=2)
    room.join()
    refused(MemberIdRequired, lambda: room.join(member_id_required=True))

    refused(GroupMaxSize, room.join)
    refused(GroupMaxSize, lambda: room.join(member_id_required=True))
    assert not room.join("m-2").done


def test_members_that_have_not_rejoined_do_not_count_for_the_group_size():
    """Kafka's rule: while everybody joins again, those who have count."""
    room = Room(size_max=2)
    stable(room)
    room.join("m-1", protocols=COOPERATIVE)

    newcomer = room.join()
    refused(GroupMaxSize, room.join)
    refused(GroupMaxSize, lambda: room.join("m-2"))

    assert room.state is GroupState.COMPLETING
    assert {each.member_id for each in room.group.members} == {
        "m-1",
        newcomer.result().member_id,
    }
    refused(UnknownMember, lambda: room.group.heartbeat("m-2", 2))


def test_rejoined_member_keeps_its_place_in_a_full_group():
    room = Room(size_max=2)
    stable(room)
    room.join("m-1", protocols=COOPERATIVE)
    room.join()

    assert not room.join("m-1", protocols=COOPERATIVE).done


def test_the_metadata_of_a_member_and_of_a_group_have_limits():
    room = Room(member_bytes_max=1_000, bytes_max=1_500)
    refused(GroupMaxSize, lambda: room.join(protocols=(("range", b"x" * 1_000),)))
    room.join(protocols=(("range", b"x" * 900),))
    refused(GroupMaxSize, lambda: room.join(protocols=(("range", b"x" * 900),)))

    room.join("m-1", protocols=RANGE)

    assert not room.join(protocols=(("range", b"x" * 900),)).done


def test_an_assignment_has_a_limit():
    room = Room(bytes_max=1_000)
    completing(room)

    refused(GroupMaxSize, lambda: room.sync("m-1", m1=b"x" * 600, m2=b"x" * 600))
    assert room.state is GroupState.COMPLETING


def test_a_member_describes_itself():
    room = Room()
    room.join(client_id="c", client_host="/127.0.0.1", rebalance_timeout_ms=-5)

    (member,) = room.group.members

    assert (member.client_id, member.client_host, member.rebalance_timeout_ms) == (
        "c",
        "/127.0.0.1",
        0,
    )
    assert member.metadata("range") == b"m"
    assert member.metadata("other") == b""
    assert member in room.group.members
    room.group.leave("c-1")
    assert member not in room.group.members


def test_inconsistent_protocol_is_reported_before_unknown_member():
    """As the real server: 23 comes before 25 and 82, so that a client hears what is wrong."""
    room = Room()
    stable(room)

    refused(InconsistentProtocol, lambda: room.join("nobody", protocols=(("other", b""),)))
    refused(InconsistentProtocol, lambda: room.join("nobody", protocol_type="connect"))
    refused(UnknownMember, lambda: room.join("nobody"))


class CountedName(str):
    """Counts how often names are compared one by one."""

    __slots__ = ()
    compared = 0

    def __eq__(self, other: object) -> bool:
        CountedName.compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def test_a_vote_among_many_protocols_does_not_compare_each_with_each():
    """A member may list as many as its bytes allow: 16,000 kept the loop for two seconds."""
    protocols = tuple((CountedName(f"p{number}"), b"") for number in range(500))
    members = ClassicMembers(GroupSettings())
    members.add("a", JoinRequest("g", "a", "consumer", protocols, 10_000, 60_000))

    assert members.vote() == "p0"
    assert CountedName.compared < 5_000


def test_the_members_of_all_groups_share_one_memory():
    memory = GroupMemory()
    settings = GroupSettings(total_bytes_max=1_000)
    first, second = (ClassicMembers(settings, memory) for _ in range(2))
    large = JoinRequest("g", "", "consumer", (("range", bytes(500)),), 6_000, 6_000)
    member = first.add("m", large)

    with pytest.raises(GroupMaxSize, match="all groups"):
        second.check_join(large, "", None)
    with pytest.raises(GroupMaxSize, match="all groups"):
        second.check_assignments({"n": bytes(500)})
    first.set_assignment(member, bytes(100))
    first.remove(member)

    assert memory.size_bytes == 0
    second.check_join(large, "", None)


def test_a_group_that_is_replaced_counts_no_memory():
    memory = GroupMemory()
    members = ClassicMembers(GroupSettings(), memory)
    request = JoinRequest("g", "", "consumer", (("range", bytes(500)),), 6_000, 6_000)
    member = members.add("m", request)

    members.release()
    members.remove(member)

    assert memory.size_bytes == 0


def test_a_member_without_a_rebalance_timeout_has_time_to_sync():
    room = Room()
    joined = room.join(rebalance_timeout_ms=0)
    room.timers.advance(DELAY_S)
    assert joined.result().generation == 1

    room.timers.advance(0.5)

    assert room.ids == ["m-1"]
    room.timers.advance(1)
    assert room.ids == []
