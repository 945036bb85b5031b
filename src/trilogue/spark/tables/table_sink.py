"""Micro-batches of a query in a table, each once: Spark writes the files, the table takes them.

    query = rows.writeStream.foreachBatch(TableSink(DeltaTopicTable("/tables/orders"))).start()

Tasks of Spark write Parquet files below the table, which are no part of it yet. One commit takes
all files of a micro-batch, and records the number of the batch under the name of its query. So a
batch that runs again, since its driver ended before Spark knew of the commit, is known there.
"""

from __future__ import annotations

import posixpath
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from trilogue.spark.errors import OptionError
from trilogue.spark.tables.topic_table import FileTable, TableChanged, TableFile

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

ATTEMPTS = 5
TIMESTAMPS = "spark.sql.parquet.outputTimestampType"
QUERY = "sql.streaming.queryId"
"""The local property in which Spark has the id of a query while its `foreachBatch` runs."""


class TableSink:
    """A function for `foreachBatch` that appends micro-batches to a table of Delta or Iceberg."""

    def __init__(self, table: FileTable, application: str | None = None) -> None:
        """`application`: the name under which batches are counted; by default the query's id.

        Two queries into one table need two names.
        """
        self._table = table
        self._application = application

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        """Append a batch, unless it is in the table; raises `TableError`."""
        name = self._application or _find_query(rows.sparkSession)
        if self._is_committed(name, batch_id):
            return
        schema = _find_schema(rows)
        place = self._table.make_place(schema, f"{batch_id}-{uuid.uuid4().hex}")
        files = write_files(rows, place)
        if not files:
            return
        for attempt in range(ATTEMPTS):
            try:
                self._table.add_files(schema, files, name, batch_id)
            except TableChanged:
                if self._is_committed(name, batch_id):
                    return
                if attempt == ATTEMPTS - 1:
                    raise
            else:
                return

    def _is_committed(self, name: str, batch_id: int) -> bool:
        last = self._table.read_batch(name)
        return last is not None and last >= batch_id


def write_files(rows: DataFrame, place: str) -> list[TableFile]:
    """Write rows as Parquet files into a new folder, by tasks of Spark; return those with rows."""
    from pyspark.sql import functions as f

    spark = rows.sparkSession
    with _with_timestamps_in_microseconds(spark):
        rows.write.parquet(place)
    counted = (
        spark.read.schema(rows.schema).parquet(place)
        .groupBy("_metadata.file_path", "_metadata.file_size").agg(f.count("*").alias("rows"))
    )  # fmt: skip
    return [
        TableFile(
            f"{place}/{posixpath.basename(urlsplit(found.file_path).path)}",
            found.file_size,
            found.rows,
        )
        for found in counted.collect()
    ]


@contextmanager
def _with_timestamps_in_microseconds(spark: SparkSession) -> Iterator[None]:
    """Have files written with a type that both formats know; Spark's own default is another."""
    before = spark.conf.get(TIMESTAMPS)
    spark.conf.set(TIMESTAMPS, "TIMESTAMP_MICROS")
    try:
        yield
    finally:
        spark.conf.set(TIMESTAMPS, str(before))


def _find_schema(rows: DataFrame) -> pa.Schema:
    """Return the columns as the table has them, each of which may be null."""
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema

    found = to_arrow_schema(rows.schema, timezone="UTC")
    return pa.schema([field.with_nullable(True) for field in found])


def _find_query(spark: SparkSession) -> str:
    from pyspark.errors import PySparkException

    try:
        found = spark.sparkContext.getLocalProperty(QUERY)
    except PySparkException:  # a client of Spark Connect has no context
        found = None
    if found is None:
        raise OptionError(
            "TableSink needs an application, a name of your choice: batches are counted under it "
            "where it is not called by foreachBatch of a session of its own"
        )
    return str(found)
