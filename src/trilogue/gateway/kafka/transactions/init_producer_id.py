"""InitProducerId v0-v5: ids of idempotent and transactional producers.

v2 flexible · v3 the id and epoch to continue with (KIP-360) · v4 a fenced producer is 90 · v5 an
abortable error. A producer id is never given twice. One without a transactional id needs
IDEMPOTENT_WRITE on the cluster, or WRITE on any topic (31); one with needs WRITE on the
transactional id (53). An ongoing transaction of the id is aborted before the response.
"""

from __future__ import annotations

from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.broker.errors import BrokerError
from trilogue.broker.promise import Promise
from trilogue.broker.transactions.coordinator import ProducerIdentity
from trilogue.gateway.kafka.context import PromisedResponse, RequestContext
from trilogue.gateway.kafka.errors import EXPECTED, to_error_code
from trilogue.gateway.kafka.transactions.errors import INIT_FENCED_SINCE, transaction_code
from trilogue.wire.kafka.errors import ErrorCode
from trilogue.wire.kafka.transactions.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)

NONE = -1


def handle_init_producer_id(
    context: RequestContext, request: InitProducerIdRequest
) -> InitProducerIdResponse | PromisedResponse[ProducerIdentity]:
    """Return the identity for a producer."""
    if (request.producer_id == NONE) != (request.producer_epoch == NONE):
        return _error_response(ErrorCode.INVALID_REQUEST)  # an id and its epoch come together
    if request.transactional_id is not None:
        return _init_transactional(context, request, request.transactional_id)
    may_write = context.access.is_allowed_on_any(Operation.WRITE, ResourceKind.TOPIC)  # KIP-679
    if not may_write and not context.is_allowed("cluster"):
        return _error_response(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    try:
        identity = context.broker.init_producer_id()
    except EXPECTED as problem:
        return _error_response(to_error_code(problem))
    return InitProducerIdResponse(producer_id=identity.producer_id, producer_epoch=identity.epoch)


def _init_transactional(
    context: RequestContext, request: InitProducerIdRequest, name: str
) -> InitProducerIdResponse | PromisedResponse[ProducerIdentity]:
    version = context.version
    if not context.is_allowed_to(Operation.WRITE, ResourceKind.TRANSACTION, name):
        return _error_response(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    known = None
    if request.producer_id != NONE:
        known = ProducerIdentity(request.producer_id, request.producer_epoch)
    try:
        promise = context.broker.transactions.init_producer(
            name, request.transaction_timeout_ms, known, context.creator
        )
    except BrokerError as problem:
        return _error_response(transaction_code(problem, version, INIT_FENCED_SINCE))

    def respond(made: Promise[ProducerIdentity]) -> InitProducerIdResponse:
        if made.error is not None:
            return _error_response(transaction_code(made.error, version, INIT_FENCED_SINCE))
        found = made.result()
        return InitProducerIdResponse(producer_id=found.producer_id, producer_epoch=found.epoch)

    return PromisedResponse(promise, respond)


def _error_response(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
