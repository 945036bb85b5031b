"""One partition: its entries by offset, the older ones in segments, the rest in the tail.

    start_offset          flushed_end              high_watermark     end_offset
         |  extents in segments |   tail: durable        |  tail: being written |

Only what lies between `start_offset` and `high_watermark` is ever shown. A read returns whole
entries, from the one that contains the wanted offset: `Hot` when they are in memory, `Cold` when a
file has to be read, which is for a thread to do and not for the loop.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from trilogue.entry.entry import EntryHeader
from trilogue.log.catalog import Catalog, Runs
from trilogue.log.chunks import Budget
from trilogue.log.errors import FrameTooLarge, OffsetOutOfRange
from trilogue.log.extents import Extent
from trilogue.log.frame import MAX_ENTRY
from trilogue.log.journal import Journal
from trilogue.log.segment_info import SegmentInfo
from trilogue.log.segment_reader import SegmentReaders
from trilogue.log.tail import Tail
from trilogue.log.window import Mark, Window

log = logging.getLogger(__name__)

NO_TIMESTAMP: Final = -1


@dataclass(frozen=True, slots=True)
class Hot:
    """Entries in memory. The slices may be sent as they are; who writes into them is wrong."""

    slices: list[memoryview | bytes]
    size: int


@dataclass(frozen=True, slots=True)
class Cold:
    """Entries in a segment: `run` reads them, in a thread, and may raise `LogError` or `OSError`.

    A search that finds nothing there goes on at `next_offset`.
    """

    run: Callable[[], memoryview]
    size_hint: int
    next_offset: int


NOTHING: Final = Hot([], 0)


class PartitionLog:
    """Appends to the journal, reads from wherever the entries are. Lives on the loop."""

    __slots__ = (
        "_end_position",
        "_journal",
        "_previous",
        "_readers",
        "_runs",
        "_tail",
        "_visible",
        "_waiting",
        "_window",
        "end_offset",
        "flushed_end",
        "high_watermark",
        "owner_epoch",
        "partition_id",
        "patient",
        "start_offset",
    )

    def __init__(
        self,
        partition_id: int,
        *,
        owner_epoch: int,
        start_offset: int,
        flushed_end: int,
        journal: Journal,
        budget: Budget,
        catalog: Catalog,
        readers: SegmentReaders,
    ) -> None:
        end = max(start_offset, flushed_end)
        self.partition_id = partition_id
        self.owner_epoch = owner_epoch
        self.patient = False  # whether nobody waits for its appends to be durable
        self.start_offset = start_offset  # the first offset that may be read
        self.flushed_end = end  # below it entries are in segments
        self.high_watermark = end  # the durable end: below it entries may be read
        self.end_offset = end  # the next offset to be given
        self._journal = journal
        self._readers = readers
        self._runs = Runs(catalog, partition_id)  # what is in segments
        self._tail = Tail(budget)
        self._end_position = 0  # in the tail, of end_offset
        self._visible = 0  # in the tail, of high_watermark
        self._previous = (end, 0)  # the high watermark before this one, and its position
        self._window: Window | None = None
        self._waiting: dict[object, Callable[[], None]] = {}

    # -- appending -------------------------------------------------------------------------

    def append(self, entry: memoryview, header: EntryHeader) -> int:
        """Take a copy of an entry that was checked, give it the next offsets, return the first.

        It is durable when `journal.on_commit` says so, where `patient` within the journal's
        interval. Raises `DiskFull` (nothing happened) or `StorageFailed`. Nothing is allocated
        here but what the copies need.
        """
        journal = self._journal
        if journal.refusal is not None:
            journal.refuse()
        size = len(entry)
        if size > MAX_ENTRY:
            raise FrameTooLarge(f"an entry of {size} bytes exceeds {MAX_ENTRY}")
        base_offset = self.end_offset
        owner_epoch = self.owner_epoch
        tail = self._tail
        stored = tail.append(entry, size, base_offset, owner_epoch, header.max_timestamp)
        window = journal.add_entry(self.partition_id, owner_epoch, stored, self.patient)
        self.end_offset = base_offset + header.last_offset_delta + 1
        self._end_position = tail.end
        if window is not self._window:
            self._window = window
            window.followers.append(self)
        return base_offset

    def restore(
        self, entry: memoryview, base_offset: int, end_offset: int, epoch: int, max_time: int
    ) -> None:
        """Put an entry that is durable in the journal back into the tail; for recovery."""
        tail = self._tail
        tail.append(entry, len(entry), base_offset, epoch, max_time)
        self.end_offset = self.high_watermark = end_offset
        self._end_position = self._visible = tail.end

    def mark(self) -> Mark:
        """Say how far the window that closes goes."""
        self._window = None
        return self.end_offset, self._end_position

    def advance(self, mark: Mark) -> None:
        """Show everything up to the mark to readers."""
        self._previous = (self.high_watermark, self._visible)
        self.high_watermark, self._visible = mark

    def wake(self) -> None:
        """Call those who wait for the high watermark to move."""
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, {}
        for callback in waiting.values():
            try:
                callback()
            except Exception:  # one reader's mistake must not keep the others waiting
                log.exception("partition.callback_failed", extra={"partition": self.partition_id})

    # -- reading ---------------------------------------------------------------------------

    def read(self, offset: int, max_bytes: int, *, at_least_one: bool = True) -> Hot | Cold:
        """Return whole entries from the one that contains the offset, up to `max_bytes` of them.

        With `at_least_one` the first comes even if it is larger. Above the high watermark there is
        nothing yet; beyond the end or below the start is `OffsetOutOfRange`.
        """
        if offset >= self.high_watermark:
            if offset > self.end_offset:
                raise OffsetOutOfRange(offset, self.start_offset, self.end_offset)
            return NOTHING
        if offset < self.start_offset:
            raise OffsetOutOfRange(offset, self.start_offset, self.end_offset)
        if offset < self.flushed_end:
            cold = self._read_cold(offset, max_bytes, at_least_one=at_least_one)
            if cold is not None:
                return cold
        known, position = self._previous
        tail = self._tail
        if offset != known or position < tail.start:
            position = tail.locate(offset)
        end = self._visible
        if end - position > max_bytes:
            end = tail.boundary(position, position + max_bytes)
            if end == position and at_least_one:
                end = tail.entry_end(position)
        return Hot(tail.slices(position, end), end - position)

    def _read_cold(self, offset: int, max_bytes: int, *, at_least_one: bool) -> Cold | None:
        found = next(self._runs.since(offset), None)
        if found is None:
            return None  # a hole before the tail
        extent, segment = found
        return Cold(
            run=lambda: self._readers.read(
                segment, self.partition_id, offset, max_bytes, at_least_one=at_least_one
            ),
            size_hint=min(max_bytes, extent.size),
            next_offset=extent.end_offset,
        )

    def wait(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call once when the high watermark moves; return what takes the wish back."""
        token = object()
        self._waiting[token] = callback

        def forget() -> None:
            self._waiting.pop(token, None)

        return forget

    def offset_for_time(
        self, timestamp_ms: int, from_offset: int | None = None
    ) -> Hot | Cold | None:
        """Return the first entry that may hold a message of this time or later, or None.

        What is in it is for the caller to see. If it is not there (the header promised too much, or
        a `Cold` search came back empty) ask again from the offset after.
        """
        offset = self.start_offset if from_offset is None else max(from_offset, self.start_offset)
        for extent, segment in self._runs.since(offset):
            if extent.max_event_ms >= timestamp_ms:
                return self._search_cold(segment, extent, timestamp_ms, offset)
        tail = self._tail
        found = tail.find_time(timestamp_ms, tail.locate(offset), self._visible)
        if found is None:
            return None
        position, end = found
        return Hot(tail.slices(position, end), end - position)

    def _search_cold(
        self, segment: SegmentInfo, extent: Extent, timestamp_ms: int, offset: int
    ) -> Cold:
        def search() -> memoryview:
            with self._readers.lease(segment) as reader:
                found = reader.entry_for_time(self.partition_id, timestamp_ms, offset)
            return memoryview(b"") if found is None else found

        return Cold(run=search, size_hint=extent.size, next_offset=extent.end_offset)

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp of a message that may be read; -1 when there is none."""
        newest = max((extent.max_event_ms for extent in self.extents), default=NO_TIMESTAMP)
        return max(newest, self._tail.max_timestamp(self._visible))

    @property
    def size_bytes(self) -> int:
        """Bytes of entries kept, in segments and in memory."""
        return sum(extent.size for extent in self.extents) + self._tail.size

    @property
    def tail_bytes(self) -> int:
        """Bytes of entries that are not yet in a segment."""
        return self._tail.size

    @property
    def extents(self) -> list[Extent]:
        """The runs of entries in segments, by offset."""
        return [extent for extent, _ in self._runs.since(self.start_offset)]

    # -- flush and retention ---------------------------------------------------------------

    def flushed(self, end_offset: int) -> None:
        """Everything below is in segments (or not worth keeping): drop it from memory."""
        if end_offset <= self.flushed_end:
            return
        assert end_offset <= self.high_watermark, "flushed what is not durable"
        self.flushed_end = end_offset
        tail = self._tail
        position = self._visible if end_offset == self.high_watermark else tail.locate(end_offset)
        tail.drop_before(position, end_offset)

    def retain_from(self, start_offset: int) -> None:
        """Show nothing below; never more than what is durable goes."""
        start_offset = min(start_offset, self.high_watermark)
        if start_offset <= self.start_offset:
            return
        self.start_offset = start_offset
        if start_offset > self.flushed_end:
            self.flushed(start_offset)

    def drop(self) -> None:
        """The partition was deleted: whoever still holds this finds nothing, and holds nothing."""
        self.start_offset = self.flushed_end = self.high_watermark = self.end_offset
        self._tail.drop_before(self._tail.end, self.end_offset)
        self.wake()
