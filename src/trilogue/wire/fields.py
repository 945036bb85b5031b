"""The fields of a protobuf message, read and written by hand: what the hot.py of protocols is of.

Compiled where there is a compiler, with fields.pxd, which only adds types; what touches memory
itself has twins in memory.py and memory.pxd. Every size is checked against the bytes that are
there, and every doubt ends as a WireError.
"""

from __future__ import annotations

from typing import TypeAlias

import cython

from trilogue.wire.errors import WireError

Int: TypeAlias = int  # the compiler would take a bare `int` for a Python object, and so on
View: TypeAlias = memoryview

KEPT = 34
"""Field numbers below this are kept by `Fields.scan`: all that Pulsar's MessageMetadata has."""

if not cython.compiled:  # fields.pxd takes the compiled twins
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
            self.values = [0] * KEPT
            self.ats = [0] * KEPT
            self.sizes = [0] * KEPT

    def varint(self) -> Int:
        """Read a number of up to ten bytes; like the runtime, drop what is beyond 64 bits."""
        pos = self.pos
        end = self.end
        shift = 0
        raw = 0
        while pos < end and shift < 70:
            byte = self.data[pos]
            pos += 1
            raw |= (byte & 127) << shift
            if byte < 128:
                self.pos = pos
                return raw if cython.compiled else raw & 0xFFFFFFFFFFFFFFFF
            shift += 7
        raise WireError("a number that does not end")

    def short(self) -> Int:
        """Read a tag or a size: at most five bytes, below 2**32."""
        pos = self.pos
        if pos < self.end and self.data[pos] < 128:
            self.pos = pos + 1
            return self.data[pos]
        raw = self.varint()
        if self.pos - pos > 5 or raw > 0xFFFFFFFF:
            raise WireError("a tag or size of more than 32 bits")
        return raw

    def advance(self) -> Int:
        """Step to the next field and return its tag, number << 3 | wire type; 0 after the last."""
        if self.pos >= self.end:
            return 0
        tag = self.short()
        kind = tag & 7
        if tag < 8:
            raise WireError("field number 0")
        if kind == 0:
            self.value = self.varint()
            return tag
        if kind == 2:
            size = self.short()
        elif kind == 1:
            size = 8
        elif kind == 5:
            size = 4
        else:
            raise WireError(f"wire type {kind} of field {tag >> 3}")
        if size > self.end - self.pos:
            raise WireError(f"field {tag >> 3} of {size} bytes, {self.end - self.pos} are there")
        self.at = self.pos
        self.size = size
        self.pos += size
        return tag

    def scan(self, pos: Int, end: Int) -> Int:
        """Read all the fields between two places that lie within the bytes."""
        self.pos = self.begin = pos
        self.end = end
        self.numbers = self.spans = self.twice = 0
        while True:
            tag = self.advance()
            if tag == 0:
                return 0
            number = tag >> 3
            if number >= 34:
                continue
            bit = 1
            bit <<= number
            kind = tag & 7
            if kind == 0:
                self.numbers |= bit
                self.values[number] = self.value
            elif kind == 2:
                self.twice |= self.spans & bit
                self.spans |= bit
                self.ats[number] = self.at
                self.sizes[number] = self.size

    def has_number(self, number: Int) -> Int:
        """Whether a varint field is there."""
        return (self.numbers >> number) & 1

    def has_span(self, number: Int) -> Int:
        """Whether a field of bytes is there."""
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
    """How many bytes a varint takes."""
    size = 1
    while value >= 128:
        value >>= 7
        size += 1
    return size


class Room:
    """Bytes to write into, of a size that is known to suffice."""

    def __init__(self, size: Int) -> None:
        self.room = new_bytes(size)
        self.data = room_of(self.room)
        self.pos = 0

    def varint(self, value: Int) -> None:
        """Write a varint."""
        while value >= 128:
            self.data[self.pos] = (value & 127) | 128
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
