"""Reads batches of one partition for a member of a share group, and acquires their records.

Whole batches are read from the first offset that may be acquired; those of which the member
acquires something are returned. Offsets without a record to deliver (control records, gaps of
compaction, and for groups of committed records those of aborted transactions) are passed over here,
so that no member has to acknowledge them. The first batch of a response may be larger than the
request's limit of bytes; no later one is acquired that would exceed it.

What is in memory is read at once, segments and conversions in the executor. Only one fetch of a
group reads a partition at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from typing import Final, NamedTuple

from trilogue.broker.groups.share.partition import (
    AcquiredRange,
    AcquireLimits,
    SharePartition,
    append_acquired,
)
from trilogue.broker.topics.partition import Partition
from trilogue.entry.entry import CONTROL, TRANSACTIONAL
from trilogue.entry.walk import walk_headers
from trilogue.gateway.conversion_cache import ConversionCache, is_kafka
from trilogue.gateway.kafka.context import RequestContext
from trilogue.gateway.partition_reader import (
    ATTRIBUTES_AT,
    Aborted,
    PartitionRead,
    entries_end,
    open_read,
    resolve_aborted,
)
from trilogue.gateway.stream import Buffer
from trilogue.log.partition_log import SegmentSlice, TailSlice
from trilogue.log.segments.segment import AbortedTransaction

READ_BYTES: Final = 64 << 10  # of memory at a time: many small batches take some milliseconds
COLD_READ_BYTES: Final = 512 << 10  # of a segment at a time
READS_MAX: Final = 1_000  # of one partition in one fetch

Loaded = tuple[list[Buffer], list[AbortedTransaction]]


class Batch(NamedTuple):
    """A batch [start, end) of records at a place of a buffer; hidden ones are not delivered."""

    start: int
    end: int
    place: int
    size: int
    is_hidden: bool


class AcquiredBatches:
    """What a member acquired of one partition: ranges, and the batches that contain them."""

    def __init__(self) -> None:
        self.ranges: list[AcquiredRange] = []
        self.records: list[Buffer] = []
        self.size = 0  # bytes
        self.count = 0  # records
        self.is_over = False  # no more is acquired of the partition

    def add(self, ranges: list[AcquiredRange], batch: Buffer) -> None:
        """Add a batch of which these ranges are acquired."""
        for each in ranges:
            append_acquired(self.ranges, each)
            self.count += each.end - each.start
        self.records.append(batch)
        self.size += len(batch)


class ShareReader:
    """Reads for one request."""

    def __init__(
        self, context: RequestContext, member_id: str, *, is_committed: bool, is_strict: bool
    ) -> None:
        self._context = context
        self._member_id = member_id
        self._is_committed = is_committed
        self._is_strict = is_strict
        self._has_records = False  # of any partition

    async def acquire(
        self, partition: Partition, share: SharePartition, records_max: int, bytes_max: int
    ) -> AcquiredBatches:
        """Acquire up to so many records of a partition; raises an EXPECTED error."""
        found = AcquiredBatches()
        share.is_reading = True
        try:
            for _ in range(READS_MAX):
                left = bytes_max - found.size
                if found.is_over or found.count >= records_max or left <= 0 or share.is_gone:
                    break
                offset = share.next_offset()
                if offset is None:
                    break
                is_cold = offset < partition.log.flushed_end
                room = AcquireRoom(
                    records_max, bytes_max, min(COLD_READ_BYTES if is_cold else READ_BYTES, left)
                )
                if not await self._read(partition, share, offset, room, found):
                    break
                await asyncio.sleep(0)
        finally:
            share.end_read()
        return found

    async def _read(
        self,
        partition: Partition,
        share: SharePartition,
        offset: int,
        limits: AcquireRoom,
        found: AcquiredBatches,
    ) -> bool:
        """Read once from an offset; False when there is nothing to read."""
        plog = partition.log
        read = open_read(plog, offset, limits.size, committed=self._is_committed)
        source = read.source
        if isinstance(source, TailSlice) and not source.slices:
            return False
        aborted = read.find_aborted(plog) if self._is_committed else []
        load = partial(
            _load, read, aborted, self._context.gateway.conversions, plog.partition_id, limits.size
        )
        if (
            isinstance(source, SegmentSlice)
            or not isinstance(aborted, list)
            or not is_kafka(source.slices)
        ):
            stream = self._context.session.stream
            parts, passed = await self._context.gateway.cold_reads.run(
                read.size_hint, load, connection=stream, address=stream.peer[0]
            )
        else:
            parts, passed = load()
        if share.is_gone or self._context.session.is_gone:
            return False
        if not any(map(len, parts)):
            return self._pass_empty(read, share, offset)
        for part in parts:
            offset = self._take(share, offset, memoryview(part), passed, (limits, found))
        return True

    def _take(
        self,
        share: SharePartition,
        offset: int,
        view: memoryview,
        aborted: list[AbortedTransaction],
        goal: tuple[AcquireRoom, AcquiredBatches],
    ) -> int:
        """Acquire records from batches in order, within limits; return the offset after them."""
        (records_max, bytes_max, _), found = goal
        for batch in _walk(view, aborted):
            if found.is_over or found.count >= records_max:
                break
            if offset < batch.start:
                share.skip(offset, batch.start)
            offset = max(offset, batch.end)
            if batch.is_hidden:
                share.skip(batch.start, batch.end)
                continue
            if self._has_records and found.size + batch.size > bytes_max:
                found.is_over = True
                break
            room = AcquireLimits(records_max - found.count, self._is_strict, not found.ranges)
            ranges, found.is_over = share.acquire(self._member_id, batch.start, batch.end, room)
            if ranges:
                # A copy: memory of the tail may be used again before the response leaves.
                self._has_records = True
                found.add(ranges, bytes(view[batch.place : batch.place + batch.size]))
        return offset

    def _pass_empty(self, read: PartitionRead, share: SharePartition, offset: int) -> bool:
        """Pass over a part of a segment that has no entry any more; False at its end."""
        end = read.source.next_offset
        if not isinstance(read.source, SegmentSlice) or end <= offset:
            return False
        share.skip(offset, end if read.until is None else min(end, read.until))
        return True


class AcquireRoom(NamedTuple):
    """How many records and bytes a partition may have in the response, and bytes of one read."""

    records: int
    size_max: int
    size: int


def _load(
    read: PartitionRead,
    aborted: Aborted,
    conversions: ConversionCache,
    partition_id: int,
    room: int,
) -> Loaded:
    """Load and convert what a read names; segments only in the executor."""
    parts: list[Buffer] = [*read.load()]
    if not any(map(len, parts)):
        return [], []
    passed = resolve_aborted(aborted, entries_end(parts[-1]))
    if not is_kafka(parts):
        keep = isinstance(read.source, TailSlice)
        parts = conversions.for_kafka(partition_id, parts, room, keep=keep)
    return parts, passed


def _walk(view: memoryview, aborted: list[AbortedTransaction]) -> Iterator[Batch]:
    for place, size, base, delta, _, producer_id, _, _ in walk_headers(view):
        attributes = view[place + ATTRIBUTES_AT]
        is_hidden = bool(attributes & CONTROL) or (
            bool(attributes & TRANSACTIONAL)
            and any(each.holds(producer_id, base) for each in aborted)
        )
        yield Batch(base, base + delta + 1, place, size, is_hidden)
