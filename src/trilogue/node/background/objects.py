"""Moves merged segments to object storage, and removes objects that are no longer used.

    a merged segment is a file ── uploaded ── plan: meta replaces its row ── the file stays a while
    meta removed a segment ── remove_object ── its object is deleted, with retries

An upload precedes the transaction that records it. A failure in between leaves an object unknown to
meta: a listing after the next start finds it, and it is removed after the grace period. No failure
here ends the server. While the store is unreachable, segments stay files and are moved later; the
delay between attempts grows.

Flushes wait for merges, and merges must not wait for the network. So uploads run beside them in a
helper process of their own, and only the record in meta is a job of `Maintenance`: it is short, and
no other job works with an older location of the segment. Small segments, which will be merged
again, are moved later. Other requests to the store run in one thread of their own.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from trilogue.log.errors import CorruptLog, LogError, ObjectExists
from trilogue.log.jobs.merge_plan import SMALL_BYTES, is_large_flush
from trilogue.log.objects import uploads
from trilogue.log.objects.cache import ObjectCache
from trilogue.log.objects.objects import LISTED_MAX, STORE
from trilogue.log.objects.obstore_store import UPLOADING, Reach
from trilogue.log.objects.uploads import UploadJob, UploadResult
from trilogue.log.segments.extents import EMPTY
from trilogue.log.segments.segment_info import SegmentInfo, Swap
from trilogue.node.background.helper import Helper, HelperDiedError
from trilogue.node.background.maintenance import Job, Maintenance
from trilogue.node.background.retired import EVERYTHING, MANIFEST_LATE_S, unlink
from trilogue.node.storage import Storage

log = logging.getLogger(__name__)

SEGMENT_SUFFIX = ".segment"
LOOK_EVERY_S = 1.0
REST_S = (1.0, 5.0, 15.0, 60.0, 300.0)  # after a failure, another one, ...
FAILURES = (LogError, OSError, HelperDiedError)

Result = TypeVar("Result")


class KeeperCounts(msgspec.Struct):
    """Counts since the start, for metrics."""

    uploads: int = 0
    upload_bytes: int = 0
    upload_seconds: float = 0.0
    upload_retries: int = 0
    upload_failures: int = 0
    removed: int = 0
    remove_failures: int = 0


class _Copy(NamedTuple):
    """A local file whose segment is in object storage."""

    due: float
    segment_id: int
    generation: int  # the first generation of meta with it


class Rest:
    """The growing delay between attempts of something that fails."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._failures = 0
        self._until = 0.0

    @property
    def is_over(self) -> bool:
        """Whether an attempt is allowed now."""
        return self._monotonic() >= self._until

    def failed(self) -> float:
        """Record a failure; return the seconds until the next attempt."""
        rest_s = REST_S[min(self._failures, len(REST_S) - 1)]
        self._failures += 1
        self._until = self._monotonic() + rest_s
        return rest_s

    def succeeded(self) -> None:
        """Reset the delay."""
        self._failures = 0
        self._until = 0.0


