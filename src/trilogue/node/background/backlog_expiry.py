"""Advances subscriptions past messages that their topics' policies expire: by age or by backlog.

The broker decides (broker/subscriptions/backlog.py); reads of segments for that run in a thread.
Producers of topics whose backlog exceeds its quota are disconnected.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from trilogue.broker.errors import BacklogExceeded, BrokerError
from trilogue.broker.subscriptions.backlog import (
    BacklogEviction,
    check_backlog,
    end_of_older,
    plan_moves,
)
from trilogue.broker.topics.partition import Partition
from trilogue.entry.entry import EntryError
from trilogue.log.errors import LogError
from trilogue.log.partition_log import PartitionLog, SegmentSlice
from trilogue.log.partition_lookups import SegmentLookup
from trilogue.node.storage import Storage

log = logging.getLogger(__name__)

READ_BYTES: Final = 256 << 10
READS_MAX: Final = 16  # of one partition in one look: entry by entry is for the last block


class BacklogExpiry:
    """Checks periodically, more often than retention, so that a quota takes effect soon.

    Partitions whose topics have none of these policies cost less than a microsecond each.
    """

    def __init__(self, storage: Storage, now_ms: Callable[[], int], *, every_s: float) -> None:
        self._storage = storage
        self._now_ms = now_ms
        self._every_s = every_s

    async def run(self) -> None:
        """Check periodically, for ever."""
        while True:
            await asyncio.sleep(self._every_s)
            await self.move_due_cursors()

    async def move_due_cursors(self) -> None:
        """Do what is due now."""
        broker = self._storage.broker
        moved = 0
        for some in plan_moves(broker.cluster, broker.subscriptions, self._now_ms()):
            for due in some:
                try:
                    moved += await self._move(due)
                except (LogError, EntryError, BrokerError, OSError) as error:
                    log.warning("expiry.failed", extra={"reason": str(error)})
            await asyncio.sleep(0)
        if moved:
            log.info("expiry.moved", extra={"subscriptions": moved})
        await self._send_off()

    async def _move(self, due: BacklogEviction) -> int:
        partition, until, before_ms = due
        subscriptions, partition_id = self._storage.broker.subscriptions, partition.partition_id
        mark = subscriptions.lowest_mark(partition_id)
        if before_ms >= 0 and mark is not None:
            until = max(until, await _first_since(partition.log, max(mark, until), before_ms))
        return 0 if partition.deleted else subscriptions.skip_until(partition_id, until)

    async def _send_off(self) -> None:
        broker = self._storage.broker
        now_ms = self._now_ms()
        for number, writers in enumerate(list(broker.writers), 1):
            partition = broker.cluster.find_partition(writers.partition_id)
            problem = None if partition is None else self._problem(partition, now_ms)
            if problem is not None:
                log.warning("backlog.exceeded", extra={"reason": str(problem)})
                writers.fence_all(problem)
            if number % 100 == 0:
                await asyncio.sleep(0)

    def _problem(self, partition: Partition, now_ms: int) -> BacklogExceeded | None:
        try:
            check_backlog(partition, self._storage.broker.subscriptions, now_ms)
        except BacklogExceeded as problem:
            return problem
        return None


async def _first_since(plog: PartitionLog, mark: int, before_ms: int) -> int:
    """Return the offset before which all messages from a position on are older than a time."""
    mark = max(mark, plog.start_offset)
    found = plog.offset_for_append_time(before_ms, mark)
    if isinstance(found, SegmentLookup):
        found = await asyncio.to_thread(found.run)
    if found is None:
        return plog.high_watermark
    end = max(mark, found)
    for _ in range(READS_MAX):
        if not plog.start_offset <= end < plog.high_watermark:
            break
        read = plog.read(end, READ_BYTES)
        if isinstance(read, SegmentSlice):
            data = await asyncio.to_thread(read.run)
        else:
            data = memoryview(b"".join(read.slices))
        end, is_all = end_of_older(data, end, before_ms)
        if not (is_all and data):
            break
    return end
