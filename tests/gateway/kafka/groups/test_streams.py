"""StreamsGroupHeartbeat and StreamsGroupDescribe, and the topics that they create."""

from __future__ import annotations

import pytest

from tests.gateway.kafka.rig import Rig, settle
from tests.gateway.loop import on_loop
from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.wire.kafka.errors import ErrorCode
from trilogue.wire.kafka.groups.describe_groups import DescribeGroupsRequest
from trilogue.wire.kafka.groups.describe_streams_groups import StreamsGroupDescribeRequest
from trilogue.wire.kafka.groups.list_groups import ListGroupsRequest
from trilogue.wire.kafka.groups.streams import (
    StreamsCopartitionGroup,
    StreamsEndpoint,
    StreamsGroupHeartbeatRequest,
    StreamsKeyValue,
    StreamsSubtopology,
    StreamsTaskIds,
    StreamsTopicInfo,
    StreamsTopology,
)

CHANGELOG = "app-counts-changelog"
MISSING_INTERNAL_TOPICS, ASSIGNMENT_DELAYED = 3, 5


def subtopology(**fields: object) -> StreamsSubtopology:
    changelog = StreamsTopicInfo(
        name=CHANGELOG, topic_configs=[StreamsKeyValue(key="cleanup.policy", value="compact")]
    )
    given = {
        "subtopology_id": "0",
        "source_topics": ["t"],
        "state_changelog_topics": [changelog],
    }
    return StreamsSubtopology(**{**given, **fields})


def beat(member_id: str = "a", epoch: int = 0, **fields: object) -> StreamsGroupHeartbeatRequest:
    given: dict[str, object] = {"group_id": "g", "member_id": member_id, "member_epoch": epoch}
    if epoch == 0:
        given |= {
            "rebalance_timeout_ms": 1_000,
            "topology": StreamsTopology(epoch=0, subtopologies=[subtopology()]),
            "active_tasks": [],
            "standby_tasks": [],
            "warmup_tasks": [],
            "process_id": "p",
            "user_endpoint": StreamsEndpoint(host="here", port=65_000),
            "client_tags": [StreamsKeyValue(key="zone", value="z")],
        }
    return StreamsGroupHeartbeatRequest(**{**given, **fields})


def do_not_delay(rig: Rig) -> None:
    plan = rig.broker.group_values.plan_alter("g", {"streams.initial.rebalance.delay.ms": "0"})
    rig.meta.write_now(plan.ops(), plan.preconditions)
    plan.apply()


@on_loop
async def test_access_to_groups_and_topics_is_checked():
    async with Rig() as rig:
        rig.topic("t")
        rig.rules.deny(Operation.CREATE, ResourceKind.CLUSTER, "cluster")
        rig.rules.deny(Operation.CREATE, ResourceKind.TOPIC, f"public/default/{CHANGELOG}")
        joined = await rig.peer().request(beat(), 0)
        detail = joined.status[1].status_detail
        assert detail.endswith(f"; Unauthorized to CREATE on topics {CHANGELOG}.")
        rig.rules.deny(Operation.DESCRIBE, ResourceKind.TOPIC, "public/default/t")
        joined = await rig.peer().request(beat("b"), 0)
        assert joined.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        request = StreamsGroupDescribeRequest(group_ids=["g"])
        (group,) = (await rig.peer().request(request, 0)).groups
        assert group.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        rig.rules.deny(Operation.READ, ResourceKind.GROUP, "g")
        rig.rules.deny(Operation.DESCRIBE, ResourceKind.GROUP, "g")
        codes = [
            (await rig.peer().request(beat(), 0)).error_code,
            (await rig.peer().request(request, 0)).groups[0].error_code,
        ]
        assert set(codes) == {ErrorCode.GROUP_AUTHORIZATION_FAILED}


