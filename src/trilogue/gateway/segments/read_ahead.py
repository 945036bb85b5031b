"""Read-ahead for consumers that read segments in sequence.

A client requests the next bytes when it has processed those it got, and would then wait for the
disk and for checksums. So the end of each answer is remembered, and for a client that soon goes on
from just there the next part is read while the current one is sent. For a slow client it is not:
its bytes would occupy memory, and be read again if they had to be dropped.

Used on the loop only. What is kept is bounded in bytes, and dropped after `KEPT_S`.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import CancelledError, Executor, Future
from typing import Final

from msgspec.structs import replace

from trilogue.gateway.memory_budget import MemoryBudget, MemoryHolder
from trilogue.log.errors import LogError
from trilogue.log.partition_log import PartitionLog, SegmentSlice

KEPT_S: Final = 0.5  # from an answer to the request that goes on; a later client is slow
AHEAD_BYTES_MAX: Final = 64 << 20
POSITIONS_MAX: Final = 1_000  # remembered; 200 bytes each

Key = tuple[int, int, bool]  # partition id, offset, whether only committed messages are read
Bytes = Future[memoryview]


class _ExpectedRead:
    __slots__ = ("future", "room", "since_s")

    def __init__(self, since_s: float) -> None:
        self.since_s = since_s
        self.room = 0  # bytes
        self.future: Bytes | None = None


class ReadAhead(MemoryHolder):
    """Positions at which clients are expected, and what was read for them."""

    def __init__(self, executor: Executor, memory: MemoryBudget) -> None:
        super().__init__(memory)  # holds what is kept, or being read
        self.hits = 0
        self._executor = executor
        self._expected: OrderedDict[Key, _ExpectedRead] = OrderedDict()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def expected(self) -> int:
        """How many reads are expected."""
        return len(self._expected)

    def find_prefetched(self, key: Key, cold: SegmentSlice, room: int) -> SegmentSlice | None:
        """Return how to read `cold` for a client that was expected here; None if it was not."""
        read = self._expected.pop(key, None)
        if read is None:
            return None
        if read.since_s < asyncio.get_running_loop().time() - KEPT_S:
            self._forget(read)
            return None
        self._release(read)
        if read.future is None:
            return cold
        self.hits += 1
        return replace(cold, run=_get_or_read(read.future, cold.run, room))

    def expect(
        self, plog: PartitionLog, key: Key, room: int, until: int | None, *, ahead: bool
    ) -> None:
        """Remember where a client will go on; with `ahead` read on for it."""
        now_s = asyncio.get_running_loop().time()
        old = self._expected.pop(key, None)
        if old is not None:
            self._forget(old)
        elif len(self._expected) >= POSITIONS_MAX:
            self._forget(self._expected.popitem(last=False)[1])
        self._expected[key] = read = _ExpectedRead(now_s)
        most = min(AHEAD_BYTES_MAX - self.size_bytes, self.budget.free_bytes)
        if not ahead or room > most or self.budget.waiting:
            return
        try:
            found = plog.read(key[1], room, at_least_one=False, until=until)
        except LogError:  # it was just deleted; the request for it will fail
            return
        if not isinstance(found, SegmentSlice):
            return
        read.room = room
        self.resize(self.size_bytes + room)
        read.future = self._executor.submit(found.run)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(KEPT_S, self._sweep)

    def reclaim(self) -> None:
        """Drop what was read: others wait for its memory."""
        for read in self._expected.values():
            self._forget(read)
            read.future = None

    def _release(self, read: _ExpectedRead) -> None:
        self.resize(self.size_bytes - read.room)
        read.room = 0

    def _forget(self, read: _ExpectedRead) -> None:
        """Drop an expected read; one that has not begun is cancelled."""
        self._release(read)
        if read.future is not None:
            read.future.cancel()

    def _sweep(self) -> None:
        """Drop what no client came for in time."""
        self._timer = None
        late_s = asyncio.get_running_loop().time() - KEPT_S
        for key, read in list(self._expected.items()):
            if read.since_s > late_s:
                self._timer = asyncio.get_running_loop().call_later(KEPT_S, self._sweep)
                return
            del self._expected[key]
            self._forget(read)


def _get_or_read(
    future: Bytes, run: Callable[[], memoryview], room: int
) -> Callable[[], memoryview]:
    """Return a function for what was read ahead, or for a read in the usual way if that failed."""

    def get() -> memoryview:
        if future.cancel():  # the executor had not begun it
            return run()
        try:
            data = future.result()
        except (LogError, OSError, CancelledError):
            return run()
        return data if 0 < len(data) <= room else run()

    return get
