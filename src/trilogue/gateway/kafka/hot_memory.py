"""The few functions of hot.py that touch memory: plain Python here, compiled twins in hot.pxd.

They trust their arguments: the caller has checked that what is written has room.
"""

from __future__ import annotations

from struct import Struct

_put32 = Struct(">i").pack_into
_put64 = Struct(">q").pack_into


def new_copy(data: bytes) -> bytearray:
    """Bytes to be written over."""
    return bytearray(data)


def put32(out: bytearray, at: int, value: int) -> None:
    """Write a big-endian number."""
    _put32(out, at, value)


def put64(out: bytearray, at: int, value: int) -> None:
    """Write a big-endian number."""
    _put64(out, at, value)
