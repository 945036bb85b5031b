"""Reads one partition's blocks in order for a compaction, and writes its new segments.

One input is open at a time, and one mebibyte of its entries is in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from trilogue.entry.checksum import crc32c
from trilogue.entry.entry import EntryError, EntryHeader
from trilogue.entry.walk import read_header, walk_headers
from trilogue.log.errors import CorruptLog
from trilogue.log.files import File, FileSystem
from trilogue.log.jobs.compaction_job import CompactJob
from trilogue.log.jobs.pace import Pace, smoothly
from trilogue.log.partition_lookups import epochs_within
from trilogue.log.segments.merge_input import DATA_WINDOW_MAX, Index, MergeInput, Row
from trilogue.log.segments.segment import (
    BLOCK_TARGET,
    Block,
    EpochStart,
    SegmentHeader,
    SegmentWriter,
)
from trilogue.log.segments.segment_info import SegmentInfo, segment_name
from trilogue.log.transactions import rows_within

NO_TIME: Final = -1
WHOLE: Final = BLOCK_TARGET // 2  # an unchanged block of this size is not joined with others


class Blocks:
    """One partition's blocks in one segment. Raises CorruptLog for any damage."""

    def __init__(self, opened: MergeInput, path: Path, index: Index, pace: Pace) -> None:
        self.segment_id = opened.info.segment_id
        self.index = index
        self._opened = opened
        self._path = path
        self._pace = pace

    @property
    def base_offset(self) -> int:
        """The first offset to read here."""
        return self.index.rows[0][0]

    def read(self) -> Iterator[tuple[Row, memoryview]]:
        """Yield each block with its row of the index, verified.

        The bytes of a block are valid until the next one is read.
        """
        rows = self.index.rows
        for row, data in zip(rows, self._opened.blocks(rows), strict=True):
            if crc32c(data) != row[7]:
                raise CorruptLog("a block does not match its checksum", self._path, row[2])
            yield row, data
            self._pace(len(data))

    def entries(self, row: Row, data: memoryview) -> Iterator[tuple[EntryHeader, memoryview]]:
        """Yield the header and the bytes of each entry of a block."""
        try:
            for at, length, *_ in walk_headers(data):
                yield read_header(data, at), data[at : at + length]
        except EntryError as error:
            raise CorruptLog(str(error), self._path, row[2]) from error


class Source:
    """Opens the segments that hold something of a partition, one after the other."""

    def __init__(self, job: CompactJob, files: FileSystem, pace: Pace) -> None:
        self.bytes_read = 0
        self._job = job
        self._files = files
        self._pace = pace

    def inputs(self, floor: int) -> Iterator[Blocks]:
        """Open each input and yield its blocks that end above `floor`."""
        partition_id = self._job.partition_id
        for number, info in enumerate(self._job.inputs):
            extent = info.partitions.find_extent(partition_id)
            if extent is None or extent.end_offset <= floor:
                continue
            path = Path(self._job.directory) / info.name
            opened = MergeInput(
                self._files, path, info, number, window=DATA_WINDOW_MAX, direct=self._job.direct
            )
            try:
                index = None
                for found in opened.partitions({partition_id: floor}):
                    if found.record is not None:
                        index = opened.index(found.record, floor)
                if index is None:
                    raise CorruptLog(f"the index of partition {partition_id} is damaged", path)
                yield Blocks(opened, path, index, self._pace)
            finally:
                self.bytes_read += opened.bytes_read
                opened.close()