@on_loop
async def test_a_member_gets_the_tasks_of_topics_that_are_created_for_it():
    async with Rig() as rig:
        rig.topic("t", 2)
        peer = rig.peer("client")
        do_not_delay(rig)

        joined = await peer.request(beat(), 0)
        assert (joined.error_code, joined.member_id, joined.active_tasks) == (0, "a", [])
        codes = [each.status_code for each in joined.status]
        assert codes == [MISSING_INTERNAL_TOPICS]
        await settle()
        created = rig.broker.cluster.topic(rig.gateway.topic(CHANGELOG).name)
        assert len(created.partitions) == 2
        assert created.settings["cleanup.policy"] == "compact"
        epoch = joined.member_epoch
        assigned = await peer.request(beat(epoch=epoch), 0)
        (tasks,) = assigned.active_tasks
        assert (tasks.subtopology_id, tasks.partitions) == ("0", [0, 1])
        (endpoint,) = assigned.partitions_by_user_endpoint
        assert endpoint.user_endpoint == StreamsEndpoint(host="here", port=65_000)

        described = await peer.request(StreamsGroupDescribeRequest(group_ids=["g", "none"]), 0)
        group, none = described.groups
        assert (group.group_state, group.group_epoch) == ("Stable", assigned.member_epoch)
        (sub,) = group.topology.subtopologies
        assert sub.state_changelog_topics[0].partitions == 2
        (member,) = group.members
        assert member.assignment.active_tasks == member.target_assignment.active_tasks
        assert (member.client_id, member.process_id) == ("client", "p")
        assert none.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        (listed,) = (await peer.request(ListGroupsRequest(types_filter=["streams"]), 5)).groups
        assert (listed.group_type, listed.protocol_type) == ("streams", "streams")
        (classic,) = (await peer.request(DescribeGroupsRequest(groups=["g"]), 6)).groups
        assert classic.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        left = await peer.request(beat(epoch=-1), 0)
        assert (left.error_code, left.member_epoch) == (0, -1)


def topology(**fields: object) -> dict[str, object]:
    return {"topology": StreamsTopology(epoch=0, subtopologies=[subtopology(**fields)])}


TASKS = [StreamsTaskIds(subtopology_id="0", partitions=[0])]
OUT_OF_RANGE = [StreamsCopartitionGroup(source_topics=[7])]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"member_id": " "}, ErrorCode.INVALID_REQUEST),
        ({"rack_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"instance_id": "i"}, ErrorCode.INVALID_REQUEST),
        ({"task_offsets": []}, ErrorCode.INVALID_REQUEST),
        ({"active_tasks": TASKS}, ErrorCode.INVALID_REQUEST),
        ({"standby_tasks": None}, ErrorCode.INVALID_REQUEST),
        ({"rebalance_timeout_ms": -1}, ErrorCode.INVALID_REQUEST),
        ({"topology": None}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": -3}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": 3}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": 3, "topology": None}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_epoch": -1, "topology": None}, ErrorCode.GROUP_ID_NOT_FOUND),
        (topology(source_topic_regex=["x.*"]), ErrorCode.INVALID_REQUEST),
        (topology(source_topics=["__consumer_offsets"]), ErrorCode.STREAMS_INVALID_TOPOLOGY),
        (topology(source_topics=["a b"]), ErrorCode.STREAMS_INVALID_TOPOLOGY),
        (topology(source_topics=[]), ErrorCode.STREAMS_INVALID_TOPOLOGY),
        (topology(copartition_groups=OUT_OF_RANGE), ErrorCode.STREAMS_INVALID_TOPOLOGY),
        (
            topology(state_changelog_topics=[StreamsTopicInfo(name="c", partitions=1)]),
            ErrorCode.STREAMS_INVALID_TOPOLOGY,
        ),
    ],
)
@on_loop
async def test_wrong_heartbeats_are_refused(fields: dict[str, object], code: ErrorCode):
    async with Rig() as rig:
        rig.topic("t")

        assert (await rig.peer().request(beat(**fields), 0)).error_code == code
