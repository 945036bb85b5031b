"""UpdateMetadata v0-v8: a controller sends the brokers and leaders that clients are shown.

This node shows clients what its own metadata has, which no other broker writes: with valid epochs
the request is accepted (NONE), and its content has no effect.
"""

from __future__ import annotations

from trilogue.gateway.kafka.context import RequestContext
from trilogue.gateway.kafka.internal.epochs import check_epochs
from trilogue.wire.kafka.internal.update_metadata import (
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)


def handle_update_metadata(
    context: RequestContext, request: UpdateMetadataRequest
) -> UpdateMetadataResponse:
    """Check the epochs."""
    code = check_epochs(
        context, broker_epoch=request.broker_epoch, controller_epoch=request.controller_epoch
    )
    return UpdateMetadataResponse(error_code=code)
