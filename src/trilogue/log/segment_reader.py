"""Reads segments: whole entries of one partition from an offset on, never a byte unverified.

Plain blocking calls, to be made in a thread where that matters; several threads may read at once.
It needs nothing of the broker: an executor opens segments with `OsFileSystem`, a manifest and this.

What is damaged costs as little as it can: a block or a partition's part of the footer costs that
partition, the header and the trailer the segment. The answer is then `CorruptLog`, never bytes that
nobody wrote: a block's checksum covers the entries' headers too and is verified when the block is
first read since opening.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from trilogue.entry.checksum import crc32c
from trilogue.entry.entry import EntryError
from trilogue.entry.walk import walk_headers
from trilogue.log.errors import CorruptLog, NewerFormat
from trilogue.log.files import File, FileSystem
from trilogue.log.segment import (
    ABORTED,
    BLOCK,
    EPOCH,
    FORMAT_VERSION,
    HEADER,
    HEADER_CHECKED,
    HEADER_MAGIC,
    RECORD,
    RECORD_CHECKED,
    TRAILER,
    TRAILER_CHECKED,
    TRAILER_MAGIC,
    AbortedTransaction,
    EpochStart,
    SegmentHeader,
)
from trilogue.log.segment_info import Extent, SegmentInfo

HANDLES_MAX: Final = 64  # open segments; each costs a descriptor and its footer
NOTHING: Final = memoryview(b"")


class _Index:
    """Where one partition's blocks are."""

    __slots__ = (
        "aborted",
        "bases",
        "checksums",
        "counts",
        "ends",
        "epochs",
        "latest",
        "positions",
        "sizes",
        "verified",
    )

    def __init__(self, section: memoryview, blocks: int, epochs: int) -> None:
        at = blocks * BLOCK.size
        rows = list(BLOCK.iter_unpack(section[:at]))
        self.bases = [int(row[0]) for row in rows]
        self.ends = [int(row[1]) for row in rows]
        self.positions = [int(row[2]) for row in rows]
        self.sizes = [int(row[3]) for row in rows]
        self.counts = [int(row[4]) for row in rows]
        self.latest = [int(row[5]) for row in rows]  # event time
        self.checksums = [int(row[7]) for row in rows]
        self.verified = bytearray(blocks)
        then = at + epochs * EPOCH.size
        self.epochs = [EpochStart(row[0], row[2]) for row in EPOCH.iter_unpack(section[at:then])]
        self.aborted = [AbortedTransaction(*row) for row in ABORTED.iter_unpack(section[then:])]


