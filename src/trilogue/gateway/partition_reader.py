"""What a client may read of a partition: the part that is the same for every protocol.

    open_read      from memory or from a segment, up to the end that the isolation level allows
    find_aborted   the aborted transactions with entries in what is read
    read_visible   both, and a walk over the entries: which are hidden, which have to be converted

An entry is hidden when it is a control marker of transactions, or when its transaction was aborted.
Kafka's clients get stored batches in one piece and pass over hidden ones by themselves (a fetch
lists the aborted transactions), so the Kafka gateway only opens reads. The Pulsar and TubeMQ
gateways hand out single entries and messages, and walk them.

A read of memory is walked at once on the loop, which is quick; its bytes are views of the tail that
must not be kept longer than the step. The executor takes (`ExecutorRead`) segments, searches for
aborted transactions in segments, and conversions that are large or have to decompress, whose size
is not known before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar

from trilogue.entry.entry import CONTROL, TRANSACTIONAL
from trilogue.entry.walk import formats_in, last_header, walk_headers
from trilogue.gateway.conversion_cache import CONVERTED_ON_LOOP, conversion_weight
from trilogue.log.partition_log import (
    AbortedLookup,
    PartitionLog,
    SegmentSlice,
    TailSlice,
)
from trilogue.log.segments.segment import AbortedTransaction

T = TypeVar("T")
Aborted: TypeAlias = list[AbortedTransaction] | AbortedLookup

HIDDEN: Final = -1  # in place of an entry's format
FORMAT_AT: Final = 21  # of an entry: the byte with its format, in the low bits
FORMAT_MASK: Final = 3
ATTRIBUTES_AT: Final = 22  # of an entry: the low byte of its attributes


class ExecutorRead(NamedTuple, Generic[T]):
    """A read for the executor; `run` may raise LogError, EntryError or OSError."""

    run: Callable[[], T]
    size_hint: int  # bytes that it reads, about


class NeedsExecutor(Exception):
    """A walk on the loop came to an entry that takes too long there."""


class PartitionRead(NamedTuple):
    """Entries from the one that contains `offset` on, to be read from `source`."""

    source: TailSlice | SegmentSlice
    offset: int
    until: int | None  # where readers of committed messages stop; None: uncommitted ones too

    @property
    def end_offset(self) -> int:
        """The end of the entries in memory; of a segment an upper bound."""
        source, until = self.source, self.until
        if isinstance(source, TailSlice) and (until is None or source.next_offset >= 0):
            return source.next_offset
        return max(self.offset, 0 if until is None else until)

    @property
    def size_hint(self) -> int:
        """About how many bytes `load` returns."""
        source = self.source
        return source.size if isinstance(source, TailSlice) else source.size_hint

    def find_aborted(self, plog: PartitionLog) -> Aborted:
        """Return the aborted transactions with entries in this read; call it on the loop."""
        return plog.aborted(self.offset, self.end_offset)

    def load(self) -> list[memoryview | bytes]:
        """Return the bytes; of a segment only in the executor. LogError, OSError."""
        source = self.source
        return source.slices if isinstance(source, TailSlice) else [source.run()]


def open_read(
    plog: PartitionLog,
    offset: int,
    max_bytes: int,
    *,
    committed: bool = True,
    at_least_one: bool = True,
    is_replica: bool = False,
) -> PartitionRead:
    """Plan a read of up to `max_bytes`; with `at_least_one` of one entry in any case.

    A reader of committed messages stops at the last stable offset, a replica at the end of the log,
    any other at the high watermark.
    Raises OffsetOutOfRange.
    """
    until = plog.stable_end if committed else None
    return PartitionRead(
        plog.read(offset, max_bytes, at_least_one=at_least_one, until=until, is_replica=is_replica),
        offset,
        until,
    )


def resolve_aborted(aborted: Aborted, end: int) -> list[AbortedTransaction]:
    """Return the aborted transactions below `end`, searching segments; LogError, OSError."""
    return aborted.run(end) if isinstance(aborted, AbortedLookup) else aborted


def entries_end(entries: memoryview | bytes | bytearray) -> int:
    """Return the offset after the last of some whole entries, of which there is one at least."""
    _, _, base_offset, last_offset_delta, *_ = last_header(entries)
    return base_offset + last_offset_delta + 1


class EntryWalk:
    """The entries of one read, in order, from the one that contains `start` up to `end`.

    Iterating gives (base offset, end offset, entry, format), with HIDDEN as the format of entries
    that no reader of committed messages sees. On the loop it raises NeedsExecutor instead of an
    entry that takes too long there.
    """

    __slots__ = ("_aborted", "_own_format", "end", "formats", "slices", "start")

    def __init__(
        self,
        slices: Sequence[memoryview],
        start: int,
        end: int,
        own_format: int,
        aborted: PartitionLog | Aborted,
    ) -> None:
        self.slices = slices
        self.start = start
        self.end = end
        self.formats = -1  # bits: the formats of the tail; -1 where entries are of a segment
        self._own_format = own_format
        self._aborted = aborted  # on the loop the log, which is searched when needed

    @property
    def in_memory(self) -> bool:
        """Whether the entries are of the tail, where none changes: conversions may be kept."""
        return self.formats >= 0

    @property
    def only_own(self) -> bool:
        """Whether all entries have the reader's own format."""
        formats = self.formats
        if formats < 0:
            formats = 0
            for each in self.slices:
                formats |= formats_in(each)
        return formats == 1 << self._own_format

    def __iter__(self) -> Iterator[tuple[int, int, memoryview, int]]:
        start, own_format = self.start, self._own_format
        on_loop = isinstance(self._aborted, PartitionLog)
        aborted: list[AbortedTransaction] | None = None
        weight = 0
        for view in self.slices:
            for at, length, base, delta, _, producer_id, _, _ in walk_headers(view):
                end = base + delta + 1
                if end <= start:
                    continue
                entry = view[at : at + length]
                attributes = view[at + ATTRIBUTES_AT]
                if attributes & TRANSACTIONAL and aborted is None:
                    aborted = self._find_aborted()
                if attributes & CONTROL or (
                    aborted
                    and attributes & TRANSACTIONAL
                    and any(each.holds(producer_id, base) for each in aborted)
                ):
                    yield base, end, entry, HIDDEN
                    continue
                entry_format = view[at + FORMAT_AT] & FORMAT_MASK
                if on_loop and entry_format != own_format:
                    weight += conversion_weight(entry)
                    if weight > CONVERTED_ON_LOOP:
                        raise NeedsExecutor
                yield base, end, entry, entry_format

    def _find_aborted(self) -> list[AbortedTransaction]:
        aborted = self._aborted
        if isinstance(aborted, PartitionLog):
            aborted = aborted.aborted(self.start, self.end)
            if isinstance(aborted, AbortedLookup):
                raise NeedsExecutor
        return resolve_aborted(aborted, self.end)

    def for_executor(self) -> EntryWalk:
        """Return the same walk without the limits of the loop; call it on the loop."""
        aborted = self._aborted
        if isinstance(aborted, PartitionLog):
            aborted = aborted.aborted(self.start, self.end)
        walk = EntryWalk(self.slices, self.start, self.end, self._own_format, aborted)
        walk.formats = self.formats
        return walk


