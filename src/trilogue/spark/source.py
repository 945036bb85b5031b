"""The data source `trilogue`: topics as tables, for batch and streaming reads and writes.

Columns are those of Spark's Kafka connector. Rows never become Python objects: a compiled decoder
turns fetched record batches into Arrow columns, and an encoder does the reverse.
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

from trilogue.spark.errors import OptionError, explained_errors
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

    @explained_errors()
    def schema(self) -> StructType:
        """Return the columns that the options select."""
        columns = ReadOptions.parse(self.options).columns
        return StructType([StructField(name, TYPES[name]) for name in columns])

    @explained_errors()
    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a batch reader."""
        self._check(schema)
        return BatchReader(ReadOptions.parse(self.options))

    @explained_errors()
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Return a streaming reader."""
        self._check(schema)
        return StreamReader(ReadOptions.parse(self.options))

    def _check(self, schema: StructType) -> None:
        """Raise OptionError if the user's schema differs from that of the source."""
        ours = self.schema()
        if schema.simpleString() != ours.simpleString():
            raise OptionError(
                f"the schema is {ours.simpleString()}, no other can be given; option 'columns' "
                "chooses among them"
            )

    @explained_errors()
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return a batch writer; a log cannot be overwritten."""
        return BatchWriter(WriteOptions.parse(self.options), schema, overwrite=overwrite)

    @explained_errors()
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """Return a streaming writer, for append and complete mode; Spark refuses update mode."""
        del overwrite  # complete mode writes all its rows again, as Spark's Kafka sink does
        return StreamWriter(WriteOptions.parse(self.options), schema)