class Output:
    """Writes the segments of one partition, each up to its target size."""

    def __init__(self, job: CompactJob, files: FileSystem, end_offset: int) -> None:
        """Begin; no entry of an aborted transaction below `end_offset` will be added."""
        self.entries = 0
        self._end_offset = end_offset
        self._job = job
        self._files = files
        self._ids = list(job.segment_ids)
        self._made: list[SegmentInfo] = []
        self._paths: list[Path] = []
        self._file: File | None = None
        self._writer: SegmentWriter | None = None
        self._inputs: list[Index] = []
        self._sequences: list[tuple[int, int]] = []
        self._range = (0, 0)  # offsets in the open segment
        self._pending = bytearray()  # entries of the next block
        self._noted: list[Block] = []  # index rows of these entries

    def follow(self, blocks: Blocks) -> None:
        """Set the input of the entries that are added from now on."""
        index = blocks.index
        aborted = [each for each in index.aborted if each.last_offset >= self._end_offset]
        self._inputs.append(index._replace(rows=[], aborted=aborted))  # there may be very many
        info = self._job.inputs[index.number]
        self._sequences.append((info.first_sequence, info.last_sequence))

    def copy(self, row: Row, data: memoryview) -> None:
        """Write a block unchanged."""
        self._flush()
        index = self._inputs[-1]
        block = Block(
            row[0], row[1], row[4], index.min_event_ms, row[5], index.min_append_ms, row[6]
        )
        self._put(block, memoryview(bytes(data)), row[7])

    def add(self, header: EntryHeader, entry: memoryview | bytes, append_ms: int) -> None:
        """Add an entry to the block that fills."""
        if self._noted and len(self._pending) + len(entry) > BLOCK_TARGET:
            self._flush()
        index = self._inputs[-1]
        event_ms = header.max_timestamp if header.record_count else NO_TIME
        times = (index.min_event_ms, event_ms, index.min_append_ms, append_ms)
        self._noted.append(Block(header.base_offset, header.last_offset + 1, 1, *times))
        self._pending += entry

    def finish(self) -> tuple[SegmentInfo, ...]:
        """Finish the open segment; return all segments when they are durable."""
        self._flush()
        self._end()
        if self._made:
            self._files.sync_directory(Path(self._job.directory))
        return tuple(self._made)

    def abandon(self) -> None:
        """Remove all files that were created."""
        if self._file is not None:
            with suppress(OSError):
                self._file.close()
        for path in self._paths:
            with suppress(OSError):
                self._files.unlink(path)

    def _flush(self) -> None:
        """Write the added entries as one block."""
        noted, self._noted = self._noted, []
        data, self._pending = self._pending, bytearray()
        if noted:
            _, _, counts, *times = zip(*noted, strict=True)
            sums = (sum(counts), min(times[0]), max(times[1]), min(times[2]), max(times[3]))
            self._put(Block(noted[0].base_offset, noted[-1].end_offset, *sums), memoryview(data))

    def _put(self, block: Block, data: bytearray | memoryview, checksum: int | None = None) -> None:
        writer = self._writer or self._begin(block.base_offset)
        known = [] if checksum is None else [(0, len(data), checksum)]
        writer.block(block, data, known)
        self.entries += block.entry_count
        self._range = (self._range[0], block.end_offset)
        if writer.size >= self._job.target_bytes and self._ids:
            self._end()

    def _begin(self, base_offset: int) -> SegmentWriter:
        job = self._job
        segment_id = self._ids.pop(0)
        path = Path(job.directory) / segment_name(segment_id)
        self._file = self._files.open(path, create=True, direct=job.direct)
        self._paths.append(path)
        header = SegmentHeader(
            segment_id, job.level, job.node_id, job.node_epoch, job.cluster_id, job.now_ms
        )
        on_write = smoothly(self._file)  # reading the blocks keeps the pace
        self._writer = SegmentWriter(self._file, header, on_write, gently=True)
        self._writer.begin(job.partition_id, [EpochStart(0, base_offset)])
        self._range = (base_offset, base_offset)
        return self._writer

    def _end(self) -> None:
        """Finish the open segment durably."""
        writer, file = self._writer, self._file
        if writer is None or file is None:
            return
        writer.amend(
            epochs_within([each.epochs for each in self._inputs], *self._range),
            rows_within([each.aborted for each in self._inputs], *self._range),
        )
        first = min(each[0] for each in self._sequences)
        last = max(each[1] for each in self._sequences)
        self._made.append(writer.finish(self._paths[-1].name, first, last))
        self._writer = self._file = None
        file.close()
