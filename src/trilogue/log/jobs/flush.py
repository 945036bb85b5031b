"""The flush: sealed journal files become a segment.

Pure functions of files: their arguments and results are plain values, so that a helper process can
run them (`run`) and a test can run them in place. They have no other effect; the new segment counts
only when meta has recorded it, and is an orphan until then.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import accumulate, islice, zip_longest
from operator import add, ge
from pathlib import Path
from struct import Struct
from typing import Final, TypeAlias

from trilogue.entry.checksum import WORTH_COMBINING
from trilogue.entry.entry import TRANSACTIONAL
from trilogue.entry.header import CHECKED_FROM, HEADER_SIZE, LENGTH_PREFIX
from trilogue.entry.walk import read_header
from trilogue.log.errors import CorruptLog
from trilogue.log.files import BLOCK, FileSystem, OsFileSystem
from trilogue.log.jobs.pace import Pace, paced_writer
from trilogue.log.journal.frame import (
    FRAME_HEADER,
    LOST,
    PREFIX,
    Frame,
    decode_file_header,
    entry_checksum,
    iter_frames,
)
from trilogue.log.memory import aligned
from trilogue.log.segments.segment import (
    BLOCK_TARGET,
    Block,
    EpochStart,
    SegmentHeader,
    SegmentWriter,
)
from trilogue.log.segments.segment_info import FlushJob, FlushResult, SegmentInfo
from trilogue.log.transactions import OpenTransactions, Transactions, read_transaction_step

# A frame's prefix of an entry and what a flush needs of the entry's own header, in one call:
# partition id, owner epoch, 0 | base offset, length, …, attributes, last offset delta, base and max
# timestamp.
_ENTRY: Final = Struct(">QI4xqi9xhiqq")
PREFIX_SIZE: Final = PREFIX.size
_SMALLEST: Final = PREFIX_SIZE + HEADER_SIZE
_SMALLEST_AFTER: Final = HEADER_SIZE - LENGTH_PREFIX
FEW: Final = 64  # entries in a block
READ_MAX: Final = 160 << 20  # of files read into memory, about two journal files; others are mapped

_rooms: list[memoryview] = []  # for the next job: fresh memory would cost more than the reading

# The notes about each entry, in one flat list per partition and file: objects per entry would
# cost more, in memory and in the garbage collector's time, than all the copying.
# start, bytes after the length field, base, last offset delta, epoch, base, max and append time
_FIELDS: Final = 8


def run(job: FlushJob) -> FlushResult:
    """Flush on the operating system's files; the entry point of the helper process."""
    return flush(job, OsFileSystem())


def flush(
    job: FlushJob,
    files: FileSystem,
    *,
    monotonic: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], object] = time.sleep,
) -> FlushResult:
    """Sort the entries of the sealed files by partition into one durable segment.

    Afterwards all that was acknowledged up to `last_sequence` is in segments. A file that holds
    less than it should raises CorruptLog; the result is never a shorter segment.
    """
    source = _Source(job)
    try:
        return _flush(job, source, files, Pace(job.bytes_per_second, monotonic, sleep))
    finally:
        source.give_back()


def _flush(job: FlushJob, source: _Source, files: FileSystem, pace: Pace) -> FlushResult:
    for path, incarnation, size in zip_longest(job.journal_paths, job.incarnations, job.sizes):
        source.read_file(files, Path(path), incarnation, size or 0)
    if source.last_sequence != max(job.last_sequence, job.flushed_through):
        raise CorruptLog(
            f"the journal goes to frame {source.last_sequence}, {job.last_sequence} were sealed",
            Path(job.journal_paths[-1]) if job.journal_paths else None,
        )
    segment = None
    if any(notes.parts for notes in source.notes.values()):
        segment = _write(job, source, files, pace)
    return FlushResult(
        segment,
        source.ends(),
        source.last_sequence,
        sum(notes.count for notes in source.notes.values()),
        source.bytes_in,
        segment.size if segment else 0,
        source.open_transactions(),
    )


