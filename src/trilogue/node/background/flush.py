"""The flush loop: writes sealed journal files to segments, and frees their memory.

    journal file is sealed ── in that callback: the broker's snapshot of this moment
          │
    helper process: sort by partition, write one segment, durable
          │
    meta, one transaction: segment, flushed ends, snapshot rows, flushed_through
          │
    log.apply_flush: extents replace the tail's part, in steps; the file is reused
          │
    manifest, for readers without a broker

Waiting files are flushed together, up to a number of bytes and of entries that bound the memory of
the job; after a failure fewer, down to one by one, and then more again. After a failure that may
pass (no space, a dead helper) the flush is retried with growing delays; meanwhile the tail grows
until producers wait, and are refused if that takes long. Another failure ends the server: the data
is safe in the journal.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable
from itertools import islice
from pathlib import Path

import msgspec
from msgspec.structs import replace

from trilogue.broker.facts import SnapshotRow
from trilogue.log.errors import DiskFull, StorageUnavailable
from trilogue.log.jobs import flush as jobs
from trilogue.log.journal.files import SealedFile
from trilogue.log.segments.segment_info import FlushJob, FlushResult, SegmentInfo, segment_name
from trilogue.meta.errors import TooManyChanges
from trilogue.meta.operations import (
    OPS_MAX,
    DeleteSnapshot,
    FlushedThroughIs,
    Op,
    PutPartitionState,
    PutSegment,
    PutSnapshot,
    SetFlushedThrough,
)
from trilogue.node.background.helper import Helper, HelperDiedError
from trilogue.node.background.manifests import ManifestWriter
from trilogue.node.storage import Storage

log = logging.getLogger(__name__)

JOB_BYTES = 256 << 20  # of journal files in one job, and of entries: they bound its memory
JOB_ENTRIES = 400_000
JOB_BYTES_MIN = 1 << 20
AFTER_FAILURE = 8  # a nearly full disk, or a slow store, may have room for so small a part
LOOK_EVERY_S = 1.0
RETRY_S = (0.5, 2.0, 5.0, 15.0, 30.0)
REFUSE_AFTER = 3  # attempts, after which waiting producers are refused, as on a full disk
CALM = 0.5  # below this share of the tail's limit a flush keeps to its pace
AT_ONCE = 1_000  # partitions per step
BURST_BYTES = 32 << 20  # for a journal file that was filled faster than a paced flush writes
BURST_LOOK_S = 0.05
BURST_S = 0.5
FLUSH_LOOK_S = 0.01
AHEAD = 3  # times the rate at which the journal file was filled: the least pace
_MAY_PASS = {errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN}


StoreSegment = Callable[[SegmentInfo], Awaitable[SegmentInfo]]
"""Stores a segment where other machines can read it; returns it with its new location."""


class FlushCounts(msgspec.Struct):
    """Counts since the start, for metrics."""

    flushes: int = 0
    failures: int = 0
    read_bytes: int = 0  # of journal frames
    data_bytes: int = 0  # of entries, which were acknowledged
    written_bytes: int = 0  # of segments
    seconds: float = 0.0


class Cut(msgspec.Struct, frozen=True):
    """A sealed file, and the broker's snapshot as of its last frame."""

    file: SealedFile
    rows: list[SnapshotRow]
    sealed_ms: int = 0

    @property
    def fill_rate(self) -> int:
        """Return the bytes per second at which the file was filled."""
        return self.file.size * 1_000 // max(1, self.sealed_ms - self.file.first_append_ms)


async def no_bound() -> None:
    """Return at once: no bound, for a node without merges."""


