"""Neutral messages to the payload sections of Pulsar's MESSAGE: one, or pieces where too large.

A section covers offsets in a row. It is tried whole first; what is then larger than the reader's
frame is cut where the items reach the limit before compression, each piece as large as may be. So
the cuts depend on the stored entry and the limit alone, and a reader that comes again finds the
same ids. A message that does not fit by itself is skipped, alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from trilogue.entry.checksum import crc32c
from trilogue.entry.convert_kafka import Placed
from trilogue.entry.convert_pulsar import (
    HOLE,
    NOTHING_SHARED,
    PRODUCER_NAME,
    Item,
    Shared,
    item_of,
    put_item,
)
from trilogue.entry.convert_result import Reason, Section, Skipped
from trilogue.entry.entry import Codec, EntryHeader
from trilogue.entry.pulsar_codecs import PulsarCodec, compress
from trilogue.wire.pulsar.pulsar_pb2 import CompressionType, KeyValue, MessageMetadata

MAGIC: Final = b"\x0e\x01"
HEAD_SIZE: Final = 10  # magic, checksum, size of the metadata
LEFT_FOR_METADATA: Final = 512  # of a batch, beside the key that it repeats

PULSAR_CODECS: Final = {
    Codec.NONE: PulsarCodec.NONE,
    Codec.GZIP: PulsarCodec.ZLIB,
    Codec.SNAPPY: PulsarCodec.SNAPPY,
    Codec.LZ4: PulsarCodec.LZ4,
    Codec.ZSTD: PulsarCodec.ZSTD,
}


class _Row(NamedTuple):
    """One offset of the entry: its item as bytes, and who it is, or a hole."""

    data: bytes | bytearray
    item: Item | None


def build_sections(
    messages: Sequence[Placed], header: EntryHeader, *, codec: Codec, limit: int
) -> list[Section | Skipped]:
    """Build what covers all offsets of `header`, of sections of at most `limit` bytes."""
    if not messages:
        return [Skipped(header.base_offset, header.span)]
    times = max((message.time_ms or 0 for _, message in messages), default=0)
    publish_time = max(0, header.max_timestamp, times if header.max_timestamp < 0 else 0)
    said = [item_of(message) for _, message in messages]
    shared = said[0][1]
    if any(each is not shared and each != shared for _, each in said):
        shared = NOTHING_SHARED
        said = [(item_of(message, alone=False)[0], shared) for _, message in messages]
    maker = _Maker(shared, publish_time, codec, limit)
    rows = _rows(messages, [item for item, _ in said], header)
    whole = maker.section(header.base_offset, rows)
    if len(whole.data) <= limit:
        return [whole]
    return maker.pieces(header.base_offset, rows)


def _rows(messages: Sequence[Placed], items: list[Item], header: EntryHeader) -> list[_Row]:
    """Give every offset of the entry its row."""
    rows: list[_Row] = []
    next_offset = header.base_offset
    for (offset, _), item in zip(messages, items, strict=True):
        if offset > next_offset:
            rows += [_HOLE] * (offset - next_offset)
        data = bytearray()
        put_item(data, item, offset)
        rows.append(_Row(data, item))
        next_offset = offset + 1
    if next_offset <= header.last_offset:
        rows += [_HOLE] * (header.last_offset + 1 - next_offset)
    return rows


_HOLE: Final = _Row(HOLE, None)


class _Maker:
    """Makes sections of one entry's rows."""

    __slots__ = ("_codec", "_limit", "_publish_time", "_shared")

    def __init__(self, shared: Shared, publish_time: int, codec: Codec, limit: int) -> None:
        self._shared = shared
        self._publish_time = publish_time
        self._codec = codec
        self._limit = limit

    def section(self, offset: int, rows: Sequence[_Row]) -> Section:
        """Make one section, of a single message plain, of several a batch."""
        first = next(row.item for row in rows if row.item is not None)
        metadata = self._metadata(offset, first)
        if len(rows) == 1:
            payload: bytes | bytearray = first.value or b""
            _describe_single(metadata, first)
        else:
            payload = b"".join([row.data for row in rows])
            metadata.num_messages_in_batch = len(rows)
            metadata.highest_sequence_id = offset + len(rows) - 1
        if self._codec is not Codec.NONE and payload:
            codec = PULSAR_CODECS[self._codec]
            packed = compress(codec, payload)
            if len(packed) < len(payload):
                metadata.compression = CompressionType.Name(codec)
                metadata.uncompressed_size = len(payload)
                payload = packed
        holes = _holes(offset, rows) if len(rows) > 1 else ()
        return Section(offset, len(rows), seal_section(metadata, payload), len(rows) > 1, holes)

    def _metadata(self, offset: int, first: Item) -> MessageMetadata:
        shared = self._shared
        metadata = MessageMetadata(
            producer_name=PRODUCER_NAME,
            sequence_id=offset,
            publish_time=self._publish_time,
            replicated_from=shared.replicated_from,
            schema_version=shared.schema_version,
            schema_id=shared.schema_id,
            deliver_at_time=shared.deliver_at,
            partition_key=first.key,
            ordering_key=first.ordering_key,
        )
        if first.key_is_base64:
            metadata.partition_key_b64_encoded = True
        return metadata

    def pieces(self, offset: int, rows: Sequence[_Row]) -> list[Section | Skipped]:
        """Make as few sections as the limit allows."""
        found: list[Section | Skipped] = []
        start = size = 0
        for at, row in enumerate(rows):
            overhead = LEFT_FOR_METADATA + _overhead(row.item)
            if at > start and size + len(row.data) + overhead > self._limit:
                found.append(self._piece(offset + start, rows[start:at]))
                start, size = at, 0
            size += len(row.data) + (overhead if at == start else 0)
        found.append(self._piece(offset + start, rows[start:]))
        return found

    def _piece(self, offset: int, rows: Sequence[_Row]) -> Section | Skipped:
        count = sum(row.item is not None for row in rows)
        if not count:
            return Skipped(offset, len(rows))
        section = self.section(offset, rows)
        if len(section.data) <= self._limit:
            return section
        detail = f"{len(section.data)} bytes where {self._limit} are allowed"
        return Skipped(offset, len(rows), Reason.TOO_LARGE, count, detail)


