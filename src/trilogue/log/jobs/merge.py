"""Merges segments into fewer and larger ones, or rewrites one that is mostly dead.

Like a flush (flush.py) it is a pure function of files, for the helper process (`run`) or a test
(`merge`). The outputs count only when meta has recorded them; a failed merge leaves no file.

All inputs are read side by side, partition by partition; memory depends on their number, not on
their size. Partitions with much data get segments of their own, the others share. Small blocks of a
partition become one of 256 KiB; its checksum is combined from theirs and compared with the bytes
that are written, so every byte is read once, and the old checksums prove the new ones. A damaged
block is copied as it is, with the checksum that it should have had: reading it stays an error. A
partition whose index is damaged stays where it is, in all inputs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from heapq import merge as merge_sorted
from itertools import groupby, pairwise
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from trilogue.entry.checksum import combine, crc32c
from trilogue.log.errors import CorruptLog
from trilogue.log.files import File, FileSystem
from trilogue.log.jobs.pace import Pace, paced_writer
from trilogue.log.objects.obstore_store import Reach
from trilogue.log.partition_lookups import epochs_within
from trilogue.log.segments.merge_input import (
    DATA_WINDOW_MAX,
    Index,
    MergeInput,
    MergePartition,
    Row,
)
from trilogue.log.segments.segment import (
    BLOCK_TARGET,
    AbortedTransaction,
    Block,
    EpochStart,
    SegmentHeader,
    SegmentWriter,
)
from trilogue.log.segments.segment_files import files_for
from trilogue.log.segments.segment_info import MergeJob, MergeResult, SegmentInfo, segment_name
from trilogue.log.transactions import rows_within

WINDOWS_BYTES: Final = 16 << 20  # of entries in memory, shared by the inputs
WINDOW_MIN: Final = 128 << 10
LARGE: Final = BLOCK_TARGET // 2  # such a block is not joined with the next


def run(job: MergeJob, reach: Reach | None = None) -> MergeResult:
    """Merge on the operating system's files and objects; the entry point of the helper process."""
    return merge(job, files_for(job.inputs, reach))


def merge(
    job: MergeJob,
    files: FileSystem,
    *,
    monotonic: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], object] = time.sleep,
) -> MergeResult:
    """Write the live entries of the inputs into durable segments.

    Raises CorruptLog for an input that is damaged as a whole (its `path` is in the error), OSError
    if an output cannot be written. No file is left behind then.
    """
    outputs = _Outputs(job, files, Pace(job.bytes_per_second, monotonic, sleep))
    with ExitStack() as stack:
        try:
            inputs = _open(job, files, stack)
            copier = _Copier(inputs)
            left = _merge_all(job, inputs, copier, outputs)
            outputs.finish()
        except Exception:  # meta will not record these files: on a full disk they must not stay
            outputs.abandon()
            raise
    added = tuple(outputs.made)
    return MergeResult(
        added,
        {number: tuple(partition_ids) for number, partition_ids in left.items()},
        sum(sum(each.partitions.column("entry_count")) for each in added),
        sum(each.bytes_read for each in inputs),
        sum(each.size for each in added),
        sum(each.data_size for each in inputs)
        - sum(each.data_size for each in added)
        - _size_of(left, inputs),
        copier.damaged_blocks,
    )


