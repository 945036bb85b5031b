"""DescribeTransactions v0: the state of transactional ids (KIP-664).

Transactions are not served, so no id is known: 105 for each (53 without access), 42 for an empty
id.
"""

from __future__ import annotations

from trilogue.gateway.kafka.context import RequestContext
from trilogue.wire.kafka.errors import ErrorCode
from trilogue.wire.kafka.transactions.describe_transactions import (
    DescribedTransaction,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)


def handle_describe_transactions(
    context: RequestContext, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse:
    """Report each id as unknown."""
    return DescribeTransactionsResponse(
        transaction_states=[
            DescribedTransaction(transactional_id=each, error_code=_code(context, each))
            for each in request.transactional_ids
        ]
    )


def _code(context: RequestContext, transactional_id: str) -> ErrorCode:
    if not transactional_id:
        return ErrorCode.INVALID_REQUEST
    if not context.is_allowed(transactional_id):
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    return ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
