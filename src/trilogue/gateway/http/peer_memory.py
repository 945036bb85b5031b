"""What an HTTP connection or a WebSocket holds of the node's memory for its peer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Hashable

from trilogue.gateway.memory_budget import MemoryBudget, MemoryHolder

log = logging.getLogger(__name__)


class PeerMemory(MemoryHolder):
    """What was received in part, or sent and not read; evicted with the event `reason`."""

    __slots__ = ("_transport", "reason", "steps")

    def __init__(
        self, budget: MemoryBudget, address: str, transport: asyncio.Transport, reason: str
    ) -> None:
        super().__init__(budget, address)
        self.steps: int | None = None  # of the peer's progress; None: it is not waited for
        self.reason = reason
        self._transport = transport

    def progress(self) -> Hashable:
        """Return how far the peer is, and how much of what was sent it has not read."""
        return None if self.steps is None else (self.steps, self._transport.get_write_buffer_size())

    def evict(self) -> None:
        """Close: the peer does not move, and others wait for the memory."""
        log.warning(
            self.reason,
            extra={"listener": "http", "address": self.address, "size_bytes": self.size_bytes},
        )
        self.budget.count_lost(self.size_bytes)
        self._transport.abort()

    def release(self) -> None:
        """Hold nothing, and wait for nothing."""
        self.budget.forget(self)
        self.resize(0)
