"""A bounded amount of memory, given out in the order of asking."""

from __future__ import annotations

import asyncio
from collections import deque


class Room:
    """Bytes that may be taken; who finds too few waits behind those who came before."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    def take(self, size: int) -> bool:
        """Take so many bytes now; False where that would be too many, or others wait."""
        if self._waiting or self.used + size > self.limit:
            return False
        self.used += size
        return True

    async def wait(self, size: int) -> None:
        """Take so many bytes as soon as they are there (at most `limit`)."""
        if self.take(size):
            return
        future = asyncio.get_running_loop().create_future()
        self._waiting.append((size, future))
        try:
            await future
        except BaseException:
            if future.done() and not future.cancelled() and future.exception() is None:
                self.give(size)  # it was for us, and we are gone
            else:
                future.cancel()
                self.give(0)  # who comes behind may want less
            raise

    def give(self, size: int) -> None:
        """Give bytes back."""
        self.used -= size
        while self._waiting:
            wanted, future = self._waiting[0]
            if not future.done():
                if self.used + wanted > self.limit:
                    return
                self.used += wanted
                future.set_result(None)
            self._waiting.popleft()

    def fail(self, problem: Exception) -> None:
        """Tell whoever waits that there will be none."""
        waiting, self._waiting = self._waiting, deque()
        for _, future in waiting:
            if not future.done():
                future.set_exception(problem)