class _Notes:
    """One partition's entries to keep, as positions in the mapped files."""

    __slots__ = ("flat", "flushed_end", "last_end", "parts", "transactions")

    def __init__(self, flushed_end: int, open_transactions: OpenTransactions) -> None:
        self.flushed_end = flushed_end
        self.transactions = Transactions(open_transactions) if open_transactions else None
        self.last_end: int | None = None  # of the entries read, including dropped ones
        self.flat: list[int] = []  # of the current file
        self.parts: list[tuple[memoryview, list[int]]] = []

    def turn(self, view: memoryview) -> None:
        """Close the notes about one file."""
        flat, self.flat = self.flat, []
        if flat:
            self.last_end = flat[2 - _FIELDS] + flat[3 - _FIELDS] + 1
            self.parts.append((view, flat))

    def transactional(self, entry: memoryview) -> None:
        """Apply what an entry does to transactions, even if the entry is dropped."""
        header = read_header(entry)
        if header.base_offset < self.flushed_end:
            return  # known already
        step = read_transaction_step(entry, header, header.base_offset)
        if step is not None:
            if self.transactions is None:
                self.transactions = Transactions()
            self.transactions.apply(step)

    @property
    def count(self) -> int:
        """The number of entries kept."""
        return sum(len(flat) for _, flat in self.parts) // _FIELDS


