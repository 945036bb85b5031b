"""Consumer instances take turns to receive what is larger than they may keep.

A fetch returns a whole batch, however large it is: a message of a few KiB from a client of Pulsar
becomes a response of 31 MiB where it decompresses to that. Each of hundreds of instances would hold
one.
"""

from __future__ import annotations

import asyncio
from typing import Final

RESPONSE_BYTES: Final = 2 << 20  # that an instance receives, and keeps, out of turn
TURN_S: Final = 30.0  # for which a request waits for its turn and for the response
TURNS: Final = 1


class LargeTurns:
    """The turns of all instances."""

    def __init__(self) -> None:
        self._free = asyncio.Semaphore(TURNS)

    def make_turn(self) -> InstanceTurn:
        """Return the turn of a new instance."""
        return InstanceTurn(self._free)


class InstanceTurn:
    """The turn of one instance (client/kafka/consumer/large_responses.py).

    It is its turn during a request for messages only, and at most until the end of that.
    """

    limit_bytes = RESPONSE_BYTES

    def __init__(self, free: asyncio.Semaphore) -> None:
        self._free = free
        self._reading = asyncio.Event()
        self._waiting = 0
        self.has_turn = False

    @property
    def is_needed(self) -> bool:
        """Whether a large response waits for its turn, or is received in it."""
        return self.has_turn or self._waiting > 0

    def begin_request(self) -> None:
        """A request reads messages from now on."""
        self._reading.set()

    def end_request(self) -> None:
        """It does so no more: others have their turn."""
        self._reading.clear()
        if self.has_turn:
            self.has_turn = False
            self._free.release()

    async def wait_for_turn(self) -> None:
        """Wait until a request reads messages, and it is the instance's turn."""
        while not self.has_turn:
            self._waiting += 1
            try:
                await self._reading.wait()
                await self._free.acquire()
            finally:
                self._waiting -= 1
            if self._reading.is_set() and not self.has_turn:
                self.has_turn = True
            else:
                self._free.release()
