"""WriteTxnMarkers v0-v1: end the hanging transactions of producers.

`kafka-transactions.sh abort` sends it to the leader of a partition. Aborts only, for ALTER or
CLUSTER_ACTION on the cluster (31): commits are for coordinators of the same cluster, which send
them to the internal listener. A marker for a producer without an open transaction has no effect and
is no error.
"""

from __future__ import annotations

from trilogue.broker.access.authorizer import CLUSTER, Operation, ResourceKind
from trilogue.broker.errors import BrokerError, StaleProducerEpoch
from trilogue.entry.control import Outcome, build_marker
from trilogue.gateway.kafka.context import DurableResponse, RequestContext
from trilogue.gateway.kafka.errors import to_error_code
from trilogue.log.errors import LogError
from trilogue.wire.kafka.errors import ErrorCode
from trilogue.wire.kafka.transactions.write_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)


def handle_write_markers(
    context: RequestContext, request: WriteTxnMarkersRequest
) -> DurableResponse:
    """Write the markers; the response waits until they are durable."""
    code = ErrorCode.NONE
    if not (
        context.is_from_broker
        or context.can_see(Operation.CLUSTER_ACTION, ResourceKind.CLUSTER, CLUSTER.name)
        or context.is_allowed_to(Operation.ALTER, ResourceKind.CLUSTER, CLUSTER.name)
    ):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return DurableResponse(
        WriteTxnMarkersResponse(markers=[_write(context, each, code) for each in request.markers]),
        _fail,
    )


def _write(
    context: RequestContext, marker: WritableTxnMarker, code: ErrorCode
) -> WritableTxnMarkerResult:
    if marker.transaction_result and not (code or context.is_from_broker):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    entry = build_marker(
        Outcome.COMMIT if marker.transaction_result else Outcome.ABORT,
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        coordinator_epoch=marker.coordinator_epoch,
        timestamp_ms=context.gateway.now_ms(),
    )
    return WritableTxnMarkerResult(
        producer_id=marker.producer_id,
        topics=[
            WritableTxnMarkerTopicResult(
                name=topic.name,
                partitions=[
                    WritableTxnMarkerPartitionResult(
                        partition_index=index,
                        error_code=code or _append(context, topic.name, index, marker, entry),
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in marker.topics
        ],
    )


def _append(
    context: RequestContext, name: str, index: int, marker: WritableTxnMarker, entry: bytes
) -> ErrorCode:
    try:
        topic = context.gateway.topic(name)
        if not 0 <= index < len(topic.partitions):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        partition = topic.partitions[index]
        if marker.producer_id not in partition.log.open_transactions:
            return ErrorCode.NONE
        for each in partition.producers.active():
            if each.producer_id == marker.producer_id and each.epoch > marker.producer_epoch:
                raise StaleProducerEpoch("the producer has a higher epoch")
        partition.append_marker(entry, context.gateway.now_ms())
    except (BrokerError, LogError) as problem:
        return to_error_code(problem)
    return ErrorCode.NONE


def _fail(response: WriteTxnMarkersResponse, code: ErrorCode) -> WriteTxnMarkersResponse:
    for marker in response.markers:
        for topic in marker.topics:
            for partition in topic.partitions:
                partition.error_code = partition.error_code or code
    return response
