"""Reads and writes Kafka's message sets of magic 0 and 1, the formats before record batches.

    offset 8 | size 4 | crc 4 | magic 1 | attributes 1 | (magic 1: time 8) | key | value
             |        |       |<---------------- the CRC-32 covers ----------------------
             |        |<------------------ the size counts this ------------------------

Key and value: int32 length (-1: null), bytes. Attributes: bits 0-2 codec, and in magic 1 bit 3, the
timestamp type. A message with a codec is a wrapper: its value is a compressed message set
(message_set_conversion.py).

Compiled together with message_set.pxd, as entry/walk.py is, since it runs for each message. Every
length is checked against the bytes of the buffer before it is used, and damage raises `EntryError`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias
from zlib import crc32

import cython

from trilogue.entry.entry import CorruptEntry, InvalidEntry

if not cython.compiled:  # message_set.pxd imports the compiled version
    from trilogue.entry.memory import (
        bytes_at,
        bytes_of,
        copy,
        load32,
        load64,
        new_bytes,
        of_bytes,
        store32,
        store64,
        writable_bytes_of,
    )

if TYPE_CHECKING:
    from trilogue.entry.walk import RecordWalker

Int: TypeAlias = int  # the compiler would take a bare `int` for a Python object
View: TypeAlias = memoryview
MaybeBytes: TypeAlias = bytes | None
Buffer: TypeAlias = bytes | bytearray | memoryview
Walker: TypeAlias = "RecordWalker"

OVERHEAD = 12  # bytes of a message that its size does not count
NO_TIME = -1


class SetWalker:
    """Iterates over a message set: after `advance` the fields describe one checked message.

    Sizes of key and value are -1 for null. The timestamp of a message of magic 0 is -1.
    """

    def __init__(self, buffer: Buffer) -> None:
        self.view = memoryview(buffer)
        self.data = bytes_of(self.view) if len(self.view) else bytes_of(memoryview(b"\0"))
        self.stop = len(self.view)
        self.pos = self.start = 0
        self.offset = self.timestamp = self.magic = self.attributes = 0
        self.key_at = self.value_at = 0
        self.key_size = self.value_size = -1

    def advance(self) -> Int:
        """Step to the next message; 0 after the last one."""
        pos = self.pos
        room = self.stop - pos
        if room == 0:
            return 0
        if room < 12:
            raise InvalidEntry(f"{room} bytes after the last whole message")
        size = load32(self.data, pos + 8)
        if size < 14 or size >= 0x80000000:
            raise CorruptEntry(f"a message of {size} bytes at {pos}")
        if size > room - 12:
            raise InvalidEntry(f"a message of {size} bytes at {pos}, {room - 12} are there")
        self.start = pos
        self.pos = pos + 12 + size
        magic = self.data[pos + 16]
        if magic > 1 or size < 14 + 8 * magic:
            raise CorruptEntry(f"a message of {size} bytes with magic {magic} at {pos}")
        crc = load32(self.data, pos + 12)
        computed = crc32(self.view[pos + 16 : self.pos])
        if crc != computed:
            raise CorruptEntry(f"checksum {computed:08x}, the message at {pos} has {crc:08x}")
        self.offset = load64(self.data, pos)
        self.magic = magic
        self.attributes = self.data[pos + 17]
        self.timestamp = load64(self.data, pos + 18) if magic else -1
        self._find_contents(pos + 18 + 8 * magic)
        return 1

    def _find_contents(self, at: Int) -> Int:
        """Set positions and sizes of key and value, which must end with the message."""
        self.key_size = self._size_at(at)
        self.key_at = at + 4
        at = self.key_at + (max(0, self.key_size))
        self.value_size = self._size_at(at)
        self.value_at = at + 4
        at = self.value_at + (max(0, self.value_size))
        if at != self.pos:
            raise InvalidEntry(f"{self.pos - at} bytes after the value of the message")
        return 0

    def _size_at(self, at: Int) -> Int:
        if self.pos - at < 4:
            raise InvalidEntry(f"no room for a length at {at}")
        size = load32(self.data, at)
        if size == 0xFFFFFFFF:
            return -1
        if size > self.pos - at - 4:
            raise InvalidEntry(f"{size} bytes of key or value at {at}, {self.pos - at - 4} left")
        return size

    def key(self) -> MaybeBytes:
        """Return the key of the message."""
        return bytes_at(self.data, self.key_at, self.key_size)

    def value(self) -> MaybeBytes:
        """Return the value of the message."""
        return bytes_at(self.data, self.value_at, self.value_size)


class SetWriter:
    """A growing buffer of consecutive messages of one magic."""

    def __init__(self, magic: Int) -> None:
        self.magic = magic
        self.used = self.room = 0
        self.buffer = bytearray(1)
        self.view = memoryview(self.buffer)
        self.data = writable_bytes_of(self.view)

    def written(self) -> View:
        """Return a view of the written messages; it is valid until the next write."""
        return self.view[: self.used]

    def clear(self) -> None:
        """Discard the messages; the memory is kept."""
        self.used = 0

    def reserve(self, size: Int) -> Int:
        """Grow the buffer so that `size` more bytes fit."""
        if size <= self.room - self.used:
            return 0
        room = max(2 * self.room, self.used + size, 1024)
        buffer = new_bytes(room)
        view = memoryview(buffer)
        data = writable_bytes_of(view)
        copy(data, 0, self.data, 0, self.used)
        self.buffer = buffer
        self.view = view
        self.data = data
        self.room = room
        return 0

    def begin(self, offset: Int, timestamp: Int, attributes: Int, size: Int) -> Int:
        """Write the fields before the key; `size` is that of key and value with their lengths."""
        at = self.used
        head = 18 + 8 * self.magic
        self.reserve(head + size)
        store64(self.data, at, offset)
        store32(self.data, at + 8, head + size - 12)
        self.data[at + 16] = self.magic
        self.data[at + 17] = attributes
        if self.magic:
            store64(self.data, at + 18, timestamp)
        self.used = at + head
        return at

    def end(self, at: Int) -> None:
        """Write the checksum of the message that begins at `at`."""
        crc = crc32(self.view[at + 16 : self.used])
        self.data[at + 12] = (crc >> 24) & 255
        self.data[at + 13] = (crc >> 16) & 255
        self.data[at + 14] = (crc >> 8) & 255
        self.data[at + 15] = crc & 255

    def put(
        self, offset: Int, timestamp: Int, attributes: Int, key: MaybeBytes, value: MaybeBytes
    ) -> Int:
        """Write one message."""
        size = 8
        if key is not None:
            size += len(key)
        if value is not None:
            size += len(value)
        at = self.begin(offset, timestamp, attributes, size)
        self._put_bytes(key)
        self._put_bytes(value)
        self.end(at)
        return 0

    def _put_bytes(self, value: MaybeBytes) -> Int:
        if value is None:
            store32(self.data, self.used, -1)
            self.used += 4
            return 0
        size = len(value)
        store32(self.data, self.used, size)
        copy(self.data, self.used + 4, of_bytes(value), 0, size)
        self.used += 4 + size
        return 0

    def put_record(self, walker: Walker, base_offset: Int, attributes: Int) -> Int:
        """Write the current record of a walker without headers; its offset relative to a base."""
        size = 8 + (max(0, walker.key_size)) + (max(0, walker.value_size))
        at = self.begin(walker.offset - base_offset, walker.timestamp, attributes, size)
        self._put_sized(walker.data, walker.key_at, walker.key_size)
        self._put_sized(walker.data, walker.value_at, walker.value_size)
        self.end(at)
        return 0

    def _put_sized(self, data: View, pos: Int, size: Int) -> None:
        store32(self.data, self.used, size)
        self.used += 4
        if size > 0:
            copy(self.data, self.used, data, pos, size)
            self.used += size

    def put_records(self, walker: Walker, from_offset: Int, attributes: Int, limit: Int) -> Int:
        """Write the records of a walker from an offset on, while all fit into `limit` bytes.

        The first one is written in any case. Returns the offset of the first record that does not
        fit; -1 when all are written.
        """
        first = self.used
        while walker.advance():
            if walker.offset < from_offset:
                continue
            before = self.used
            self.put_record(walker, 0, attributes)
            if self.used > limit and before > first:
                self.used = before
                return walker.offset
        return -1

    def put_inner(self, walker: Walker, attributes: Int) -> tuple[int, int, int]:
        """Write all records of a walker as the messages inside a wrapper.

        Their offsets are relative to the first one's in magic 1, and absolute in magic 0. Returns
        the number of records, the last one's absolute offset and the latest timestamp.
        """
        count = base_offset = last_offset = 0
        latest = -1
        while walker.advance():
            if count == 0 and self.magic:
                base_offset = walker.offset
            self.put_record(walker, base_offset, attributes)
            last_offset = walker.offset
            latest = max(latest, walker.timestamp)
            count += 1
        return count, last_offset, latest
