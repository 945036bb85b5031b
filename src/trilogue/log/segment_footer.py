"""What a segment says about itself: header, trailer, directory, and each partition's block index.

Read once when a segment is opened; the sections of partitions are verified and decoded when they
are first needed. Layout: segment.py.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from pathlib import Path
from typing import Final

from trilogue.entry.checksum import crc32c
from trilogue.log.errors import CorruptLog, NewerFormat
from trilogue.log.extents import Extent
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
from trilogue.log.segment_info import SegmentInfo

KNOWN_MAX: Final = 32  # places remembered per partition, one for each reader that goes on


class BlockIndex:
    """Where one partition's blocks are, which were verified, and where readers left off."""

    __slots__ = (
        "aborted",
        "appended",
        "bases",
        "checksums",
        "ends",
        "epochs",
        "known",
        "latest",
        "positions",
        "sizes",
        "stop",
        "verified",
    )

    def __init__(self, section: memoryview, blocks: int, epochs: int) -> None:
        at = blocks * BLOCK.size
        rows = list(BLOCK.iter_unpack(section[:at]))
        self.bases = [int(row[0]) for row in rows]
        self.ends = [int(row[1]) for row in rows]
        self.positions = [int(row[2]) for row in rows]
        self.sizes = [int(row[3]) for row in rows]
        self.latest = [int(row[5]) for row in rows]  # event time
        self.appended = [int(row[6]) for row in rows]  # append time, the latest
        self.checksums = [int(row[7]) for row in rows]
        self.stop = self.positions[-1] + self.sizes[-1]  # where the extent ends
        self.verified = bytearray(blocks)
        self.known: dict[int, int] = {}  # offset -> position of the entry that has or follows it
        then = at + epochs * EPOCH.size
        self.epochs = [EpochStart(row[0], row[2]) for row in EPOCH.iter_unpack(section[at:then])]
        # with those that are open at the end: transactions.py
        self.aborted = [AbortedTransaction(*row) for row in ABORTED.iter_unpack(section[then:])]

    def block_of(self, offset: int) -> int:
        """Find the block that has `offset` or what follows it; as many as there are = none."""
        number = max(0, bisect_right(self.bases, offset) - 1)
        return number + 1 if offset >= self.ends[number] else number

    def remember(self, offset: int, position: int) -> None:
        """Note where a reader will go on."""
        if len(self.known) >= KNOWN_MAX:
            self.known.clear()
        self.known[offset] = position


class Footer:
    """All but the entries. `pread(size, position)` gives exactly that many bytes or raises."""

    def __init__(
        self,
        path: Path,
        size: int,
        pread: Callable[[int, int], bytes],
        info: SegmentInfo | None,
    ) -> None:
        """Verify header, trailer and directory; `info`, where known, has to agree."""
        self._path = path
        if size < HEADER.size + TRAILER.size:
            raise CorruptLog(f"{size} bytes are no segment", path)
        self.header = read_header(path, pread(HEADER.size, 0), info)
        trailer = pread(TRAILER.size, size - TRAILER.size)
        self._position, length, directory_position, partitions = read_trailer(
            path, trailer, size, self.header, info
        )
        self._data = memoryview(pread(length, self._position))
        self.extents: dict[int, Extent] = {}
        self._sections: dict[int, tuple[int, int, int, int, int]] = {}
        self._indexes: dict[int, BlockIndex] = {}
        self._damaged = 0
        at = directory_position - self._position
        if not 0 <= at <= length or length - at != partitions * RECORD.size:
            raise self.corrupt("the directory is not where the trailer says", directory_position)
        for row in range(at, length, RECORD.size):
            self._read_record(self._data[row : row + RECORD.size])

    def index(self, partition_id: int) -> BlockIndex | None:
        """Decode a partition's section when it is first needed; None: there is none of it here."""
        index = self._indexes.get(partition_id)
        if index is not None:
            return index
        where = self._sections.get(partition_id)
        if where is None:
            if self._damaged:
                raise self.corrupt(f"partition {partition_id} may be in a damaged directory", None)
            return None
        position, blocks, epochs, aborted, checksum = where
        size = blocks * BLOCK.size + epochs * EPOCH.size + aborted * ABORTED.size
        at = position - self._position
        section = self._data[at : at + size]
        if at < 0 or len(section) != size or not blocks or crc32c(section) != checksum:
            raise self.corrupt(f"the index of partition {partition_id} is damaged", position)
        index = self._indexes[partition_id] = BlockIndex(section, blocks, epochs)
        return index

    def corrupt(self, reason: str, position: int | None) -> CorruptLog:
        """Make the error that says where."""
        return CorruptLog(reason, self._path, position)

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


def read_header(path: Path, data: bytes, info: SegmentInfo | None) -> SegmentHeader:
    """Verify the first bytes of a segment; `info`, where known, has to agree."""
    magic, version, _, level, flags, segment_id, node_id, epoch, cluster_id, created_ms, crc = (
        HEADER.unpack(data)
    )
    if magic != HEADER_MAGIC or crc32c(data[:HEADER_CHECKED]) != crc:
        raise CorruptLog("the header is damaged, or this is no segment", path, 0)
    if version > FORMAT_VERSION or flags:
        raise NewerFormat(f"segment format {version}, flags {flags}: {path}")
    if info is not None and (info.segment_id, info.node_id, info.node_epoch) != (
        segment_id, node_id, epoch
    ):  # fmt: skip
        raise CorruptLog(f"this is segment {segment_id} of {node_id}/{epoch}, not {info}", path, 0)
    return SegmentHeader(segment_id, level, node_id, epoch, cluster_id, created_ms)


def read_trailer(
    path: Path, data: bytes, size: int, header: SegmentHeader, info: SegmentInfo | None
) -> tuple[int, int, int, int]:
    """Verify the last bytes; return position and size of the footer, the directory's, its rows."""
    at = size - TRAILER.size
    position, length, directory, partitions, _, _, *rest = TRAILER.unpack(data)
    segment_id, first, last, version, crc, magic = rest
    if magic != TRAILER_MAGIC or crc32c(data[:TRAILER_CHECKED]) != crc:
        raise CorruptLog("the trailer is damaged, or the file was cut", path, at)
    if version > FORMAT_VERSION:
        raise NewerFormat(f"segment format {version} is newer: {path}")
    if segment_id != header.segment_id or position + length != at:
        raise CorruptLog("header and trailer are not of one file", path, at)
    if info is not None and (info.size, info.footer_position, info.last_sequence) != (
        size, position, last
    ):  # fmt: skip
        raise CorruptLog(f"the file has frames {first} to {last}, not as in {info}", path, at)
    return position, length, directory, partitions
