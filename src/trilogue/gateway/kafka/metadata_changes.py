"""Metadata changes made for handlers: start one, and wait for it without losing it.

What the broker plans is true once `meta` has recorded it. The recording runs in a task of the
gateway, so it goes on when the client's timeout passes or its connection closes.
"""

from __future__ import annotations

import asyncio
from typing import Any

from trilogue.broker.errors import BrokerError, InvalidRequest
from trilogue.broker.metadata_change import MetadataChange
from trilogue.broker.promise import Promise
from trilogue.gateway.kafka.context import RequestContext
from trilogue.gateway.steps import wait_until_settled


def check_named_topic(context: RequestContext, before: int, mentioned: int) -> None:
    """Raise InvalidRequest for a topic named twice, or for one more than the limit."""
    most = context.gateway.settings.topics_per_request_max
    if before >= most:
        raise InvalidRequest(f"a request may name {most} topics")
    if mentioned > 1:
        raise InvalidRequest("the request names this topic more than once")


def start_change(context: RequestContext, change: MetadataChange[Any]) -> Promise[Any]:
    """Run a change in a task of the gateway; the promise is settled when it is applied.

    Of several nodes the others have applied it then, too.
    """
    gateway = context.gateway
    everywhere: Promise[Any] = Promise()

    async def work() -> None:
        try:
            await gateway.write_metadata(change)
        except BrokerError:
            pass  # the promise of the change carries the error
        finally:
            change.done.then(lambda done: _settle(everywhere, done))

    gateway.spawn(work())
    return change.done if gateway.catch_up is None else everywhere


def _settle(promise: Promise[Any], done: Promise[Any]) -> None:
    if done.error is not None:
        promise.set_error(done.error)
    else:
        promise.set_result(done.result())


async def wait_for_all(
    context: RequestContext, promises: list[Promise[Any]], timeout_ms: int
) -> list[BaseException | None]:
    """Wait for all promises; one that is not settled in time yields a TimeoutError and goes on."""
    timeout_ms = max(0, min(timeout_ms, context.gateway.settings.topics_timeout_max_ms))
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            for promise in promises:
                await wait_until_settled(promise)
    except TimeoutError:
        pass
    return [
        promise.error if promise.done else TimeoutError("not recorded in time; it goes on")
        for promise in promises
    ]
