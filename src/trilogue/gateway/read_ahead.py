"""Reading on behind a reader that goes on: its next bytes are read while it takes those it has.

A client asks for what comes next when it has taken in what it got, and would then wait for the
disk and for checksums. So where an answer ends is remembered, and who comes back to just that place
soon gets its next piece read while this one is sent. Who is slow does not: what is read for it
would lie in memory, and be read again when it had to give way.

Lives on the loop. What is kept has a bound in bytes, and a time after which it goes.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import CancelledError, Executor, Future
from dataclasses import replace
from typing import Final

from trilogue.log.errors import LogError
from trilogue.log.partition_log import Cold, PartitionLog

KEPT_S: Final = 0.5  # from an answer to the request that goes on; who is later is slow
AHEAD_BYTES_MAX: Final = 64 << 20
PLACES_MAX: Final = 1_000  # remembered; 200 bytes each

Key = tuple[int, int, bool]  # partition id, offset, whether only what is committed is read
Bytes = Future[memoryview]


class _Place:
    __slots__ = ("future", "room", "since_s")

    def __init__(self, since_s: float) -> None:
        self.since_s = since_s
        self.room = 0  # bytes
        self.future: Bytes | None = None


class ReadAhead:
    """Places where readers are expected, and what was read for them."""

    def __init__(self, executor: Executor) -> None:
        self.bytes = 0  # that are kept, or on their way
        self.hits = 0
        self._executor = executor
        self._places: OrderedDict[Key, _Place] = OrderedDict()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def places(self) -> int:
        """How many readers are expected."""
        return len(self._places)

    def find(self, key: Key, cold: Cold, room: int) -> Cold | None:
        """Say how to read `cold` for a reader that was expected here; None: it was not."""
        place = self._places.pop(key, None)
        if place is None:
            return None
        if place.since_s < asyncio.get_running_loop().time() - KEPT_S:
            self._forget(place)
            return None
        self._let_go(place)
        if place.future is None:
            return cold
        self.hits += 1
        return replace(cold, run=_taken(place.future, cold.run, room))

    def expect(
        self, plog: PartitionLog, key: Key, room: int, until: int | None, *, ahead: bool
    ) -> None:
        """Remember where a reader will go on; `ahead` reads on for it."""
        now_s = asyncio.get_running_loop().time()
        old = self._places.pop(key, None)
        if old is not None:
            self._forget(old)
        elif len(self._places) >= PLACES_MAX:
            self._forget(self._places.popitem(last=False)[1])
        self._places[key] = place = _Place(now_s)
        if not ahead or self.bytes + room > AHEAD_BYTES_MAX:
            return
        try:
            found = plog.read(key[1], room, at_least_one=False, until=until)
        except LogError:  # it has just gone; who asks is told
            return
        if not isinstance(found, Cold):
            return
        place.room = room
        self.bytes += room
        place.future = self._executor.submit(found.run)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(KEPT_S, self._sweep)

    def _let_go(self, place: _Place) -> None:
        self.bytes -= place.room
        place.room = 0

    def _forget(self, place: _Place) -> None:
        """Nobody will come for it: what was not read yet need not be."""
        self._let_go(place)
        if place.future is not None:
            place.future.cancel()

    def _sweep(self) -> None:
        """Forget what nobody came for."""
        self._timer = None
        late_s = asyncio.get_running_loop().time() - KEPT_S
        for key, place in list(self._places.items()):
            if place.since_s > late_s:
                self._timer = asyncio.get_running_loop().call_later(KEPT_S, self._sweep)
                return
            del self._places[key]
            self._forget(place)


def _taken(future: Bytes, run: Callable[[], memoryview], room: int) -> Callable[[], memoryview]:
    """What was read ahead; what it cannot give is read as if nothing had been."""

    def take() -> memoryview:
        if future.cancel():  # its turn had not come
            return run()
        try:
            data = future.result()
        except (LogError, OSError, CancelledError):
            return run()
        return data if 0 < len(data) <= room else run()

    return take
