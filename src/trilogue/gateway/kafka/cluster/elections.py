"""ElectLeaders v0-v2: start leader elections (KIP-183, KIP-460).

v0 preferred leaders only · v1 election type, top-level error · v2 flexible.

Every partition has one replica, which is its leader and its preferred leader, so no election is
ever needed: the result is 84 for each existing partition and 3 for each other. A request for all
partitions gets the topics without partition results, as from Kafka. An unknown election type is 42.
"""

from __future__ import annotations

from trilogue.broker.access.authorizer import CLUSTER
from trilogue.broker.names import format_kafka, is_kafka_name
from trilogue.gateway.kafka.context import RequestContext
from trilogue.gateway.kafka.errors import CLUSTER_DENIED
from trilogue.wire.kafka.cluster.elections import (
    ElectionTopic,
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from trilogue.wire.kafka.errors import ErrorCode

KINDS = (0, 1)  # preferred, unclean
KINDS_SINCE = 1


def handle_elect_leaders(
    context: RequestContext, request: ElectLeadersRequest
) -> ElectLeadersResponse:
    """Report for each partition that no election is needed."""
    if not context.is_allowed(CLUSTER.name):
        return _error_response(request, *CLUSTER_DENIED)
    requested = request.topic_partitions
    if context.version >= KINDS_SINCE and request.election_type not in KINDS and requested != []:
        message = f"there is no election of kind {request.election_type}"
        return _error_response(request, ErrorCode.INVALID_REQUEST, message)
    if requested is None:
        spelled = [
            format_kafka(topic.name)
            for topic in context.broker.cluster
            if is_kafka_name(topic.name)
        ]
        results = [ReplicaElectionResult(topic=name) for name in spelled]
    else:
        results = [_topic(context, each) for each in requested]
    return ElectLeadersResponse(replica_election_results=results)


def _topic(context: RequestContext, requested: ElectionTopic) -> ReplicaElectionResult:
    topic = context.gateway.find_topic(requested.topic)
    results = ReplicaElectionResult(topic=requested.topic)
    for index in requested.partitions:
        if topic is None:
            code, message = (
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"there is no topic {requested.topic}",
            )
        elif not 0 <= index < len(topic.partitions):
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            message = f"there is no partition {requested.topic}-{index}"
        else:
            code = ErrorCode.ELECTION_NOT_NEEDED
            message = "the partition has its preferred leader"
        results.partition_result.append(_result(index, code, message))
    return results


def _result(index: int, code: ErrorCode, message: str) -> PartitionResult:
    return PartitionResult(partition_id=index, error_code=code, error_message=message)


def _error_response(
    request: ElectLeadersRequest, code: ErrorCode, message: str
) -> ElectLeadersResponse:
    return ElectLeadersResponse(
        error_code=code,
        replica_election_results=[
            ReplicaElectionResult(
                topic=each.topic,
                partition_result=[_result(index, code, message) for index in each.partitions],
            )
            for each in request.topic_partitions or ()
        ],
    )
