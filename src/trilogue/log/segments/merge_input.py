"""An input of a merge: a segment read once, from front to back, in large pieces.

Directory, indexes and entries are each in the order of the partition ids, so three windows that
only move forwards read a segment of any size with a few hundred kilobytes of memory. Meta's extents
are authoritative: a row of the directory that differs from them, or does not match its checksum, is
damage to the partition that meta has at this place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from trilogue.entry.checksum import crc32c
from trilogue.log.errors import CorruptLog
from trilogue.log.files import BLOCK as PAGE
from trilogue.log.files import File, FileSystem
from trilogue.log.memory import aligned
from trilogue.log.segments.extents import EXTENT_FIELDS
from trilogue.log.segments.segment import (
    ABORTED,
    BLOCK,
    EPOCH,
    HEADER,
    MIN_APPEND_TIME,
    MIN_EVENT_TIME,
    RECORD,
    RECORD_CHECKED,
    TRAILER,
    AbortedTransaction,
    EpochStart,
    SectionPlace,
)
from trilogue.log.segments.segment_files import is_remote
from trilogue.log.segments.segment_footer import read_header, read_trailer
from trilogue.log.segments.segment_info import SegmentInfo

FOOTER_WINDOW: Final = RECORD.size << 9  # bytes of directory or index in memory
DATA_WINDOW_MAX: Final = 1 << 20

Row: TypeAlias = tuple[int, int, int, int, int, int, int, int, int]
"""base, end, position, size, entries, latest event time, latest append time, crc, 0"""

Record: TypeAlias = tuple[int, ...]
"""A row of the directory; see segment.py for the fields."""


class MergePartition(NamedTuple):
    """A partition with live data in a segment, in the order of the ids."""

    partition_id: int
    number: int  # of the input
    record: Record | None  # None: the row of the directory is damaged


class Index(NamedTuple):
    """One partition's index, without the blocks below its start offset."""

    number: int  # of the input
    rows: list[Row]
    epochs: list[EpochStart]
    aborted: list[AbortedTransaction]
    min_event_ms: int
    min_append_ms: int


