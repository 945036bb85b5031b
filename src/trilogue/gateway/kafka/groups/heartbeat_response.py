"""Responses of heartbeats (KIP-848, KIP-932, KIP-1071), which leave when the group is durable."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from trilogue.broker.promise import Promise
from trilogue.gateway.kafka.context import PromisedResponse, RequestContext
from trilogue.gateway.kafka.errors import to_error_code
from trilogue.wire.kafka.errors import ErrorCode

Result = TypeVar("Result")
Response = TypeVar("Response")


def respond_when_durable(
    context: RequestContext,
    result: Result,
    make_response: Callable[[Result], Response],
    make_error: Callable[[ErrorCode, str], Response],
) -> Response | PromisedResponse[Result]:
    """Return the response of a heartbeat, or its promise while the change of the group is written.

    It is sent at once where everything is durable already.
    """
    membership = context.broker.groups.membership
    if membership.is_durable:
        return make_response(result)

    def respond(promise: Promise[Result]) -> Response:
        if promise.error is not None:
            return make_error(to_error_code(promise.error), str(promise.error))
        return make_response(promise.result())

    return PromisedResponse(membership.when_durable(Promise.resolved(result)), respond)
