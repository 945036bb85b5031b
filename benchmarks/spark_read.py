"""What does a row cost on its way between a topic and a Spark query, and what of it is ours?

    python -m benchmarks.spark_read [--rounds 3] [--rows 2000000] [--only CASE] [--no-save]

Two million rows of 100 B and a key of 8 B lie in four partitions, uncompressed, in batches of about
a thousand; as many messages in JSON and in Avro lie in two other topics. First the fetch and the
decoder read all of them alone, in this process. Then Spark does, with two tasks at a time: a batch
query by our source, by spark-sql-kafka 4.2.0 (where `tools/get-jars.sh spark-kafka-4.2.0` has put
it) from the same server, by a source of ready Arrow batches without a broker, and from the segments
of the data directory; the same as a stream into nothing; sums over fields of JSON and of Avro
(theirs with from_json and from_avro); a range written to a topic, and into nothing. Ready Arrow
batches stand for our part in each (`synthetic`): what is left is Spark's own.

`CPU ns/row` is the time of the Java process and its Python workers, also of those that ended
meanwhile (in the first cases of this process); `server ns/row` is what the broker spent. The ratios
at the end are of both together. A query of a stream costs much before its first row: streams are
compared as a whole, and by what a row more costs, of a query over all rows and one over a quarter.
Writing is compared as a whole, and without what it costs to make the rows. Cases that are compared
take turns, after rounds to warm up. Wall time is shown as min, median and max of the rounds; when
those lie far apart the machine was busy, and only the CPU times mean anything.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime as dt
import io
import json
import shutil
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import fastavro
import pyarrow as pa
import pyarrow.compute as pc
import pyspark
from tests.server import Server, start_server

import trilogue
from benchmarks import spark_cases as cases
from benchmarks.measure import CpuGroup, cpu_seconds, machine
from benchmarks.spark_cases import (
    ALL,
    AVRO_SCHEMA,
    AVRO_TOPIC,
    BUILD,
    JSON_TOPIC,
    KEY,
    OURS,
    PARTITIONS,
    THEIRS,
    TOPIC,
    VALUE,
)
from trilogue.client.kafka.admin import Admin
from trilogue.client.kafka.cluster import KafkaCluster
from trilogue.client.kafka.producer.batch_writer import BatchWriter
from trilogue.entry.arrow import build_from_arrow
from trilogue.spark.local_session import session, stop
from trilogue.spark.offsets import Range
from trilogue.spark.range_reader import read_range
from trilogue.spark.read_options import ReadOptions
from trilogue.spark.segments import segment_lookup

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parent.parent
CONNECTOR = ROOT / "build" / "jars" / "spark-kafka-4.2.0"
RESULTS = Path(__file__).parent / "results"
ROWS_PER_BATCH = 1000
CHUNK = 50_000
SETTINGS = {"journal.file-age": "1s"}
"""Rows are in segments soon after they were written, so that these can be measured, too."""
SEALED_LIMIT_S = 300
WARM_UPS = 3
"""Java compiles what it has run often: the first rounds of a case cost more than the later ones."""
GATES = (
    ("batch, value column", "batch, value column, spark-sql-kafka", 0.35),
    ("batch, 7 columns", "batch, 7 columns, spark-sql-kafka", 0.5),
    ("stream, value column", "stream, value column, spark-sql-kafka", 0.35),
    ("stream, 7 columns", "stream, 7 columns, spark-sql-kafka", 0.5),
    ("batch, value column", "batch, value column, synthetic", 1.4),
    ("batch, 7 columns", "batch, 7 columns, synthetic", 1.4),
    ("typed JSON", "typed JSON, spark-sql-kafka", 0.35),
    ("typed Avro", "typed Avro, spark-sql-kafka", 0.35),
    ("batch, value column, segments", "batch, value column", 1.0),
    ("batch, 7 columns, segments", "batch, 7 columns", 1.0),
    ("write", "write, spark-sql-kafka", 0.5),
)
"""A case, the one that it is compared with, and the greatest ratio of their CPU time a row."""
FLOORS = ("batch, value column", "batch, 7 columns", "stream, value column", "stream, 7 columns",
          "typed JSON", "typed Avro", "write")  # fmt: skip
"""Cases of which Spark's own part is told: the same of ready Arrow batches, to spark-sql-kafka."""
QUARTER = ", a quarter"
NOWHERE = "write, into nothing"

