"""The memory that a client inside of a server may use for received entries."""

from __future__ import annotations

from typing import Protocol


class EntryMemory(Protocol):
    """The memory that a client may use for entries, and its turns on the loop."""

    copies: int
    """How many times its size a large message takes until the application is done with it."""

    def resize(self, size_bytes: int) -> bool:
        """Count that entries have so many bytes; return whether there is room for them."""

    async def reserve(self, size_bytes: int) -> None:
        """Wait until entries may have so many bytes."""

    async def next_step(self) -> None:
        """Let others use the loop."""
