"""Writes the records of a batch: from Python objects, from rows of Arrow columns, or from a batch.

Compiled together with pack.pxd, as walk.py is. The input is the caller's, not a client's bytes, so
wrong input raises `ValueError`, not `EntryError`. Arrow is not imported here: arrow.py passes the
buffers of the columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

import cython

if not cython.compiled:  # pack.pxd imports the compiled version
    from trilogue.entry.memory import (
        bytes_of,
        copy,
        int32_at,
        int64_at,
        new_bytes,
        of_bytes,
        writable_bytes_of,
    )

if TYPE_CHECKING:
    from trilogue.entry.walk import RecordWalker

Int: TypeAlias = int  # the compiler would take a bare `int` for a Python object
Bytes: TypeAlias = bytes
View: TypeAlias = memoryview
MaybeView: TypeAlias = memoryview | None
MaybeBytes: TypeAlias = bytes | None
Headers: TypeAlias = Sequence[tuple[bytes, bytes | None]]
Rows: TypeAlias = "ArrowRows"
Walker: TypeAlias = "RecordWalker"


def varint_size(value: Int) -> Int:
    """Count the bytes of a zigzag number."""
    raw = (value << 1) ^ (value >> 63)
    size = 1
    while raw >= 128:
        raw >>= 7
        size += 1
    return size


def _sized(size: Int) -> Int:
    return varint_size(size) + (max(0, size))


class ByteInput:
    """A column of byte strings in Arrow's layout: validity bits (or none), offsets, data.

    A column of lists has the same layout: its strings are ranges of the `room` rows of another
    column.
    """

    def __init__(
        self,
        rows: int,
        validity: MaybeView,
        offsets: View,
        values: View,
        *,
        offset: int = 0,
        room: int = -1,
    ) -> None:
        if len(offsets) < 4 * (offset + rows + 1):
            raise ValueError("a column with fewer offsets than rows")
        if validity is not None and 8 * len(validity) < offset + rows:
            raise ValueError("a column with fewer validity bits than rows")
        self.held = (validity, offsets, values)
        self.rows = rows
        self.offset = offset
        self.has_nulls = validity is not None
        self.bits = bytes_of(values if validity is None else validity)
        self.ends = int32_at(offsets)
        self.data = bytes_of(values)
        self.room = len(values) if room < 0 else room

    def start_at(self, row: Int) -> Int:
        """Return the position of a row's string in the data."""
        return self.ends[row + self.offset]

    def size_at(self, row: Int) -> Int:
        """Return the size of a row's string, -1 for null."""
        if row < 0 or row >= self.rows:
            raise ValueError(f"no row {row} in a column of {self.rows}")
        at = row + self.offset
        if self.has_nulls and not (self.bits[at >> 3] >> (at & 7)) & 1:
            return -1
        start = self.ends[at]
        end = self.ends[at + 1]
        if start < 0 or end < start or end > self.room:
            raise ValueError(f"the string of row {row} lies outside its column")
        return end - start


class ArrowRows:
    """The columns of a batch to be written; a missing column means nulls, or no headers."""

    def __init__(self, count: int, times: View) -> None:
        if len(times) < 8 * count:
            raise ValueError("fewer timestamps than rows")
        self.count = count
        self.held = times
        self.times = int64_at(times)
        self.keys = ByteInput(0, None, memoryview(bytes(4)), memoryview(b""))
        self.values = self.header_keys = self.header_values = self.lists = self.keys
        self.has_keys = self.has_values = self.has_headers = False
        self.room = count
        self.choice = self.held
        self.chosen = int32_at(self.held)
        self.has_choice = False

    def choose(self, numbers: View) -> None:
        """Let rows be these, int32 each: the numbers of rows in the columns, in any order."""
        self.choice = numbers
        self.chosen = int32_at(numbers)
        self.count = len(numbers) // 4
        self.has_choice = True

    def row_at(self, row: Int) -> Int:
        """Return the number of a row in the columns."""
        if row < 0 or row >= self.count:
            raise ValueError(f"no row {row} of {self.count}")
        at = self.chosen[row] if self.has_choice else row
        if at < 0 or at >= self.room:
            raise ValueError(f"no row {at} in columns of {self.room}")
        return at

    def set_keys(self, column: ByteInput) -> None:
        """Set the column of the keys."""
        self.keys = column
        self.has_keys = True

    def set_values(self, column: ByteInput) -> None:
        """Set the column of the values."""
        self.values = column
        self.has_values = True

    def set_headers(self, lists: ByteInput, keys: ByteInput, values: ByteInput) -> None:
        """Set the headers: each string of `lists` is a range of rows of `keys` and `values`."""
        self.lists = lists
        self.header_keys = keys
        self.header_values = values
        self.has_headers = True


