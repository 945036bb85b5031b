"""What administrators see of groups, and take away."""

from __future__ import annotations

import pytest

from tests.broker.fakes import FakeTimers
from tests.broker.keeping_room import Room
from trilogue.broker.errors import (
    GroupNotEmpty,
    GroupReadsTopic,
    InvalidGroupName,
    StorageFailed,
    UnknownGroup,
    UnknownMember,
)
from trilogue.broker.groups.admin import GroupListing
from trilogue.broker.groups.classic.group import ClassicGroup
from trilogue.broker.groups.classic.members import GroupSettings, JoinRequest
from trilogue.broker.groups.classic.states import GroupState
from trilogue.broker.groups.group import CLASSIC, CONSUMER, MemberSubscription
from trilogue.broker.names import parse_kafka
from trilogue.log import errors as log_errors


@pytest.fixture
def room() -> Room:
    return Room("t", "u")


def test_a_group_is_known_by_its_members_by_its_past_or_by_its_positions(room: Room):
    room.member("members", "t")
    room.leave("past", room.member("past", "t", "connect"))
    room.commit("by-hand", "t")
    room.commit("members", "t")

    listed = {each.name: each[1:4] for each in room.broker.group_admin.listed()}

    assert listed == {
        "members": (CLASSIC, "consumer", "Stable"),
        "past": (CLASSIC, "connect", "Empty"),
        "by-hand": (CLASSIC, "", "Empty"),
    }


def test_after_a_restart_groups_are_known(room: Room):
    room.leave("g", room.member("g", "t", "connect"))
    room.broker.groups.records.mark_empty("c", CONSUMER, "consumer")
    room.cut()
    room.leave("h", room.member("h", "t"))

    admin = room.restart().broker.group_admin

    assert admin.known("g") == GroupListing("g", CLASSIC, "connect", "Empty", None)
    assert admin.known("h") == GroupListing("h", CLASSIC, "consumer", "Empty", None)
    assert admin.known("c") == GroupListing("c", CONSUMER, "consumer", "Empty", None)


def test_unknown_group_raises_unknown_group(room: Room):
    admin = room.broker.group_admin

    for call in (admin.known, admin.delete, admin.check_removal):
        with pytest.raises(UnknownGroup):
            call("nobody")
    with pytest.raises(InvalidGroupName):
        admin.check_removal("")


def test_a_deleted_group_is_gone_with_all_its_positions_when_that_is_durable(room: Room):
    room.leave("g", room.member("g", "t"))
    room.commit("g", "t", "u")
    room.commit("other", "t")

    promise = room.broker.group_admin.delete("g")
    before = promise.done, room.topics_of("g")
    room.log.commit()

    assert before == (False, {"t", "u"})
    assert promise.result() is None
    assert room.topics_of("g") == set()
    assert room.names == ["other"]
    assert room.restart().names == ["other"]


def test_a_group_with_members_is_not_deleted(room: Room):
    room.member("g", "t")
    room.joined("h", "t")

    for name in "gh":
        with pytest.raises(GroupNotEmpty):
            room.broker.group_admin.delete(name)
    assert room.names == ["g", "h"]


def test_member_of_a_deleted_group_gets_unknown_member(room: Room):
    member = room.member("g", "t")
    room.leave("g", member)
    room.broker.group_admin.delete("g")

    with pytest.raises(UnknownMember):
        room.broker.groups.heartbeat("g", member, 1)


def test_a_failed_disk_is_heard_and_deletes_no_position(room: Room):
    room.commit("g", "t")

    promise = room.broker.group_admin.delete("g")
    room.log.commit(log_errors.StorageFailed("broken"))

    assert isinstance(promise.error, StorageFailed)
    assert room.topics_of("g") == {"t"}


def test_positions_of_topics_that_a_group_does_not_read_may_go(room: Room):
    """KIP-496."""
    room.member("g", "t")
    admin = room.broker.group_admin

    admin.check_removal("g")
    admin.topic_check("g")(parse_kafka("u"))
    with pytest.raises(GroupReadsTopic):
        admin.topic_check("g")(parse_kafka("t"))


def test_before_a_group_has_settled_it_may_read_anything(room: Room):
    room.joined("g", "t")
    other = room.broker.groups.find_group("g")
    assert other is not None
    room.member("h", "?")

    for name in "gh":
        with pytest.raises(GroupReadsTopic):
            room.broker.group_admin.topic_check(name)(parse_kafka("t"))


def test_the_positions_of_members_of_another_kind_stay(room: Room):
    member = room.member("g", "t", "connect")
    admin = room.broker.group_admin

    with pytest.raises(GroupNotEmpty):
        admin.check_removal("g")
    admin.topic_check("g")(parse_kafka("t"))
    room.leave("g", member)
    admin.check_removal("g")


def test_a_group_without_members_may_lose_any_position(room: Room):
    room.commit("g", "t", "u")
    room.leave("h", room.member("h", "t"))
    admin = room.broker.group_admin

    for name in "gh":
        admin.check_removal(name)
        admin.topic_check(name)(parse_kafka("t"))
    promise = admin.remove("g", [room.partition_id("t")])
    room.log.commit()

    assert promise.result() is None
    assert room.topics_of("g") == {"u"}


def test_the_state_of_a_group_is_reported_in_the_words_of_tools(room: Room):
    room.joined("g", "t")

    assert room.broker.group_admin.known("g").state_name == GroupState.COMPLETING.value


def test_subscriptions_of_members_are_decoded_once_for_all_topics():
    """300 members and 1,000 topics held the loop for 22 s when it was read for each topic."""
    read: list[bytes] = []

    def subscriptions(metadata: bytes) -> MemberSubscription:
        read.append(metadata)
        return MemberSubscription(frozenset({parse_kafka("t")}))

    timers = FakeTimers()
    settings = GroupSettings(initial_delay_ms=0)
    group = ClassicGroup(
        "g", settings, timers, lambda: "1", lambda _: None, decode_subscription=subscriptions
    )
    group.join(JoinRequest("g", "", "consumer", (("range", b"m"),), 10_000, 60_000))
    timers.advance(1)

    reads = group.reading()

    assert [reads(parse_kafka(name)) for name in ("t", "u", "v")] == [True, False, False]
    assert read == [b"m"]


def test_groups_may_go_while_they_are_listed(room: Room):
    for name in ("a", "b", "c"):
        room.commit(name, "t")

    listed = room.broker.group_admin.listed()
    first = next(listed).name
    room.broker.group_admin.delete("b")
    room.log.commit()

    assert [first, *(each.name for each in listed)] == ["a", "c"]
