"""The few functions that access memory: plain Python here, the compiled version in memory.pxd.

Compiled modules import memory.pxd instead of this module. Its functions do not check bounds: the
caller has checked that the bytes to be read or written exist.
"""

from __future__ import annotations

from typing import TypeAlias

from trilogue.entry.header import HEADER, LENGTH_PREFIX, MAGIC, STAMP

Fields: TypeAlias = tuple[int, ...]
Walked: TypeAlias = tuple[int, int, int, int, int, int, int, int]


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
    return (fields[0], fields[1] + LENGTH_PREFIX, *fields[2:])


def quick_crc32c(view: memoryview, pos: int) -> int:
    """Return the checksum of the few bytes from `pos` on, or -1 where a call is as good."""
    del view, pos
    return -1


def walked_fields(view: memoryview, pos: int) -> Walked:
    """Read what a walk over entries keeps of each."""
    fields = HEADER.unpack_from(view, pos)
    return (pos, fields[1] + LENGTH_PREFIX, fields[0], fields[6], *fields[8:12])


def load32(data: memoryview, pos: int) -> int:
    """Read a big-endian number."""
    return int.from_bytes(data[pos : pos + 4], "big")


def load64(data: memoryview, pos: int) -> int:
    """Read a big-endian signed number."""
    return int.from_bytes(data[pos : pos + 8], "big", signed=True)


def store32(data: memoryview | bytearray, pos: int, value: int) -> None:
    """Write a big-endian number."""
    data[pos : pos + 4] = value.to_bytes(4, "big", signed=True)


def store64(data: memoryview | bytearray, pos: int, value: int) -> None:
    """Write a big-endian number."""
    data[pos : pos + 8] = value.to_bytes(8, "big", signed=True)


def bytes_at(data: memoryview, pos: int, size: int) -> bytes | None:
    """Copy bytes out; a negative size stands for null."""
    return None if size < 0 else bytes(data[pos : pos + size])


def copy(target: memoryview, at: int, data: memoryview, pos: int, size: int) -> None:
    """Copy bytes over."""
    target[at : at + size] = data[pos : pos + size]


def copy_view(target: memoryview, at: int, data: memoryview) -> None:
    """Copy a whole view into another one; raises `ValueError` where it has no room."""
    target[at : at + len(data)] = data


def stamp_header(entry: memoryview, base_offset: int, size: int, owner_epoch: int) -> None:
    """Write base offset, length and epoch into the header of an entry of `size` bytes."""
    if len(entry) < STAMP.size:
        raise ValueError("no room for an entry's header")
    STAMP.pack_into(entry, 0, base_offset, size - LENGTH_PREFIX, owner_epoch)


def write_header(  # noqa: PLR0917 - once per entry
    out: memoryview, size: int, attributes: int, offsets: int, records: int, time_ms: int
) -> None:
    """Write the header of an entry of `size` bytes without a producer, except the checksum."""
    values = (0, attributes, offsets - 1, time_ms, time_ms, -1, -1, -1, records)
    HEADER.pack_into(out, 0, 0, size - LENGTH_PREFIX, -1, MAGIC, *values)


def new_bytes(size: int) -> bytearray:
    """Make room whose content does not matter."""
    return bytearray(size)


def int64_of(room: bytearray) -> memoryview:
    """Make room addressable as numbers."""
    return memoryview(room).cast("q")


def int32_of(room: bytearray) -> memoryview:
    """Make room addressable as numbers."""
    return memoryview(room).cast("i")


def int32_at(view: memoryview) -> memoryview:
    """Make a buffer of numbers addressable as such."""
    return view.cast("B")[: len(view) // 4 * 4].cast("i")


def int64_at(view: memoryview) -> memoryview:
    """Make a buffer of numbers addressable as such."""
    return view.cast("B")[: len(view) // 8 * 8].cast("q")


def of_bytes(value: bytes) -> memoryview:
    """Make a byte string addressable by index."""
    return memoryview(value)
