"""Reads of segments in the executor, within the memory for what is not sent yet.

    future = cold_reads.start(key, size, run)      None: there is no room for it now
    cold_reads.wait(key, size, resume, ...)        `resume` is called when there is

A read reserves its memory before it starts, and keeps it until the executor has ended, also if no
connection waits for it any more. What it returns is then counted by its caller: its callbacks
run before the reservation ends. Of a read only about the size is known, since one entry is read
whole: so few more are started than there are threads, and the size of each is counted before the
next one starts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from concurrent.futures import Executor, Future
from functools import partial
from typing import TypeVar

from trilogue.gateway.memory_budget import MemoryBudget, MemoryHolder, resolve_once

T = TypeVar("T")

READS_MAX = 8  # under way at a time


class ColdReads:
    """All reads of segments of one node that connections wait for."""

    def __init__(
        self, executor: Executor, memory: MemoryBudget, *, reads_max: int = READS_MAX
    ) -> None:
        self.memory = memory
        self.running = 0
        self._executor = executor
        self._reads_max = reads_max
        self._delayed: dict[Hashable, Callable[[], None]] = {}  # there is memory, but no thread

    @property
    def free_bytes_each(self) -> int:
        """How much each read may bring beyond what it reserved; also in threads."""
        return self.memory.free_bytes // self._reads_max

    def start(
        self, key: Hashable, size: int, run: Callable[[], T], address: str = ""
    ) -> asyncio.Future[T] | None:
        """Run a read of about `size` bytes in the executor; None if it has to wait."""
        if self.running >= self._reads_max or not self.memory.admit(key, size, address):
            return None
        reserved = MemoryHolder(self.memory, address)
        reserved.resize(size)
        self.running += 1
        loop = asyncio.get_running_loop()

        def release() -> None:
            self.running -= 1
            reserved.resize(0)
            self._resume_delayed()

        def ended(_work: Future[T]) -> None:
            # Once more `call_soon`: callbacks of the future come first, and count what was read.
            try:
                loop.call_soon_threadsafe(loop.call_soon, release)
            except RuntimeError:  # the loop is closed
                return

        work = self._executor.submit(run)
        future = asyncio.wrap_future(work)
        work.add_done_callback(ended)
        return future

    def wait(
        self,
        key: Hashable,
        size: int,
        resume: Callable[[], None],
        *,
        connection: Hashable,
        address: str = "",
    ) -> None:
        """Call `resume` when `start` is worth another try."""
        if self.running >= self._reads_max:
            self._delayed[key] = resume
        else:
            self.memory.wait(key, size, resume, connection=connection, address=address)

    def forget(self, key: Hashable) -> None:
        """Wait no more."""
        self._delayed.pop(key, None)
        self.memory.forget(key)

    def _resume_delayed(self) -> None:
        """Let the next one try again, and then others, as long as threads are free."""
        if self._delayed and self.running < self._reads_max:
            resume = self._delayed.pop(next(iter(self._delayed)))
            resume()
            asyncio.get_running_loop().call_soon(self._resume_delayed)

    async def run(
        self, size: int, run: Callable[[], T], *, connection: Hashable, address: str = ""
    ) -> T:
        """Wait for room, and run a read."""
        key = object()
        try:
            while (future := self.start(key, size, run, address)) is None:
                waiter = asyncio.get_running_loop().create_future()
                resume = partial(resolve_once, waiter)
                self.wait(key, size, resume, connection=connection, address=address)
                await waiter
        finally:
            self.forget(key)
        return await future