class _Source:
    """The entries to keep, by partition."""

    def __init__(self, job: FlushJob) -> None:
        self._job = job
        self.notes = {
            each: _Notes(job.flushed_ends.get(each, 0), job.open_transactions.get(each, ()))
            for each in job.known
        }
        self._floors = {
            each: max(notes.flushed_end, job.start_offsets.get(each, 0))
            for each, notes in self.notes.items()
        }
        self.first_sequence = 0
        self.last_sequence = job.flushed_through
        self.bytes_in = 0
        self._room: memoryview | None = None
        self._read = 0  # bytes of it that hold files

    def read_file(
        self, files: FileSystem, path: Path, incarnation: int | None, size: int = 0
    ) -> None:
        """Read the frames of one file that are not in a segment yet."""
        view = self._content(files, path, size)
        header = decode_file_header(view)
        if header is None or header.incarnation != (incarnation or header.incarnation):
            raise CorruptLog("this is not the journal file that was sealed", path)
        wanted = {
            each: (self._floors[each], notes.flat.extend, notes)
            for each, notes in self.notes.items()
        }
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
            if _read_frame(view, frame, wanted) != frame.position + frame.facts_at:
                raise CorruptLog("entries do not end where they should", path, frame.position)
        for notes in self.notes.values():
            notes.turn(view)

    def _content(self, files: FileSystem, path: Path, size: int) -> memoryview:
        """Read a file, past the page cache if its size is known and there is room for it.

        It was written past the page cache, so none of it is cached. A mapping would read it page by
        page, and the next process to write the recycled file would have to evict those pages.
        """
        size = -(-size // BLOCK) * BLOCK
        fits = 0 < size <= READ_MAX - self._read
        file = files.open_read(path, direct=self._job.direct and fits)
        try:
            if not file.direct:
                return file.map()
            if self._room is None:
                self._room = _rooms.pop() if _rooms else aligned(READ_MAX)
            part = self._room[self._read : self._read + size]
            self._read += size
            return part[: file.read_into(part, 0)]
        finally:
            file.close()

    def give_back(self) -> None:
        """Release the memory for the next job; no view of it may be used afterwards."""
        self.notes.clear()
        if self._room is not None:
            _rooms.append(self._room)

    def ends(self) -> dict[int, int]:
        """Return the new flushed end of each partition with entries in the files."""
        return {
            each: max(notes.last_end, notes.flushed_end)
            for each, notes in self.notes.items()
            if notes.last_end is not None
        }

    def open_transactions(self) -> dict[int, tuple[tuple[int, int], ...]]:
        """Return the transactions open at the end, for partitions that have or had any."""
        return {
            each: notes.transactions.open_rows()
            for each, notes in self.notes.items()
            if notes.transactions is not None and notes.last_end is not None
        }


_Wanted: TypeAlias = dict[int, tuple[int, Callable[[Iterable[int]], None], _Notes]]


def _read_frame(view: memoryview, frame: Frame, wanted: _Wanted) -> int:
    """Note the entries of a frame and return where they end. The only loop per entry."""
    unpack, find, append_ms = _ENTRY.unpack_from, wanted.get, frame.append_time_ms
    position = frame.position + FRAME_HEADER
    last_position = frame.position + frame.facts_at - _SMALLEST
    for _ in range(frame.entry_count):
        if position > last_position:
            return -1
        partition_id, epoch, base, after, attributes, delta, base_ms, max_ms = unpack(
            view, position
        )
        start = position + PREFIX_SIZE
        position = start + after + LENGTH_PREFIX
        if after < _SMALLEST_AFTER or delta < 0:
            return -1
        found = find(partition_id)
        if found is None:
            continue
        floor, note, notes = found
        if attributes & TRANSACTIONAL:
            notes.transactional(view[start:position])
        if base + delta < floor:
            notes.last_end = base + delta + 1
        else:
            note((start, after, base, delta, epoch, base_ms, max_ms, append_ms))
    return position


def _write(job: FlushJob, source: _Source, files: FileSystem, pace: Pace) -> SegmentInfo:
    """Write the noted entries, partition by partition, and make them durable."""
    path = Path(job.segment_path)
    if files.exists(path):  # an earlier try died before meta recorded it
        files.unlink(path)
    header = SegmentHeader(
        job.segment_id, 0, job.node_id, job.node_epoch, job.cluster_id, job.now_ms
    )
    file = files.open(path, create=True, direct=job.direct)
    try:
        writer = paced_writer(file, header, pace)
        for partition_id, notes in sorted(source.notes.items()):
            if notes.parts:
                _write_partition(writer, partition_id, notes)
        info = writer.finish(path.name, source.first_sequence, source.last_sequence)
        files.sync_directory(path.parent)
    except Exception:  # meta will not record this file: on a full disk it must not stay
        with suppress(OSError):
            files.unlink(path)
        raise
    finally:
        file.close()
    return info


def _write_partition(writer: SegmentWriter, partition_id: int, notes: _Notes) -> None:
    """Write one partition's entries in blocks. A block never spans two files."""
    epochs = [each for _, flat in notes.parts for each in flat[4::_FIELDS]]
    bases = [each for _, flat in notes.parts for each in flat[2::_FIELDS]]
    transactions = notes.transactions
    writer.begin(
        partition_id,
        _epoch_starts(epochs, bases),
        transactions.rows(bases[0], notes.last_end or 0) if transactions else (),
    )
    end = notes.flushed_end
    for view, flat in notes.parts:
        starts, afters, bases, deltas, _, base_ms, max_ms, append_ms = (
            flat[column::_FIELDS] for column in range(_FIELDS)
        )
        lasts = list(map(add, bases, deltas))
        if bases[0] < end or any(map(ge, lasts, islice(bases, 1, None))):
            raise CorruptLog(f"entries of partition {partition_id} overlap in the journal")
        end = lasts[-1] + 1
        lengths = [after + LENGTH_PREFIX for after in afters]
        sums = list(accumulate(lengths))
        first = written = 0
        while first < len(sums):
            after = max(first + 1, bisect_right(sums, written + BLOCK_TARGET))
            some = slice(first, after)
            block = Block(
                bases[first],
                lasts[after - 1] + 1,
                after - first,
                min(base_ms[some]),
                max(max_ms[some]),
                min(append_ms[some]),
                max(append_ms[some]),
            )
            places = starts[some], lengths[some]
            writer.block(block, _gather(view, *places), _known(view, *places))
            first, written = after, sums[after - 1]


def _known(view: memoryview, starts: list[int], lengths: list[int]) -> list[tuple[int, int, int]]:
    """Return the parts of a block whose checksum the entries carry; now proven correct."""
    if max(lengths) < WORTH_COMBINING:
        return []
    return [
        (end - length + CHECKED_FROM, end, entry_checksum(view, start))
        for start, length, end in zip(starts, lengths, accumulate(lengths), strict=True)
        if length >= WORTH_COMBINING
    ]


def _gather(
    view: memoryview, starts: list[int], lengths: list[int]
) -> bytes | bytearray | memoryview:
    """Join entries by the faster of two methods, which differ by half."""
    if len(starts) == 1:
        return view[starts[0] : starts[0] + lengths[0]]
    if len(starts) < FEW:
        return b"".join(
            [view[start : start + length] for start, length in zip(starts, lengths, strict=True)]
        )
    data = bytearray()
    for start, length in zip(starts, lengths, strict=True):
        data += view[start : start + length]
    return data


def _epoch_starts(epochs: Sequence[int], bases: Sequence[int]) -> list[EpochStart]:
    """Return where owner epochs begin; there is mostly one."""
    starts = [EpochStart(epochs[0], bases[0])]
    if min(epochs) != max(epochs):
        starts.extend(
            EpochStart(epochs[at], bases[at])
            for at in range(1, len(epochs))
            if epochs[at] != epochs[at - 1]
        )
    return starts
