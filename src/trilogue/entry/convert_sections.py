"""Neutral messages to the payload sections of Pulsar's MESSAGE: one, or pieces where too large.

A section covers offsets in a row. It is tried whole first; what is then larger than the reader's
frame is cut where the items reach the limit before compression, each piece as large as may be. So
the cuts depend on the stored entry and the limit alone, and a reader that comes again finds the
same ids. A message that does not fit by itself is skipped, alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from trilogue.entry.convert_kafka import Placed
from trilogue.entry.convert_pulsar import (
    HOLE,
    NOTHING_SHARED,
    PRODUCER_NAME,
    Shared,
    item_bytes,
    item_of,
)
from trilogue.entry.convert_result import Reason, Section, Skipped
from trilogue.entry.entry import Codec, EntryHeader
from trilogue.entry.pulsar_batch import PulsarMessage, build_section, build_single
from trilogue.entry.pulsar_codecs import PulsarCodec, compress
from trilogue.wire.pulsar.pulsar_pb2 import MessageMetadata

LEFT_FOR_METADATA: Final = 512  # of a batch, beside the key that it repeats

PULSAR_CODECS: Final = {
    Codec.NONE: PulsarCodec.NONE,
    Codec.GZIP: PulsarCodec.ZLIB,
    Codec.SNAPPY: PulsarCodec.SNAPPY,
    Codec.LZ4: PulsarCodec.LZ4,
    Codec.ZSTD: PulsarCodec.ZSTD,
}


Rows = list[tuple[bytes, PulsarMessage | None]]
"""An item as bytes for every offset in a row, and what it says; None is a hole."""


def build_sections(
    messages: Sequence[Placed], header: EntryHeader, *, codec: Codec, limit: int
) -> list[Section | Skipped]:
    """Build what covers all offsets of `header`, of sections of at most `limit` bytes."""
    if not messages:
        return [Skipped(header.base_offset, header.span)]
    times = max((message.time_ms or 0 for _, message in messages), default=0)
    publish_time = max(0, header.max_timestamp, times if header.max_timestamp < 0 else 0)
    items, shared = _items(messages, header.base_offset)
    maker = _Maker(shared, publish_time, codec, limit)
    rows = _rows(items, header.span)
    whole = maker.section(header.base_offset, rows)
    if len(whole.data) <= limit:
        return [whole]
    return maker.pieces(header.base_offset, rows)


def _items(messages: Sequence[Placed], base_offset: int) -> tuple[list[PulsarMessage], Shared]:
    """Say messages in Pulsar's words; what all of them have in common is said apart."""
    items: list[PulsarMessage] = []
    common: Shared | None = None
    for offset, message in messages:
        item, shared = item_of(message, offset, offset - base_offset)
        items.append(item)
        if common is None:
            common = shared
        elif shared is not common and shared != common:
            return [
                item_of(each, offset, offset - base_offset, alone=False)[0]
                for offset, each in messages
            ], NOTHING_SHARED
    return items, common or NOTHING_SHARED


def _rows(items: list[PulsarMessage], span: int) -> Rows:
    """Give every offset of the entry its row."""
    rows: Rows = []
    for item in items:
        if item.batch_index > len(rows):
            rows += [_HOLE] * (item.batch_index - len(rows))
        rows.append((item_bytes(item), item))
    if len(rows) < span:
        rows += [_HOLE] * (span - len(rows))
    return rows


_HOLE: Final = (HOLE, None)


class _Maker:
    """Makes sections of one entry's rows."""

    __slots__ = ("_codec", "_limit", "_publish_time", "_shared")

    def __init__(self, shared: Shared, publish_time: int, codec: Codec, limit: int) -> None:
        self._shared = shared
        self._publish_time = publish_time
        self._codec = codec
        self._limit = limit

    def section(self, offset: int, rows: Rows) -> Section:
        """Make one section, of a single message plain, of several a batch."""
        first = next(item for _, item in rows if item is not None)
        metadata = self._metadata(offset)
        if len(rows) == 1:
            codec = PULSAR_CODECS[self._codec] if first.value else PulsarCodec.NONE
            data = build_single(first, metadata, codec=codec)
            if len(data) > self._limit:  # what cannot be compressed grows a little
                data = build_single(first, self._metadata(offset))
            return Section(offset, 1, data, is_batch=False)
        metadata.num_messages_in_batch = len(rows)
        metadata.highest_sequence_id = offset + len(rows) - 1
        if first.partition_key is not None:
            metadata.partition_key = first.partition_key
            if first.key_is_b64:
                metadata.partition_key_b64_encoded = True
        if first.ordering_key is not None:
            metadata.ordering_key = first.ordering_key
        payload = b"".join([data for data, _ in rows])
        packed = self._packed(metadata, payload)
        data = build_section(metadata, packed)
        return Section(offset, len(rows), data, is_batch=True, holes=_holes(offset, rows))

    def _packed(self, metadata: MessageMetadata, payload: bytes) -> bytes:
        """Compress a payload, if that makes it smaller."""
        if self._codec is Codec.NONE:
            return payload
        codec = PULSAR_CODECS[self._codec]
        packed = compress(codec, payload)
        if len(packed) >= len(payload):
            return payload
        metadata.compression = codec  # type: ignore[assignment]  # the runtime takes any int
        metadata.uncompressed_size = len(payload)
        return packed

    def _metadata(self, offset: int) -> MessageMetadata:
        shared = self._shared
        return MessageMetadata(
            producer_name=PRODUCER_NAME,
            sequence_id=offset,
            publish_time=self._publish_time,
            replicated_from=shared.replicated_from,
            schema_version=shared.schema_version,
            schema_id=shared.schema_id,
            deliver_at_time=shared.deliver_at,
        )

    def pieces(self, offset: int, rows: Rows) -> list[Section | Skipped]:
        """Make as few sections as the limit allows."""
        found: list[Section | Skipped] = []
        start = size = 0
        for at, (data, item) in enumerate(rows):
            overhead = LEFT_FOR_METADATA + _overhead(item)
            if at > start and size + len(data) + overhead > self._limit:
                found.append(self._piece(offset + start, rows[start:at]))
                start, size = at, 0
            size += len(data) + (overhead if at == start else 0)
        found.append(self._piece(offset + start, rows[start:]))
        return found

    def _piece(self, offset: int, rows: Rows) -> Section | Skipped:
        count = sum(item is not None for _, item in rows)
        if not count:
            return Skipped(offset, len(rows))
        section = self.section(offset, rows)
        if len(section.data) <= self._limit:
            return section
        detail = f"{len(section.data)} bytes where {self._limit} are allowed"
        return Skipped(offset, len(rows), Reason.TOO_LARGE, count, detail)


def _overhead(item: PulsarMessage | None) -> int:
    """Bytes that the metadata of a batch repeats of its first message."""
    if item is None:
        return 0
    key_size = 0 if item.partition_key is None else 4 * len(item.partition_key)
    return key_size + (0 if item.ordering_key is None else len(item.ordering_key))


def _holes(offset: int, rows: Rows) -> tuple[tuple[int, int], ...]:
    """List the runs of offsets that hold nothing."""
    found: list[tuple[int, int]] = []
    for at, (_, item) in enumerate(rows, offset):
        if item is not None:
            continue
        if found and found[-1][1] == at:
            found[-1] = (found[-1][0], at + 1)
        else:
            found.append((at, at + 1))
    return tuple(found)
