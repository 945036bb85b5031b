"""Flights and weather: a streaming join, windowed delay statistics, cancellation alerts.

    flights ─┬─┐  left outer join on      planes,      windows of a day
             │ ├─ (origin, hour),     ──► airlines ──► by carrier, origin ──► delay-stats
    weather ─│─┘  watermarks
             └─── cancelled only ───────► airlines, airports ───────────────► cancellations

Both results go to Parquet and to a topic, where each row has its own event time. In the demo
clients of three protocols write the topics; the pipeline is the same for all of them.

Every figure is a count or a sum of whole numbers, so that a check against the data set needs no
tolerance. Results come out in append mode: a window is final when it appears. The last windows
appear because the replay ends with closing events that are far later than any real one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

FLIGHT = (
    "year int, month int, day int, dep_time int, sched_dep_time int, dep_delay int, arr_time int, "
    "sched_arr_time int, arr_delay int, carrier string, flight int, tailnum string, origin string, "
    "dest string, air_time int, distance int, hour int, minute int, time_hour timestamp"
)
WEATHER = (
    "origin string, temp double, wind_speed double, precip double, visib double, "
    "time_hour timestamp"
)
PLANE = "tailnum string, manufacturer string, model string, seats int"
AIRLINE = "carrier string, name string"
AIRPORT = "faa string, name string"
CLOSING = "closing"
"""The carrier and origin of the events that only advance the watermark."""

LATENESS = "30 days"
"""Covers the skew between partitions: each is in time order, but they advance unevenly."""

ROWS_PER_TRIGGER = 180_000
"""Of each stream: two micro-batches for the year; each costs seconds, whatever its size."""

DELAYED_MINUTES, POOR_VISIBILITY_MILES = 15, 3


@dataclass(frozen=True)
class PipelineLocations:
    """The broker to read from, and the folder to write to.

    `caches_tables`: small topics are read once a query; a declared pipeline allows no cache.
    """

    servers: str
    output: Path
    caches_tables: bool = True

    def parquet(self, name: str) -> str:
        """Return the folder of one result."""
        return str(self.output / "parquet" / name)

    def checkpoint(self, name: str) -> str:
        """Return the folder of one query's checkpoint."""
        return str(self.output / "checkpoints" / name)


@dataclass(frozen=True)
class Result:
    """One of the two queries: what it reads, how it is built, and how its rows become messages."""

    name: str
    reads: tuple[str, ...]
    build: Callable[[SparkSession, PipelineLocations], DataFrame]
    key: tuple[str, ...]
    time: str
    partitions: int
    parts: tuple[str, ...]
    """Names of the observed metrics, in the order in which rows pass."""
    last_part: str


@dataclass
class RowCount:
    """The number of rows that a query has written."""

    rows: int = 0


def _json_rows(frame: DataFrame, schema: str) -> DataFrame:
    from pyspark.sql import functions as f

    parsed = f.from_json(f.col("value").cast("string"), schema, {"timestampFormat": TIME_FORMAT})
    return frame.select(parsed.alias("row")).select("row.*")


TIME_FORMAT = "yyyy-MM-dd'T'HH:mm:ssX"


