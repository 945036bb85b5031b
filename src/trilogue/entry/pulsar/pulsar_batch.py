"""Pulsar's entries: the bytes of a SEND, unchanged, after the broker's header (layout.py).

The section is what the producer sent, with two exceptions: the broker adds the checksum where the
producer sent none (clients older than protocol version 6), and removes broker entry metadata in
front of it, which only brokers write. The full layout is in docs/reference/file-formats-pulsar.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntFlag
from struct import Struct
from typing import Final

from trilogue.entry.checksum import crc32c
from trilogue.entry.compression import Buffer
from trilogue.entry.entry import (
    FORMAT_SHIFT,
    TRANSACTIONAL,
    CorruptEntry,
    EntryError,
    EntryHeader,
    Format,
    InvalidEntry,
)
from trilogue.entry.header import (
    ATTRIBUTES_AT,
    CHECKED_FROM,
    CHECKSUM_AT,
    HEADER_SIZE,
    PRODUCER_ID_AT,
)
from trilogue.entry.pulsar.compression import PulsarCodec, compress, decompress
from trilogue.entry.pulsar.layout import (
    BATCH,
    BLOCK_VERSION,
    CHUNK,
    DELAYED,
    ENCRYPTED,
    FIXED_BLOCK,
    KEYED,
    METADATA_AT,
    OUR_CHECKSUM,
    PULSAR_SECTION_AT,
)
from trilogue.entry.pulsar.pulsar_entry import Stamp, build_entry, producer_key
from trilogue.wire.errors import WireError
from trilogue.wire.pulsar import message_codec, message_types
from trilogue.wire.pulsar.batch_reader import BatchReader
from trilogue.wire.pulsar.frame import CHECKSUM_MAGIC
from trilogue.wire.pulsar.message_types import Metadata
from trilogue.wire.pulsar.message_types import SingleMessage as PulsarMessage
from trilogue.wire.pulsar.pulsar_pb2 import MessageMetadata, SingleMessageMetadata

__all__ = [
    "DECOMPRESSED_LIMIT",
    "MESSAGE_COUNT_LIMIT",
    "METADATA_AT",
    "PULSAR_SECTION_AT",
    "ChunkedEntry",
    "EncryptedEntry",
    "Flag",
    "Metadata",
    "PulsarMessage",
    "Stamp",
    "broker_time",
    "build_batch",
    "build_entry",
    "build_section",
    "build_single",
    "join_transaction",
    "producer_key",
    "read_metadata",
    "read_properties",
    "read_stamp",
    "sticky_key",
    "walk_messages",
]

MESSAGE_COUNT_LIMIT: Final = 1_000_000
DECOMPRESSED_LIMIT: Final = 32 * 1024 * 1024

_SIZE: Final = Struct(">I")
_ATTRIBUTES_FIELD: Final = Struct(">h")
_PRODUCER_FIELD: Final = Struct(">qh")
_ATTRIBUTES: Final = int(Format.PULSAR) << FORMAT_SHIFT
_SMALLEST_SINGLE: Final = 5  # bytes of a message in a batch: its size and at least a byte
_INT64: Final = 1 << 63
_AT_ONCE: Final = 1000  # messages turned into objects at a time


class EncryptedEntry(EntryError):
    """The payload is encrypted: only clients with the key can read it."""


class ChunkedEntry(EntryError):
    """The payload is a chunk of a message that spans several entries."""


class Flag(IntFlag):
    """The flags of the fixed block."""

    CHUNK = CHUNK
    OUR_CHECKSUM = OUR_CHECKSUM
    KEYED = KEYED
    BATCH = BATCH
    DELAYED = DELAYED
    ENCRYPTED = ENCRYPTED


def join_transaction(
    entry: memoryview, header: EntryHeader, producer_id: int, epoch: int
) -> EntryHeader:
    """Make an entry that was just built one of a transaction's producer; return its new header."""
    attributes = header.attributes | TRANSACTIONAL
    _ATTRIBUTES_FIELD.pack_into(entry, ATTRIBUTES_AT, attributes)
    _PRODUCER_FIELD.pack_into(entry, PRODUCER_ID_AT, producer_id, epoch)
    crc = crc32c(entry[CHECKED_FROM:])
    _SIZE.pack_into(entry, CHECKSUM_AT, crc)
    return header._replace(
        attributes=attributes, producer_id=producer_id, producer_epoch=epoch, crc=crc
    )


def read_stamp(entry: Buffer) -> Stamp:
    """Return the sequence ids, the producer and the flags of an entry, without protobuf."""
    fixed = _fixed_of(entry)
    return Stamp(fixed[4], fixed[5], fixed[7], fixed[1])


def broker_time(entry: Buffer) -> int:
    """Return the time at which the broker received the entry, in ms since 1970."""
    return int(_fixed_of(entry)[6])


def _fixed_of(entry: Buffer) -> tuple[int, ...]:
    if len(entry) < METADATA_AT:
        raise CorruptEntry(f"a Pulsar entry of {len(entry)} bytes")
    fixed = FIXED_BLOCK.unpack_from(entry, HEADER_SIZE)
    if fixed[0] != BLOCK_VERSION:
        raise InvalidEntry(f"version {fixed[0]} of a Pulsar entry")
    if fixed[3] > len(entry) - METADATA_AT:
        raise CorruptEntry(f"metadata of {fixed[3]} bytes in an entry of {len(entry)}")
    return fixed


def _metadata_view(entry: Buffer) -> memoryview:
    return memoryview(entry)[METADATA_AT : METADATA_AT + _fixed_of(entry)[3]]