class SegmentReader:
    """One open segment: the directory is read at opening, an index when first needed."""

    def __init__(self, file: File, path: Path, info: SegmentInfo | None = None) -> None:
        """Take over an open file; `info`, where known, has to agree with what the file says."""
        self._file = file
        self._path = path
        size = file.size()
        if size < HEADER.size + TRAILER.size:
            raise CorruptLog(f"{size} bytes are no segment", path)
        self.header = self._read_header(info)
        position, length, directory_position, partitions = self._read_trailer(size, info)
        self._footer_position = position
        self._footer = memoryview(file.pread(length, position))
        self.extents: dict[int, Extent] = {}
        self._sections: dict[int, tuple[int, int, int, int, int]] = {}
        self._indexes: dict[int, _Index] = {}
        self._damaged = 0
        at = directory_position - position
        if not 0 <= at <= length or length - at != partitions * RECORD.size:
            raise self._corrupt("the directory is not where the trailer says", directory_position)
        for row in range(at, length, RECORD.size):
            self._read_record(self._footer[row : row + RECORD.size])

    @classmethod
    def open(cls, files: FileSystem, path: Path, info: SegmentInfo | None = None) -> SegmentReader:
        """Open a segment and verify header, trailer and directory."""
        try:
            file = files.open(path)
        except FileNotFoundError:
            raise CorruptLog("the segment is missing", path) from None
        try:
            return cls(file, path, info)
        except BaseException:
            file.close()
            raise

    def close(self) -> None:
        """Give the descriptor back; nobody may be reading."""
        self._file.close()

    # ── reading ───────────────────────────────────────────────────────────────────────────────

    def read(self, partition_id: int, offset: int, max_bytes: int) -> memoryview:
        """Return whole entries from the one that contains `offset`, or the next one behind a hole.

        At most `max_bytes`, but always one entry; nothing at all when the segment has none there.
        """
        index = self._index(partition_id)
        first = self._block_of(index, offset) if index else 0
        if index is None or first == len(index.bases):
            return NOTHING
        base, end, size = index.bases[first], index.ends[first], index.sizes[first]
        skipped = size * max(0, offset - base) // (end - base)  # a guess: entries are alike
        last, room = first, max_bytes + skipped - size
        while last + 1 < len(index.bases) and room > 0:
            last += 1
            room -= index.sizes[last]
        data = self._read_blocks(partition_id, index, first, last)
        start = 0
        if offset > base:
            start = self._entry_at(partition_id, index, first, data[:size], offset)
            if start == size:  # a hole between the last entry and the block's end cannot be
                raise self._corrupt("the index and its block disagree", index.positions[first])
        if start + max_bytes >= len(data):
            return data[start:]
        origin = index.positions[first]
        number = bisect_right(index.positions, origin + start + max_bytes) - 1  # the cut is in it
        at = index.positions[number] - origin
        walked = self._walk(partition_id, index, number, data[at : at + index.sizes[number]])
        ends = [at, *(at + position + length for position, length, *_ in walked)]
        after = bisect_right(ends, start + max_bytes) - 1
        return data[start : max(ends[after], ends[bisect_right(ends, start)])]

    def entry_for_time(
        self, partition_id: int, timestamp_ms: int, from_offset: int = 0
    ) -> memoryview | None:
        """Return the first entry, from the one with `from_offset` on, that may have this time.

        It is the first whose largest event time is not earlier. The caller looks inside, and
        asks again from the entry's end if its header said more than its records.
        """
        index = self._index(partition_id)
        if index is None:
            return None
        for number in range(self._block_of(index, from_offset), len(index.bases)):
            if index.latest[number] < timestamp_ms:
                continue
            data = self._read_blocks(partition_id, index, number, number)
            for at, length, base, delta, latest, *_ in self._walk(
                partition_id, index, number, data
            ):
                if latest >= timestamp_ms and base + delta >= from_offset:
                    return data[at : at + length]
        return None

    def epochs(self, partition_id: int) -> list[EpochStart]:
        """Return where in this segment each owner epoch of a partition begins."""
        index = self._index(partition_id)
        return list(index.epochs) if index else []

    def aborted(self, partition_id: int) -> list[AbortedTransaction]:
        """Return the aborted transactions that have entries of a partition here."""
        index = self._index(partition_id)
        return list(index.aborted) if index else []

    # ── blocks ────────────────────────────────────────────────────────────────────────────────

    @staticmethod
    def _block_of(index: _Index, offset: int) -> int:
        """Find the block that has `offset` or what follows it; as many as there are = none."""
        number = max(0, bisect_right(index.bases, offset) - 1)
        return number + 1 if offset >= index.ends[number] else number

    def _read_blocks(self, partition_id: int, index: _Index, first: int, last: int) -> memoryview:
        """Read consecutive blocks in one call and verify those that were not yet."""
        position = index.positions[first]
        size = index.positions[last] + index.sizes[last] - position
        data = memoryview(self._pread(size, position))
        for number in range(first, last + 1):
            if index.verified[number]:
                continue
            at = index.positions[number] - position
            if crc32c(data[at : at + index.sizes[number]]) != index.checksums[number]:
                raise self._corrupt(
                    f"a block of partition {partition_id} does not match its checksum",
                    index.positions[number],
                )
            index.verified[number] = 1
        return data

    def _walk(
        self, partition_id: int, index: _Index, number: int, block: memoryview
    ) -> list[tuple[int, int, int, int, int, int, int, int]]:
        try:
            walked = walk_headers(block)
        except EntryError as error:
            raise self._corrupt(
                f"partition {partition_id}: {error}", index.positions[number]
            ) from error
        if len(walked) != index.counts[number] or walked[0][2] != index.bases[number]:
            raise self._corrupt("the index and its block disagree", index.positions[number])
        return walked

    def _entry_at(
        self, partition_id: int, index: _Index, number: int, block: memoryview, offset: int
    ) -> int:
        """Find where the entry starts that contains `offset` or follows it."""
        for at, _, base, delta, *_ in self._walk(partition_id, index, number, block):
            if base + delta >= offset:
                return at
        return len(block)

    # ── footer ────────────────────────────────────────────────────────────────────────────────

    def _index(self, partition_id: int) -> _Index | None:
        """Decode a partition's section when it is first needed; None: there is none of it here."""
        index = self._indexes.get(partition_id)
        if index is not None:
            return index
        where = self._sections.get(partition_id)
        if where is None:
            if self._damaged:
                raise self._corrupt(f"partition {partition_id} may be in a damaged directory", None)
            return None
        position, blocks, epochs, aborted, checksum = where
        size = blocks * BLOCK.size + epochs * EPOCH.size + aborted * ABORTED.size
        at = position - self._footer_position
        section = self._footer[at : at + size]
        if at < 0 or len(section) != size or not blocks or crc32c(section) != checksum:
            raise self._corrupt(f"the index of partition {partition_id} is damaged", position)
        index = self._indexes[partition_id] = _Index(section, blocks, epochs)
        return index

    def _read_record(self, record: memoryview) -> None:
        """Take in one line of the directory; a damaged one costs the partition it was about."""
        *fields, checksum = RECORD.unpack(record)
        if crc32c(record[:RECORD_CHECKED]) != checksum:
            self._damaged += 1
            return
        extent = Extent(*fields[:7], *fields[8:12])
        self.extents[extent.partition_id] = extent
        position, blocks, epochs, aborted, section_checksum, _ = fields[12:]
        self._sections[extent.partition_id] = (position, blocks, epochs, aborted, section_checksum)

    def _read_header(self, info: SegmentInfo | None) -> SegmentHeader:
        data = self._pread(HEADER.size, 0)
        magic, version, _, level, flags, segment_id, node_id, epoch, cluster_id, created_ms, crc = (
            HEADER.unpack(data)
        )
        if magic != HEADER_MAGIC or crc32c(data[:HEADER_CHECKED]) != crc:
            raise self._corrupt("the header is damaged, or this is no segment", 0)
        if version > FORMAT_VERSION or flags:
            raise NewerFormat(f"segment format {version}, flags {flags}: {self._path}")
        if info is not None and (info.segment_id, info.node_id, info.node_epoch) != (
            segment_id, node_id, epoch
        ):  # fmt: skip
            raise self._corrupt(f"this is segment {segment_id} of {node_id}/{epoch}, not {info}", 0)
        return SegmentHeader(segment_id, level, node_id, epoch, cluster_id, created_ms)

    def _read_trailer(self, size: int, info: SegmentInfo | None) -> tuple[int, int, int, int]:
        at = size - TRAILER.size
        data = self._pread(TRAILER.size, at)
        (
            position,
            length,
            directory,
            partitions,
            _,
            _,
            segment_id,
            first,
            last,
            version,
            crc,
            magic,
        ) = TRAILER.unpack(data)
        if magic != TRAILER_MAGIC or crc32c(data[:TRAILER_CHECKED]) != crc:
            raise self._corrupt("the trailer is damaged, or the file was cut", at)
        if version > FORMAT_VERSION:
            raise NewerFormat(f"segment format {version} is newer: {self._path}")
        if segment_id != self.header.segment_id or position + length != at:
            raise self._corrupt("header and trailer are not of one file", at)
        if info is not None and (info.size, info.footer_position, info.last_sequence) != (
            size, position, last
        ):  # fmt: skip
            raise self._corrupt(f"the file has frames {first} to {last}, not as in {info}", at)
        return position, length, directory, partitions

    def _pread(self, size: int, position: int) -> bytes:
        """Read exactly this much; a disk that cannot costs what a damaged one costs."""
        try:
            data = self._file.pread(size, position)
        except OSError as error:
            raise self._corrupt(f"cannot be read ({error})", position) from error
        if len(data) != size:
            raise self._corrupt("the file ends early", position + len(data))
        return data

    def _corrupt(self, reason: str, position: int | None) -> CorruptLog:
        return CorruptLog(reason, self._path, position)


