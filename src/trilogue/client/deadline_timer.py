"""One timer for many deadlines: it fires at the earliest of them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

log = logging.getLogger("trilogue.client")


class DeadlineTimer:
    """Calls `callback` at the earliest of the scheduled times.

    The callback finds out what is due, and schedules the rest again: a call that comes too early
    costs less than one timer for each deadline.
    """

    def __init__(
        self, callback: Callable[[], None], on_error: Callable[[Exception], None] | None = None
    ) -> None:
        self._callback = callback
        self._on_error = on_error
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    def schedule(self, when: float) -> None:
        """Fire at this time of the loop, or before."""
        if self._timer is not None:
            if self._timer.when() <= when:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(when, self._fire)

    def _fire(self) -> None:
        self._timer = None
        try:
            self._callback()
        except Exception as problem:
            if self._on_error is None:
                raise
            log.exception("client.failed")
            self._on_error(problem)

    def cancel(self) -> None:
        """Drop all deadlines."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
