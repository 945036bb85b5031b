"""What does a row cost on its way from a topic into a Spark query, and what of it is ours?

    python -m benchmarks.spark_read [--rounds 3] [--rows 2000000] [--no-save]

Two million rows of 100 B and a key of 8 B lie in four partitions, uncompressed, in batches of about
a thousand. Each case reads all of them, with two tasks at a time: first the fetch and the decoder
alone, in this process, then Spark counting rows and adding up the lengths of the values, then a
stream into nothing. `CPU ns/row` is the time of the Java process and its Python workers (in the
first case of this process); `server ns/row` is what the broker spent. Wall time is shown as min,
median and max of the rounds; when those lie far apart the machine was busy, and only the CPU times
mean anything. The difference between the first case and the others is Spark's: rows cross from
Python to Java as Arrow and become rows there. It shrinks with the selected columns.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime as dt
import json
import shutil
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from tests.server import Server, start_server

import trilogue
from benchmarks.measure import cpu_seconds, machine
from trilogue.client.kafka.admin import Admin
from trilogue.client.kafka.cluster import KafkaCluster
from trilogue.client.kafka.producer.batch_writer import BatchWriter
from trilogue.entry.arrow import build_from_arrow
from trilogue.spark.local_session import session, stop
from trilogue.spark.offsets import Range
from trilogue.spark.range_reader import read_range
from trilogue.spark.read_options import ReadOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BUILD = Path(__file__).resolve().parent.parent / "build" / "bench-spark"
RESULTS = Path(__file__).parent / "results"
PARTITIONS, VALUE, KEY = 4, 100, 8
ROWS_PER_BATCH = 1000
CHUNK = 100_000
ALL = "key,value,topic,partition,offset,timestamp,timestampType"

Case = Callable[[], None]


async def load(address: str, rows: int) -> None:
    """Fill the topic through our own client, by ready-made batches."""
    cluster = KafkaCluster(address)
    await Admin(cluster).create_topic("bench", PARTITIONS, {"retention.ms": "-1"})
    producer = BatchWriter(cluster)
    values = pa.array([b"%0*d" % (VALUE, one) for one in range(CHUNK)], pa.binary())
    keys = pa.array([b"%0*d" % (KEY, one) for one in range(CHUNK)], pa.binary())
    chunk = pa.RecordBatch.from_pydict({"key": keys, "value": values})
    size = ROWS_PER_BATCH * (VALUE + KEY + 12)
    entries = build_from_arrow(chunk, 0, size, timestamp_ms=time.time_ns() // 1_000_000)

    async def fill(partition: int) -> None:
        for _ in range(rows // PARTITIONS // CHUNK):
            for entry in entries:
                await producer.send("bench", partition, entry)

    await asyncio.gather(*(fill(number) for number in range(PARTITIONS)))
    await cluster.close()


def alone(server: Server, rows: int, columns: str) -> Case:
    """Fetch and decode, and nothing else."""
    options = ReadOptions.parse(
        {"kafka.bootstrap.servers": server.kafka, "subscribe": "bench", "columns": columns}
    )

    def run() -> None:
        seen = 0
        for partition in range(PARTITIONS):
            for batch in read_range(options, Range("bench", partition, 0, rows // PARTITIONS)):
                seen += batch.num_rows
                pc.sum(pc.binary_length(batch.column("value")))
        assert seen == rows, seen

    return run


def batch(spark: SparkSession, server: Server, rows: int, columns: str) -> Case:
    """Count rows and add up lengths, as spark.md's peers were measured."""
    from pyspark.sql import functions as f

    def run() -> None:
        frame = (  # a new one each time: Spark keeps what a frame's first run has shuffled
            spark.read.format("trilogue").option("kafka.bootstrap.servers", server.kafka)
            .option("columns", columns).load("bench")
            .agg(f.count(f.lit(1)).alias("rows"), f.sum(f.length("value")).alias("bytes"))
        )  # fmt: skip
        found = frame.collect()[0]
        assert (found.rows, found.bytes) == (rows, rows * VALUE), found

    return run