def read_metadata(entry: Buffer) -> Metadata:
    """Return the `MessageMetadata` of the producer. Raises `CorruptEntry`."""
    try:
        return message_codec.read_metadata(_metadata_view(entry))
    except WireError as error:
        raise CorruptEntry(f"metadata: {error}") from error


def read_properties(entry: Buffer) -> tuple[tuple[str, str], ...]:
    """Return the properties of an entry of one message; in a batch each message has its own."""
    try:
        return message_codec.read_properties(_metadata_view(entry))
    except WireError as error:
        raise CorruptEntry(f"metadata: {error}") from error


def sticky_key(entry: Buffer) -> bytes:
    """Return the key by which a Key_Shared subscription selects the consumer of an entry."""
    return message_types.sticky_key(read_metadata(entry))


def walk_messages(
    entry: Buffer, header: EntryHeader, limit: int = DECOMPRESSED_LIMIT
) -> Iterator[PulsarMessage]:
    """Yield the messages of an entry; the offset of one is the base offset plus its batch index.

    Messages that were compacted out are skipped. `limit` is the maximum of decompressed bytes.
    Raises `EncryptedEntry` and `ChunkedEntry` for entries that only Pulsar's clients can read,
    other `EntryError`s for damaged ones.
    """
    if header.format is not Format.PULSAR:
        raise InvalidEntry(f"{header.format.name} where a Pulsar entry is expected")
    metadata = read_metadata(entry)
    if metadata.has_encryption:
        raise EncryptedEntry(f"entry at {header.base_offset} is encrypted")
    if metadata.is_chunk:
        place = f"chunk {metadata.chunk_id} of {metadata.num_chunks}"
        raise ChunkedEntry(f"entry at {header.base_offset} is {place}")
    payload = decompress(
        metadata.compression,
        memoryview(entry)[METADATA_AT + _fixed_of(entry)[3] : header.length],
        metadata.uncompressed_size,
        limit,
    )
    if not metadata.is_batch:
        yield _single(entry, metadata, payload)
        return
    if metadata.num_messages != header.span:
        raise CorruptEntry(f"{metadata.num_messages} messages in a span of {header.span}")
    try:
        singles = BatchReader(payload, metadata.num_messages)
        while found := singles.read(_AT_ONCE):
            yield from found
    except WireError as error:
        raise CorruptEntry(f"{error}") from error


def _single(entry: Buffer, metadata: Metadata, payload: Buffer) -> PulsarMessage:
    return PulsarMessage(
        0,
        None if metadata.null_value else bytes(payload),
        metadata.partition_key,
        metadata.key_is_b64,
        metadata.null_key,
        metadata.ordering_key,
        metadata.event_time,
        metadata.sequence_id,
        read_properties(entry) if metadata.has_properties else (),
    )


# ---- sections, as producers send them and consumers receive them


def build_section(metadata: MessageMetadata, payload: Buffer) -> bytes:
    """Build a section of metadata and a (compressed) payload, with its checksum."""
    octets = metadata.SerializeToString()
    body = b"".join((_SIZE.pack(len(octets)), octets, payload))
    return CHECKSUM_MAGIC + _SIZE.pack(crc32c(body)) + body


def build_single(
    message: PulsarMessage, metadata: MessageMetadata, *, codec: int = PulsarCodec.NONE
) -> bytes:
    """Build the section of one message; the message's fields are added to `metadata`.

    `metadata` must have the producer name, the sequence id and the publish time.
    """
    for key, value in message.properties:
        metadata.properties.add(key=key, value=value)
    _fill(metadata, message)
    return build_section(metadata, _packed(metadata, message.value or b"", codec))


def build_batch(
    messages: Sequence[PulsarMessage | None],
    metadata: MessageMetadata,
    *,
    codec: int = PulsarCodec.NONE,
) -> bytes:
    """Build the section of a batch, in which None is a message that was compacted out."""
    parts: list[bytes] = []
    for message in messages:
        single = SingleMessageMetadata(payload_size=0)
        if message is None:
            single.compacted_out = True
        else:
            for key, value in message.properties:
                single.properties.add(key=key, value=value)
            _fill(single, message)
            if message.sequence_id >= 0:
                single.sequence_id = message.sequence_id
            single.payload_size = len(message.value or b"")
        octets = single.SerializeToString()
        parts += (_SIZE.pack(len(octets)), octets, (message and message.value) or b"")
    metadata.num_messages_in_batch = len(messages)
    first = next((message for message in messages if message is not None), None)
    if first is not None and first.partition_key is not None:
        metadata.partition_key = first.partition_key
        metadata.partition_key_b64_encoded = first.key_is_b64
    if first is not None and first.ordering_key is not None:
        metadata.ordering_key = first.ordering_key
    return build_section(metadata, _packed(metadata, b"".join(parts), codec))


def _fill(metadata: MessageMetadata | SingleMessageMetadata, message: PulsarMessage) -> None:
    if message.partition_key is not None:
        metadata.partition_key = message.partition_key
        if message.key_is_b64:
            metadata.partition_key_b64_encoded = True
    if message.null_key:
        metadata.null_partition_key = True
    if message.ordering_key is not None:
        metadata.ordering_key = message.ordering_key
    if message.event_time:
        metadata.event_time = message.event_time
    if message.value is None:
        metadata.null_value = True


def _packed(metadata: MessageMetadata, payload: bytes, codec: int) -> bytes:
    if codec == PulsarCodec.NONE:
        return payload
    metadata.compression = codec  # type: ignore[assignment]
    metadata.uncompressed_size = len(payload)
    return compress(codec, payload)