def read_visible(
    plog: PartitionLog,
    offset: int,
    max_bytes: int,
    own_format: int,
    build: Callable[[EntryWalk], T],
) -> T | ExecutorRead[T]:
    """Read what readers of committed messages see from an offset on, and build a result of it.

    `build` gets the walk over the entries. When the walk raises NeedsExecutor, `build` returns what
    it has so far, or lets the exception through if it has nothing; then all of it is left to the
    executor. Raises OffsetOutOfRange.
    """
    read = open_read(plog, offset, max_bytes)
    source = read.source
    if isinstance(source, SegmentSlice):
        aborted = read.find_aborted(plog)  # on the loop, where the log lives
        return ExecutorRead(lambda: build(_walk_segment(read, aborted, own_format)), read.size_hint)
    slices = [memoryview(each) for each in source.slices]
    walk = EntryWalk(slices, offset, read.end_offset, own_format, plog)
    walk.formats = plog.tail_formats
    try:
        return build(walk)
    except NeedsExecutor:
        later = walk.for_executor()
    return ExecutorRead(lambda: build(later), read.size_hint)


def _walk_segment(read: PartitionRead, aborted: Aborted, own_format: int) -> EntryWalk:
    """Read a segment, in the executor; without entries the walk ends where the segment does."""
    assert isinstance(read.source, SegmentSlice)
    view = read.source.run()
    end = min(entries_end(view) if len(view) else read.source.next_offset, read.end_offset)
    return EntryWalk([view], read.offset, end, own_format, aborted)
