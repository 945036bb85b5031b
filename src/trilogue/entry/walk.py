"""Parses entry headers and, in `RecordWalker`, the records of an entry.

Compiled, since it runs for each entry and each record: Cython reads this file together with
walk.pxd, which only adds types. Without a compiler the same file runs as plain Python; functions
that access memory are in memory.py and memory.pxd. Every length is checked against the bytes of the
buffer before it is used, and damage raises `EntryError`.
"""

from __future__ import annotations

from typing import TypeAlias

import cython

from trilogue.entry.checksum import crc32c
from trilogue.entry.entry import (
    CODEC_MASK,
    TRANSACTIONAL,
    Codec,
    CorruptEntry,
    EntryError,
    EntryHeader,
    EntryTooLarge,
    InvalidEntry,
    Record,
    UnsupportedCompression,
)

Int: TypeAlias = int  # the compiler would take a bare `int` for a Python object, and so on
Bool: TypeAlias = bool
View: TypeAlias = memoryview
Buffer: TypeAlias = bytes | bytearray | memoryview
Fields: TypeAlias = tuple[int, ...]
Walked: TypeAlias = tuple[int, int, int, int, int, int, int, int]
MaybeInt: TypeAlias = int | None
Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]
Records: TypeAlias = list[Record]
Keys: TypeAlias = list[tuple[int, int, bytes | None, bool]]

_tuple_new = tuple.__new__
_MAX_INT64 = 2**63 - 1
_CODEC_MASK = CODEC_MASK
_LAST_CODEC = int(Codec.ZSTD)
_TRANSACTIONAL = TRANSACTIONAL
_FOREIGN_ATTRIBUTES, _UNKNOWN_CODEC, _WRONG_COUNT = 1, 2, 3
_NO_ROOM_FOR_RECORDS, _NEGATIVE_TIMESTAMP, _TIMESTAMPS_GO_BACK = 4, 5, 6

if not cython.compiled:  # walk.pxd imports the compiled version
    from trilogue.entry.header import (
        BASE_OFFSET_AT,
        CHECKED_FROM,
        FORMAT_AT,
        HEADER_SIZE,
        LENGTH_AT,
        LENGTH_PREFIX,
        MAGIC,
        MAGIC_AT,
        OWNER_EPOCH_AT,
        SMALLEST_RECORD,
    )
    from trilogue.entry.memory import (
        bytes_at,
        bytes_of,
        header_fields,
        load32,
        quick_crc32c,
        store32,
        store64,
        walked_fields,
        writable_bytes_of,
    )


def read_header(buffer: Buffer, pos: Int = 0) -> EntryHeader:
    """Read the header of the entry at `pos`, which must be whole; its checksum is not computed."""
    view = buffer if type(buffer) is memoryview else memoryview(buffer)
    header: EntryHeader = _tuple_new(EntryHeader, _header_at(view, pos))
    return header


def _header_at(view: View, pos: Int) -> Fields:
    size = len(view)
    if pos < 0 or size - pos < HEADER_SIZE:
        raise CorruptEntry(f"no whole header in the {size - pos} bytes at {pos}")
    fields = header_fields(view, pos)
    length = fields[1]
    if fields[3] != MAGIC:
        raise InvalidEntry(f"magic {fields[3]} is not that of a record batch v2")
    if length < HEADER_SIZE or length > size - pos:
        raise CorruptEntry(f"the entry at {pos} declares {length} bytes, of {size - pos}")
    if fields[6] < 0 or fields[12] < 0:
        raise InvalidEntry(f"{fields[12]} records up to offset delta {fields[6]}")
    return fields[:3] + fields[4:]


def check_produced(records: Buffer) -> EntryHeader:
    """Check what a Kafka producer sent for one partition; return the header of its one batch.

    Only the header and the checksum are read: the cost does not grow with the number of records.
    Raises `CorruptEntry` for a wrong checksum or length, other `EntryError`s for wrong values.
    """
    header: EntryHeader = _tuple_new(EntryHeader, checked_fields(records))
    return header


