"""Plans merges and rewrites of segments for `Maintenance`.

log/jobs/merge_plan.py decides what is due; this module evaluates it in steps, between other work of
the loop. The pace of a merge follows the incoming data: it stays ahead of the flushes that make the
segments it merges, and is unlimited when they are about to wait for it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial
from itertools import islice
from pathlib import Path

from trilogue.gateway.steps import run_steps
from trilogue.log.errors import CorruptLog, StorageUnavailable
from trilogue.log.jobs import merge, merge_plan
from trilogue.log.jobs.merge_plan import (
    FIRST_LEVEL_DUE,
    FIRST_LEVEL_LAST,
    FIRST_LEVEL_MAX,
    Plan,
    first_level,
)
from trilogue.log.segments.segment_info import MergeJob, MergeResult, SegmentInfo
from trilogue.node.background.helper import Helper
from trilogue.node.background.maintenance import Job, Maintenance
from trilogue.node.storage import Storage

log = logging.getLogger(__name__)

AHEAD = 2  # times the rate at which the first level filled: the least pace
STARTS_AT_ONCE = 5_000
OBJECTS_AGAIN_S = 60.0  # after object storage did not respond
REWRITE_EVERY_S = 30.0  # the search for dead bytes visits all segments


class MergePlanner:
    """Plans merges and rewrites, and runs them in a helper process."""

    def __init__(
        self,
        storage: Storage,
        maintenance: Maintenance,
        helper: Helper,
        *,
        now_ms: Callable[[], int],
        bytes_per_second: int,
        monotonic: Callable[[], float] = time.monotonic,
        rewrite_every_s: float = REWRITE_EVERY_S,
        owns: Callable[[SegmentInfo], bool] = lambda _: True,
    ) -> None:
        """`owns`: no other node reads a segment; those of several nodes are split (splits.py)."""
        self.skip: set[int] = set()  # damaged segments, which are left alone
        self.dead_bytes = 0  # in segments, as of the last check
        self.damaged_blocks = 0  # damaged blocks, copied unchanged
        self._storage = storage
        self._owns = owns
        self._maintenance = maintenance
        self._helper = helper
        self._now_ms = now_ms
        self.bytes_per_second = bytes_per_second
        self._monotonic = monotonic
        self._rewrite_every_s = rewrite_every_s
        self._next_rewrite = 0.0
        self._in_vain: frozenset[int] = frozenset()  # what the last plan was made of, if none
        self._objects_again = 0.0  # until then segments in object storage are left alone

    @property
    def first_level(self) -> int:
        """The number of segments that wait for their first merge."""
        segments = filter(self._owns, self._storage.log.segments.values())
        return len(first_level(segments, self.skip))

    async def room_for_flush(self) -> None:
        """Wait while there are as many first-level segments as allowed.

        Only as long as merges help: if they fail, or find nothing to merge, the flush proceeds,
        since more segments only cost time. While another job runs it proceeds too, and the job
        must hurry.
        """
        if self.first_level > FIRST_LEVEL_DUE:
            self._helper.hurry()
        while self._is_full and self._maintenance.is_hopeful:
            await self._maintenance.moved()

    @property
    def _is_full(self) -> bool:
        is_merging = self._maintenance.doing in ("", "merge")
        return self.first_level >= (FIRST_LEVEL_MAX if is_merging else FIRST_LEVEL_LAST)

    # -- plans -----------------------------------------------------------------------------

    async def plan(self) -> Job | None:
        """Return a job for the merge that is due, or for a rewrite of a mostly dead segment."""
        segments = [each for each in self._storage.log.segments.values() if self._owns(each)]
        self.skip &= {each.segment_id for each in segments}
        now, skip, found = self._monotonic(), self.skip, None
        if now < self._objects_again:
            skip = skip | {each.segment_id for each in segments if each.store}
        now_ms = self._now_ms()
        material = merge_plan.may_be_due(segments, skip, now_ms)
        if material and material != self._in_vain:
            # All that this node reads: one that others read, too, may lie between two of its own.
            every = list(self._storage.log.segments.values())
            steps = merge_plan.plan_merge(
                every,
                await self._starts(),
                skip | {each.segment_id for each in every if not self._owns(each)},
                now_ms,
                is_one_journal=len(self._storage.meta.state.slots) == 1,
            )
            found = await run_steps(steps)
            self._in_vain = material if found is None else frozenset()
        if found is None and now >= self._next_rewrite:
            looking = merge_plan.plan_rewrite(segments, await self._starts(), skip)
            dead = await run_steps(looking)
            self.dead_bytes, found = dead.bytes, dead.plan
            if found is None:
                self._next_rewrite = now + self._rewrite_every_s
        if found is None:
            return None
        return Job(
            found.kind,
            frozenset(each.segment_id for each in found.inputs),
            found.size,
            partial(self._run, found),
            partial(self._spoilt, found),
        )

    async def _starts(self) -> dict[int, int]:
        """Return the start offset of each partition, in steps, since there may be very many."""
        rest = iter(list(self._storage.meta.state.partitions.items()))
        starts: dict[int, int] = {}
        while some := list(islice(rest, STARTS_AT_ONCE)):
            starts.update((each, state.start_offset) for each, state in some)
            await asyncio.sleep(0)
        return starts

    def _spoilt(self, plan: Plan, error: CorruptLog) -> None:
        """Exclude the damaged input; all inputs if the error names none."""
        named = {each.segment_id for each in plan.inputs if Path(each.name).name == _name(error)}
        self.skip |= named or {each.segment_id for each in plan.inputs}

    # -- one merge -------------------------------------------------------------------------

    async def _run(self, plan: Plan) -> int:
        began = self._monotonic()
        storage = self._storage
        await storage.meta.reserve("segment", plan.outputs_max)
        ids = tuple(storage.meta.allocate("segment") for _ in range(plan.outputs_max))
        job = await self._job(plan, ids)
        try:
            with self._maintenance.cleaning_up(ids):
                result: MergeResult = await self._helper.run(merge.run, job, storage.reach)
        except StorageUnavailable:  # segments in files must not wait for it
            self._objects_again = self._monotonic() + OBJECTS_AGAIN_S
            raise
        swap = result.swap(job)
        await self._maintenance.swap(swap)
        self._learn(result, swap.changed)
        log.info(
            "merge.done",
            extra={
                "kind": plan.kind,
                "inputs": len(plan.inputs),
                "segments": len(result.added),
                "entries": result.entries,
                "size_bytes": result.bytes_written,
                "dead_bytes": result.dead_bytes,
                "took_s": round(self._monotonic() - began, 3),
            },
        )
        return result.bytes_written

    async def _job(self, plan: Plan, ids: tuple[int, ...]) -> MergeJob:
        storage = self._storage
        state = storage.meta.state
        return MergeJob(
            inputs=plan.inputs,
            directory=str(storage.directory.segments),
            segment_ids=ids,
            level=plan.level,
            starts=await self._starts(),
            own_bytes=plan.own_bytes,
            target_bytes=plan.target_bytes,
            cluster_id=state.cluster_id,
            node_id=state.node_id,
            node_epoch=state.node_epoch,
            now_ms=self._now_ms(),
            bytes_per_second=self.pace(plan),
            direct=storage.log.direct,
        )

    def pace(self, plan: Plan) -> int | None:
        """Return the bytes per second to merge with; None for no limit."""
        if not self.bytes_per_second or self.first_level > FIRST_LEVEL_DUE:
            return None
        fresh = [each for each in plan.inputs if not each.level]
        if not fresh:
            return self.bytes_per_second
        took_ms = max(1, self._now_ms() - min(each.created_ms for each in fresh))
        came_in = sum(each.size for each in fresh) * 1_000 // took_ms
        return max(self.bytes_per_second, AHEAD * came_in)

    def _learn(self, result: MergeResult, changed: tuple[SegmentInfo, ...]) -> None:
        """Record damage that the merge found."""
        self.skip |= {each.segment_id for each in changed}
        self.damaged_blocks += result.damaged_blocks
        if result.left:
            partitions = sorted({each for ids in result.left.values() for each in ids})
            segments = sorted(result.left)
            log.error("merge.left", extra={"partitions": partitions, "segments": segments})
        if result.damaged_blocks:
            log.error("merge.damaged_blocks", extra={"blocks": result.damaged_blocks})


def _name(error: CorruptLog) -> str:
    return "" if error.path is None else error.path.name