def stream(spark: SparkSession, server: Server, rows: int, columns: str) -> Case:
    """Everything that is there as one micro-batch, into nothing."""
    numbers = iter(range(1_000_000))

    def run() -> None:
        checkpoint = BUILD / f"checkpoint-{columns.count(',')}-{next(numbers)}"
        query = (
            spark.readStream.format("trilogue").option("kafka.bootstrap.servers", server.kafka)
            .option("columns", columns).option("subscribe", "bench")
            .option("startingOffsets", "earliest").load()
            .writeStream.format("noop").option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True).start()
        )  # fmt: skip
        query.awaitTermination()
        assert sum(one["numInputRows"] for one in query.recentProgress) == rows

    return run


def measure(
    case: Case, cpu: Callable[[], float], server: Server, rows: int, rounds: int
) -> dict[str, float]:
    """One round to warm up, then the rounds that count."""
    case()
    walls, costs, served = [], [], []
    for _ in range(rounds):
        before, server_before = cpu(), cpu_seconds(server.pid)
        began = time.monotonic()
        case()
        walls.append(time.monotonic() - began)
        costs.append(cpu() - before)
        served.append(cpu_seconds(server.pid) - server_before)
    return {
        "wall_s_min": round(min(walls), 3),
        "wall_s_median": round(statistics.median(walls), 3),
        "wall_s_max": round(max(walls), 3),
        "rows_per_s_best": round(rows / min(walls)),
        "cpu_ns_per_row_min": round(min(costs) / rows * 1e9),
        "cpu_ns_per_row_median": round(statistics.median(costs) / rows * 1e9),
        "server_cpu_ns_per_row_median": round(statistics.median(served) / rows * 1e9),
    }


def run(rows: int, rounds: int) -> dict[str, dict[str, float]]:
    """All cases on one server and one session."""
    from pyspark import SparkContext

    shutil.rmtree(BUILD, ignore_errors=True)
    found = {}
    with start_server(BUILD / "data") as server:
        asyncio.run(load(server.kafka, rows))
        for name, columns in (("value column", "value"), ("7 columns", ALL)):
            case = alone(server, rows, columns)
            found[f"no Spark, {name}"] = measure(case, time.process_time, server, rows, rounds)
            show(f"no Spark, {name}", found[f"no Spark, {name}"])
        spark = session("bench", cache=BUILD, settings={"spark.ui.showConsoleProgress": "false"})
        try:
            spark.sparkContext.setLogLevel("ERROR")
            java = SparkContext._gateway.proc.pid  # noqa: SLF001 - no public way
            for kind, make in (("batch count+sum(length)", batch), ("stream to noop", stream)):
                for name, columns in (("value column", "value"), ("7 columns", ALL)):
                    case = make(spark, server, rows, columns)
                    label = f"{kind}, {name}"
                    found[label] = measure(case, lambda: cpu_seconds(java), server, rows, rounds)
                    show(label, found[label])
        finally:
            stop(spark)
        server.stop()
    return found


def show(name: str, row: dict[str, float]) -> None:
    wall = f"{row['wall_s_min']:.2f}/{row['wall_s_median']:.2f}/{row['wall_s_max']:.2f}"
    print(
        f"{name:40} {wall:>17} s  {row['rows_per_s_best']:>10,} rows/s"
        f"  {row['cpu_ns_per_row_median']:>5} ns/row"
        f"  server {row['server_cpu_ns_per_row_median']:>4} ns/row"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Rows from a topic into Spark")
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-save", action="store_true")
    chosen = parser.parse_args()
    rows = max(1, chosen.rows // (PARTITIONS * CHUNK)) * PARTITIONS * CHUNK
    cases = run(rows, chosen.rounds)
    if chosen.no_save:
        return
    now = dt.datetime.now(dt.UTC)
    about = machine(BUILD)
    result = {
        "date": now.isoformat(timespec="seconds"),
        "machine": about,
        "trilogue": trilogue.__version__,
        "rows": rows,
        "value_bytes": VALUE,
        "key_bytes": KEY,
        "partitions": PARTITIONS,
        "rounds": chosen.rounds,
        "spark_read": cases,
    }
    name = f"{now:%Y-%m-%d}-{about['cpus']}cpu-{about['architecture']}-spark-read.json"
    (RESULTS / name).write_text(json.dumps(result, indent=1) + "\n")
    print(f"saved: benchmarks/results/{name}")


if __name__ == "__main__":
    main()
