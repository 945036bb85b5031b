"""The metadata in a segment: header, trailer, directory, and each partition's block index.

They are read once when a segment is opened, and every row of the directory is verified; rows and
sections are decoded when they are needed. A segment may hold ten thousand partitions and 64 are
open: as objects their directories alone would be 400 MB. Layout: segment.py.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from pathlib import Path
from struct import Struct
from typing import Final

from trilogue.entry.checksum import crc32c
from trilogue.log.errors import CorruptLog, NewerFormat
from trilogue.log.segments.extents import Extent
from trilogue.log.segments.segment import (
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
    SectionPlace,
    SegmentHeader,
)
from trilogue.log.segments.segment_info import SegmentInfo

KNOWN_MAX: Final = 32  # positions remembered per partition, one for each sequential reader
INDEXES_MAX: Final = 512  # decoded at a time; most are small, large ones are alone in a segment
ANY_ID: Final = 1 << 64
_LINE: Final = Struct(f">Q{RECORD_CHECKED - 8}xI")  # of the directory: partition id, crc


class BlockIndex:
    """The blocks of one partition: which are verified, and where readers stopped."""

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
        "times_read",
    )

    def __init__(self, section: memoryview, place: SectionPlace) -> None:
        epochs_at, aborted_at = place.epochs_at, place.aborted_at
        rows = list(BLOCK.iter_unpack(section[:epochs_at]))
        self.bases = [int(row[0]) for row in rows]
        self.ends = [int(row[1]) for row in rows]
        self.positions = [int(row[2]) for row in rows]
        self.sizes = [int(row[3]) for row in rows]
        self.latest = [int(row[5]) for row in rows]  # event time
        self.appended = [int(row[6]) for row in rows]  # append time, the latest
        self.checksums = [int(row[7]) for row in rows]
        self.stop = self.positions[-1] + self.sizes[-1]  # where the extent ends
        self.times_read = bytearray(place.blocks)  # since opening, up to a few; 0: not verified yet
        self.known: dict[int, int] = {}  # offset -> position of its entry or the next
        epochs = EPOCH.iter_unpack(section[epochs_at:aborted_at])
        self.epochs = [EpochStart(row[0], row[2]) for row in epochs]
        # including transactions open at the end: log/transactions.py
        aborted = ABORTED.iter_unpack(section[aborted_at:])
        self.aborted = [AbortedTransaction(*row) for row in aborted]

    def block_of(self, offset: int) -> int:
        """Return the number of the block that contains `offset` or follows it; the count: none."""
        number = max(0, bisect_right(self.bases, offset) - 1)
        return number + 1 if offset >= self.ends[number] else number

    def remember(self, offset: int, position: int) -> None:
        """Note where a reader will continue."""
        if len(self.known) >= KNOWN_MAX:
            self.known.clear()
        self.known[offset] = position


class Footer:
    """Everything but the entries. `pread(size, position)` returns `size` bytes or raises."""

    def __init__(
        self,
        path: Path,
        size: int,
        pread: Callable[[int, int], bytes],
        info: SegmentInfo | None,
    ) -> None:
        """Verify header, trailer and directory, and compare them with `info`, if given."""
        self._path = path
        if size < HEADER.size + TRAILER.size:
            raise CorruptLog(f"{size} bytes are no segment", path)
        self.header = read_header(path, pread(HEADER.size, 0), info)
        trailer = pread(TRAILER.size, size - TRAILER.size)
        self._position, length, directory_position, partitions = read_trailer(
            path, trailer, size, self.header, info
        )
        self._data = memoryview(pread(length, self._position))
        self._indexes: dict[int, BlockIndex] = {}
        at = directory_position - self._position
        if not 0 <= at <= length or length - at != partitions * RECORD.size:
            raise self.corrupt("the trailer has another place of the directory", directory_position)
        self._directory = self._data[at:]
        self._ids = array("Q")  # of the rows that match their checksum, in order
        self._places = array("Q")  # where they are in the directory
        self._damaged: list[tuple[int, int]] = []  # ids between which rows are damaged
        self._verify_directory()

    def index(self, partition_id: int) -> BlockIndex | None:
        """Return a partition's index, decoded at the first use; None: it has no entries here."""
        index = self._indexes.get(partition_id)
        if index is not None:
            return index
        record = self._record(partition_id)
        if record is None:
            return None
        place = SectionPlace.of_record(record)
        at, size = place.position - self._position, place.size
        section = self._data[at : at + size]
        if at < 0 or len(section) != size or not place.blocks or crc32c(section) != place.checksum:
            raise self.corrupt(f"the index of partition {partition_id} is damaged", place.position)
        if len(self._indexes) >= INDEXES_MAX:
            self._indexes.clear()
        index = self._indexes[partition_id] = BlockIndex(section, place)
        return index

    def extent(self, partition_id: int) -> Extent | None:
        """Return a partition's extent; None: the segment has nothing of it."""
        record = self._record(partition_id)
        return None if record is None else Extent(*record[:7], *record[8:12])

    @property
    def ids(self) -> list[int]:
        """The partitions with data in the segment, in order, except those of damaged rows."""
        return self._ids.tolist()

    def corrupt(self, reason: str, position: int | None) -> CorruptLog:
        """Create an error that names file and position."""
        return CorruptLog(reason, self._path, position)

    def _verify_directory(self) -> None:
        """Verify all rows of the directory; a damaged one affects only its own partition."""
        directory, size = self._directory, RECORD.size
        before, is_damaged = -1, False
        for at, (partition_id, checksum) in zip(
            range(0, len(directory), size), _LINE.iter_unpack(directory), strict=True
        ):
            if crc32c(directory[at : at + RECORD_CHECKED]) != checksum:
                is_damaged = True
                continue
            if is_damaged:
                self._damaged.append((before, partition_id))
                is_damaged = False
            if partition_id <= before:
                raise self.corrupt(f"partition {partition_id} stands behind {before}", None)
            self._ids.append(partition_id)
            self._places.append(at)
            before = partition_id
        if is_damaged:
            self._damaged.append((before, ANY_ID))

    def _record(self, partition_id: int) -> tuple[int, ...] | None:
        """Decode a partition's row of the directory; None: there is none."""
        ids = self._ids
        at = bisect_left(ids, partition_id)
        if at < len(ids) and ids[at] == partition_id:
            return RECORD.unpack_from(self._directory, self._places[at])
        if any(before < partition_id < after for before, after in self._damaged):
            raise self.corrupt(f"partition {partition_id} may be in a damaged directory", None)
        return None


def read_header(path: Path, data: bytes, info: SegmentInfo | None) -> SegmentHeader:
    """Verify the first bytes of a segment, and compare them with `info`, if given."""
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
