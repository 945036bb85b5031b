"""One partition: its entries by offset, the older ones in segments, the rest in the tail.

    start_offset          flushed_end              high_watermark     end_offset
         |  extents in segments |   tail: durable        |  tail: being written |

Only entries between `start_offset` and `high_watermark` can be read. A read returns whole entries,
from the one that contains the requested offset: a `TailSlice` of memory, or a `SegmentSlice` where
a file has to be read, in a thread and not on the event loop. Readers of committed data read up to
`stable_end` and skip the transactions that `aborted` lists: transactions.py.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Final

import msgspec

from trilogue.entry.entry import Format
from trilogue.entry.walk import read_header
from trilogue.log.errors import OffsetOutOfRange, SegmentMissing
from trilogue.log.journal.journal import Journal
from trilogue.log.partition_appender import NO_WATCHERS, PartitionAppender
from trilogue.log.partition_lookups import (
    UNKNOWN_EPOCH,
    EpochEnd,
    SegmentLookup,
    end_of_epoch,
    epoch_of,
    first_found,
)
from trilogue.log.segments.catalog import Catalog, Runs
from trilogue.log.segments.extents import Extent
from trilogue.log.segments.segment import AbortedTransaction, EpochStart
from trilogue.log.segments.segment_info import SegmentInfo
from trilogue.log.segments.segment_reader import SegmentReaders
from trilogue.log.tail.chunks import Budget
from trilogue.log.tail.tail import Tail
from trilogue.log.transactions import overlapping, read_transaction_step

log = logging.getLogger(__name__)

NO_TIMESTAMP: Final = -1
NO_TRANSACTIONS: Final[Mapping[int, int]] = MappingProxyType({})


class TailSlice(msgspec.Struct, frozen=True):
    """Entries in memory. The slices may be sent as they are and must not be written to."""

    slices: list[memoryview | bytes]
    size: int
    next_offset: int = -1  # where they end; only set for reads with `until`


class SegmentSlice(msgspec.Struct, frozen=True):
    """Entries in a segment: `run` reads them, in a thread, and may raise `LogError` or `OSError`.

    A search that finds nothing there goes on at `next_offset`.
    """

    run: Callable[[], memoryview]
    size_hint: int
    next_offset: int


class AbortedLookup(msgspec.Struct, frozen=True):
    """A lookup of aborted transactions that may need segments: `run` reads them, in a thread."""

    readers: SegmentReaders
    segments: Sequence[SegmentInfo]
    partition_id: int
    from_offset: int
    hot: list[AbortedTransaction]  # from memory, when the lookup was created

    def run(self, to_offset: int) -> list[AbortedTransaction]:
        """Return the aborted transactions with entries in [`from_offset`, `to_offset`).

        Raises `LogError`, `OSError`.
        """
        found, goes_on = self.readers.aborted(
            self.segments, self.partition_id, self.from_offset, to_offset
        )
        if goes_on:
            found += overlapping(self.hot, self.from_offset, to_offset)[0]
        return list(dict.fromkeys(found))  # during a flush some are in both


NOTHING: Final = TailSlice([], 0)


class PartitionLog:
    """Appends to the journal and reads from tail and segments. Used on the loop only.

    The state that changes with each append is in its compiled `PartitionAppender`.
    """

    __slots__ = (
        "_appender",
        "_epoch_start",
        "_epochs",
        "_readers",
        "_runs",
        "_tail",
        "append",
        "append_plain",
        "flushed_end",
        "partition_id",
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
        open_transactions: Sequence[tuple[int, int]] = (),
    ) -> None:
        end = max(start_offset, flushed_end)
        self.partition_id = partition_id
        self.start_offset = start_offset  # the first offset that may be read
        self.flushed_end = end  # below it entries are in segments
        self._readers = readers
        self._runs = Runs(catalog, partition_id)  # of entries in segments
        self._tail = Tail(budget)
        self._appender = PartitionAppender(
            partition_id,
            owner_epoch,
            end_offset=end,
            buffer=journal.buffer,
            tail=self._tail,
            open_transactions=open_transactions,
        )
        self.append = self._appender.append
        self.append_plain = self._appender.append_plain
        self._epoch_start = end  # where the owner's epoch begins
        self._epochs: list[EpochStart] | None = None  # earlier epochs at the start of the tail

    @property
    def owner_epoch(self) -> int:
        """The epoch of the owner that appends to this partition."""
        return self._appender.owner_epoch

    @property
    def high_watermark(self) -> int:
        """The end of the durable entries: entries below it may be read."""
        return self._appender.high_watermark

    @property
    def end_offset(self) -> int:
        """The offset of the next entry."""
        return self._appender.end_offset

    @property
    def tail_formats(self) -> int:
        """Bit 1 << Format for each format of which entries may be in the tail."""
        return self._appender.tail_formats

    @property
    def open_transactions(self) -> Mapping[int, int]:
        """The durable open transactions: producer id to first offset."""
        transactions = self._appender.transactions
        return NO_TRANSACTIONS if transactions is None else transactions.open

    @property
    def acks_from_memory(self) -> bool:
        """Whether appends are acknowledged before they are durable, so that commits may wait."""
        return self._appender.acks_from_memory

    @acks_from_memory.setter
    def acks_from_memory(self, acks_from_memory: bool) -> None:
        self._appender.acks_from_memory = acks_from_memory

    # -- recovery --------------------------------------------------------------------------

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
        """Put an entry that is durable in the journal back into the tail.

        `formats` has the bit of the entry's format.
        """
        appender = self._appender
        appender.restore(
            entry,
            base_offset,
            end_offset,
            epoch,
            max_timestamp=max_time,
            append_time_ms=append_ms,
            formats=formats,
        )
        self._epoch_start = end_offset
        if self._epochs is None:
            self._epochs = [EpochStart(epoch, base_offset)]
        elif self._epochs[-1].owner_epoch != epoch:
            self._epochs.append(EpochStart(epoch, base_offset))

    def restore_transaction(self, entry: memoryview) -> None:
        """Apply what a durable entry did to transactions, also of an entry that is not restored.

        For recovery: call it in order for each entry after those that `open_transactions` covers.
        """
        header = read_header(entry)
        appender = self._appender
        appender.note_transaction(read_transaction_step(entry, header, header.base_offset))
        if appender.transactions is not None:
            appender.transactions.advance(header.base_offset + 1)

    # -- reading ---------------------------------------------------------------------------

    def read(  # noqa: C901 - every fetch comes here: one call
        self,
        offset: int,
        max_bytes: int,
        *,
        at_least_one: bool = True,
        until: int | None = None,
        is_replica: bool = False,
    ) -> TailSlice | SegmentSlice:
        """Return whole entries from the one that contains the offset, up to `max_bytes` of them.

        With `at_least_one` the first is returned even if it is larger. `until` is the start of an
        entry, as `stable_end` is: no entry from there on is returned. At or above the high
        watermark the slice is empty; a replica reads up to the end, what is not durable too.
        Raises `OffsetOutOfRange` beyond the end or below the start.
        """
        appender = self._appender
        high_watermark, end = appender.high_watermark, appender.durable_position
        if is_replica:
            high_watermark, end = appender.end_offset, appender.end_position
        if not self.start_offset <= offset <= appender.end_offset:
            raise OffsetOutOfRange(offset, self.start_offset, appender.end_offset)
        if offset >= high_watermark or (until is not None and offset >= until):
            return NOTHING
        if offset < self.flushed_end:
            cold = self._read_cold(offset, max_bytes, at_least_one=at_least_one, until=until)
            if cold is not None:
                return cold
        known, position = appender.previous_watermark
        tail = self._tail
        if offset != known or position < tail.start:
            position = tail.locate(offset)
        if until is not None and until < high_watermark:
            end = max(position, tail.locate(until))
        if end - position > max_bytes:
            end = tail.boundary(position, position + max_bytes)
            if end == position and at_least_one:
                end = tail.entry_end(position)
        slices = tail.slices(position, end)
        if until is None:
            return TailSlice(slices, end - position)
        is_all = end == appender.durable_position
        next_offset = high_watermark if is_all else tail.offset_at(end)
        return TailSlice(slices, end - position, next_offset)

    def _read_cold(
        self, offset: int, max_bytes: int, *, at_least_one: bool, until: int | None
    ) -> SegmentSlice | None:
        found = next(self._runs.since(offset), None)
        if found is None:
            return None  # a hole before the tail
        extent, segment = found
        return SegmentSlice(
            run=lambda: self._readers.read(
                segment,
                self.partition_id,
                offset,
                max_bytes,
                at_least_one=at_least_one,
                until=until,
            ),
            # One entry is read whole; those of the segment are about equally large.
            size_hint=min(max(max_bytes, extent.size // extent.entry_count), extent.size),
            next_offset=extent.end_offset,
        )

    def check_readable(self, offset: int) -> None:
        """Raise SegmentMissing if what a reader at this offset reads next is known to be lost."""
        missing = self._runs.missing
        if not missing or offset >= self.flushed_end:
            return
        found = next(self._runs.since(offset), None)
        if found is not None and found[1].segment_id in missing:
            raise SegmentMissing(f"the segment {missing[found[1].segment_id]} is missing")

    def wait(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` once when the high watermark moves; return a function that cancels it."""
        self.watch(token := object(), callback)
        return lambda: self.unwatch(token)

    def watch(self, watcher: object, callback: Callable[[], None]) -> None:
        """Call `callback` once, under this key, when the high watermark or start moves."""
        if self._appender.watchers is NO_WATCHERS:
            self._appender.watchers = {}
        self._appender.watchers[watcher] = callback

    def unwatch(self, watcher: object) -> None:
        """Cancel the callback registered under this key."""
        self._appender.watchers.pop(watcher, None)

    def offset_for_time(
        self, timestamp_ms: int, from_offset: int | None = None
    ) -> TailSlice | SegmentSlice | None:
        """Return the first entry that may hold a message of this time or later, or None.

        The caller searches the entry's messages. If none matches (the header's maximum was too
        high, or a `SegmentSlice` search returned nothing), it calls again with the offset after the
        entry.
        """
        offset = self.start_offset if from_offset is None else max(from_offset, self.start_offset)
        for extent, segment in self._runs.since(offset):
            if extent.max_event_ms >= timestamp_ms:
                return self._search_cold(segment, extent, timestamp_ms, offset)
        tail = self._tail
        found = tail.find_time(timestamp_ms, tail.locate(offset), self._appender.durable_position)
        if found is None:
            return None
        position, end = found
        return TailSlice(tail.slices(position, end), end - position)

    def _search_cold(
        self, segment: SegmentInfo, extent: Extent, timestamp_ms: int, offset: int
    ) -> SegmentSlice:
        def search() -> memoryview:
            with self._readers.lease(segment) as reader:
                found = reader.entry_for_time(self.partition_id, timestamp_ms, offset)
            return memoryview(b"") if found is None else found

        return SegmentSlice(run=search, size_hint=extent.size, next_offset=extent.end_offset)

    def offset_for_append_time(
        self, timestamp_ms: int, from_offset: int | None = None
    ) -> int | SegmentLookup[int | None] | None:
        """Return an offset at or before all entries that became durable at `timestamp_ms` or later.

        None when there are no such entries. Up to a block of a segment (256 KiB), or some kilobytes
        of the tail, may be older: frames and blocks record append times, entries do not.
        """
        offset = self.start_offset if from_offset is None else max(from_offset, self.start_offset)
        tail = self._tail
        appender = self._appender
        position = appender.append_times.find_position(
            timestamp_ms, tail.locate(offset), appender.durable_position
        )
        hot = None if position is None else max(offset, tail.offset_at(position))
        searches = [
            partial(self._search_append_time, segment, timestamp_ms, offset)
            for extent, segment in self._runs.since(offset)
            if extent.max_append_ms >= timestamp_ms
        ]
        return SegmentLookup(partial(first_found, searches, hot)) if searches else hot

    def _search_append_time(
        self, segment: SegmentInfo, timestamp_ms: int, offset: int
    ) -> int | None:
        with self._readers.lease(segment) as reader:
            return reader.offset_for_append_time(self.partition_id, timestamp_ms, offset)

    # -- transactions and epochs -----------------------------------------------------------

    @property
    def stable_end(self) -> int:
        """The end for readers of committed data: no transaction is open below it."""
        transactions = self._appender.transactions
        first = None if transactions is None else transactions.first_open
        if first is None:
            return self.high_watermark
        return min(self.high_watermark, max(first, self.start_offset))

    def aborted(self, from_offset: int, to_offset: int) -> list[AbortedTransaction] | AbortedLookup:
        """Return the aborted transactions with entries in [from_offset, to_offset).

        `to_offset` is at most the `stable_end` of the time of the read. For a read from segments
        its end is known only after the read: pass it to `AbortedLookup.run`.
        """
        transactions = self._appender.transactions
        rows = [] if transactions is None else transactions.aborted
        hot, _ = overlapping(rows, from_offset, to_offset)
        segments = self._runs.holders(from_offset) if from_offset < self.flushed_end else []
        if not segments:
            return hot
        return AbortedLookup(self._readers, segments, self.partition_id, from_offset, hot)

    @property
    def start_epoch(self) -> int:
        """The epoch of the first message kept; where a segment begins with several, the newest."""
        for extent, _ in self._runs.since(self.start_offset):
            return extent.owner_epoch
        earlier = (self._epochs or ()) if self.start_offset < self._epoch_start else ()
        return epoch_of(self.start_offset, earlier, self.owner_epoch)

    def epoch_end(self, epoch: int) -> EpochEnd | SegmentLookup[EpochEnd]:
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
                return SegmentLookup(partial(self._search_epoch, segment, epoch, start, below))
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
        """The largest timestamp in ms of a readable message; -1 when there is none."""
        newest = max((extent.max_event_ms for extent in self.extents), default=NO_TIMESTAMP)
        return max(newest, self._tail.max_timestamp(self._appender.durable_position))

    @property
    def size_bytes(self) -> int:
        """Bytes of entries kept, in segments and in memory."""
        kept = self._runs.size_bytes(self.start_offset, self.flushed_end)
        return kept + self._tail.size

    @property
    def appended_bytes(self) -> int:
        """Bytes of entries appended since the start of the process, or restored at it."""
        return self._appender.end_position

    @property
    def tail_bytes(self) -> int:
        """Bytes of entries that are not yet in a segment."""
        return self._tail.size

    @property
    def extents(self) -> list[Extent]:
        """The extents in segments, by offset; entries in memory are not included."""
        end = self.flushed_end
        runs = self._runs.since(self.start_offset)
        return [extent for extent, _ in runs if extent.base_offset < end]

    # -- flush and retention ---------------------------------------------------------------

    def flushed(self, end_offset: int) -> None:
        """Drop entries below `end_offset` from memory: they are in segments or expired."""
        if end_offset <= self.flushed_end:
            return
        assert end_offset <= self.high_watermark, "flushed what is not durable"
        self.flushed_end = end_offset
        tail, appender = self._tail, self._appender
        durable = appender.durable_position
        is_all = end_offset == appender.high_watermark
        position = durable if is_all else tail.locate(end_offset)
        tail.drop_before(position)
        appender.append_times.drop_before(position, durable)
        if end_offset == appender.end_offset:
            appender.tail_formats = 0
        if self._epoch_start <= end_offset:
            self._epochs = None
        transactions = appender.transactions
        if transactions is not None:
            transactions.forget_below(end_offset)
            if transactions.is_idle:
                appender.transactions = None

    def retain_from(self, start_offset: int) -> None:
        """Raise the start offset, at most to the end of the durable entries."""
        start_offset = min(start_offset, self.high_watermark)
        if start_offset <= self.start_offset:
            return
        self.start_offset = start_offset
        if start_offset > self.flushed_end:
            self.flushed(start_offset)
        self._appender.wake()

    def drop(self) -> None:
        """Empty the partition after its deletion: it returns nothing and holds no memory."""
        appender = self._appender
        self.start_offset = self.flushed_end = appender.high_watermark = appender.end_offset
        self._tail.drop_before(self._tail.end)
        self._appender.wake()
