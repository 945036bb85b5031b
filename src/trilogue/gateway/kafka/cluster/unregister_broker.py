"""UnregisterBroker v0: remove a broker from the cluster (KIP-631).

The only broker is this one and cannot be removed (42); no other is registered (102).
"""

from __future__ import annotations

from trilogue.broker.access.authorizer import CLUSTER
from trilogue.gateway.kafka.context import RequestContext
from trilogue.gateway.kafka.errors import CLUSTER_DENIED
from trilogue.wire.kafka.cluster.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from trilogue.wire.kafka.errors import ErrorCode


def handle_unregister_broker(
    context: RequestContext, request: UnregisterBrokerRequest
) -> UnregisterBrokerResponse:
    """Refuse the request."""
    requested = request.broker_id
    code, message = ErrorCode.BROKER_ID_NOT_REGISTERED, f"there is no node {requested}"
    if not context.is_allowed(CLUSTER.name):
        code, message = CLUSTER_DENIED
    elif requested == context.broker.cluster.node_id:
        code, message = ErrorCode.INVALID_REQUEST, f"node {requested} is here and answers"
    return UnregisterBrokerResponse(error_code=code, error_message=message)
