"""The data source `trilogue`: topics as tables, for batch and streaming reads and writes.

Spark starts a Python process for each step of a query: each imports only what its step needs.

Columns are those of Spark's Kafka connector. Rows never become Python objects: a compiled decoder
turns fetched record batches into Arrow columns, and an encoder does the reverse.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

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
from trilogue.spark.payload.payload_options import Mode
from trilogue.spark.payload.resolution import resolve_payloads
from trilogue.spark.processes import exempt_modules
from trilogue.spark.read_options import ReadOptions

if TYPE_CHECKING:
    from trilogue.spark.payload.payload import Payload

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
        options = ReadOptions.parse(self.options)
        exempt_modules()
        return _schema(options, resolve_payloads(options))

    @explained_errors()
    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a batch reader."""
        from trilogue.spark.reader import BatchReader, FilteredBatchReader

        options, payloads = self._resolve(schema)
        return (FilteredBatchReader if options.push_filters else BatchReader)(options, payloads)

    @explained_errors()
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Return a streaming reader."""
        from trilogue.spark.stream_reader import StreamReader

        return StreamReader(*self._resolve(schema))

    def _resolve(self, schema: StructType) -> tuple[ReadOptions, tuple[Payload, ...]]:
        """Return options and payloads; OptionError if Spark's schema is not that of the source."""
        options = ReadOptions.parse(self.options)
        payloads = resolve_payloads(options, _find_typed_columns(schema))
        exempt_modules()
        ours = _schema(options, payloads)
        if schema.simpleString() != ours.simpleString():
            raise OptionError(
                f"the schema is {ours.simpleString()}, no other can be given; option 'columns' "
                "chooses among them, and option 'payloadSchema' gives that of typed values"
            )
        return options, payloads

    @explained_errors()
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return a batch writer; a log cannot be overwritten."""
        from trilogue.spark.write_options import WriteOptions
        from trilogue.spark.writer import BatchWriter

        exempt_modules()
        return BatchWriter(WriteOptions.parse(self.options), schema, overwrite=overwrite)

    @explained_errors()
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """Return a streaming writer, for append and complete mode; Spark refuses update mode."""
        from trilogue.spark.write_options import WriteOptions
        from trilogue.spark.writer import StreamWriter

        del overwrite  # complete mode writes all its rows again, as Spark's Kafka sink does
        return StreamWriter(WriteOptions.parse(self.options), schema)


def _find_typed_columns(schema: StructType) -> dict[str, StructType]:
    """Return the columns that typed values and keys have."""
    return {each.name: each.dataType for each in schema if isinstance(each.dataType, StructType)}


def _schema(options: ReadOptions, payloads: tuple[Payload, ...]) -> StructType:
    fields = [StructField(name, TYPES[name]) for name in options.columns]
    for payload in payloads:
        at = options.columns.index(payload.column)
        fields[at] = StructField(payload.column, payload.schema)
        if payload.mode is Mode.PERMISSIVE:
            fields.append(StructField(payload.corrupt_column, BinaryType()))
    return StructType(fields)
