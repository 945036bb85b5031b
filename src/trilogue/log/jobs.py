"""Work on whole files: sealed journal files into a segment, and which segments nobody needs.

Pure functions of files: their arguments and results are plain values, so that a helper process can
run them (`run`) and a test can run them in place. They decide nothing and tell nobody; what they
made counts only when meta has recorded it, and is an orphan until then.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate, islice, zip_longest
from operator import gt
from pathlib import Path
from struct import Struct
from typing import Final, TypeAlias

from trilogue.entry.entry import HEADER_SIZE, LENGTH_PREFIX
from trilogue.log.errors import CorruptLog
from trilogue.log.files import File, FileSystem, OsFileSystem
from trilogue.log.frame import FRAME_HEADER, LOST, PREFIX, Frame, decode_file_header, iter_frames
from trilogue.log.segment import BLOCK_TARGET, Block, EpochStart, SegmentHeader, SegmentWriter
from trilogue.log.segment_info import FlushJob, FlushResult, SegmentInfo

SYNC_SIZE: Final = 8 << 20  # a paced flush syncs this often, so that no burst meets the journal

# A frame's prefix of an entry and what a flush needs of the entry's own header, in one call:
# partition id, owner epoch, 0 | base offset, length, …, last offset delta, base and max timestamp.
_ENTRY: Final = Struct(">QI4xqi11xiqq")
PREFIX_SIZE: Final = PREFIX.size
_SMALLEST: Final = PREFIX_SIZE + HEADER_SIZE

# mapped file, position, length, base, end, owner epoch, base timestamp, max timestamp, append time
Row: TypeAlias = tuple[memoryview, int, int, int, int, int, int, int, int]


class Pace:
    """Sleeps so that work keeps to a rate."""

    __slots__ = ("_bytes_per_second", "_done", "_monotonic", "_sleep", "_start")

    def __init__(
        self,
        bytes_per_second: int | None,
        monotonic: Callable[[], float],
        sleep: Callable[[float], object],
    ) -> None:
        self._bytes_per_second = bytes_per_second
        self._monotonic = monotonic
        self._sleep = sleep
        self._start = monotonic()
        self._done = 0

    def __call__(self, size: int) -> None:
        """Count bytes that were written, and wait until that many are due."""
        if not self._bytes_per_second:
            return
        self._done += size
        early = self._start + self._done / self._bytes_per_second - self._monotonic()
        if early > 0:
            self._sleep(early)


def run(job: FlushJob) -> FlushResult:
    """Flush on the operating system's files: what the helper process is sent."""
    return flush(job, OsFileSystem())


def flush(
    job: FlushJob,
    files: FileSystem,
    *,
    monotonic: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], object] = time.sleep,
) -> FlushResult:
    """Sort what the sealed files hold by partition into one durable segment.

    Afterwards all that was acknowledged up to `last_sequence` is in segments, or it raises: a file
    that holds less than it should is an error, never a shorter segment.
    """
    source = _Source(job)
    for path, incarnation in zip_longest(job.journal_paths, job.incarnations):
        source.read_file(files, Path(path), incarnation)
    if source.last_sequence != max(job.last_sequence, job.flushed_through):
        raise CorruptLog(
            f"the journal goes to frame {source.last_sequence}, {job.last_sequence} were sealed",
            Path(job.journal_paths[-1]) if job.journal_paths else None,
        )
    segment = None
    if any(source.rows.values()):
        pace = Pace(job.bytes_per_second, monotonic, sleep)
        segment = _write(job, source, files, pace)
    return FlushResult(
        segment,
        source.ends(),
        source.last_sequence,
        sum(map(len, source.rows.values())),
        source.bytes_in,
        segment.size if segment else 0,
    )


