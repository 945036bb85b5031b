"""The data source `trilogue`: topics as tables, for batch and streaming reads and writes.

Columns are those of Spark's Kafka connector. Rows never exist as Python objects: record batches go
from the fetch through a compiled decoder into Arrow columns, and back the same way.
"""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from trilogue.spark.options import ReadOptions, WriteOptions
from trilogue.spark.reader import BatchReader
from trilogue.spark.stream_reader import StreamReader
from trilogue.spark.writer import BatchWriter, StreamWriter

HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
TYPES: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": ArrayType(HEADER),
}


class DefaultSource(DataSource):
    """`spark.read.format("trilogue")`, `readStream`, `write` and `writeStream`."""

    @classmethod
    def name(cls) -> str:
        """Return the name that `format()` takes."""
        return "trilogue"

    def schema(self) -> StructType:
        """Return the columns that the options ask for."""
        columns = ReadOptions.parse(self.options).columns
        return StructType([StructField(name, TYPES[name]) for name in columns])

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002
        """Return a batch reader."""
        return BatchReader(ReadOptions.parse(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802
        """Return a streaming reader."""
        return StreamReader(ReadOptions.parse(self.options))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return a batch writer; a log cannot be overwritten."""
        return BatchWriter(WriteOptions.parse(self.options), schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """Return a streaming writer, for append mode and for update mode."""
        del overwrite  # complete mode arrives here too, and writes its rows again, as Kafka's does
        return StreamWriter(WriteOptions.parse(self.options), schema)
