"""The retention loop: messages whose time is over go, and then the files that held only such.

    broker: which partitions start later now ──► meta ──► log shows nothing below
                                                              │
    segments in which nothing is left ◄────────────────────────┘
          └──► meta forgets them ──► manifest ──► after a grace period the files go

The grace period is for readers without a broker, who planned from an older manifest. Files that no
meta knows at the start (a flush died) are removed after the same time.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from trilogue.broker.retention import plan_retention
from trilogue.log.errors import DiskFull
from trilogue.log.segment_info import segment_name
from trilogue.meta.port import DeleteSegment, Op, PutPartitionState
from trilogue.node.manifests import Manifests
from trilogue.node.storage import Storage

log = logging.getLogger(__name__)

OPS_AT_ONCE = 10_000
SEGMENT_SUFFIX = ".segment"


class Retention:
    """Looks every now and then; `monotonic` clocks the grace period."""

    def __init__(
        self,
        storage: Storage,
        manifests: Manifests,
        *,
        now_ms: Callable[[], int],
        monotonic: Callable[[], float],
        every_s: float,
        grace_s: float,
    ) -> None:
        self.removed_files = 0
        self._storage = storage
        self._manifests = manifests
        self._now_ms = now_ms
        self._monotonic = monotonic
        self._every_s = every_s
        self._grace_s = grace_s
        self._leaving: deque[tuple[float, Path, int]] = deque()  # when, which file, segment id
        self._find_orphans()

    async def run(self) -> None:
        """Look for ever."""
        while True:
            await asyncio.sleep(self._every_s)
            try:
                await self.look()
            except DiskFull as error:
                log.warning("retention.failed", extra={"reason": str(error)})
                self._storage.give_up_reserve()

    async def look(self) -> None:
        """Do what is due now."""
        starts = await self._plan()
        if starts:
            ops = [PutPartitionState(each, start_offset=start) for each, start in starts.items()]
            await self._commit(ops)
            log.info("retention.moved", extra={"partitions": len(starts)})
        dead = self._storage.log.apply_retention(starts)
        if dead:
            known = self._storage.meta.state.segments  # a disk that ran full may have taken a part
            await self._commit([DeleteSegment(each) for each in dead if each in known])
            for segment_id in dead:
                self._retire(segment_id)
        if starts or dead:
            self._manifests.changed()
        self._remove_due()
        self._storage.restore_reserve()

    async def _plan(self) -> dict[int, int]:
        """Ask the broker step by step: with many partitions, the loop must not wait."""
        starts: dict[int, int] = {}
        broker, engine = self._storage.broker, self._storage.log
        for some in plan_retention(broker.cluster, engine.segments.values(), self._now_ms()):
            starts |= some
            await asyncio.sleep(0)
        return starts

    async def _commit(self, ops: Sequence[Op]) -> None:
        for first in range(0, len(ops), OPS_AT_ONCE):
            some = ops[first : first + OPS_AT_ONCE]
            await self._storage.meta.commit(some, (), self._storage.fence)

    def _retire(self, segment_id: int) -> None:
        self._storage.log.forget_segment(segment_id)
        self._leave(self._storage.directory.segments / segment_name(segment_id), segment_id)
        log.info("segment.retired", extra={"segment": segment_id})

    def _leave(self, path: Path, segment_id: int = 0) -> None:
        self._leaving.append((self._monotonic() + self._grace_s, path, segment_id))

    def _remove_due(self) -> None:
        now = self._monotonic()
        while self._leaving and self._leaving[0][0] <= now:
            _, path, segment_id = self._leaving.popleft()
            self._storage.log.readers.forget(segment_id)  # a late reader may have opened it again
            try:
                self._storage.fs.unlink(path)
            except FileNotFoundError:
                continue
            except OSError as error:
                log.warning("segment.not_removed", extra={"path": str(path), "reason": str(error)})
                continue
            self.removed_files += 1
            log.info("segment.removed", extra={"file": path.name})

    def _find_orphans(self) -> None:
        """Note files that nobody knows; called before the first flush makes new ones."""
        segments = self._storage.directory.segments
        known = {segment.name for segment in self._storage.meta.state.segments.values()}
        for name in self._storage.fs.listdir(segments):
            if name.endswith(SEGMENT_SUFFIX) and name not in known:
                log.info("segment.orphan", extra={"file": name})
                self._leave(segments / name)
