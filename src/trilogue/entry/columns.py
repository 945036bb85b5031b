"""Column buffers in Arrow's layout, filled straight from the bytes of records.

Compiled together with columns.pxd, as walk.py is. Nothing of Arrow is imported here: arrow.py wraps
the finished buffers without copying them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import cython

from trilogue.entry.entry import EntryTooLarge

if not cython.compiled:  # columns.pxd imports the compiled version
    from trilogue.entry.memory import copy, int32_of, int64_of, new_bytes, writable_bytes_of

if TYPE_CHECKING:
    from trilogue.entry.walk import RecordWalker

Int: TypeAlias = int  # the compiler would take a bare `int` for a Python object
View: TypeAlias = memoryview
Walker: TypeAlias = "RecordWalker"

_MAX_MILLISECONDS = (2**63 - 1) // 1000


def microseconds(milliseconds: Int) -> Int:
    """Convert ms to us; a time beyond the range of int64 (292 thousand years) is clamped to it."""
    if milliseconds > _MAX_MILLISECONDS:
        return _MAX_MILLISECONDS * 1000
    if milliseconds < -_MAX_MILLISECONDS:
        return -_MAX_MILLISECONDS * 1000
    return milliseconds * 1000


class ByteColumn:
    """A growing column of byte strings in Arrow's layout: offsets, validity bits, data."""

    def __init__(self, rows: int) -> None:
        self.count = self.null_count = self.used = self.room = 0
        self.rows = rows
        self.offsets = new_bytes(4 * (rows + 1))
        self.validity = bytearray((rows + 7) // 8)
        self.values = bytearray()
        self.ends = int32_of(self.offsets)
        self.bits = writable_bytes_of(memoryview(self.validity))
        self.data = writable_bytes_of(memoryview(self.values))
        self.ends[0] = 0

    def append(self, data: View, pos: Int, size: Int) -> Int:
        """Add a string; a negative size stands for null."""
        row = self.count
        if row == self.rows:
            self._grow_rows()
        if size < 0:
            self.null_count += 1
        else:
            if size > self.room - self.used:
                self.grow_data(self.used + size)
            copy(self.data, self.used, data, pos, size)
            self.used += size
            self.bits[row >> 3] |= 1 << (row & 7)
        self.count = row + 1
        self.ends[row + 1] = self.used
        return 0

    def _grow_rows(self) -> Int:
        rows = max(16, 2 * self.rows)
        offsets = new_bytes(4 * (rows + 1))
        validity = bytearray((rows + 7) // 8)
        offsets[: 4 * (self.rows + 1)] = self.offsets
        validity[: len(self.validity)] = self.validity
        self.offsets = offsets
        self.validity = validity
        self.ends = int32_of(offsets)
        self.bits = writable_bytes_of(memoryview(validity))
        self.rows = rows
        return 0

    def grow_data(self, needed: Int) -> Int:
        """Make room for so many bytes in all."""
        if needed > 0x7FFFFFFF:
            raise EntryTooLarge("a column of more than 2 GiB")
        room = min(max(1024, 2 * self.room, needed), 0x7FFFFFFF)
        values = new_bytes(room)
        copy(writable_bytes_of(memoryview(values)), 0, self.data, 0, self.used)
        self.values = values
        self.data = writable_bytes_of(memoryview(values))
        self.room = room
        return 0


class Columns:
    """The columns of one Arrow batch in the making: at most `rows` rows.

    Full when it has that many, or about `limit` bytes of keys, values and headers: the last record
    may go beyond. A record without headers has null in place of a list, as in Spark's own source.
    """

    def __init__(self, rows: int, limit: int, wanted: frozenset[str]) -> None:
        self.rows = rows
        self.limit = limit
        self.count = self.list_nulls = 0
        self.want_keys = "key" in wanted
        self.want_values = "value" in wanted
        self.want_headers = "headers" in wanted
        self.offset_bytes = new_bytes(8 * rows)
        self.time_bytes = new_bytes(8 * rows)
        self.offsets = int64_of(self.offset_bytes)
        self.times = int64_of(self.time_bytes)
        self.keys = ByteColumn(rows if self.want_keys else 0)
        self.values = ByteColumn(rows if self.want_values else 0)
        self.list_bytes = new_bytes(4 * (rows + 1))
        self.list_validity = bytearray((rows + 7) // 8)
        self.list_ends = int32_of(self.list_bytes)
        self.list_bits = writable_bytes_of(memoryview(self.list_validity))
        self.list_ends[0] = 0
        self.header_keys = ByteColumn(0)
        self.header_values = ByteColumn(0)

    def expect(self, size: Int) -> None:
        """Allocate once for `size` bytes of records to come, instead of growing to them."""
        size = min(size, self.limit)
        if self.want_values and self.values.used + size > self.values.room:
            self.values.grow_data(self.values.used + size)

    def is_full(self) -> Int:
        """Whether the batch has all its rows or its limit of bytes."""
        if self.count == self.rows:
            return 1
        size = self.keys.used + self.values.used + self.header_keys.used + self.header_values.used
        return size >= self.limit

    def fill(self, walker: Walker, start: Int, end: Int) -> Int:
        """Append the records in [start, end) of a walker; 0 when full before the walker is done."""
        while not self.is_full():
            if not walker.advance() or walker.offset >= end:
                return 1
            if walker.offset >= start:
                self._append(walker)
        return 0

    def _append(self, walker: Walker) -> Int:
        row = self.count
        self.offsets[row] = walker.offset
        self.times[row] = microseconds(walker.timestamp)
        if self.want_keys:
            self.keys.append(walker.data, walker.key_at, walker.key_size)
        if self.want_values:
            self.values.append(walker.data, walker.value_at, walker.value_size)
        if self.want_headers:
            self._append_headers(walker, row)
        self.count = row + 1
        return 0

    def _append_headers(self, walker: Walker, row: Int) -> Int:
        left = walker.header_count
        if left == 0:
            self.list_nulls += 1
        else:
            self.list_bits[row >> 3] |= 1 << (row & 7)
            walker.pos = walker.headers_at
        while left > 0:
            size = walker.length()
            self.header_keys.append(walker.data, walker.pos, size)
            walker.pos += size
            size = walker.length()
            self.header_values.append(walker.data, walker.pos, size)
            if size > 0:
                walker.pos += size
            left -= 1
        self.list_ends[row + 1] = self.header_keys.count
        return 0
