"""Plans compaction of topics for `Maintenance`: one partition at a time, the dirtiest first.

broker/topics/compaction.py decides which partitions are due, log/jobs/compaction.py compacts one.
This module visits all compacted topics periodically, keeps the list of due partitions, and records
the progress of each job together with its segments.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from functools import partial

from msgspec.structs import replace

from trilogue.broker.topics.compaction import (
    CompactionTask,
    find_overdue_in_journal,
    plan_compaction,
    plan_partition,
)
from trilogue.broker.topics.partition import Partition
from trilogue.broker.topics.retention import list_extents
from trilogue.log.errors import CorruptLog
from trilogue.log.jobs import compaction
from trilogue.log.jobs.compaction_job import CompactJob, CompactResult
from trilogue.log.jobs.merge_plan import TARGET_BYTES
from trilogue.log.segments.extents import Extents
from trilogue.log.segments.segment_info import SegmentInfo
from trilogue.meta.operations import PutPartitionState
from trilogue.node.background.helper import Helper
from trilogue.node.background.maintenance import Job, Maintenance
from trilogue.node.storage import Storage

log = logging.getLogger(__name__)


class CompactionPlanner:
    """Plans compactions, and runs them in a helper process."""

    def __init__(
        self,
        storage: Storage,
        maintenance: Maintenance,
        helper: Helper,
        *,
        now_ms: Callable[[], int],
        every_s: float,
        map_bytes: int,
        bytes_per_second: int,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.damaged: set[int] = set()  # partitions that are left alone until the next start
        self.records_dropped = 0
        self._storage = storage
        self._maintenance = maintenance
        self._helper = helper
        self._now_ms = now_ms
        self._every_s = every_s
        self._interval_changed = asyncio.Event()
        self.map_bytes = map_bytes
        self.bytes_per_second = bytes_per_second
        self._monotonic = monotonic
        self._waiting: list[int] = []  # due partitions, the most urgent one last
        self._stuck: dict[
            int, int
        ] = {}  # partition -> flushed end at which nothing was left to compact
        self._flushing: dict[
            int, int
        ] = {}  # partition -> flushed end before the messages it waits for

    def look_every(self, seconds: float) -> None:
        """Set the interval in seconds; a wait for the previous one ends at once."""
        if seconds != self._every_s:
            self._every_s = seconds
            self._interval_changed.set()

    async def run(self) -> None:
        """Check periodically, for ever."""
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._interval_changed.wait(), self._every_s)
            self._interval_changed.clear()
            if await self.look_around():
                self._maintenance.wake()
            await self.hurry()

    # -- plans -----------------------------------------------------------------------------

    async def look_around(self) -> int:
        """Visit all topics in steps and list the partitions that are due."""
        storage = self._storage
        known = storage.meta.state.partitions
        self.damaged &= known.keys()
        self._stuck = {each: end for each, end in self._stuck.items() if each in known}
        found: dict[int, CompactionTask] = {}
        for some in plan_compaction(storage.broker.cluster, known, self._now_ms()):
            found |= some
            await asyncio.sleep(0)
        urgent = sorted((due.is_forced, due.dirty_ratio, each) for each, due in found.items())
        self._waiting = [each for *_, each in urgent if not self._is_hopeless(each)]
        return len(self._waiting)

    async def hurry(self) -> int:
        """Seal the journal file early if a topic's max.compaction.lag.ms requires it.

        The flush of that file wakes maintenance, which then plans the compaction.
        """
        storage = self._storage
        since_ms = storage.log.journal.unsealed_since_ms
        self._flushing.clear()
        if since_ms is None:
            return 0
        known, age_ms = storage.meta.state.partitions, self._now_ms() - since_ms
        for some in find_overdue_in_journal(storage.broker.cluster, known, age_ms):
            self._flushing |= some
            await asyncio.sleep(0)
        if self._flushing:
            storage.log.seal()
        return len(self._flushing)

    async def plan(self) -> Job | None:
        """Return a job for the most urgent partition."""
        self._take_flushed()
        while self._waiting:
            partition_id = self._waiting.pop()
            due = self._still(partition_id)
            if due is not None and self._owns_inputs(partition_id, due):
                return self._job(partition_id, due)
        return None

    def _take_flushed(self) -> None:
        """List partitions that waited for a flush and are in segments now."""
        known = self._storage.meta.state.partitions
        for partition_id, before in list(self._flushing.items()):
            state = known.get(partition_id)
            if state is None or state.flushed_end > before:
                del self._flushing[partition_id]
                self._waiting.append(partition_id)

    def _is_hopeless(self, partition_id: int) -> bool:
        state = self._storage.meta.state.partitions.get(partition_id)
        return (
            state is None
            or partition_id in self.damaged
            or self._stuck.get(partition_id) == state.flushed_end
        )

    def _still(self, partition_id: int) -> CompactionTask | None:
        """Check again: the topic may be deleted or changed by now."""
        partition = self._storage.broker.cluster.find_partition(partition_id)
        if partition is None or not partition.settings.compacts or self._is_hopeless(partition_id):
            return None
        state = self._storage.meta.state.partitions[partition_id]
        return plan_partition(list_extents(partition), state, partition.settings, self._now_ms())

    def _job(self, partition_id: int, due: CompactionTask) -> Job:
        inputs = self._inputs(partition_id, due.start_offset)
        return Job(
            "compaction",
            frozenset(each.segment_id for each in inputs),
            sum(each.partitions[partition_id].size for each in inputs),
            partial(self._run, partition_id, due, inputs),
            partial(self._spoilt, partition_id),
        )

    def _owns_inputs(self, partition_id: int, due: CompactionTask) -> bool:
        """Whether no other node reads the segments to compact: they read them as they are."""
        owns = self._storage.broker.cluster.ownership.owns_segment
        return all(map(owns, self._inputs(partition_id, due.start_offset)))

    def _inputs(self, partition_id: int, start_offset: int) -> list[SegmentInfo]:
        """Return the segments with readable messages of a partition, by offset."""
        found = []
        for segment in self._storage.log.segments.values():
            extent = segment.partitions.find_extent(partition_id)
            if extent is not None and extent.end_offset > start_offset:
                found.append((extent.base_offset, segment))
        return [segment for _, segment in sorted(found, key=_first)]

    def _spoilt(self, partition_id: int, error: CorruptLog) -> None:
        self.damaged.add(partition_id)
        extra = {"partition": partition_id, "reason": str(error)}
        log.error("compaction.damaged", extra=extra)

    # -- one compaction --------------------------------------------------------------------

    async def _run(self, partition_id: int, due: CompactionTask, inputs: list[SegmentInfo]) -> int:
        began = self._monotonic()
        storage = self._storage
        partition = storage.broker.cluster.find_partition(partition_id)
        state = storage.meta.state.partitions.get(partition_id)
        if partition is None or state is None:
            return 0
        flushed_end = state.flushed_end
        job = await self._order(due, partition, inputs)
        with self._maintenance.cleaning_up(job.segment_ids):
            result: CompactResult = await self._helper.run(compaction.run, job, storage.reach)
        ops = [PutPartitionState(partition_id, compacted_end=result.compacted_end)]
        if result.replaced:
            await self._maintenance.swap(result.swap(partition_id, inputs), ops)
        elif result.compacted_end > due.compacted_end:
            await storage.meta.write(ops, (), storage.fence)
        self._learn(partition_id, due, result, flushed_end)
        self.records_dropped += result.records_dropped
        log.info(
            "compaction.done",
            extra={
                "partition": partition_id,
                "end_offset": result.compacted_end,
                "entries": result.entries_read,
                "entries_left": result.entries_written,
                "records_dropped": result.records_dropped,
                "size_bytes": result.bytes_written,
                "took_s": round(self._monotonic() - began, 3),
            },
        )
        return result.bytes_written

    def _learn(
        self, partition_id: int, due: CompactionTask, result: CompactResult, flushed_end: int
    ) -> None:
        """Record when to plan the partition again: after a flush, or at once for the rest."""
        if result.compacted_end <= max(due.compacted_end, due.start_offset):
            self._stuck[partition_id] = flushed_end
            return
        self._stuck.pop(partition_id, None)
        if result.compacted_end < due.end_offset:
            self._waiting.append(partition_id)

    async def _order(
        self, due: CompactionTask, partition: Partition, inputs: list[SegmentInfo]
    ) -> CompactJob:
        """Return the parameters for the helper process."""
        storage, partition_id = self._storage, partition.partition_id
        meta = storage.meta
        extents = [each.partitions[partition_id] for each in inputs]
        outputs = 2 + sum(each.size for each in extents) // TARGET_BYTES
        await meta.reserve("segment", outputs)
        return CompactJob(
            partition_id=partition_id,
            inputs=tuple(
                replace(segment, partitions=Extents.of([extent]), hidden=())
                for segment, extent in zip(inputs, extents, strict=True)
            ),
            directory=str(storage.directory.segments),
            segment_ids=tuple(meta.allocate("segment") for _ in range(outputs)),
            level=max([1, *(each.level for each in inputs)]),
            start_offset=due.start_offset,
            compacted_end=due.compacted_end,
            end_offset=due.end_offset,
            delete_retention_ms=due.delete_retention_ms,
            producers=partition.producers.last_entries(),
            map_bytes=self.map_bytes,
            target_bytes=TARGET_BYTES,
            cluster_id=meta.state.cluster_id,
            node_id=meta.state.node_id,
            node_epoch=meta.state.node_epoch,
            now_ms=self._now_ms(),
            bytes_per_second=self.bytes_per_second or None,
            direct=storage.log.direct,
        )


def _first(pair: tuple[int, SegmentInfo]) -> int:
    return pair[0]
