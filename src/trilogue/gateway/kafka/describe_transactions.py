"""DescribeTransactions v0: what is known of transactional ids (KIP-664).

There are no transactions yet, so no id is known: 105 for each (53 for who may not know of it), and
42 for the empty one, which is no id.
"""

from __future__ import annotations

from trilogue.gateway.kafka.shared import Call
from trilogue.wire.kafka.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from trilogue.wire.kafka.errors import ErrorCode


def handle(call: Call, request: DescribeTransactionsRequest) -> DescribeTransactionsResponse:
    """Say that none of them is known."""
    return DescribeTransactionsResponse(
        transaction_states=[
            TransactionState(transactional_id=each, error_code=_code(call, each))
            for each in request.transactional_ids
        ]
    )


def _code(call: Call, transactional_id: str) -> ErrorCode:
    if not transactional_id:
        return ErrorCode.INVALID_REQUEST
    if not call.allowed(transactional_id):
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    return ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
