"""The queries that `benchmarks.spark_read` measures, by our source and by Spark's own connector."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BUILD = Path(__file__).resolve().parent.parent / "build" / "bench-spark"
OURS, THEIRS = "trilogue", "kafka"
TOPIC, JSON_TOPIC, AVRO_TOPIC = "bench", "bench-json", "bench-avro"
WRITTEN_TOPIC = "bench-written"
PARTITIONS, VALUE, KEY = 4, 100, 8
ALL = "key,value,topic,partition,offset,timestamp,timestampType"
TYPES = dict(
    zip(
        ALL.split(","),
        ("BINARY", "BINARY", "STRING", "INT", "BIGINT", "TIMESTAMP", "INT"),
        strict=True,
    )
)
JSON_DDL = "id BIGINT, name STRING, price DOUBLE, good BOOLEAN"
AVRO_SCHEMA = json.dumps(
    {
        "type": "record",
        "name": "Item",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "name", "type": "string"},
            {"name": "price", "type": "double"},
            {"name": "good", "type": "boolean"},
        ],
    }
)
SYNTHETIC_BATCH = 10_000
ITEM = "item"
"""In place of columns: the value is a struct, as JSON and Avro give it."""

Case = Callable[[], None]
numbers = itertools.count()


def read(spark: SparkSession, kind: str, servers: str, topic: str, **options: object) -> DataFrame:
    """Return all rows of a topic; a new frame each time: Spark keeps what one has shuffled."""
    made = spark.read.format(kind).option("kafka.bootstrap.servers", servers)
    return made.options(**{"subscribe": topic, **options}).load()


def count_bytes(frame: DataFrame, rows: int, width: int) -> None:
    """Count rows and add up the lengths of their values."""
    from pyspark.sql import functions as f

    found = frame.agg(f.count(f.lit(1)).alias("rows"), f.sum(f.length("value")).alias("bytes"))
    row = found.collect()[0]
    assert (row.rows, row.bytes) == (rows, rows * width), row


def batch(spark: SparkSession, kind: str, servers: str, rows: int, columns: str) -> Case:
    """A batch query; of Spark's connector all columns come, whatever the query needs."""
    options = {"columns": columns} if kind == OURS else {}
    return lambda: count_bytes(read(spark, kind, servers, TOPIC, **options), rows, VALUE)


def segments(spark: SparkSession, data: Path, servers: str, rows: int, columns: str) -> Case:
    """The same query from the segments of a data directory."""
    options = {"columns": columns, "path": str(data)}
    return lambda: count_bytes(read(spark, OURS, servers, TOPIC, **options), rows, VALUE)


