"""LeaderAndIsr v0-v7: a controller names the leaders of partitions.

This node leads every partition, in the epoch of its start; no request changes that:

    this node, in the epoch that it has     NONE
    an earlier epoch                        STALE_CONTROLLER_EPOCH (11), as in Kafka
    a later epoch                           UNKNOWN_LEADER_EPOCH (75): epochs come from the node
    another leader                          INVALID_REPLICA_ASSIGNMENT (39)
    replicas without this node, or a        UNKNOWN_TOPIC_OR_PARTITION (3): none is created
    partition that is not here
    another id than the topic has           INCONSISTENT_TOPIC_ID (103)
"""

from __future__ import annotations

from trilogue.gateway.kafka.context import RequestContext
from trilogue.gateway.kafka.internal.epochs import check_epochs
from trilogue.wire.kafka.codec.schema import ZERO_UUID
from trilogue.wire.kafka.errors import ErrorCode
from trilogue.wire.kafka.internal.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)

IDS_SINCE = 5


def handle_leader_and_isr(
    context: RequestContext, request: LeaderAndIsrRequest
) -> LeaderAndIsrResponse:
    """Compare what the controller names with what this node leads; an error of all is in each."""
    code = check_epochs(
        context, broker_epoch=request.broker_epoch, controller_epoch=request.controller_epoch
    )

    def compare(
        name: str, topic_id: bytes, state: LeaderAndIsrPartitionState
    ) -> LeaderAndIsrPartitionError:
        return LeaderAndIsrPartitionError(
            topic_name=name,
            partition_index=state.partition_index,
            error_code=code or _find_error(context, name, topic_id, state),
        )

    response = LeaderAndIsrResponse(error_code=code)
    for state in request.ungrouped_partition_states:  # up to v1
        response.partition_errors.append(compare(state.topic_name, ZERO_UUID, state))
    for topic in request.topic_states:
        errors = [
            compare(topic.topic_name, topic.topic_id, state) for state in topic.partition_states
        ]
        if context.version < IDS_SINCE:
            response.partition_errors += errors
        else:
            response.topics.append(
                LeaderAndIsrTopicError(topic_id=topic.topic_id, partition_errors=errors)
            )
    return response


def _find_error(
    context: RequestContext, name: str, topic_id: bytes, state: LeaderAndIsrPartitionState
) -> ErrorCode:
    topic = context.gateway.find_topic(name)
    node_id = context.broker.cluster.node_id
    if (
        topic is None
        or not 0 <= state.partition_index < len(topic.partitions)
        or node_id not in state.replicas
    ):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if topic_id not in {ZERO_UUID, topic.topic_id}:
        return ErrorCode.INCONSISTENT_TOPIC_ID
    epoch = topic.partitions[state.partition_index].owner_epoch
    if state.leader_epoch < epoch:
        return ErrorCode.STALE_CONTROLLER_EPOCH
    if state.leader != node_id:
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT
    return ErrorCode.UNKNOWN_LEADER_EPOCH if state.leader_epoch > epoch else ErrorCode.NONE
