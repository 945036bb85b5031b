"""Response frames: size, header, body.

size int32 | correlation id int32 | (flexible versions: tag count, 0) | body
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any

from trilogue.gateway.stream import Buffer

_SIZE = Struct(">i")
_START = Struct(">ii")


def begin_frame(out: bytearray, correlation_id: int, *, flexible: bool) -> None:
    """Append the size field, filled in later, and the header."""
    out += _START.pack(0, correlation_id)
    if flexible:
        out.append(0)


def append_frame(
    out: bytearray,
    encode: Callable[[Any, bytearray], None],
    response: object,
    correlation_id: int,
    *,
    flexible: bool,
) -> None:
    """Append one whole frame."""
    start = len(out)
    begin_frame(out, correlation_id, flexible=flexible)
    encode(response, out)
    _SIZE.pack_into(out, start, len(out) - start - 4)


def gather_frame(
    gather: Callable[[Any, bytearray], list[Buffer]],
    response: object,
    correlation_id: int,
    *,
    flexible: bool,
) -> list[Buffer]:
    """Return one whole frame as buffers; records are not copied."""
    head = bytearray()
    begin_frame(head, correlation_id, flexible=flexible)
    buffers = gather(response, head)
    _SIZE.pack_into(head, 0, sum(map(len, buffers)) - 4)
    return buffers
