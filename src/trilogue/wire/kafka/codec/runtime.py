"""Functions that generated codecs call: variable-length integers, tag skipping, errors.

An unsigned varint holds 7 bits per byte, low group first; the high bit means that more bytes
follow. Compact lengths are encoded as n + 1; 0 is null.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NoReturn

from trilogue.wire.errors import EncodeError, WireError
from trilogue.wire.kafka.codec.schema import Bytes

MAX_VARINT_BYTES = 5
MAX_LENGTH = 0x7FFFFFFF
MAX_STRING = 0x7FFF
MAX_ELEMENTS = 1_000_000
"""Structures and strings in the arrays of one message: no cluster has more, a forged frame could.
"""
_ONE_BYTE = [bytes((n,)) for n in range(128)]
_TWO_BYTES = struct.Struct(">H").pack


def read_uvarint(buf: Bytes, pos: int) -> tuple[int, int]:
    """Return an unsigned varint and the position behind it."""
    value = shift = 0
    for at in range(pos, pos + MAX_VARINT_BYTES):
        byte = buf[at]
        value |= (byte & 127) << shift
        if byte < 128:
            if value > MAX_LENGTH:
                break
            return value, at + 1
        shift += 7
    raise WireError("bad varint")


def long_length(buf: Bytes, pos: int) -> tuple[int, int]:
    """Return a compact length whose first byte, already read, has its high bit set."""
    second = buf[pos]
    if second < 128:
        return (buf[pos - 1] & 127 | second << 7) - 1, pos + 1
    third = buf[pos + 1]
    if third < 128:
        return (buf[pos - 1] & 127 | (second & 127) << 7 | third << 14) - 1, pos + 2
    value, pos = read_uvarint(buf, pos - 1)
    return value - 1, pos


def long_string_length(buf: Bytes, pos: int) -> tuple[int, int]:
    """The same for a string, whose length Kafka limits."""
    size, pos = long_length(buf, pos)
    if size > MAX_STRING:
        raise WireError(f"string of {size} bytes")
    return size, pos


def uvarint(value: int) -> bytes:
    """Return an unsigned varint as bytes."""
    if value < 128:
        return _ONE_BYTE[value]
    if value < 1 << 14:
        return _TWO_BYTES((value & 127 | 128) << 8 | value >> 7)
    if value < 1 << 21:
        return bytes((value & 127 | 128, value >> 7 & 127 | 128, value >> 14))
    if value > MAX_LENGTH:
        raise EncodeError(f"{value} is too long for a length")
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def string_length(size: int) -> bytes:
    """Return the compact length of a string."""
    if size > MAX_STRING:
        raise EncodeError(f"string of {size} bytes")
    return uvarint(size + 1)


def skip_tags(buf: Bytes, pos: int, end: int) -> int:
    """Skip tagged fields, all of them unknown; returns the position behind them."""
    count, pos = read_uvarint(buf, pos)
    check_count(count, 2, end - pos)
    for _ in range(count):
        _, pos = read_uvarint(buf, pos)
        size, pos = read_uvarint(buf, pos)
        pos += size
        if pos > end:
            cut()
    return pos


def check_count(count: int, least: int, left: int) -> None:
    """Raise WireError for a count of elements that cannot fit into the remaining bytes."""
    if count < 0 or count * least > left:
        bad_count(count)


def bad_count(count: int) -> NoReturn:
    """Raise WireError for an array: null where that is invalid, or too many elements."""
    raise WireError(f"array of {count} elements is too large, or null where it may not be")


def bad_null() -> NoReturn:
    """Raise WireError for a null (any negative length) where a value is required."""
    raise WireError("null where there must be a value")


def cut() -> NoReturn:
    """Raise WireError for a message that ends before its fields do."""
    raise WireError("the message is cut off")


def bad_tag(tag: int) -> NoReturn:
    """Raise WireError for a tagged field whose content has not the declared size."""
    raise WireError(f"tagged field {tag} has another size than it declares")


def total(parts: Iterable[Bytes]) -> int:
    """Return the size of records given as a list of buffers."""
    size = 0
    for part in parts:  # mostly one or two: faster than sum(map(...))
        size += len(part)
    return size


def bad_uuid(value: bytes) -> NoReturn:
    """Raise EncodeError for a uuid that is not 16 bytes."""
    raise EncodeError(f"a uuid has 16 bytes, not {len(value)}")
