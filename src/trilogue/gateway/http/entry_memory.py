"""What the entries of a WebSocket's client inside hold of the node's memory, and its turns.

They are counted from their arrival until their last message is sent, large ones with the texts that
are made of a message. A WebSocket whose peer takes nothing more is closed where others need the
memory, and one that is sent an entry while nothing is left at all, at once.
"""

from __future__ import annotations

import asyncio
from typing import Final

from trilogue.gateway.http.peer_memory import PeerMemory
from trilogue.gateway.memory_budget import ConnectionMemory
from trilogue.gateway.steps import next_step

SMALL_BYTES: Final = 16 << 10  # of entries, for which there is always room
TEXT_COPIES: Final = 4  # its JSON as text, encoded, and as a frame, in base64


class _EntryHolder(PeerMemory):
    """What the entries hold: the node works on them, or waits for the peer."""

    __slots__ = ()

    @property
    def is_work(self) -> bool:
        """Whether the node works on them."""
        return self.steps is None


class SocketEntryMemory:
    """The entries of one WebSocket, for its client inside (client/pulsar/entry_memory.py)."""

    copies = TEXT_COPIES

    def __init__(
        self, memory: ConnectionMemory, address: str, transport: asyncio.Transport
    ) -> None:
        self._iterations = memory.iterations
        self._holder = _EntryHolder(memory.unsent, address, transport, "connection.unread")
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
        """Wait until entries may have so many bytes; half of the node's memory at most."""
        holder = self._holder
        if not self._is_closed:
            await holder.budget.reserve(holder, min(size_bytes, holder.budget.limit_bytes // 2))
            holder.steps = None  # until something is sent, the peer does not wait for itself

    def begin_sending(self, size_bytes: int) -> bool:
        """Wait for the peer from now on; return whether a text of this size is counted already."""
        self._holder.steps = self._steps
        return self._holder.size_bytes >= size_bytes

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
