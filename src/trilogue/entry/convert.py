"""Entries as another protocol has them: (format, format) -> function, always through `Message`.

Readers of an entry's own protocol get it as it was sent and never come here. For the others:

- `kafka_batch` makes one record batch v2 of any entry, with the same offsets, holes included.
- `tubemq_messages` makes the messages of a TubeMQ client of any entry, a window of offsets at a
  time.
- `pulsar_sections` makes the payload sections of MESSAGE commands of any entry: one that covers it,
  or several where one would be too large. A piece that begins at offset o has entry id o, and what
  the pieces are depends on the stored entry and the limit alone. A message's batch index is its
  offset minus that of its piece; holes are items that were compacted out.

What cannot be converted is never silent: it is a `Skipped` with its reason, for the door to count
and to log (docs/reference/conversion.md says what may be). Nothing here does I/O; a large entry is
decompressed and belongs off the loop.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from trilogue.entry import convert_kafka, convert_pulsar_read, convert_tubemq
from trilogue.entry.compression import Buffer
from trilogue.entry.convert_kafka import Placed, empty_batch
from trilogue.entry.convert_result import (
    Batch,
    CannotConvert,
    Reason,
    Section,
    Skipped,
    TubeMessage,
)
from trilogue.entry.convert_sections import build_sections
from trilogue.entry.entry import (
    Codec,
    EntryError,
    EntryHeader,
    EntryTooLarge,
    Format,
)
from trilogue.entry.pulsar_batch import ChunkedEntry, EncryptedEntry

__all__ = [
    "CONVERTED_MAX",
    "TUBEMQ_MAX",
    "TUBEMQ_WINDOW",
    "Batch",
    "Reason",
    "Section",
    "Skipped",
    "TubeMessage",
    "kafka_batch",
    "pulsar_sections",
    "tubemq_messages",
]

CONVERTED_MAX: Final = 16 * 1024 * 1024  # bytes of one entry after conversion, where nobody says
TUBEMQ_MAX: Final = 24 * 1024 * 1024
"""Bytes of one message's data for TubeMQ clients: their frames hold 28 MiB (wire fact)."""
TUBEMQ_WINDOW: Final = 1000
"""Offsets that are converted at once for TubeMQ clients, who get no more in one answer."""


def pulsar_sections(
    entry: Buffer, header: EntryHeader, *, limit: int = CONVERTED_MAX
) -> list[Section | Skipped]:
    """Convert a whole entry for Pulsar clients; `limit` is of bytes of one section.

    The pieces come in the order of offsets and cover the entry without a gap.
    """
    if header.is_control or not header.record_count:
        return [Skipped(header.base_offset, header.span)]
    try:
        return build_sections(lambda: read_messages(entry, header), header, limit=limit)
    except EntryError as error:
        return [_skipped(header, error)]


def kafka_batch(entry: Buffer, header: EntryHeader, *, limit: int = CONVERTED_MAX) -> Batch:
    """Convert a whole entry for Kafka clients into one batch with the same offsets."""
    try:
        messages, codec = read_messages(entry, header)
        data = convert_kafka.build_messages(messages, header, codec=codec)
        if len(data) > limit:
            raise EntryTooLarge(f"{len(data)} bytes where {limit} are allowed")
    except EntryError as error:
        skipped = _skipped(header, error)
        return Batch(empty_batch(header), skipped if skipped.messages else None)
    return Batch(data)


def tubemq_messages(
    entry: Buffer, header: EntryHeader, *, offset: int | None = None, limit: int = TUBEMQ_MAX
) -> list[TubeMessage | Skipped]:
    """Convert a window of an entry's offsets for TubeMQ clients, the one with `offset`.

    Windows begin at the entry's first offset and every `TUBEMQ_WINDOW` behind it, so that one takes
    a bounded amount of memory. What is found covers its window without a gap: the last one says
    where the next window begins. `limit` is of bytes of one message's data.
    """
    base, last = header.base_offset, header.last_offset
    at = base if offset is None else min(max(offset, base), last)
    start = base + (at - base) // TUBEMQ_WINDOW * TUBEMQ_WINDOW
    if header.is_control or not header.record_count:
        return [Skipped(start, last + 1 - start)]
    end = min(start + TUBEMQ_WINDOW, last + 1)
    try:
        messages, _ = read_messages(entry, header, start)
        return list(convert_tubemq.build_messages(messages, start, end, limit=limit))
    except EntryError as error:
        missing = _skipped(header, error)
        left = last + 1 - start
        return [missing._replace(offset=start, span=left, messages=min(missing.messages, left))]


def read_messages(
    entry: Buffer, header: EntryHeader, start: int = 0
) -> tuple[Iterator[Placed], Codec]:
    """Return what yields the messages of an entry from an offset on, and how they were compressed.

    Raises, then or on the way, `CannotConvert` for what nobody but its own clients can read, other
    `EntryError`s for what is damaged or too large. Never all messages at once: as objects they take
    many times the bytes they come from.
    """
    match header.format:
        case Format.KAFKA:
            return convert_kafka.read_messages(entry, header, start), header.codec
        case Format.PULSAR:
            return convert_pulsar_read.read_messages(entry, header, start)
        case Format.TUBEMQ:
            return convert_tubemq.read_messages(entry, header), Codec.NONE


def _skipped(header: EntryHeader, error: EntryError) -> Skipped:
    match error:
        case CannotConvert():
            reason = error.reason
        case EncryptedEntry():
            reason = Reason.ENCRYPTED
        case ChunkedEntry():
            reason = Reason.CHUNKED
        case EntryTooLarge():
            reason = Reason.TOO_LARGE
        case _:
            reason = Reason.DAMAGED
    return Skipped(header.base_offset, header.span, reason, header.record_count, f"{error}")
