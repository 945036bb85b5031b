"""DescribeQuorum v0-v2: the metadata quorum (KIP-595).

v1 times of the last fetch and of the last catch-up (KIP-836) · v2 nodes with endpoints, error
messages (KIP-853).

The node is a quorum of one: leader, only voter, never behind. Its epoch is the number of the node's
starts; its log end offset is the number of changes to `meta`. The metadata log is partition 0 of
`__cluster_metadata`, as in Kafka; a request for any other partition gets 3 for each. There is no
controller listener to report.
"""

from __future__ import annotations

from collections.abc import Coroutine
from functools import partial
from typing import Any

from trilogue.broker.access.authorizer import CLUSTER
from trilogue.gateway.kafka.context import RequestContext
from trilogue.gateway.kafka.errors import CLUSTER_DENIED
from trilogue.gateway.kafka.offsets.topic_results import PARTITIONS_PER_STEP, build_topic_results
from trilogue.gateway.steps import begin_steps
from trilogue.log.steps import Steps
from trilogue.wire.kafka.cluster.quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumTopic,
    QuorumNode,
    QuorumPartition,
    QuorumReplica,
    QuorumTopic,
)
from trilogue.wire.kafka.errors import ErrorCode

METADATA_TOPIC, PARTITION = "__cluster_metadata", 0


def handle_describe_quorum(
    context: RequestContext, request: DescribeQuorumRequest
) -> DescribeQuorumResponse | Coroutine[Any, Any, DescribeQuorumResponse]:
    """Describe the quorum of this node."""
    if not context.is_allowed(CLUSTER.name):
        return DescribeQuorumResponse(
            error_code=CLUSTER_DENIED.code, error_message=CLUSTER_DENIED.text
        )
    return begin_steps(_steps(context, request))


def _steps(
    context: RequestContext, request: DescribeQuorumRequest
) -> Steps[DescribeQuorumResponse]:
    is_known = len(request.topics) == 1 and _is_metadata(request.topics[0])
    build = partial(_topic, context, is_known=is_known)
    topics = yield from build_topic_results(request.topics, build)
    nodes = [QuorumNode(node_id=context.broker.cluster.node_id)] if is_known else []
    return DescribeQuorumResponse(error_message=None, topics=topics, nodes=nodes)


def _is_metadata(topic: DescribeQuorumTopic) -> bool:
    indexes = topic.partitions
    return (
        topic.topic_name == METADATA_TOPIC
        and len(indexes) == 1
        and indexes[0].partition_index == PARTITION
    )


def _topic(
    context: RequestContext, requested: DescribeQuorumTopic, *, is_known: bool
) -> Steps[QuorumTopic]:
    topic = QuorumTopic(topic_name=requested.topic_name)
    for count, each in enumerate(requested.partitions, 1):
        described = _describe(context) if is_known else _unknown(each.partition_index)
        topic.partitions.append(described)
        if count % PARTITIONS_PER_STEP == 0:
            yield
    return topic


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
