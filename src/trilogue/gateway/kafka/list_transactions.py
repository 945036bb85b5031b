"""ListTransactions v0-v2: name transactional ids (KIP-664). There are none yet.

v1 by age · v2 by a pattern (KIP-1152), which no id can match; one that cannot be read is 128.
Filters that name no state are told back, each once, so that a tool can say so.
"""

from __future__ import annotations

from trilogue.broker.consumer_group_patterns import compile_pattern
from trilogue.broker.errors import InvalidPattern
from trilogue.gateway.kafka.errors import code_of
from trilogue.gateway.kafka.shared import Call
from trilogue.wire.kafka.list_transactions import ListTransactionsRequest, ListTransactionsResponse

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


def handle(_call: Call, request: ListTransactionsRequest) -> ListTransactionsResponse:
    """Name none."""
    try:
        if request.transactional_id_pattern:
            compile_pattern(request.transactional_id_pattern)
    except InvalidPattern as problem:
        return ListTransactionsResponse(error_code=code_of(problem))
    unknown = [each for each in dict.fromkeys(request.state_filters) if each not in STATES]
    return ListTransactionsResponse(unknown_state_filters=unknown)