def checked_fields(records: Buffer) -> Fields:
    """Check as `check_produced` does; return a plain tuple of the fields, which costs less."""
    view = records if type(records) is memoryview else memoryview(records)
    fields = _header_at(view, 0)
    length = fields[1]
    crc = fields[3]
    if length != len(view):
        raise InvalidEntry(f"{len(view) - length} bytes follow the one batch allowed")
    computed = quick_crc32c(
        view, CHECKED_FROM
    )  # for a small batch most of the cost would be the call
    if computed < 0:
        computed = crc32c(view[CHECKED_FROM:])
    if crc != computed:
        raise CorruptEntry(f"checksum {computed:08x}, the batch has {crc:08x}")
    _check_contents(fields)
    _check_producer(fields)
    return fields


def contents_fault(  # noqa: PLR0911, PLR0917 - one return for each rule
    attributes: Int,
    last_offset_delta: Int,
    base_timestamp: Int,
    max_timestamp: Int,
    record_count: Int,
    size: Int,
) -> Int:
    """Return which rule for a producer's batch its header breaks, by number; 0 for a valid one.

    It makes no object, so that a small batch without a producer can be judged by its bytes alone.
    """
    if attributes & ~(_CODEC_MASK | _TRANSACTIONAL):
        return _FOREIGN_ATTRIBUTES
    if attributes & _CODEC_MASK > _LAST_CODEC:
        return _UNKNOWN_CODEC
    if record_count != last_offset_delta + 1:
        return _WRONG_COUNT
    if attributes & _CODEC_MASK == 0 and record_count * SMALLEST_RECORD > size - HEADER_SIZE:
        return _NO_ROOM_FOR_RECORDS
    if base_timestamp < -1 or max_timestamp < -1:
        return _NEGATIVE_TIMESTAMP
    if max_timestamp < base_timestamp and max_timestamp != -1:
        return _TIMESTAMPS_GO_BACK
    return 0


def _check_contents(fields: Fields) -> Int:
    fault = contents_fault(fields[4], fields[5], fields[6], fields[7], fields[11], fields[1])
    if fault:
        raise _fault_error(fault, fields)
    return 0


def _fault_error(fault: Int, fields: Fields) -> EntryError:
    size, attributes, last_offset_delta = fields[1], fields[4], fields[5]
    base_timestamp, max_timestamp, record_count = fields[6], fields[7], fields[11]
    if fault == _FOREIGN_ATTRIBUTES:
        return InvalidEntry(f"a producer may not set attributes {attributes & 0xFFFF:#06x}")
    if fault == _UNKNOWN_CODEC:
        return UnsupportedCompression(f"codec {attributes & _CODEC_MASK} does not exist")
    if fault == _WRONG_COUNT:
        return InvalidEntry(f"{record_count} records with last offset delta {last_offset_delta}")
    if fault == _NO_ROOM_FOR_RECORDS:
        return InvalidEntry(f"{record_count} records do not fit into {size - HEADER_SIZE} bytes")
    if fault == _NEGATIVE_TIMESTAMP:
        return InvalidEntry(f"timestamps {base_timestamp} to {max_timestamp}")
    return InvalidEntry(f"timestamps from {base_timestamp} back to {max_timestamp}")


def _check_producer(fields: Fields) -> Int:
    attributes = fields[4]
    producer_id = fields[8]
    producer_epoch = fields[9]
    base_sequence = fields[10]
    if producer_id < -1:
        raise InvalidEntry(f"producer id {producer_id}")
    if producer_id == -1:
        if attributes & _TRANSACTIONAL:
            raise InvalidEntry("transactional, but without a producer id")
    elif producer_epoch < 0 or base_sequence < 0:
        raise InvalidEntry(f"producer epoch {producer_epoch}, sequence {base_sequence}")
    return 0


def set_base(entry: bytearray | memoryview, base_offset: Int, leader_epoch: Int) -> None:
    """Set base offset and epoch of an entry, two fields that the checksum does not cover."""
    view = entry if type(entry) is memoryview else memoryview(entry)
    if len(view) < HEADER_SIZE:
        raise CorruptEntry(f"no whole header in {len(view)} bytes")
    data = writable_bytes_of(view)
    store64(data, BASE_OFFSET_AT, base_offset)
    store32(data, OWNER_EPOCH_AT, leader_epoch)


