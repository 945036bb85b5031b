"""Work on segments that nobody waits for: merges, rewrites, compaction. One job at a time.

    planners, asked in their order ──► the first job ──► a helper process of its own, slowly
          │
    meta, one transaction: only if what was read is still there
          │
    log.apply_swap in one turn of the loop ──► old files retire ──► manifest

A kind of work is a `Planner`: it looks at what there is and returns a `Job`, or None. What a job
writes counts only when meta has recorded it, so nothing that goes wrong before is worth the server:
a full disk, a dead helper or a failed write is tried again, later and later; an input that is
damaged is told to its planner (`Job.spoilt`), which leaves it alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from trilogue.log.errors import CorruptLog, DiskFull, LogError, StorageFailed
from trilogue.log.segment_info import Swap, segment_name
from trilogue.meta.errors import Fenced, MetaError
from trilogue.meta.port import DeleteSegment, Op, PutSegment, SegmentExists
from trilogue.node.jobs import HelperDiedError
from trilogue.node.manifests import Manifests
from trilogue.node.retired import RetiredFiles
from trilogue.node.storage import Storage

log = logging.getLogger(__name__)

RETRY_S = (1.0, 5.0, 15.0, 60.0)
LOOK_EVERY_S = 60.0  # also when nobody called: time alone can make something due
_EXPECTED = (OSError, LogError, MetaError, HelperDiedError)


@dataclass(frozen=True, slots=True)
class Job:
    """One piece of work that was decided on."""

    kind: str  # "merge", "rewrite", "compaction", ...: for log lines and metrics
    segment_ids: frozenset[int]  # what it reads; retention leaves them alone meanwhile
    room: int  # bytes of segments that it may write at most; 0: none, so a full disk is no matter
    run: Callable[[], Awaitable[int]]  # does it, `Maintenance.swap` included; segment bytes written
    spoilt: Callable[[CorruptLog], None] = lambda _: None  # never plan it like this again


class Planner(Protocol):
    """One kind of work."""

    async def plan(self) -> Job | None:
        """Say what is due, if anything. It may be asked often and must not hold the loop up."""


@dataclass(slots=True)
class Counts:
    """What one kind of work did since the start."""

    jobs: int = 0
    failures: int = 0
    written_bytes: int = 0  # of segments
    seconds: float = 0.0


class Maintenance:
    """Runs the planners' jobs for ever."""

    def __init__(
        self,
        storage: Storage,
        retired: RetiredFiles,
        manifests: Manifests,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        retry_s: Sequence[float] = RETRY_S,
    ) -> None:
        self.planners: list[Planner] = []
        self.counts: defaultdict[str, Counts] = defaultdict(Counts)
        self.at_work: frozenset[int] = frozenset()  # segments that the job under way reads
        self.doing = ""  # its kind
        self.failures = 0  # in a row
        self._is_idle = True
        self._has_ended = False
        self._asked: Planner | None = None  # the last one
        self._failed: Planner | None = None  # whose job it was that failed last
        self._storage = storage
        self._retired = retired
        self._manifests = manifests
        self._monotonic = monotonic
        self._retry_s = retry_s
        self._wake = asyncio.Event()
        self._moved = asyncio.Event()

    def wake(self) -> None:
        """Segments came or went, or partitions start later: there may be something to do."""
        self._is_idle = False
        self._wake.set()

    @property
    def is_hopeful(self) -> bool:
        """Whether it is worth to wait for it: it has or may have something to do, and succeeds."""
        return not (self._is_idle or self._has_ended or self.failures)

    async def moved(self) -> None:
        """Wait until a job began or ended, well or not, or there is none any more."""
        await self._moved.wait()

    async def run(self) -> None:
        """Work for ever; ends by an exception only when meta does."""
        try:
            while True:
                self._wake.clear()
                job = await self._next()
                if job is not None:
                    await self._try(job)
                elif not self._wake.is_set():
                    self._is_idle = True
                    self._tell()
                    await _wait(self._wake, LOOK_EVERY_S)
        finally:
            self._has_ended = True
            self._tell()

    async def _try(self, job: Job) -> None:
        if await self._do(job):
            self.failures, self._failed = 0, None
            self._tell()
            return
        wait_s = self._retry_s[min(self.failures, len(self._retry_s) - 1)]
        self.failures, self._failed = self.failures + 1, self._asked
        self._tell()
        await asyncio.sleep(wait_s)

    def _tell(self) -> None:
        self._moved.set()
        self._moved = asyncio.Event()

    async def swap(self, swap: Swap, ops: Sequence[Op] = ()) -> None:
        """Put segments in the place of others: in meta, with `ops`, all or nothing; then here."""
        storage = self._storage
        gone = [storage.meta.state.segments.get(each) for each in swap.removed]
        commit: list[Op] = [DeleteSegment(each) for each in swap.removed]
        commit += [PutSegment(each) for each in (*swap.changed, *swap.added)]
        touched = (*swap.removed, *(each.segment_id for each in swap.changed))
        try:
            await storage.meta.commit(
                [*commit, *ops], [SegmentExists(each) for each in touched], storage.fence
            )
        except (MetaError, DiskFull):
            self._retired.discard(each.name for each in swap.added)
            raise
        try:
            storage.log.apply_swap(swap)
        except Exception as error:  # what is served is not what is recorded: never go on like this
            raise StorageFailed(f"a swap that meta recorded does not fit: {error}") from error
        for segment in gone:
            if segment is not None:
                self._retired.leave(segment)
        self._manifests.changed()

    @contextlib.contextmanager
    def cleaning_up(self, segment_ids: Iterable[int]) -> Iterator[None]:
        """Around a helper's job: if it dies nobody else can remove what it wrote under these ids.

        The next try has others, so that on a disk that is short of room each would take some more.
        """
        try:
            yield
        except HelperDiedError:
            self._retired.discard(map(segment_name, segment_ids))
            raise

    async def _next(self) -> Job | None:
        """Ask the planners in their order; whose last job failed comes after the others.

        What it lacks, room mostly, they may make.
        """
        for planner in sorted(self.planners, key=lambda each: each is self._failed):
            self._asked = planner
            try:
                job = await planner.plan()
            except (StorageFailed, Fenced):
                raise
            except Exception:  # a mistake of ours: the broker goes on without this kind of work
                log.exception("maintenance.plan_failed", extra={"kind": type(planner).__name__})
                continue
            if job is not None:
                return job
        return None

    async def _do(self, job: Job) -> bool:
        """Do one job; whether it went well."""
        counts, began = self.counts[job.kind], self._monotonic()
        if job.room and not self._has_room(job):
            counts.failures += 1
            return False
        self.at_work, self.doing = job.segment_ids, job.kind
        self._tell()  # who waits may not want to wait for this
        try:
            written = await job.run()
        except (StorageFailed, Fenced):
            raise
        except CorruptLog as error:
            counts.failures += 1
            log.warning("maintenance.damaged", extra={"kind": job.kind, "reason": str(error)})
            job.spoilt(error)
            return True  # there is nothing to wait for: it is not tried again
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
        """Whether it may write as much and leave what appending needs."""
        storage = self._storage
        free = storage.fs.free_bytes(storage.directory.path)
        least = storage.log.limits.journal.min_free_bytes
        if free >= job.room + least:
            return True
        if not self.failures:  # one line, not one each time
            needs = job.room + least
            log.warning(
                "maintenance.no_room", extra={"kind": job.kind, "needs": needs, "free": free}
            )
        return False


async def _wait(event: asyncio.Event, limit_s: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(limit_s):
            await event.wait()
