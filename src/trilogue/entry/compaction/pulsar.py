"""Compaction of one stored Pulsar entry.

It works as Pulsar's own compactor: a batch keeps its number of items, and a removed message becomes
an item with `compacted_out`, without metadata or value; an entry of one message is retained or
removed as a whole. The metadata of the entry is retained. An empty value is a tombstone. Messages
without a key are retained.

Only clients can read encrypted entries, and a chunk alone is not a message: both are retained
unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from struct import pack_into
from typing import Final

from trilogue.entry.checksum import crc32c
from trilogue.entry.compaction.record import EntryRecord
from trilogue.entry.compression import Buffer
from trilogue.entry.conversion.pulsar_write import HOLE
from trilogue.entry.entry import DELETE_HORIZON, EntryHeader
from trilogue.entry.header import (
    CHECKED_FROM,
    CHECKSUM_AT,
    HEADER,
    HEADER_SIZE,
    LENGTH_PREFIX,
    MAGIC,
)
from trilogue.entry.pulsar.compression import PulsarCodec, compress, decompress
from trilogue.entry.pulsar.pulsar_batch import (
    METADATA_AT,
    PULSAR_SECTION_AT,
    ChunkedEntry,
    EncryptedEntry,
    Flag,
    broker_time,
    build_entry,
    build_section,
    read_stamp,
    walk_messages,
)
from trilogue.wire.pulsar.message_types import key_of
from trilogue.wire.pulsar.pulsar_pb2 import MessageMetadata, SingleMessageMetadata

_FLAGS_AT: Final = HEADER_SIZE + 1  # in the fixed block
_SIZE_AT: Final = PULSAR_SECTION_AT + 6  # of the metadata's size


class PulsarEntry:
    """A Pulsar entry, decompressed. Raises `EntryError` where it is damaged."""

    __slots__ = ("_entry", "_limit", "header", "records")

    keeps_keyless: Final = True

    def __init__(self, entry: Buffer, header: EntryHeader, limit: int) -> None:
        self.header = header
        self._entry = memoryview(entry)[: header.length]
        self._limit = limit
        self.records: Sequence[EntryRecord] = [
            EntryRecord(
                header.base_offset + each.batch_index,
                each.event_time or header.max_timestamp,
                key_of(each.partition_key, is_b64=each.key_is_b64),
                not each.value,
            )
            for each in walk_messages(entry, header, limit)
        ]

    def keeping(self, kept: Sequence[bool], horizon_ms: int | None = None) -> bytes:
        """Build the entry with only the messages whose flag is set; at least one must be set.

        `horizon_ms` is the delete horizon of its tombstones, where the entry has none yet.
        """
        header = self.header
        attributes = header.attributes
        base_timestamp = header.base_timestamp
        if horizon_ms is not None:
            attributes |= DELETE_HORIZON
            base_timestamp = horizon_ms
        entry = bytearray(self._entry) if all(kept) else self._without(kept)
        HEADER.pack_into(
            entry,
            0,
            header.base_offset,
            len(entry) - LENGTH_PREFIX,
            header.leader_epoch,
            MAGIC,
            0,
            attributes,
            header.last_offset_delta,
            base_timestamp,
            header.max_timestamp,
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            sum(kept),
        )
        pack_into(">I", entry, CHECKSUM_AT, crc32c(memoryview(entry)[CHECKED_FROM:]))
        return bytes(entry)

    def _without(self, kept: Sequence[bool]) -> bytearray:
        """Build the entry with a section of the messages to retain."""
        view = self._entry
        size = int.from_bytes(view[_SIZE_AT:METADATA_AT], "big")
        metadata = MessageMetadata.FromString(bytes(view[METADATA_AT : METADATA_AT + size]))
        codec = int(metadata.compression)
        packed = view[METADATA_AT + size :]
        payload = decompress(codec, packed, metadata.uncompressed_size, self._limit)
        left = b"".join(_items(memoryview(payload), metadata.num_messages_in_batch, kept))
        if codec != PulsarCodec.NONE:
            metadata.uncompressed_size = len(left)
            left = compress(codec, left)
        section = build_section(metadata, left)
        built, _, _ = build_entry(memoryview(section), broker_ms=broker_time(view))
        entry = bytearray(built)
        entry[_FLAGS_AT] = read_stamp(view).flags | Flag.OUR_CHECKSUM
        return entry


def open_pulsar(entry: Buffer, header: EntryHeader, limit: int) -> PulsarEntry | None:
    """Open an entry; None when it is encrypted or a chunk."""
    try:
        return PulsarEntry(entry, header, limit)
    except (EncryptedEntry, ChunkedEntry):
        return None


def _items(payload: memoryview, count: int, kept: Sequence[bool]) -> Iterator[Buffer]:
    """Yield the items of a batch, holes for the removed ones; the batch was checked before."""
    flags = iter(kept)
    pos = 0
    for _ in range(count):
        size = int.from_bytes(payload[pos : pos + 4], "big")
        end = pos + 4 + size
        described = SingleMessageMetadata.FromString(bytes(payload[pos + 4 : end]))
        end += described.payload_size
        if described.compacted_out or next(flags):
            yield payload[pos:end]
        else:
            yield HOLE
        pos = end
