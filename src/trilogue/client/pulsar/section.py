"""Decodes the section of a MESSAGE frame (metadata and payload), and checks all of it.

The errors are the validation errors of an acknowledgement: UncompressedSizeCorruption,
DecompressionError, ChecksumMismatch, BatchDeSerializeError; and DecryptionError for what only an
owner of the key can read.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple

from trilogue.client.pulsar.errors import BadMessage
from trilogue.entry.checksum import crc32c
from trilogue.entry.compression import Buffer
from trilogue.entry.entry import EntryError
from trilogue.entry.pulsar.compression import PulsarCodec, decompress
from trilogue.wire.errors import WireError
from trilogue.wire.pulsar.batch_reader import BatchReader
from trilogue.wire.pulsar.frame import BROKER_ENTRY_MAGIC, CHECKSUM_MAGIC
from trilogue.wire.pulsar.message_codec import read_metadata, read_properties
from trilogue.wire.pulsar.message_types import Metadata, SingleMessage
from trilogue.wire.pulsar.pulsar_pb2 import CommandAck

SIZE_CORRUPT: Final = CommandAck.UncompressedSizeCorruption
DECOMPRESSION: Final = CommandAck.DecompressionError
CHECKSUM: Final = CommandAck.ChecksumMismatch
BATCH: Final = CommandAck.BatchDeSerializeError
DECRYPTION: Final = CommandAck.DecryptionError
MAX_MESSAGES: Final = 1_000_000
SMALLEST_SINGLE: Final = 5
_SIZE: Final = Struct(">I")


class Section(NamedTuple):
    """A section, checked: its metadata, its properties, and its payload as it came."""

    metadata: Metadata
    properties: tuple[tuple[str, str], ...]
    payload: memoryview


def read_section(section: memoryview) -> Section:
    """Check the checksum and the sizes; BadMessage for what is wrong."""
    if section[:2] == BROKER_ENTRY_MAGIC:
        section = _cut(section[2:], "broker entry metadata")[1]
    if section[:2] == CHECKSUM_MAGIC:
        if len(section) < 6:
            raise BadMessage(CHECKSUM, "a section that ends in its checksum")
        (expected,) = _SIZE.unpack_from(section, 2)
        section = section[6:]
        if crc32c(section) != expected:
            raise BadMessage(CHECKSUM, f"{len(section)} bytes do not have checksum {expected:08x}")
    octets, payload = _cut(section, "metadata")
    try:
        metadata = read_metadata(octets)
        properties = read_properties(octets) if metadata.has_properties else ()
    except WireError as problem:
        raise BadMessage(BATCH, f"metadata: {problem}") from problem
    return Section(metadata, properties, payload)


def _cut(view: memoryview, what: str) -> tuple[memoryview, memoryview]:
    """The bytes of a size-prefixed part, and the bytes after it."""
    if len(view) < _SIZE.size:
        raise BadMessage(BATCH, f"no room for the size of {what}")
    (size,) = _SIZE.unpack_from(view)
    if size > len(view) - _SIZE.size:
        raise BadMessage(BATCH, f"{what} of {size} bytes, {len(view) - 4} are there")
    return view[4 : 4 + size], view[4 + size :]


def decompress_payload(metadata: Metadata, payload: Buffer, limit: int) -> Buffer:
    """The payload before compression; what would be larger than `limit` is not made."""
    if metadata.has_encryption:
        raise BadMessage(DECRYPTION, "an encrypted message, and no key")
    compressed = metadata.compression != PulsarCodec.NONE
    if compressed and metadata.uncompressed_size > limit:
        raise BadMessage(SIZE_CORRUPT, f"{metadata.uncompressed_size} bytes, {limit} are allowed")
    try:
        return decompress(metadata.compression, payload, metadata.uncompressed_size, limit)
    except EntryError as problem:
        raise BadMessage(DECOMPRESSION, str(problem)) from problem


def read_singles(metadata: Metadata, payload: Buffer) -> Sequence[SingleMessage]:
    """The messages in the decompressed payload of a batch, without those compacted out."""
    return read_next_singles(open_batch(metadata, payload), metadata.num_messages)


def open_batch(metadata: Metadata, payload: Buffer) -> BatchReader:
    """Return a reader of the messages in the decompressed payload of a batch; BadMessage."""
    count = metadata.num_messages
    if not 0 < count <= min(MAX_MESSAGES, 1 + len(payload) // SMALLEST_SINGLE):
        raise BadMessage(BATCH, f"{count} messages in {len(payload)} bytes")
    return BatchReader(payload, count)


def read_next_singles(reader: BatchReader, limit: int) -> Sequence[SingleMessage]:
    """Return the next messages of a batch, at most `limit`; none after the last. BadMessage."""
    try:
        return reader.read(limit)
    except WireError as problem:
        raise BadMessage(BATCH, str(problem)) from problem


def read_single(
    metadata: Metadata, properties: tuple[tuple[str, str], ...], payload: Buffer
) -> SingleMessage:
    """The message of an entry that is no batch."""
    return SingleMessage(
        -1, None if metadata.null_value else bytes(payload), metadata.partition_key,
        metadata.key_is_b64, metadata.null_key, metadata.ordering_key, metadata.event_time,
        metadata.sequence_id, properties,
    )  # fmt: skip


def estimate_count(section: memoryview) -> int:
    """How many messages a section seems to have, for the permits of one that is bad."""
    try:
        if section[:2] == BROKER_ENTRY_MAGIC:
            section = _cut(section[2:], "broker entry metadata")[1]
        if section[:2] == CHECKSUM_MAGIC:
            section = section[6:]
        return max(1, read_metadata(_cut(section, "metadata")[0]).num_messages)
    except (BadMessage, WireError):
        return 1