def _overhead(item: Item | None) -> int:
    """Bytes that the metadata of a batch repeats of its first message."""
    if item is None:
        return 0
    key_size = 0 if item.key is None else 4 * len(item.key)
    return key_size + (0 if item.ordering_key is None else len(item.ordering_key))


def _holes(offset: int, rows: Sequence[_Row]) -> tuple[tuple[int, int], ...]:
    """List the runs of offsets that hold nothing."""
    if all(row.item is not None for row in rows):
        return ()
    found: list[tuple[int, int]] = []
    for at, row in enumerate(rows, offset):
        if row.item is not None:
            continue
        if found and found[-1][1] == at:
            found[-1] = (found[-1][0], at + 1)
        else:
            found.append((at, at + 1))
    return tuple(found)


def _describe_single(metadata: MessageMetadata, item: Item) -> None:
    """Say in an entry's metadata what a batch says of each of its messages."""
    metadata.properties.extend(KeyValue(key=name, value=text) for name, text in item.properties)
    if item.event_time:
        metadata.event_time = item.event_time
    if item.value is None:
        metadata.null_value = True
    if item.key_is_null:
        metadata.null_partition_key = True


def seal_section(metadata: MessageMetadata, payload: bytes | bytearray) -> bytes:
    """Put magic, checksum and metadata before a payload."""
    described = metadata.SerializeToString()
    body = b"".join((len(described).to_bytes(4, "big"), described, payload))
    return b"".join((MAGIC, crc32c(body).to_bytes(4, "big"), body))
