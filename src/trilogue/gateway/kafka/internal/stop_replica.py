"""StopReplica v0-v4: a controller ends replicas, and may delete them.

Nothing ends and nothing is deleted here: DeleteTopics is the only request that deletes a topic. A
partition of this node is refused with POLICY_VIOLATION (44), or with FENCED_LEADER_EPOCH (74) for
an earlier epoch (v3). A partition that is not here has no replica to end: NONE, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from trilogue.gateway.kafka.context import RequestContext
from trilogue.gateway.kafka.internal.epochs import check_epochs
from trilogue.wire.kafka.errors import ErrorCode
from trilogue.wire.kafka.internal.stop_replica import (
    StopReplicaPartitionError,
    StopReplicaRequest,
    StopReplicaResponse,
)

NO_EPOCH: Final = -1  # the sender does not know it
EPOCH_OF_DELETION: Final = -2  # of a topic that is being deleted: it is not compared


def handle_stop_replica(
    context: RequestContext, request: StopReplicaRequest
) -> StopReplicaResponse:
    """Refuse the partitions that this node leads."""
    code = check_epochs(
        context, broker_epoch=request.broker_epoch, controller_epoch=request.controller_epoch
    )
    if code:
        return StopReplicaResponse(error_code=code)
    return StopReplicaResponse(
        partition_errors=[
            StopReplicaPartitionError(
                topic_name=name,
                partition_index=index,
                error_code=_find_error(context, name, index, leader_epoch),
            )
            for name, index, leader_epoch in _list_partitions(request)
        ]
    )


def _list_partitions(request: StopReplicaRequest) -> Iterator[tuple[str, int, int]]:
    """Iterate over topic, partition and leader epoch; a version has one of the three lists."""
    for partition in request.ungrouped_partitions:
        yield partition.topic_name, partition.partition_index, NO_EPOCH
    for topic in request.topics:
        for index in topic.partition_indexes:
            yield topic.name, index, NO_EPOCH
    for each in request.topic_states:
        for state in each.partition_states:
            yield each.topic_name, state.partition_index, state.leader_epoch


def _find_error(context: RequestContext, name: str, index: int, leader_epoch: int) -> ErrorCode:
    topic = context.gateway.find_topic(name)
    if topic is None or not 0 <= index < len(topic.partitions):
        return ErrorCode.NONE
    is_compared = leader_epoch not in {NO_EPOCH, EPOCH_OF_DELETION}
    if is_compared and leader_epoch < topic.partitions[index].owner_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    return ErrorCode.POLICY_VIOLATION
