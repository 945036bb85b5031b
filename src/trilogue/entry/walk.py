"""Walks bytes: entry headers here, the records inside them in `RecordWalker`.

The one place that runs per entry or per record, so it is compiled: Cython reads this file together
with walk.pxd, which only adds types. Without a compiler the same file runs as plain Python; what
touches memory itself has a twin under `if not cython.compiled`. Nothing is believed before it is
checked against the bytes that are there, and every doubt ends as an EntryError.
"""

from __future__ import annotations

from typing import TypeAlias

import cython

from trilogue.entry.checksum import crc32c
from trilogue.entry.entry import (
    HEADER,
    CorruptEntry,
    EntryHeader,
    InvalidEntry,
    UnsupportedCompression,
)

Int: TypeAlias = int  # the compiler would take a bare `int` for a Python object, and so on
Bool: TypeAlias = bool
View: TypeAlias = memoryview
Buffer: TypeAlias = bytes | bytearray | memoryview
Walked: TypeAlias = tuple[int, int, int, int, int, int, int, int]
Fields: TypeAlias = tuple[int, ...]
MaybeInt: TypeAlias = int | None

_tuple_new = tuple.__new__

if not cython.compiled:  # walk.pxd has the compiled twins

    def bytes_of(view: memoryview) -> memoryview:
        """Make bytes addressable by index."""
        if not view.c_contiguous or view.itemsize != 1:
            raise BufferError("a contiguous view of bytes is needed")
        return view if view.format == "B" else view.cast("B")

    def writable_bytes_of(view: memoryview) -> memoryview:
        """Make bytes addressable by index for writing."""
        if view.readonly:
            raise BufferError("a writable view is needed")
        return bytes_of(view)

    def header_fields(view: memoryview, pos: int) -> Fields:
        """Read the 13 fields of a header, the magic among them, the length as the whole entry's."""
        fields = HEADER.unpack_from(view, pos)
        return (fields[0], fields[1] + 12, *fields[2:])

    def walked_fields(view: memoryview, pos: int) -> Walked:
        """Read what a walk over entries keeps of each."""
        fields = HEADER.unpack_from(view, pos)
        return (pos, fields[1] + 12, fields[0], fields[6], *fields[8:12])

    def load32(data: memoryview, pos: int) -> int:
        """Read a big-endian number."""
        return int.from_bytes(data[pos : pos + 4], "big")

    def store32(data: memoryview, pos: int, value: int) -> None:
        """Write a big-endian number."""
        data[pos : pos + 4] = value.to_bytes(4, "big", signed=True)

    def store64(data: memoryview, pos: int, value: int) -> None:
        """Write a big-endian number."""
        data[pos : pos + 8] = value.to_bytes(8, "big", signed=True)


def read_header(buffer: Buffer, pos: Int = 0) -> EntryHeader:
    """Read the header of the entry at `pos`, which must be whole; its checksum is not computed."""
    view = buffer if type(buffer) is memoryview else memoryview(buffer)
    header: EntryHeader = _tuple_new(EntryHeader, _header_at(view, pos))
    return header


def _header_at(view: View, pos: Int) -> Fields:
    size = len(view)
    if pos < 0 or size - pos < 61:
        raise CorruptEntry(f"no whole header in the {size - pos} bytes at {pos}")
    fields = header_fields(view, pos)
    length = fields[1]
    if fields[3] != 2:
        raise InvalidEntry(f"magic {fields[3]} is not that of a record batch v2")
    if length < 61 or length > size - pos:
        raise CorruptEntry(f"the entry at {pos} says it has {length} bytes, of {size - pos}")
    if fields[6] < 0 or fields[12] < 0:
        raise InvalidEntry(f"{fields[12]} records up to offset delta {fields[6]}")
    return fields[:3] + fields[4:]


