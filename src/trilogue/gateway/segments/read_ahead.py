"""Read-ahead for consumers that read segments in sequence.

A client requests the next bytes when it has processed those it got, and would then wait for the
disk and for checksums. So the end of each answer is remembered, and for a client that soon goes on
from just there the next part is read while the current one is sent. For a slow client it is not:
its bytes would occupy memory, and be read again if they had to be dropped.

What one answer makes expect is read by one piece of work in the executor, in the order in which it
is going to be requested. A request that finds its bytes here is answered without the executor.

Used on the loop only. What is kept is bounded in bytes, and dropped after `KEPT_S`.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import CancelledError, Executor, Future
from typing import Final, NamedTuple

from msgspec.structs import replace

from trilogue.entry.entry import EntryError
from trilogue.gateway.conversion_cache import is_kafka
from trilogue.gateway.memory_budget import MemoryBudget, MemoryHolder
from trilogue.gateway.partition_reader import (
    Aborted,
    PartitionRead,
    entries_end,
    resolve_aborted,
)
from trilogue.log.errors import LogError
from trilogue.log.partition_log import PartitionLog, SegmentSlice
from trilogue.log.segments.segment import AbortedTransaction

KEPT_S: Final = 0.5  # from an answer to the request that goes on; a later client is slow
AHEAD_BYTES_MAX: Final = 64 << 20
POSITIONS_MAX: Final = 1_000  # remembered; 200 bytes each

Key = tuple[int, int, bool]  # partition id, offset, whether only committed messages are read


class NextRead(NamedTuple):
    """Where a client is expected to go on, and how much it may take there."""

    plog: PartitionLog
    key: Key
    room: int
    until: int | None  # where readers of committed messages stop


class Prefetched(NamedTuple):
    """What was read ahead: whole entries, of which there is one at least."""

    data: memoryview
    end_offset: int
    is_kafka: bool  # whether all entries have Kafka's own format
    aborted: list[AbortedTransaction]  # with entries in it; for readers of committed messages


class ExpectedRead:
    """A position at which a client is expected, and what is read or was read there."""

    __slots__ = ("aborted", "found", "future", "room", "since_s", "source")

    def __init__(self, since_s: float) -> None:
        self.since_s = since_s
        self.room = 0  # bytes that are counted for it
        self.source: SegmentSlice | None = None
        self.aborted: Aborted = []
        self.future: Future[None] | None = None  # of all that is read by the same work
        self.found: Prefetched | None = None  # set by the executor

    @property
    def size(self) -> int:
        """How many bytes are here, or at most will be; 0 if nothing is read."""
        found = self.found
        return self.room if found is None else len(found.data)

    def run(self) -> None:
        """Read it, in the executor; what fails is read again by the request, which reports it."""
        source = self.source
        if source is None:  # it was dropped
            return
        try:
            data = source.run()
            if not len(data):
                return
            end = entries_end(data)
            found = Prefetched(data, end, is_kafka([data]), resolve_aborted(self.aborted, end))
            if self.source is not None:
                self.found = found
        except (LogError, EntryError, OSError):
            return


class ReadAhead(MemoryHolder):
    """Positions at which clients are expected, and what was read for them."""

    def __init__(self, executor: Executor, memory: MemoryBudget) -> None:
        super().__init__(memory)  # holds what is kept, or being read
        self.hits = 0
        self._executor = executor
        self._expected: OrderedDict[Key, ExpectedRead] = OrderedDict()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def expected(self) -> int:
        """How many reads are expected."""
        return len(self._expected)

    def find_expected(self, key: Key) -> ExpectedRead | None:
        """Return what is expected here; None if that was not, or if the client comes late."""
        read = self._expected.get(key)
        if read is None:
            return None
        if read.since_s < asyncio.get_running_loop().time() - KEPT_S:
            del self._expected[key]
            self._forget(read)
            return None
        return read

    def remove_expected(self, key: Key) -> None:
        """Give up what was found: its client counts the memory from now on."""
        read = self._expected.pop(key)
        self._release(read)
        self.hits += read.future is not None

    def expect(self, reads: Sequence[NextRead], *, ahead: bool) -> None:
        """Remember where a client will go on; with `ahead` read on for it, as memory allows."""
        now_s = asyncio.get_running_loop().time()
        begun: list[ExpectedRead] = []
        for each in reads:
            old = self._expected.pop(each.key, None)
            if old is not None and old.future is not None and not old.future.cancelled():
                old.since_s = now_s
                self._expected[each.key] = old
                continue
            if len(self._expected) >= POSITIONS_MAX:
                self._forget(self._expected.popitem(last=False)[1])
            self._expected[each.key] = read = ExpectedRead(now_s)
            if ahead and self._plan(read, each):
                begun.append(read)
        if not begun:
            return
        future = self._executor.submit(_run_all, begun)
        for read in begun:
            read.future = future
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(KEPT_S, self._sweep)

    def _plan(self, read: ExpectedRead, wanted: NextRead) -> bool:
        """Plan a read and count its memory, if it is of a segment and there is memory for it."""
        most = min(AHEAD_BYTES_MAX - self.size_bytes, self.budget.free_bytes)
        if most <= 0 or self.budget.waiting:
            return False
        try:
            found = wanted.plog.read(
                wanted.key[1], wanted.room, at_least_one=False, until=wanted.until
            )
        except LogError:  # it was just deleted; the request for it will fail
            return False
        if not isinstance(found, SegmentSlice):
            return False
        room = min(wanted.room, found.size_hint)
        if room > most:
            return False
        read.source, read.room = found, room
        if wanted.until is not None:
            read.aborted = PartitionRead(found, wanted.key[1], wanted.until).find_aborted(
                wanted.plog
            )
        self.resize(self.size_bytes + room)
        return True

    def reclaim(self) -> None:
        """Drop what was read: others wait for its memory."""
        for read in self._expected.values():
            self._forget(read)
            read.future = None

    def _release(self, read: ExpectedRead) -> None:
        self.resize(self.size_bytes - read.room)
        read.room = 0

    def _forget(self, read: ExpectedRead) -> None:
        """Drop an expected read; one that has not begun is not read."""
        self._release(read)
        read.source = read.found = None

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


def _run_all(reads: Sequence[ExpectedRead]) -> None:
    for read in reads:
        read.run()


def wait_for(read: ExpectedRead, cold: SegmentSlice, room: int) -> SegmentSlice:
    """Return how to read `cold`, in the executor, from what is being read ahead there."""
    future = read.future
    if future is None:
        return cold

    def run() -> memoryview:
        if future.cancel():  # the executor had not begun it
            return cold.run()
        try:
            future.result()
        except CancelledError:
            return cold.run()
        found = read.found
        return found.data if found is not None and len(found.data) <= room else cold.run()

    return replace(cold, run=run)
