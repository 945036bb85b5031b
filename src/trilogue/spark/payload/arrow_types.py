"""The Arrow types of Spark's types, exactly as Spark expects them from a data source."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.types import StructType

if TYPE_CHECKING:
    import pyarrow as pa


def to_arrow(schema: StructType) -> pa.StructType:
    """Return the Arrow type of a struct."""
    from pyspark.sql.pandas.types import to_arrow_type

    return to_arrow_type(schema, timezone="UTC")
