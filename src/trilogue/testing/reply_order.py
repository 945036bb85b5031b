"""The way of a connection's replies to its client: those of the broker, and a fault's between them.

Kafka's clients expect responses in the order of their requests, so a fault's response waits for
those of the broker to earlier requests. Other protocols' replies carry the number of their request.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator


class ReplyOrder:
    """Writes whole replies to a client. `split` takes complete frames from what was received."""

    def __init__(
        self,
        writer: asyncio.StreamWriter,
        split: Callable[[bytearray], Iterator[bytes]],
        *,
        by_request: bool,
    ) -> None:
        self._writer = writer
        self._split = split
        self._by_request = by_request
        self._received = bytearray()
        self._expected = 0  # replies of the broker to come before the next request's
        self._passed = 0  # replies of the broker that the client has
        self._own: deque[tuple[int, bytes]] = deque()  # a reply, and `_passed` before it

    def expect(self) -> None:
        """The broker has another request that it replies to."""
        self._expected += 1

    async def insert(self, reply: bytes) -> None:
        """Reply to a request that the broker does not see."""
        self._own.append((self._expected if self._by_request else self._passed, reply))
        await self._write_own()

    async def pass_on(self, data: bytes) -> None:
        """Pass on bytes of the broker as their frames are complete."""
        self._received += data
        for reply in self._split(self._received):
            self._writer.write(reply)
            self._passed += 1
            await self._write_own()

    async def _write_own(self) -> None:
        while self._own and self._own[0][0] <= self._passed:
            self._writer.write(self._own.popleft()[1])
        await self._writer.drain()