def walk_headers(
    buffer: Buffer, pos: Int = 0, end: MaybeInt = None, *, cut_is_end: Bool = False
) -> list[Walked]:
    """Parse the headers of the consecutive entries in buffer[pos:end].

    Returns for each (pos, length, base_offset, last_offset_delta, max_timestamp, producer_id,
    producer_epoch, base_sequence). Raises `EntryError` where they do not fit; with `cut_is_end` a
    truncated last entry, as a fetch response may have one, ends the list.
    """
    view = memoryview(buffer)
    data = bytes_of(view)
    stop = len(view) if end is None else end
    if pos < 0 or stop > len(view):
        raise CorruptEntry(f"nothing to walk at {pos} to {stop} of {len(view)} bytes")
    found = []
    while pos < stop:
        room = stop - pos
        if room < HEADER_SIZE:
            if cut_is_end:
                break
            raise CorruptEntry(f"no whole header in the {room} bytes at {pos}")
        entry = walked_fields(view, pos)
        length = entry[1]
        last_offset_delta = entry[3]
        if data[pos + MAGIC_AT] != MAGIC:
            raise InvalidEntry(
                f"magic {data[pos + MAGIC_AT]} at {pos} is not that of a record batch v2"
            )
        if length < HEADER_SIZE or last_offset_delta < 0:
            raise CorruptEntry(f"{length} bytes, last offset delta {last_offset_delta} at {pos}")
        if length > room:
            if cut_is_end:
                break
            raise CorruptEntry(f"the entry at {pos} declares {length} bytes, of {room}")
        found.append(entry)
        pos += length
    return found


def formats_in(buffer: Buffer) -> int:
    """Return the formats of the consecutive entries in a buffer as bits: 1 << Format for each."""
    view = buffer if type(buffer) is memoryview else memoryview(buffer)
    data = bytes_of(view)
    pos = found = 0
    stop = len(view)
    while pos < stop:
        if stop - pos < HEADER_SIZE:
            raise CorruptEntry(f"no whole header in the {stop - pos} bytes at {pos}")
        length = LENGTH_PREFIX + load32(data, pos + LENGTH_AT)
        if length < HEADER_SIZE or length > stop - pos:
            raise CorruptEntry(f"the entry at {pos} declares {length} bytes, of {stop - pos}")
        found |= 1 << (data[pos + FORMAT_AT] & 3)
        pos += length
    return found


def last_header(buffer: Buffer) -> Walked:
    """Return what `walk_headers` has of the last of the consecutive entries in a buffer.

    For large buffers: thousands of tuples would keep other threads from running for milliseconds.
    """
    view = buffer if type(buffer) is memoryview else memoryview(buffer)
    data = bytes_of(view)
    pos = last = 0
    stop = len(view)
    while pos < stop or not stop:
        if stop - pos < HEADER_SIZE:
            raise CorruptEntry(f"no whole header in the {stop - pos} bytes at {pos}")
        length = LENGTH_PREFIX + load32(data, pos + LENGTH_AT)
        if length < HEADER_SIZE or length > stop - pos:
            raise CorruptEntry(f"the entry at {pos} declares {length} bytes, of {stop - pos}")
        last = pos
        pos += length
    return walk_headers(view, last)[0]


