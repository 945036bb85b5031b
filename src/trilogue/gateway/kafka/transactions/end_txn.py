"""EndTxn v0-v5: commit or abort a transaction.

v2 a fenced producer is 90 · v3 flexible · v4 an abortable error · v5 the identity for the next
transaction: its epoch is higher (KIP-890). Needs WRITE on the transactional id (53).
"""

from __future__ import annotations

from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.broker.errors import BrokerError
from trilogue.broker.promise import Promise
from trilogue.broker.transactions.coordinator import ProducerIdentity
from trilogue.gateway.kafka.context import PromisedResponse, RequestContext
from trilogue.gateway.kafka.transactions.errors import transaction_code
from trilogue.wire.kafka.errors import ErrorCode
from trilogue.wire.kafka.transactions.end_txn import EndTxnRequest, EndTxnResponse

IDENTITY_SINCE = 5


def handle_end_txn(
    context: RequestContext, request: EndTxnRequest
) -> EndTxnResponse | PromisedResponse[ProducerIdentity]:
    """End the transaction; the response waits until markers and positions are durable."""
    name, version = request.transactional_id, context.version
    if not context.is_allowed_to(Operation.WRITE, ResourceKind.TRANSACTION, name):
        return EndTxnResponse(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    identity = ProducerIdentity(request.producer_id, request.producer_epoch)
    try:
        promise = context.broker.transactions.end(
            name, identity, commit=request.committed, bumps=version >= IDENTITY_SINCE
        )
    except BrokerError as problem:
        return EndTxnResponse(error_code=transaction_code(problem, version))

    def respond(ended: Promise[ProducerIdentity]) -> EndTxnResponse:
        if ended.error is not None:
            return EndTxnResponse(error_code=transaction_code(ended.error, version))
        found = ended.result()
        return EndTxnResponse(producer_id=found.producer_id, producer_epoch=found.epoch)

    return PromisedResponse(promise, respond)