def check_produced(records: Buffer) -> EntryHeader:
    """Check what a Kafka producer sent for one partition; return the header of its one batch.

    Looks at the header and the checksum only: the price does not grow with the number of records.
    """
    view = records if type(records) is memoryview else memoryview(records)
    fields = _header_at(view, 0)
    length = fields[1]
    crc = fields[3]
    if length != len(view):
        raise InvalidEntry(f"{len(view) - length} bytes follow the one batch allowed")
    computed = crc32c(view[21:])
    if crc != computed:
        raise CorruptEntry(f"checksum {computed:08x}, the batch says {crc:08x}")
    _check_contents(fields)
    _check_producer(fields)
    header: EntryHeader = _tuple_new(EntryHeader, fields)
    return header


def _check_contents(fields: Fields) -> Int:
    length = fields[1]
    attributes = fields[4]
    last_offset_delta = fields[5]
    base_timestamp = fields[6]
    max_timestamp = fields[7]
    record_count = fields[11]
    if attributes & ~0x17:  # all but codec and transactional
        raise InvalidEntry(f"a producer may not set attributes {attributes & 0xFFFF:#06x}")
    if attributes & 0x07 > 4:
        raise UnsupportedCompression(f"codec {attributes & 0x07} does not exist")
    if record_count != last_offset_delta + 1:
        raise InvalidEntry(f"{record_count} records with last offset delta {last_offset_delta}")
    if attributes & 0x07 == 0 and record_count * 7 > length - 61:
        raise InvalidEntry(f"{record_count} records do not fit into {length - 61} bytes")
    if base_timestamp < -1 or max_timestamp < -1:
        raise InvalidEntry(f"timestamps {base_timestamp} to {max_timestamp}")
    if max_timestamp < base_timestamp and max_timestamp != -1:
        raise InvalidEntry(f"timestamps from {base_timestamp} back to {max_timestamp}")
    return 0


def _check_producer(fields: Fields) -> Int:
    attributes = fields[4]
    producer_id = fields[8]
    producer_epoch = fields[9]
    base_sequence = fields[10]
    if producer_id < -1:
        raise InvalidEntry(f"producer id {producer_id}")
    if producer_id == -1:
        if attributes & 0x10:
            raise InvalidEntry("transactional, but without a producer id")
    elif producer_epoch < 0 or base_sequence < 0:
        raise InvalidEntry(f"producer epoch {producer_epoch}, sequence {base_sequence}")
    return 0


def set_base(entry: bytearray | memoryview, base_offset: Int, leader_epoch: Int) -> None:
    """Write what is the broker's into an entry; neither field is covered by the checksum."""
    view = entry if type(entry) is memoryview else memoryview(entry)
    if len(view) < 61:
        raise CorruptEntry(f"no whole header in {len(view)} bytes")
    data = writable_bytes_of(view)
    store64(data, 0, base_offset)
    store32(data, 12, leader_epoch)


def walk_headers(
    buffer: Buffer, pos: Int = 0, end: MaybeInt = None, *, cut_is_end: Bool = False
) -> list[Walked]:
    """Walk the entries that follow each other in buffer[pos:end].

    Gives (pos, length, base_offset, last_offset_delta, max_timestamp, producer_id, producer_epoch,
    base_sequence) of each. What does not fit is an error; with `cut_is_end` a last entry that is
    cut, as a fetch response may have one, ends the walk.
    """
    view = memoryview(buffer)
    data = bytes_of(view)
    stop = len(view) if end is None else end
    if pos < 0 or stop > len(view):
        raise CorruptEntry(f"nothing to walk at {pos} to {stop} of {len(view)} bytes")
    found = []
    while pos < stop:
        room = stop - pos
        if room < 61:
            if cut_is_end:
                break
            raise CorruptEntry(f"no whole header in the {room} bytes at {pos}")
        entry = walked_fields(view, pos)
        length = entry[1]
        last_offset_delta = entry[3]
        if data[pos + 16] != 2:
            raise InvalidEntry(f"magic {data[pos + 16]} at {pos} is not that of a record batch v2")
        if length < 61 or last_offset_delta < 0:
            raise CorruptEntry(f"{length} bytes, last offset delta {last_offset_delta} at {pos}")
        if length > room:
            if cut_is_end:
                break
            raise CorruptEntry(f"the entry at {pos} says it has {length} bytes, of {room}")
        found.append(entry)
        pos += length
    return found