class RecordPacker:
    """A growing buffer of consecutive records."""

    def __init__(self) -> None:
        self.used = self.room = self.base_timestamp = self.max_timestamp = 0
        self.buffer = bytearray()
        self.data = writable_bytes_of(memoryview(self.buffer))

    def packed(self) -> View:
        """Return a view of the written records; it is valid until the next write."""
        return memoryview(self.buffer)[: self.used]

    def clear(self) -> None:
        """Discard the records; the memory is kept."""
        self.used = 0

    def reserve(self, size: Int) -> Int:
        """Grow the buffer so that `size` more bytes fit."""
        if size <= self.room - self.used:
            return 0
        room = max(2 * self.room, self.used + size, 1024)
        buffer = new_bytes(room)
        data = writable_bytes_of(memoryview(buffer))
        copy(data, 0, self.data, 0, self.used)
        self.buffer = buffer
        self.data = data
        self.room = room
        return 0

    def put_varint(self, value: Int) -> None:
        """Write a zigzag number; there must be room."""
        raw = (value << 1) ^ (value >> 63)
        while raw >= 128:
            self.data[self.used] = (raw & 127) | 128
            self.used += 1
            raw >>= 7
        self.data[self.used] = raw
        self.used += 1

    def put_sized(self, data: View, pos: Int, size: Int) -> None:
        """Write a size and so many bytes, -1 for null; there must be room."""
        self.put_varint(size)
        if size > 0:
            copy(self.data, self.used, data, pos, size)
            self.used += size

    def put_bytes(self, value: MaybeBytes) -> None:
        """Write a byte string or null; there must be room."""
        if value is None:
            self.put_varint(-1)
        else:
            self.put_sized(of_bytes(value), 0, len(value))

    def pack(
        self,
        offset_delta: Int,
        timestamp_delta: Int,
        key: MaybeBytes,
        value: MaybeBytes,
        headers: Headers,
    ) -> Int:
        """Write one record."""
        size = 1 + varint_size(timestamp_delta) + varint_size(offset_delta)
        size += _sized(-1 if key is None else len(key)) + _sized(
            -1 if value is None else len(value)
        )
        size += varint_size(len(headers))
        for name, content in headers:
            size += _sized(len(name)) + _sized(-1 if content is None else len(content))
        self.reserve(size + 10)
        self.put_varint(size)
        self.put_varint(0)  # attributes: none are defined
        self.put_varint(timestamp_delta)
        self.put_varint(offset_delta)
        self.put_bytes(key)
        self.put_bytes(value)
        self.put_varint(len(headers))
        for name, content in headers:
            self.put_bytes(name)
            self.put_bytes(content)
        return 0

    def pack_kept(self, walker: Walker, kept: Bytes, base_timestamp: Int) -> Int:
        """Copy the records of a walker whose byte in `kept` is not 0; returns how many they are.

        They keep their offsets; their times are written as distances from `base_timestamp`, which
        the caller has seen to fit into 64 bits.
        """
        row = count = 0
        flags = of_bytes(kept)
        while walker.advance():
            if row >= len(kept):
                raise ValueError("more records than flags")
            if flags[row]:
                self._pack_walked(walker, walker.timestamp - base_timestamp)
                count += 1
            row += 1
        return count

    def _pack_walked(self, walker: Walker, timestamp_delta: Int) -> Int:
        headers_size = walker.end - walker.headers_at
        size = 1 + varint_size(timestamp_delta) + varint_size(walker.offset_delta)
        size += _sized(walker.key_size) + _sized(walker.value_size)
        size += varint_size(walker.header_count) + headers_size
        self.reserve(size + 10)
        self.put_varint(size)
        self.put_varint(0)
        self.put_varint(timestamp_delta)
        self.put_varint(walker.offset_delta)
        self.put_sized(walker.data, walker.key_at, walker.key_size)
        self.put_sized(walker.data, walker.value_at, walker.value_size)
        self.put_varint(walker.header_count)
        copy(self.data, self.used, walker.data, walker.headers_at, headers_size)
        self.used += headers_size
        return 0

    def pack_rows(self, rows: Rows, row: Int, limit: Int) -> Int:
        """Write rows from `row` on while they stay within `limit` bytes, but at least one.

        Returns the first row left over; the records' deltas count from the first one written.
        """
        first = row
        base = rows.times[rows.row_at(row)]
        self.base_timestamp = self.max_timestamp = base
        while row < rows.count:
            before = self.used
            at = rows.row_at(row)
            timestamp = rows.times[at]
            self._pack_row(rows, at, row - first, timestamp - base)
            if self.used > limit and row > first:
                self.used = before
                break
            self.max_timestamp = max(self.max_timestamp, timestamp)
            row += 1
        return row

    def _pack_row(self, rows: Rows, row: Int, offset_delta: Int, timestamp_delta: Int) -> Int:
        key_size = rows.keys.size_at(row) if rows.has_keys else -1
        value_size = rows.values.size_at(row) if rows.has_values else -1
        size = 1 + varint_size(timestamp_delta) + varint_size(offset_delta)
        size += _sized(key_size) + _sized(value_size)
        header_count = header_row = 0
        if rows.has_headers:
            header_count = max(0, rows.lists.size_at(row))
            header_row = rows.lists.start_at(row)
            size += self._headers_size(rows, header_row, header_count)
        size += varint_size(header_count)
        self.reserve(size + 10)
        self.put_varint(size)
        self.put_varint(0)
        self.put_varint(timestamp_delta)
        self.put_varint(offset_delta)
        self.put_sized(rows.keys.data, rows.keys.start_at(row) if key_size > 0 else 0, key_size)
        self.put_sized(
            rows.values.data, rows.values.start_at(row) if value_size > 0 else 0, value_size
        )
        self.put_varint(header_count)
        while header_count > 0:
            size = rows.header_keys.size_at(header_row)
            self.put_sized(rows.header_keys.data, rows.header_keys.start_at(header_row), size)
            size = rows.header_values.size_at(header_row)
            self.put_sized(rows.header_values.data, rows.header_values.start_at(header_row), size)
            header_row += 1
            header_count -= 1
        return 0

    def _headers_size(self, rows: Rows, row: Int, count: Int) -> Int:
        total = 0
        while count > 0:
            size = rows.header_keys.size_at(row)
            if size < 0:
                raise ValueError("a header needs a key")
            total += _sized(size) + _sized(rows.header_values.size_at(row))
            row += 1
            count -= 1
        return total