class RecordWalker:
    """Iterates over the records of one entry; `records` are their decompressed bytes.

    After `advance` the fields describe one complete, checked record: positions and sizes of key and
    value in the bytes (size -1 is null), its absolute offset and its timestamp.
    """

    def __init__(self, header: EntryHeader, records: Buffer) -> None:
        self.view = memoryview(records)
        self.data = bytes_of(self.view)
        self.pos = 0
        self.stop = self.end = len(self.view)
        self.bad = False
        self.remaining = header.record_count
        self.base_offset = header.base_offset
        self.base_timestamp = header.base_timestamp
        self.max_timestamp = header.max_timestamp
        self.last_offset_delta = header.last_offset_delta
        self.offset_delta = -1
        self.append_time = header.log_append_time
        self.offset = self.timestamp = self.attributes = 0
        self.key_at = self.value_at = self.headers_at = self.header_count = 0
        self.key_size = self.value_size = -1
        self.headers_max = _MAX_INT64  # of one record, and about so many of a call

    def varint(self) -> Int:
        """Read a zigzag number of up to 64 bits; sets `bad` where there is none."""
        pos = self.pos
        if pos >= self.end:
            self.bad = True
            return 0
        byte = self.data[pos]
        self.pos = pos + 1
        if byte >= 128:
            byte = self._rest_of_varint(byte & 127)
        return (byte >> 1) ^ -(byte & 1)

    def _rest_of_varint(self, raw: Int) -> Int:
        shift = 7
        pos = self.pos
        while pos < self.end and shift < 64:
            byte = self.data[pos]
            pos += 1
            raw |= (byte & 127) << shift
            if byte < 128:
                self.pos = pos
                if shift == 63 and byte > 1:
                    break
                return raw
            shift += 7
        self.bad = True
        return 0

    def length(self) -> Int:
        """Read the size of what follows, -1 for null; sets `bad` when it does not fit."""
        size = self.varint()
        if size < -1 or size > self.end - self.pos:
            self.bad = True
            return -1
        return size

    def advance(self) -> Int:
        """Step to the next record; 0 after the last one."""
        if self.remaining == 0:
            if self.pos != self.stop:
                raise CorruptEntry(f"{self.stop - self.pos} bytes after the last record")
            return 0
        self.end = self.stop
        size = self.varint()
        if size < 6 or size > self.stop - self.pos:
            raise CorruptEntry(f"a record of {size} bytes with {self.remaining} records to go")
        self.end = self.pos + size
        self.attributes = self.data[self.pos]
        self.pos += 1
        self._set_timestamp(self.varint())
        self._set_offset(self.varint())
        self.key_size = self.length()
        self.key_at = self.pos
        if self.key_size > 0:
            self.pos += self.key_size
        self.value_size = self.length()
        self.value_at = self.pos
        if self.value_size > 0:
            self.pos += self.value_size
        self.header_count = self.varint()
        self.headers_at = self.pos
        if self.header_count != 0:
            self._pass_headers()
        if self.bad or self.pos != self.end:
            raise CorruptEntry(f"nonsense in the record at offset delta {self.offset_delta}")
        self.remaining -= 1
        return 1

    def _set_timestamp(self, delta: Int) -> None:
        base = self.base_timestamp
        if self.append_time:
            self.timestamp = self.max_timestamp
        elif (delta > 0 and base > _MAX_INT64 - delta) or (
            delta < 0 and base < -_MAX_INT64 - delta
        ):
            self.bad = True
        else:
            self.timestamp = base + delta

    def _set_offset(self, delta: Int) -> None:
        if delta <= self.offset_delta or delta > self.last_offset_delta:
            self.bad = True
        else:
            self.offset_delta = delta
            self.offset = self.base_offset + delta

    def _pass_headers(self) -> None:
        count = self.header_count
        if count < 0:
            self.bad = True
        while count > 0 and not self.bad:
            size = self.length()
            if size < 0:
                self.bad = True
                return
            self.pos += size
            size = self.length()
            if size > 0:
                self.pos += size
            count -= 1

    def read_headers(self) -> Headers:
        """Return the record's headers. A key that is not UTF-8 gets replacement characters."""
        found = []
        count = self.header_count
        if count > self.headers_max:
            raise EntryTooLarge(f"{count} headers in one record")
        self.pos = self.headers_at
        while count > 0:
            size = self.length()
            key = bytes_at(self.data, self.pos, size) or b""
            self.pos += size
            size = self.length()
            value = bytes_at(self.data, self.pos, size)
            if size > 0:
                self.pos += size
            found.append((str(key, "utf-8", "replace"), value))
            count -= 1
        return tuple(found)

    def read_records(self, limit: Int) -> Records:
        """Return the next records, at most `limit`; an empty list after the last one.

        Fewer where they have many headers: a header of two bytes is an object of a hundred.
        """
        found = []
        headers = 0
        while limit > 0 and headers < self.headers_max and self.advance():
            record = (
                self.offset,
                self.timestamp,
                bytes_at(self.data, self.key_at, self.key_size),
                bytes_at(self.data, self.value_at, self.value_size),
                self.read_headers() if self.header_count else (),
                self.attributes,
            )
            found.append(_tuple_new(Record, record))
            headers += self.header_count
            limit -= 1
        return found

    def read_keys(self, limit: Int) -> Keys:
        """Return (offset, timestamp, key, whether the value is null) of the next records."""
        found = []
        while limit > 0 and self.advance():
            key = bytes_at(self.data, self.key_at, self.key_size)
            found.append((self.offset, self.timestamp, key, self.value_size < 0))
            limit -= 1
        return found

    def find_time(self, timestamp: Int) -> Int:
        """Step to the first record at or after a time; 0 when there is none."""
        while self.advance():
            if self.timestamp >= timestamp:
                return 1
        return 0
