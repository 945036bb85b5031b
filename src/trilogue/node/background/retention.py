"""The retention loop: expires messages, and retires segments without live messages.

subscriptions advance past expired messages first (backlog_expiry.py)
broker: partitions with a later start offset ──► meta ──► log serves nothing below
                                                          │
segments without live messages ◄──────────────────────────┘
      └──► removed from meta ──► manifest ──► files removed after the grace period (retired.py)
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence

from trilogue.broker.topics.retention import plan_retention
from trilogue.log.errors import DiskFull
from trilogue.meta.errors import TooManyChanges
from trilogue.meta.operations import DeleteSegment, Op, PutPartitionState
from trilogue.node.background.manifests import ManifestWriter
from trilogue.node.background.retired import RetiredFiles
from trilogue.node.storage import Storage

log = logging.getLogger(__name__)

OPS_AT_ONCE = 10_000


class Retention:
    """Checks periodically.

    `at_work` returns the segments that a merge reads: they stay until it is over, even if all their
    messages are dead. `on_moved` is called when there may be more dead bytes.
    """

    def __init__(
        self,
        storage: Storage,
        manifests: ManifestWriter,
        retired: RetiredFiles,
        *,
        now_ms: Callable[[], int],
        every_s: float,
        at_work: Callable[[], Collection[int]] = frozenset,
        on_moved: Callable[[], object] = lambda: None,
    ) -> None:
        self._storage = storage
        self._manifests = manifests
        self._retired = retired
        self._now_ms = now_ms
        self.every_s = every_s
        self._at_work = at_work
        self._on_moved = on_moved

    async def run(self) -> None:
        """Check periodically, for ever."""
        while True:
            await asyncio.sleep(self.every_s)
            try:
                await self.apply_retention()
            except TooManyChanges as error:
                log.warning("retention.failed", extra={"reason": str(error)})
            except DiskFull as error:
                log.warning("retention.failed", extra={"reason": str(error)})
                self._storage.give_up_reserve()

    async def apply_retention(self) -> None:
        """Do what is due now."""
        starts = await self._plan()
        try:
            dead = await self._move(starts)
        except BaseException:  # a disk that ran full may have taken a part
            self._manifests.changed()
            raise
        if starts or dead:
            self._manifests.changed()
            self._on_moved()
        await self._retired.remove_due()
        self._storage.log.check_segments()
        self._storage.restore_reserve()

    async def _move(self, starts: dict[int, int]) -> list[int]:
        """Advance start offsets; return the segments without live messages."""
        if starts:
            ops = [PutPartitionState(each, start_offset=start) for each, start in starts.items()]
            await self._commit(ops)
            log.info("retention.moved", extra={"partitions": len(starts)})
        at_work = self._at_work()
        segments, retires = self._storage.log.segments, self._storage.broker.cluster.ownership
        dead = [
            each
            for each in self._storage.log.apply_retention(starts)
            if each not in at_work and retires.retires_segment(segments[each])
        ]
        self._storage.broker.subscriptions.on_starts_moved(starts)
        if dead:
            known = self._storage.meta.state.segments  # a disk that ran full may have taken a part
            await self._commit([DeleteSegment(each) for each in dead if each in known])
            for segment_id in dead:
                segment = self._storage.log.forget_segment(segment_id)
                if segment is not None:
                    self._retired.leave(segment)
        return dead

    async def _plan(self) -> dict[int, int]:
        """Return the new start offsets from the broker, in steps for many partitions."""
        starts: dict[int, int] = {}
        broker, engine = self._storage.broker, self._storage.log
        needed = broker.subscriptions.lowest_mark
        segments = engine.segments.values()
        for some in plan_retention(broker.cluster, segments, self._now_ms(), needed):
            starts |= some
            await asyncio.sleep(0)
        return starts

    async def _commit(self, ops: Sequence[Op]) -> None:
        for first in range(0, len(ops), OPS_AT_ONCE):
            some = ops[first : first + OPS_AT_ONCE]
            await self._storage.meta.write(some, (), self._storage.fence)
