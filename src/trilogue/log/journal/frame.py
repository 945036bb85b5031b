"""Journal format v1: the bytes of one commit on disk. See docs/reference/file-formats.md too.

A journal file is a header block of 4 KiB and then frames, each starting on a 4 KiB boundary:

    +--------------+--------------+------+---------+------------
    | header block | frame n      | zero | frame   | zeros, or what the file
    | 4 KiB        |              |      | n + 1   | held in its previous life
    +--------------+--------------+------+---------+------------

All integers are big-endian.

    frame   +-----------+------------------------------+----------------------------------+
            | header 64 | entries: prefix 16 + entry   | facts: kind 2, 0 2, size 4, bytes |
            +-----------+------------------------------+----------------------------------+

Files are recycled, so a frame must prove that it belongs here and now. Its checksum is seeded with
the file's incarnation (random, new in each life of a file) and its sequence continues that of the
frame before, across files. Nothing else decides whether a frame is valid.

The entries are opaque but for their own header, which holds their length, offset and span.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Final, NamedTuple

from trilogue.entry import header as entry_header
from trilogue.entry.checksum import crc32c, crc32c_around
from trilogue.entry.header import LENGTH_PREFIX
from trilogue.log.errors import CorruptLog, FrameTooLarge, NewerFormat
from trilogue.log.files import BLOCK

VERSION: Final = 1

FILE_MAGIC: Final = b"TRILJRNL"
FRAME_MAGIC: Final = int.from_bytes(b"TRLF", "big")

#     magic, checksum of all that follows in the block, version, number, incarnation, cluster id
_FILE: Final = Struct(">8sIIQQ16s")
_FILE_CHECKED_FROM: Final = 12

#     magic, checksum, version, flags, 0, length, sequence, durable through, node id, node epoch,
#     append time, entries, facts, where facts begin, 0
_FRAME: Final = Struct(">IIBBHIQQIIQIIII")
MAGIC_AT: Final = 0
CHECKSUM_AT: Final = 4
CHECKED_FROM: Final = 8
VERSION_AT: Final = 8
LENGTH_AT: Final = 12
SEQUENCE_AT: Final = 16
DURABLE_AT: Final = 24
NODE_ID_AT: Final = 32
NODE_EPOCH_AT: Final = 36
APPEND_TIME_AT: Final = 40
ENTRY_COUNT_AT: Final = 48
FACT_COUNT_AT: Final = 52
FACTS_BEGIN_AT: Final = 56
LAST_WORD_AT: Final = 60
_WORD: Final = Struct(">I")

FRAME_HEADER: Final = _FRAME.size
PREFIX: Final = Struct(">QII")  # partition id, owner epoch, 0
FACT: Final = Struct(">HHI")  # kind, 0, size
_ENTRY_LENGTH: Final = Struct(">I")  # of an entry: the bytes after this field

MAX_ENTRY: Final = 16 << 20
MAX_FACT: Final = 1 << 20
MAX_FRAME: Final = MAX_ENTRY + (64 << 10)

CLEAN: Final = 1
"""Flag of the empty frame that ends a journal closed in order: all before it is durable."""

LOST: Final = 2
"""Flag of the empty frame that salvage puts where frames were unreadable, up to its sequence."""


class FileHeader(NamedTuple):
    """The first block of a journal file."""

    number: int
    incarnation: int
    cluster_id: bytes

    @property
    def seed(self) -> int:
        """The start value of the frame checksums in this life of the file."""
        return crc32c(self.incarnation.to_bytes(8, "big"))


class Frame(NamedTuple):
    """A valid frame, by its header; `position` is where it starts in the file."""

    position: int
    flags: int
    length: int  # without the padding
    sequence: int
    durable_through: int
    node_id: int
    node_epoch: int
    append_time_ms: int
    entry_count: int
    fact_count: int
    facts_at: int  # from the start of the frame

    @property
    def end(self) -> int:
        """Where the next frame starts."""
        return self.position + padded(self.length)


def padded(size: int) -> int:
    """Round up to whole blocks."""
    return (size + BLOCK - 1) & -BLOCK


def encode_file_header(header: FileHeader) -> bytearray:
    """Build the first block of a file."""
    block = bytearray(BLOCK)
    _FILE.pack_into(
        block, 0, FILE_MAGIC, 0, VERSION, header.number, header.incarnation, header.cluster_id
    )
    _WORD.pack_into(block, 8, crc32c(memoryview(block)[_FILE_CHECKED_FROM:]))
    return block


def decode_file_header(data: memoryview) -> FileHeader | None:
    """Decode the first block of a file; None when it is torn, unwritten or not a header."""
    if len(data) < BLOCK:
        return None
    magic, checksum, version, number, incarnation, cluster_id = _FILE.unpack_from(data)
    if magic != FILE_MAGIC or crc32c(data[_FILE_CHECKED_FROM:BLOCK]) != checksum:
        return None
    if version > VERSION:
        raise NewerFormat(f"journal format {version} is newer than {VERSION}, the newest known")
    return FileHeader(number, incarnation, cluster_id)


def encode_frame_header(  # the fields of the format, in order
    frame: memoryview,
    *,
    seed: int,
    flags: int,
    sequence: int,
    durable_through: int,
    node_id: int,
    node_epoch: int,
    append_time_ms: int,
    entry_count: int,
    fact_count: int,
    facts_at: int,
    known: Sequence[tuple[int, int, int]] = (),
) -> None:
    """Complete a frame whose entries and facts are in place; `frame` ends where its facts end.

    `known`: parts (start, end, checksum) of the frame, in order, that need not be walked again.
    """
    length = len(frame)
    if length > MAX_FRAME:
        raise FrameTooLarge(f"a frame of {length} bytes exceeds {MAX_FRAME}")
    _FRAME.pack_into(
        frame,
        0,
        FRAME_MAGIC,
        0,
        VERSION,
        flags,
        0,
        length,
        sequence,
        durable_through,
        node_id,
        node_epoch,
        append_time_ms,
        entry_count,
        fact_count,
        facts_at,
        0,
    )
    _WORD.pack_into(
        frame,
        CHECKSUM_AT,
        crc32c_around(
            frame[CHECKED_FROM:],
            [(start - CHECKED_FROM, end - CHECKED_FROM, crc) for start, end, crc in known],
            seed,
        )
        if known
        else crc32c(frame[CHECKED_FROM:], seed),
    )


def entry_checksum(data: memoryview, start: int) -> int:
    """Return the checksum field of the entry at `start`; it covers all but the first bytes."""
    (checksum,) = _WORD.unpack_from(data, start + entry_header.CHECKSUM_AT)
    return int(checksum)


def frame_at(data: memoryview, position: int, seed: int) -> Frame | None:
    """Return the valid frame that starts here; None when there is none (torn, old or absent)."""
    if position + FRAME_HEADER > len(data) or _WORD.unpack_from(data, position)[0] != FRAME_MAGIC:
        return None
    _, checksum, version, flags, _, length, *rest = _FRAME.unpack_from(data, position)
    if not FRAME_HEADER <= length <= MAX_FRAME or position + length > len(data):
        return None
    if crc32c(data[position + CHECKED_FROM : position + length], seed) != checksum:
        return None
    if version > VERSION:
        raise NewerFormat(f"frame format {version} is newer than {VERSION}, the newest known")
    sequence, durable_through, node_id, node_epoch, append_time_ms, *counts, _ = rest
    entry_count, fact_count, facts_at = counts
    return Frame(
        position,
        flags,
        length,
        sequence,
        durable_through,
        node_id,
        node_epoch,
        append_time_ms,
        entry_count,
        fact_count,
        facts_at,
    )


def sequence_at(data: memoryview, position: int) -> int | None:
    """Return the sequence in a possible frame header, without checking its checksum."""
    if position + FRAME_HEADER > len(data) or _WORD.unpack_from(data, position)[0] != FRAME_MAGIC:
        return None
    return int.from_bytes(data[position + SEQUENCE_AT : position + SEQUENCE_AT + 8], "big")


def frame_length(data: memoryview, position: int) -> int:
    """Return the length, without the padding, in the header of a frame that was just written."""
    return int(_WORD.unpack_from(data, position + LENGTH_AT)[0])


def iter_frames(data: memoryview, header: FileHeader, position: int = BLOCK) -> Iterator[Frame]:
    """Yield the valid frames from `position` on, as long as their sequence goes on.

    It ends silently at the first position without such a frame; recovery decides whether that is
    the end of the file, a torn tail or corruption. A `LOST` frame may jump.
    """
    seed = header.seed
    previous: int | None = None
    while (frame := frame_at(data, position, seed)) is not None:
        if previous is not None and frame.sequence != previous + 1 and not frame.flags & LOST:
            return
        yield frame
        previous = frame.sequence
        position = frame.end


def iter_entries(data: memoryview, frame: Frame) -> Iterator[tuple[int, int, int, int]]:
    """Yield (partition id, owner epoch, position, length) of a frame's entries, in order."""
    position = frame.position + FRAME_HEADER
    end = frame.position + frame.facts_at
    if frame.facts_at > frame.length:
        raise CorruptLog("facts begin beyond the frame", position=frame.position)
    for _ in range(frame.entry_count):
        start = position + PREFIX.size
        if start + LENGTH_PREFIX > end:
            raise CorruptLog("a frame holds fewer entries than it counts", position=position)
        partition_id, owner_epoch, _ = PREFIX.unpack_from(data, position)
        (after,) = _ENTRY_LENGTH.unpack_from(data, start + entry_header.LENGTH_AT)
        length = LENGTH_PREFIX + after
        position = start + length
        if position > end:
            raise CorruptLog("an entry reaches beyond its frame", position=start)
        yield partition_id, owner_epoch, start, length
    if position != end:
        raise CorruptLog("a frame holds more than the entries it counts", position=position)


