"""ListTransactions v0-v2: transactional ids (KIP-664).

v1 a filter by age · v2 a filter by pattern (KIP-1152); an invalid pattern is 128. Unknown states in
the filter are returned, each once, so that a tool can report them. Ids that the client may not
describe are left out.
"""

from __future__ import annotations

from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.broker.errors import InvalidPattern
from trilogue.broker.groups.consumer.patterns import compile_pattern
from trilogue.broker.transactions.transaction import Transaction
from trilogue.gateway.kafka.context import HandlerResult, RequestContext
from trilogue.gateway.kafka.errors import to_error_code
from trilogue.gateway.kafka.transactions.states import KNOWN, state_name
from trilogue.gateway.steps import begin_steps
from trilogue.log.steps import Steps
from trilogue.wire.kafka.transactions.list_transactions import (
    ListedTransaction,
    ListTransactionsRequest,
    ListTransactionsResponse,
)

IDS_PER_STEP = 1_000


def handle_list_transactions(
    context: RequestContext, request: ListTransactionsRequest
) -> HandlerResult:
    """List the ids that pass the filters."""
    return begin_steps(_list(context, request))


def _list(
    context: RequestContext, request: ListTransactionsRequest
) -> Steps[ListTransactionsResponse]:
    pattern = None
    try:
        if request.transactional_id_pattern:
            pattern = compile_pattern(request.transactional_id_pattern)
    except InvalidPattern as problem:
        return ListTransactionsResponse(error_code=to_error_code(problem))
    unknown = [each for each in dict.fromkeys(request.state_filters) if each not in KNOWN]
    response = ListTransactionsResponse(unknown_state_filters=unknown)
    for number, found in enumerate(context.broker.transactions.table, 1):
        if number % IDS_PER_STEP == 0:
            yield
        name = found.row.transactional_id
        if not _passes(context, request, found) or (pattern and not pattern(name)):
            continue
        if context.can_see(Operation.DESCRIBE, ResourceKind.TRANSACTION, name):
            response.transaction_states.append(
                ListedTransaction(
                    transactional_id=name,
                    producer_id=found.row.producer_id,
                    transaction_state=state_name(found.state),
                )
            )
    return response


def _passes(context: RequestContext, request: ListTransactionsRequest, found: Transaction) -> bool:
    row = found.row
    if request.state_filters and state_name(row.state) not in request.state_filters:
        return False
    if request.producer_id_filters and row.producer_id not in request.producer_id_filters:
        return False
    if request.duration_filter >= 0:
        return context.gateway.now_ms() - row.started_ms > request.duration_filter
    return True