class ObjectMover:
    """Moves this node's segments to object storage. Used on the loop only."""

    def __init__(
        self,
        storage: Storage,
        maintenance: Maintenance,
        *,
        reach: Reach,
        cache: ObjectCache,
        helper: Helper,
        executor: Executor,
        now_ms: Callable[[], int],
        monotonic: Callable[[], float],
        grace_s: float,
        keep_local_s: float | None,
        move_after_s: float,
        published: Callable[[], int] = lambda: EVERYTHING,
    ) -> None:
        """Keep local copies for `keep_local_s`; None = as long as the segment exists.

        `published` returns the generation of the published manifest: a reader whose manifest has a
        segment as a file must find the file.
        """
        self.counts = KeeperCounts()
        self.cache = cache
        self._storage = storage
        self._node_id = storage.meta.state.node_id
        self._maintenance = maintenance
        self._reach = reach
        self._helper = helper
        self._executor = executor
        self._monotonic = monotonic
        self._grace_s = grace_s
        self._keep_s = None if keep_local_s is None else max(grace_s, keep_local_s)
        self._now_ms = now_ms
        self._move_after_ms = int(move_after_s * 1000)
        self._published = published
        self._uploading = Rest(monotonic)
        self._listing = Rest(monotonic)
        self._removing = Rest(monotonic)
        self._is_listed = False
        self._begun: set[str] = set()  # names of uploads of this process, also failed ones
        self._uploaded: dict[int, str] = {}  # names of uploaded segments that meta must record
        self._refused: set[int] = set()  # the store has another object of that name
        self._copies: dict[str, _Copy] = {}  # by name
        self._leaving: dict[str, float] = {}  # name of an object -> when to remove
        self._writers: dict[str, int] = {}  # name of such an object -> the node that wrote it
        for segment in storage.meta.state.segments.values():
            if segment.store and storage.fs.exists(self._path(segment.name)):
                self._keep_copy(segment)

    # -- uploads ---------------------------------------------------------------------------

    @property
    def waiting(self) -> list[SegmentInfo]:
        """Segments that are files and will be moved, oldest first."""
        found = [
            each
            for each in self._storage.log.segments.values()
            if (each.level or is_large_flush(each))
            and not each.store
            and each.segment_id not in self._refused
        ]
        return sorted(found, key=lambda each: each.segment_id)

    def _next(self) -> SegmentInfo | None:
        """Return the segment to upload: large enough never to be merged, or old enough."""
        before_ms = self._now_ms() - self._move_after_ms
        for segment in self.waiting:
            if segment.segment_id in self._uploaded:
                continue
            is_done = segment.level and segment.size >= SMALL_BYTES
            if is_done or segment.created_ms <= before_ms:
                return segment
        return None

    async def run_uploads(self) -> None:
        """Upload segments that are due, for ever."""
        while True:
            try:
                went = await self.upload_next()
            except Exception:  # as in `run`
                log.exception("objects.failed")
                went = False
            if not went:
                await asyncio.sleep(LOOK_EVERY_S)

    async def upload_next(self) -> bool:
        """Upload a segment if one is due and an attempt is allowed; return whether it succeeded."""
        segment = self._next() if self._uploading.is_over else None
        if segment is None:
            return False
        began = self._monotonic()
        self._begun.add(segment.name)
        job = UploadJob(
            self._reach,
            str(self._storage.directory.segments),
            replace(segment, partitions=EMPTY, hidden=()),
        )
        try:
            result: UploadResult = await self._helper.run(uploads.run, job)
        except Exception as error:  # noqa: BLE001 - the broker continues without uploads
            self._upload_failed(segment, error)
            return False
        self._uploading.succeeded()
        self._count_upload(segment, result, began)
        self._uploaded[segment.segment_id] = segment.name
        self._maintenance.wake()
        return True

    async def store(self, segment: SegmentInfo) -> SegmentInfo:
        """Upload a new segment before meta records it; return it with its location.

        Raises StorageUnavailable, HelperDiedError: the segment does not count then.
        """
        self._begun.add(segment.name)
        began = self._monotonic()
        job = UploadJob(
            self._reach,
            str(self._storage.directory.segments),
            replace(segment, partitions=EMPTY, hidden=()),
        )
        try:
            result: UploadResult = await self._helper.run(uploads.run, job)
        except BaseException:
            self.counts.upload_failures += 1
            self._leaving[segment.name] = self._monotonic() + self._grace_s
            raise
        self._count_upload(segment, result, began)
        stored = replace(segment, store=STORE)
        self._keep_copy(stored)
        return stored

    def _count_upload(self, segment: SegmentInfo, result: UploadResult, began_s: float) -> None:
        self.counts.uploads += 1
        self.counts.upload_bytes += segment.size
        self.counts.upload_retries += result.retries
        self.counts.upload_seconds += self._monotonic() - began_s

    def _upload_failed(self, segment: SegmentInfo, error: Exception) -> None:
        """Delay the next attempt, unless the segment is gone or its name is taken."""
        if segment.segment_id not in self._storage.log.segments:
            self._leaving[segment.name] = 0.0  # merged, compacted or too old meanwhile
            return
        self.counts.upload_failures += 1
        extra: dict[str, object] = {"segment": segment.segment_id, "reason": str(error)}
        if isinstance(error, ObjectExists | CorruptLog):  # or there is no such file
            self._refused.add(segment.segment_id)
            log.error("upload.refused", extra=extra)
            return
        extra["again_in_s"] = self._uploading.failed()
        log.warning("upload.failed", extra=extra, exc_info=not isinstance(error, FAILURES))

    async def plan(self) -> Job | None:
        """Return a job that records the location of an uploaded segment in meta."""
        for segment_id, name in list(self._uploaded.items()):
            segment = self._storage.log.segments.get(segment_id)
            if segment is None:
                del self._uploaded[segment_id]
                self._leaving[name] = 0.0
            else:
                return Job("move", frozenset((segment_id,)), 0, partial(self._move, segment))
        return None

    async def _move(self, segment: SegmentInfo) -> int:
        """Record a move; writes no segment bytes."""
        moved = replace(segment, store=STORE)
        await self._maintenance.swap(Swap(changed=(moved,)))
        del self._uploaded[segment.segment_id]
        self._begun.discard(segment.name)
        self._keep_copy(moved)
        log.info("segment.moved", extra={"segment": segment.segment_id, "to": STORE})
        return 0

    def _keep_copy(self, segment: SegmentInfo) -> None:
        if self._keep_s is not None:
            due = self._monotonic() + self._keep_s
            generation = self._storage.meta.state.version
            self._copies[segment.name] = _Copy(due, segment.segment_id, generation)

    # -- what goes -------------------------------------------------------------------------

    async def remove_object(self, segment: SegmentInfo) -> None:
        """Remove the object, and the local copy, of a segment that meta removed before."""
        self._copies[segment.name] = _Copy(0.0, segment.segment_id, 0)
        self._leaving[segment.name] = 0.0
        self._writers[segment.name] = segment.node_id

    async def run(self) -> None:
        """Remove objects and copies that are due, for ever."""
        while True:
            try:
                await self.remove_due()
            except Exception:  # a bug, or one of a library: the broker continues without removals
                log.exception("objects.failed")
            await asyncio.sleep(LOOK_EVERY_S)

    async def remove_due(self) -> None:
        """Do what is due now."""
        self.cache.trim()
        await self._remove_copies()
        if not self._is_listed and self._listing.is_over:
            await self._find_orphans()
        if self._removing.is_over:
            await self._remove_objects()

    async def _find_orphans(self) -> None:
        """List the objects of earlier processes that meta does not know.

        One that meta knows as a file is from an earlier attempt to move it; uploads of this
        process are excluded.
        """
        segments = self._storage.meta.state.segments.values()
        is_own, node_id = self._storage.broker.cluster.ownership.owns_segment, self._node_id
        stored = {
            segment.name
            for segment in segments
            if segment.store and segment.node_id == node_id and is_own(segment)
        }
        try:
            names = await self._call_store(self.cache.objects.names)
        except FAILURES as error:
            rest_s = self._listing.failed()
            log.warning("objects.not_listed", extra={"reason": str(error), "again_in_s": rest_s})
            return
        if self._storage.shared is not None:  # an orphan is one as long as this node is not fenced
            await self._storage.meta.catch_up()
        self._is_listed = True
        if len(names) < LISTED_MAX:
            self._storage.log.check_segments(stored.difference(names))
        known = {segment.name for segment in self._storage.meta.state.segments.values()}
        due = self._monotonic() + self._grace_s
        for name in names:
            segment = name.removesuffix(UPLOADING)
            is_whole = name == segment
            if not segment.endswith(SEGMENT_SUFFIX) or segment in self._begun:
                continue
            if segment not in known or not is_whole:
                log.info("object.orphan", extra={"object": name})
                self._leaving.setdefault(name, due)

    async def _remove_objects(self) -> None:
        now = self._monotonic()
        for name in [each for each, due in self._leaving.items() if due <= now]:
            self.cache.forget(name)
            try:
                delete = partial(self.cache.objects.delete, name, self._writers.get(name))
                await self._call_store(delete)
            except FAILURES as error:
                self.counts.remove_failures += 1
                self._leaving[name] = self._leaving.pop(name)  # behind the others
                rest_s = self._removing.failed()
                extra = {"object": name, "reason": str(error), "again_in_s": rest_s}
                log.warning("object.not_removed", extra=extra)
                return
            self._removing.succeeded()
            del self._leaving[name]
            self._writers.pop(name, None)
            self._begun.discard(name)
            self.counts.removed += 1
            log.info("object.removed", extra={"object": name})

    async def _remove_copies(self) -> None:
        now = self._monotonic()
        for name, copy in list(self._copies.items()):
            late = now >= copy.due + MANIFEST_LATE_S
            if now < copy.due or not (late or copy.generation <= self._published()):
                continue
            del self._copies[name]
            try:
                await unlink(self._storage.fs, self._path(name))
            except FileNotFoundError:
                pass
            except OSError as error:  # the next start finds it
                log.warning("copy.not_removed", extra={"file": name, "reason": str(error)})
            else:
                log.info("copy.removed", extra={"file": name})
            self._storage.log.readers.forget(copy.segment_id)

    # -- help ------------------------------------------------------------------------------

    async def _call_store(self, call: Callable[[], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._executor, call)

    def _path(self, name: str) -> Path:
        return self._storage.directory.segments / name


async def leave_object(segment: SegmentInfo) -> None:
    """Do nothing: without a configured store the object stays."""
    log.warning("object.left", extra={"object": segment.name, "reason": "objects.url is not set"})