class ReadWindow:
    """A window of a file that moves forward. A view of it is valid until the next `read_bytes`."""

    __slots__ = ("_data", "_file", "_path", "_room", "_size", "_start", "bytes_read", "stop")

    def __init__(self, file: File, path: Path, size: int) -> None:
        self.bytes_read = 0
        self.stop = file.size()  # nothing beyond is read
        self._file = file
        self._path = path
        self._size = size
        self._room = memoryview(b"")
        self._start = 0
        self._data = self._room

    def peek(self, position: int, size: int) -> memoryview | None:
        """Return these bytes if they are in memory, else None."""
        at = position - self._start
        return self._data[at : at + size] if at >= 0 and at + size <= len(self._data) else None

    def read_bytes(self, position: int, size: int, ahead: int = 0) -> memoryview:
        """Return these bytes; a read fetches as many more as fit, or `ahead` in all if it is not 0.

        Raises CorruptLog if the disk cannot read, as it does for damage.
        """
        found = self.peek(position, size)
        return self._fill(position, size, ahead) if found is None else found

    def _fill(self, position: int, size: int, ahead: int) -> memoryview:
        start = position - position % PAGE
        stop = max(position + size, min(position + (ahead or self._size), self.stop))
        room = -(-(stop - start) // PAGE) * PAGE
        if not room <= len(self._room) <= 2 * max(room, self._size):
            self._data = memoryview(b"")
            self._room = aligned(max(room, self._size + PAGE))
        try:
            got = self._file.read_into(self._room[:room], start)
        except OSError as error:
            raise CorruptLog(f"cannot be read ({error})", self._path, position) from error
        if start + got < position + size:
            raise CorruptLog("the file ends early", self._path, start + got)
        self.bytes_read += got
        self._start, self._data = start, self._room[:got]
        return self._data[position - start : position - start + size]


class MergeInput:
    """One open segment. Raises CorruptLog if it is damaged as a whole."""

    def __init__(
        self,
        files: FileSystem,
        path: Path,
        info: SegmentInfo,
        number: int,
        *,
        window: int,
        direct: bool,
    ) -> None:
        """Open it and verify header and trailer."""
        self.info = info
        self.number = number
        self.path = path
        self._window = window
        try:
            self._file: File = files.open_read(path, direct=direct)
        except OSError as error:
            raise CorruptLog(f"cannot be opened ({error})", path) from error
        try:
            self._records = ReadWindow(self._file, path, FOOTER_WINDOW)
            self._sections = ReadWindow(self._file, path, FOOTER_WINDOW)
            self._entries = ReadWindow(self._file, path, window)
            self._check(path)
        except BaseException:
            self.close()
            raise

    def _check(self, path: Path) -> None:
        size, window = self._file.size(), self._records
        if size < HEADER.size + TRAILER.size:
            raise CorruptLog(f"{size} bytes are no segment", path)
        header = read_header(path, bytes(window.read_bytes(0, HEADER.size, HEADER.size)), self.info)
        trailer = bytes(window.read_bytes(size - TRAILER.size, TRAILER.size))
        self.footer, length, self._directory, count = read_trailer(
            path, trailer, size, header, self.info
        )
        stop = self.footer + length
        if not HEADER.size <= self.footer <= self._directory <= stop or (
            stop - self._directory != count * RECORD.size
        ):
            raise CorruptLog(
                "the trailer has another place of the directory", path, self._directory
            )
        self._records.stop = stop
        self._sections.stop = self._directory
        self._entries.stop = self.footer

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    @property
    def is_remote(self) -> bool:
        """Whether damage may have occurred in transit from object storage."""
        return is_remote(self._file)

    @property
    def bytes_read(self) -> int:
        """Bytes read from the file so far."""
        return sum(each.bytes_read for each in (self._records, self._sections, self._entries))

    @property
    def data_size(self) -> int:
        """Bytes of entries in the file, including dead ones."""
        return self.footer - HEADER.size

    def partitions(self, starts: Mapping[int, int]) -> Iterator[MergePartition]:
        """Yield the partitions that have live data here."""
        number, records = self.number, self._directory_records()
        record = next(records, None)
        columns = map(self.info.partitions.column, EXTENT_FIELDS[:5])
        for partition_id, base, end, *where in zip(*columns, strict=True):
            if starts.get(partition_id, end) >= end:
                continue
            while record is not None and record[0] < partition_id:
                record = next(records, None)
            agrees = record is not None and record[:5] == (partition_id, base, end, *where)
            yield MergePartition(partition_id, number, record if agrees else None)

    def _directory_records(self) -> Iterator[Record]:
        """Yield the rows of the directory that match their checksum."""
        window, stop = self._records, self._records.stop
        for position in range(self._directory, stop, FOOTER_WINDOW):
            data = window.read_bytes(position, min(FOOTER_WINDOW, stop - position))
            for at, record in zip(
                range(0, len(data), RECORD.size), RECORD.iter_unpack(data), strict=True
            ):
                if crc32c(data[at : at + RECORD_CHECKED]) == record[-1]:
                    yield record

    def index(self, record: Record, start_offset: int) -> Index | None:
        """Read the index of the next partition, in the order of the ids; None if it is damaged."""
        place = SectionPlace.of_record(record)
        if not place.blocks or not place.epochs:
            return None
        if not self.footer <= place.position <= self._directory - place.size:
            return None
        section = self._sections.read_bytes(place.position, place.size)
        if crc32c(section) != place.checksum:
            return None
        epochs_at, aborted_at = place.epochs_at, place.aborted_at
        rows = list(BLOCK.iter_unpack(section[:epochs_at]))
        if rows[0][1] <= start_offset:
            rows = [row for row in rows if row[1] > start_offset]
            if not rows:
                return None
        return Index(
            self.number,
            rows,
            [
                EpochStart(each[0], each[2])
                for each in EPOCH.iter_unpack(section[epochs_at:aborted_at])
            ],
            [AbortedTransaction(*each) for each in ABORTED.iter_unpack(section[aborted_at:])]
            if place.aborted
            else [],
            record[MIN_EVENT_TIME],
            record[MIN_APPEND_TIME],
        )

    def blocks(self, rows: list[Row]) -> Iterator[memoryview]:
        """Yield consecutive blocks, in order and unverified."""
        entries = self._entries
        for at, (_, _, position, size, *_) in enumerate(rows):
            found = entries.peek(position, size)
            yield (
                entries.read_bytes(position, size, self._ahead(rows, at))
                if found is None
                else found
            )

    def _ahead(self, rows: list[Row], at: int) -> int:
        """Return how much to read so that it ends with a block; 0: this partition ends before."""
        first = rows[at][2]
        if rows[-1][2] + rows[-1][3] - first < self._window:
            return 0
        size = 0
        for row in rows[at:]:
            if size + row[3] > self._window:
                break
            size += row[3]
        return size
