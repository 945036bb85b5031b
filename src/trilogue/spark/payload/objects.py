"""Messages that a library decodes one by one, as dictionaries, to a struct column."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


def decode_objects(
    values: pa.Array, kind: pa.StructType, decode: Callable[[bytes], object]
) -> pa.Array:
    """Return a struct for each message, null where it is null, malformed or out of range."""
    import pyarrow as pa

    rows: list[object] = []
    for value in values.to_pylist():
        row = None
        if value is not None:
            try:
                row = decode(value)
            except Exception:  # noqa: BLE001 - libraries raise what bytes lead them to
                row = None
        rows.append(row)
    try:
        return pa.array(rows, kind)
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        return pa.concat_arrays([_convert_one(row, kind) for row in rows])


def _convert_one(row: object, kind: pa.StructType) -> pa.Array:
    import pyarrow as pa

    try:
        return pa.array([row], kind)
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        return pa.nulls(1, kind)
