"""Compaction of topics, as work for `Maintenance`: one partition at a time, the dirtiest first.

What is due is decided in broker/compaction.py from what meta and the log know of partitions; how it
is done stands in log/compaction.py. Between the two this goes through all topics that are
compacted, now and then, keeps the list of what was due, and records how far each job came together
with the segments it made.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from trilogue.broker.compaction import Due, look, plan_compaction, waiting_in_journal
from trilogue.broker.partition import Partition
from trilogue.broker.retention import extents_of
from trilogue.log import compaction
from trilogue.log.compaction import CompactJob, CompactResult
from trilogue.log.errors import CorruptLog
from trilogue.log.extents import Extents
from trilogue.log.merge_plan import TARGET_BYTES
from trilogue.log.segment_info import SegmentInfo
from trilogue.meta.port import PutPartitionState
from trilogue.node.jobs import Helper
from trilogue.node.maintenance import Job, Maintenance
from trilogue.node.storage import Storage

log = logging.getLogger(__name__)


class Compacting:
    """Plans compactions, and carries them out in a helper process."""

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
        self._said_anew = asyncio.Event()
        self._map_bytes = map_bytes
        self._bytes_per_second = bytes_per_second
        self._monotonic = monotonic
        self._waiting: list[int] = []  # partitions that were due, the most urgent one last
        self._stuck: dict[int, int] = {}  # partition -> flushed end from which nothing came
        self._flushing: dict[int, int] = {}  # partition -> flushed end before what it waits for

    def look_every(self, seconds: float) -> None:
        """Another interval, from now on: whoever waits for the old one looks at once."""
        if seconds != self._every_s:
            self._every_s = seconds
            self._said_anew.set()

    async def run(self) -> None:
        """Look for ever."""
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._said_anew.wait(), self._every_s)
            self._said_anew.clear()
            if await self.look_around():
                self._maintenance.wake()
            await self.hurry()

    # -- plans -----------------------------------------------------------------------------

    async def look_around(self) -> int:
        """Go through all topics for what is due; others have their turn in between."""
        storage = self._storage
        known = storage.meta.state.partitions
        self.damaged &= known.keys()
        self._stuck = {each: end for each, end in self._stuck.items() if each in known}
        found: dict[int, Due] = {}
        for some in plan_compaction(storage.broker.cluster, known, self._now_ms()):
            found |= some
            await asyncio.sleep(0)
        urgent = sorted((due.is_forced, due.dirty_ratio, each) for each, due in found.items())
        self._waiting = [each for *_, each in urgent if not self._is_hopeless(each)]
        return len(self._waiting)

    async def hurry(self) -> int:
        """End the journal's file early where a topic's largest lag says so.

        Its flush wakes maintenance, and what was waited for is planned then.
        """
        storage = self._storage
        since_ms = storage.log.journal.unsealed_since_ms
        self._flushing.clear()
        if since_ms is None:
            return 0
        known, age_ms = storage.meta.state.partitions, self._now_ms() - since_ms
        for some in waiting_in_journal(storage.broker.cluster, known, age_ms):
            self._flushing |= some
            await asyncio.sleep(0)
        if self._flushing:
            storage.log.seal()
        return len(self._flushing)

    async def plan(self) -> Job | None:
        """Say which partition is due most."""
        self._take_flushed()
        while self._waiting:
            partition_id = self._waiting.pop()
            due = self._still(partition_id)
            if due is not None:
                return self._job(partition_id, due)
        return None

    def _take_flushed(self) -> None:
        """What had to leave the journal first is due when it is in a segment."""
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

    def _still(self, partition_id: int) -> Due | None:
        """Look again: what was found due may be deleted or changed by now."""
        partition = self._storage.broker.cluster.find_partition(partition_id)
        if partition is None or not partition.settings.compacts or self._is_hopeless(partition_id):
            return None
        state = self._storage.meta.state.partitions[partition_id]
        return look(extents_of(partition), state, partition.settings, self._now_ms())

    def _job(self, partition_id: int, due: Due) -> Job:
        inputs = self._inputs(partition_id, due.start_offset)
        return Job(
            "compaction",
            frozenset(each.segment_id for each in inputs),
            sum(each.partitions[partition_id].size for each in inputs),
            partial(self._run, partition_id, due, inputs),
            partial(self._spoilt, partition_id),
        )

    def _inputs(self, partition_id: int, start_offset: int) -> list[SegmentInfo]:
        """Name the segments that hold what may be read of a partition, by offset."""
        found = []
        for segment in self._storage.log.segments.values():
            extent = segment.partitions.find(partition_id)
            if extent is not None and extent.end_offset > start_offset:
                found.append((extent.base_offset, segment))
        return [segment for _, segment in sorted(found, key=_first)]

    def _spoilt(self, partition_id: int, error: CorruptLog) -> None:
        self.damaged.add(partition_id)
        extra = {"partition": partition_id, "reason": str(error)}
        log.error("compaction.damaged", extra=extra)

    # -- one compaction --------------------------------------------------------------------

    async def _run(self, partition_id: int, due: Due, inputs: list[SegmentInfo]) -> int:
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
            await storage.meta.commit(ops, (), storage.fence)
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

    def _learn(self, partition_id: int, due: Due, result: CompactResult, flushed_end: int) -> None:
        """Note what comes of asking again: nothing before there is more, or the rest at once."""
        if result.compacted_end <= max(due.compacted_end, due.start_offset):
            self._stuck[partition_id] = flushed_end
            return
        self._stuck.pop(partition_id, None)
        if result.compacted_end < due.end_offset:
            self._waiting.append(partition_id)

    async def _order(self, due: Due, partition: Partition, inputs: list[SegmentInfo]) -> CompactJob:
        """Write down what the helper process has to know."""
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
            map_bytes=self._map_bytes,
            target_bytes=TARGET_BYTES,
            cluster_id=meta.state.cluster_id,
            node_id=meta.state.node_id,
            node_epoch=meta.state.node_epoch,
            now_ms=self._now_ms(),
            bytes_per_second=self._bytes_per_second or None,
            direct=storage.log.direct,
        )


def _first(pair: tuple[int, SegmentInfo]) -> int:
    return pair[0]
