"""Avro bodies to column buffers in Arrow's layout, without an object per message or value.

Compiled together with avro_columns.pxd. Nothing of Arrow is imported here: avro_decoder.py wraps
the finished buffers. Encoding: https://avro.apache.org/docs/1.12.0/specification/#binary-encoding
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

import cython

if not cython.compiled:  # avro_columns.pxd imports the compiled version
    from trilogue.entry.memory import (
        bytes_at,
        copy,
        int32_of,
        int64_of,
        new_bytes,
        writable_bytes_of,
    )

if TYPE_CHECKING:
    from trilogue.entry.pack import ByteInput

Int: TypeAlias = int  # the compiler would take a bare `int` for a Python object
Input: TypeAlias = "ByteInput"
Reader: TypeAlias = "AvroReader"
View: TypeAlias = bytearray | memoryview
Columns: TypeAlias = Sequence["AvroColumn"]

_BOOLEAN: Final = 0
_NUMBER: Final = 1
_FIXED: Final = 2
_STRING: Final = 3
_BYTES: Final = 4
_FIXED_BYTES: Final = 5
_DECIMAL: Final = 6
_FIXED_DECIMAL: Final = 7
_RECORD: Final = 8
_ARRAY: Final = 9
_MAP: Final = 10

_NO_UNION: Final = -1
_LONG_BYTES_MAX: Final = 10
_MASK64: Final = 0xFFFFFFFFFFFFFFFF
_FIRST_ROOM: Final = 64


class AvroColumn:
    """The values of one field: validity bits, and by kind values, ends, data or other columns."""

    def __init__(
        self,
        kind: int,
        *,
        width: int = 0,
        low: int = 0,
        high: int = 0,
        factor: int = 1,
        children: Columns = (),
    ) -> None:
        """Use a `make_` function of this module instead."""
        self.kind = kind
        self.width = width
        self.factor = factor
        self.low, self.high = (0, 0) if kind in {_DECIMAL, _FIXED_DECIMAL} else (low, high)
        self.bound = high
        self.children = list(children)
        self.null_branch = _NO_UNION
        self.branches = 0
        self.value_bytes = 16 if kind in {_DECIMAL, _FIXED_DECIMAL} else width
        self.has_values = kind in {_NUMBER, _FIXED, _DECIMAL, _FIXED_DECIMAL}
        self.has_ends = kind in {_STRING, _BYTES, _FIXED_BYTES, _ARRAY, _MAP}
        self.count = self.null_count = self.used = self.room = self.rows = 0
        self._allocate(0)
        self.buffer = new_bytes(0)
        self.data = writable_bytes_of(memoryview(self.buffer))

    def set_union(self, branches: int, null_branch: int) -> None:
        """Set the type to a union of null and this type, or of this type alone."""
        self.branches = branches
        self.null_branch = null_branch

    def clear(self) -> None:
        """Forget all rows and their buffers, which belong to the arrays that were made of them."""
        self.count = self.null_count = self.used = self.room = self.rows = 0
        self._allocate(0)
        self.buffer = new_bytes(0)
        self.data = writable_bytes_of(memoryview(self.buffer))
        for child in self.children:
            child.clear()

    def read(self, reader: Reader) -> Int:
        """Append the value at the reader's position; of a bad one any, and the reader is bad."""
        if self.branches:
            branch = reader.read_long()
            if branch < 0 or branch >= self.branches:
                reader.bad = 1
            if branch == self.null_branch:
                return self.append_null()
        row = self.count
        if row == self.rows:
            self._grow(row + 1)
        if self.kind >= _RECORD:
            self._read_nested(reader, row)
        else:
            self._read_atom(reader, row)
        _set_bit(self.bits, row, 1)
        self.count = row + 1
        return 0

    def _read_atom(self, reader: Reader, row: Int) -> Int:
        kind = self.kind
        if kind == _NUMBER:
            self._read_number(reader, row)
        elif kind in {_STRING, _BYTES, _FIXED_BYTES}:
            self._read_bytes(reader, row)
        elif kind == _FIXED:
            pos = reader.skip(self.width)
            if pos >= 0:
                copy(self.values, row * self.width, reader.data, pos, self.width)
        elif kind == _BOOLEAN:
            pos = reader.skip(1)
            _set_bit(self.values, row, pos >= 0 and reader.data[pos] != 0)
        else:
            self._read_decimal(reader, row)
        return 0

    def _read_nested(self, reader: Reader, row: Int) -> Int:
        if self.kind == _RECORD:
            for child in self.children:
                child.read(reader)
        else:
            self._read_items(reader)
            child = self.children[0]
            self.ends[row + 1] = child.count
        return 0

    def append_null(self) -> Int:
        """Append a null; fields of a record get one, too."""
        row = self.count
        if row == self.rows:
            self._grow(row + 1)
        if self.has_ends:
            self.ends[row + 1] = self.ends[row]
        if self.kind == _RECORD:
            for child in self.children:
                child.append_null()
        elif self.kind == _BOOLEAN:
            _set_bit(self.values, row, 0)
        _set_bit(self.bits, row, 0)
        self.null_count += 1
        self.count = row + 1
        return 0

    def truncate(self, count: Int) -> Int:
        """Remove the rows from `count` on."""
        row = count
        while row < self.count:
            if not (self.bits[row >> 3] >> (row & 7)) & 1:
                self.null_count -= 1
            row += 1
        self.count = min(count, self.count)
        if self.has_ends:
            count = self.used = self.ends[self.count]
        for child in self.children:
            child.truncate(count)
        return 0

    def _read_number(self, reader: Reader, row: Int) -> Int:
        number = reader.read_long()
        if number < self.low or number > self.high:
            reader.bad = 1
            number = 0
        if self.width == 4:
            self.values32[row] = number
        else:
            self.values64[row] = number * self.factor
        return 0

    def _read_bytes(self, reader: Reader, row: Int) -> Int:
        size = self.width if self.kind == _FIXED_BYTES else reader.read_long()
        pos = reader.skip(size)
        if pos >= 0:
            if self.kind == _STRING and reader.checks_texts and not _is_text(reader, pos, size):
                reader.bad = 1
            if size > self.room - self.used:
                self._grow_data(self.used + size)
            copy(self.data, self.used, reader.data, pos, size)
            self.used += size
        self.ends[row + 1] = self.used
        return 0

    def _read_decimal(self, reader: Reader, row: Int) -> Int:
        size = self.width if self.kind == _FIXED_DECIMAL else reader.read_long()
        pos = reader.skip(size)
        number = 0
        if pos >= 0:
            number = int.from_bytes(bytes_at(reader.data, pos, size) or b"", "big", signed=True)
        if abs(number) > self.bound:
            reader.bad = 1
            number = 0
        self.value_room[16 * row : 16 * row + 16] = number.to_bytes(16, "little", signed=True)
        return 0

    def _read_items(self, reader: Reader) -> Int:
        """Append the items of all blocks of an array, or the entries of a map."""
        count = reader.read_block()
        while count > 0:
            while count > 0:
                for child in self.children:
                    child.read(reader)
                count -= 1
                if reader.bad:
                    return 0
            count = reader.read_block()
        return 0

    def reserve(self, rows: Int) -> Int:
        """Make room for so many rows in all, also in the fields of records."""
        if rows > self.rows:
            self._grow(rows)
        if self.kind == _RECORD:
            for child in self.children:
                child.reserve(rows)
        return 0

    def _allocate(self, rows: Int) -> Int:
        self.validity = new_bytes((rows + 7) // 8)
        size = 0
        if self.kind == _BOOLEAN:
            size = (rows + 7) >> 3
        elif self.has_values:
            size = rows * self.value_bytes
        self.value_room = new_bytes((size + 7) & ~7)
        self.end_room = new_bytes(4 * (rows + 1) if self.has_ends else 4)
        self.bits = writable_bytes_of(memoryview(self.validity))
        self.values = writable_bytes_of(memoryview(self.value_room))
        self.values64 = int64_of(self.value_room)
        self.values32 = int32_of(self.value_room)
        self.ends = int32_of(self.end_room)
        self.ends[0] = 0
        self.rows = rows
        return 0

    def _grow(self, needed: Int) -> Int:
        old = (self.validity, self.value_room, self.end_room)
        self._allocate(max(needed, 2 * self.rows, _FIRST_ROOM))
        self.validity[: len(old[0])] = old[0]
        self.value_room[: len(old[1])] = old[1]
        self.end_room[: len(old[2])] = old[2]
        return 0

    def _grow_data(self, needed: Int) -> Int:
        room = max(needed, 2 * self.room, 1024)
        buffer = new_bytes(room)
        data = writable_bytes_of(memoryview(buffer))
        copy(data, 0, self.data, 0, self.used)
        self.buffer = buffer
        self.data = data
        self.room = room
        return 0


class AvroReader:
    """Reads messages of one schema into the columns of a record."""

    def __init__(self, root: AvroColumn) -> None:
        self.root = root
        self.pos = self.end = 0
        self.bad = self.checks_texts = 0

    def read_all(self, messages: Input, rows: Int, checks_texts: Int) -> None:
        """Append a row for each message, null for a null and for one that is malformed.

        `checks_texts`: a message with a string that is not UTF-8 is malformed; without, it comes
        as it is.
        """
        self.data = messages.data
        self.checks_texts = checks_texts
        root = self.root
        root.reserve(root.count + rows)
        for row in range(rows):
            size = messages.size_at(row)
            if size < 0:
                root.append_null()
                continue
            self.pos = messages.start_at(row)
            self.end = self.pos + size
            self.bad = 0
            before = root.count
            root.read(self)
            if self.bad or self.pos != self.end:
                root.truncate(before)
                root.append_null()

    def read_long(self) -> Int:
        """Read a zigzag number; 0 where there is none, and the reader is bad."""
        pos = self.pos
        raw = shift = 0
        while pos < self.end and shift < 7 * _LONG_BYTES_MAX:
            byte = self.data[pos]
            pos += 1
            raw |= ((byte & 127) << shift) & _MASK64
            if byte < 128:
                self.pos = pos
                return (raw >> 1) ^ -(raw & 1)
            shift += 7
        self.bad = 1
        return 0

    def read_block(self) -> Int:
        """Read the number of items of a block; not more than bytes are left."""
        count = self.read_long()
        if count < 0:
            count = -count
            self.read_long()  # its size in bytes
        if count < 0 or count > self.end - self.pos:
            self.bad = 1
        return 0 if self.bad else count

    def skip(self, size: Int) -> Int:
        """Go over so many bytes and return where they begin; -1 where they are not there."""
        pos = self.pos
        if size < 0 or size > self.end - pos:
            self.bad = 1
            return -1
        self.pos = pos + size
        return pos


def _is_text(reader: Reader, pos: Int, size: Int) -> Int:
    try:
        (bytes_at(reader.data, pos, size) or b"").decode()
    except UnicodeDecodeError:
        return 0
    return 1


def _set_bit(bits: View, row: Int, value: Int) -> Int:
    if value:
        bits[row >> 3] |= 1 << (row & 7)
    else:
        bits[row >> 3] &= ~(1 << (row & 7))
    return 0


def make_boolean() -> AvroColumn:
    """Return a column of bits."""
    return AvroColumn(_BOOLEAN)


def make_number(width: int, low: int, high: int, factor: int = 1) -> AvroColumn:
    """Return a column of an int or long within bounds, times a factor, in 4 or 8 bytes."""
    return AvroColumn(_NUMBER, width=width, low=low, high=high, factor=factor)


def make_float(width: int) -> AvroColumn:
    """Return a column of float (4 bytes) or double (8)."""
    return AvroColumn(_FIXED, width=width)


def make_string() -> AvroColumn:
    """Return a column of texts."""
    return AvroColumn(_STRING)


def make_bytes(fixed_size: int | None = None) -> AvroColumn:
    """Return a column of bytes, or of a fixed of this size."""
    if fixed_size is None:
        return AvroColumn(_BYTES)
    return AvroColumn(_FIXED_BYTES, width=fixed_size)


def make_decimal(precision: int, fixed_size: int | None = None) -> AvroColumn:
    """Return a column of decimals with so many digits, of bytes or of a fixed of this size."""
    high = 10**precision - 1
    if fixed_size is None:
        return AvroColumn(_DECIMAL, high=high)
    return AvroColumn(_FIXED_DECIMAL, width=fixed_size, high=high)


def make_record(fields: Columns) -> AvroColumn:
    """Return a column of records."""
    return AvroColumn(_RECORD, children=fields)


def make_array(items: AvroColumn) -> AvroColumn:
    """Return a column of arrays."""
    return AvroColumn(_ARRAY, children=(items,))


def make_map(values: AvroColumn) -> AvroColumn:
    """Return a column of maps."""
    return AvroColumn(_MAP, children=(make_string(), values))
