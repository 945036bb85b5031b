"""DescribeQuorum v0-v2: the metadata quorum (KIP-595).

v1 times of the last fetch and of the last catch-up (KIP-836) · v2 nodes with endpoints, error
messages (KIP-853).

The node is a quorum of one: leader, only voter, never behind. Its epoch is the number of the node's
starts; its log end offset is the number of changes to `meta`. The metadata log is partition 0 of
`__cluster_metadata`, as in Kafka; a request for any other partition gets 3 for each. There is no
controller listener to report.
"""

from __future__ import annotations

from trilogue.broker.access.authorizer import CLUSTER
from trilogue.gateway.kafka.context import RequestContext
from trilogue.gateway.kafka.errors import CLUSTER_DENIED
from trilogue.wire.kafka.cluster.quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    QuorumNode,
    QuorumPartition,
    QuorumReplica,
    QuorumTopic,
)
from trilogue.wire.kafka.errors import ErrorCode

METADATA_TOPIC, PARTITION = "__cluster_metadata", 0


def handle_describe_quorum(
    context: RequestContext, request: DescribeQuorumRequest
) -> DescribeQuorumResponse:
    """Describe the quorum of this node."""
    if not context.is_allowed(CLUSTER.name):
        return DescribeQuorumResponse(
            error_code=CLUSTER_DENIED.code, error_message=CLUSTER_DENIED.text
        )
    requested = [(each.topic_name, [row.partition_index for row in each.partitions])
             for each in request.topics]  # fmt: skip
    is_known = requested == [(METADATA_TOPIC, [PARTITION])]
    topics = [
        QuorumTopic(
            topic_name=name,
            partitions=[_describe(context) if is_known else _unknown(index) for index in indexes],
        )
        for name, indexes in requested
    ]
    nodes = [QuorumNode(node_id=context.broker.cluster.node_id)] if is_known else []
    return DescribeQuorumResponse(error_message=None, topics=topics, nodes=nodes)


def _describe(context: RequestContext) -> QuorumPartition:
    cluster = context.broker.cluster
    now_ms = context.gateway.now_ms()
    voter = QuorumReplica(
        replica_id=cluster.node_id,
        log_end_offset=cluster.metadata_version,
        last_fetch_timestamp=now_ms,
        last_caught_up_timestamp=now_ms,
    )
    return QuorumPartition(
        partition_index=PARTITION,
        error_message=None,
        leader_id=cluster.node_id,
        leader_epoch=cluster.node_epoch,
        high_watermark=cluster.metadata_version,
        current_voters=[voter],
    )


def _unknown(index: int) -> QuorumPartition:
    return QuorumPartition(
        partition_index=index,
        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        error_message=f"the only partition of the quorum is {METADATA_TOPIC}-{PARTITION}",
    )
