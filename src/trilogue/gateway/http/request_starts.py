"""How many requests begin in an iteration of the event loop.

Each request is a task, which runs in one piece up to where it waits. Without a bound an iteration
is as long as all requests that have arrived, and an answer takes three to four iterations.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

AT_ONCE: Final = 8


class RequestStarts:
    """The requests of one event loop that have not begun, in order of arrival."""

    def __init__(self) -> None:
        self._begun = 0  # in this iteration
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def wait(self) -> None:
        """Return at once, or in a later iteration where many have begun in this one."""
        loop = asyncio.get_running_loop()
        if self._begun < AT_ONCE and not self._waiting:
            if not self._begun:
                loop.call_soon(self._begin_iteration, loop)
            self._begun += 1
            return
        turn = loop.create_future()
        self._waiting.append(turn)
        await turn

    def _begin_iteration(self, loop: asyncio.AbstractEventLoop) -> None:
        self._begun = 0
        while self._waiting and self._begun < AT_ONCE:
            turn = self._waiting.popleft()
            if not turn.done():  # its task may be cancelled
                turn.set_result(None)
                self._begun += 1
        if self._begun:
            loop.call_soon(self._begin_iteration, loop)
