"""DescribeGroups: what is described in each state of a group, in every version."""

from __future__ import annotations

import pytest

from tests.gateway.kafka.groups.test_classic import enter, join, sync
from tests.gateway.kafka.groups.test_committed_offsets import commit
from tests.gateway.kafka.rig import Rig, settle, versions
from tests.gateway.loop import on_loop
from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.broker.groups.group import CONSUMER
from trilogue.wire.kafka.groups.describe_groups import DescribeGroupsRequest

NOT_REPORTED = -0x80000000


def describe(*names: str, operations: bool = False) -> DescribeGroupsRequest:
    return DescribeGroupsRequest(groups=list(names), include_authorized_operations=operations)


async def send_request(peer, name: str = "g", version: int = 5):
    (group,) = (await peer.request(describe(name), version)).groups
    return group


def reported(group) -> tuple[int, str, str, str]:
    return group.error_code, group.group_state, group.protocol_type, group.protocol_data


@pytest.mark.parametrize("version", versions(15))
@on_loop
async def test_every_version_describes_a_settled_group(version):
    async with Rig() as rig:
        peer = rig.peer()
        joined = await enter(peer, 9, group_instance_id="i")
        kind = {"protocol_type": "consumer", "protocol_name": "range"}
        await peer.request(sync(joined, group_instance_id="i", **kind), 5)

        group = await send_request(peer, version=version)

        (member,) = group.members
        assert reported(group) == (0, "Stable", "consumer", "range")
        assert (member.member_id, member.client_id) == (joined.member_id, "rig")
        assert member.group_instance_id == ("i" if version >= 4 else None)
        assert member.client_host == "/192.0.2.1"
        assert (member.member_metadata, member.member_assignment) == (b"meta", b"mine")
        assert group.authorized_operations == NOT_REPORTED


@on_loop
async def test_rebalancing_group_describes_members_without_metadata():
    """As Kafka: no protocol, no metadata, no assignments before Stable."""
    async with Rig() as rig:
        peer, other = rig.peer(), rig.peer()
        joined = await enter(peer, 9)
        completing = await send_request(peer)
        await peer.request(sync(joined, protocol_type="consumer", protocol_name="range"), 5)
        other.send(join(), 3)
        await settle()
        preparing = await send_request(peer)

        assert reported(completing) == (0, "CompletingRebalance", "consumer", "")
        assert reported(preparing) == (0, "PreparingRebalance", "consumer", "")
        assert [len(completing.members), len(preparing.members)] == [1, 2]
        for group in completing, preparing:
            for member in group.members:
                assert (member.member_metadata, member.member_assignment) == (b"", b"")


@on_loop
async def test_groups_without_members_are_empty():
    async with Rig() as rig:
        rig.topic("t")
        peer = rig.peer()
        await peer.request(commit("t", 5, group="by-hand"), 6)
        joined = await enter(peer, 9)
        rig.broker.groups.leave("g", joined.member_id)

        assert reported(await send_request(peer, "by-hand")) == (0, "Empty", "", "")
        assert reported(await send_request(peer, "g")) == (0, "Empty", "consumer", "")


@pytest.mark.parametrize("version", versions(15))
@on_loop
async def test_a_group_that_is_not_there_is_dead_and_since_v6_an_error(version):
    """KIP-1043; as Kafka 3.9.1 and 4.3.1."""
    async with Rig() as rig:
        rig.broker.groups.records.mark_empty("modern", CONSUMER, "consumer")
        unknown = await send_request(rig.peer(), "nobody", version)
        modern = await send_request(rig.peer(), "modern", version)

        for group in unknown, modern:
            assert reported(group) == (69 if version >= 6 else 0, "Dead", "", "")
        if version >= 6:
            assert unknown.error_message == "Group nobody not found."
            assert modern.error_message == "Group modern is not a classic group."


@on_loop
async def test_groups_are_described_in_the_requested_order():
    async with Rig() as rig:
        answer = await rig.peer().request(describe("b", "a"), 5)

        assert [group.group_id for group in answer.groups] == ["b", "a"]


@pytest.mark.parametrize("version", [each for each in versions(15) if each >= 3])
@on_loop
async def test_authorized_operations_are_returned_on_request(version):
    async with Rig() as rig:
        rig.topic("t")
        peer = rig.peer()
        await peer.request(commit("t", 5, group="g"), 6)
        rig.rules.deny(Operation.DELETE, ResourceKind.GROUP, "g")

        answer = await peer.request(describe("g", "nobody", operations=True), version)

        everything = 3_400  # as in Kafka 4.3.1
        assert answer.groups[0].authorized_operations == everything - (1 << 6)
        assert (answer.groups[1].authorized_operations == NOT_REPORTED) == (version >= 6)


@on_loop
async def test_describe_groups_without_permission_is_denied():
    async with Rig() as rig:
        peer = rig.peer()
        await enter(peer, 3)
        rig.rules.deny(Operation.DESCRIBE, ResourceKind.GROUP, "g")

        answer = await peer.request(describe("g", "h", operations=True), 5)

        assert reported(answer.groups[0]) == (30, "", "", "")
        assert answer.groups[0].members == []
        assert answer.groups[0].authorized_operations == NOT_REPORTED
        assert reported(answer.groups[1]) == (0, "Dead", "", "")


@on_loop
async def test_a_member_that_has_left_is_not_described():
    async with Rig() as rig:
        peer = rig.peer()
        await enter(peer, 3)
        rig.broker.groups.leave("g", (await send_request(peer)).members[0].member_id)

        assert (await send_request(peer)).members == []


@on_loop
async def test_a_group_that_is_named_again_is_reported_once():
    """Else a small request has an answer of any size: a group's members, thousands of times."""
    async with Rig() as rig:
        peer = rig.peer()
        await enter(peer, 9)

        reported = await peer.request(describe("g", "h", *["g"] * 1_000), 5)

        assert [each.group_id for each in reported.groups] == ["g", "h"]
