"""AddPartitionsToTxn v0-v5: the partitions that a transaction will write to.

v2 a fenced producer is 90 · v3 flexible · v4 several transactions, and a mere check: for brokers,
so it needs CLUSTER_ACTION (31) · v5 an abortable error.

Needs WRITE on the transactional id (53) and on each topic (29). If one partition is refused none is
added: the others get OPERATION_NOT_ATTEMPTED (55), as in Kafka.
"""

from __future__ import annotations

from typing import NamedTuple

from trilogue.broker.access.authorizer import CLUSTER, Operation, ResourceKind
from trilogue.broker.errors import BrokerError
from trilogue.broker.transactions.coordinator import ProducerIdentity
from trilogue.gateway.kafka.context import DurableResponse, RequestContext
from trilogue.gateway.kafka.transactions.errors import (
    ADDING_ABORTABLE_SINCE,
    transaction_code,
)
from trilogue.wire.kafka.errors import ErrorCode
from trilogue.wire.kafka.transactions.add_partitions import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
)

BROKERS_SINCE = 4


class CheckedTopics(NamedTuple):
    """The partitions of a request: their ids, and the code of each that is refused."""

    partition_ids: list[int]
    codes: dict[tuple[str, int], ErrorCode]


def handle_add_partitions(
    context: RequestContext, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse | DurableResponse:
    """Add the partitions; the response waits until they are durable."""
    if context.version < BROKERS_SINCE:
        topics = request.v3_and_below_topics
        identity = ProducerIdentity(
            request.v3_and_below_producer_id, request.v3_and_below_producer_epoch
        )
        name = request.v3_and_below_transactional_id
        results = _add(context, name, identity, topics, verify_only=False)
        return DurableResponse(
            AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results), _fail
        )
    if not context.is_allowed_to(Operation.CLUSTER_ACTION, ResourceKind.CLUSTER, CLUSTER.name):
        return AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return DurableResponse(
        AddPartitionsToTxnResponse(
            results_by_transaction=[
                AddPartitionsToTxnResult(
                    transactional_id=each.transactional_id,
                    topic_results=_add(
                        context,
                        each.transactional_id,
                        ProducerIdentity(each.producer_id, each.producer_epoch),
                        each.topics,
                        verify_only=each.verify_only,
                    ),
                )
                for each in request.transactions
            ]
        ),
        _fail,
    )


def _add(
    context: RequestContext,
    name: str,
    identity: ProducerIdentity,
    topics: list[AddPartitionsToTxnTopic],
    *,
    verify_only: bool,
) -> list[AddPartitionsToTxnTopicResult]:
    if not context.is_allowed_to(Operation.WRITE, ResourceKind.TRANSACTION, name):
        return _results(topics, {}, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    checked = _check_topics(context, topics)
    if checked.codes:
        return _results(topics, checked.codes, ErrorCode.OPERATION_NOT_ATTEMPTED)
    coordinator = context.broker.transactions
    try:
        if verify_only:
            for partition_id in checked.partition_ids:
                coordinator.check_produce(name, identity, partition_id)
        else:
            coordinator.add_partitions(name, identity, checked.partition_ids)
    except BrokerError as problem:
        code = transaction_code(problem, context.version, abortable_since=ADDING_ABORTABLE_SINCE)
        return _results(topics, {}, code)
    return _results(topics, {}, ErrorCode.NONE)


def _check_topics(context: RequestContext, topics: list[AddPartitionsToTxnTopic]) -> CheckedTopics:
    checked = CheckedTopics([], {})
    for requested in topics:
        topic, code = context.find_topic_for(Operation.WRITE, requested.name)
        for index in requested.partitions:
            if topic is None:
                checked.codes[requested.name, index] = code
            elif not 0 <= index < len(topic.partitions):
                checked.codes[requested.name, index] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                checked.partition_ids.append(topic.partitions[index].partition_id)
    return checked


def _results(
    topics: list[AddPartitionsToTxnTopic],
    codes: dict[tuple[str, int], ErrorCode],
    otherwise: ErrorCode,
) -> list[AddPartitionsToTxnTopicResult]:
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(
                    partition_index=index,
                    partition_error_code=codes.get((topic.name, index), otherwise),
                )
                for index in topic.partitions
            ],
        )
        for topic in topics
    ]


def _fail(response: AddPartitionsToTxnResponse, code: ErrorCode) -> AddPartitionsToTxnResponse:
    """Set the error of a failed commit wherever there is none."""
    results = [*response.results_by_topic_v3_and_below]
    for transaction in response.results_by_transaction:
        results += transaction.topic_results
    for topic in results:
        for partition in topic.results_by_partition:
            partition.partition_error_code = partition.partition_error_code or code
    return response
