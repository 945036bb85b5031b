"""The sink's column `deliverAt`: rows that Pulsar's consumers get not before a time.

A record batch is delivered to them as a whole, so rows of different times go into different ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

from trilogue.entry.arrow import arrow_schema
from trilogue.entry.conversion.reserved_names import DELIVER_AT
from trilogue.spark.errors import RowError

if TYPE_CHECKING:
    import pyarrow as pa

COLUMN = "deliverAt"


def divide_by_time(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield the rows of each delivery time in their order, with the header that has the time.

    Rows without one come last. The column itself is dropped.
    """
    if COLUMN not in batch.schema.names:
        yield batch
        return
    import pyarrow as pa
    import pyarrow.compute as pc

    column = batch.column(COLUMN)
    times = column.cast(pa.timestamp("ms", tz=column.type.tz), safe=False).cast(pa.int64())
    if pc.any(pc.less_equal(times, 0)).as_py():
        raise RowError(f"column {COLUMN}: a time before 1970")
    order = pc.sort_indices(times)
    times, rows = times.take(order), batch.drop_columns(COLUMN).take(order)
    rows = _with_headers(rows, times)
    ends = pc.run_end_encode(times).run_ends.to_pylist()
    for start, end in pairwise((0, *ends)):
        yield rows.slice(start, end - start)


def _with_headers(rows: pa.RecordBatch, times: pa.Array) -> pa.RecordBatch:
    """Return the rows with the header before those that they have."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = arrow_schema(("headers",)).field("headers").type
    counts = times.is_valid().cast(pa.int32())
    at = pc.indices_nonzero(counts).cast(pa.int64())
    values = times.drop_null().cast(pa.string()).cast(pa.binary())
    names = pa.repeat(pa.scalar(DELIVER_AT), len(at))
    pairs = pa.StructArray.from_arrays([names, values], fields=list(kind.value_type))
    if "headers" in rows.schema.names:
        known = rows.column("headers").cast(kind)
        counts = pc.add(counts, pc.fill_null(pc.list_value_length(known), 0))
        at = pa.concat_arrays([at, pc.list_parent_indices(known)])
        pairs = pa.concat_arrays([pairs, pc.list_flatten(known)])
        rows = rows.drop_columns("headers")
    pairs = pairs.take(pc.sort_indices(at))  # stable: of a row the new header is the first
    starts = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(counts)])
    return rows.append_column("headers", pa.ListArray.from_arrays(starts, pairs, type=kind))
