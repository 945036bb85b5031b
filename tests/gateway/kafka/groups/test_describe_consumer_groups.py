"""ConsumerGroupDescribe: KIP-848 groups as administrators see them."""

from __future__ import annotations

import pytest

from tests.gateway.kafka.groups.test_classic import join as classic_join
from tests.gateway.kafka.groups.test_consumer import beat
from tests.gateway.kafka.rig import Rig, versions
from tests.gateway.loop import on_loop
from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.broker.names import parse_kafka
from trilogue.wire.kafka.groups.classic import JoinGroupRequestProtocol
from trilogue.wire.kafka.groups.describe_consumer_groups import ConsumerGroupDescribeRequest
from trilogue.wire.kafka.groups.member_metadata import Subscription, encode_subscription


def describe(*groups: str, operations: bool = False) -> ConsumerGroupDescribeRequest:
    return ConsumerGroupDescribeRequest(
        group_ids=list(groups), include_authorized_operations=operations
    )


def named(assignment) -> dict[str, list[int]]:
    return {each.topic_name: each.partitions for each in assignment.topic_partitions}


@pytest.mark.parametrize("version", versions(69))
@on_loop
async def test_members_are_described_with_subscription_assignment_and_target(version):
    async with Rig() as rig:
        t = rig.topic("t", 3).topic_id
        peer = rig.peer()
        given = {"rack_id": "r", "instance_id": "i", "server_assignor": "range"}
        await peer.request(beat("a", **given), 1)
        await peer.request(beat("b", subscribed_topic_names=None, subscribed_topic_regex="t.*"), 1)

        (group,) = (await peer.request(describe("g"), version)).groups

        assert (group.error_code, group.group_id, group.group_state) == (0, "g", "Reconciling")
        assert (group.group_epoch, group.assignment_epoch, group.assignor_name) == (3, 3, "range")
        assert group.authorized_operations == -(2**31)
        a, b = group.members
        assert (a.member_id, a.instance_id, a.rack_id, a.member_epoch) == ("a", "i", "r", 2)
        assert (a.client_id, a.client_host[0]) == ("rig", "/")
        assert (a.subscribed_topic_names, a.subscribed_topic_regex) == (["t"], "")
        assert (b.subscribed_topic_names, b.subscribed_topic_regex) == ([], "t.*")
        assert (named(a.assignment), named(a.target_assignment)) == (
            {"t": [0, 1, 2]},
            {"t": [0, 1]},
        )
        assert (named(b.assignment), named(b.target_assignment)) == ({}, {"t": [2]})
        assert {each.topic_id for each in a.assignment.topic_partitions} == {t}
        assert {a.member_type, b.member_type} == ({1} if version else {-1})


@on_loop
async def test_member_of_the_classic_protocol_is_described_as_classic():
    async with Rig() as rig:
        rig.topic("t")
        peer = rig.peer()
        await peer.request(beat("a"), 1)
        given = encode_subscription(Subscription(topics=["t"]))
        protocols = [JoinGroupRequestProtocol(name="range", metadata=given)]
        joined = await peer.request(classic_join(protocols=protocols), 3)
        assert (joined.error_code, joined.leader) == (0, "")

        (group,) = (await peer.request(describe("g"), 1)).groups

        assert [each.member_type for each in group.members] == [1, 0]


@on_loop
async def test_group_of_another_type_is_not_found():
    async with Rig() as rig:
        peer = rig.peer()
        await peer.request(classic_join("classic"), 3)
        rig.rules.deny(Operation.DESCRIBE, ResourceKind.GROUP, "secret")

        answer = await peer.request(describe("nobody", "classic", "", "secret"), 1)

        assert [each.error_code for each in answer.groups] == [69, 69, 24, 30]
        assert [each.group_id for each in answer.groups] == ["nobody", "classic", "", "secret"]
        assert answer.groups[0].error_message


@on_loop
async def test_group_with_a_topic_without_describe_permission_is_denied():
    """As Kafka 4: members and their assignments would reveal the topic."""
    async with Rig() as rig:
        rig.topic("t")
        peer = rig.peer()
        await peer.request(beat("a"), 1)
        rig.rules.deny(Operation.DESCRIBE, ResourceKind.TOPIC, str(parse_kafka("t")))

        (group,) = (await peer.request(describe("g"), 1)).groups

        assert (group.error_code, group.members) == (29, [])


@on_loop
async def test_authorized_operations_are_returned_on_request():
    async with Rig() as rig:
        peer = rig.peer()
        await peer.request(beat("a"), 1)
        rig.rules.deny(Operation.DELETE, ResourceKind.GROUP, "g")

        (group,) = (await peer.request(describe("g", operations=True), 1)).groups

        assert group.authorized_operations == 3_400 - (1 << 6)


@on_loop
async def test_a_group_that_is_named_again_is_reported_once():
    """A small request must not get an unlimited response: a group's members, thousands of times."""
    async with Rig() as rig:
        rig.topic("t")
        peer = rig.peer()
        await peer.request(beat("a"), 1)

        reported = await peer.request(describe("g", "h", *["g"] * 1_000), 1)

        assert [each.group_id for each in reported.groups] == ["g", "h"]
