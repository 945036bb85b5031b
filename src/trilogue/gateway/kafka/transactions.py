"""InitProducerId v0-v5: an identity for idempotent producers.

v2 flexible · v3 a producer may go on with the id it has · v4, v5 new errors. An id is never given
twice. Transactional ids come later and are refused with 53, as if this one may not have them: it is
the error that ends every client's attempt at once, where librdkafka tries again for as long as it
is told on most others. A producer that asks to go on with its id (v3+, only transactional ones do)
gets a new one.
"""

from __future__ import annotations

from trilogue.broker.errors import NotServed
from trilogue.gateway.kafka.errors import EXPECTED, code_of
from trilogue.gateway.kafka.shared import Call
from trilogue.wire.kafka.errors import ErrorCode
from trilogue.wire.kafka.transactions import InitProducerIdRequest, InitProducerIdResponse

NONE = -1


def init_producer_id(call: Call, request: InitProducerIdRequest) -> InitProducerIdResponse:
    """Give a producer id that nobody had before."""
    if not call.allowed("cluster"):
        return _refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if (request.producer_id == NONE) != (request.producer_epoch == NONE):
        return _refused(ErrorCode.INVALID_REQUEST)  # an id and its epoch come together
    try:
        identity = call.broker.init_producer_id(request.transactional_id)
    except NotServed:
        return _refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    except EXPECTED as problem:
        return _refused(code_of(problem))
    return InitProducerIdResponse(producer_id=identity.producer_id, producer_epoch=identity.epoch)


def _refused(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
