"""Pack after pack into a callback: what is called a push consumer elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from trilogue.client.errors import ClientError
from trilogue.client.tubemq.errors import ClosedError
from trilogue.client.tubemq.message import Batch
from trilogue.client.tubemq.servers import log

if TYPE_CHECKING:
    from trilogue.client.tubemq.consumer import Consumer


async def run(
    consumer: Consumer, callback: Callable[[Batch], Awaitable[bool | None]], at_once: int
) -> None:
    """Call back until the consumer is closed; what ends it otherwise is raised."""
    if at_once < 1:
        raise ClientError("at least one callback at a time")
    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(at_once):
                group.create_task(_work(consumer, callback))
    except ExceptionGroup as found:  # what one found ended the others: one mistake, not a group
        raise found.exceptions[0] from None


async def _work(consumer: Consumer, callback: Callable[[Batch], Awaitable[bool | None]]) -> None:
    while True:
        try:
            batch = await consumer.get()
        except ClosedError:
            return
        try:
            consumed = await callback(batch) is not False
        except (Exception, asyncio.CancelledError) as problem:
            if _is_cancelled(problem):
                raise
            log.exception("tubemq.callback_failed", extra={"partition": batch.partition})
            consumed = False
        try:
            await consumer.reading.settle(batch, consumed=consumed)
        except ClientError as problem:  # it comes again, or the next get says what is over
            log.info(
                "tubemq.not_settled",
                extra={"partition": batch.partition, "problem": str(problem)},
            )


def _is_cancelled(problem: BaseException) -> bool:
    """Whether we are to end, and not only something that the application waited for."""
    task = asyncio.current_task()
    is_ours = task is not None and task.cancelling() > 0
    return isinstance(problem, asyncio.CancelledError) and is_ours
