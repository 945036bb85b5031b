"""ListTransactions v0-v2: transactional ids (KIP-664). There are none.

v1 a filter by age · v2 a filter by pattern (KIP-1152); an invalid pattern is 128. Unknown states in
the filter are returned, each once, so that a tool can report them.
"""

from __future__ import annotations

from trilogue.broker.errors import InvalidPattern
from trilogue.broker.groups.consumer.patterns import compile_pattern
from trilogue.gateway.kafka.context import RequestContext
from trilogue.gateway.kafka.errors import to_error_code
from trilogue.wire.kafka.transactions.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)

STATES = {
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
}


def handle_list_transactions(
    _context: RequestContext, request: ListTransactionsRequest
) -> ListTransactionsResponse:
    """List no transactions."""
    try:
        if request.transactional_id_pattern:
            compile_pattern(request.transactional_id_pattern)
    except InvalidPattern as problem:
        return ListTransactionsResponse(error_code=to_error_code(problem))
    unknown = [each for each in dict.fromkeys(request.state_filters) if each not in STATES]
    return ListTransactionsResponse(unknown_state_filters=unknown)
