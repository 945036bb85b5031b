"""One partition: its entries by offset, the older ones in segments, the rest in the tail.

    start_offset          flushed_end              high_watermark     end_offset
         |  extents in segments |   tail: durable        |  tail: being written |

Only what lies between `start_offset` and `high_watermark` is ever shown. A read returns whole
entries, from the one that contains the wanted offset: `Hot` when they are in memory, `Cold` when a
file has to be read, which is for a thread to do and not for the loop. Readers of committed data go
up to `stable_end` and pass over what `aborted` names: transactions.py.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from trilogue.entry.entry import EntryHeader, Format
from trilogue.entry.walk import read_header
from trilogue.log.catalog import Catalog, Runs
from trilogue.log.chunks import Budget
from trilogue.log.errors import OffsetOutOfRange
from trilogue.log.extents import Extent
from trilogue.log.hot import NOBODY, HotPartition
from trilogue.log.journal import Journal
from trilogue.log.lookups import (
    UNKNOWN_EPOCH,
    AppendTimes,
    EpochEnd,
    Later,
    end_of_epoch,
    epoch_of,
    first_found,
)
from trilogue.log.segment import AbortedTransaction, EpochStart
from trilogue.log.segment_info import SegmentInfo
from trilogue.log.segment_reader import SegmentReaders
from trilogue.log.tail import Tail
from trilogue.log.transactions import Event, Transactions, event_of, overlapping

log = logging.getLogger(__name__)

NO_TIMESTAMP: Final = -1


@dataclass(frozen=True, slots=True)
class Hot:
    """Entries in memory. The slices may be sent as they are; who writes into them is wrong."""

    slices: list[memoryview | bytes]
    size: int
    next_offset: int = -1  # where they end; only told to who reads `until` an offset


@dataclass(frozen=True, slots=True)
class Cold:
    """Entries in a segment: `run` reads them, in a thread, and may raise `LogError` or `OSError`.

    A search that finds nothing there goes on at `next_offset`.
    """

    run: Callable[[], memoryview]
    size_hint: int
    next_offset: int


@dataclass(frozen=True, slots=True)
class LaterAborted:
    """Aborted transactions of which some may stand in segments: `run` looks, in a thread."""

    readers: SegmentReaders
    segments: Sequence[SegmentInfo]
    partition_id: int
    from_offset: int
    hot: list[AbortedTransaction]  # from memory, at the time of the question

    def run(self, to_offset: int) -> list[AbortedTransaction]:
        """Name those with entries from `from_offset` on to here; raises `LogError`, `OSError`."""
        found, goes_on = self.readers.aborted(
            self.segments, self.partition_id, self.from_offset, to_offset
        )
        if goes_on:
            found += overlapping(self.hot, self.from_offset, to_offset)[0]
        return list(dict.fromkeys(found))  # between a flush and its end some are in both


NOTHING: Final = Hot([], 0)


class PartitionLog(HotPartition):
    """Appends to the journal, reads from wherever the entries are. Lives on the loop."""

    __slots__ = (
        "_epoch_start",
        "_epochs",
        "_readers",
        "_runs",
        "flushed_end",
        "start_offset",
    )

    _append_times: AppendTimes
    _journal: Journal
    _tail: Tail

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
        open_transactions: Sequence[tuple[int, int]] = (),
    ) -> None:
        end = max(start_offset, flushed_end)
        self.partition_id = partition_id
        self.owner_epoch = owner_epoch
        self.patient = False
        self.start_offset = start_offset  # the first offset that may be read
        self.flushed_end = end  # below it entries are in segments
        self.high_watermark = end
        self.end_offset = end
        self.tail_formats = 0
        self._journal = journal
        self._readers = readers
        self._runs = Runs(catalog, partition_id)  # what is in segments
        self._tail = Tail(budget)
        self._end_position = 0
        self._visible = 0
        self._previous = (end, 0)
        self._append_times = AppendTimes()
        self._epoch_start = end  # where the owner's epoch begins
        self._epochs: list[EpochStart] | None = None  # earlier ones that the tail began with
        self._transactions = Transactions(open_transactions) if open_transactions else None
        self._window = None
        self._waiting = NOBODY

    # -- appending -------------------------------------------------------------------------

    def _appended(self, entry: memoryview, header: EntryHeader, base_offset: int) -> None:
        self._note(event_of(entry, header, base_offset))

    def _note(self, event: Event | None) -> None:
        if event is not None:
            if self._transactions is None:
                self._transactions = Transactions()
            self._transactions.appended(event)

    def restore(
        self,
        entry: memoryview,
        base_offset: int,
        end_offset: int,
        epoch: int,
        max_time: int,
        *,
        append_ms: int,
        formats: int = 1 << Format.KAFKA,
    ) -> None:
        """Put an entry that is durable in the journal back into the tail; for recovery.

        `formats` has the bit of the entry's format.
        """
        self.tail_formats |= formats
        tail = self._tail
        tail.append(entry, len(entry), base_offset, epoch, max_time)
        self.end_offset = self.high_watermark = self._epoch_start = end_offset
        self._end_position = self._visible = tail.end
        self._append_times.note(tail.end, append_ms)
        if self._epochs is None:
            self._epochs = [EpochStart(epoch, base_offset)]
        elif self._epochs[-1].owner_epoch != epoch:
            self._epochs.append(EpochStart(epoch, base_offset))

    def restore_transaction(self, entry: memoryview) -> None:
        """Take over what a durable entry did to transactions, also one that is not restored.

        For recovery: each one behind those that `open_transactions` knew, in order.
        """
        header = read_header(entry)
        self._note(event_of(entry, header, header.base_offset))
        if self._transactions is not None:
            self._transactions.advance(header.base_offset + 1)

    # -- reading ---------------------------------------------------------------------------

    def read(
        self, offset: int, max_bytes: int, *, at_least_one: bool = True, until: int | None = None
    ) -> Hot | Cold:
        """Return whole entries from the one that contains the offset, up to `max_bytes` of them.

        With `at_least_one` the first comes even if it is larger. `until` is where an entry begins
        behind which none is wanted, as `stable_end`. Above the high watermark there is nothing
        yet; beyond the end or below the start is `OffsetOutOfRange`.
        """
        if not self.start_offset <= offset <= self.end_offset:
            raise OffsetOutOfRange(offset, self.start_offset, self.end_offset)
        if offset >= self.high_watermark or (until is not None and offset >= until):
            return NOTHING
        if offset < self.flushed_end:
            cold = self._read_cold(offset, max_bytes, at_least_one=at_least_one, until=until)
            if cold is not None:
                return cold
        known, position = self._previous
        tail = self._tail
        if offset != known or position < tail.start:
            position = tail.locate(offset)
        end = self._visible
        if until is not None and until < self.high_watermark:
            end = max(position, tail.locate(until))
        if end - position > max_bytes:
            end = tail.boundary(position, position + max_bytes)
            if end == position and at_least_one:
                end = tail.entry_end(position)
        slices = tail.slices(position, end)
        if until is None:
            return Hot(slices, end - position)
        next_offset = self.high_watermark if end == self._visible else tail.offset_at(end)
        return Hot(slices, end - position, next_offset)

    def _read_cold(
        self, offset: int, max_bytes: int, *, at_least_one: bool, until: int | None
    ) -> Cold | None:
        found = next(self._runs.since(offset), None)
        if found is None:
            return None  # a hole before the tail
        extent, segment = found
        return Cold(
            run=lambda: self._readers.read(
                segment,
                self.partition_id,
                offset,
                max_bytes,
                at_least_one=at_least_one,
                until=until,
            ),
            size_hint=min(max_bytes, extent.size),
            next_offset=extent.end_offset,
        )

    def wait(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call once when the high watermark moves; return what takes the wish back."""
        self.call(token := object(), callback)
        return lambda: self.call_not(token)

    def call(self, who: object, callback: Callable[[], None]) -> None:
        """Call once for `who` when the high watermark or the start moves."""
        if self._waiting is NOBODY:
            self._waiting = {}
        self._waiting[who] = callback

    def call_not(self, who: object) -> None:
        """Do not call any more."""
        self._waiting.pop(who, None)

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

    def offset_for_append_time(
        self, timestamp_ms: int, from_offset: int | None = None
    ) -> int | Later[int | None] | None:
        """Return an offset from which on nothing is missed that became durable at a time or later.

        None when there is nothing. Up to a block of a segment (256 KiB), or some kilobytes of the
        tail, may be older: entries do not say when they were appended, frames and blocks do.
        """
        offset = self.start_offset if from_offset is None else max(from_offset, self.start_offset)
        tail = self._tail
        position = self._append_times.find(timestamp_ms, tail.locate(offset), self._visible)
        hot = None if position is None else max(offset, tail.offset_at(position))
        searches = [
            partial(self._search_append_time, segment, timestamp_ms, offset)
            for extent, segment in self._runs.since(offset)
            if extent.max_append_ms >= timestamp_ms
        ]
        return Later(partial(first_found, searches, hot)) if searches else hot

    def _search_append_time(
        self, segment: SegmentInfo, timestamp_ms: int, offset: int
    ) -> int | None:
        with self._readers.lease(segment) as reader:
            return reader.offset_for_append_time(self.partition_id, timestamp_ms, offset)

    # -- transactions and epochs -----------------------------------------------------------

    @property
    def stable_end(self) -> int:
        """Below it no transaction is open: how far readers of committed data may read."""
        transactions = self._transactions
        first = None if transactions is None else transactions.first_open
        if first is None:
            return self.high_watermark
        return min(self.high_watermark, max(first, self.start_offset))

    def aborted(self, from_offset: int, to_offset: int) -> list[AbortedTransaction] | LaterAborted:
        """Name the aborted transactions with entries in [from, to), for who read just these.

        `to_offset` is at most what `stable_end` was at the time of the read. In segments the end of
        what is read is known only when it was read: `LaterAborted.run` takes it.
        """
        rows = [] if self._transactions is None else self._transactions.aborted
        hot, _ = overlapping(rows, from_offset, to_offset)
        segments = self._runs.holders(from_offset) if from_offset < self.flushed_end else []
        if not segments:
            return hot
        return LaterAborted(self._readers, segments, self.partition_id, from_offset, hot)

    @property
    def start_epoch(self) -> int:
        """The epoch of the first message kept; where a segment begins with several, the newest."""
        for extent, _ in self._runs.since(self.start_offset):
            return extent.owner_epoch
        earlier = (self._epochs or ()) if self.start_offset < self._epoch_start else ()
        return epoch_of(self.start_offset, earlier, self.owner_epoch)

    def epoch_end(self, epoch: int) -> EpochEnd | Later[EpochEnd]:
        """Return the largest epoch up to this one that gave out offsets here, and where it ended.

        As Kafka's OffsetForLeaderEpoch: the owner's epoch ends at the high watermark, later ones
        are unknown, and one before all that are known ended where those begin.
        """
        if epoch == self.owner_epoch:
            return EpochEnd(epoch, self.high_watermark)
        if not 0 <= epoch < self.owner_epoch:
            return UNKNOWN_EPOCH
        start, below = self.start_offset, -1
        for extent, segment in self._runs.since(start):
            if extent.owner_epoch > epoch:
                return Later(partial(self._search_epoch, segment, epoch, start, below))
            below = extent.owner_epoch
        owners = EpochStart(self.owner_epoch, self._epoch_start)
        found = end_of_epoch(epoch, (*(self._epochs or ()), owners), start, below)
        assert isinstance(found, EpochEnd), "the owner's epoch is larger"
        return found

    def _search_epoch(self, segment: SegmentInfo, epoch: int, start: int, below: int) -> EpochEnd:
        with self._readers.lease(segment) as reader:
            found = end_of_epoch(epoch, reader.epochs(self.partition_id), start, below)
        if isinstance(found, EpochEnd):
            return found
        end_offset = segment.partitions[self.partition_id].end_offset
        return EpochEnd(epoch if found < 0 else found, end_offset)

    # -- what there is ---------------------------------------------------------------------

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
        """The runs of entries in segments, by offset; none that is still in memory."""
        end = self.flushed_end
        runs = self._runs.since(self.start_offset)
        return [extent for extent, _ in runs if extent.base_offset < end]

    # -- flush and retention ---------------------------------------------------------------

    def flushed(self, end_offset: int) -> None:
        """Everything below is in segments (or not worth keeping): drop it from memory."""
        if end_offset <= self.flushed_end:
            return
        assert end_offset <= self.high_watermark, "flushed what is not durable"
        self.flushed_end = end_offset
        tail = self._tail
        position = self._visible if end_offset == self.high_watermark else tail.locate(end_offset)
        tail.drop_before(position)
        self._append_times.drop_before(position, self._visible)
        if end_offset == self.end_offset:
            self.tail_formats = 0
        if self._epoch_start <= end_offset:
            self._epochs = None
        if self._transactions is not None:
            self._transactions.forget_below(end_offset)
            if self._transactions.is_idle:
                self._transactions = None

    def retain_from(self, start_offset: int) -> None:
        """Show nothing below; never more than what is durable goes."""
        start_offset = min(start_offset, self.high_watermark)
        if start_offset <= self.start_offset:
            return
        self.start_offset = start_offset
        if start_offset > self.flushed_end:
            self.flushed(start_offset)
        self.wake()

    def drop(self) -> None:
        """The partition was deleted: whoever still holds this finds nothing, and holds nothing."""
        self.start_offset = self.flushed_end = self.high_watermark = self.end_offset
        self._tail.drop_before(self._tail.end)
        self.wake()
