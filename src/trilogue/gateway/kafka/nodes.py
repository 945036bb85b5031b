"""UnregisterBroker v0: forget a node that is gone for good (KIP-631).

There is one node, and it is here: it cannot be forgotten (42), and no other is known (102).
"""

from __future__ import annotations

from trilogue.broker.access import CLUSTER
from trilogue.gateway.kafka.errors import NOT_ALLOWED
from trilogue.gateway.kafka.shared import Call
from trilogue.wire.kafka.errors import ErrorCode
from trilogue.wire.kafka.nodes import UnregisterBrokerRequest, UnregisterBrokerResponse


def handle(call: Call, request: UnregisterBrokerRequest) -> UnregisterBrokerResponse:
    """Refuse."""
    asked = request.broker_id
    code, what = ErrorCode.BROKER_ID_NOT_REGISTERED, f"there is no node {asked}"
    if not call.allowed(CLUSTER.name):
        code, what = NOT_ALLOWED
    elif asked == call.broker.cluster.node_id:
        code, what = ErrorCode.INVALID_REQUEST, f"node {asked} is here and answers"
    return UnregisterBrokerResponse(error_code=code, error_message=what)
