"""What a dispatcher has read of the log: entries in a row, from memory or from a segment.

    Read(start, end)    rows, each one item that a consumer may be given as one message

A row is an entry of Pulsar's as it is stored; or a piece of a foreign one, converted; or nothing
that anybody may see (a marker, an aborted or damaged entry): then it has no section. What lies
between rows, or between `start` and the first, are holes.

Entries in memory are walked at once, which is cheap; the bytes are views of the tail, not to be
kept longer than a turn. For the executor (`Later.run`) are segments, searches for aborted
transactions, and conversions that are large or have to decompress, which nobody knows the size of.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from trilogue.entry.convert import Section, Skipped, pulsar_sections
from trilogue.entry.convert_pulsar_read import holes_of
from trilogue.entry.entry import CONTROL, HEADER_SIZE, TRANSACTIONAL
from trilogue.entry.pulsar_batch import PULSAR_SECTION_AT, Flag
from trilogue.entry.walk import read_header
from trilogue.gateway.committed import (
    ATTRIBUTES_AT,
    FORMAT_AT,
    cold_end,
    entries_from,
    hot_end,
    is_aborted,
)
from trilogue.gateway.conversions import CONVERTED_ON_LOOP, Conversions, weight_of
from trilogue.gateway.stream import Buffer
from trilogue.log.partition_log import Cold, LaterAborted, PartitionLog
from trilogue.log.segment import AbortedTransaction

READ_BYTES: Final = 64 << 10
FLAGS_AT: Final = 62  # of an entry: a byte
BATCH: Final = int(Flag.BATCH)  # a plain number: this is a hot path
OURS: Final = 1  # the format, in bits 8-9 of the attributes
COUNT_AT: Final = 57  # of an entry: how many messages it has
Convert = Callable[[memoryview], list[Section | Skipped]]


class Row(NamedTuple):
    """One item: offsets, and where its section is; `entry` is what it was made of."""

    base: int
    end: int
    section: Buffer | None  # None: nothing to be seen
    entry: Buffer  # a stored one, or what was converted: the section itself
    flags: int  # of a stored one (pulsar_batch.Flag); -1 of a converted one
    is_batch: bool
    holes: tuple[tuple[int, int], ...] = ()  # inside it: acked by nobody


class Read:
    """Rows in the order of offsets, of everything from `start` to `end`."""

    __slots__ = ("_bases", "end", "rows", "start")

    def __init__(self, start: int, end: int, rows: list[Row]) -> None:
        self.start = min(start, rows[0].base) if rows else start
        self.end = max(end, rows[-1].end) if rows else end
        self.rows = rows
        self._bases = [row.base for row in rows]

    def at(self, offset: int) -> int:
        """The place of the row with an offset, or of the next one."""
        place = bisect_right(self._bases, offset) - 1
        return place if place >= 0 and offset < self.rows[place].end else place + 1

    def covers(self, offset: int) -> bool:
        """Whether this tells what is at an offset."""
        return self.start <= offset < self.end


class Later(NamedTuple):
    """A read for the executor; `run` may raise LogError, EntryError or OSError."""

    run: Callable[[], Read]


def read(
    plog: PartitionLog,
    offset: int,
    section_bytes_max: int,
    max_bytes: int = READ_BYTES,
    conversions: Conversions | None = None,
) -> Read | Later:
    """Read what readers of committed messages may see from an offset on; OffsetOutOfRange.

    `conversions` keeps what is converted, and counts what cannot be, for who hands it on.
    """
    stable_end = plog.stable_end
    found = plog.read(offset, max_bytes, until=stable_end)
    is_cold = isinstance(found, Cold)

    def convert(entry: memoryview) -> list[Section | Skipped]:
        header = read_header(entry)
        if conversions is None:
            return pulsar_sections(entry, header, limit=section_bytes_max)
        return conversions.for_pulsar(
            plog.partition_id, entry, header, section_bytes_max, keep=not is_cold
        )

    if isinstance(found, Cold):
        # What was aborted is asked for here: the log lives on the loop.
        aborted = plog.aborted(offset, stable_end)
        return Later(lambda: _cold(found, offset, stable_end, convert, aborted))
    slices = [memoryview(each) for each in found.slices]
    end = hot_end(found, offset, stable_end)
    return _rows(
        slices,
        offset,
        end,
        convert,
        lambda: plog.aborted(offset, end),
        on_loop=True,
    )


def _cold(
    cold: Cold,
    offset: int,
    stable_end: int,
    convert: Convert,
    aborted: list[AbortedTransaction] | LaterAborted,
) -> Read:
    """In the executor."""
    view = cold.run()
    end = cold_end(cold, view, offset, stable_end)
    found = _rows(
        [view],
        offset,
        end,
        convert,
        lambda: aborted,
        on_loop=False,
    )
    assert isinstance(found, Read), "everything can be done here"
    return found


def _rows(
    slices: list[memoryview],
    start: int,
    end: int,
    convert: Convert,
    aborted: Callable[[], list[AbortedTransaction] | LaterAborted],
    *,
    on_loop: bool,
) -> Read | Later:
    """Make rows of entries; on the loop as far as that is quick."""
    rows: list[Row] = []
    passed: list[AbortedTransaction] | None = None
    weight = 0
    for at, length, base, delta, producer_id, view in entries_from(slices, start):
        low = view[at + ATTRIBUTES_AT]
        entry = view[at : at + length]
        if low & TRANSACTIONAL and passed is None:
            found = aborted()
            if isinstance(found, LaterAborted):
                if on_loop:
                    return _all_later(slices, start, end, convert, found)
                found = found.run(end)
            passed = found
        if low & CONTROL or (passed and is_aborted(low, base, producer_id, passed)):
            rows.append(Row(base, base + delta + 1, None, entry, -1, False))
        elif view[at + FORMAT_AT] & 3 == OURS:
            rows.append(_stored(entry, base, delta))
        elif not on_loop or (weight := weight + weight_of(entry)) <= CONVERTED_ON_LOOP:
            rows += _converted(convert(entry))
        elif rows:  # these first
            return Read(start, rows[-1].end, rows)
        else:
            return _all_later(slices, start, end, convert, aborted())
    return Read(start, end, rows)


def _stored(entry: memoryview, base: int, delta: int) -> Row:
    flags = entry[FLAGS_AT]
    is_batch = delta > 0 or flags & BATCH != 0
    holes: tuple[tuple[int, int], ...] = ()
    if is_batch and int.from_bytes(entry[COUNT_AT:HEADER_SIZE], "big") <= delta:
        holes = holes_of(entry)  # compaction made them, so it lies in a segment
    return Row(base, base + delta + 1, entry[PULSAR_SECTION_AT:], entry, flags, is_batch, holes)


def _all_later(
    slices: list[memoryview],
    start: int,
    end: int,
    convert: Convert,
    aborted: list[AbortedTransaction] | LaterAborted,
) -> Later:
    def run() -> Read:
        found = _rows(slices, start, end, convert, lambda: aborted, on_loop=False)
        assert isinstance(found, Read), "everything can be done here"
        return found

    return Later(run)


def _converted(pieces: list[Section | Skipped]) -> Iterable[Row]:
    """What Pulsar clients see of an entry of another protocol."""
    for piece in pieces:
        if isinstance(piece, Section):
            end = piece.offset + piece.span
            yield Row(piece.offset, end, piece.data, piece.data, -1, piece.is_batch, piece.holes)
        else:
            yield Row(piece.offset, piece.offset + piece.span, None, b"", -1, False)
