"""ShareGroupHeartbeat, ShareGroupDescribe and the requests about positions of share groups."""

from __future__ import annotations

import asyncio

import pytest

from tests.gateway.kafka.rig import Peer, Rig, settle, versions
from tests.gateway.loop import on_loop
from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.wire.kafka.errors import ErrorCode
from trilogue.wire.kafka.groups.classic import JoinGroupRequest
from trilogue.wire.kafka.groups.delete_groups import DeleteGroupsRequest
from trilogue.wire.kafka.groups.describe_groups import DescribeGroupsRequest
from trilogue.wire.kafka.groups.describe_share_groups import ShareGroupDescribeRequest
from trilogue.wire.kafka.groups.list_groups import ListGroupsRequest
from trilogue.wire.kafka.groups.share import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from trilogue.wire.kafka.groups.share_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)

TOPIC = "public/default/t"
LEAVE = -1


def beat(member_id: str = "a", epoch: int = 0, **fields: object) -> ShareGroupHeartbeatRequest:
    given = {"group_id": "g", "member_id": member_id, "member_epoch": epoch}
    if epoch == 0:
        given["subscribed_topic_names"] = ["t"]
    return ShareGroupHeartbeatRequest(**{**given, **fields})


async def join(peer: Peer) -> ShareGroupHeartbeatResponse:
    """Join as the first member, and return the response that has partitions."""
    joined = await peer.request(beat(), 1)
    assert (joined.error_code, joined.heartbeat_interval_ms) == (0, 200)
    assert joined.assignment.topic_partitions == []
    await asyncio.sleep(1)
    return await peer.request(beat(epoch=joined.member_epoch), 1)


async def describe_offsets(rig: Rig, *partitions: int, version: int = 1):
    topics = None
    if partitions:
        named = DescribeShareGroupOffsetsRequestTopic(topic_name="t", partitions=[*partitions])
        topics = [named]
    group = DescribeShareGroupOffsetsRequestGroup(group_id="g", topics=topics)
    response = await rig.peer().request(DescribeShareGroupOffsetsRequest(groups=[group]), version)
    return response.groups[0]


def alter(index: int, offset: int) -> AlterShareGroupOffsetsRequest:
    partition = AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=offset)
    topic = AlterShareGroupOffsetsRequestTopic(topic_name="t", partitions=[partition])
    return AlterShareGroupOffsetsRequest(group_id="g", topics=[topic])


def delete(name: str = "t") -> DeleteShareGroupOffsetsRequest:
    topic = DeleteShareGroupOffsetsRequestTopic(topic_name=name)
    return DeleteShareGroupOffsetsRequest(group_id="g", topics=[topic])


@on_loop
async def test_a_member_joins_stays_and_leaves():
    async with Rig() as rig:
        topic_id = rig.topic("t", 2).topic_id
        peer = rig.peer("client")

        joined = await join(peer)
        assert (joined.error_code, joined.member_id) == (0, "a")
        assert joined.heartbeat_interval_ms == 5_000
        (assigned,) = joined.assignment.topic_partitions
        assert (assigned.topic_id, assigned.partitions) == (topic_id, [0, 1])
        stays = await peer.request(beat(epoch=joined.member_epoch), 1)
        assert (stays.error_code, stays.assignment) == (0, None)
        left = await peer.request(beat(epoch=LEAVE), 1)
        assert (left.error_code, left.member_epoch) == (0, LEAVE)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"member_id": " "}, ErrorCode.INVALID_REQUEST),
        ({"rack_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"subscribed_topic_names": None}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": -2}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": 3}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_epoch": -1}, ErrorCode.GROUP_ID_NOT_FOUND),
    ],
)
@on_loop
async def test_wrong_heartbeats_are_refused(fields: dict[str, object], code: ErrorCode):
    async with Rig() as rig:
        rig.topic("t")

        assert (await rig.peer().request(beat(**fields), 1)).error_code == code


@on_loop
async def test_a_group_is_described_and_listed_as_what_it_is():
    async with Rig() as rig:
        rig.topic("t", 2)
        peer = rig.peer("client")
        await join(peer)

        described = await peer.request(
            ShareGroupDescribeRequest(group_ids=["g", "none"], include_authorized_operations=True),
            1,
        )
        group, none = described.groups
        assert (group.group_state, group.assignor_name) == ("Stable", "simple")
        (member,) = group.members
        assert (member.member_id, member.client_id) == ("a", "client")
        assert member.subscribed_topic_names == ["t"]
        assert member.assignment.topic_partitions[0].partitions == [0, 1]
        assert none.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        (listed,) = (await peer.request(ListGroupsRequest(types_filter=["share"]), 5)).groups
        assert (listed.group_type, listed.protocol_type) == ("share", "share")
        assert listed.group_state == "Stable"
        (classic,) = (await peer.request(DescribeGroupsRequest(groups=["g"]), 6)).groups
        assert classic.error_code == ErrorCode.GROUP_ID_NOT_FOUND


