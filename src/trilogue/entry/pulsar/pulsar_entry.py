"""Builds an entry of the section that a Pulsar producer sent; this runs for every SEND.

The layout is in pulsar_batch.py. Compiled with pulsar_entry.pxd, which only adds types; without a
compiler it is plain Python.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple, TypeAlias

import cython

from trilogue.entry.checksum import combine, crc32c
from trilogue.entry.entry import CorruptEntry, EntryHeader, InvalidEntry
from trilogue.wire.errors import WireError

Int: TypeAlias = int  # the compiler would take a bare `int` for a Python object, and so on
View: TypeAlias = memoryview
Buffer: TypeAlias = bytes | bytearray | memoryview
Bytes: TypeAlias = memoryview  # a pointer when compiled

CHUNK, OUR_CHECKSUM, KEYED, BATCH, DELAYED, ENCRYPTED = 1, 2, 4, 8, 16, 32

_COMBINED = 32 << 10  # bytes from which checksums are combined
_tuple_new = tuple.__new__

if not cython.compiled:  # pulsar_entry.pxd imports the compiled version
    from trilogue.entry.memory import (
        bytes_of,
        copy,
        load32,
        new_bytes,
        store32,
        store64,
        writable_bytes_of,
    )
    from trilogue.wire.fields import Fields
    from trilogue.wire.memory import signed32, signed64, truncated32


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


def build_entry(
    section: Buffer, *, broker_ms: Int, message_count_limit: Int = 1_000_000
) -> tuple[memoryview, EntryHeader, Stamp]:
    """Build an entry of the section of a SEND; the append sets base offset and epoch.

    Raises `CorruptEntry` for a wrong checksum, `InvalidEntry` for a section that is not allowed.
    """
    view = section if type(section) is memoryview else memoryview(section)
    data = bytes_of(view)
    size = len(view)
    at = _body_at(view)
    body = view[at:]
    crc = crc32c(body)
    has_crc = at >= 6 and data[at - 6] == 0x0E and data[at - 5] == 0x01
    if has_crc and crc != load32(data, at - 4):
        raise CorruptEntry(f"checksum {crc:08x}, the producer has {load32(data, at - 4):08x}")
    metadata_size = load32(data, at) if size - at >= 4 else size
    if metadata_size > size - at - 4:
        raise InvalidEntry(f"no room for metadata in {size - at} bytes")
    fields = Fields(view)
    try:
        fields.scan(at + 4, at + 4 + metadata_size)
        key = producer_key(_checked_name(fields))
        sequence_id = signed64(fields.needed(2))
        time_ms = signed64(fields.needed(3))
    except WireError as error:
        raise InvalidEntry(f"metadata: {error}") from error
    if time_ms < 0:
        raise InvalidEntry(f"publish time {fields.number(3, 0)}")
    count = _message_count(fields, size - at - 4 - metadata_size, message_count_limit)
    highest = _highest(fields, sequence_id)
    flags = _flags(fields) if has_crc else _flags(fields) | 2
    chunks = signed32(fields.number(27, 0))
    records = count
    if chunks > 1 and signed32(fields.number(29, 0)) + 1 < chunks:
        records = 0  # a chunk that is not the last of its message
    attributes = 0x110 if fields.has_number(22) or fields.has_number(23) else 0x100

    size += 107 - at
    entry = memoryview(new_bytes(size))
    out = writable_bytes_of(entry)
    _write_header(out, size, attributes, count, records, time_ms)
    _write_block(out, flags, metadata_size, sequence_id, highest)
    store64(out, 85, broker_ms)
    store64(out, 93, signed64(key))
    out[101] = 0x0E
    out[102] = 0x01
    store32(out, 103, signed32(crc))
    copy(out, 107, data, at, size - 107)
    total = _checksum(entry, crc)
    store32(out, 17, signed32(total))

    last = count - 1
    values = (0, size, -1, total, attributes, last, time_ms, time_ms, -1, -1, -1, records)
    header: EntryHeader = _tuple_new(EntryHeader, values)
    stamp: Stamp = _tuple_new(Stamp, (sequence_id, highest, key, flags))
    return entry, header, stamp


def _write_header(  # noqa: PLR0917 - once per entry
    out: Bytes, size: Int, attributes: Int, count: Int, records: Int, time_ms: Int
) -> None:
    """Write the 61 bytes of the header, except the checksum."""
    store64(out, 0, 0)
    store32(out, 8, size - 12)
    store32(out, 12, -1)
    out[16] = 2
    out[21] = attributes >> 8
    out[22] = attributes & 0xFF
    store32(out, 23, count - 1)
    store64(out, 27, time_ms)
    store64(out, 35, time_ms)
    store64(out, 43, -1)
    out[51] = out[52] = 0xFF
    store32(out, 53, -1)
    store32(out, 57, records)


def _write_block(
    out: Bytes, flags: Int, metadata_size: Int, sequence_id: Int, highest: Int
) -> None:
    """Write the fixed block, except time and producer."""
    out[61] = 1
    out[62] = flags
    out[63] = out[64] = 0
    store32(out, 65, metadata_size)
    store64(out, 69, sequence_id)
    store64(out, 77, highest)


def _body_at(view: View) -> Int:
    """Return where the checksummed bytes begin: after the parts 0e02 and 0e01, if present."""
    data = bytes_of(view)
    size = len(view)
    at = 0
    if size >= 2 and data[0] == 0x0E and data[1] == 0x02:
        if size < 6:
            raise InvalidEntry("broker entry metadata is cut")
        at = load32(data, 2)
        if at > size - 6:
            raise InvalidEntry(f"broker entry metadata of {at} bytes, {size - 6} are there")
        at += 6
    if size - at >= 2 and data[at] == 0x0E and data[at + 1] == 0x01:
        if size - at < 6:
            raise InvalidEntry("the checksum is cut")
        at += 6
    return at


def _checked_name(fields: Fields) -> str:
    """Return the producer name; raises if any text field is not UTF-8."""
    name = fields.text(1)
    if name is None:
        raise WireError("no producer name")
    if fields.spans & ((1 << 5) | (1 << 6) | (1 << 26)):
        fields.text(5)
        fields.text(6)
        fields.text(26)
    return name


def _highest(fields: Fields, sequence_id: Int) -> Int:
    highest = signed64(fields.number(24, 0))
    if highest <= 0:
        return sequence_id
    if sequence_id > highest:
        raise InvalidEntry(f"invalid lowest or highest sequence id: {sequence_id}, {highest}")
    return highest


def _message_count(fields: Fields, payload_size: Int, limit: Int) -> Int:
    """Return how many offsets the entry takes, after a check that the payload can hold them."""
    if fields.has_number(20):
        marker = signed32(fields.number(20, 0))
        raise InvalidEntry(f"a marker ({marker}), which no producer may send")
    chunks = signed32(fields.number(27, 0))
    if chunks > 1:
        chunk_id = signed32(fields.number(29, 0)) if fields.has_number(29) else -1
        if fields.has_number(11) or chunk_id < 0 or chunk_id >= chunks:
            raise InvalidEntry(f"chunk {chunk_id} of {chunks}")
        return 1
    if not fields.has_number(11):
        return 1
    count = signed32(fields.number(11, 1))
    room = truncated32(fields.number(9, 0)) if fields.number(8, 0) else payload_size
    if count <= 0 or count > limit or count > 1 + room // 5:
        raise InvalidEntry(f"{count} messages in a payload of {room} bytes")
    return count


def _flags(fields: Fields) -> Int:
    flags = 0
    if signed32(fields.number(27, 0)) > 1:
        flags |= 1
    if fields.has_span(6) or fields.has_span(18):
        flags |= 4
    if fields.has_number(11):
        flags |= 8
    if fields.has_number(19) and signed64(fields.number(19, 0)) > 0:
        flags |= 16
    if fields.has_span(13):
        flags |= 32
    return flags


def _checksum(entry: View, body_crc: Int) -> Int:
    """Return the checksum of an entry, using the known checksum of its body."""
    size = len(entry) - 107
    if size < _COMBINED:
        return crc32c(entry[21:])
    return combine(crc32c(entry[21:107]), body_crc, size)