def stream(
    spark: SparkSession, kind: str, servers: str, rows: int, columns: str, *, left_out: int = 0
) -> Case:
    """The newest rows as one micro-batch, into nothing; `left_out` are not read."""
    first = dict.fromkeys(map(str, range(PARTITIONS)), left_out // PARTITIONS)

    def run() -> None:
        made = spark.readStream.format(kind).option("kafka.bootstrap.servers", servers)
        if kind == OURS:
            made = made.option("columns", columns)
        made = made.option("subscribe", TOPIC).option("startingOffsets", json.dumps({TOPIC: first}))
        run_to_nothing(made.load(), columns, rows - left_out)

    return run


def run_to_nothing(frame: DataFrame, columns: str, rows: int) -> None:
    """Run a query over what is there, which is so many rows."""
    query = (
        frame.select(*columns.split(","))
        .writeStream.format("noop")
        .option("checkpointLocation", str(BUILD / f"checkpoint-{next(numbers)}"))
        .trigger(availableNow=True).start()
    )  # fmt: skip
    query.awaitTermination()
    assert sum(one["numInputRows"] for one in query.recentProgress) == rows


def typed(spark: SparkSession, form: str, kind: str, servers: str, rows: int) -> Case:
    """Sums over fields: ours by `payload=json` or `avro`, theirs by from_json or from_avro."""
    from pyspark.sql import functions as f
    from pyspark.sql.avro.functions import from_avro

    is_json = form == "JSON"
    topic, schema = (JSON_TOPIC, JSON_DDL) if is_json else (AVRO_TOPIC, AVRO_SCHEMA)

    def run() -> None:
        if kind == OURS:
            options = {"payload": form.lower(), "payloadSchema": schema, "columns": "value"}
            frame = read(spark, OURS, servers, topic, **options)
        else:
            value = f.col("value")
            parsed = (
                f.from_json(value.cast("string"), schema) if is_json else from_avro(value, schema)
            )
            frame = read(spark, THEIRS, servers, topic).select(parsed.alias("value"))
        sum_fields(frame, rows)

    return run


def sum_fields(frame: DataFrame, rows: int) -> None:
    """Add up the fields of all items."""
    from pyspark.sql import functions as f

    found = frame.agg(
        f.count("value.id").alias("rows"), f.sum("value.price").alias("price"),
        f.sum(f.length("value.name")).alias("length"), f.count_if("value.good").alias("good"),
    ).collect()[0]  # fmt: skip
    assert (found.rows, found.good, found.price) == (rows, rows // 2, rows * 0.5), found


def make_rows(spark: SparkSession, rows: int) -> DataFrame:
    """Keys and values of a range."""
    from pyspark.sql import functions as f

    return spark.range(rows, numPartitions=PARTITIONS).select(
        f.lpad(f.col("id").cast("string"), KEY, "0").alias("key"),
        f.lpad(f.col("id").cast("string"), VALUE, "0").alias("value"),
    )


def write(spark: SparkSession, kind: str, servers: str, rows: int) -> Case:
    """The rows into a topic."""

    def run() -> None:
        made = make_rows(spark, rows).write.format(kind)
        made = made.option("kafka.bootstrap.servers", servers).option("topic", WRITTEN_TOPIC)
        made.mode("append").save()

    return run


def write_nowhere(spark: SparkSession, rows: int) -> Case:
    """The rows into nothing: what making them costs, which is no writing."""
    return lambda: make_rows(spark, rows).write.format("noop").mode("overwrite").save()


class SyntheticPartition(InputPartition):  # type: ignore[misc]
    """So many rows, without a broker."""

    def __init__(self, number: int, rows: int) -> None:
        self.number, self.rows = number, rows


def divide(rows: int) -> list[SyntheticPartition]:
    return [SyntheticPartition(one, rows // PARTITIONS) for one in range(PARTITIONS)]


def repeat_batch(columns: list[str], partition: InputPartition) -> Iterator[Any]:
    """Yield one ready Arrow batch again and again: what a row costs in Spark at the least."""
    assert isinstance(partition, SyntheticPartition)
    size = SYNTHETIC_BATCH
    ready = {
        "key": pa.array([b"0" * KEY] * size, pa.binary()),
        "value": pa.array([b"0" * VALUE] * size, pa.binary()),
        "topic": pa.array([TOPIC] * size, pa.string()),
        "partition": pa.array([partition.number] * size, pa.int32()),
        "offset": pa.array(range(size), pa.int64()),
        "timestamp": pa.array(range(size), pa.timestamp("us", "UTC")),
        "timestampType": pa.array([0] * size, pa.int32()),
    }
    items = pa.StructArray.from_arrays(
        [
            pa.array(range(size), pa.int64()),
            pa.array([f"{one:040}" for one in range(size)]),
            pa.array([0.5] * size),
            pa.array([one % 2 == 0 for one in range(size)]),
        ],
        names=["id", "name", "price", "good"],
    )
    chosen = {"value": items} if columns == [ITEM] else {name: ready[name] for name in columns}
    made = pa.RecordBatch.from_pydict(chosen)
    for first in range(0, partition.rows, size):
        yield made.slice(0, min(size, partition.rows - first))


class SyntheticReader(DataSourceReader):  # type: ignore[misc]
    """A batch of ready Arrow batches."""

    def __init__(self, columns: list[str], rows: int) -> None:
        self.columns, self.rows = columns, rows

    def partitions(self) -> list[InputPartition]:
        return list(divide(self.rows))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return repeat_batch(self.columns, partition)


class SyntheticStreamReader(DataSourceStreamReader):  # type: ignore[misc]
    """A stream of ready Arrow batches, all of them in its first micro-batch."""

    def __init__(self, columns: list[str], rows: int) -> None:
        self.columns, self.rows = columns, rows

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"rows": 0}

    def latestOffset(self) -> dict[str, int]:  # noqa: N802
        return {"rows": self.rows}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[SyntheticPartition]:
        return divide(end["rows"] - start["rows"])

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return repeat_batch(self.columns, partition)


class Nowhere(DataSourceArrowWriter):  # type: ignore[misc]
    """Takes Arrow batches and drops them: what a written row costs in Spark at the least."""

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()


class Synthetic(DataSource):  # type: ignore[misc]
    """A source of Arrow batches of the same columns and sizes, and a sink of any."""

    @classmethod
    def name(cls) -> str:
        return "synthetic"

    def schema(self) -> str:
        if self._columns() == [ITEM]:
            return f"value STRUCT<{JSON_DDL}>"
        return ", ".join(f"`{one}` {TYPES[one]}" for one in self._columns())

    def reader(self, schema: object) -> DataSourceReader:
        del schema
        return SyntheticReader(self._columns(), int(self.options["rows"]))

    def streamReader(self, schema: object) -> DataSourceStreamReader:  # noqa: N802
        del schema
        return SyntheticStreamReader(self._columns(), int(self.options["rows"]))

    def writer(self, schema: object, overwrite: bool) -> DataSourceArrowWriter:
        del schema, overwrite
        return Nowhere()

    def _columns(self) -> list[str]:
        return str(self.options["columns"]).split(",")


def synthetic(spark: SparkSession, rows: int, columns: str) -> Case:
    """The same query without a broker."""

    def run() -> None:
        count_bytes(read_synthetic(spark.read, rows, columns), rows, VALUE)

    return run


def typed_synthetic(spark: SparkSession, rows: int) -> Case:
    """The sums over fields without a broker and a decoder."""
    return lambda: sum_fields(read_synthetic(spark.read, rows, ITEM), rows)


def synthetic_stream(spark: SparkSession, rows: int, columns: str) -> Case:
    """The stream without a broker."""

    def run() -> None:
        run_to_nothing(read_synthetic(spark.readStream, rows, columns), columns, rows)

    return run


def read_synthetic(reader: Any, rows: int, columns: str) -> DataFrame:
    return reader.format("synthetic").option("rows", rows).option("columns", columns).load()


def write_synthetic(spark: SparkSession, rows: int) -> Case:
    """The rows to a Python sink that drops them."""
    return lambda: make_rows(spark, rows).write.format("synthetic").mode("append").save()
