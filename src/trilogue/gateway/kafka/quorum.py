"""DescribeQuorum v0-v2: who decides about the cluster (KIP-595).

v1 when each was last heard of (KIP-836) · v2 nodes with their endpoints, sentences (KIP-853).

One node decides alone: a quorum of one, which leads, votes and is never behind. Its epoch is the
number of its starts, its end the number of commits to meta. As with a real one the log of decisions
is partition 0 of `__cluster_metadata`, and whoever asks for more than that, or for something else,
is told for each that it is not here (3). There is no listener for controllers to be named.
"""

from __future__ import annotations

from trilogue.broker.access import CLUSTER
from trilogue.gateway.kafka.errors import NOT_ALLOWED
from trilogue.gateway.kafka.shared import Call
from trilogue.wire.kafka import described_quorum as told
from trilogue.wire.kafka.errors import ErrorCode
from trilogue.wire.kafka.quorum import DescribeQuorumRequest

DECISIONS, PARTITION = "__cluster_metadata", 0
TIMES_SINCE = 1


def handle(call: Call, request: DescribeQuorumRequest) -> told.DescribeQuorumResponse:
    """Tell of the one node."""
    if not call.allowed(CLUSTER.name):
        return told.DescribeQuorumResponse(
            error_code=NOT_ALLOWED.code, error_message=NOT_ALLOWED.text
        )
    asked = [(each.topic_name, [row.partition_index for row in each.partitions])
             for each in request.topics]  # fmt: skip
    is_known = asked == [(DECISIONS, [PARTITION])]
    topics = [
        told.TopicData(
            topic_name=name,
            partitions=[_alone(call) if is_known else _strange(index) for index in indexes],
        )
        for name, indexes in asked
    ]
    nodes = [told.Node(node_id=call.broker.cluster.node_id)] if is_known else []
    return told.DescribeQuorumResponse(error_message=None, topics=topics, nodes=nodes)


def _alone(call: Call) -> told.PartitionData:
    cluster = call.broker.cluster
    now_ms = call.door.now_ms()
    voter = told.ReplicaState(
        replica_id=cluster.node_id,
        log_end_offset=cluster.decisions,
        last_fetch_timestamp=now_ms,
        last_caught_up_timestamp=now_ms,
    )
    return told.PartitionData(
        partition_index=PARTITION,
        error_message=None,
        leader_id=cluster.node_id,
        leader_epoch=cluster.node_epoch,
        high_watermark=cluster.decisions,
        current_voters=[voter],
    )


def _strange(index: int) -> told.PartitionData:
    return told.PartitionData(
        partition_index=index,
        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        error_message=f"decisions are in partition {PARTITION} of {DECISIONS}, asked for alone",
    )
