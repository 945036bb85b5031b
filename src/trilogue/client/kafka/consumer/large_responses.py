"""Whose turn it is to receive a large response, where consumers share the memory of a process."""

from __future__ import annotations

from typing import Protocol


class LargeResponses(Protocol):
    """The turns of one consumer.

    A response may be larger than a consumer wants, since at least one whole batch comes. Out of
    turn one above the limit ends the connection as soon as its length is known, and is requested
    again in turn.
    """

    @property
    def limit_bytes(self) -> int:
        """Bytes of a response that is received out of turn, and of what is kept of it."""

    @property
    def has_turn(self) -> bool:
        """Whether it is the consumer's turn now."""

    async def wait_for_turn(self) -> None:
        """Wait until it is the consumer's turn."""