def _open(job: MergeJob, files: FileSystem, stack: ExitStack) -> list[MergeInput]:
    window = max(WINDOW_MIN, min(DATA_WINDOW_MAX, WINDOWS_BYTES // max(1, len(job.inputs))))
    opened = []
    for number, info in enumerate(job.inputs):
        path = Path(job.directory) / info.name
        opened.append(MergeInput(files, path, info, number, window=window, direct=job.direct))
        stack.callback(opened[-1].close)
    return opened


def _size_of(left: dict[int, list[int]], inputs: Iterable[MergeInput]) -> int:
    """Bytes of the entries that stay in the inputs."""
    infos = {each.info.segment_id: each.info for each in inputs}
    return sum(
        infos[segment_id].partitions[each].size
        for segment_id, partition_ids in left.items()
        for each in partition_ids
    )


# ── partition by partition ────────────────────────────────────────────────────────────────────


def _merge_all(
    job: MergeJob, inputs: Sequence[MergeInput], copier: _Copier, outputs: _Outputs
) -> dict[int, list[int]]:
    """Write all partitions; return those that have to stay, by segment id."""
    left: dict[int, list[int]] = {}
    found = merge_sorted(*(each.partitions(job.starts) for each in inputs))
    for partition_id, group in groupby(found, itemgetter(0)):
        places = list(group)
        indexes = _indexes(inputs, places, job.starts[partition_id])
        if indexes is None:
            for place in places:
                left.setdefault(job.inputs[place.number].segment_id, []).append(partition_id)
            continue
        partition = _Partition(partition_id, indexes)
        if sum([row[3] for index in indexes for row in index.rows]) < job.own_bytes:
            outputs.write_shared(partition, copier)
        else:
            outputs.write_own(partition, copier)
    return left


def _indexes(
    inputs: Sequence[MergeInput], places: Iterable[MergePartition], start_offset: int
) -> list[Index] | None:
    """Read one partition's indexes, by offset; None if one of them is damaged."""
    indexes = []
    for _, number, record in places:
        index = None if record is None else inputs[number].index(record, start_offset)
        if index is None:
            return None
        indexes.append(index)
    if len(indexes) > 1:
        indexes.sort(key=_base_offset)
        for one, other in pairwise(indexes):
            if one.rows[-1][1] > other.rows[0][0]:
                return None  # inputs that overlap contradict each other
    return indexes


def _base_offset(index: Index) -> int:
    return index.rows[0][0]


class _Partition:
    """The live blocks of one partition, and the rows of their index."""

    def __init__(self, partition_id: int, indexes: list[Index]) -> None:
        self.partition_id = partition_id
        self.indexes = indexes

    def epochs(self, base_offset: int, end_offset: int) -> list[EpochStart]:
        """Return where owner epochs begin in a range of offsets."""
        return epochs_within([index.epochs for index in self.indexes], base_offset, end_offset)

    def aborted(self, base_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Return the aborted transactions that matter to readers of a range of offsets."""
        rows = [index.aborted for index in self.indexes]
        return rows_within(rows, base_offset, end_offset) if any(rows) else []

    def pieces(self, target_bytes: int) -> Iterator[list[Index]]:
        """Yield parts of the partition; each ends with the block that reaches `target_bytes`."""
        piece: list[Index] = []
        size = 0
        for index in self.indexes:
            first = 0
            for at, row in enumerate(index.rows):
                size += row[3]
                if size >= target_bytes:
                    yield [*piece, index._replace(rows=index.rows[first : at + 1])]
                    piece, first, size = [], at + 1, 0
            if first < len(index.rows):
                piece.append(index._replace(rows=index.rows[first:]))
        if piece:
            yield piece


# ── blocks ────────────────────────────────────────────────────────────────────────────────────

_Part: TypeAlias = tuple[Row, Index]  # a block, and the index it is in


class _Copier:
    """Copies blocks to a segment, small ones of one partition joined."""

    def __init__(self, inputs: Sequence[MergeInput]) -> None:
        self.damaged_blocks = 0
        self._inputs = inputs
        self._room = memoryview(bytearray(BLOCK_TARGET))
        self._parts: list[_Part] = []  # of the blocks in the buffer
        self._used = 0

    def copy(self, output: _Output, partition: _Partition, indexes: Sequence[Index]) -> None:
        """Write some of a partition's blocks."""
        base_offset, end_offset = indexes[0].rows[0][0], indexes[-1].rows[-1][1]
        output.writer.begin(
            partition.partition_id,
            partition.epochs(base_offset, end_offset),
            partition.aborted(base_offset, end_offset),
        )
        parts, room = self._parts, self._room
        for index in indexes:
            rows = index.rows
            for row, data in zip(rows, self._inputs[index.number].blocks(rows), strict=True):
                size = row[3]
                if self._used + size > BLOCK_TARGET:
                    self._write_joined(output)
                if not parts and size >= LARGE:  # the view is valid until the next read
                    self._check(index, data, row)
                    _put(output, [(row, index)], data, row[7])
                    continue
                room[self._used : self._used + size] = data
                parts.append((row, index))
                self._used += size
        self._write_joined(output)

    def _write_joined(self, output: _Output) -> None:
        """Write the joined blocks as one block, if its checksum is correct."""
        parts = self._parts
        if not parts:
            return
        data = self._room[: self._used]
        checksum = parts[0][0][7]
        for row, _ in parts[1:]:
            checksum = combine(checksum, row[7], row[3])
        if crc32c(data) == checksum:
            _put(output, parts, data, checksum)
        else:
            self._write_apart(output, data)
        parts.clear()
        self._used = 0

    def _write_apart(self, output: _Output, data: memoryview) -> None:
        """Write damaged blocks unchanged, so that reading them stays an error."""
        at = 0
        for part in self._parts:
            row = part[0]
            block = data[at : at + row[3]]
            self._check(part[1], block, row)
            _put(output, [part], block, row[7])
            at += row[3]

    def _check(self, index: Index, block: memoryview, row: Row) -> None:
        """Count a damaged block. A remote one may be intact in the store and damaged on the way."""
        if crc32c(block) != row[7]:
            opened = self._inputs[index.number]
            if opened.is_remote:
                raise CorruptLog("a block came damaged from object storage", opened.path, row[2])
            self.damaged_blocks += 1


def _put(output: _Output, parts: Sequence[_Part], data: memoryview, checksum: int) -> None:
    """Write a block whose checksum is known."""
    first, index = parts[0]
    last = parts[-1][0]
    if len(parts) == 1:
        times = index.min_event_ms, first[5], index.min_append_ms, first[6]
        block = Block(first[0], first[1], first[4], *times)
    else:
        block = Block(
            first[0],
            last[1],
            sum([row[4] for row, _ in parts]),
            min([index.min_event_ms for _, index in parts]),
            max([row[5] for row, _ in parts]),
            min([index.min_append_ms for _, index in parts]),
            max([row[6] for row, _ in parts]),
        )
    size = len(data)
    # An appender past the page cache copies at once, the other one keeps the buffer.
    kept = data if output.file.direct else bytes(data)
    output.writer.block(block, kept, [(0, size, checksum)])


# ── outputs ───────────────────────────────────────────────────────────────────────────────────


class _Output(NamedTuple):
    """One segment that is being written."""

    path: Path
    file: File
    writer: SegmentWriter


class _Outputs:
    """The output segments: a shared one, and those of large partitions."""

    def __init__(self, job: MergeJob, files: FileSystem, pace: Pace) -> None:
        self.made: list[SegmentInfo] = []
        self._job = job
        self._files = files
        self._pace = pace
        self._ids = iter(job.segment_ids)
        self._shared: _Output | None = None
        self._begun: list[tuple[Path, File]] = []

    def write_shared(self, partition: _Partition, copier: _Copier) -> None:
        """Write a partition into the shared segment."""
        output = self._shared = self._shared or self._begin()
        copier.copy(output, partition, partition.indexes)
        if output.writer.size >= self._job.target_bytes:
            self._shared = None
            self._end(output)

    def write_own(self, partition: _Partition, copier: _Copier) -> None:
        """Write a partition into as many segments as it needs."""
        for piece in partition.pieces(self._job.target_bytes):
            output = self._begin()
            copier.copy(output, partition, piece)
            self._end(output)

    def finish(self) -> None:
        """Finish all outputs; return when they are durable."""
        shared, self._shared = self._shared, None
        if shared is not None:
            self._end(shared)
        if self.made:
            self._files.sync_directory(Path(self._job.directory))
        self.made.sort(key=attrgetter("segment_id"))

    def abandon(self) -> None:
        """Remove all files that were created."""
        for path, file in self._begun:
            file.close()
            with suppress(OSError):
                self._files.unlink(path)

    def _begin(self) -> _Output:
        job = self._job
        segment_id = next(self._ids, None)
        if segment_id is None:
            raise ValueError(f"{len(job.segment_ids)} segment ids are too few")
        header = SegmentHeader(
            segment_id, job.level, job.node_id, job.node_epoch, job.cluster_id, job.now_ms
        )
        path = Path(job.directory) / segment_name(segment_id)
        file = self._files.open(path, create=True, direct=job.direct)
        self._begun.append((path, file))
        return _Output(path, file, paced_writer(file, header, self._pace))

    def _end(self, output: _Output) -> None:
        inputs = self._job.inputs
        first = min(each.first_sequence for each in inputs)
        last = max(each.last_sequence for each in inputs)
        self.made.append(output.writer.finish(output.path.name, first, last))
        output.file.close()
