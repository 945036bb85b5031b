"""Entries as another protocol has them: (format, format) -> function, always through `Message`.

Readers of an entry's own protocol get it as it was sent and never come here. For the others:

- `kafka_batch` makes one record batch v2 of any entry, with the same offsets, holes included.
- `pulsar_sections` makes the payload sections of MESSAGE commands of any entry: one that covers it,
  or several where one would be too large. A piece that begins at offset o has entry id o, and what
  the pieces are depends on the stored entry and the limit alone. A message's batch index is its
  offset minus that of its piece; holes are items that were compacted out.

What cannot be converted is never silent: it is a `Skipped` with its reason, for the door to count
and to log (docs/reference/conversion.md says what may be). Nothing here does I/O; a large entry is
decompressed and belongs off the loop.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

from trilogue.entry.compression import Buffer
from trilogue.entry.entry import EntryHeader

CONVERTED_MAX: Final = 16 * 1024 * 1024  # bytes of one entry after conversion, where nobody says


class Reason(StrEnum):
    """Why something of an entry does not reach readers of another protocol."""

    ENCRYPTED = "encrypted"  # only its own clients have the key
    CHUNKED = "chunked"  # a message in several entries
    TRANSACTIONAL = "transactional"
    TOO_LARGE = "too_large"  # larger than the reader's frame, or than we decompress
    DAMAGED = "damaged"  # not what its format says
    UNKNOWN = "unknown"  # of a format that has no conversion yet


class Section(NamedTuple):
    """What a Pulsar client gets: `0e01 | crc | size | metadata | payload`, for offsets in a row."""

    offset: int  # the first one: the entry id
    span: int  # offsets that it covers, which is also the number of items of a batch
    data: bytes
    is_batch: bool
    holes: tuple[tuple[int, int], ...] = ()  # offsets [start, end) that hold nothing, acked by none


class Skipped(NamedTuple):
    """Offsets in a row of which the reader gets nothing; without a reason nothing was there."""

    offset: int
    span: int
    reason: Reason | None = None
    messages: int = 0  # that a reader misses
    detail: str = ""


class Batch(NamedTuple):
    """What a Kafka client gets; empty, but with all its offsets, when something was skipped."""

    data: bytes | Buffer
    skipped: Skipped | None = None


def pulsar_sections(entry: Buffer, header: EntryHeader, *, limit: int) -> list[Section | Skipped]:
    """Convert a whole entry for Pulsar clients; `limit` is of bytes of one section.

    The pieces come in the order of offsets and cover the entry without a gap.
    """
    raise NotImplementedError


def kafka_batch(entry: Buffer, header: EntryHeader, *, limit: int = CONVERTED_MAX) -> Batch:
    """Convert a whole entry for Kafka clients into one batch with the same offsets."""
    raise NotImplementedError
