"""Places for costly work: the addresses of clients take turns at them.

    turn = turns.request(address)                   raises TooManyWaiting
    async with turns.hold(turn) as has_place:       False: the wait was too long, or others need it
        ...

Within an address the oldest is first. So a client does not wait for the hundreds that another
address sends. Where `waiting_max` wait, one of an address with fewer than another takes the place
of the last of the address with most.
"""

from __future__ import annotations

import asyncio
import math
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple, TypeAlias

Turn: TypeAlias = asyncio.Future[bool]


class TooManyWaiting(Exception):
    """So many wait for a place that one more may not."""


class _Waiter(NamedTuple):
    turn: Turn
    since_s: float


class AddressTurns:
    """A number of places, and those that wait for one.

    `patience_s`: who has waited longer gets none, since its client has given up by then.
    """

    def __init__(
        self,
        places: int,
        *,
        waiting_max: int = sys.maxsize,
        waiting_of_address_max: int = sys.maxsize,
        patience_s: float = math.inf,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._free = places
        self._waiting_max = waiting_max
        self._waiting_of_address_max = waiting_of_address_max
        self._patience_s = patience_s
        self._monotonic = monotonic
        self._waiting: dict[str, deque[_Waiter]] = {}  # by address, in turn
        self._count = 0

    def request(self, address: str) -> Turn:
        """Return a turn, which has to be held; raises TooManyWaiting."""
        turn: Turn = asyncio.get_running_loop().create_future()
        if self._free:
            self._free -= 1
            turn.set_result(True)
            return turn
        own = len(self._waiting.get(address, ()))
        if own >= self._waiting_of_address_max:
            raise TooManyWaiting
        if self._count >= self._waiting_max:
            longest = max(self._waiting, key=lambda each: len(self._waiting[each]))
            if own + 1 >= len(self._waiting[longest]):
                raise TooManyWaiting
            self._drop_last(longest)
        self._waiting.setdefault(address, deque()).append(_Waiter(turn, self._monotonic()))
        self._count += 1
        return turn

    @asynccontextmanager
    async def hold(self, turn: Turn) -> AsyncIterator[bool]:
        """Wait for a place and keep it; False: there is none for this turn."""
        try:
            has_place = await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.result():
                self._start_next()
            raise
        try:
            yield has_place
        finally:
            if has_place:
                self._start_next()

    def _start_next(self) -> None:
        """Give a place that is free to the next address, which is behind the others then."""
        oldest_s = self._monotonic() - self._patience_s
        while self._waiting:
            address = next(iter(self._waiting))
            waiting = self._waiting.pop(address)
            turn, since_s = waiting.popleft()
            self._count -= 1
            if waiting:
                self._waiting[address] = waiting
            if turn.done():
                continue
            is_late = since_s < oldest_s
            turn.set_result(not is_late)
            if not is_late:
                return
        self._free += 1

    def _drop_last(self, address: str) -> None:
        waiting = self._waiting[address]
        dropped = waiting.pop().turn
        self._count -= 1
        if not waiting:
            del self._waiting[address]
        if not dropped.done():
            dropped.set_result(False)
