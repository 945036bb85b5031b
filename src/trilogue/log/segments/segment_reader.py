"""Reads segments: whole entries of one partition from an offset on, never an unverified byte.

All calls block, and belong in a thread where that matters; several threads may read at once. It
needs nothing of the broker: a Spark executor opens segments with `OsFileSystem`, a manifest and
this module.

Damage affects as little as possible: a block, or a partition's part of the footer, affects that
partition, the header and the trailer the whole segment. It raises `CorruptLog`, and never returns
wrong bytes: a block's checksum covers the entries' headers too and is verified at the first read
since opening; in object storage at each read, since each may return other bytes.

Large pieces are read past the page cache the first two times: one sequential reader should not fill
it and evict data that others share. From the third time on they are worth caching where the disk is
slow.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeVar, cast

from trilogue.entry.checksum import crc32c
from trilogue.entry.entry import EntryError
from trilogue.entry.header import HEADER_SIZE, LENGTH_PREFIX
from trilogue.entry.walk import Walked, walk_headers
from trilogue.log.errors import CorruptLog, SegmentMissing
from trilogue.log.files import File, FileSystem
from trilogue.log.objects.cache import ObjectCache
from trilogue.log.segments.extents import Extent
from trilogue.log.segments.large_reads import LARGE_FROM, LargeReads
from trilogue.log.segments.segment import OPEN, AbortedTransaction, EpochStart, SegmentHeader
from trilogue.log.segments.segment_files import SegmentFile, SegmentFiles, is_remote
from trilogue.log.segments.segment_footer import BlockIndex, Footer
from trilogue.log.segments.segment_info import SegmentInfo
from trilogue.log.transactions import overlapping

HANDLES_MAX: Final = 64  # open segments; each costs a descriptor and its footer
WALK_STEP: Final = 32 << 10  # bytes searched at a time for an offset
DIRECT_TIMES: Final = 2  # reads of a block past the page cache of a slow disk
NOTHING: Final = memoryview(b"")
B = TypeVar("B", bytes, memoryview)


class SegmentReader:
    """One open segment: the directory is read at opening, an index when first needed."""

    def __init__(
        self,
        file: SegmentFile,
        path: Path,
        info: SegmentInfo | None = None,
        large_reads: LargeReads | None = None,
    ) -> None:
        """Wrap an open file, and compare its metadata with `info`, if given."""
        self._file = file
        self._is_remote = is_remote(file)
        self._large_reads = None if self._is_remote else large_reads
        self._path = path
        self._footer = Footer(path, file.size(), self._pread, info)

    @classmethod
    def open(cls, files: FileSystem, path: Path, info: SegmentInfo | None = None) -> SegmentReader:
        """Open a segment and verify header, trailer and directory."""
        try:
            file = files.open_read(path)
        except FileNotFoundError:
            raise SegmentMissing("the segment is missing", path) from None
        try:
            return cls(file, path, info)
        except BaseException:
            file.close()
            raise

    def close(self) -> None:
        """Close the file; no thread may be reading."""
        self._file.close()

    @property
    def header(self) -> SegmentHeader:
        """The header: the segment's origin."""
        return self._footer.header

    @property
    def extents(self) -> dict[int, Extent]:
        """Return all extents, except those with damaged rows. There may be very many."""
        found = map(self._footer.extent, self._footer.ids)
        return {each.partition_id: each for each in found if each is not None}

    def extent(self, partition_id: int) -> Extent | None:
        """Return the extent of one partition; raises CorruptLog if its row may be damaged."""
        return self._footer.extent(partition_id)

    def end_of(self, partition_id: int) -> int:
        """Return where the entries of a partition end here; 0 when there are none."""
        extent = self._footer.extent(partition_id)
        return 0 if extent is None else extent.end_offset

    def epochs(self, partition_id: int) -> list[EpochStart]:
        """Return where in this segment each owner epoch of a partition begins."""
        index = self._footer.index(partition_id)
        return list(index.epochs) if index else []

    def aborted(self, partition_id: int) -> list[AbortedTransaction]:
        """Return the transactions of a partition whose abort markers are in this segment."""
        return [row for row in self.transactions(partition_id) if row.last_offset != OPEN]

    def transactions(self, partition_id: int) -> list[AbortedTransaction]:
        """Return all transaction rows, for code that rewrites the segment: see `rows_within`.

        Those with the last offset `OPEN` are open at the end of the segment.
        """
        index = self._footer.index(partition_id)
        return list(index.aborted) if index else []

    # ── reading ───────────────────────────────────────────────────────────────────────────────

    def read(
        self,
        partition_id: int,
        offset: int,
        max_bytes: int,
        *,
        at_least_one: bool = True,
        until: int | None = None,
    ) -> memoryview:
        """Return whole entries from the one that contains `offset`, or the next one behind a hole.

        At most `max_bytes`, but `at_least_one`, and none from `until` on, where an entry begins;
        nothing at all when the segment has none there.
        The result ends with a block if that gives at least half of `max_bytes`: a sequential reader
        then finds its position without a search.
        """
        index = self._footer.index(partition_id)
        number = index.block_of(offset) if index else 0
        if index is None or number == len(index.bases):
            return NOTHING
        start = self._locate(index, number, offset)
        stop = index.stop if until is None else self._stop(index, until)
        limit = start + max_bytes
        if limit >= stop:
            return self._read_range(index, start, stop) if start < stop else NOTHING
        boundary = index.positions[bisect_right(index.positions, limit) - 1]
        if boundary > start and boundary - start >= max_bytes // 2:
            return self._read_range(index, start, boundary)
        data = self._read_range(index, start, min(stop, max(limit, start + HEADER_SIZE)))
        at = max(0, boundary - start)
        walked = self._walk(data, at, len(data), start)
        if walked:
            position, length, base, delta, *_ = walked[-1]
            index.remember(base + delta + 1, start + position + length)
            return data[: position + length]
        if at or not at_least_one:
            return data[:at]
        length = LENGTH_PREFIX + int.from_bytes(data[8:LENGTH_PREFIX], "big")
        return self._read_range(index, start, min(stop, start + length))

    def _stop(self, index: BlockIndex, until: int) -> int:
        """Return the position in the file where the entries before an offset end."""
        number = index.block_of(until)
        if number == len(index.bases):
            return index.stop
        position = self._locate(index, number, until)
        index.remember(until, position)
        return position

    def offset_for_append_time(
        self, partition_id: int, timestamp_ms: int, from_offset: int = 0
    ) -> int | None:
        """Return an offset at or before all entries that were appended at this time or later.

        Blocks record their latest append time, so up to a block before it may be older. None when
        all are older.
        """
        index = self._footer.index(partition_id)
        if index is None:
            return None
        for number in range(index.block_of(from_offset), len(index.bases)):
            if index.appended[number] >= timestamp_ms:
                return max(from_offset, index.bases[number])
        return None

    def entry_for_time(
        self, partition_id: int, timestamp_ms: int, from_offset: int = 0
    ) -> memoryview | None:
        """Return the first entry, from the one with `from_offset` on, that may have this time.

        It is the first whose largest event time is not earlier. The caller searches its records,
        and calls again with the end of the entry if none of them matches.
        """
        index = self._footer.index(partition_id)
        if index is None:
            return None
        for number in range(index.block_of(from_offset), len(index.bases)):
            if index.latest[number] < timestamp_ms:
                continue
            position = index.positions[number]
            data = self._read_range(index, position, position + index.sizes[number])
            for at, length, base, delta, latest, *_ in self._walk(data, 0, len(data), position):
                if latest >= timestamp_ms and base + delta >= from_offset:
                    return data[at : at + length]
        return None

    def _locate(self, index: BlockIndex, number: int, offset: int) -> int:
        """Return the position in the file of the entry that contains `offset` or follows it."""
        origin = index.positions[number]
        if offset <= index.bases[number]:
            return origin
        known = index.known.get(offset)
        if known is not None:
            return known
        block = self._read_range(index, origin, origin + index.sizes[number])
        at, step = 0, WALK_STEP
        while at < len(block):
            walked = self._walk(block, at, min(len(block), at + step), origin)
            if not walked:  # a larger entry
                step *= 2
                continue
            position, length, base, delta, *_ = walked[-1]
            if base + delta >= offset:
                return origin + next(each[0] for each in walked if each[2] + each[3] >= offset)
            at = position + length
        raise self._footer.corrupt("a block and its index disagree", origin)

    def _walk(self, data: memoryview, at: int, end: int, origin: int) -> list[Walked]:
        """Walk whole entries; `origin` is where the data starts in the file."""
        try:
            return walk_headers(data, at, end, cut_is_end=True)
        except EntryError as error:
            raise self._footer.corrupt(str(error), origin + at) from error

    def _read_range(self, index: BlockIndex, start: int, stop: int) -> memoryview:
        """Read part of an extent; unverified blocks are read whole and verified."""
        first = bisect_right(index.positions, start) - 1
        after = bisect_left(index.positions, stop)
        times = index.times_read[first]
        direct = times < DIRECT_TIMES or self._is_disk_fast
        if not self._is_remote and 0 not in index.times_read[first:after]:
            index.times_read[first] = min(times + 1, DIRECT_TIMES)
            return self._read_bytes(start, stop, direct=direct)
        origin = index.positions[first]
        end = index.positions[after - 1] + index.sizes[after - 1]
        data = self._read_bytes(origin, end, direct=direct and stop - start >= LARGE_FROM)
        for number in range(first, after):
            at = index.positions[number] - origin
            if crc32c(data[at : at + index.sizes[number]]) != index.checksums[number]:
                raise self._footer.corrupt("a block does not match its checksum", origin + at)
            index.times_read[number] = max(1, index.times_read[number])
        return data[start - origin : stop - origin]

    @property
    def _is_disk_fast(self) -> bool:
        return self._large_reads is not None and self._large_reads.is_disk_fast

    def _read_bytes(self, start: int, stop: int, *, direct: bool) -> memoryview:
        """Read exactly these bytes; `direct` bypasses the page cache if they are many."""
        large_reads = self._large_reads
        if large_reads is None or stop - start < LARGE_FROM:
            return memoryview(self._pread(stop - start, start))
        file = cast("File", self._file)  # a local file
        with self._reading(start):
            data = large_reads.read(file, start, stop, direct=direct)
        return self._whole(data, stop - start, start)

    def _pread(self, size: int, position: int) -> bytes:
        """Read exactly `size` bytes."""
        with self._reading(position):
            data = self._file.pread(size, position)
        return self._whole(data, size, position)

    @contextmanager
    def _reading(self, position: int) -> Iterator[None]:
        """Turn a disk's read error into `CorruptLog`: both lose the same data."""
        try:
            yield
        except OSError as error:
            raise CorruptLog(f"cannot be read ({error})", self._path, position) from error

    def _whole(self, data: B, size: int, position: int) -> B:
        if len(data) != size:
            raise CorruptLog("the file ends early", self._path, position + len(data))
        return data


