"""Reads segments in object storage like files, through a cache with a memory budget.

    SegmentReader ── ObjectFile.pread ── ObjectCache ── Objects.read ── the store
                                          chunks of 1 MiB, and the ends of segments

Data is requested in aligned chunks; a reader that continues from chunk to chunk gets the next ones
with the same request. Several readers of one chunk share one request. The header, and everything
from the footer on, are cached separately with a part of the budget of their own: every lookup needs
them, and sequential reads of data must not evict them.

The budget is memory, and small: sequential reads are seldom repeated, and a cache on the disk would
compete with the journal's writes. Data without a recent read is evicted (`trim`).

The cache verifies nothing: a reader verifies the checksum of every block each time it reads it, and
calls `forget` when one does not match, so that the next read fetches it from the store again.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

import msgspec

from trilogue.log.errors import StorageUnavailable
from trilogue.log.segments.segment import HEADER

if TYPE_CHECKING:
    from trilogue.log.objects.objects import Objects
    from trilogue.log.segments.segment_info import SegmentInfo

CACHE_BYTES: Final = 64 << 20
CHUNK: Final = 1 << 20
AHEAD: Final = 3  # further chunks in one request, for sequential readers
RUN_MAX: Final = AHEAD + 1  # chunks in one request: it has a time limit
ENDS_SHARE: Final = 4  # headers and footers may take the budget divided by this
RECENT_MAX: Final = 256  # positions where readers stopped
IDLE_S: Final = 60.0
WAIT_S: Final = 60.0  # for another reader's request; its own time limits are far below

Key = tuple[str, int]  # name of the segment, number of the chunk; below 0: an end of it
HEAD: Final = -1
TAIL: Final = -2


class CacheCounts(msgspec.Struct):
    """Counts since the start, for metrics; a chunk that another reader fetched is a hit."""

    hits: int = 0
    misses: int = 0
    evicted: int = 0


class _Flight:
    """A request under way, shared by all readers of its result."""

    __slots__ = ("data", "done", "error")

    def __init__(self) -> None:
        self.done = threading.Event()
        self.data = b""
        self.error: Exception | None = None


class _Pool:
    """Chunks in order of their last use, and their total size in bytes."""

    __slots__ = ("chunks", "size", "used_at")

    def __init__(self) -> None:
        self.chunks: OrderedDict[Key, bytes] = OrderedDict()
        self.used_at: dict[Key, float] = {}
        self.size = 0

    def get(self, key: Key, now: float) -> bytes | None:
        data = self.chunks.get(key)
        if data is not None:
            self.chunks.move_to_end(key)
            self.used_at[key] = now
        return data

    def put(self, key: Key, data: bytes, now: float) -> None:
        self.drop(key)
        self.chunks[key] = data
        self.used_at[key] = now
        self.size += len(data)

    def drop(self, key: Key) -> None:
        data = self.chunks.pop(key, None)
        if data is not None:
            del self.used_at[key]
            self.size -= len(data)

    def shrink(self, budget: int) -> int:
        dropped = 0
        while self.size > budget:
            self.drop(next(iter(self.chunks)))
            dropped += 1
        return dropped


class ObjectCache:
    """Recently read data of objects, shared by all threads."""

    def __init__(
        self, objects: Objects, monotonic: Callable[[], float], budget: int = CACHE_BYTES
    ) -> None:
        self.objects = objects
        self.counts = CacheCounts()
        self.budget = budget
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._data = _Pool()
        self._ends = _Pool()
        self._flights: dict[Key, _Flight] = {}
        self._recent: OrderedDict[Key, None] = OrderedDict()

    @property
    def size(self) -> int:
        """Bytes held."""
        return self._data.size + self._ends.size

    def open(self, info: SegmentInfo) -> ObjectFile:
        """Open a segment without a request to the store."""
        return ObjectFile(self, info)

    def forget(self, name: str) -> None:
        """Drop all data of a segment: it is about to be deleted, or its data was damaged."""
        with self._lock:
            for pool in (self._data, self._ends):
                for key in [each for each in pool.chunks if each[0] == name]:
                    pool.drop(key)

    def trim(self) -> None:
        """Evict data without a recent read; called periodically."""
        with self._lock:
            before = self._monotonic() - IDLE_S
            for key, used_at in list(self._data.used_at.items()):
                if used_at < before:
                    self._data.drop(key)

    # -- reading ---------------------------------------------------------------------------

    def end(self, info: SegmentInfo, which: int) -> bytes:
        """Return the header, or everything from the footer on."""
        return self._chunks(info, [which])[0]

    def chunks(self, info: SegmentInfo, first: int, last: int) -> list[bytes]:
        """Return the data chunks `first` to `last`, `last` included."""
        return self._chunks(info, range(first, last + 1))

    def _chunks(self, info: SegmentInfo, numbers: Iterable[int]) -> list[bytes]:
        """Return chunks: cached ones, ones fetched here, and ones that another thread fetches."""
        keys = [(info.name, number) for number in numbers]
        found: dict[Key, bytes] = {}
        awaited: dict[Key, _Flight] = {}
        mine: dict[Key, _Flight] = {}
        with self._lock:
            now = self._monotonic()
            for key in keys:
                data = self._pool(key).get(key, now)
                if data is not None:
                    found[key] = data
                elif key in self._flights:
                    awaited[key] = self._flights[key]
                else:
                    mine[key] = self._flights[key] = _Flight()
            self.counts.hits += len(found) + len(awaited)
            self.counts.misses += len(mine)
            self._read_ahead(info, keys, mine)
        if mine:
            self._fetch(info, mine)
        for key, flight in (awaited | mine).items():
            if not flight.done.wait(WAIT_S):
                raise StorageUnavailable(f"a request for {info.name} does not come back")
            if flight.error is not None:
                raise type(flight.error)(*flight.error.args)
            found[key] = flight.data
        return [found[key] for key in keys]

    def _pool(self, key: Key) -> _Pool:
        return self._ends if key[1] < 0 else self._data

    def _read_ahead(self, info: SegmentInfo, keys: list[Key], mine: dict[Key, _Flight]) -> None:
        """Add the next chunks to the request if the reader has just read the chunk before."""
        (name, first), (_, last) = keys[0], keys[-1]
        if last < 0:
            return
        came_from = (name, first if last > first else first - 1)
        reads_on = came_from in self._recent
        self._recent[keys[-1]] = None
        self._recent.move_to_end(keys[-1])
        if len(self._recent) > RECENT_MAX:
            self._recent.popitem(last=False)
        if not reads_on or (name, last) not in mine or self.budget // 2 < AHEAD * CHUNK:
            return
        for number in range(last + 1, last + 1 + AHEAD):
            key = (name, number)
            if number * CHUNK >= info.footer_position or key in self._flights:
                return
            if key in self._data.chunks:
                return
            mine[key] = self._flights[key] = _Flight()

    def _fetch(self, info: SegmentInfo, mine: dict[Key, _Flight]) -> None:
        """Fetch runs of chunks, one request each; waiting readers are woken on errors too."""
        problem = StorageUnavailable(f"a request for {info.name} was given up")
        try:
            for run in _runs([number for _, number in mine]):
                start, stop = _place(info, run[0])[0], _place(info, run[-1])[1]
                size = stop - start
                read = self.objects.read(info.name, start, size, info.node_id)
                data = memoryview(read).cast("B")
                for number in run:
                    first, after = _place(info, number)
                    key = (info.name, number)
                    self._arrived(key, mine[key], bytes(data[first - start : after - start]))
        except StorageUnavailable as error:
            problem = error
            raise
        finally:
            with self._lock:
                for key, flight in mine.items():
                    if not flight.done.is_set():
                        flight.error = problem
                        del self._flights[key]
                        flight.done.set()

    def _arrived(self, key: Key, flight: _Flight, data: bytes) -> None:
        with self._lock:
            self._pool(key).put(key, data, self._monotonic())
            self.counts.evicted += self._ends.shrink(self.budget // ENDS_SHARE)
            self.counts.evicted += self._data.shrink(self.budget - self._ends.size)
            del self._flights[key]
            flight.data = data
            flight.done.set()


class ObjectFile:
    """An object with the file methods that `SegmentReader` needs."""

    __slots__ = ("_cache", "_info")

    def __init__(self, cache: ObjectCache, info: SegmentInfo) -> None:
        self._cache = cache
        self._info = info

    def size(self) -> int:
        """The length in bytes that meta has recorded.

        An object of another length ends early or has no trailer, so reading it fails.
        """
        return self._info.size

    def pread(self, size: int, offset: int) -> bytes:
        """Read a range; raises `StorageUnavailable` when the store cannot provide it now."""
        info, cache = self._info, self._cache
        stop = min(offset + size, info.size)
        if stop <= HEADER.size:
            return cache.end(info, HEAD)[offset:stop]
        if offset >= info.footer_position:
            return cache.end(info, TAIL)[
                offset - info.footer_position : stop - info.footer_position
            ]
        within = min(stop, info.footer_position)
        first = offset // CHUNK
        chunks = cache.chunks(info, first, (within - 1) // CHUNK)
        at = offset - first * CHUNK
        joined = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        data = joined[at : at + within - offset]
        return data if stop == within else data + self.pread(stop - within, within)

    def read_into(self, room: memoryview, offset: int) -> int:
        """Fill `room` and return the number of bytes read, less than its length only at the end."""
        data = self.pread(len(room), offset)
        room[: len(data)] = data
        return len(data)

    def close(self) -> None:
        """Do nothing: there is no descriptor."""


def _place(info: SegmentInfo, number: int) -> tuple[int, int]:
    """Return the start and the end of a chunk, or of an end part, in the object."""
    if number == HEAD:
        return 0, HEADER.size
    if number == TAIL:
        return info.footer_position, info.size
    return number * CHUNK, min((number + 1) * CHUNK, info.footer_position)


def _runs(numbers: list[int]) -> list[list[int]]:
    """Join adjacent chunks up to one request's size; the end parts are requests of their own."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        joins = runs and number > 0 and runs[-1][-1] == number - 1 and len(runs[-1]) < RUN_MAX
        if joins:
            runs[-1].append(number)
        else:
            runs.append([number])
    return runs
