"""The fields of a protobuf message, parsed and encoded by hand: for Pulsar and TubeMQ.

Compiled where there is a compiler, together with fields.pxd, which only adds types; the functions
that access memory have a compiled version in memory.pxd. Every size is checked against the bytes
that follow, and any other malformed field raises WireError, too.
"""

from __future__ import annotations

from typing import TypeAlias

import cython

from trilogue.wire.errors import WireError

Int: TypeAlias = int  # the compiler would take a bare `int` for a Python object, and so on
View: TypeAlias = memoryview

# fields.pxd declares these as C variables, and the sizes of its arrays by FIELD_LIMIT.
FIELD_LIMIT = 34
"""`Fields.scan` keeps field numbers below this: all that Pulsar's MessageMetadata has."""

# Wire types, the low three bits of a tag.
_VARINT = 0
_FIXED64 = 1
_BYTES = 2
_FIXED32 = 5
_WIRE_TYPE_MASK = 7
_NUMBER_SHIFT = 3  # a tag is field number << 3 | wire type
_MORE = 128  # the bit of a varint's byte that says another one follows
_LOW_BITS = 127
_VARINT_BITS_MAX = 70  # ten bytes of seven bits
_SHORT_SIZE_MAX = 5  # bytes of a varint below 2**32

if not cython.compiled:  # fields.pxd takes the compiled versions
    from trilogue.wire.memory import bytes_at, bytes_of, new_bytes, room_of


class Fields:
    """The fields of one protobuf message, read in one pass; of each number the last counts."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.data = bytes_of(view)
        self.begin = self.pos = self.end = 0
        self.value = 0
        self.at = self.size = 0
        self.numbers = self.spans = self.twice = 0  # bit n: field n is there
        if not cython.compiled:
            self.values = [0] * FIELD_LIMIT
            self.ats = [0] * FIELD_LIMIT
            self.sizes = [0] * FIELD_LIMIT

    def varint(self) -> Int:
        """Read a number of up to ten bytes; like the runtime, drop what is beyond 64 bits."""
        pos = self.pos
        end = self.end
        shift = 0
        raw = 0
        while pos < end and shift < _VARINT_BITS_MAX:
            byte = self.data[pos]
            pos += 1
            raw |= (byte & _LOW_BITS) << shift
            if byte < _MORE:
                self.pos = pos
                return raw if cython.compiled else raw & 0xFFFFFFFFFFFFFFFF
            shift += 7
        raise WireError("a number that does not end")

    def short(self) -> Int:
        """Read a tag or a size: at most five bytes, below 2**32."""
        pos = self.pos
        if pos < self.end and self.data[pos] < _MORE:
            self.pos = pos + 1
            return self.data[pos]
        raw = self.varint()
        if self.pos - pos > _SHORT_SIZE_MAX or raw > 0xFFFFFFFF:
            raise WireError("a tag or size of more than 32 bits")
        return raw

    def advance(self) -> Int:
        """Step to the next field and return its tag; 0 after the last."""
        if self.pos >= self.end:
            return 0
        tag = self.short()
        kind = tag & _WIRE_TYPE_MASK
        if tag >> _NUMBER_SHIFT == 0:
            raise WireError("field number 0")
        if kind == _VARINT:
            self.value = self.varint()
            return tag
        if kind == _BYTES:
            size = self.short()
        elif kind == _FIXED64:
            size = 8
        elif kind == _FIXED32:
            size = 4
        else:
            raise WireError(f"wire type {kind} of field {tag >> _NUMBER_SHIFT}")
        if size > self.end - self.pos:
            left = self.end - self.pos
            raise WireError(f"field {tag >> _NUMBER_SHIFT} of {size} bytes, {left} follow")
        self.at = self.pos
        self.size = size
        self.pos += size
        return tag

    def scan(self, pos: Int, end: Int) -> Int:
        """Read all fields between two positions, which the caller has checked."""
        self.pos = self.begin = pos
        self.end = end
        self.numbers = self.spans = self.twice = 0
        while True:
            tag = self.advance()
            if tag == 0:
                return 0
            number = tag >> _NUMBER_SHIFT
            if number >= FIELD_LIMIT:
                continue
            bit = 1
            bit <<= number
            kind = tag & _WIRE_TYPE_MASK
            if kind == _VARINT:
                self.numbers |= bit
                self.values[number] = self.value
            elif kind == _BYTES:
                self.twice |= self.spans & bit
                self.spans |= bit
                self.ats[number] = self.at
                self.sizes[number] = self.size

    def has_number(self, number: Int) -> Int:
        """Whether the message has a varint field."""
        return (self.numbers >> number) & 1

    def has_span(self, number: Int) -> Int:
        """Whether the message has a field of bytes."""
        return (self.spans >> number) & 1

    def number(self, number: Int, default: Int) -> Int:
        """Return a varint field as uint64."""
        return self.values[number] if (self.numbers >> number) & 1 else default

    def needed(self, number: Int) -> Int:
        """Return a required varint field."""
        if not (self.numbers >> number) & 1:
            raise WireError(f"required field {number} is missing")
        return self.values[number]

    def into(self, number: Int) -> Int:
        """Read the fields of a required embedded message, in place of those read before."""
        if not (self.spans >> number) & 1:
            raise WireError(f"required field {number} is missing")
        if (self.twice >> number) & 1:
            raise WireError(f"field {number} comes twice")
        at = self.ats[number]
        return self.scan(at, at + self.sizes[number])

    def octets(self, number: Int) -> bytes | None:
        """Return a field of bytes."""
        if not (self.spans >> number) & 1:
            return None
        return bytes_at(self.data, self.ats[number], self.sizes[number])

    def text(self, number: Int) -> str | None:
        """Return a field of text, which must be UTF-8."""
        if not (self.spans >> number) & 1:
            return None
        return text_of(bytes_at(self.data, self.ats[number], self.sizes[number]))


def text_of(octets: bytes) -> str:
    """Decode what must be UTF-8."""
    try:
        return octets.decode()
    except UnicodeDecodeError as error:
        raise WireError(f"text that is not UTF-8: {error.reason}") from error


def size_of(value: Int) -> Int:
    """Return how many bytes a varint takes."""
    size = 1
    while value >= _MORE:
        value >>= 7
        size += 1
    return size


class Room:
    """A buffer to encode into; the caller has checked that its size suffices."""

    def __init__(self, size: Int) -> None:
        self.room = new_bytes(size)
        self.data = room_of(self.room)
        self.pos = 0

    def varint(self, value: Int) -> None:
        """Write a varint."""
        while value >= _MORE:
            self.data[self.pos] = (value & _LOW_BITS) | _MORE
            self.pos += 1
            value >>= 7
        self.data[self.pos] = value
        self.pos += 1

    def byte(self, value: Int) -> None:
        """Write a byte."""
        self.data[self.pos] = value
        self.pos += 1

    def uint32(self, value: Int) -> None:
        """Write a big-endian number."""
        self.byte((value >> 24) & 255)
        self.byte((value >> 16) & 255)
        self.byte((value >> 8) & 255)
        self.byte(value & 255)

    def field(self, tag: Int, value: Int) -> None:
        """Write a tag, of one byte, and a varint."""
        self.byte(tag)
        self.varint(value)

    def written(self) -> bytes:
        """Return what was written."""
        return bytes_at(self.data, 0, self.pos)
