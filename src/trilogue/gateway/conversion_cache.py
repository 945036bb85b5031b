"""Entries converted for clients of another protocol, cached near the tail.

One `ConversionCache` serves all gateways of a node, on the loop and in threads. Entries of the
client's own protocol never come here. Conversions of entries in memory are kept, up to a number of
bytes, for the next client at the same position. Conversions of segments are not: one client that
reads everything would evict what the others share, and compaction replaces entries in segments.

Messages that cannot be converted are counted each time a client passes them, and logged, at most
once a second.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Final, cast

from trilogue.entry.compression import Buffer
from trilogue.entry.conversion.convert import (
    CONVERTED_MAX,
    TUBEMQ_MAX,
    TUBEMQ_WINDOW,
    Batch,
    Section,
    SkippedRange,
    TubeMessage,
    kafka_batch,
)
from trilogue.entry.conversion.convert import pulsar_sections as convert_for_pulsar
from trilogue.entry.conversion.convert import tubemq_messages as convert_for_tubemq
from trilogue.entry.entry import CODEC_MASK, Codec, EntryHeader, Format, UnsupportedCompression
from trilogue.entry.header import HEADER_SIZE
from trilogue.entry.kafka.message_set_conversion import downgrade
from trilogue.entry.kafka.record_batch import repack
from trilogue.entry.walk import formats_in, read_header, walk_headers

log = logging.getLogger(__name__)

CACHE_BYTES: Final = 32 << 20
LOG_EVERY_S: Final = 1.0
KAFKA_ONLY: Final = 1 << Format.KAFKA
CONVERTED_ON_LOOP: Final = 64 << 10  # bytes; more is converted in the executor
MESSAGE_WEIGHT: Final = 128  # bytes that take as long as one more message, however small it is
_ATTRIBUTES_AT: Final = 22  # of an entry: the byte with its codec
_COUNT_AT: Final = 57  # of an entry: how many messages it has
_KEPT_OVERHEAD: Final = 500  # bytes that keeping one conversion takes beside its own
_MESSAGE_OVERHEAD: Final = 200  # bytes that an object of one message takes beside its data

# Partition id, first offset, format of the client, and a limit; for old Kafka clients their magic.
_Key = tuple[int, int, Format, int]
_Value = Batch | list[Section | SkippedRange] | list[TubeMessage | SkippedRange]


class ConversionCache:
    """Converts for all gateways; may be called from any thread."""

    def __init__(
        self,
        *,
        cache_bytes: int = CACHE_BYTES,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.converted: Counter[str] = Counter()  # protocol of the client -> entries
        self.skipped: Counter[tuple[str, str]] = (
            Counter()
        )  # protocol of the client, reason -> messages
        self.hits = 0
        self.cached_bytes = 0
        self._room = cache_bytes
        self._monotonic = monotonic
        self._kept: OrderedDict[_Key, tuple[_Value, int]] = OrderedDict()
        self._lock = threading.Lock()
        self._log_after = 0.0
        self._unlogged = 0

    def for_kafka(
        self,
        partition_id: int,
        parts: Iterable[Buffer],
        room: int,
        *,
        keep: bool,
        zstd: bool = True,
    ) -> list[Buffer]:
        """Convert whole entries that follow each other, up to `room` bytes, the first in any case.

        Kafka's own entries stay as they are. `keep`: they are in memory, where none changes.
        `zstd`: the client knows it; for others zstd becomes gzip.
        """
        found: list[Buffer] = []
        size = 0
        for part in parts:
            view = memoryview(part)
            for pos, length, *_ in walk_headers(view):
                entry: Buffer = view[pos : pos + length]
                if view[pos + 21] & 3:
                    entry = self._batch(partition_id, entry, keep=keep)
                    if not zstd and entry[_ATTRIBUTES_AT] & CODEC_MASK == Codec.ZSTD:
                        entry = repack(entry, codec=Codec.GZIP)
                size += len(entry)
                if size > room and found:
                    return found
                found.append(entry)
        return found

    def for_old_kafka(
        self,
        partition_id: int,
        parts: Iterable[Buffer],
        room: int,
        *,
        magic: int,
        from_offset: int,
        keep: bool,
    ) -> tuple[list[Buffer], int]:
        """Convert whole entries into messages of magic 0 or 1; return them and the next offset.

        At most `room` bytes, the first message or wrapper in any case. Control markers and
        messages that no Kafka client can get are left out. Raises UnsupportedCompression when the
        first entry with messages is a batch in zstd; before a later one it ends (KIP-110, KIP-283).
        """
        found: list[Buffer] = []
        size, next_offset = 0, from_offset
        for part in parts:
            view = memoryview(part)
            for pos, length, base_offset, last_offset_delta, *_ in walk_headers(view):
                end = base_offset + last_offset_delta + 1
                if end <= from_offset:
                    continue
                entry = view[pos : pos + length]
                left = room - size
                try:
                    messages, next_offset_here = self._old_messages(
                        partition_id, entry, left, magic, from_offset, keep=keep
                    )
                except UnsupportedCompression:
                    if found:
                        return found, next_offset
                    raise
                size += len(messages)
                if size > room and found:
                    return found, next_offset
                if len(messages):
                    found.append(messages)
                next_offset = next_offset_here
                if next_offset < end:
                    return found, next_offset
        return found, next_offset

    def _old_messages(
        self,
        partition_id: int,
        entry: Buffer,
        room: int,
        magic: int,
        from_offset: int,
        *,
        keep: bool,
    ) -> tuple[Buffer, int]:
        """Convert one entry; only a complete conversion is kept."""
        header = read_header(entry)
        key = (partition_id, header.base_offset, Format.KAFKA, magic)
        end = header.last_offset + 1
        is_whole = from_offset <= header.base_offset
        found = self._look_up(key) if keep and is_whole else None
        if isinstance(found, Batch) and len(found.data) <= room:
            return found.data, end
        zstd_as = None
        if header.format is not Format.KAFKA:
            entry = self._batch(partition_id, entry, keep=keep)
            header = read_header(entry)
            zstd_as = Codec.GZIP  # Kafka's rules are not about other producers' codecs
        messages, next_offset = downgrade(
            entry, header, magic=magic, from_offset=from_offset, room=room, zstd_as=zstd_as
        )
        if is_whole and next_offset == end:
            self._made(key, Batch(messages), len(messages), keep=keep)
        return messages, next_offset

    def for_pulsar(
        self, partition_id: int, entry: Buffer, header: EntryHeader, limit: int, *, keep: bool
    ) -> list[Section | SkippedRange]:
        """Convert one entry of another format into sections of at most `limit` bytes."""
        key = (partition_id, header.base_offset, Format.PULSAR, limit)
        found = self._look_up(key) if keep else None
        if found is None:
            found = convert_for_pulsar(entry, header, limit=limit)
            size = sum(len(each.data) for each in found if isinstance(each, Section))
            self._made(key, found, size, keep=keep)
        sections = cast("list[Section | SkippedRange]", found)
        self._report_all("pulsar", partition_id, header, sections)
        return sections

    def for_tubemq(
        self,
        partition_id: int,
        entry: Buffer,
        header: EntryHeader,
        offset: int,
        *,
        keep: bool,
        limit: int = TUBEMQ_MAX,
    ) -> list[TubeMessage | SkippedRange]:
        """Convert the window of an entry of another format that has an offset.

        It may begin before `offset`, and its last item shows where the next one begins
        (`tubemq_messages` in entry/conversion/convert.py).
        """
        window = max(0, offset - header.base_offset) // TUBEMQ_WINDOW * TUBEMQ_WINDOW
        key = (partition_id, header.base_offset + window, Format.TUBEMQ, limit)
        found = self._look_up(key) if keep else None
        if found is None:
            found = convert_for_tubemq(entry, header, offset=offset, limit=limit)
            size = _MESSAGE_OVERHEAD * len(found)
            size += sum(len(each.data) for each in found if isinstance(each, TubeMessage))
            self._made(key, found, size, keep=keep)
        messages = cast("list[TubeMessage | SkippedRange]", found)
        self._report_all("tubemq", partition_id, header, messages)
        return messages

    def _batch(self, partition_id: int, entry: Buffer, *, keep: bool) -> Buffer:
        header = read_header(entry)
        key = (partition_id, header.base_offset, Format.KAFKA, CONVERTED_MAX)
        found = self._look_up(key) if keep else None
        if found is None:
            found = kafka_batch(entry, header)
            self._made(key, found, len(found.data), keep=keep)
        assert isinstance(found, Batch)
        if found.skipped is not None:
            self._report("kafka", partition_id, header, found.skipped)
        return found.data

    # ---- the cache

    def _look_up(self, key: _Key) -> _Value | None:
        with self._lock:
            kept = self._kept.get(key)
            if kept is None:
                return None
            self._kept.move_to_end(key)
            self.hits += 1
            return kept[0]

    def _made(self, key: _Key, value: _Value, size: int, *, keep: bool) -> None:
        size += _KEPT_OVERHEAD
        with self._lock:
            self.converted[key[2].name.lower()] += 1
            if not keep or size > self._room or key in self._kept:
                return
            self._kept[key] = (value, size)
            self.cached_bytes += size
            while self.cached_bytes > self._room:
                _, (_, dropped) = self._kept.popitem(last=False)
                self.cached_bytes -= dropped

    # ---- messages that cannot be converted

    def _report_all(
        self, reader: str, partition_id: int, header: EntryHeader, found: Sequence[object]
    ) -> None:
        for each in found:
            if isinstance(each, SkippedRange):
                self._report(reader, partition_id, header, each)

    def _report(
        self, reader: str, partition_id: int, header: EntryHeader, skipped: SkippedRange
    ) -> None:
        """Count messages that a client does not get, and log at most once a second."""
        if skipped.reason is None or not skipped.messages:
            return
        now = self._monotonic()
        with self._lock:
            self.skipped[reader, skipped.reason] += skipped.messages
            if now < self._log_after:
                self._unlogged += skipped.messages
                return
            self._log_after = now + LOG_EVERY_S
            unlogged, self._unlogged = self._unlogged, 0
        log.warning(
            "conversion.skipped",
            extra={
                "reader": reader,
                "partition": partition_id,
                "offset": skipped.offset,
                "end_offset": skipped.offset + skipped.span,
                "format": header.format.name.lower(),
                "reason": skipped.reason,
                "detail": skipped.detail,
                "messages": skipped.messages,
                "messages_since_the_last_line": unlogged,
            },
        )


def conversion_weight(entry: memoryview) -> int:
    """Return about how many bytes a conversion works on.

    Over `CONVERTED_ON_LOOP`, as compressed entries always are, it belongs in the executor.
    """
    if entry[_ATTRIBUTES_AT] & CODEC_MASK:
        return CONVERTED_ON_LOOP + 1
    return len(entry) + MESSAGE_WEIGHT * int.from_bytes(entry[_COUNT_AT:HEADER_SIZE], "big")


def is_kafka(parts: Iterable[Buffer]) -> bool:
    """Whether all entries that follow each other in these bytes are Kafka's own."""
    return all(formats_in(part) | KAFKA_ONLY == KAFKA_ONLY for part in parts)