class Flusher:
    """Flushes sealed files, one job at a time, oldest first.

    `room` is awaited before each flush: it waits while there are too many unmerged segments.
    `on_flushed` is called after each flush that wrote a segment. With `store` a segment counts only
    when it is in object storage.
    """

    def __init__(
        self,
        storage: Storage,
        helper: Helper,
        manifests: ManifestWriter,
        *,
        now_ms: Callable[[], int],
        bytes_per_second: int,
        room: Callable[[], Awaitable[None]] = no_bound,
        on_flushed: Callable[[], object] = lambda: None,
        store: StoreSegment | None = None,
    ) -> None:
        self.counts = FlushCounts()
        self._storage = storage
        self._helper = helper
        self._manifests = manifests
        self._now_ms = now_ms
        self.bytes_per_second = bytes_per_second
        self._room = room
        self._on_flushed = on_flushed
        self._store = store
        self._cuts: deque[Cut] = deque()
        self._more = asyncio.Event()
        self._none = asyncio.Event()
        self._none.set()
        self._in_haste = False
        self._job_bytes = JOB_BYTES
        self._attach()

    @property
    def waiting(self) -> int:
        """The number of sealed files that are in no segment yet."""
        return len(self._cuts)

    async def run(self) -> None:
        """Flush for ever; raises an error that retries do not help."""
        while True:
            await self._more.wait()
            if not self._in_haste:
                await self._let_a_burst_pass()
                await self._room()
            await self._flush_with_retries()
            if not self._cuts:
                self._more.clear()
                self._none.set()

    async def _let_a_burst_pass(self) -> None:
        """Delay the start of a helper during a burst, while memory has room.

        Starting a process takes 0.1 s of CPU time. With a running helper a flush begins at once.
        """
        engine, file = self._storage.log, self._cuts[0].file
        is_burst = self._cuts[0].fill_rate > self.bytes_per_second and file.size >= BURST_BYTES
        end = time.monotonic() + BURST_S
        while is_burst and self._helper.pid is None and not self._in_haste:
            held = engine.tail_bytes
            if held >= CALM * engine.tail_limit or time.monotonic() >= end:
                return
            await asyncio.sleep(BURST_LOOK_S)
            is_burst = engine.tail_bytes != held

    async def seal_old(self) -> None:
        """Seal the journal file whenever it has held data for `journal.file-age`, for ever."""
        engine = self._storage.log
        every_s = min(LOOK_EVERY_S, engine.limits.journal.file_age_ms / 2_000)
        while True:
            await asyncio.sleep(every_s)
            engine.seal(self._now_ms())

    async def flush_all(self) -> None:
        """Return when what the journal holds now is in segments; `run` flushes."""
        self._storage.log.seal()
        await self._settled()
        last = self._cuts[-1] if self._cuts else None
        while last in self._cuts:
            self._in_haste = True
            self._helper.hurry()
            await asyncio.sleep(FLUSH_LOOK_S)
        self._in_haste = False

    async def flush_added(self) -> bool:
        """Flush also what is not durable yet; return whether all of it is in segments."""
        await self._settled()
        last_sequence = self._storage.log.journal.last_sequence
        await self.flush_all()
        return self._storage.log.flushed_through >= last_sequence

    async def finish(self) -> None:
        """Seal the journal file and return when everything is in segments; `run` flushes."""
        self._in_haste = True
        await self._settled()  # windows under way still go into the file that is sealed
        self._storage.log.seal()
        await self._settled()
        await self._none.wait()

    async def _settled(self) -> None:
        """Wait until everything added so far is durable; a requested seal happens then."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def resume(error: BaseException | None) -> None:
            if not done.done():
                done.set_result(None)
            del error  # the log reports a failed storage

        self._storage.log.journal.on_commit(resume)
        await done
        await asyncio.sleep(0)  # the seal comes right after the callbacks of its commit

    # -- cuts ------------------------------------------------------------------------------

    def _attach(self) -> None:
        """Take the sealed files of the recovery, then those sealed from now on."""
        engine = self._storage.log
        for file in engine.sealed:
            self._sealed(file)
        engine.on_sealed = self._sealed

    def _sealed(self, file: SealedFile) -> None:
        self._cuts.append(Cut(file, self._storage.broker.snapshot(), self._now_ms()))
        self._none.clear()
        self._more.set()
        if not self._is_calm:  # the running job began when memory had more room
            self._helper.hurry()

    # -- one flush -------------------------------------------------------------------------

    async def _flush_with_retries(self) -> None:
        tries = 0
        while True:
            cuts = self._next_cuts()
            try:
                await self._flush(cuts)
            except (
                HelperDiedError,
                DiskFull,
                StorageUnavailable,
                TooManyChanges,
                OSError,
            ) as error:
                if isinstance(error, OSError) and error.errno not in _MAY_PASS:
                    raise
                self.counts.failures += 1
                self._job_bytes = max(JOB_BYTES_MIN, self._job_bytes // AFTER_FAILURE)
                wait_s = RETRY_S[min(tries, len(RETRY_S) - 1)]
                tries += 1
                if tries >= REFUSE_AFTER:
                    self._storage.log.flush_stuck()
                log.warning("flush.failed", extra={"reason": str(error), "again_in_s": wait_s})
                if isinstance(error, DiskFull | OSError):
                    self._storage.give_up_reserve()
                await asyncio.sleep(wait_s)
            else:
                self._job_bytes = min(JOB_BYTES, 2 * self._job_bytes)
                for _ in cuts:
                    self._cuts.popleft()
                return

    def _next_cuts(self) -> list[Cut]:
        """Return the oldest cuts: one, and as many more as a job may have."""
        chosen: list[Cut] = []
        size = count = 0
        for cut in self._cuts:
            size += cut.file.size
            count += cut.file.entry_count
            if chosen and (size > self._job_bytes or count > JOB_ENTRIES):
                break
            chosen.append(cut)
        return chosen

    async def _flush(self, cuts: list[Cut]) -> None:
        began = time.monotonic()
        storage = self._storage
        await storage.meta.reserve("segment", 1)
        job = await self._job(cuts, storage.meta.allocate("segment"))
        try:
            if any(cut.file.entry_count for cut in cuts):
                result = await self._helper.run(jobs.run, job)
            else:  # facts only: nothing to sort
                result = FlushResult(None, {}, job.last_sequence, 0, 0, 0)
            if self._store is not None and result.segment is not None:
                result = replace(result, segment=await self._store(result.segment))
            await self._record(job, result, cuts)
        except (
            HelperDiedError,
            DiskFull,
            StorageUnavailable,
            TooManyChanges,
        ):  # the next attempt has another name
            with contextlib.suppress(OSError):
                storage.fs.unlink(Path(job.segment_path))
            raise
        storage.log.apply_flush(result)
        if storage.shared is not None:
            storage.shared.flushed(result.last_sequence)
        self._manifests.changed()
        if result.segment is not None:
            self._on_flushed()
        self._count(result, time.monotonic() - began)

    @property
    def _is_calm(self) -> bool:
        """Return whether memory has room for as much again as it holds."""
        engine = self._storage.log
        return engine.tail_bytes < CALM * engine.tail_limit

    def _pace(self, cuts: list[Cut]) -> int | None:
        """Return the bytes per second to flush with; None for no limit.

        Slow flushes leave the disk and the CPU to producers; but a flush slower than the incoming
        data fills the tail until producers are stopped.
        """
        if not self.bytes_per_second or self._in_haste or not self._is_calm:
            return None
        return max(self.bytes_per_second, AHEAD * max(cut.fill_rate for cut in cuts))

    async def _job(self, cuts: list[Cut], segment_id: int) -> FlushJob:
        """Return the job, built in steps, since there may be very many partitions."""
        storage = self._storage
        files = [cut.file for cut in cuts]
        ends: dict[int, int] = {}
        starts: dict[int, int] = {}
        transactions: dict[int, tuple[tuple[int, int], ...]] = {}
        rest = iter(list(storage.meta.state.partitions.items()))
        while some := list(islice(rest, AT_ONCE)):
            for each, state in some:
                ends[each], starts[each] = state.flushed_end, state.start_offset
                if state.open_transactions:
                    transactions[each] = state.open_transactions
            await asyncio.sleep(0)
        return FlushJob(
            journal_paths=tuple(str(file.path) for file in files),
            segment_path=str(storage.directory.segments / segment_name(segment_id)),
            segment_id=segment_id,
            last_sequence=files[-1].last_sequence,
            flushed_through=storage.meta.state.flushed_through,
            flushed_ends=ends,
            known=frozenset(ends),
            start_offsets=starts,
            cluster_id=storage.meta.state.cluster_id,
            node_id=storage.meta.state.node_id,
            node_epoch=storage.meta.state.node_epoch,
            now_ms=self._now_ms(),
            bytes_per_second=self._pace(cuts),
            incarnations=tuple(file.incarnation for file in files),
            sizes=tuple(file.size for file in files),
            direct=storage.log.direct,
            open_transactions=transactions,
        )

    async def _record(self, job: FlushJob, result: FlushResult, cuts: list[Cut]) -> None:
        """Record a flush in meta, in one transaction.

        Snapshot rows that are too many for one are written before: until `flushed_through`
        moves, a start replays the same frames over them, with the same result.
        """
        rows = {row.key: row.value for cut in cuts for row in cut.rows}  # the later cut wins
        snapshots: list[Op] = [
            DeleteSnapshot(key) if value is None else PutSnapshot(key, value)
            for key, value in rows.items()
        ]
        ops: list[Op] = []
        left = result.open_transactions
        for partition_id, end in result.ends.items():
            transactions = left.get(partition_id)
            ops.append(
                PutPartitionState(partition_id, flushed_end=end, open_transactions=transactions)
            )
            if len(ops) % AT_ONCE == 0:
                await asyncio.sleep(0)
        ops.append(SetFlushedThrough(result.last_sequence))
        if result.segment is not None:
            ops.append(PutSegment(result.segment))
        meta, fence = self._storage.meta, self._storage.fence
        room = OPS_MAX - len(ops)
        while len(snapshots) > room:
            await meta.write(snapshots[:OPS_MAX], (), fence)
            del snapshots[:OPS_MAX]
        await meta.write([*ops, *snapshots], [FlushedThroughIs(job.flushed_through)], fence)

    def _count(self, result: FlushResult, seconds: float) -> None:
        counts = self.counts
        counts.flushes += 1
        counts.read_bytes += result.bytes_in
        counts.written_bytes += result.bytes_written
        counts.seconds += seconds
        segment = result.segment
        data_bytes = 0 if segment is None else segment.data_size
        counts.data_bytes += data_bytes
        log.log(
            logging.INFO if result.entries else logging.DEBUG,  # not for positions only
            "flush.done",
            extra={
                "segment": 0 if segment is None else segment.segment_id,
                "entries": result.entries,
                "size_bytes": result.bytes_written,
                "through": result.last_sequence,
                "took_s": round(seconds, 3),
            },
        )
