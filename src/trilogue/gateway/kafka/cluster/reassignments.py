"""AlterPartitionReassignments v0-v1, ListPartitionReassignments v0: move replicas (KIP-455).

v1 `allow_replication_factor_change` (KIP-860), which has no effect: the factor is fixed.

A request for the assignment that Metadata lists, in its order, succeeds (0): with one node that is
the node. Any other is impossible (39): slots of partitions are moved by `trilogue nodes`. There is
never a reassignment to cancel (85) or to list.
"""

from __future__ import annotations

from collections.abc import Sequence

from trilogue.broker.access.authorizer import CLUSTER
from trilogue.broker.topics.ownership import Ownership
from trilogue.broker.topics.topic import Topic
from trilogue.gateway.kafka.context import RequestContext
from trilogue.gateway.kafka.errors import CLUSTER_DENIED
from trilogue.wire.kafka.cluster.reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopic,
    ReassignableTopicResponse,
)
from trilogue.wire.kafka.errors import ErrorCode

Outcome = tuple[ErrorCode, str | None]


def handle_alter_partition_reassignments(
    context: RequestContext, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    """Compare each requested assignment with the one that is possible."""
    change = request.allow_replication_factor_change
    if not context.is_allowed(CLUSTER.name):
        return AlterPartitionReassignmentsResponse(
            error_code=CLUSTER_DENIED.code,
            error_message=CLUSTER_DENIED.text,
            allow_replication_factor_change=change,
        )
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=change,
        error_message=None,
        responses=[_check_topic(context, each) for each in request.topics],
    )


def _check_topic(
    context: RequestContext, requested: ReassignableTopic
) -> ReassignableTopicResponse:
    topic = context.gateway.find_topic(requested.name)
    answer = ReassignableTopicResponse(name=requested.name)
    for each in requested.partitions:
        code, message = _check_partition(
            context.broker.cluster.ownership, topic, requested.name, each
        )
        answer.partitions.append(
            ReassignablePartitionResponse(
                partition_index=each.partition_index, error_code=code, error_message=message
            )
        )
    return answer


def _check_partition(
    ownership: Ownership, topic: Topic | None, spelled: str, requested: ReassignablePartition
) -> Outcome:
    index = requested.partition_index
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {spelled}"
    if not 0 <= index < len(topic.partitions):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {spelled}-{index}"
    if requested.replicas is None:
        return ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, None
    leader = ownership.partition_leader(topic.partitions[index].partition_id)
    return _check_replicas(ownership.copies_by_owner()[leader], requested.replicas)


def _check_replicas(present: Sequence[int], replicas: Sequence[int]) -> Outcome:
    """Check an assignment: only the present one is possible."""
    code = ErrorCode.INVALID_REPLICA_ASSIGNMENT
    if not replicas:
        return code, "the assignment names no node"
    if len(set(replicas)) < len(replicas):
        return code, "the assignment names a node more than once"
    if list(replicas) == list(present):
        return ErrorCode.NONE, None
    strange = sorted(set(replicas) - set(present))
    if strange and len(present) == 1:
        return code, f"the assignment names node {strange[0]}, which there is not"
    listed = ", ".join(map(str, present))
    return code, f"the partition stays with {listed}: `trilogue nodes` moves it"


def handle_list_partition_reassignments(
    context: RequestContext, _request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """List no reassignments."""
    if not context.is_allowed(CLUSTER.name):
        return ListPartitionReassignmentsResponse(
            error_code=CLUSTER_DENIED.code, error_message=CLUSTER_DENIED.text
        )
    return ListPartitionReassignmentsResponse(error_message=None)
