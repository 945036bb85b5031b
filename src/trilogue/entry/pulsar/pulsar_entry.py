"""Builds an entry of the section that a Pulsar producer sent; this runs for every SEND.

The layout is in layout.py. Compiled with pulsar_entry.pxd, which only adds types; without a
compiler it is plain Python.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple, TypeAlias

import cython

from trilogue.entry.checksum import combine, crc32c
from trilogue.entry.entry import (
    FORMAT_SHIFT,
    TRANSACTIONAL,
    CorruptEntry,
    EntryHeader,
    Format,
    InvalidEntry,
)
from trilogue.wire.errors import WireError

Int: TypeAlias = int  # the compiler would take a bare `int` for a Python object, and so on
View: TypeAlias = memoryview
Buffer: TypeAlias = bytes | bytearray | memoryview
Bytes: TypeAlias = memoryview  # a pointer when compiled
Bool: TypeAlias = bool

# pulsar_entry.pxd declares these as C variables.
_COMBINED = 32 << 10  # bytes from which checksums are combined
_PULSAR = int(Format.PULSAR) << FORMAT_SHIFT  # attributes: the format
_TRANSACTIONAL = int(TRANSACTIONAL)
_SMALLEST_MESSAGE = 5  # bytes of a message in a batch: its size and at least a byte
_tuple_new = tuple.__new__

if not cython.compiled:  # pulsar_entry.pxd imports the compiled version
    from trilogue.entry.header import CHECKED_FROM, CHECKSUM_AT
    from trilogue.entry.memory import (
        bytes_of,
        copy,
        load32,
        new_bytes,
        quick_crc32c,
        store32,
        store64,
        writable_bytes_of,
        write_header,
    )
    from trilogue.entry.pulsar.layout import (
        BATCH,
        BLOCK_VERSION,
        BROKER_METADATA_PART,
        BROKER_TIME_AT,
        CHECKSUM_PART,
        CHUNK,
        DELAYED,
        ENCRYPTED,
        FLAGS_AT,
        HIGHEST_SEQUENCE_ID_AT,
        KEYED,
        METADATA_SIZE_AT,
        OUR_CHECKSUM,
        PART_HEAD_SIZE,
        PART_MAGIC,
        PRODUCER_KEY_AT,
        PULSAR_SECTION_AT,
        RESERVED_AT,
        SECTION_CHECKSUM_AT,
        SEQUENCE_ID_AT,
        UNCHECKED_AT,
        VERSION_AT,
    )
    from trilogue.wire.fields import Fields
    from trilogue.wire.memory import signed32, signed64, truncated32
    from trilogue.wire.pulsar.metadata_fields import (
        META_CHUNK_ID,
        META_COMPRESSION,
        META_DELIVER_AT_TIME,
        META_ENCRYPTION_KEYS,
        META_HIGHEST_SEQUENCE_ID,
        META_MARKER_TYPE,
        META_NUM_CHUNKS,
        META_NUM_MESSAGES,
        META_ORDERING_KEY,
        META_PARTITION_KEY,
        META_PRODUCER_NAME,
        META_PUBLISH_TIME,
        META_REPLICATED_FROM,
        META_SEQUENCE_ID,
        META_TXN_LEAST,
        META_TXN_MOST,
        META_UNCOMPRESSED_SIZE,
        META_UUID,
    )

_OTHER_TEXTS = 1 << META_REPLICATED_FROM | 1 << META_PARTITION_KEY | 1 << META_UUID


class Stamp(NamedTuple):
    """The fields for deduplication and recovery; sequence ids are compared as int64."""

    sequence_id: int
    highest_sequence_id: int
    producer_key: int
    flags: int


@lru_cache(maxsize=4096)
def producer_key(name: str) -> int:
    """Return the hash of 64 bits that identifies a producer name in entries and facts."""
    digest = blake2b(name.encode(errors="surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big")


class SentSection:
    """The section of a SEND, checked, and what an entry says about it."""

    __slots__ = (
        "attributes",
        "body_at",
        "crc",
        "flags",
        "highest_sequence_id",
        "message_count",
        "metadata_size",
        "producer_name",
        "record_count",
        "sequence_id",
        "time_ms",
    )

    def read(self, view: View, message_count_limit: Int = 1_000_000) -> None:
        """Check a section: its checksum, its sizes and its metadata.

        Raises `CorruptEntry` for a wrong checksum, `InvalidEntry` for what is not allowed.
        """
        data = bytes_of(view)
        size = len(view)
        at = self.body_at = _body_at(view)
        known = quick_crc32c(view, at)
        if known < 0:
            known = crc32c(view[at:])
        crc = self.crc = known
        has_crc = at >= PART_HEAD_SIZE and _begins_part(data, at - PART_HEAD_SIZE, CHECKSUM_PART)
        if has_crc and crc != load32(data, at - 4):
            raise CorruptEntry(f"checksum {crc:08x}, the producer has {load32(data, at - 4):08x}")
        metadata_size = self.metadata_size = load32(data, at) if size - at >= 4 else size
        if metadata_size > size - at - 4:
            raise InvalidEntry(f"no room for metadata in {size - at} bytes")
        fields = Fields(view)
        try:
            fields.scan(at + 4, at + 4 + metadata_size)
            self.producer_name = _checked_name(fields)
            sequence_id = signed64(fields.needed(META_SEQUENCE_ID))
            time_ms = signed64(fields.needed(META_PUBLISH_TIME))
        except WireError as error:
            raise InvalidEntry(f"metadata: {error}") from error
        if time_ms < 0:
            raise InvalidEntry(f"publish time {fields.number(META_PUBLISH_TIME, 0)}")
        count = _message_count(fields, size - at - 4 - metadata_size, message_count_limit)
        self.sequence_id, self.time_ms, self.message_count = sequence_id, time_ms, count
        self.highest_sequence_id = _highest(fields, sequence_id)
        self.flags = _flags(fields, has_crc)
        self.record_count = _record_count(fields, count)
        self.attributes = _attributes(fields)

    def can_be_sent(self) -> Bool:
        """Whether consumers can be sent it as it is: with its checksum, and nothing before that."""
        return self.body_at == PART_HEAD_SIZE and not self.flags & OUR_CHECKSUM

    def is_encrypted(self) -> Bool:
        """Whether only clients with the key can read it."""
        return (self.flags & ENCRYPTED) != 0


def build_entry(
    section: Buffer, *, broker_ms: Int, message_count_limit: Int = 1_000_000
) -> tuple[memoryview, EntryHeader, Stamp]:
    """Build an entry of the section of a SEND; the append sets base offset and epoch.

    Raises what `SentSection.read` raises.
    """
    view = section if type(section) is memoryview else memoryview(section)
    sent = SentSection()
    sent.read(view, message_count_limit)
    return build_checked(view, sent, broker_ms)


def build_checked(
    view: View, sent: SentSection, broker_ms: Int
) -> tuple[memoryview, EntryHeader, Stamp]:
    """Build an entry of a section that was read; the append sets base offset and epoch."""
    count, records, time_ms = sent.message_count, sent.record_count, sent.time_ms
    attributes, crc, at = sent.attributes, sent.crc, sent.body_at
    key = producer_key(sent.producer_name)
    size = len(view) + UNCHECKED_AT - at
    entry = memoryview(new_bytes(size))
    out = writable_bytes_of(entry)
    write_header(out, size, attributes, count, records, time_ms)
    _write_block(out, sent)
    store64(out, BROKER_TIME_AT, broker_ms)
    store64(out, PRODUCER_KEY_AT, signed64(key))
    out[PULSAR_SECTION_AT] = PART_MAGIC
    out[PULSAR_SECTION_AT + 1] = CHECKSUM_PART
    store32(out, SECTION_CHECKSUM_AT, signed32(crc))
    copy(out, UNCHECKED_AT, bytes_of(view), at, size - UNCHECKED_AT)
    total = _checksum(entry, crc)
    store32(out, CHECKSUM_AT, signed32(total))

    values = (0, size, -1, total, attributes, count - 1, time_ms, time_ms, -1, -1, -1, records)
    header: EntryHeader = _tuple_new(EntryHeader, values)
    stamp_values = (sent.sequence_id, sent.highest_sequence_id, key, sent.flags)
    stamp: Stamp = _tuple_new(Stamp, stamp_values)
    return entry, header, stamp


def _write_block(out: Bytes, sent: SentSection) -> None:
    """Write the fixed block, except time and producer."""
    out[VERSION_AT] = BLOCK_VERSION
    out[FLAGS_AT] = sent.flags
    out[RESERVED_AT] = out[RESERVED_AT + 1] = 0
    store32(out, METADATA_SIZE_AT, sent.metadata_size)
    store64(out, SEQUENCE_ID_AT, sent.sequence_id)
    store64(out, HIGHEST_SEQUENCE_ID_AT, sent.highest_sequence_id)


def _body_at(view: View) -> Int:
    """Return where the checksummed bytes begin: after the parts 0e02 and 0e01, if present."""
    data = bytes_of(view)
    size = len(view)
    at = 0
    if size >= 2 and _begins_part(data, 0, BROKER_METADATA_PART):
        if size < PART_HEAD_SIZE:
            raise InvalidEntry("broker entry metadata is cut")
        at = load32(data, 2)
        room = size - PART_HEAD_SIZE
        if at > room:
            raise InvalidEntry(f"broker entry metadata of {at} bytes, {room} are there")
        at += PART_HEAD_SIZE
    if size - at >= 2 and _begins_part(data, at, CHECKSUM_PART):
        if size - at < PART_HEAD_SIZE:
            raise InvalidEntry("the checksum is cut")
        at += PART_HEAD_SIZE
    return at


def _begins_part(data: Bytes, at: Int, kind: Int) -> Bool:
    """Whether a part of this kind begins at a position that has two bytes."""
    return data[at] == PART_MAGIC and data[at + 1] == kind


def _checked_name(fields: Fields) -> str:
    """Return the producer name; raises if any text field is not UTF-8."""
    name = fields.text(META_PRODUCER_NAME)
    if name is None:
        raise WireError("no producer name")
    if fields.spans & _OTHER_TEXTS:
        fields.text(META_REPLICATED_FROM)
        fields.text(META_PARTITION_KEY)
        fields.text(META_UUID)
    return name


def _highest(fields: Fields, sequence_id: Int) -> Int:
    highest = signed64(fields.number(META_HIGHEST_SEQUENCE_ID, 0))
    if highest <= 0:
        return sequence_id
    if sequence_id > highest:
        raise InvalidEntry(f"invalid lowest or highest sequence id: {sequence_id}, {highest}")
    return highest


def _message_count(fields: Fields, payload_size: Int, limit: Int) -> Int:
    """Return how many offsets the entry takes, after a check that the payload can hold them."""
    if fields.has_number(META_MARKER_TYPE):
        marker = signed32(fields.number(META_MARKER_TYPE, 0))
        raise InvalidEntry(f"a marker ({marker}), which no producer may send")
    chunks = signed32(fields.number(META_NUM_CHUNKS, 0))
    if chunks > 1:
        chunk_id = -1
        if fields.has_number(META_CHUNK_ID):
            chunk_id = signed32(fields.number(META_CHUNK_ID, 0))
        if fields.has_number(META_NUM_MESSAGES) or chunk_id < 0 or chunk_id >= chunks:
            raise InvalidEntry(f"chunk {chunk_id} of {chunks}")
        return 1
    if not fields.has_number(META_NUM_MESSAGES):
        return 1
    count = signed32(fields.number(META_NUM_MESSAGES, 1))
    room = payload_size
    if fields.number(META_COMPRESSION, 0):
        room = truncated32(fields.number(META_UNCOMPRESSED_SIZE, 0))
    if count <= 0 or count > limit or count > 1 + room // _SMALLEST_MESSAGE:
        raise InvalidEntry(f"{count} messages in a payload of {room} bytes")
    return count


def _record_count(fields: Fields, count: Int) -> Int:
    """Return the number of messages of the entry: none for a chunk before the last."""
    chunks = signed32(fields.number(META_NUM_CHUNKS, 0))
    if chunks > 1 and signed32(fields.number(META_CHUNK_ID, 0)) + 1 < chunks:
        return 0
    return count


def _attributes(fields: Fields) -> Int:
    """Return the attributes of the entry's header."""
    if fields.has_number(META_TXN_LEAST) or fields.has_number(META_TXN_MOST):
        return _PULSAR | _TRANSACTIONAL
    return _PULSAR


def _flags(fields: Fields, has_crc: Bool) -> Int:
    """Return the flags of the fixed block."""
    flags = 0 if has_crc else OUR_CHECKSUM
    if signed32(fields.number(META_NUM_CHUNKS, 0)) > 1:
        flags |= CHUNK
    if fields.has_span(META_PARTITION_KEY) or fields.has_span(META_ORDERING_KEY):
        flags |= KEYED
    if fields.has_number(META_NUM_MESSAGES):
        flags |= BATCH
    if signed64(fields.number(META_DELIVER_AT_TIME, 0)) > 0:
        flags |= DELAYED
    if fields.has_span(META_ENCRYPTION_KEYS):
        flags |= ENCRYPTED
    return flags


def _checksum(entry: View, body_crc: Int) -> Int:
    """Return the checksum of an entry, using the known checksum of its body."""
    size = len(entry) - UNCHECKED_AT
    if size < _COMBINED:
        return crc32c(entry[CHECKED_FROM:])
    return combine(crc32c(entry[CHECKED_FROM:UNCHECKED_AT]), body_crc, size)
