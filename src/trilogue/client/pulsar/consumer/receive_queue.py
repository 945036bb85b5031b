"""Received messages that wait for the application, in the order of each topic."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable

from trilogue.client.pulsar.message import Message, MessageOwner


class ReceiveQueue:
    """A queue that several topics fill and several receivers empty."""

    def __init__(self) -> None:
        self.messages: deque[Message] = deque()
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def has_waiting(self) -> bool:
        """Whether a receiver waits for a message."""
        return any(not waiter.done() for waiter in self._waiting)

    def put(self, messages: Iterable[Message]) -> None:
        """Add messages and wake as many receivers."""
        before = len(self.messages)
        self.messages.extend(messages)
        self._wake(len(self.messages) - before)

    def drop(self, owner: MessageOwner) -> int:
        """Take out all messages of one topic; how many they were."""
        kept = [message for message in self.messages if message.owner is not owner]
        dropped = len(self.messages) - len(kept)
        if dropped:
            self.messages = deque(kept)
        return dropped

    def wake_all(self) -> None:
        """Something else happened that receivers must look at."""
        self._wake(len(self._waiting))

    def _wake(self, count: int) -> None:
        while count > 0 and self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                count -= 1

    async def wait(self) -> None:
        """Wait for the next news."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self._wake(1)  # this waiter was woken and cancelled: wake another
            raise
