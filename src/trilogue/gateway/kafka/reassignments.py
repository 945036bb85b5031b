"""AlterPartitionReassignments v0-v1, ListPartitionReassignments v0: move replicas (KIP-455).

v1 whether the number of replicas may change (KIP-860): here it cannot, so it makes no difference.

A partition's only replica is on the only node. To ask for that is done at once (0), any other list
of nodes is impossible (39), and there is never a move under way to be ended (85) or listed.
"""

from __future__ import annotations

from collections.abc import Sequence

from trilogue.broker.access import CLUSTER
from trilogue.broker.topic import Topic
from trilogue.gateway.kafka.errors import NOT_ALLOWED
from trilogue.gateway.kafka.shared import Call
from trilogue.wire.kafka.errors import ErrorCode
from trilogue.wire.kafka.reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopic,
    ReassignableTopicResponse,
)

Outcome = tuple[ErrorCode, str | None]


def alter(
    call: Call, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    """Say of each partition whether that is how it is, or why it cannot be."""
    change = request.allow_replication_factor_change
    if not call.allowed(CLUSTER.name):
        return AlterPartitionReassignmentsResponse(
            error_code=NOT_ALLOWED.code,
            error_message=NOT_ALLOWED.text,
            allow_replication_factor_change=change,
        )
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=change,
        error_message=None,
        responses=[_topic(call, each) for each in request.topics],
    )


def _topic(call: Call, asked: ReassignableTopic) -> ReassignableTopicResponse:
    topic = call.door.find_topic(asked.name)
    answer = ReassignableTopicResponse(name=asked.name)
    for each in asked.partitions:
        code, what = _outcome(call.broker.cluster.node_id, topic, asked.name, each)
        answer.partitions.append(
            ReassignablePartitionResponse(
                partition_index=each.partition_index, error_code=code, error_message=what
            )
        )
    return answer


def _outcome(
    node_id: int, topic: Topic | None, spelled: str, asked: ReassignablePartition
) -> Outcome:
    index = asked.partition_index
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {spelled}"
    if not 0 <= index < len(topic.partitions):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {spelled}-{index}"
    if asked.replicas is None:
        return ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, None
    return _judged(node_id, asked.replicas)


def _judged(node_id: int, replicas: Sequence[int]) -> Outcome:
    """Say whether a list of nodes is the one that is possible."""
    code = ErrorCode.INVALID_REPLICA_ASSIGNMENT
    if not replicas:
        return code, "the assignment names no node"
    if len(set(replicas)) < len(replicas):
        return code, "the assignment names a node more than once"
    strange = sorted(each for each in replicas if each != node_id)
    if strange:
        return code, f"the assignment names node {strange[0]}, which there is not"
    return ErrorCode.NONE, None


def list_moves(
    call: Call, _request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """Say that nothing is on the move."""
    if not call.allowed(CLUSTER.name):
        return ListPartitionReassignmentsResponse(
            error_code=NOT_ALLOWED.code, error_message=NOT_ALLOWED.text
        )
    return ListPartitionReassignmentsResponse(error_message=None)
