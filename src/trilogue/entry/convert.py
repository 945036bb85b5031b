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

from collections.abc import Iterator
from typing import Final

from trilogue.entry import convert_kafka, convert_pulsar_read
from trilogue.entry.compression import Buffer
from trilogue.entry.convert_kafka import Placed, empty_batch
from trilogue.entry.convert_result import Batch, CannotConvert, Reason, Section, Skipped
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
    "Batch",
    "Reason",
    "Section",
    "Skipped",
    "kafka_batch",
    "pulsar_sections",
]

CONVERTED_MAX: Final = 16 * 1024 * 1024  # bytes of one entry after conversion, where nobody says


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


def read_messages(entry: Buffer, header: EntryHeader) -> tuple[Iterator[Placed], Codec]:
    """Return what yields the messages of an entry, and how they were compressed.

    Raises, then or on the way, `CannotConvert` for what nobody but its own clients can read, other
    `EntryError`s for what is damaged or too large. Never all messages at once: as objects they take
    many times the bytes they come from.
    """
    match header.format:
        case Format.KAFKA:
            return convert_kafka.read_messages(entry, header), header.codec
        case Format.PULSAR:
            return convert_pulsar_read.read_messages(entry, header)
        case Format.TUBEMQ:
            raise CannotConvert(Reason.UNKNOWN, "TubeMQ's messages")


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