def _stream(
    spark: SparkSession, locations: PipelineLocations, topic: str, schema: str
) -> DataFrame:
    frame = (
        spark.readStream.format("trilogue")
        .option("kafka.bootstrap.servers", locations.servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("columns", "value")
        .option("maxOffsetsPerTrigger", ROWS_PER_TRIGGER)
        .load()
    )
    return _json_rows(frame, schema)


def _table(spark: SparkSession, locations: PipelineLocations, topic: str, schema: str) -> DataFrame:
    frame = (
        spark.read.format("trilogue")
        .option("kafka.bootstrap.servers", locations.servers)
        .option("subscribe", topic)
        .option("columns", "value")
        .load()
    )
    rows = _json_rows(frame, schema)
    return rows.cache() if locations.caches_tables else rows


def _with_weather(spark: SparkSession, locations: PipelineLocations) -> DataFrame:
    """Return flights with the weather at their origin in the scheduled hour, null if unknown."""
    from pyspark.sql import functions as f

    flights = _stream(spark, locations, "flights", FLIGHT).withWatermark("time_hour", LATENESS)
    weather = (
        _stream(spark, locations, "weather", WEATHER)
        .select(
            f.col("origin").alias("weather_origin"),
            f.col("time_hour").alias("weather_hour"),
            "precip",
            "visib",
        )
        .withWatermark("weather_hour", LATENESS)
    )
    same = (f.col("origin") == f.col("weather_origin")) & (
        f.col("time_hour") == f.col("weather_hour")
    )
    joined = flights.join(weather, same, "leftOuter")
    return joined.observe(JOINED, f.count(f.lit(1)).alias("rows"))


def delay_statistics(spark: SparkSession, locations: PipelineLocations) -> DataFrame:
    """Return a row per day, carrier and origin, once its window is closed."""
    from pyspark.sql import functions as f

    planes = _table(spark, locations, "planes", PLANE).select("tailnum", "seats")
    airlines = _table(spark, locations, "airlines", AIRLINE).withColumnRenamed("name", "airline")
    enriched = (
        _with_weather(spark, locations)
        .join(f.broadcast(planes), "tailnum", "left")
        .join(f.broadcast(airlines), "carrier", "left")
    )
    poor = (f.col("visib") < POOR_VISIBILITY_MILES) | (f.col("precip") > 0)
    count = f.count(f.lit(1))
    return (
        enriched.groupBy(f.window("time_hour", "1 day"), "carrier", "airline", "origin")
        .agg(
            count.alias("flights"),
            f.count_if(f.col("dep_time").isNull()).alias("cancelled"),
            f.count_if(f.col("dep_delay") > DELAYED_MINUTES).alias("delayed"),
            f.sum("dep_delay").alias("delay_minutes"),
            f.max("dep_delay").alias("worst_delay"),
            f.count_if(poor).alias("poor_weather"),
            f.count_if(f.col("weather_hour").isNull()).alias("unknown_weather"),
            f.sum("seats").alias("seats"),
        )
        .select(f.col("window.start").alias("day"), "*")
        .drop("window")
    )


def cancellations(spark: SparkSession, locations: PipelineLocations) -> DataFrame:
    """Return a row per cancelled flight, with names in place of codes."""
    from pyspark.sql import functions as f

    airlines = _table(spark, locations, "airlines", AIRLINE).withColumnRenamed("name", "airline")
    airports = _table(spark, locations, "airports", AIRPORT)
    return (
        _stream(spark, locations, "flights", FLIGHT)
        .where(f.col("dep_time").isNull() & (f.col("carrier") != CLOSING))
        .observe(FOUND, f.count(f.lit(1)).alias("rows"))
        .join(f.broadcast(airlines), "carrier", "left")
        .join(
            f.broadcast(airports.select(f.col("faa").alias("dest"), f.col("name").alias("to"))),
            "dest",
            "left",
        )
        .select("time_hour", "carrier", "airline", "flight", "tailnum", "origin", "dest", "to")
    )


def select_messages(frame: DataFrame, result: Result) -> DataFrame:
    """Return the rows of a result as messages, each with the key and event time of its row."""
    from pyspark.sql import functions as f

    return frame.select(
        f.concat_ws("/", *result.key).alias("key"),
        f.to_json(f.struct("*")).alias("value"),
        f.col(result.time).alias("timestamp"),
    )


def _sink(
    locations: PipelineLocations, result: Result, written: RowCount
) -> Callable[[DataFrame, int], None]:
    """Return a function that writes a micro-batch to Parquet and a topic.

    Each batch has its own folder: a repeated batch replaces the first attempt.
    """

    def write(frame: DataFrame, batch_id: int) -> None:
        frame = frame.persist()
        rows = frame.count()
        if rows:
            folder = f"{locations.parquet(result.name)}/batch={batch_id}"
            frame.write.mode("overwrite").parquet(folder)
            to_topic = select_messages(frame, result).write.format("trilogue").mode("append")
            to_topic.option("kafka.bootstrap.servers", locations.servers).save(result.name)
        written.rows += rows
        frame.unpersist()

    return write


def start(
    spark: SparkSession, locations: PipelineLocations, result: Result
) -> tuple[StreamingQuery, RowCount]:
    """Start one query over all data that exist now; `awaitTermination` waits for its end."""
    written = RowCount()
    query = (
        result.build(spark, locations)
        .writeStream.outputMode("append")
        .foreachBatch(_sink(locations, result, written))
        .option("checkpointLocation", locations.checkpoint(result.name))
        .trigger(availableNow=True)
        .queryName(result.name)
        .start()
    )
    return query, written


JOINED, FOUND = "join with weather", "cancelled only"
RESULTS = (
    Result(
        name="delay-stats",
        reads=("flights", "weather"),
        build=delay_statistics,
        key=("day", "carrier", "origin"),
        time="day",
        partitions=3,
        parts=(JOINED,),
        last_part="windows by day",
    ),
    Result(
        name="cancellations",
        reads=("flights",),
        build=cancellations,
        key=("carrier", "flight"),
        time="time_hour",
        partitions=1,
        parts=(FOUND,),
        last_part="names for codes",
    ),
)
