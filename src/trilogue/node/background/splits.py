"""Plans splits of segments that several nodes read, as they are after slots have moved.

No node merges or compacts such a segment as a whole: the others read it as it is. One node at a
time, the owner of the first partition in it, copies its own partitions to segments of its own and
hides them in the shared one, in one transaction of meta. The others follow that change, and then
the next owner is the first, until the segment belongs to one node alone. Which node it is follows
from rows that all nodes have, so there is nothing to claim and nothing to release when it dies.

Small segments are split, and those with topics that are compacted. Large ones of other topics stay:
retention removes them, and copying them would cost more than it saves.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial

from trilogue.log.errors import CorruptLog
from trilogue.log.jobs import merge
from trilogue.log.jobs.merge_plan import SMALL_BYTES, TARGET_BYTES, Plan, data_bytes
from trilogue.log.segments.segment_info import MergeJob, MergeResult, SegmentInfo, Swap, without
from trilogue.node.background.helper import Helper
from trilogue.node.background.maintenance import Job, Maintenance
from trilogue.node.storage import Storage

log = logging.getLogger(__name__)

NEVER = 1 << 62  # bytes of a partition that would get segments of its own
SEGMENTS_A_STEP = 20


class SplitPlanner:
    """Plans splits, and runs them in a helper process."""

    def __init__(
        self,
        storage: Storage,
        maintenance: Maintenance,
        helper: Helper,
        *,
        now_ms: Callable[[], int],
        bytes_per_second: int,
    ) -> None:
        self.skip: set[int] = set()  # damaged segments, which are left alone
        self._storage = storage
        self._maintenance = maintenance
        self._helper = helper
        self._now_ms = now_ms
        self.bytes_per_second = bytes_per_second
        self._passed: dict[int, SegmentInfo] = {}  # nothing to do, as long as they are the same

    async def plan(self) -> Job | None:
        """Return a job for the next segment to split."""
        storage = self._storage
        if storage.broker.cluster.ownership.is_alone:
            return None
        segments = list(storage.log.segments.values())
        self._passed = {
            each.segment_id: each for each in segments if self._passed.get(each.segment_id) is each
        }
        for count, segment in enumerate(segments, 1):
            if segment.segment_id in self._passed or segment.segment_id in self.skip:
                continue
            if self._is_due(segment):
                return Job(
                    "split",
                    frozenset({segment.segment_id}),
                    segment.size,
                    partial(self._run, segment),
                    partial(self._spoilt, segment),
                )
            self._passed[segment.segment_id] = segment
            if count % SEGMENTS_A_STEP == 0:
                await asyncio.sleep(0)
        return None

    def _is_due(self, segment: SegmentInfo) -> bool:
        cluster = self._storage.broker.cluster
        ownership = cluster.ownership
        if ownership.owns_segment(segment) or not ownership.retires_segment(segment):
            return False
        is_small = not segment.level or data_bytes(segment) < SMALL_BYTES
        return is_small or any(map(cluster.is_compacted, segment.partitions.ids))

    def _spoilt(self, segment: SegmentInfo, error: CorruptLog) -> None:
        self.skip.add(segment.segment_id)
        log.error("split.damaged", extra={"segment": segment.segment_id, "reason": str(error)})

    async def _run(self, segment: SegmentInfo) -> int:
        began = time.monotonic()
        storage = self._storage
        plan = Plan("split", (segment,), max(1, segment.level), NEVER, TARGET_BYTES)
        await storage.meta.reserve("segment", plan.outputs_max)
        ids = tuple(storage.meta.allocate("segment") for _ in range(plan.outputs_max))
        job = self._job(plan, ids)
        with self._maintenance.cleaning_up(ids):
            result: MergeResult = await self._helper.run(merge.run, job, storage.reach)
        left = result.left.get(segment.segment_id, ())
        if left:  # their index is damaged: the segment stays as it is for them
            self.skip.add(segment.segment_id)
            log.error("merge.left", extra={"partitions": left, "segments": [segment.segment_id]})
        moved = [each for each in job.starts if each in segment.partitions and each not in left]
        await self._maintenance.swap(Swap(changed=(without(segment, moved),), added=result.added))
        if not left:
            storage.log.forget_segment(segment.segment_id)  # others have the rest of it
        log.info(
            "split.done",
            extra={
                "segment": segment.segment_id,
                "partitions": len(moved),
                "entries": result.entries,
                "size_bytes": result.bytes_written,
                "took_s": round(time.monotonic() - began, 3),
            },
        )
        return result.bytes_written

    def _job(self, plan: Plan, ids: tuple[int, ...]) -> MergeJob:
        storage, (segment,) = self._storage, plan.inputs
        state, owns = storage.meta.state, storage.broker.cluster.ownership.owns_partition
        known = state.partitions
        own = [each for each in segment.partitions.ids if each in known and owns(each)]
        return MergeJob(
            inputs=plan.inputs,
            directory=str(storage.directory.segments),
            segment_ids=ids,
            level=plan.level,
            starts={each: known[each].start_offset for each in own},
            own_bytes=plan.own_bytes,
            target_bytes=plan.target_bytes,
            cluster_id=state.cluster_id,
            node_id=state.node_id,
            node_epoch=state.node_epoch,
            now_ms=self._now_ms(),
            bytes_per_second=self.bytes_per_second or None,
            direct=storage.log.direct,
        )
