"""Pulsar's message ids and the log's offsets, and sets of acks within an entry.

    ledger id    the partition's id
    entry id     the offset of the entry's first message
    batch index  offset - entry id

An entry id from a client names the entry that contains that offset; -1 is before the first.
An ack set is a sequence of 64-bit words: bit i is batch index i, 1 = not acked; zero words at the
end are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Final

from trilogue.entry.pulsar.layout import SECTION_METADATA_AT
from trilogue.gateway.stream import Buffer
from trilogue.wire.pulsar.message_codec import read_metadata
from trilogue.wire.pulsar.message_types import sticky_key

UINT64: Final = 1 << 64
INT64: Final = 1 << 63
LATEST: Final = INT64 - 1  # as ledger id and as entry id
EARLIEST: Final = -1
_SIZE: Final = Struct(">I")


def signed(number: int) -> int:
    """Return an id of the wire as int64: 2**64 - 1 is -1."""
    return number - UINT64 if number >= INT64 else number


def unsigned(number: int) -> int:
    """Return an id as the wire has it, uint64."""
    return number & UINT64 - 1


def encode_ack_set(base: int, end: int, missing: Iterable[tuple[int, int]]) -> tuple[int, ...]:
    """Return the ack set of an entry with these ranges not acked; () when all or none are."""
    bits = 0
    for start, stop in missing:
        bits |= ((1 << stop - start) - 1) << start - base
    if bits == (1 << end - base) - 1:
        return ()
    words = []
    while bits:
        word = bits & UINT64 - 1
        words.append(signed(word))
        bits >>= 64
    return tuple(words)


def decode_acked_ranges(base: int, end: int, words: Sequence[int]) -> list[tuple[int, int]]:
    """Return the offsets of an entry that are acked by an ack set, as ranges."""
    found: list[tuple[int, int]] = []
    at = base  # the offsets before are in `found`
    for place, word in enumerate(words):
        first = base + 64 * place
        kept = word & UINT64 - 1
        while kept:
            zeros = (kept & -kept).bit_length() - 1
            kept >>= zeros
            ones = (~kept & kept + 1).bit_length() - 1
            kept >>= ones
            first += zeros
            if first >= end:
                break
            if at < first:
                found.append((at, first))
            first += ones
            at = first
    if at < end:
        found.append((at, end))
    return found


def first_unacked(base: int, end: int, words: Sequence[int]) -> int:
    """Return the first offset of an entry that an ack set leaves unacked; its end if none."""
    for place, word in enumerate(words):
        kept = word & UINT64 - 1
        if kept:
            return min(end, base + 64 * place + (kept & -kept).bit_length() - 1)
    return end


def read_section_key(section: Buffer | None) -> bytes:
    """Return the sticky key of a section with its checksum, which selects a Key_Shared consumer."""
    view = memoryview(section or b"")
    (size,) = _SIZE.unpack_from(view, SECTION_METADATA_AT - 4)
    return sticky_key(read_metadata(view[SECTION_METADATA_AT : SECTION_METADATA_AT + size]))