def iter_facts(data: memoryview, frame: Frame) -> Iterator[tuple[int, memoryview]]:
    """Yield (kind, payload) of a frame's facts, in order."""
    position = frame.position + frame.facts_at
    end = frame.position + frame.length
    for _ in range(frame.fact_count):
        start = position + FACT.size
        if start > end:
            raise CorruptLog("a frame holds fewer facts than it counts", position=position)
        kind, _, size = FACT.unpack_from(data, position)
        position = start + size
        if position > end:
            raise CorruptLog("a fact reaches beyond its frame", position=start)
        yield kind, data[start:position]
    if position != end:
        raise CorruptLog("a frame holds more than the facts it counts", position=position)


def file_name(number: int) -> str:
    """Return a journal file's name; the header repeats the number."""
    return f"{number:016d}.journal"


def file_number(name: str) -> int | None:
    """Return the number in a journal file's name; None for other names."""
    stem, dot, suffix = name.partition(".")
    if not dot or suffix != "journal" or len(stem) != 16 or not stem.isdecimal():
        return None
    return int(stem)


def lost_frame(seed: int, *, sequence: int, append_time_ms: int) -> bytes:
    """Build the padded frame that salvage puts in place of unreadable frames up to `sequence`."""
    block = memoryview(bytearray(BLOCK))
    encode_frame_header(
        block[:FRAME_HEADER],
        seed=seed,
        flags=LOST,
        sequence=sequence,
        durable_through=0,
        node_id=0,
        node_epoch=0,
        append_time_ms=append_time_ms,
        entry_count=0,
        fact_count=0,
        facts_at=FRAME_HEADER,
    )
    return bytes(block)
