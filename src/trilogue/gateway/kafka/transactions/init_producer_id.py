"""InitProducerId v0-v5: ids of idempotent producers.

v2 flexible · v3 the id and epoch to continue with · v4, v5 new error codes. An id is never given
twice. Transactions are not served, so a transactional id is refused with 53: the one code that is
final for every client, where librdkafka retries after most others. The response has no error
message, so the log names the reason. A request to continue with an id (v3+, sent by transactional
producers only) gets a new id.
"""

from __future__ import annotations

import logging

from trilogue.broker.errors import NotServed
from trilogue.gateway.kafka.context import RequestContext
from trilogue.gateway.kafka.errors import EXPECTED, to_error_code
from trilogue.wire.kafka.errors import ErrorCode
from trilogue.wire.kafka.transactions.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)

log = logging.getLogger(__name__)

NONE = -1


def handle_init_producer_id(
    context: RequestContext, request: InitProducerIdRequest
) -> InitProducerIdResponse:
    """Return a producer id that was never used before."""
    if not context.is_allowed("cluster"):
        return _error_response(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if (request.producer_id == NONE) != (request.producer_epoch == NONE):
        return _error_response(ErrorCode.INVALID_REQUEST)  # an id and its epoch come together
    try:
        identity = context.broker.init_producer_id(request.transactional_id)
    except NotServed as refusal:
        log.warning(
            "transactions.not_served",
            extra={
                "reason": str(refusal),
                "transactional_id": request.transactional_id,
                "client": context.client_id or "",
                "address": context.session.stream.peer[0],
            },
        )
        return _error_response(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    except EXPECTED as problem:
        return _error_response(to_error_code(problem))
    return InitProducerIdResponse(producer_id=identity.producer_id, producer_epoch=identity.epoch)


def _error_response(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
