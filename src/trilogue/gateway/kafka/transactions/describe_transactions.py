"""DescribeTransactions v0: the state of transactional ids (KIP-664).

Needs DESCRIBE on each id (53). Of the partitions of an ongoing transaction those are listed whose
topic the client may describe, as in Kafka. An unknown id is 105, an empty one 42, an id of
another coordinator 16.
"""

from __future__ import annotations

from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.broker.names import format_kafka
from trilogue.broker.transactions.transaction import Transaction
from trilogue.gateway.kafka.context import RequestContext
from trilogue.gateway.kafka.transactions.states import state_name
from trilogue.wire.kafka.errors import ErrorCode
from trilogue.wire.kafka.transactions.describe_transactions import (
    DescribedTransaction,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionTopic,
)


def handle_describe_transactions(
    context: RequestContext, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse:
    """Describe each id."""
    return DescribeTransactionsResponse(
        transaction_states=[_describe(context, name) for name in request.transactional_ids]
    )


def _describe(context: RequestContext, name: str) -> DescribedTransaction:
    answer = DescribedTransaction(transactional_id=name)
    if not name:
        answer.error_code = ErrorCode.INVALID_REQUEST
    elif not context.is_allowed(name):
        answer.error_code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    elif not context.broker.transactions.coordinates(name):
        answer.error_code = ErrorCode.NOT_COORDINATOR
    else:
        found = context.broker.transactions.table.find_by_id(name)
        if found is None:
            answer.error_code = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        else:
            _fill(context, answer, found)
    return answer


def _fill(context: RequestContext, answer: DescribedTransaction, found: Transaction) -> None:
    row = found.row
    answer.transaction_state = state_name(row.state)
    answer.transaction_timeout_ms = row.timeout_ms
    answer.transaction_start_time_ms = row.started_ms
    answer.producer_id, answer.producer_epoch = row.producer_id, row.epoch
    wanted = set(found.content().partition_ids)
    for topic in context.broker.cluster if wanted else ():
        indexes = [
            index
            for index, partition in enumerate(topic.partitions)
            if partition.partition_id in wanted
        ]
        if indexes and context.can_see(Operation.DESCRIBE, ResourceKind.TOPIC, topic.name):
            answer.topics.append(
                TransactionTopic(topic=format_kafka(topic.name), partitions=indexes)
            )
