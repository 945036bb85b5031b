"""Converts stored entries for readers of another protocol, always through `Message`.

Readers of an entry's own protocol get the entry as its producer sent it. For other readers:

- `kafka_batch` converts any entry to one record batch v2 with the same offsets, holes included.
- `tubemq_messages` converts a window of offsets of any entry to TubeMQ messages.
- `pulsar_sections` converts any entry to payload sections of MESSAGE commands: one section, or
  several where one would be too large. A section that begins at offset o has entry id o, and the
  division depends only on the stored entry and the limit. The batch index of a message is its
  offset minus the section's; holes are items with `compacted_out`.

Messages that cannot be converted are reported as `SkippedRange` with a reason, which the gateway
counts and logs (docs/reference/conversion.md lists the cases). No function here does I/O, but a
large entry takes long to decompress: call them outside the event loop.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from trilogue.entry.compression import Buffer
from trilogue.entry.conversion import kafka as convert_kafka
from trilogue.entry.conversion import pulsar_read as convert_pulsar_read
from trilogue.entry.conversion import tubemq as convert_tubemq
from trilogue.entry.conversion.kafka import Placed, empty_batch
from trilogue.entry.conversion.pulsar_sections import build_sections
from trilogue.entry.conversion.result import (
    Batch,
    Reason,
    Section,
    SkippedRange,
    TubeMessage,
)
from trilogue.entry.entry import (
    Codec,
    EntryError,
    EntryHeader,
    EntryTooLarge,
    Format,
)
from trilogue.entry.pulsar.pulsar_batch import ChunkedEntry, EncryptedEntry

__all__ = [
    "CONVERTED_MAX",
    "TUBEMQ_MAX",
    "TUBEMQ_WINDOW",
    "Batch",
    "Reason",
    "Section",
    "SkippedRange",
    "TubeMessage",
    "kafka_batch",
    "pulsar_sections",
    "tubemq_messages",
]

CONVERTED_MAX: Final = 16 * 1024 * 1024  # default limit of bytes of one entry after conversion
TUBEMQ_MAX: Final = 24 * 1024 * 1024
"""Limit of bytes of one message's data for TubeMQ clients, whose frames hold 28 MiB."""
TUBEMQ_WINDOW: Final = 1000
"""Offsets that are converted at once for TubeMQ clients: the limit of one response."""


def pulsar_sections(
    entry: Buffer, header: EntryHeader, *, limit: int = CONVERTED_MAX
) -> list[Section | SkippedRange]:
    """Convert a whole entry for Pulsar clients; `limit` is the maximum of bytes of one section.

    The results are in the order of offsets and cover the entry without a gap.
    """
    if header.is_control or not header.record_count:
        return [SkippedRange(header.base_offset, header.span)]
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
) -> list[TubeMessage | SkippedRange]:
    """Convert the window of an entry's offsets that contains `offset`, for TubeMQ clients.

    Windows begin at the entry's first offset and after every `TUBEMQ_WINDOW` offsets, so that the
    memory for one is bounded. The results cover the window without a gap: the next window begins
    after the last one. `limit` is the maximum of bytes of one message's data.
    """
    base, last = header.base_offset, header.last_offset
    at = base if offset is None else min(max(offset, base), last)
    start = base + (at - base) // TUBEMQ_WINDOW * TUBEMQ_WINDOW
    if header.is_control or not header.record_count:
        return [SkippedRange(start, last + 1 - start)]
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
    """Return an iterator over the messages of an entry from an offset on, and its codec.

    This call or the iterator raises `EncryptedEntry` and `ChunkedEntry` for messages that only
    clients of the entry's own protocol can read, other `EntryError`s for a damaged or too large
    entry. The messages are not collected: as objects they take many times the bytes of the entry.
    """
    match header.format:
        case Format.KAFKA:
            return convert_kafka.read_messages(entry, header, start), header.codec
        case Format.PULSAR:
            return convert_pulsar_read.read_messages(entry, header, start)
        case Format.TUBEMQ:
            return convert_tubemq.read_messages(entry, header), Codec.NONE


def _skipped(header: EntryHeader, error: EntryError) -> SkippedRange:
    match error:
        case EncryptedEntry():
            reason = Reason.ENCRYPTED
        case ChunkedEntry():
            reason = Reason.CHUNKED
        case EntryTooLarge():
            reason = Reason.TOO_LARGE
        case _:
            reason = Reason.DAMAGED
    return SkippedRange(header.base_offset, header.span, reason, header.record_count, f"{error}")
