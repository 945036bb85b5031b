"""DescribeQuorum: a quorum of one."""

from __future__ import annotations

import pytest

from tests.gateway.kafka.rig import NOW_MS, Rig, versions
from tests.gateway.loop import on_loop
from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.wire.kafka.cluster.quorum import (
    DescribeQuorumPartition,
    DescribeQuorumRequest,
    DescribeQuorumTopic,
)


def of(*topics: tuple[str, list[int]]) -> DescribeQuorumRequest:
    return DescribeQuorumRequest(
        topics=[
            DescribeQuorumTopic(
                topic_name=name,
                partitions=[DescribeQuorumPartition(partition_index=index) for index in indexes],
            )
            for name, indexes in topics
        ]
    )


@pytest.mark.parametrize("version", versions(55))
@on_loop
async def test_one_node_leads_votes_and_is_never_behind(version):
    """KIP-595, KIP-836 (v1: times), KIP-853 (v2: nodes)."""
    async with Rig() as rig:
        commits = rig.broker.cluster.metadata_version

        answer = await rig.peer().request(of(("__cluster_metadata", [0])), version)

        ((reported,),) = [each.partitions for each in answer.topics]
        (voter,) = reported.current_voters
        assert (answer.error_code, reported.error_code, reported.observers) == (0, 0, [])
        assert (reported.leader_id, reported.leader_epoch, voter.replica_id) == (1, 3, 1)
        assert reported.high_watermark == voter.log_end_offset == commits
        times = {voter.last_fetch_timestamp, voter.last_caught_up_timestamp}
        assert times == ({NOW_MS} if version >= 1 else {-1})
        assert [each.node_id for each in answer.nodes] == ([1] if version >= 2 else [])


@pytest.mark.parametrize(
    "requested",
    [
        [("x", [0])],
        [("__cluster_metadata", [1])],
        [("__cluster_metadata", [0, 1])],
        [("__cluster_metadata", [0]), ("x", [0])],
    ],
)
@on_loop
async def test_a_client_that_requests_more_is_notified_that_none_of_it_is_here(requested):
    """As Kafka 3.9.1 and 4.3.1."""
    async with Rig() as rig:
        answer = await rig.peer().request(of(*requested), 2)

        reported = [row for each in answer.topics for row in each.partitions]
        assert [each.topic_name for each in answer.topics] == [name for name, _ in requested]
        assert [row.partition_index for row in reported] == [
            i for _, rows in requested for i in rows
        ]
        assert {row.error_code for row in reported} == {3}
        assert all(row.error_message for row in reported)
        assert answer.nodes == []


@on_loop
async def test_each_commit_to_meta_moves_the_end():
    async with Rig() as rig:
        before = await rig.peer().request(of(("__cluster_metadata", [0])), 0)
        rig.topic("t")

        after = await rig.peer().request(of(("__cluster_metadata", [0])), 0)

        ends = [each.topics[0].partitions[0].high_watermark for each in (before, after)]
        assert ends[1] > ends[0]


@on_loop
async def test_describe_quorum_without_permission_is_denied():
    async with Rig() as rig:
        rig.rules.deny(Operation.DESCRIBE, ResourceKind.CLUSTER, "cluster")

        answer = await rig.peer().request(of(("__cluster_metadata", [0])), 2)

        assert (answer.error_code, answer.topics) == (31, [])
