"""Bounded memory of a producer, allocated in the order of requests."""

from __future__ import annotations

import asyncio
from collections import deque


class BufferPool:
    """A number of bytes; an allocation waits behind earlier ones."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    def try_allocate(self, size: int) -> bool:
        """Take so many bytes now; False where that would be too many, or others wait."""
        if self._waiting or self.used + size > self.limit:
            return False
        self.used += size
        return True

    async def allocate(self, size: int) -> None:
        """Take so many bytes as soon as they are there (at most `limit`)."""
        if self.try_allocate(size):
            return
        future = asyncio.get_running_loop().create_future()
        self._waiting.append((size, future))
        try:
            await future
        except BaseException:
            if future.done() and not future.cancelled() and future.exception() is None:
                self.release(size)  # it was for us, and we are gone
            else:
                future.cancel()
                self.release(0)  # who comes behind may want less
            raise

    def release(self, size: int) -> None:
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

    def close(self, problem: Exception) -> None:
        """Fail all waiting allocations."""
        waiting, self._waiting = self._waiting, deque()
        for _, future in waiting:
            if not future.done():
                future.set_exception(problem)
