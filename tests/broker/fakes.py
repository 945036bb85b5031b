"""Fakes below the broker: a clock, a log whose writes become durable on demand, batches.

`FakeLog` has the face of the real log and its journal and keeps little but offsets;
tests/broker/test_recovery.py runs the broker on the real one.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

from trilogue.broker.broker import Broker
from trilogue.entry.checksum import crc32c
from trilogue.entry.entry import EntryHeader
from trilogue.entry.header import CHECKED_FROM, HEADER, HEADER_SIZE, LENGTH_PREFIX
from trilogue.log.errors import LogError
from trilogue.log.segments.extents import Extent
from trilogue.log.segments.manifest import PartitionRange
from trilogue.meta.memory import MemoryMeta


class FakeTimers:
    """Calls back when `advance` passes the time, in order."""

    def __init__(self) -> None:
        self.now = 0.0
        self._calls: list[tuple[float, int, FakeCall]] = []
        self._order = count()

    def call_later(self, delay: float, callback: Callable[[], object]) -> FakeCall:
        call = FakeCall(callback)
        heapq.heappush(self._calls, (self.now + delay, next(self._order), call))
        return call

    def advance(self, seconds: float) -> None:
        end = self.now + seconds
        while self._calls and self._calls[0][0] <= end:
            self.now, _, call = heapq.heappop(self._calls)
            call.run()
        self.now = end

    def now_ms(self) -> int:
        return int(self.now * 1_000)

    @property
    def pending(self) -> int:
        return sum(not call.cancelled for _, _, call in self._calls)


class FakeCall:
    def __init__(self, callback: Callable[[], object]) -> None:
        self._callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True

    def run(self) -> None:
        if not self.cancelled:
            self._callback()


class FakePartitionLog:
    def __init__(self, log: FakeLog, partition_id: int, owner_epoch: int) -> None:
        self._log = log
        self.partition_id = partition_id
        self.owner_epoch = owner_epoch
        self.start_offset = self.end_offset = self.high_watermark = 0
        self.acks_from_memory = False
        self.tail_bytes = 0
        self.entries: list[bytes] = []
        self.on_extents: Callable[[int], object] = lambda _: None
        self._extents: list[Extent] = []

    @property
    def extents(self) -> list[Extent]:
        """The real one's have to be looked up: a test may count that."""
        self.on_extents(self.partition_id)
        return self._extents

    def append(self, entry: memoryview, header: EntryHeader) -> int:
        if self._log.refusal is not None:
            raise self._log.refusal
        self.entries.append(bytes(entry))
        base_offset = self.end_offset
        self.end_offset += header.last_offset_delta + 1
        return base_offset


class FakeLog:
    """A log and its journal: `commit` makes everything added so far durable.

    With `at_once` nothing has to wait.
    """

    def __init__(self, *, at_once: bool = False) -> None:
        self._at_once = at_once
        self.partitions: dict[int, FakePartitionLog] = {}
        self.facts: list[tuple[int, bytes]] = []
        self.durable_facts: list[tuple[int, bytes]] = []
        self.refusal: LogError | None = None
        self._waiters: list[Callable[[BaseException | None], None]] = []

    def partition(self, partition_id: int) -> FakePartitionLog:
        return self.partitions[partition_id]

    def create_partition(self, partition_id: int, owner_epoch: int) -> FakePartitionLog:
        made = self.partitions[partition_id] = FakePartitionLog(self, partition_id, owner_epoch)
        return made

    def adopt_partition(
        self, partition_id: int, owner_epoch: int, known: PartitionRange
    ) -> FakePartitionLog:
        made = self.create_partition(partition_id, owner_epoch)
        made.start_offset = known.start_offset
        made.end_offset = made.high_watermark = known.flushed_end
        return made

    def drop_partition(self, partition_id: int) -> None:
        self.partitions.pop(partition_id, None)

    def add_fact(self, kind: int, payload: bytes, acks_from_memory: bool = False) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.facts.append((kind, payload))

    def on_commit(self, callback: Callable[[BaseException | None], None]) -> None:
        self._waiters.append(callback)
        if self._at_once:
            self.commit()

    def commit(self, error: BaseException | None = None, *, waiters: int | None = None) -> None:
        """Let what was added be durable, or fail; `waiters` cuts the window after so many."""
        waiters = len(self._waiters) if waiters is None else waiters
        reported, self._waiters = self._waiters[:waiters], self._waiters[waiters:]
        self.durable_facts = list(self.facts)
        for partition in self.partitions.values():
            partition.high_watermark = partition.end_offset
        for callback in reported:
            callback(error)


def batch(
    count: int = 1,
    *,
    producer: tuple[int, int, int] = (-1, -1, -1),
    attributes: int = 0,
    timestamp: int = 1_000,
    value: bytes = b"v",
) -> memoryview:
    """One record batch as a producer sends it; `producer` is (id, epoch, base sequence)."""
    records = b"".join(_record(index, value) for index in range(count))
    length = HEADER_SIZE + len(records) - LENGTH_PREFIX
    fields = (attributes, count - 1, timestamp, timestamp, *producer, count)
    entry = bytearray(HEADER.pack(0, length, -1, 2, 0, *fields) + records)
    entry[17:21] = crc32c(entry[CHECKED_FROM:]).to_bytes(4, "big")
    return memoryview(bytes(entry))


def _record(index: int, value: bytes) -> bytes:
    body = b"\0\0" + _varint(index) + _varint(-1) + _varint(len(value)) + value + b"\0"
    return _varint(len(body)) + body


def _varint(value: int) -> bytes:
    number = (value << 1) ^ (value >> 63)
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def header(
    base_offset: int,
    count: int = 1,
    *,
    producer: tuple[int, int, int] = (-1, -1, -1),
    attributes: int = 0,
    timestamp: int = 1_000,
) -> EntryHeader:
    """The header of an entry that is in the log."""
    return EntryHeader(
        base_offset, 100, 1, 0, attributes, count - 1, timestamp, timestamp, *producer, count
    )


def extents(*runs: Sequence[int]) -> list[Extent]:
    """Extents from (base, end, newest event, newest append, perhaps bytes)."""
    return [
        Extent(7, base, end, 0, (*size, 10)[0], 1, 1, event_ms, event_ms, append_ms, append_ms)
        for base, end, event_ms, append_ms, *size in runs
    ]


def new_broker(meta: MemoryMeta, timers: FakeTimers, **options: Any) -> Broker:
    """A broker over a meta in memory that counts its ids."""
    ids = count(1)
    return Broker(
        meta.state,
        allocate=meta.allocate,
        timers=timers,
        now_ms=timers.now_ms,
        new_topic_id=lambda: next(ids).to_bytes(16, "big"),
        new_member_suffix=lambda: str(next(ids)),
        **options,
    )
