"""Clients of a node whose flush waits until there are many journal files: one job takes them all.

So it is when a node recovers the journal of one that could not flush for a while.
"""

from __future__ import annotations

import asyncio
from collections import Counter

from tests.crash.log_workload import LogWorkload, durable
from tests.waiting import pass_time
from trilogue.node.node import Node

BEFORE_FLUSH = 120  # batches
FILES = 5  # more than one job had when their number was the bound


class BacklogWorkload(LogWorkload):
    """Sends much before the first flush, and a little after it."""

    def __init__(self) -> None:
        super().__init__(messages=BEFORE_FLUSH + 10)
        self.largest = 0  # files in one flush

    async def act(self, node: Node) -> None:
        """Hold the flush at the first batch, and let it go when there are many files."""
        number = self.written
        if number == 0:
            self._gate = asyncio.Event()
            node.flusher._room = self._gate.wait  # type: ignore[assignment]
        await super().act(node)
        if number + 1 == BEFORE_FLUSH:
            await durable(node)
            before, waiting = node.flusher.counts.flushes, node.flusher.waiting
            self._gate.set()
            while node.flusher.waiting:
                await pass_time(0.1)
            self.largest = waiting // max(1, node.flusher.counts.flushes - before)

    def check_coverage(self, events: Counter[str]) -> None:
        """Many files were flushed by one job."""
        assert self.largest >= FILES
        assert events["flush.done"] >= 2
