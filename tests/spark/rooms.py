"""What the tests with a real Spark share: topics, rows, readers and writers."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.errors import StreamingQueryException

from tests.server import Server
from tests.waiting import run_ready_tasks
from trilogue.spark import link as links

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

BEGAN = datetime(2013, 1, 1, tzinfo=UTC)
BEGAN_MS = int(BEGAN.timestamp() * 1000)
names = (f"topic{number}" for number in itertools.count())


def make_topic(server: Server, partitions: int, name: str | None = None, **settings: str) -> str:
    name = name or next(names)
    admin = AdminClient({"bootstrap.servers": server.kafka})
    config = {"retention.ms": "-1", **{key.replace("_", "."): one for key, one in settings.items()}}
    admin.create_topics([NewTopic(name, partitions, 1, config=config)])[name].result(90)
    return name


def remove_topic(server: Server, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": server.kafka})
    admin.delete_topics([name])[name].result(90)


def produce(
    server: Server, topic: str, rows: Iterable[Mapping[str, object]], **settings: object
) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": server.kafka, **settings})
    for row in rows:
        producer.produce(topic, **row)
    assert producer.flush(90) == 0


def close_links(address: str) -> None:
    """Close what this process itself, not a worker of Spark, has opened to a server."""
    for key in [each for each in links._links if each[1] == address]:
        at = links._links.pop(key)
        at.run(at.cluster.close())
        at.run(run_ready_tasks())  # closed transports take a turn to go
        at.loop.close()


def numbered(count: int, first: int = 0) -> list[dict[str, object]]:
    return [
        {"key": b"k%d" % number, "value": b"v%d" % number, "timestamp": BEGAN_MS + number}
        for number in range(first, first + count)
    ]


def reader(spark: SparkSession, server: Server, **options: object) -> DataFrameReader:
    made = spark.read.format("trilogue").option("kafka.bootstrap.servers", server.kafka)
    for name, value in options.items():
        made = made.option(name, value)
    return made


def stream(spark: SparkSession, server: Server, **options: object) -> DataFrame:
    made = spark.readStream.format("trilogue").option("kafka.bootstrap.servers", server.kafka)
    for name, value in options.items():
        made = made.option(name, value)
    return made.load()


def run_available(writer: DataStreamWriter) -> StreamingQuery:
    """Run a query over what is there now, to its end.

    Spark gives the Python process that plans a source 10 s to connect, which no setting changes; a
    busy machine may need more. Nothing has happened then, and the query starts again.
    """
    for _ in range(5):
        query = writer.trigger(availableNow=True).start()
        try:
            query.awaitTermination()
        except StreamingQueryException as error:
            if "failed to connect back" not in str(error):
                raise
        else:
            break
    return query


def run_to_table(frame: DataFrame, folder: Path) -> StreamingQuery:
    """One run over what is there now, into Parquet; the folder holds the checkpoint too."""
    writer = frame.writeStream.format("parquet").option("path", str(folder / "table"))
    return run_available(writer.option("checkpointLocation", str(folder / "checkpoint")))


def assert_stream_goes_on(
    spark: SparkSession, server: Server, folder: Path, write: Callable[[str, int], None], url: str
) -> None:
    """`write(topic, count)` and `url` are another protocol's: a stream finds it all, and later
    what is new."""
    topic = make_topic(server, 1)
    write(topic, 20)

    def run() -> int:
        rows = spark.readStream.format("trilogue").option("url", url).option("subscribe", topic)
        run_to_table(rows.option("startingOffsets", "earliest").load(), folder)
        return int(spark.read.parquet(str(folder / "table")).count())

    assert run() == 20
    write(topic, 15)
    assert run() == 35