@on_loop
async def test_a_classic_member_of_a_share_group_is_refused():
    async with Rig() as rig:
        rig.topic("t")
        await rig.peer().request(beat(), 1)

        joined = await rig.peer().request(
            JoinGroupRequest(
                group_id="g", protocol_type="consumer", session_timeout_ms=10_000, protocols=[]
            ),
            9,
        )

        assert joined.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@on_loop
async def test_access_to_groups_and_topics_is_checked():
    async with Rig() as rig:
        rig.topic("t")
        await join(rig.peer())
        rig.rules.deny(Operation.DESCRIBE, ResourceKind.TOPIC, TOPIC)
        joined = await rig.peer().request(beat("b"), 1)
        assert joined.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        request = ShareGroupDescribeRequest(group_ids=["g"])
        (group,) = (await rig.peer().request(request, 1)).groups
        assert group.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        rig.rules.deny(Operation.READ, ResourceKind.GROUP, "g")
        rig.rules.deny(Operation.DESCRIBE, ResourceKind.GROUP, "g")
        rig.rules.deny(Operation.DELETE, ResourceKind.GROUP, "g")
        codes = [
            (await rig.peer().request(beat(), 1)).error_code,
            (await rig.peer().request(request, 1)).groups[0].error_code,
            (await describe_offsets(rig)).error_code,
            (await rig.peer().request(alter(0, 0), 0)).error_code,
            (await rig.peer().request(delete(), 0)).error_code,
        ]
        assert set(codes) == {ErrorCode.GROUP_AUTHORIZATION_FAILED}


@pytest.mark.parametrize("version", versions(90))
@on_loop
async def test_positions_are_described(version: int):
    async with Rig() as rig:
        topic = rig.topic("t", 3)
        await rig.peer().request(beat(), 1)
        rig.broker.share_partitions.start("g", topic.partitions[1].partition_id, 0)

        every = await describe_offsets(rig, version=version)
        (found,) = every.topics
        assert (found.topic_name, found.topic_id) == ("t", topic.topic_id)
        (partition,) = found.partitions
        assert (partition.partition_index, partition.start_offset) == (1, 0)
        assert partition.lag == (0 if version else -1)
        named = await describe_offsets(rig, 0, 1, 9, version=version)
        offsets = [
            (each.partition_index, each.start_offset, each.error_code)
            for each in named.topics[0].partitions
        ]
        assert offsets == [(0, -1, 0), (1, 0, 0), (9, -1, 3)]


@on_loop
async def test_positions_of_a_group_without_members_are_moved_and_deleted():
    async with Rig() as rig:
        topic = rig.topic("t", 2)
        peer = rig.peer()
        assert (await peer.request(delete(), 0)).error_code == ErrorCode.GROUP_ID_NOT_FOUND
        await peer.request(beat(), 1)
        assert (await peer.request(alter(0, 0), 0)).error_code == ErrorCode.NON_EMPTY_GROUP
        assert (await peer.request(delete(), 0)).error_code == ErrorCode.NON_EMPTY_GROUP
        await peer.request(beat(epoch=LEAVE), 1)

        altered = await peer.request(alter(0, 7), 0)
        wrong = await peer.request(alter(5, 0), 0)
        assert altered.responses[0].topic_id == topic.topic_id
        assert altered.responses[0].partitions[0].error_code == 0
        assert wrong.responses[0].partitions[0].error_code == 3
        described = await describe_offsets(rig)
        assert described.topics[0].partitions[0].start_offset == 0  # there are no records
        deleted = await peer.request(delete(), 0)
        unknown = await peer.request(delete("u"), 0)
        assert deleted.responses[0].error_code == 0
        assert unknown.responses[0].error_code == 3
        assert (await describe_offsets(rig)).topics == []


@on_loop
async def test_positions_of_an_unknown_group_make_it():
    async with Rig() as rig:
        rig.topic("t")

        assert (await rig.peer().request(alter(0, 0), 0)).error_code == 0

        (listed,) = (await rig.peer().request(ListGroupsRequest(), 5)).groups
        assert (listed.group_id, listed.group_type, listed.group_state) == ("g", "share", "Empty")
        assert (await describe_offsets(rig)).topics[0].partitions[0].start_offset == 0


@on_loop
async def test_a_group_is_deleted():
    async with Rig() as rig:
        rig.topic("t")
        peer = rig.peer()
        await peer.request(beat(), 1)
        request = DeleteGroupsRequest(groups_names=["g"])
        assert (await peer.request(request, 2)).results[0].error_code == 68
        await peer.request(beat(epoch=LEAVE), 1)

        assert (await peer.request(request, 2)).results[0].error_code == 0
        await settle()

        assert (await describe_offsets(rig)).error_code == ErrorCode.GROUP_ID_NOT_FOUND
