"""The header that clients of a Confluent registry write before a message: a zero, a schema's id.

Before a Protobuf message follows the place of its type in the file; of those only the first type,
one zero byte, is read.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pyarrow as pa

MAGIC: Final = b"\x00"
HEADER_BYTES: Final = 5
FIRST_TYPE: Final = b"\x00"
VALUE_BYTES_MAX: Final = 2**31 - 1
"""An end of slices: without one Arrow's kernel overflows with two values or more."""


class Framing(enum.Enum):
    """What stands before the body of a message."""

    NONE = "none"
    CONFLUENT = "confluent"


def strip_header(values: pa.Array, *, is_protobuf: bool) -> pa.Array:
    """Return the bodies of messages, null where a message does not have the header."""
    import pyarrow as pa
    import pyarrow.compute as pc

    size = HEADER_BYTES + len(FIRST_TYPE) * is_protobuf
    has_header = pc.and_(
        pc.starts_with(values, MAGIC), pc.greater_equal(pc.binary_length(values), size)
    )
    if is_protobuf:
        kind = pc.binary_slice(values, HEADER_BYTES, size)
        has_header = pc.and_(has_header, pc.equal(kind, FIRST_TYPE))
    body = pc.binary_slice(values, size, VALUE_BYTES_MAX)
    return pc.if_else(has_header, body, pa.scalar(None, pa.binary()))
