"""Converts neutral messages to payload sections of Pulsar's MESSAGE command: one, or several.

A section covers consecutive offsets. If one section for the whole entry exceeds the reader's frame,
the entry is divided where the items reach the limit before compression, so that each piece is as
large as the limit allows. The division depends only on the stored entry and the limit: a reader
gets the same ids every time. A message that alone exceeds the limit is skipped.

    payload   | item 0 | hole | hole | item 3 | item 4 | item 5 |
    cuts      ^ from 0                        ^ from 4

One pass over the messages writes the payload and finds the cuts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from trilogue.entry.conversion.kafka import Placed
from trilogue.entry.conversion.pulsar_write import (
    HOLE,
    NOTHING_SHARED,
    PRODUCER_NAMES,
    SharedMetadata,
    item_bytes,
    item_of,
)
from trilogue.entry.conversion.result import Reason, Section, SkippedRange
from trilogue.entry.entry import Codec, EntryHeader, EntryTooLarge
from trilogue.entry.kafka.record_batch import DECOMPRESSED_LIMIT
from trilogue.entry.pulsar.compression import PulsarCodec, compress
from trilogue.entry.pulsar.pulsar_batch import PulsarMessage, build_section, build_single
from trilogue.wire.pulsar.pulsar_pb2 import MessageMetadata

Read = Callable[[], tuple[Iterator[Placed], Codec]]

PAYLOAD_MAX: Final = 2 * DECOMPRESSED_LIMIT  # for tiny messages an item is larger than a record
LEFT_FOR_METADATA: Final = 512  # of a batch, beside the key that it repeats

PULSAR_CODECS: Final = {
    Codec.NONE: PulsarCodec.NONE,
    Codec.GZIP: PulsarCodec.ZLIB,
    Codec.SNAPPY: PulsarCodec.SNAPPY,
    Codec.LZ4: PulsarCodec.LZ4,
    Codec.ZSTD: PulsarCodec.ZSTD,
}


def build_sections(read: Read, header: EntryHeader, *, limit: int) -> list[Section | SkippedRange]:
    """Build sections of at most `limit` bytes that cover all offsets of `header`.

    `read` is called a second time when the messages differ in a field of the entry's metadata.
    """
    messages, codec = read()
    items = _Items(header.base_offset, limit)
    times = [header.max_timestamp]
    shared = _put_all(messages, items, times, alone=True)
    if shared is None:
        items = _Items(header.base_offset, limit)
        _put_all(read()[0], items, times, alone=False)
        shared = NOTHING_SHARED
    items.put_holes(header.span - items.count)
    publish_time = max(0, header.max_timestamp if header.max_timestamp >= 0 else max(times))
    producer_name = PRODUCER_NAMES[header.format]
    return _SectionBuilder(shared, producer_name, publish_time, codec, limit).sections(items)


def _put_all(
    messages: Iterator[Placed], items: _Items, times: list[int], *, alone: bool
) -> SharedMetadata | None:
    """Write all items; return their shared metadata, None where the messages differ in it."""
    common: SharedMetadata | None = None
    base_offset = items.base_offset
    latest = times[0]
    for offset, message in messages:
        index = offset - base_offset
        item, shared = item_of(message, offset, index, alone=alone)
        if common is None:
            common = shared
        elif shared is not common and shared != common:
            return None
        if index > items.count:
            items.put_holes(index - items.count)
        items.put(item)
        time_ms = message.time_ms
        if time_ms is not None and time_ms > latest:
            latest = time_ms
    times[0] = latest
    return common or NOTHING_SHARED


class _Cut:
    """The beginning of a piece: the index of its first offset, the position of its first byte."""

    __slots__ = ("at", "first", "index", "messages", "overhead")

    def __init__(self, index: int, at: int) -> None:
        self.index = index
        self.at = at
        self.first: PulsarMessage | None = None
        self.messages = 0
        self.overhead = LEFT_FOR_METADATA


class _Items:
    """The consecutive items of a batch, and the cuts between its pieces."""

    __slots__ = ("_limit", "base_offset", "count", "cuts", "holes", "payload")

    def __init__(self, base_offset: int, limit: int) -> None:
        self.base_offset = base_offset
        self.count = 0
        self.payload = bytearray()
        self.cuts = [_Cut(0, 0)]
        self.holes: list[tuple[int, int]] = []
        self._limit = limit

    def put(self, item: PulsarMessage) -> None:
        """Write the next item."""
        data = item_bytes(item)
        cut = self.cuts[-1]
        used = len(self.payload) - cut.at + cut.overhead
        if self.count > cut.index and used + len(data) + _repeated(item) > self._limit:
            cut = _Cut(self.count, len(self.payload))
            self.cuts.append(cut)
        if cut.first is None:
            cut.first = item
            cut.overhead += _repeated(item)
        cut.messages += 1
        self.payload += data
        self.count += 1
        self._check()

    def put_holes(self, count: int) -> None:
        """Write `count` holes: offsets without a message."""
        if not count:
            return
        start = self.base_offset + self.count
        self.holes.append((start, start + count))
        while count:
            cut = self.cuts[-1]
            room = self._limit - (len(self.payload) - cut.at + cut.overhead)
            some = min(count, room // len(HOLE))
            if some <= 0 and self.count > cut.index:
                self.cuts.append(_Cut(self.count, len(self.payload)))
                continue
            some = max(1, some)
            self.payload += HOLE * some
            self.count += some
            count -= some
            self._check()

    def _check(self) -> None:
        if len(self.payload) > PAYLOAD_MAX:
            raise EntryTooLarge(f"more than {PAYLOAD_MAX} bytes as a batch of Pulsar's")


def _repeated(item: PulsarMessage) -> int:
    """Return how many bytes of the first message the metadata of a batch repeats."""
    key_size = 0 if item.partition_key is None else 4 * len(item.partition_key)
    return key_size + (0 if item.ordering_key is None else len(item.ordering_key))


class _SectionBuilder:
    """Builds the sections of one entry's items."""

    __slots__ = ("_codec", "_limit", "_producer_name", "_publish_time", "_shared")

    def __init__(
        self,
        shared: SharedMetadata,
        producer_name: str,
        publish_time: int,
        codec: Codec,
        limit: int,
    ) -> None:
        self._shared = shared
        self._producer_name = producer_name
        self._publish_time = publish_time
        self._codec = codec
        self._limit = limit

    def sections(self, items: _Items) -> list[Section | SkippedRange]:
        """Build one section, or as few as the limit allows."""
        base_offset, count = items.base_offset, items.count
        first = next((cut.first for cut in items.cuts if cut.first is not None), None)
        if first is None:
            return [SkippedRange(base_offset, count)]
        whole = self._section(base_offset, count, first, items.payload, items.holes)
        if len(whole.data) <= self._limit:
            return [whole]
        view = memoryview(items.payload)
        ends = [*((cut.index, cut.at) for cut in items.cuts[1:]), (count, len(view))]
        return [
            self._piece(base_offset + cut.index, end - cut.index, cut, view[cut.at : at], items)
            for cut, (end, at) in zip(items.cuts, ends, strict=True)
        ]

    def _piece(
        self, offset: int, span: int, cut: _Cut, payload: memoryview, items: _Items
    ) -> Section | SkippedRange:
        if cut.first is None:
            return SkippedRange(offset, span)
        end = offset + span
        holes = [
            (max(first, offset), min(last, end))
            for first, last in items.holes
            if first < end and last > offset
        ]
        section = self._section(offset, span, cut.first, payload, holes)
        if len(section.data) <= self._limit:
            return section
        detail = f"{len(section.data)} bytes where {self._limit} are allowed"
        return SkippedRange(offset, span, Reason.TOO_LARGE, cut.messages, detail)

    def _section(
        self,
        offset: int,
        span: int,
        first: PulsarMessage,
        payload: bytearray | memoryview,
        holes: list[tuple[int, int]],
    ) -> Section:
        """Build a section: a plain message for one offset, a batch for several."""
        metadata = self._metadata(offset)
        deliver_at_ms = self._shared.deliver_at or 0
        if span == 1:
            codec = PULSAR_CODECS[self._codec] if first.value else PulsarCodec.NONE
            data = build_single(first, metadata, codec=codec)
            if len(data) > self._limit:  # incompressible data grows a little
                data = build_single(first, self._metadata(offset))
            return Section(offset, 1, data, is_batch=False, deliver_at_ms=deliver_at_ms)
        metadata.num_messages_in_batch = span
        metadata.highest_sequence_id = offset + span - 1
        if first.partition_key is not None:
            metadata.partition_key = first.partition_key
            if first.key_is_b64:
                metadata.partition_key_b64_encoded = True
        if first.ordering_key is not None:
            metadata.ordering_key = first.ordering_key
        data = build_section(metadata, self._packed(metadata, payload))
        return Section(offset, span, data, True, tuple(holes), deliver_at_ms)

    def _packed(
        self, metadata: MessageMetadata, payload: bytearray | memoryview
    ) -> bytes | bytearray | memoryview:
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
            producer_name=self._producer_name,
            sequence_id=offset,
            publish_time=self._publish_time,
            replicated_from=shared.replicated_from,
            schema_version=shared.schema_version,
            schema_id=shared.schema_id,
            deliver_at_time=shared.deliver_at,
        )
