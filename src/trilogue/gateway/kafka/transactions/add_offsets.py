"""AddOffsetsToTxn v0-v4: a group whose positions a transaction will commit.

v2 a fenced producer is 90 · v3 flexible · v4 an abortable error. Needs WRITE on the transactional
id (53) and READ on the group (30).
"""

from __future__ import annotations

from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.broker.errors import BrokerError
from trilogue.broker.transactions.coordinator import ProducerIdentity
from trilogue.gateway.kafka.context import DurableResponse, RequestContext
from trilogue.gateway.kafka.transactions.errors import transaction_code
from trilogue.wire.kafka.errors import ErrorCode
from trilogue.wire.kafka.transactions.add_offsets import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)


def handle_add_offsets(
    context: RequestContext, request: AddOffsetsToTxnRequest
) -> AddOffsetsToTxnResponse | DurableResponse:
    """Add the group; the response waits until that is durable."""
    name = request.transactional_id
    if not context.is_allowed_to(Operation.WRITE, ResourceKind.TRANSACTION, name):
        return AddOffsetsToTxnResponse(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not context.is_allowed_to(Operation.READ, ResourceKind.GROUP, request.group_id):
        return AddOffsetsToTxnResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    identity = ProducerIdentity(request.producer_id, request.producer_epoch)
    try:
        context.broker.transactions.add_group(name, identity, request.group_id)
    except BrokerError as problem:
        return AddOffsetsToTxnResponse(error_code=transaction_code(problem, context.version))
    return DurableResponse(AddOffsetsToTxnResponse(), _fail)


def _fail(response: AddOffsetsToTxnResponse, code: ErrorCode) -> AddOffsetsToTxnResponse:
    response.error_code = code
    return response
