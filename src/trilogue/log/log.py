"""The engine: one journal, many partitions, and how their entries move from memory to segments.

    log = Log.open(...)              recovers, synchronously; nothing is served before it returns
    log.partition(7).append(...)     see partition_log.py
    log.journal.on_commit(...)       called when entries are durable, or never will be
    log.on_sealed = ...              a journal file is full: flush it, record that in meta, then
    log.apply_flush(result)          replaces the tail part by extents in one step

It runs on an event loop, which it knows as a `Scheduler`. It starts no threads (the committer and
the background executor are passed in) and knows nothing of topics.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from functools import partial
from typing import Final

import msgspec

from trilogue.log.directory import DataDirectory
from trilogue.log.errors import StorageFailed
from trilogue.log.files import FileSystem
from trilogue.log.journal.files import JournalFiles, SealedFile
from trilogue.log.journal.journal import Journal, JournalLimits
from trilogue.log.journal.recovery import RecoveryResult, recover, salvage
from trilogue.log.journal.replay import FrameReplay, OnEntry, OnFact, OnForeign
from trilogue.log.objects.cache import ObjectCache
from trilogue.log.partition_log import PartitionLog
from trilogue.log.ports import Background, Committer, Scheduler
from trilogue.log.pressure import LogPressure
from trilogue.log.segments.catalog import Catalog
from trilogue.log.segments.manifest import Manifest, PartitionRange
from trilogue.log.segments.segment_info import FlushResult, SegmentInfo, Swap
from trilogue.log.segments.segment_reader import SegmentReaders
from trilogue.log.tail.chunks import Budget

log = logging.getLogger(__name__)

UNLIMITED: Final = 1 << 62
LET_GO_IN_A_TURN: Final = 100  # partitions whose memory is freed in one loop iteration
LET_GO_S: Final = 0.001  # for how long that goes on: cold, a partition can take 0.1 ms
LET_GO_BYTES: Final = 64 << 10  # freeing this much takes as long as one partition


class LogLimits(msgspec.Struct, frozen=True):
    """Limits on memory. Clients should be paused at the watermark."""

    tail_bytes: int = 256 << 20
    tail_entries: int = 500_000
    watermark: float = 0.8
    queued_windows: int = 2
    reserve_bytes: int = 64 << 20  # 0: no reserve file
    journal: JournalLimits = msgspec.field(default_factory=JournalLimits)


class LogEnvironment(msgspec.Struct, frozen=True):
    """What a process provides to the log: its disk, loop, threads, clocks and random numbers."""

    fs: FileSystem
    scheduler: Scheduler
    background: Background
    committer: Committer
    now_ms: Callable[[], int]
    monotonic: Callable[[], float]
    random_bytes: Callable[[int], bytes]
    free_bytes: Callable[[], int] | None = None  # None: query the file system
    objects: ObjectCache | None = None  # reads merged segments that lie in object storage
    on_commit_seconds: Callable[[float], None] | None = None  # how long each commit took


class Log:
    """All partitions of one node."""

    def __init__(
        self,
        directory: DataDirectory,
        around: LogEnvironment,
        *,
        journal: Journal,
        files: JournalFiles,
        limits: LogLimits,
        flushed_through: int,
    ) -> None:
        """Use `Log.open`."""
        self.directory = directory
        self.journal = journal
        self.limits = limits
        self.flushed_through = flushed_through
        self.sealed: deque[SealedFile] = deque()  # files that wait for a flush, oldest first
        self.on_sealed: Callable[[SealedFile], None] = _ignore
        self.on_failed: Callable[[StorageFailed], None] = _ignore
        # The start offset of a partition of another node; None: there is no such partition.
        self.foreign_start: Callable[[int], int | None] = lambda _: None
        self.recovered: RecoveryResult | None = None
        self.readers = SegmentReaders(around.fs, directory.segments, objects=around.objects)
        self._fs = around.fs
        self._scheduler = around.scheduler
        self._monotonic = around.monotonic
        self._files = files
        self._budget = Budget(UNLIMITED, self._released)
        self._partitions: dict[int, PartitionLog] = {}
        self._catalog = Catalog()
        self._letting_go = 0  # flushes whose tail parts are not all dropped yet
        self._relief: list[Callable[[], None]] = []
        self._relief_due = False
        self.pressure = LogPressure(
            journal,
            self._budget,
            queued_max=limits.queued_windows,
            bytes_high=limits.watermark * limits.tail_bytes,
            entries_high=limits.watermark * limits.tail_entries,
        )
        journal.on_sealed = self._file_sealed
        journal.on_failed = self._journal_failed

    @classmethod
    def open(
        cls,
        directory: DataDirectory,
        manifest: Manifest,
        around: LogEnvironment,
        *,
        node_id: int,
        node_epoch: int,
        on_entry: OnEntry = lambda _partition_id, _header: None,
        on_fact: OnFact = lambda _kind, _payload: None,
        on_foreign: OnForeign = lambda _partition_id, _header, _entry: None,
        limits: LogLimits | None = None,
        salvage_damage: bool = False,
        owner_epoch: Callable[[int], int] | None = None,
    ) -> Log:
        """Recover what the journal holds beyond the manifest, and start to write.

        `owner_epoch` returns the epoch with which a partition's entries are written; without it
        that is the node's.

        During replay, in the order of writing: `on_entry` is called for entries that have a
        producer id (also below their partition's start offset, since a retry must not bring deleted
        records back), `on_foreign` for entries in another format than Kafka's, `on_fact` for facts.
        A snapshot may be newer than the facts (docs/decisions/0005), so replaying a fact that is
        already known must not change the state. Raises `CorruptLog`, `NewerFormat`, `OSError`.
        """
        limits = limits or LogLimits()
        fs, through = around.fs, manifest.flushed_through
        if salvage_damage:
            salvage(fs, directory.journal, flushed_through=through, now_ms=around.now_ms())
        free_bytes = around.free_bytes or partial(fs.free_bytes, directory.path)
        replay = FrameReplay(on_entry, on_fact, on_foreign)
        recovered = recover(
            fs,
            directory.journal,
            cluster_id=manifest.cluster_id,
            flushed_through=through,
            replay=replay.collect,
        )
        files = _journal_files(directory, manifest.cluster_id, around, limits, free_bytes)
        journal = Journal(
            files=files,
            committer=around.committer,
            scheduler=around.scheduler,
            now_ms=around.now_ms,
            monotonic=around.monotonic,
            free_bytes=free_bytes,
            node_id=node_id,
            node_epoch=node_epoch,
            last_sequence=recovered.last_sequence,
            limits=limits.journal,
            on_commit_seconds=around.on_commit_seconds,
        )
        opened = cls(
            directory, around, journal=journal, files=files, limits=limits, flushed_through=through
        )
        opened._restore(manifest, owner_epoch or (lambda _: node_epoch), recovered, replay)
        opened._budget.limit = limits.tail_bytes
        journal.start()
        if limits.reserve_bytes and free_bytes() > limits.reserve_bytes * 4:
            around.background(lambda: directory.make_reserve(fs, limits.reserve_bytes))
        return opened

    def _restore(
        self,
        manifest: Manifest,
        owner_epoch: Callable[[int], int],
        recovered: RecoveryResult,
        replay: FrameReplay,
    ) -> None:
        for partition_id, known in manifest.partitions.items():
            self._add_partition(partition_id, owner_epoch(partition_id), known)
        for segment in sorted(manifest.segments, key=lambda each: each.first_sequence):
            self._catalog.add(segment)
        replay.run(self._partitions, manifest.partitions)
        self.recovered = recovered
        self.sealed.extend(recovered.sealed)
        self.pressure.sealed_entries = sum(file.entry_count for file in recovered.sealed)
        self._files.continue_after(recovered.last_number, recovered.newest_number)
        for path, header in recovered.prepared:
            if header.number > recovered.last_number:
                self._files.adopt(path, header)
            else:
                recovered.used.append(path)
        for path in recovered.used:
            self._files.recycle(path)
        self.check_segments()
        log.info(
            "log.recovered",
            extra={
                "frames": recovered.frames,
                "files": len(recovered.sealed),
                "last_sequence": recovered.last_sequence,
                "torn": recovered.torn,
                "tail_bytes": self._budget.used,
            },
        )

    @property
    def is_flushed(self) -> bool:
        """Whether everything that was added is in segments and snapshots."""
        return self.journal.is_idle and self.journal.last_sequence <= self.flushed_through

    def disk_space(self) -> tuple[int, int]:
        """Return the total and the free bytes of the disk. Queries the file system."""
        path = self.directory.path
        return self._fs.total_bytes(path), self._fs.free_bytes(path)

    # -- partitions ------------------------------------------------------------------------

    def partition(self, partition_id: int) -> PartitionLog:
        """Return the log of a partition. Raises `KeyError` if it does not exist."""
        return self._partitions[partition_id]

    def create_partition(
        self, partition_id: int, owner_epoch: int, start_offset: int = 0
    ) -> PartitionLog:
        """Create the log of a new partition, which meta must record before its first append."""
        if partition_id in self._partitions:
            raise ValueError(f"partition {partition_id} exists")
        whole = PartitionRange(start_offset, start_offset, start_offset)
        return self._add_partition(partition_id, owner_epoch, whole)

    def adopt_partition(
        self, partition_id: int, owner_epoch: int, known: PartitionRange
    ) -> PartitionLog:
        """Open the log of a partition that another node had: all of it is in segments."""
        if partition_id in self._partitions:
            raise ValueError(f"partition {partition_id} exists")
        return self._add_partition(partition_id, owner_epoch, known)

    def adopt_segments(self, segments: Iterable[SegmentInfo]) -> None:
        """Add segments that other nodes have made, before their partitions are read here."""
        for segment in segments:
            if segment.segment_id not in self._catalog.segments:
                self._catalog.add(segment)

    def _add_partition(
        self, partition_id: int, owner_epoch: int, known: PartitionRange
    ) -> PartitionLog:
        made = self._partitions[partition_id] = PartitionLog(
            partition_id,
            owner_epoch=owner_epoch,
            start_offset=known.start_offset,
            flushed_end=known.flushed_end,
            journal=self.journal,
            budget=self._budget,
            catalog=self._catalog,
            readers=self.readers,
            open_transactions=known.open_transactions,
        )
        return made

    def drop_partition(self, partition_id: int) -> None:
        """Remove a partition and call its waiters; its entries go with the files they are in."""
        dropped = self._partitions.pop(partition_id, None)
        if dropped is not None:
            dropped.drop()
            self._released()

    # -- flush and retention ---------------------------------------------------------------

    def seal(self, now_ms: int | None = None) -> None:
        """Seal the current journal file; given a time, only if its first entry is too old.

        The node calls it with the time about once a second; unused pooled memory is freed then too.
        """
        self.journal.seal(now_ms)
        if now_ms is not None:
            self._budget.trim()
            self.readers.trim()

    def apply_flush(self, result: FlushResult) -> None:
        """Replace the tail part by the segment that was made from it, in one step.

        Meta must have recorded the segment durably. The journal files become reusable.
        """
        if result.segment is not None:
            self._catalog.add(result.segment)
        self._letting_go += 1
        self._let_go(iter(result.ends.items()))
        self.flushed_through = max(self.flushed_through, result.last_sequence)
        self.pressure.is_stuck = False
        while self.sealed and self.sealed[0].last_sequence <= result.last_sequence:
            file = self.sealed.popleft()
            self.pressure.sealed_entries -= file.entry_count
            self._files.recycle(file.path)
        self._released()

    def _let_go(self, ends: Iterator[tuple[int, int]]) -> None:
        """Drop tail parts that are in a segment now, a bounded number per loop iteration.

        They may be ten thousand, or a few large ones. Until it is dropped, a partition still reads
        that part from memory, which is correct as well.
        """
        left = LET_GO_IN_A_TURN
        until_s = self._monotonic() + LET_GO_S
        for partition_id, end in ends:
            partition = self._partitions.get(partition_id)
            if partition is not None:
                before = partition.tail_bytes
                partition.flushed(end)
                left -= (before - partition.tail_bytes) // LET_GO_BYTES
            left -= 1
            if left <= 0 or self._monotonic() >= until_s:
                self._scheduler.call_soon(lambda: self._let_go(ends))
                break
        else:
            self._letting_go -= 1
        self._released()

    def flush_stuck(self) -> None:
        """Note that flushes keep failing: appends are then refused at the hard limit.

        Without it callers would be paused until a flush, which may never come.
        """
        self.pressure.is_stuck = True
        self._released()

    def apply_retention(self, start_offsets: Mapping[int, int]) -> list[int]:
        """Raise start offsets; return the ids of segments that no partition needs any more."""
        for partition_id, start_offset in start_offsets.items():
            partition = self._partitions.get(partition_id)
            if partition is not None:
                partition.retain_from(start_offset)
        self._released()
        return self.dead_segments()

    def dead_segments(self) -> list[int]:
        """Return in order the ids of segments in which no partition has readable entries."""
        return self._catalog.dead(self._start_of)

    def _start_of(self, partition_id: int) -> int | None:
        partition = self._partitions.get(partition_id)
        if partition is None:
            return self.foreign_start(partition_id)
        return partition.start_offset

    def forget_segment(self, segment_id: int) -> SegmentInfo | None:
        """Remove a dead segment, which meta has removed before; return it, if it was known.

        Its file may be deleted after the grace period.
        """
        self.readers.forget(segment_id)
        return self._catalog.remove(segment_id)

    def apply_swap(self, swap: Swap) -> None:
        """Replace segments by others in one step; meta must have recorded the swap durably.

        Readers of a removed segment keep it open until they are done. Its file has to stay for a
        grace period, since read plans made before the swap may still open it.
        """
        self._catalog.swap(swap)
        for segment_id in swap.removed:
            self.readers.forget(segment_id)

    @property
    def segments(self) -> Mapping[int, SegmentInfo]:
        """All segments by id, including those with nothing readable."""
        return self._catalog.segments

    @property
    def missing_segments(self) -> Mapping[int, str]:
        """Names of segments whose files or objects are lost, by id, as last checked."""
        return self._catalog.missing

    def check_segments(self, lost_objects: Container[str] | None = None) -> None:
        """Compare the segments with the files of the folder, and log each that is missing.

        `lost_objects` has the names that a new listing of the object store did not have.
        """
        files = frozenset(self._fs.listdir(self.directory.segments))
        for segment in self._catalog.find_missing(files, lost_objects):
            log.error(
                "segment.missing",
                extra={
                    "segment": segment.name,
                    "store": segment.store,
                    "bytes": segment.size,
                    "partitions": len(segment.partitions),
                },
            )

    def _file_sealed(self, file: SealedFile) -> None:
        self.sealed.append(file)
        self.pressure.sealed_entries += file.entry_count
        self.on_sealed(file)

    # -- pressure --------------------------------------------------------------------------

    @property
    def direct(self) -> bool:
        """Whether the file system takes writes past the page cache."""
        return self._files.direct

    @property
    def tail_bytes(self) -> int:
        """Memory of all tails in bytes, including dropped parts that readers still hold."""
        return self._budget.used

    @property
    def tail_limit(self) -> int:
        """Bytes of tail memory beyond which appends are refused."""
        return self.limits.tail_bytes

    @property
    def tail_entries(self) -> int:
        """Number of durable entries that are not yet in a segment."""
        return self.pressure.sealed_entries + self.journal.unsealed_entries

    @property
    def under_pressure(self) -> bool:
        """Whether producers should be paused until `on_relief` calls."""
        return self.pressure.is_high()

    @property
    def _must_seal(self) -> bool:
        """Whether only sealing and flushing the current file can free memory."""
        if self.sealed or self._letting_go:
            return False
        return self.pressure.is_tail_full() and self.journal.unsealed_since_ms is not None

    def on_relief(self, callback: Callable[[], None]) -> None:
        """Call `callback` once, on the loop, as soon as there is no pressure."""
        self._relief.append(callback)
        self.journal.cycle.on_durable = self._released
        self._released()

    def _released(self) -> None:
        """Check for relief after tail memory was freed.

        May run in any thread: the garbage collector frees a reader's views in whichever thread it
        happens to run.
        """
        if not self._relief or self._relief_due:
            return
        if self._must_seal or not self.under_pressure:
            self._relief_due = True
            self._scheduler.call_soon_threadsafe(self._relieve)

    def _relieve(self) -> None:
        self._relief_due = False
        if self._must_seal:
            self.journal.seal()
        if self.under_pressure:
            return
        waiting, self._relief = self._relief, []
        self.journal.cycle.on_durable = None  # before a callback waits again
        for callback in waiting:
            try:
                callback()
            except Exception:  # an error in one callback must not keep the others waiting
                log.exception("log.relief_failed")

    # -- ends ------------------------------------------------------------------------------

    def _journal_failed(self, failure: StorageFailed) -> None:
        self.on_failed(failure)

    def close(self) -> None:
        """Make all added entries durable and release everything but the directory's lock."""
        self.journal.close()
        self.readers.close()
        self._relief.clear()  # readers may free tail memory after the loop is closed


def _journal_files(
    directory: DataDirectory,
    cluster_id: bytes,
    around: LogEnvironment,
    limits: LogLimits,
    free_bytes: Callable[[], int],
) -> JournalFiles:
    return JournalFiles(
        fs=around.fs,
        directory=directory.journal,
        cluster_id=cluster_id,
        scheduler=around.scheduler,
        background=around.background,
        random_bytes=around.random_bytes,
        file_bytes=limits.journal.file_bytes,
        has_room=lambda size: free_bytes() - size >= limits.journal.min_free_bytes,
    )


def _ignore(_: object) -> None:
    pass