class _Handle:
    __slots__ = ("reader", "retired", "users")

    def __init__(self, reader: SegmentReader) -> None:
        self.reader = reader
        self.users = 0
        self.retired = False


class SegmentReaders:
    """The open segments of a folder: a bounded number, shared by all threads.

    A segment stays open while somebody reads it, also when it was pushed out or forgotten
    meanwhile: closing a descriptor under a reader would let it read another file's bytes.
    """

    def __init__(self, files: FileSystem, directory: Path, limit: int = HANDLES_MAX) -> None:
        self._files = files
        self._directory = directory
        self._limit = limit
        self._handles: OrderedDict[int, _Handle] = OrderedDict()
        self._lock = threading.Lock()

    def read(self, info: SegmentInfo, partition_id: int, offset: int, max_bytes: int) -> memoryview:
        """Read from one segment; see `SegmentReader.read`."""
        with self.lease(info) as reader:
            return reader.read(partition_id, offset, max_bytes)

    @contextmanager
    def lease(self, info: SegmentInfo) -> Iterator[SegmentReader]:
        """Hold a segment open."""
        handle = self._take(info)
        try:
            yield handle.reader
        finally:
            self._give_back(handle)

    def forget(self, segment_id: int) -> None:
        """Close a segment, as soon as nobody reads it: its file is about to go."""
        with self._lock:
            handle = self._handles.pop(segment_id, None)
            if handle is not None:
                self._retire(handle)

    def close(self) -> None:
        """Close them all, those in use when they are given back."""
        with self._lock:
            while self._handles:
                self._retire(self._handles.popitem()[1])

    def _take(self, info: SegmentInfo) -> _Handle:
        with self._lock:
            handle = self._handles.get(info.segment_id)
            if handle is None:
                path = self._directory / info.name
                handle = _Handle(SegmentReader.open(self._files, path, info))
                self._handles[info.segment_id] = handle
            self._handles.move_to_end(info.segment_id)
            handle.users += 1
            while len(self._handles) > self._limit:
                self._retire(self._handles.popitem(last=False)[1])
            return handle

    def _give_back(self, handle: _Handle) -> None:
        with self._lock:
            handle.users -= 1
            if handle.retired and not handle.users:
                handle.reader.close()

    @staticmethod
    def _retire(handle: _Handle) -> None:
        handle.retired = True
        if not handle.users:
            handle.reader.close()
