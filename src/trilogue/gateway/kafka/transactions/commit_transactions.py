"""CommitTransactions and DescribeCommittedBatch v0, which Trilogue's client alone sends.

An application id is authorized as a transactional id is: to commit needs WRITE on it and on each
transactional id, to describe DESCRIBE (53).
"""

from __future__ import annotations

from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.broker.errors import BrokerError
from trilogue.broker.promise import Promise
from trilogue.broker.transactions.batch_commits import BatchOutcome, OpenTransaction
from trilogue.broker.transactions.coordinator import ProducerIdentity
from trilogue.gateway.kafka.context import PromisedResponse, RequestContext
from trilogue.gateway.kafka.errors import to_error_code
from trilogue.wire.kafka.errors import ErrorCode
from trilogue.wire.kafka.transactions.commit_transactions import (
    CommitTransactionsRequest,
    CommitTransactionsResponse,
    DescribeCommittedBatchRequest,
    DescribeCommittedBatchResponse,
)


def handle_commit_transactions(
    context: RequestContext, request: CommitTransactionsRequest
) -> CommitTransactionsResponse | PromisedResponse[BatchOutcome]:
    """Commit all of them; the response waits until markers and positions are durable."""
    names = [request.application_id, *(each.transactional_id for each in request.transactions)]
    for name in names:
        if not context.is_allowed_to(Operation.WRITE, ResourceKind.TRANSACTION, name):
            return CommitTransactionsResponse(
                error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, error_message=name
            )
    transactions = [
        OpenTransaction(
            each.transactional_id, ProducerIdentity(each.producer_id, each.producer_epoch)
        )
        for each in request.transactions
    ]
    try:
        promise = context.broker.batch_commits.commit(
            request.application_id, request.batch_id, transactions
        )
    except BrokerError as problem:
        return _refuse(problem)

    def respond(ended: Promise[BatchOutcome]) -> CommitTransactionsResponse:
        if ended.error is not None:
            return _refuse(ended.error)
        batch, is_repeated = ended.result()
        return CommitTransactionsResponse(
            batch_id=batch.batch_id, committed_ms=batch.committed_ms, is_repeated=is_repeated
        )

    return PromisedResponse(promise, respond)


def handle_describe_committed_batch(
    context: RequestContext, request: DescribeCommittedBatchRequest
) -> DescribeCommittedBatchResponse:
    """Return the last batch of the application."""
    if not context.is_allowed(request.application_id):
        return DescribeCommittedBatchResponse(
            error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        )
    try:
        batch = context.broker.batch_commits.find_last(request.application_id)
    except BrokerError as problem:
        return DescribeCommittedBatchResponse(error_code=to_error_code(problem))
    if batch is None:
        return DescribeCommittedBatchResponse()
    return DescribeCommittedBatchResponse(batch_id=batch.batch_id, committed_ms=batch.committed_ms)


def _refuse(problem: BaseException) -> CommitTransactionsResponse:
    return CommitTransactionsResponse(error_code=to_error_code(problem), error_message=str(problem))
