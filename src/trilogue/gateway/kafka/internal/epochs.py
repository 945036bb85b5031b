"""The epochs that every request of a controller has: its own, and that of the broker it means.

A node is its own controller, so both begin with the number of the node's starts. A request of an
older controller is refused (STALE_CONTROLLER_EPOCH, 11), so is one for an earlier start of this
node (STALE_BROKER_EPOCH, 77). A broker epoch of -1 is unknown to the sender and is not compared; a
later one than this node has is accepted, as at Kafka 3.9.
"""

from __future__ import annotations

from typing import Final

from trilogue.gateway.kafka.context import RequestContext
from trilogue.wire.kafka.errors import ErrorCode

UNKNOWN_EPOCH: Final = -1


def check_broker_epoch(context: RequestContext, broker_epoch: int) -> ErrorCode:
    """Compare the epoch of the broker that a request is for with this node's."""
    is_stale = UNKNOWN_EPOCH != broker_epoch < context.broker.cluster.node_epoch
    return ErrorCode.STALE_BROKER_EPOCH if is_stale else ErrorCode.NONE


def check_epochs(context: RequestContext, *, broker_epoch: int, controller_epoch: int) -> ErrorCode:
    """Check both epochs of a controller's request, and remember the controller's."""
    code = check_broker_epoch(context, broker_epoch)
    if code:
        return code
    gateway = context.gateway
    if controller_epoch < gateway.controller_epoch:
        return ErrorCode.STALE_CONTROLLER_EPOCH
    gateway.controller_epoch = controller_epoch
    return ErrorCode.NONE
