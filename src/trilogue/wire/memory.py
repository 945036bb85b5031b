"""The functions that access memory: plain Python here, their compiled version in memory.pxd.

Compiled modules take memory.pxd instead of this module. It trusts its arguments: the caller has
checked that what is read or written lies within the buffer.
"""

from __future__ import annotations

from struct import Struct

_UINT32 = Struct(">I").unpack_from


def bytes_of(view: memoryview) -> memoryview:
    """Return a view whose bytes are addressable by index."""
    if not view.c_contiguous or view.itemsize != 1:
        raise BufferError("a contiguous view of bytes is needed")
    return view if view.format == "B" else view.cast("B")


def writable_bytes_of(view: memoryview) -> memoryview:
    """Make bytes addressable by index for writing."""
    if view.readonly:
        raise BufferError("a writable view is needed")
    return bytes_of(view)


def bytes_at(data: memoryview | bytearray, pos: int, size: int) -> bytes:
    """Copy bytes out."""
    return bytes(data[pos : pos + size])


def uint32_at(data: memoryview, pos: int) -> int:
    """Read a big-endian number."""
    value: int = _UINT32(data, pos)[0]
    return value


def new_bytes(size: int) -> bytearray:
    """Return a buffer whose content is undefined."""
    return bytearray(size)


def room_of(room: bytearray) -> bytearray:
    """Return a buffer that is addressable by index for writing."""
    return room


def copy(
    target: memoryview | bytearray, at: int, data: memoryview | bytearray, pos: int, size: int
) -> None:
    """Copy bytes over."""
    target[at : at + size] = data[pos : pos + size]


def signed32(value: int) -> int:
    """Take the low 32 bits of a varint as protobuf's int32."""
    return ((value & 0xFFFFFFFF) ^ 0x80000000) - 0x80000000


def signed64(value: int) -> int:
    """Take a varint as protobuf's int64."""
    return (value ^ (1 << 63)) - (1 << 63)


def unsigned64(value: int) -> int:
    """Take an int64 as the varint that stands for it."""
    return value & 0xFFFFFFFFFFFFFFFF


def truncated32(value: int) -> int:
    """Take the low 32 bits of a varint as protobuf's uint32."""
    return value & 0xFFFFFFFF
