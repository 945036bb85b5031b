"""EndTxn v0-v5: commit or abort a transaction.

v2 a fenced producer is 90 · v3 flexible · v4 an abortable error · v5 the identity for the next
transaction: its epoch is higher (KIP-890). Needs WRITE on the transactional id (53).
"""

from __future__ import annotations

from collections.abc import Coroutine
from functools import partial
from typing import Any

from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.broker.errors import BrokerError
from trilogue.broker.promise import Promise
from trilogue.broker.transactions.coordinator import ProducerIdentity
from trilogue.gateway.kafka.context import PromisedResponse, RequestContext
from trilogue.gateway.kafka.transactions.errors import transaction_code
from trilogue.gateway.steps import next_step, wait_until_settled
from trilogue.wire.kafka.errors import ErrorCode
from trilogue.wire.kafka.transactions.end_txn import EndTxnRequest, EndTxnResponse

IDENTITY_SINCE = 5


Ending = EndTxnResponse | PromisedResponse[ProducerIdentity]


def handle_end_txn(
    context: RequestContext, request: EndTxnRequest
) -> Ending | Coroutine[Any, Any, EndTxnResponse]:
    """End the transaction; the response waits until markers and positions are durable.

    Of large transactions one is ended in a loop iteration: the requests of many are small.
    """
    if context.broker.transactions.table.is_large(request.transactional_id):
        return _end_in_turn(context, request)
    promise = _end(context, request)
    if isinstance(promise, EndTxnResponse):
        return promise
    return PromisedResponse(promise, partial(_respond, context.version))


async def _end_in_turn(context: RequestContext, request: EndTxnRequest) -> EndTxnResponse:
    await next_step()
    promise = _end(context, request)
    if isinstance(promise, EndTxnResponse):
        return promise
    await wait_until_settled(promise)
    return _respond(context.version, promise)


def _end(
    context: RequestContext, request: EndTxnRequest
) -> EndTxnResponse | Promise[ProducerIdentity]:
    name, version = request.transactional_id, context.version
    if not context.is_allowed_to(Operation.WRITE, ResourceKind.TRANSACTION, name):
        return EndTxnResponse(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    identity = ProducerIdentity(request.producer_id, request.producer_epoch)
    try:
        return context.broker.transactions.end(
            name, identity, commit=request.committed, bumps=version >= IDENTITY_SINCE
        )
    except BrokerError as problem:
        return EndTxnResponse(error_code=transaction_code(problem, version))


def _respond(version: int, ended: Promise[ProducerIdentity]) -> EndTxnResponse:
    if ended.error is not None:
        return EndTxnResponse(error_code=transaction_code(ended.error, version))
    found = ended.result()
    return EndTxnResponse(producer_id=found.producer_id, producer_epoch=found.epoch)