class _Handle:
    __slots__ = ("reader", "retired", "users")

    def __init__(self, reader: SegmentReader) -> None:
        self.reader = reader
        self.users = 0
        self.retired = False


class SegmentReaders:
    """The open segments of a folder: a bounded number, shared by all threads.

    A segment stays open while a thread reads it, even when it was evicted or forgotten in the
    meantime: closing a descriptor in use would let the reader read another file's bytes.
    """

    def __init__(
        self,
        files: FileSystem,
        directory: Path,
        limit: int = HANDLES_MAX,
        objects: ObjectCache | None = None,
    ) -> None:
        self._files = SegmentFiles(files, directory, objects)
        self._large_reads = LargeReads(files)
        self._limit = limit
        self._handles: OrderedDict[int, _Handle] = OrderedDict()
        self._lock = threading.Lock()

    def read(
        self,
        info: SegmentInfo,
        partition_id: int,
        offset: int,
        max_bytes: int,
        *,
        at_least_one: bool = True,
        until: int | None = None,
    ) -> memoryview:
        """Read from one segment; see `SegmentReader.read`."""
        with self.lease(info) as reader:
            return reader.read(
                partition_id, offset, max_bytes, at_least_one=at_least_one, until=until
            )

    def aborted(
        self, segments: Iterable[SegmentInfo], partition_id: int, from_offset: int, to_offset: int
    ) -> tuple[list[AbortedTransaction], bool]:
        """Return the aborted transactions with entries in [from, to).

        `segments` are those that hold the partition, by offset, from the one with `from_offset` on;
        only their footers are needed. Markers may lie far behind the entries, so the search
        continues while a transaction that began before `to` is open. The second value is whether
        rows after the last segment may matter too.
        """
        found: list[AbortedTransaction] = []
        for info in segments:
            with self.lease(info) as reader:
                rows, end_offset = reader.transactions(partition_id), reader.end_of(partition_id)
            some, goes_on = overlapping(rows, from_offset, to_offset)
            found += some
            if not goes_on and end_offset >= to_offset:
                return found, False
        return found, True

    @contextmanager
    def lease(self, info: SegmentInfo) -> Iterator[SegmentReader]:
        """Open a segment, or use the open one, and keep it open for the duration of the context."""
        handle = self._take(info)
        try:
            yield handle.reader
        except CorruptLog:
            if info.store:  # the transfer may be at fault: the next read fetches the object again
                self.forget(info.segment_id)
                self._files.distrust(info)
            raise
        finally:
            self._give_back(handle)

    def forget(self, segment_id: int) -> None:
        """Close a segment, as soon as no thread reads it: its file is about to be deleted."""
        with self._lock:
            handle = self._handles.pop(segment_id, None)
            if handle is not None:
                self._retire(handle)

    def close(self) -> None:
        """Close all segments, those in use when they are released."""
        with self._lock:
            while self._handles:
                self._retire(self._handles.popitem()[1])

    def trim(self) -> None:
        """Free memory that no read has used for some calls."""
        self._large_reads.trim()

    def _take(self, info: SegmentInfo) -> _Handle:
        with self._lock:
            handle = self._handles.get(info.segment_id)
            if handle is not None:
                self._handles.move_to_end(info.segment_id)
                handle.users += 1
                return handle
        # Opening reads from the disk, outside the lock. Two threads may open the same segment.
        opened = _Handle(self._open(info))
        with self._lock:
            handle = self._handles.setdefault(info.segment_id, opened)
            handle.users += 1
            if handle is not opened:
                opened.reader.close()
            while len(self._handles) > self._limit:
                self._retire(self._handles.popitem(last=False)[1])
        return handle

    def _open(self, info: SegmentInfo) -> SegmentReader:
        file = self._files.open(info)
        try:
            return SegmentReader(file, self._files.path(info), info, self._large_reads)
        except BaseException as error:
            file.close()
            if isinstance(error, CorruptLog):
                self._files.distrust(info)
            raise

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
