"""What the entries of a WebSocket's client inside hold of the node's memory, and its turns.

They are counted from their arrival until their last message is sent. A WebSocket whose peer takes
nothing more is closed where others need the memory, and one that is sent an entry while nothing is
left at all, at once.
"""

from __future__ import annotations

import asyncio
from typing import Final

from trilogue.gateway.http.peer_memory import PeerMemory
from trilogue.gateway.memory_budget import ConnectionMemory
from trilogue.gateway.steps import next_step

SMALL_BYTES: Final = 16 << 10  # of entries, for which there is always room


class SocketEntryMemory:
    """The entries of one WebSocket, for its client inside (client/pulsar/entry_memory.py)."""

    def __init__(
        self, memory: ConnectionMemory, address: str, transport: asyncio.Transport
    ) -> None:
        self._iterations = memory.iterations
        self._holder = PeerMemory(memory.unsent, address, transport, "connection.unread")
        self._is_closed = False
        self._steps = self._holder.steps = 0

    def resize(self, size_bytes: int) -> bool:
        """Count that entries have so many bytes; return whether there is room for them."""
        holder = self._holder
        is_small = size_bytes <= SMALL_BYTES
        has_room = is_small or size_bytes <= holder.size_bytes or not holder.budget.is_spent
        if not self._is_closed:
            holder.resize(0 if is_small else size_bytes)
        return has_room

    async def reserve(self, size_bytes: int) -> None:
        """Wait until entries may have so many bytes."""
        if not self._is_closed:
            await self._holder.budget.reserve(self._holder, size_bytes)

    async def next_step(self) -> None:
        """Let others use the loop where the time of this iteration is used up."""
        self._steps += 1
        if self._iterations.is_used_up():
            self._holder.steps = None  # the peer does not wait for itself
            await next_step()
        self._holder.steps = self._steps

    def close(self) -> None:
        """Hold nothing from now on: the WebSocket is closed."""
        self._is_closed = True
        self._holder.release()
