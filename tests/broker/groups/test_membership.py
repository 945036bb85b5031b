"""Members of groups through restarts, and what is stored of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.broker import consumer_room
from tests.broker.consumer_room import names
from tests.broker.fakes import FakeLog
from tests.broker.keeping_room import SESSION_MS, Room
from trilogue.broker.errors import (
    GroupUnavailable,
    IllegalGeneration,
    RebalanceInProgress,
    UnknownMember,
)
from trilogue.broker.facts import FactKind
from trilogue.broker.groups.classic.members import JoinRequest
from trilogue.broker.groups.consumer.members import ClassicMemberMetadata, ConsumerGroupMember
from trilogue.broker.groups.consumer.records import decode_member, encode_member
from trilogue.broker.groups.membership import (
    FACT_BYTES,
    GROUP,
    ROW_BYTES_MAX,
    Membership,
    decode_members,
    encode_members,
    member_key,
)
from trilogue.broker.groups.reconciliation import STATIC_LEAVE_EPOCH, MemberState
from trilogue.broker.promise import Promise
from trilogue.log import errors as log_errors
from trilogue.log.errors import CorruptLog


@pytest.fixture
def room() -> Room:
    return Room("t", "u")


def join_both(room: Room, group: str = "g", kind: str = "consumer", **first) -> list[str]:
    """Two members of a generation, of which the first leads; with assignments `0` and `1`."""
    promises = [
        room.broker.groups.join(
            JoinRequest(group, "", kind, (("range", b"t"),), SESSION_MS, SESSION_MS, **fields)
        )
        for fields in (first, {})
    ]
    room.timers.advance(1)
    room.log.commit()
    ids = [promise.result().member_id for promise in promises]
    generation = room.broker.groups.find_group(group).generation
    assignments = {member_id: b"%d" % number for number, member_id in enumerate(ids)}
    for member_id in reversed(ids):
        room.broker.groups.sync(group, member_id, generation, assignments=assignments)
    room.log.commit()
    return ids


# -- classic groups


@pytest.mark.parametrize("flushed", [False, True])
def test_members_go_on_after_a_restart_as_if_nothing_had_happened(room: Room, flushed: bool):
    ids = join_both(room)
    if flushed:
        room.cut()

    groups = room.restart().broker.groups

    group = groups.find_group("g")
    assert (group.state_name, group.generation, group.protocol) == ("Stable", 1, "range")
    assert group.members.leader.member_id == ids[0]
    for number, member_id in enumerate(ids):
        groups.heartbeat("g", member_id, 1)
        groups.check_commit("g", member_id, 1)
        assert groups.sync("g", member_id, 1).result().assignment == b"%d" % number
    assert groups.records.get("g").empty_since_ms == -1


def test_a_restart_is_survived_many_times_by_workers_of_connect_and_static_members(room: Room):
    ids = join_both(room, kind="connect", instance_id="i", client_id="c", client_host="/h")

    for _ in range(3):
        room.cut()
        room = room.restart()

    group = room.broker.groups.find_group("g")
    assert (group.protocol_type, group.members.static("i").member_id) == ("connect", ids[0])
    assert (group.members.static("i").client_id, group.members.static("i").client_host) == (
        "c",
        "/h",
    )
    room.broker.groups.heartbeat("g", ids[0], 1, "i")


def test_a_static_member_that_came_back_under_another_id_keeps_it(room: Room):
    join_both(room, instance_id="i")
    request = JoinRequest(
        "g", "", "consumer", (("range", b"t"),), SESSION_MS, SESSION_MS, instance_id="i"
    )
    promise = room.broker.groups.join(request)
    assert not promise.done
    room.log.commit()
    joined = promise.result()

    room = room.restart()

    room.broker.groups.heartbeat("g", joined.member_id, joined.generation, "i")
    assert len(room.broker.groups.find_group("g").members) == 2


def test_restored_member_is_removed_at_the_end_of_its_session(room: Room):
    ids = join_both(room)
    room = room.restart()
    groups = room.broker.groups

    room.timers.advance(SESSION_MS / 1_000 - 1)
    groups.heartbeat("g", ids[0], 1)
    room.timers.advance(2)

    with pytest.raises(UnknownMember):
        groups.heartbeat("g", ids[1], 1)
    with pytest.raises(RebalanceInProgress):
        groups.heartbeat("g", ids[0], 1)


def test_leave_before_a_restart_rebalances_the_others(room: Room):
    ids = join_both(room)
    room.leave("g", ids[1])

    groups = room.restart().broker.groups

    groups.check_commit("g", ids[0], 1)  # what it has read is not read again
    with pytest.raises(RebalanceInProgress):
        groups.heartbeat("g", ids[0], 1)


def test_nothing_is_stored_of_a_group_without_members(room: Room):
    for member_id in join_both(room):
        room.leave("g", member_id)
    room.timers.advance(SESSION_MS / 1_000)
    room.log.commit()

    assert list(room.broker.groups.membership) == []
    assert room.restart().broker.groups.find_group("g") is None


def test_a_generation_is_given_when_it_is_durable(room: Room):
    request = JoinRequest("g", "", "consumer", (("range", b"t"),), SESSION_MS, SESSION_MS)
    joined = room.broker.groups.join(request)
    room.timers.advance(1)
    member_id = joined.result().member_id

    synced = room.broker.groups.sync("g", member_id, 1, assignments={member_id: b"all"})
    crashed = Room(before=room)  # what the window has is lost

    assert not synced.done
    with pytest.raises(UnknownMember):
        crashed.broker.groups.heartbeat("g", member_id, 1)
    room.log.commit()
    assert synced.result().assignment == b"all"


def test_an_assignment_that_cannot_be_stored_is_not_given(room: Room):
    request = JoinRequest("g", "", "consumer", (("range", b"t"),), SESSION_MS, SESSION_MS)
    joined = room.broker.groups.join(request)
    room.timers.advance(1)
    member_id = joined.result().member_id
    synced = room.broker.groups.sync("g", member_id, 1, assignments={member_id: b"all"})

    room.log.commit(log_errors.StorageFailed("broken"))

    assert isinstance(synced.error, GroupUnavailable)


def test_an_older_generation_of_a_member_is_refused_after_a_restart(room: Room):
    ids = join_both(room)
    room.leave("g", ids[1])
    request = JoinRequest("g", ids[0], "consumer", (("range", b"t"),), SESSION_MS, SESSION_MS)
    room.broker.groups.join(request)
    room.broker.groups.sync("g", ids[0], 2, assignments={ids[0]: b"all"})

    groups = room.restart().broker.groups

    with pytest.raises(IllegalGeneration):
        groups.heartbeat("g", ids[0], 1)
    groups.heartbeat("g", ids[0], 2)


# -- consumer groups


class ConsumerRooms:
    """Brokers of consumer groups one after the other, on what the former has stored."""

    def __init__(self) -> None:
        self.room = consumer_room.Room()
        self.topic = self.room.topic("t")

    def restart(self, *, flushed: bool = False) -> consumer_room.Room:
        before = self.room
        self.room = consumer_room.Room(meta=before.meta)
        if flushed:
            self.room.load(before.broker.snapshot())
        else:
            self.room.replay(before.log.facts)
        self.room.epochs = dict(before.epochs)
        return self.room


@pytest.fixture
def rooms() -> ConsumerRooms:
    return ConsumerRooms()


@pytest.mark.parametrize("flushed", [False, True])
def test_members_of_consumer_groups_keep_what_they_have(rooms: ConsumerRooms, flushed: bool):
    rooms.room.join("a", "t")
    rooms.room.join("b", "t")
    rooms.room.settle("a", "b")
    before = rooms.room.shares()

    room = rooms.restart(flushed=flushed)

    assert room.shares() == before
    room.broker.groups.check_commit("g", "a", room.epochs["a"])
    for member in ("a", "b"):
        response = room.heartbeat(member, owned=room.assigned(member))
        assert response.epoch > 0
    room.settle("a", "b")
    assert room.shares() == before


def test_a_member_that_gives_partitions_up_goes_on_with_that(rooms: ConsumerRooms):
    rooms.room.join("a", "t")
    rooms.room.settle("a")
    rooms.room.join("b", "t")
    rooms.room.heartbeat("a", owned=rooms.room.assigned("a"))  # it has to give up three
    assert rooms.room.group.require_member("a").state is MemberState.UNREVOKED
    held = rooms.room.group.require_member("a").held

    room = rooms.restart()

    member = room.group.require_member("a")
    assert (member.state, member.held) == (MemberState.UNREVOKED, held)
    room.heartbeat("b", owned={})
    assert room.assigned("b") == {}  # nothing is given twice
    room.settle("a", "b")
    assert sorted(map(len, room.shares().values())) == [3, 3]


def test_a_silent_member_of_a_consumer_group_goes_after_a_restart_too(rooms: ConsumerRooms):
    rooms.room.join("a", "t")
    rooms.room.join("b", "t")
    rooms.room.settle("a", "b")

    room = rooms.restart()
    room.timers.advance(consumer_room.SESSION_S - 1)
    room.heartbeat("a", owned=room.assigned("a"))
    room.timers.advance(2)

    room.settle("a")
    assert room.shares() == {"a": [0, 1, 2, 3, 4, 5]}


def test_a_static_member_that_is_away_is_still_away(rooms: ConsumerRooms):
    rooms.room.join("a", "t", instance_id="i")
    rooms.room.settle("a")
    rooms.room.heartbeat("a", STATIC_LEAVE_EPOCH, instance_id="i")

    room = rooms.restart()
    room.join("b", "t", instance_id="i")

    assert room.shares() == {"b": [0, 1, 2, 3, 4, 5]}


def test_member_that_left_a_consumer_group_is_not_restored(rooms: ConsumerRooms):
    rooms.room.join("a", "t")
    rooms.room.join("b", "t")
    rooms.room.settle("a", "b")
    rooms.room.heartbeat("b", -1)

    room = rooms.restart()

    assert list(room.shares()) == ["a"]
    room.settle("a")
    assert room.shares() == {"a": [0, 1, 2, 3, 4, 5]}
    room.heartbeat("a", -1)
    assert list(room.broker.groups.membership) == []


def test_topics_that_came_and_went_meanwhile_are_noticed(rooms: ConsumerRooms):
    rooms.room.topic("u")
    rooms.room.join("a", "t", "u")
    rooms.room.settle("a")
    rooms.room.delete("t")
    rooms.room.grow("u", 8)

    room = rooms.restart()
    room.settle("a")

    assert room.shares() == {"a": [0, 1, 2, 3, 4, 5, 6, 7]}


def test_partitions_of_rows_of_two_moments_are_given_once(rooms: ConsumerRooms):
    rooms.room.join("a", "t")
    rooms.room.join("b", "t")
    rooms.room.settle("a", "b")
    membership = rooms.room.broker.groups.membership
    row = encode_member(rooms.room.group.require_member("a"))

    membership.store("g", {"b": row})
    room = rooms.restart()

    room.settle("a", "b")
    assert sorted(map(len, room.shares().values())) == [3, 3]


partitions = st.dictionaries(
    st.binary(min_size=16, max_size=16),
    st.frozensets(st.integers(0, 2**32 - 1), min_size=1, max_size=5),
    max_size=3,
)
texts = st.text(max_size=20)


@given(
    st.builds(
        ConsumerGroupMember,
        member_id=texts,
        instance_id=st.none() | texts,
        rack=st.none() | texts,
        client_id=texts,
        client_host=texts,
        rebalance_timeout_ms=st.integers(-1, 2**31 - 1),
        topics=st.frozensets(st.sampled_from(list(names("a", "b", "x/y/z")))),
        pattern=texts,
        assignor=st.none() | texts,
        classic=st.none()
        | st.builds(
            ClassicMemberMetadata,
            st.integers(0, 2**31 - 1),
            st.lists(st.tuples(texts, st.binary(max_size=9)), max_size=3).map(tuple),
        ),
        epoch=st.integers(-2, 2**31 - 1),
        previous_epoch=st.integers(-2, 2**31 - 1),
        state=st.sampled_from(MemberState),
        assigned=partitions,
    )
)
def test_rows_of_members_read_back(member: ConsumerGroupMember):
    member.assignment_epochs = [(7, member.assigned)] if member.assigned else []
    row = encode_member(member)

    assert decode_member(member.member_id, row) == member
    for bad in (row + b"\0", b"\2" + row[1:], row[:-1]):
        with pytest.raises(CorruptLog):
            decode_member(member.member_id, bad)


# -- the store


def test_a_change_has_these_bytes():
    changes = {"é": b"\x05", "b": None}

    assert encode_members("g", changes).hex(" ") == (
        "01 00 01 67 00 00 00 02 00 02 c3 a9 01 00 00 00 01 05 00 01 62 00 00 00 00 00"
    )
    assert member_key("gé", "m") == b"m\x00\x03g\xc3\xa9m"


@given(texts, st.dictionaries(texts, st.none() | st.binary(max_size=20), max_size=4))
def test_changes_read_back(group: str, changes: dict[str, bytes | None]):
    payload = encode_members(group, changes)

    assert decode_members(payload) == (group, changes)
    for bad in (payload + b"\0", b"\2" + payload[1:], payload[:-1]):
        with pytest.raises(CorruptLog):
            decode_members(bad)


def test_only_what_changed_is_written():
    log, membership = FakeLog(), Membership()
    membership.attach(log)
    membership.store_all("g", {GROUP: b"1", "a": b"x", "b": b"y"})
    membership.store_all("g", {GROUP: b"2", "a": b"x"})
    membership.store_all("g", {GROUP: b"2", "a": b"x"})

    assert [decode_members(payload)[1] for _, payload in log.facts] == [
        {GROUP: b"1", "a": b"x", "b": b"y"},
        {GROUP: b"2", "b": None},
    ]
    assert {kind for kind, _ in log.facts} == {FactKind.GROUP_MEMBERS}
    assert sorted(membership.snapshot()) == [
        (b"m\x00\x01g", b"2"),
        (b"m\x00\x01ga", b"x"),
        (b"m\x00\x01gb", None),
    ]
    assert membership.snapshot() == []


def test_a_large_change_is_several_facts_with_the_group_in_the_last():
    log, membership = FakeLog(), Membership()
    membership.attach(log)
    rows = {f"m{number}": bytes(FACT_BYTES // 3) for number in range(5)}

    membership.store_all("g", {GROUP: b"1", **rows})

    found = [decode_members(payload)[1] for _, payload in log.facts]
    assert [GROUP in each for each in found] == [False, False, True]
    assert {member for each in found for member in each} == {GROUP, *rows}


def test_a_group_with_a_very_large_member_is_in_memory_only():
    log, membership = FakeLog(), Membership()
    membership.attach(log)
    membership.store_all("g", {GROUP: b"1", "a": b"x"})

    membership.store("g", {"b": bytes(ROW_BYTES_MAX + 1)})

    assert list(membership) == []
    assert decode_members(log.facts[-1][1])[1] == {GROUP: None, "a": None}


def test_a_full_journal_is_no_reason_to_refuse_a_member():
    log, membership = FakeLog(), Membership()
    membership.attach(log)
    log.refusal = log_errors.TailFull("full")

    membership.store_all("g", {GROUP: b"1", "a": b"x"})

    assert membership.is_durable
    assert membership.when_durable(Promise.resolved(5)).result() == 5
    assert len(membership.snapshot()) == 2
