"""Background tasks of a client, producer or consumer, which end with it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

log = logging.getLogger("trilogue.client")


class BackgroundTasks:
    """Tasks that are kept until they end. An error in one is logged and reported to the owner."""

    def __init__(self, on_error: Callable[[Exception], None] | None = None) -> None:
        self._running: set[asyncio.Task[Any]] = set()
        self._on_error = on_error

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a task."""
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        problem = None if task.cancelled() else task.exception()
        if problem is not None:
            log.error("client.failed", exc_info=problem)
            if self._on_error is not None and isinstance(problem, Exception):
                self._on_error(problem)

    async def end(self) -> None:
        """Cancel the running tasks and wait for their end."""
        running = [task for task in self._running if task is not asyncio.current_task()]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
