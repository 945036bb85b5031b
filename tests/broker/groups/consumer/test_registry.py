"""Which group a heartbeat is for, and which of several kinds stands under a name."""

from __future__ import annotations

import pytest

from tests.broker.consumer_room import BEAT_MS, Room, names, refused, some
from trilogue.broker.errors import (
    GroupUnavailable,
    InvalidGroupName,
    UnknownGroup,
    UnknownMember,
    UnsupportedAssignor,
)
from trilogue.broker.groups.classic.members import JoinRequest
from trilogue.broker.groups.group import CLASSIC, CONSUMER
from trilogue.broker.groups.reconciliation import LEAVE_EPOCH, STATIC_LEAVE_EPOCH
from trilogue.broker.groups.records import encode_kept


@pytest.fixture
def room() -> Room:
    made = Room()
    made.t = made.topic("t")
    return made


def classic(room: Room, group: str = "g", protocol_type: str = "consumer") -> str:
    request = JoinRequest(group, "", protocol_type, (("range", b"m"),), 10_000, 10_000)
    promise = room.broker.groups.join(request)
    room.timers.advance(1)
    return promise.result().member_id


def test_a_group_is_made_by_the_first_member_that_joins_it(room: Room):
    assert room.broker.groups.find_group("g") is None

    room.join("a", "t")

    group = room.broker.groups.find_group("g")
    assert (group.name, group.type, group.protocol_type) == ("g", CONSUMER, "consumer")
    assert group.subscribes_to(*names("t"))
    assert not group.subscribes_to(*names("u"))


def test_a_member_of_a_group_that_is_not_here_joins_again(room: Room):
    """After a restart. Kafka, whose groups outlive it, answers "not found", which ends clients."""
    refused(UnknownMember, lambda: room.heartbeat("a", 7))
    for epoch in (LEAVE_EPOCH, STATIC_LEAVE_EPOCH):
        refused(UnknownGroup, lambda epoch=epoch: room.heartbeat("a", epoch, instance_id="i"))
    assert room.broker.groups.find_group("g") is None


def test_a_group_of_before_a_restart_is_reported_as_empty(room: Room):
    room.join("a", "t")
    record = room.broker.groups.records.get("g")
    after = Room()
    after.broker.groups.records.load(encode_kept("g", record))

    group = after.group

    assert (group.state_name, len(group.members)) == ("Empty", 0)
    assert after.broker.groups.find_group("g") is None
    refused(UnknownMember, lambda: after.heartbeat("a", 2))


def test_refused_join_creates_no_group(room: Room):
    refused(UnsupportedAssignor, lambda: room.join("a", "t", assignor="cleverest"))
    refused(InvalidGroupName, lambda: room.join("a", "t", group="x" * 100_000))

    assert len(room.broker.groups) == 0


def test_a_classic_group_is_no_consumer_group(room: Room):
    classic(room, protocol_type="connect")

    refused(UnknownGroup, lambda: room.broker.consumer_groups.find_group("g"))
    refused(UnknownGroup, lambda: room.heartbeat("a", LEAVE_EPOCH))
    refused(UnknownMember, lambda: room.heartbeat("a", 3))


def test_empty_group_takes_the_type_of_its_first_member(room: Room):
    member_id = classic(room)
    room.broker.groups.leave("g", member_id)
    room.join("a", "t")
    assert room.broker.groups.find_group("g").type == CONSUMER
    room.heartbeat("a", LEAVE_EPOCH)

    classic(room)

    assert room.broker.groups.find_group("g").type == CLASSIC


def test_groups_with_members_are_kept_when_there_are_too_many():
    room = Room(groups_max=2)
    room.topic("t")
    room.join("a", "t", group="g1")
    room.join("a", "t", group="g2")

    refused(GroupUnavailable, lambda: room.join("a", "t", group="g3"))
    room.heartbeat("a", LEAVE_EPOCH, group="g1")
    room.join("a", "t", group="g3")

    assert [group.name for group in room.broker.groups] == ["g2", "g3"]


def test_group_config_overrides_apply_to_their_group_only(room: Room):
    values = room.broker.group_values
    settings = {"consumer.heartbeat.interval.ms": "700", "consumer.session.timeout.ms": "2000"}
    plan = values.plan_alter("g", settings)
    room.meta.write_now(plan.ops(), plan.preconditions)
    plan.apply()

    room.join("a", "t")
    room.heartbeat("a")
    assert room.heartbeat("a").heartbeat_interval_ms == 700  # sooner while the group changes
    assert room.join("a", "t", group="other").heartbeat_interval_ms == BEAT_MS
    room.timers.advance(2)
    assert room.group.is_empty
    assert room.broker.consumer_groups.find_group("other").members.find_member(
        "a"
    ).assigned == some(room.t, *range(6))