class _Source:
    """The entries worth keeping, by partition, as places in the mapped files."""

    def __init__(self, job: FlushJob) -> None:
        self._job = job
        self.rows: dict[int, list[Row]] = {partition_id: [] for partition_id in job.known}
        self._floors = {
            partition_id: max(
                job.flushed_ends.get(partition_id, 0), job.start_offsets.get(partition_id, 0)
            )
            for partition_id in job.known
        }
        self._dropped: dict[int, int] = {}  # partition id -> end of the last entry dropped
        self.first_sequence = 0
        self.last_sequence = job.flushed_through
        self.bytes_in = 0

    def read_file(self, files: FileSystem, path: Path, incarnation: int | None) -> None:
        """Take in the frames of one file that no segment has yet."""
        file = files.open(path)
        try:
            view = file.map()
        finally:
            file.close()
        header = decode_file_header(view)
        if header is None or header.incarnation != (incarnation or header.incarnation):
            raise CorruptLog("this is not the journal file that was sealed", path)
        for frame in iter_frames(view, header):
            if frame.sequence <= self._job.flushed_through:
                continue
            if frame.sequence != self.last_sequence + 1 and not frame.flags & LOST:
                raise CorruptLog(
                    f"frame {frame.sequence} follows {self.last_sequence}", path, frame.position
                )
            self.first_sequence = self.first_sequence or frame.sequence
            self.last_sequence = frame.sequence
            self.bytes_in += frame.length
            if self._read_frame(view, frame) != frame.position + frame.facts_at:
                raise CorruptLog(
                    "a frame's entries do not end where they should", path, frame.position
                )

    def ends(self) -> dict[int, int]:
        """Say how far each partition that was met is in segments now, or was let go."""
        ends = dict(self._dropped)
        ends.update((partition_id, rows[-1][4]) for partition_id, rows in self.rows.items() if rows)
        flushed = self._job.flushed_ends
        return {each: max(end, flushed.get(each, 0)) for each, end in ends.items()}

    def _read_frame(self, view: memoryview, frame: Frame) -> int:
        """Note the entries of a frame and return where they end. The one loop per entry."""
        floors, rows, unpack = self._floors, self.rows, _ENTRY.unpack_from
        append_ms = frame.append_time_ms
        position = frame.position + FRAME_HEADER
        last_start = frame.position + frame.facts_at - _SMALLEST
        for _ in range(frame.entry_count):
            if position > last_start:
                return -1
            partition_id, epoch, base, after, delta, base_ms, max_ms = unpack(view, position)
            start = position + PREFIX_SIZE
            length = after + LENGTH_PREFIX
            if length < HEADER_SIZE or delta < 0:
                return -1
            position = start + length
            floor = floors.get(partition_id)
            if floor is None:
                continue
            end = base + delta + 1
            if end <= floor:
                self._dropped[partition_id] = end
                continue
            rows[partition_id].append(
                (view, start, length, base, end, epoch, base_ms, max_ms, append_ms)
            )
        return position


def _write(job: FlushJob, source: _Source, files: FileSystem, pace: Pace) -> SegmentInfo:
    """Write what the source noted, partition by partition, and make it durable."""
    path = Path(job.segment_path)
    if files.exists(path):  # an earlier try died; meta never heard of it
        files.unlink(path)
    header = SegmentHeader(
        job.segment_id, 0, job.node_id, job.node_epoch, job.cluster_id, job.now_ms
    )
    file = files.open(path, create=True)
    try:
        writer = SegmentWriter(
            file, header, _smoothly(file, pace) if job.bytes_per_second else pace
        )
        for partition_id in sorted(source.rows):
            rows = source.rows[partition_id]
            if rows:
                _write_partition(writer, partition_id, rows, job.flushed_ends.get(partition_id, 0))
        info = writer.finish(path.name, source.first_sequence, source.last_sequence)
    finally:
        file.close()
    files.sync_directory(path.parent)
    return info


def _write_partition(
    writer: SegmentWriter, partition_id: int, rows: list[Row], flushed_end: int
) -> None:
    """Write one partition's entries in blocks. Columns, so that no Python runs per entry."""
    views, starts, lengths, bases, ends, epochs, base_ms, max_ms, append_ms = zip(
        *rows, strict=True
    )
    if bases[0] < flushed_end or any(map(gt, ends, islice(bases, 1, None))):
        raise CorruptLog(f"entries of partition {partition_id} overlap in the journal")
    writer.begin(partition_id, _epoch_starts(epochs, bases))
    sums = list(accumulate(lengths))
    first = written = 0
    while first < len(rows):
        after = max(first + 1, bisect_right(sums, written + BLOCK_TARGET))
        data = b"".join(
            [
                view[start : start + length]
                for view, start, length in zip(
                    views[first:after], starts[first:after], lengths[first:after], strict=True
                )
            ]
        )
        writer.block(
            Block(
                bases[first],
                ends[after - 1],
                after - first,
                min(base_ms[first:after]),
                max(max_ms[first:after]),
                min(append_ms[first:after]),
                max(append_ms[first:after]),
            ),
            data,
        )
        first, written = after, sums[after - 1]


def _epoch_starts(epochs: Sequence[int], bases: Sequence[int]) -> list[EpochStart]:
    """Say where owner epochs begin; mostly there is one."""
    starts = [EpochStart(epochs[0], bases[0])]
    if min(epochs) != max(epochs):
        starts.extend(
            EpochStart(epochs[at], bases[at])
            for at in range(1, len(epochs))
            if epochs[at] != epochs[at - 1]
        )
    return starts


def _smoothly(file: File, pace: Pace) -> Callable[[int], None]:
    """Sync now and then while writing at a pace, so that no burst meets the journal's commits."""
    unsynced = 0

    def on_write(size: int) -> None:
        nonlocal unsynced
        unsynced += size
        if unsynced >= SYNC_SIZE:
            unsynced = 0
            file.sync()
        pace(size)

    return on_write


def retired(segments: Iterable[SegmentInfo], start_offsets: Mapping[int, int]) -> list[SegmentInfo]:
    """Name the segments that hold nothing a reader may still ask for.

    A partition that is not among `start_offsets` was deleted.
    """
    return [
        segment
        for segment in segments
        if all(
            partition_id not in start_offsets or extent.end_offset <= start_offsets[partition_id]
            for partition_id, extent in segment.partitions.items()
        )
    ]