Case = Callable[[], None]
Cost = dict[str, float]


async def load(address: str, rows: int) -> None:
    """Fill the topics through our own client, by ready-made batches."""
    cluster = KafkaCluster(address)
    admin = Admin(cluster)
    for topic in (TOPIC, JSON_TOPIC, AVRO_TOPIC, cases.WRITTEN_TOPIC):
        await admin.create_topic(topic, PARTITIONS, {"retention.ms": "-1"})
    producer = BatchWriter(cluster)
    keys = [b"%0*d" % (KEY, one) for one in range(CHUNK)]
    values = [b"%0*d" % (VALUE, one) for one in range(CHUNK)]
    items = [
        {"id": one, "name": f"{one:040}", "price": 0.5, "good": one % 2 == 0}
        for one in range(CHUNK)
    ]
    in_json = [json.dumps(each).encode() for each in items]
    in_avro = [encode_avro(each) for each in items]
    size = ROWS_PER_BATCH * (VALUE + KEY + 12)
    for topic, messages in ((TOPIC, values), (JSON_TOPIC, in_json), (AVRO_TOPIC, in_avro)):
        chunk = pa.RecordBatch.from_pydict(
            {"key": pa.array(keys, pa.binary()), "value": pa.array(messages, pa.binary())}
        )
        entries = build_from_arrow(chunk, 0, size, timestamp_ms=time.time_ns() // 1_000_000)

        async def fill(partition: int, topic: str = topic, entries: list[bytes] = entries) -> None:
            for _ in range(rows // PARTITIONS // CHUNK):
                for entry in entries:
                    await producer.send(topic, partition, entry)

        await asyncio.gather(*(fill(number) for number in range(PARTITIONS)))
    await cluster.close()


def encode_avro(item: dict[str, object]) -> bytes:
    """Return a message in Avro, without a header."""
    file = io.BytesIO()
    fastavro.schemaless_writer(file, fastavro.parse_schema(json.loads(AVRO_SCHEMA)), item)
    return file.getvalue()


def wait_sealed(data: Path, rows: int) -> None:
    """Wait until all rows of the topic are in segments."""
    place = ReadOptions.parse({"subscribe": TOPIC, "path": str(data)}).segments
    assert place is not None
    until = time.monotonic() + SEALED_LIMIT_S
    while True:
        topics = segment_lookup.find_topics(place)
        if TOPIC in topics:
            known = segment_lookup.open_log(place).manifest.partitions
            ids = [one for one in topics[TOPIC].partitions if one in known]
            if sum(known[one].stable_end for one in ids) >= rows:
                return
        if time.monotonic() > until:
            raise RuntimeError(f"not all rows are in segments after {SEALED_LIMIT_S} s")
        time.sleep(0.5)


def alone(server: Server, rows: int, columns: str) -> Case:
    """Fetch and decode, and nothing else."""
    options = ReadOptions.parse(
        {"kafka.bootstrap.servers": server.kafka, "subscribe": TOPIC, "columns": columns}
    )

    def run() -> None:
        seen = 0
        for partition in range(PARTITIONS):
            for batch in read_range(options, Range(TOPIC, partition, 0, rows // PARTITIONS)):
                seen += batch.num_rows
                pc.sum(pc.binary_length(batch.column("value")))
        assert seen == rows, seen

    return run


class Rounds:
    """What each round of one case took."""

    def __init__(self) -> None:
        self.walls: list[float] = []
        self.costs: list[float] = []
        self.served: list[float] = []

    def run(self, case: Case, cpu: Callable[[], float], server: Server) -> None:
        """Run the case once."""
        before, server_before = cpu(), cpu_seconds(server.pid)
        began = time.monotonic()
        case()
        self.walls.append(time.monotonic() - began)
        self.costs.append(cpu() - before)
        self.served.append(cpu_seconds(server.pid) - server_before)


def measure(
    made: dict[str, Case], cpu: Callable[[], float], server: Server, rows: int, rounds: int
) -> dict[str, Cost]:
    """Rounds to warm up, then those that count; cases that are compared take turns."""
    found = {name: Rounds() for name in made}
    for _ in range(WARM_UPS):
        for case in made.values():
            case()
    for _ in range(rounds):
        for name, case in made.items():
            found[name].run(case, cpu, server)
    costs = {name: summarise(one, rows) for name, one in found.items()}
    for name, cost in costs.items():
        show(name, cost)
    return costs


def summarise(rounds: Rounds, rows: int) -> Cost:
    """Return what a row took, from the rounds of one case."""
    walls, costs, served = rounds.walls, rounds.costs, rounds.served
    return {
        "wall_s_min": round(min(walls), 3),
        "wall_s_median": round(statistics.median(walls), 3),
        "wall_s_max": round(max(walls), 3),
        "rows_per_s_best": round(rows / min(walls)),
        "cpu_ns_per_row_min": round(min(costs) / rows * 1e9),
        "cpu_ns_per_row_median": round(statistics.median(costs) / rows * 1e9),
        "server_cpu_ns_per_row_median": round(statistics.median(served) / rows * 1e9),
    }


def spark_cases(spark: SparkSession, server: Server, rows: int) -> Iterator[dict[str, Case]]:
    """Yield the cases in Spark by name, those together that are compared."""
    kinds = {OURS: ""}
    if CONNECTOR.exists():
        kinds[THEIRS] = ", spark-sql-kafka"
    widths = (("value column", "value"), ("7 columns", ALL))
    spark.dataSource.register(cases.Synthetic)
    for name, columns in widths:
        made = {
            f"batch, {name}{suffix}": cases.batch(spark, kind, server.kafka, rows, columns)
            for kind, suffix in kinds.items()
        }
        made[f"batch, {name}, synthetic"] = cases.synthetic(spark, rows, columns)
        made[f"batch, {name}, segments"] = cases.segments(
            spark, server.data, server.kafka, rows, columns
        )
        yield made
    for name, columns in widths:
        yield {
            **{
                f"stream, {name}{suffix}{part}": cases.stream(
                    spark, kind, server.kafka, rows, columns, left_out=left_out
                )
                for kind, suffix in kinds.items()
                for part, left_out in (("", 0), (QUARTER, rows // 4 * 3))
            },
            f"stream, {name}, synthetic": cases.synthetic_stream(spark, rows, columns),
            f"stream, {name}, synthetic{QUARTER}": cases.synthetic_stream(
                spark, rows // 4, columns
            ),
        }
    for form in ("JSON", "Avro"):
        yield {
            **{
                f"typed {form}{suffix}": cases.typed(spark, form, kind, server.kafka, rows)
                for kind, suffix in kinds.items()
                if form == "JSON" or kind == OURS or any(CONNECTOR.glob("spark-avro*"))
            },
            f"typed {form}, synthetic": cases.typed_synthetic(spark, rows),
        }
    yield {
        NOWHERE: cases.write_nowhere(spark, rows),
        **{
            f"write{suffix}": cases.write(spark, kind, server.kafka, rows)
            for kind, suffix in kinds.items()
        },
        "write, synthetic": cases.write_synthetic(spark, rows),
    }


def run(rows: int, rounds: int, only: str) -> dict[str, Cost]:
    """All cases on one server and one session."""
    from pyspark import SparkContext

    shutil.rmtree(BUILD, ignore_errors=True)
    found: dict[str, Cost] = {}
    with start_server(BUILD / "data", settings=SETTINGS) as server:
        asyncio.run(load(server.kafka, rows))
        wait_sealed(server.data, rows)
        made = {
            f"no Spark, {name}": alone(server, rows, columns)
            for name, columns in (("value column", "value"), ("7 columns", ALL))
        }
        found |= measure(made, time.process_time, server, rows, rounds)
        settings = {"spark.ui.showConsoleProgress": "false"}
        if CONNECTOR.exists():
            settings["spark.jars"] = ",".join(map(str, CONNECTOR.glob("*.jar")))
        else:
            print(f"without spark-sql-kafka: tools/get-jars.sh {CONNECTOR.name}")
        spark = session("bench", cache=BUILD, settings=settings)
        java = CpuGroup(SparkContext._gateway.proc.pid)  # noqa: SLF001 - no public way
        if not java.is_exact:
            print("no right to make a control group: CPU of processes that end is missing")
        try:
            spark.sparkContext.setLogLevel("ERROR")
            for made in spark_cases(spark, server, rows):
                if any(name.startswith(only) for name in made):
                    found |= measure(made, java.cpu_seconds, server, rows, rounds)
        finally:
            stop(spark)
            java.remove()
        server.stop()
    return found


def compare(found: dict[str, Cost]) -> dict[str, float]:
    """Return the ratios of CPU time of Java, workers and broker, and print them with their gates.

    Each is the ratio of sums of medians. What Spark itself takes of a case is told at the end.
    """

    def cost(name: str) -> float:
        row = found[name]
        return row["cpu_ns_per_row_median"] + row["server_cpu_ns_per_row_median"]

    def added(name: str) -> float:
        """What a row more costs; a case has its time divided by all rows, also for a quarter."""
        return (cost(name) - cost(name + QUARTER)) / 0.75

    def net(name: str) -> float:
        return cost(name) - cost(NOWHERE)

    judged = []
    for name, other, gate in GATES:
        if not {name, other} <= found.keys():
            continue
        text = f"{name} : {other}"
        judged.append((text, cost(name) / cost(other), gate))
        if {name + QUARTER, other + QUARTER} <= found.keys():
            judged.append((f"{text}, a row more", added(name) / added(other), gate))
        if name == "write" and NOWHERE in found:
            judged.append((f"{text}, without making rows", net(name) / net(other), gate))
    for text, ratio, gate in judged:
        verdict = "passed" if ratio <= gate else "MISSED"
        print(f"{text:70} {ratio:5.2f}  gate {gate:4.2f}  {verdict}")
    floors = {
        f"{name}, synthetic : {other}": cost(f"{name}, synthetic") / cost(other)
        for name in FLOORS
        if {other := f"{name}, spark-sql-kafka", f"{name}, synthetic"} <= found.keys()
    }
    for text, ratio in floors.items():
        print(f"{text:70} {ratio:5.2f}  what Spark itself takes")
    return {text: round(ratio, 3) for text, ratio, _ in judged} | {
        text: round(ratio, 3) for text, ratio in floors.items()
    }


def show(name: str, row: dict[str, float]) -> None:
    wall = f"{row['wall_s_min']:.2f}/{row['wall_s_median']:.2f}/{row['wall_s_max']:.2f}"
    print(
        f"{name:40} {wall:>17} s  {row['rows_per_s_best']:>10,} rows/s"
        f"  {row['cpu_ns_per_row_median']:>5} ns/row"
        f"  server {row['server_cpu_ns_per_row_median']:>4} ns/row",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Rows from a topic into Spark")
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="cases that begin so, and those beside them")
    parser.add_argument("--no-save", action="store_true")
    chosen = parser.parse_args()
    rows = max(1, chosen.rows // (PARTITIONS * CHUNK)) * PARTITIONS * CHUNK
    found = run(rows, chosen.rounds, chosen.only)
    ratios = compare(found)
    if chosen.no_save or chosen.only:
        return
    now = dt.datetime.now(dt.UTC)
    about = machine(BUILD)
    result = {
        "date": now.isoformat(timespec="seconds"),
        "machine": about,
        "trilogue": trilogue.__version__,
        "spark": pyspark.__version__,
        "connector": CONNECTOR.name,
        "rows": rows,
        "value_bytes": VALUE,
        "key_bytes": KEY,
        "partitions": PARTITIONS,
        "rounds": chosen.rounds,
        "spark_read": found,
        "ratios": ratios,
    }
    name = f"{now:%Y-%m-%d}-{about['cpus']}cpu-{about['architecture']}-spark-read.json"
    (RESULTS / name).write_text(json.dumps(result, indent=1) + "\n")
    print(f"saved: benchmarks/results/{name}")


if __name__ == "__main__":
    main()
