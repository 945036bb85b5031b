"""ElectLeaders v0-v2: ask for other leaders (KIP-183, KIP-460).

v0 preferred leaders only · v1 the kind of election, top-level error · v2 flexible.

Every partition has one replica, which leads it and is the preferred one, so no election of either
kind is ever needed: 84 for each that exists, 3 for each that does not. Asked for all, a real one
leaves out what needs none and names the topics: so does this. An unknown kind is refused (42).
"""

from __future__ import annotations

from trilogue.broker.access import CLUSTER
from trilogue.broker.names import kafka_can_spell, spelled_kafka
from trilogue.gateway.kafka.errors import NOT_ALLOWED
from trilogue.gateway.kafka.shared import Call
from trilogue.wire.kafka.elections import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
    TopicPartitions,
)
from trilogue.wire.kafka.errors import ErrorCode

KINDS = (0, 1)  # preferred, unclean
KINDS_SINCE = 1


def handle(call: Call, request: ElectLeadersRequest) -> ElectLeadersResponse:
    """Say that nothing is to be elected."""
    if not call.allowed(CLUSTER.name):
        return _refused(request, *NOT_ALLOWED)
    asked = request.topic_partitions
    if call.version >= KINDS_SINCE and request.election_type not in KINDS and asked != []:
        what = f"there is no election of kind {request.election_type}"
        return _refused(request, ErrorCode.INVALID_REQUEST, what)
    if asked is None:
        spelled = [
            spelled_kafka(topic.name)
            for topic in call.broker.cluster
            if kafka_can_spell(topic.name)
        ]
        results = [ReplicaElectionResult(topic=name) for name in spelled]
    else:
        results = [_topic(call, each) for each in asked]
    return ElectLeadersResponse(replica_election_results=results)


def _topic(call: Call, asked: TopicPartitions) -> ReplicaElectionResult:
    topic = call.door.find_topic(asked.topic)
    results = ReplicaElectionResult(topic=asked.topic)
    for index in asked.partitions:
        if topic is None:
            code, what = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {asked.topic}"
        elif not 0 <= index < len(topic.partitions):
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            what = f"there is no partition {asked.topic}-{index}"
        else:
            code = ErrorCode.ELECTION_NOT_NEEDED
            what = "the partition has its preferred leader"
        results.partition_result.append(_result(index, code, what))
    return results


def _result(index: int, code: ErrorCode, what: str) -> PartitionResult:
    return PartitionResult(partition_id=index, error_code=code, error_message=what)


def _refused(request: ElectLeadersRequest, code: ErrorCode, what: str) -> ElectLeadersResponse:
    return ElectLeadersResponse(
        error_code=code,
        replica_election_results=[
            ReplicaElectionResult(
                topic=each.topic,
                partition_result=[_result(index, code, what) for index in each.partitions],
            )
            for each in request.topic_partitions or ()
        ],
    )
