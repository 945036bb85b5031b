"""Background work on segments: merges, rewrites, compaction. One job at a time.

    planners, called in order ──► the first job ──► a helper process of low priority
          │
    meta, one transaction: only if all inputs still exist
          │
    log.apply_swap in one loop iteration ──► old files retire ──► manifest

Each kind of work is a `Planner`, which returns a `Job` or None. A job's output counts only when
meta has recorded it, so no earlier failure ends the server: after a full disk, a dead helper or a
failed write the job is retried with growing delays; a damaged input is reported to its planner
(`Job.spoilt`), which leaves it alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Protocol

import msgspec
from msgspec.structs import replace

from trilogue.log.errors import CorruptLog, DiskFull, LogError, StorageFailed
from trilogue.log.segments.segment_info import Swap, segment_name
from trilogue.meta.errors import Fenced, MetaError
from trilogue.meta.operations import DeleteSegment, Op, PutSegment, SegmentExists
from trilogue.node.background.flush import StoreSegment
from trilogue.node.background.helper import HelperDiedError
from trilogue.node.background.manifests import ManifestWriter
from trilogue.node.background.retired import RetiredFiles
from trilogue.node.storage import Storage

log = logging.getLogger(__name__)

RETRY_S = (1.0, 5.0, 15.0, 60.0)
LOOK_EVERY_S = 60.0  # also without a call of `wake`: time alone can make work due
_EXPECTED = (OSError, LogError, MetaError, HelperDiedError)


class Job(msgspec.Struct, frozen=True):
    """One planned piece of work."""

    kind: str  # "merge", "rewrite", "compaction", ...: for log lines and metrics
    segment_ids: frozenset[int]  # inputs, which retention leaves alone meanwhile
    room: int  # bytes of segments that it may write at most; 0: none, so a full disk is no matter
    run: Callable[
        [], Awaitable[int]
    ]  # runs the job and `Maintenance.swap`; returns the segment bytes written
    spoilt: Callable[[CorruptLog], None] = lambda _: None  # excludes the damaged input from plans


class Planner(Protocol):
    """One kind of work."""

    async def plan(self) -> Job | None:
        """Return a job if one is due. It is called often and must not block the loop."""


class Counts(msgspec.Struct):
    """Counts of one kind of work since the start."""

    jobs: int = 0
    failures: int = 0
    written_bytes: int = 0  # of segments
    seconds: float = 0.0


class Maintenance:
    """Runs the planners' jobs."""

    def __init__(
        self,
        storage: Storage,
        retired: RetiredFiles,
        manifests: ManifestWriter,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        retry_s: Sequence[float] = RETRY_S,
    ) -> None:
        self.planners: list[Planner] = []
        self.store: StoreSegment | None = None  # where segments count only in object storage
        self.counts: defaultdict[str, Counts] = defaultdict(Counts)
        self.at_work: frozenset[int] = frozenset()  # segments that the job under way reads
        self.doing = ""  # its kind
        self.failures = 0  # in a row
        self._is_idle = True
        self._has_ended = False
        self._planner: Planner | None = None  # the last one
        self._failed: Planner | None = None  # the planner whose job failed last
        self._storage = storage
        self._retired = retired
        self._manifests = manifests
        self._monotonic = monotonic
        self._retry_s = retry_s
        self._may_begin = asyncio.Lock()
        self._wake = asyncio.Event()
        self._moved = asyncio.Event()

    def wake(self) -> None:
        """Plan again: segments or start offsets have changed."""
        self._is_idle = False
        self._wake.set()

    @property
    def is_hopeful(self) -> bool:
        """Whether waiting for it makes sense: it may have work, and its jobs succeed."""
        return not (self._is_idle or self._has_ended or self.failures)

    async def moved(self) -> None:
        """Wait until a job begins or ends, or no job is left."""
        await self._moved.wait()

    async def run(self) -> None:
        """Run jobs for ever; raises only if meta fails."""
        try:
            while True:
                self._wake.clear()
                async with self._may_begin:
                    job = await self._next()
                    done = job is None or await self._do(job)
                if job is not None:
                    await self._note_end(done=done)
                elif not self._wake.is_set():
                    self._is_idle = True
                    self._notify()
                    await _wait(self._wake, LOOK_EVERY_S)
        finally:
            self._has_ended = True
            self._notify()

    @contextlib.asynccontextmanager
    async def paused(self) -> AsyncIterator[None]:
        """Wait for the job under way, and let none begin in the body."""
        async with self._may_begin:
            yield

    async def _note_end(self, *, done: bool) -> None:
        """Note how a job has ended; after a failure return when the next one may be tried."""
        if done:
            self.failures, self._failed = 0, None
            self._notify()
            return
        wait_s = self._retry_s[min(self.failures, len(self._retry_s) - 1)]
        self.failures, self._failed = self.failures + 1, self._planner
        self._notify()
        await asyncio.sleep(wait_s)

    def _notify(self) -> None:
        self._moved.set()
        self._moved = asyncio.Event()

    async def swap(self, swap: Swap, ops: Sequence[Op] = ()) -> None:
        """Replace segments by others: in meta with `ops`, all or nothing, and then in the log."""
        storage = self._storage
        if self.store is not None:
            swap = await self._store_added(swap, self.store)
        gone = [storage.meta.state.segments.get(each) for each in swap.removed]
        commit: list[Op] = [DeleteSegment(each) for each in swap.removed]
        commit += [PutSegment(each) for each in (*swap.changed, *swap.added)]
        touched = (*swap.removed, *(each.segment_id for each in swap.changed))
        try:
            await storage.meta.write(
                [*commit, *ops], [SegmentExists(each) for each in touched], storage.fence
            )
        except (MetaError, DiskFull):
            self._retired.discard(each.name for each in swap.added)
            raise
        try:
            storage.log.apply_swap(swap)
        except Exception as error:  # the log differs from meta: end the server
            raise StorageFailed(f"a swap that meta recorded does not fit: {error}") from error
        for segment in gone:
            if segment is not None:
                self._retired.leave(segment)
        self._manifests.changed()

    async def _store_added(self, swap: Swap, store: StoreSegment) -> Swap:
        """Store the new segments in object storage, all or none of which will count."""
        try:
            added = [each if each.store else await store(each) for each in swap.added]
        except BaseException:
            self._retired.discard(each.name for each in swap.added)
            raise
        return replace(swap, added=tuple(added))

    @contextlib.contextmanager
    def cleaning_up(self, segment_ids: Iterable[int]) -> Iterator[None]:
        """Remove the files of these segment ids if the job in the body fails.

        A retry uses other ids: without this each failed attempt would take more of a full disk.
        """
        try:
            yield
        except HelperDiedError:
            self._retired.discard(map(segment_name, segment_ids))
            raise

    async def _next(self) -> Job | None:
        """Call the planners in order; one whose last job failed comes last.

        The jobs of others may free the space that it lacks.
        """
        for planner in sorted(self.planners, key=lambda each: each is self._failed):
            self._planner = planner
            try:
                job = await planner.plan()
            except (StorageFailed, Fenced):
                raise
            except Exception:  # a bug: the broker continues without this kind of work
                log.exception("maintenance.plan_failed", extra={"kind": type(planner).__name__})
                continue
            if job is not None:
                return job
        return None

    async def _do(self, job: Job) -> bool:
        """Run one job; return whether it succeeded."""
        counts, began = self.counts[job.kind], self._monotonic()
        if job.room and not self._has_room(job):
            counts.failures += 1
            return False
        self.at_work, self.doing = job.segment_ids, job.kind
        self._notify()  # waiters may not want to wait for this job
        try:
            written = await job.run()
        except (StorageFailed, Fenced):
            raise
        except CorruptLog as error:
            counts.failures += 1
            log.warning("maintenance.damaged", extra={"kind": job.kind, "reason": str(error)})
            job.spoilt(error)
            return True  # nothing to wait for: no retry
        except Exception as error:
            counts.failures += 1
            log.warning(
                "maintenance.failed",
                extra={"kind": job.kind, "reason": str(error)},
                exc_info=not isinstance(error, _EXPECTED),
            )
            return False
        finally:
            self.at_work, self.doing = frozenset(), ""
        counts.jobs += 1
        counts.written_bytes += written
        counts.seconds += self._monotonic() - began
        return True

    def _has_room(self, job: Job) -> bool:
        """Return whether the job may write its bytes and leave the space that appends need."""
        storage = self._storage
        free = storage.fs.free_bytes(storage.directory.path)
        least = storage.log.limits.journal.min_free_bytes
        if free >= job.room + least:
            return True
        if not self.failures:  # log it once
            needs = job.room + least
            log.warning(
                "maintenance.no_room", extra={"kind": job.kind, "needs": needs, "free": free}
            )
        return False


async def _wait(event: asyncio.Event, limit_s: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(limit_s):
            await event.wait()
