"""The entries that a dispatcher has read: as Pulsar's clients see them.

    EntryRange(start, end)    entries, each of which a consumer is sent as one message

A DispatchEntry is a Pulsar entry as it is stored; or a part of another protocol's entry, converted;
or an entry that no consumer may see (a control marker, an aborted or damaged entry): then it has no
section. What lies between entries, or between `start` and the first, are holes.

How entries are read, and which are hidden, is in gateway/partition_reader.py.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import Final, NamedTuple, TypeAlias

from trilogue.entry.conversion.convert import Section, SkippedRange, pulsar_sections
from trilogue.entry.conversion.pulsar_read import holes_of
from trilogue.entry.entry import Format
from trilogue.entry.header import HEADER_SIZE
from trilogue.entry.pulsar.pulsar_batch import PULSAR_SECTION_AT, Flag
from trilogue.entry.walk import read_header
from trilogue.gateway.conversion_cache import ConversionCache
from trilogue.gateway.partition_reader import (
    HIDDEN,
    EntryWalk,
    ExecutorRead,
    NeedsExecutor,
    read_visible,
)
from trilogue.gateway.stream import Buffer
from trilogue.log.partition_log import PartitionLog

READ_BYTES: Final = 64 << 10
FLAGS_AT: Final = 62  # of an entry: a byte
BATCH: Final = int(Flag.BATCH)  # plain numbers: they are compared for each entry
PULSAR: Final = int(Format.PULSAR)
COUNT_AT: Final = 57  # of an entry: how many messages it has


class DispatchEntry(NamedTuple):
    """What a consumer is sent as one message: offsets, and the section."""

    base: int
    end: int
    section: Buffer | None  # None: hidden
    stored: Buffer  # the stored entry; of a converted one the section itself
    flags: int  # of a stored one (pulsar_batch.Flag); -1 of a converted one
    is_batch: bool
    holes: tuple[tuple[int, int], ...] = ()  # inside it, of compaction
    deliver_at_ms: int = 0  # of a converted one: not before this time; 0: at once

    @property
    def is_converted(self) -> bool:
        """Whether the entry is of another protocol."""
        return self.flags < 0


class EntryRange:
    """Entries in the order of offsets, all of them from `start` to `end`."""

    __slots__ = ("_bases", "end", "entries", "start")

    def __init__(self, start: int, end: int, entries: list[DispatchEntry]) -> None:
        self.start = min(start, entries[0].base) if entries else start
        self.end = max(end, entries[-1].end) if entries else end
        self.entries = entries
        self._bases = [entry.base for entry in entries]

    @property
    def size_bytes(self) -> int:
        """The bytes of all sections."""
        return sum(len(each.section) for each in self.entries if each.section is not None)

    def index_of(self, offset: int) -> int:
        """Return the index of the entry with an offset, or of the next one."""
        index = bisect_right(self._bases, offset) - 1
        return index if index >= 0 and offset < self.entries[index].end else index + 1

    def covers(self, offset: int) -> bool:
        """Whether an offset is between `start` and `end`."""
        return self.start <= offset < self.end


PendingRead: TypeAlias = ExecutorRead[EntryRange]


def read_entries(
    plog: PartitionLog,
    offset: int,
    section_bytes_max: int,
    max_bytes: int = READ_BYTES,
    conversions: ConversionCache | None = None,
) -> EntryRange | PendingRead:
    """Read what Pulsar's consumers see from an offset on; raises OffsetOutOfRange.

    `conversions` keeps what is converted, and counts what cannot be, for callers that send it on.
    """

    def build(walk: EntryWalk) -> EntryRange:
        entries: list[DispatchEntry] = []
        try:
            for base, end, entry, entry_format in walk:
                if entry_format == PULSAR:
                    entries.append(_build_stored(entry, base, end))
                elif entry_format == HIDDEN:
                    entries.append(DispatchEntry(base, end, None, entry, -1, False))
                else:
                    entries += _build_converted(convert(entry, keep=walk.in_memory))
        except NeedsExecutor:
            if not entries:
                raise
            return EntryRange(walk.start, entries[-1].end, entries)
        return EntryRange(walk.start, walk.end, entries)

    def convert(entry: memoryview, *, keep: bool) -> list[Section | SkippedRange]:
        header = read_header(entry)
        if conversions is None:
            return pulsar_sections(entry, header, limit=section_bytes_max)
        return conversions.for_pulsar(
            plog.partition_id, entry, header, section_bytes_max, keep=keep
        )

    return read_visible(plog, offset, max_bytes, PULSAR, build)


def _build_stored(entry: memoryview, base: int, end: int) -> DispatchEntry:
    flags = entry[FLAGS_AT]
    is_batch = end - base > 1 or flags & BATCH != 0
    holes: tuple[tuple[int, int], ...] = ()
    if is_batch and int.from_bytes(entry[COUNT_AT:HEADER_SIZE], "big") < end - base:
        holes = holes_of(entry)  # of compaction, so the entry lies in a segment
    return DispatchEntry(base, end, entry[PULSAR_SECTION_AT:], entry, flags, is_batch, holes)


def _build_converted(pieces: list[Section | SkippedRange]) -> Iterable[DispatchEntry]:
    for piece in pieces:
        end = piece.offset + piece.span
        if isinstance(piece, Section):
            yield DispatchEntry(
                piece.offset, end, piece.data, piece.data, -1, piece.is_batch, piece.holes,
                piece.deliver_at_ms,
            )  # fmt: skip
        else:
            yield DispatchEntry(piece.offset, end, None, b"", -1, False)
