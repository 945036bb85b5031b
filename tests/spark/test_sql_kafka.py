"""Spark's own Kafka connector (spark-sql-kafka) and ours, in one Spark: identical rows."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import fastavro
import pulsar
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.avro.functions import from_avro

from tests.server import Server, start_server
from tests.spark.conftest import SQL_KAFKA
from tests.spark.rooms import (
    BEGAN_MS,
    close_links,
    make_topic,
    numbered,
    produce,
    remove_topic,
    run_available,
    run_to_table,
)
from tests.tools import require
from tests.waiting import wait_until
from trilogue.client.tubemq import Message
from trilogue.client.tubemq.sync import TubeClient

pytestmark = [pytest.mark.java, pytest.mark.long, pytest.mark.timeout(600)]
FORMATS = ("kafka", "trilogue")
OFTEN = {
    "journal.file-age": "200ms",
    "compaction.check-every": "100ms",
    "segments.grace": "0",
    "disk.reserve": "0",
}
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
HEADERS = [("a", b"1"), ("a", None), ("", b""), ("\N{SNOWMAN}", bytes(range(256)))]

FLIGHT_DDL = (
    "id BIGINT, tail STRING, delay DOUBLE, late BOOLEAN, legs ARRAY<INT>, "
    "crew STRUCT<name: STRING, hours: INT>"
)
CREW = [{"name": "name", "type": "string"}, {"name": "hours", "type": ["int", "null"]}]
FLIGHT = {
    "type": "record", "name": "Flight", "fields": [
        {"name": "id", "type": "long"},
        {"name": "tail", "type": ["null", "string"]},
        {"name": "delay", "type": "double"},
        {"name": "late", "type": "boolean"},
        {"name": "legs", "type": {"type": "array", "items": "int"}},
        {"name": "crew", "type": {"type": "record", "name": "Crew", "fields": CREW}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "tags", "type": {"type": "map", "values": "float"}},
    ],
}  # fmt: skip


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    require("spark-kafka-4.2.0", found=SQL_KAFKA.exists())
    with start_server(tmp_path_factory.mktemp("server") / "data", settings=OFTEN) as running:
        yield running
        close_links(running.kafka)


def read(spark, server: Server, kind: str, **options: object) -> DataFrame:
    made = spark.read.format(kind).option("kafka.bootstrap.servers", server.kafka)
    for name, value in {"includeHeaders": "true", **options}.items():
        made = made.option(name.replace("__", "."), value)
    return made.load()


def collect(frame: DataFrame) -> list[dict[str, Any]]:
    """Return all rows; those of a partition in the order in which they came."""
    rows = [row.asDict(recursive=True) for row in frame.collect()]
    return sorted(rows, key=lambda row: (row["topic"], row["partition"]))


def read_both(spark, server: Server, **options: object) -> list[dict[str, Any]]:
    """Return the rows that both connectors have."""
    theirs, ours = (read(spark, server, kind, **options) for kind in FORMATS)
    assert ours.dtypes == theirs.dtypes
    found = collect(ours)
    assert found == collect(theirs)
    return found


def write_codecs(server: Server, topic: str) -> int:
    """Write keys, values and headers, null and empty ones too, with every codec."""
    for codec in CODECS:
        rows = [
            {"key": b"k%d" % (one % 7), "value": b"%s %d" % (codec.encode(), one),
             "timestamp": BEGAN_MS + one, "headers": HEADERS[: one % 5]}
            for one in range(60)
        ]  # fmt: skip
        odd = [{"value": None}, {"key": b"", "value": b""}, {"key": b"k", "value": bytes(70_000)}]
        settings = {"compression.type": codec, "batch.num.messages": 25}
        produce(server, topic, [*rows, *odd], **settings)
    return 63 * len(CODECS)


def write_transactions(server: Server, topic: str) -> confluent_kafka.Producer:
    """Write committed and aborted ones between other messages; returns one that stays open."""
    made = confluent_kafka.Producer(
        {"bootstrap.servers": server.kafka, "transactional.id": topic,
         "transaction.timeout.ms": 900_000}
    )  # fmt: skip
    made.init_transactions(30)
    for number in range(8):
        made.begin_transaction()
        for each in range(3):
            made.produce(topic, b"%d-%d" % (number, each), partition=each % 2)
        made.flush(30)
        produce(server, topic, [{"value": b"beside %d" % number, "partition": number % 2}])
        (made.abort_transaction if number % 3 == 1 else made.commit_transaction)(30)
    made.begin_transaction()
    made.produce(topic, b"open", partition=0)
    made.flush(30)
    produce(server, topic, [{"value": b"behind the open one", "partition": 0}])
    return made


def write_compacted(server: Server, topic: str) -> None:
    for each in range(10):
        rows = [{"key": b"k%d" % key, "value": b"%d" % each} for key in range(20)]
        produce(server, topic, rows)
    produce(server, topic, [{"key": b"k3", "value": None}])


def write_foreign(server: Server, topic: str) -> None:
    client = pulsar.Client(server.pulsar, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    producer = client.create_producer(topic, compression_type=pulsar.CompressionType.ZSTD)
    for number in range(30):
        producer.send_async(
            b"p%d" % number, lambda *_: None, partition_key=f"k{number % 3}",
            properties={"a": str(number)}, event_timestamp=BEGAN_MS + number,
        )  # fmt: skip
    producer.flush()
    client.close()
    with TubeClient(server.tubemq) as tube, tube.producer() as sender:
        sender.publish(topic)
        for number in range(5):
            sender.send(Message(topic, b"t%d" % number, {"a": "b"}))


@pytest.fixture(scope="module")
def topics(server: Server) -> Iterator[dict[str, str]]:
    made = {
        "codecs": make_topic(server, 3),
        "transactions": make_topic(server, 2),
        "compacted": make_topic(server, 1, cleanup_policy="compact",
                                min_cleanable_dirty_ratio="0.01", max_compaction_lag_ms="1000"),
        "arrival": make_topic(server, 1, message_timestamp_type="LogAppendTime"),
        "foreign": make_topic(server, 1),
        "empty": make_topic(server, 2),
    }  # fmt: skip
    write_codecs(server, made["codecs"])
    open_producer = write_transactions(server, made["transactions"])
    write_compacted(server, made["compacted"])
    produce(server, made["arrival"], numbered(10))
    write_foreign(server, made["foreign"])
    yield made
    open_producer.abort_transaction(30)


@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
def test_rows_of_every_kind_of_topic_are_identical(spark, server, topics, level):
    wait_until(lambda: count_rows(spark, server, topics["compacted"]) == 20, "compaction")
    options = {"subscribe": ",".join(topics.values()), "kafka.isolation.level": level}

    rows = read_both(spark, server, **options)

    found = {name: [row for row in rows if row["topic"] == made] for name, made in topics.items()}
    assert len(found["codecs"]) == 63 * len(CODECS)
    values = {row["value"] for row in found["transactions"]}
    is_committed = level == "read_committed"
    assert (b"1-0" in values, b"open" in values) == (not is_committed, not is_committed)
    assert b"2-0" in values
    assert len({row["key"] for row in found["compacted"]}) == 20
    assert {row["timestampType"] for row in found["arrival"]} == {1}
    assert len(found["foreign"]) == 35
    assert found["empty"] == []
    if is_committed:
        assert rows == collect(read(spark, server, "trilogue", path=str(server.data), **options))


def count_rows(spark, server: Server, topic: str) -> int:
    return read(spark, server, "trilogue", subscribe=topic, columns="offset").count()


def write_typed(server: Server, topic: str, *, is_avro: bool) -> int:
    """Write messages of `FLIGHT`, some null, cut, too long, or of no text in UTF-8."""
    parsed = fastavro.parse_schema(FLIGHT)
    rows: list[dict[str, Any]] = [{"value": None}]
    for number in range(50):
        flight = {
            "id": number - 25, "tail": f"N\N{SNOWMAN}{number}" if number % 3 else None,
            "delay": number / 4, "late": number % 2 == 0, "legs": [number] * (number % 4),
            "crew": {"name": f"c{number}", "hours": None if number % 5 else number},
        }  # fmt: skip
        if is_avro:
            stream = io.BytesIO()
            fastavro.schemaless_writer(
                stream, parsed, {**flight, "kind": "AB"[number % 2], "tags": {"t": 0.5}}
            )
            value = stream.getvalue()
        else:
            value = json.dumps(flight).encode()
        rows.append({"value": value[:-2] if number % 10 == 7 else value})
    produce(server, topic, rows)
    return len(rows)


@pytest.mark.parametrize("form", ["json", "avro"])
def test_typed_values_are_those_of_spark_s_functions(spark, server, form):
    topic = make_topic(server, 2)
    count = write_typed(server, topic, is_avro=form == "avro")
    schema = json.dumps(FLIGHT) if form == "avro" else FLIGHT_DDL
    value = f.col("value")
    decoded = (
        from_avro(value, schema, {"mode": "PERMISSIVE"})
        if form == "avro"
        else f.from_json(value.cast("string"), schema)
    )

    theirs = read(spark, server, "kafka", subscribe=topic).withColumn("value", decoded)
    ours = read(
        spark, server, "trilogue", subscribe=topic, payload=form, payloadSchema=schema,
        columnNameOfCorruptRecord="bad",
    )  # fmt: skip

    found, expected = collect(ours.drop("bad")), collect(theirs)
    good = [row["offset"] for row in ours.filter("value IS NOT NULL").collect()]
    assert len(found) == count
    assert len(good) == 45
    for mine, other in zip(found, expected, strict=True):
        if mine["value"] is None and form == "json":
            other["value"] = None  # from_json keeps the fields before a cut
        if mine["value"] is None and form == "avro":
            assert not any((other["value"] or {}).values())  # null, or a record of nulls
            other["value"] = None
        assert mine == other


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ({"startingOffsets": {"0": 20, "1": -2, "2": 0},
          "endingOffsets": {"0": -1, "1": 30, "2": -1}}, None),
        ({"startingTimestamp": BEGAN_MS + 30, "endingTimestamp": BEGAN_MS + 50}, None),
        ({"startingOffsetsByTimestamp": {"0": BEGAN_MS + 9, "1": 0, "2": BEGAN_MS + 40}}, None),
        ({"startingTimestamp": 1 << 42, "startingOffsetsByTimestampStrategy": "latest"}, 0),
        ({"minPartitions": 8}, 63 * len(CODECS)),
        ({"maxRecordsPerPartition": 50}, 63 * len(CODECS)),
    ],
)  # fmt: skip
def test_bounds_choose_the_same_rows(spark, server, topics, options, count):
    topic = topics["codecs"]
    given = {
        name: json.dumps({topic: value}) if isinstance(value, dict) else value
        for name, value in options.items()
    }

    rows = read_both(spark, server, subscribe=topic, **given)

    assert count is None or len(rows) == count
    assert len(rows) <= 63 * len(CODECS)


def run_both(
    spark, server: Server, folder: Path, **options: object
) -> dict[str, list[dict[str, Any]]]:
    """Run a query of each connector over what is there; return all rows of their tables."""
    found = {}
    where = {} if any("Timestamp" in name for name in options) else {"startingOffsets": "earliest"}
    for kind in FORMATS:
        made = spark.readStream.format(kind).option("kafka.bootstrap.servers", server.kafka)
        made = made.options(**{"includeHeaders": "true", **where, **options})
        run_to_table(made.load(), folder / kind)
        found[kind] = collect(spark.read.parquet(str(folder / kind / "table")).orderBy("offset"))
    return found


def test_streams_follow_topics_that_come_grow_and_come_again(spark, server, tmp_path):
    """A topic that was made again: theirs passes over what is before its checkpoint's offset."""
    admin = AdminClient({"bootstrap.servers": server.kafka})
    first = make_topic(server, 1, name="followed-1")
    write_codecs(server, first)
    options = {"subscribePattern": "followed-.*", "failOnDataLoss": "false",
               "kafka.isolation.level": "read_committed"}  # fmt: skip

    def run() -> list[dict[str, Any]]:
        found = run_both(spark, server, tmp_path, **options)
        assert found["trilogue"] == found["kafka"]
        return found["trilogue"]

    count = len(run())
    assert count == 63 * len(CODECS)
    admin.create_partitions([NewPartitions(first, 3)])[first].result(90)
    produce(server, first, [{"value": b"new", "partition": number} for number in range(3)])
    make_topic(server, 2, name="followed-2")
    write_transactions(server, "followed-2").abort_transaction(30)
    rows = run()
    assert {(row["topic"], row["partition"]) for row in rows} == {
        (first, 0), (first, 1), (first, 2), ("followed-2", 0), ("followed-2", 1)
    }  # fmt: skip
    remove_topic(server, first)
    produce(server, "followed-2", [{"value": b"while it is away", "partition": 1}])
    assert len(run()) == len(rows) + 1
    make_topic(server, 3, name=first)
    produce(server, first, [{"value": b"again %d" % one, "partition": 0} for one in range(4)])

    found = run_both(spark, server, tmp_path, **options)

    again = [row for row in found["trilogue"] if (row["value"] or b"").startswith(b"again")]
    assert len(again) == 4
    assert [row for row in found["trilogue"] if row not in again] == [
        row for row in found["kafka"] if row not in again
    ]


LATE = 1 << 42
LATEST = {"startingOffsetsByTimestampStrategy": "latest"}


@pytest.mark.parametrize(
    "options",
    [
        {"startingOffsetsByTimestamp": {"0": BEGAN_MS + 9, "1": BEGAN_MS, "2": BEGAN_MS + 40}},
        {"startingOffsetsByTimestamp": {"0": BEGAN_MS, "1": LATE, "2": LATE}, **LATEST},
        {"startingTimestamp": LATE, **LATEST},
        {"maxOffsetsPerTrigger": 100, "minOffsetsPerTrigger": 10, "maxTriggerDelay": "1s"},
        {"minPartitions": 7, "maxRecordsPerPartition": 40},
    ],
    ids="-".join,
)
def test_streams_begin_and_divide_alike(spark, server, topics, tmp_path, options):
    topic = topics["codecs"]
    given = {
        name: json.dumps({topic: value}) if isinstance(value, dict) else value
        for name, value in options.items()
    }

    found = run_both(spark, server, tmp_path, subscribe=topic, **given)

    assert found["trilogue"] == found["kafka"]
    assert (not found["kafka"]) == (options.get("startingTimestamp") == LATE)
    assert len(found["kafka"]) <= 63 * len(CODECS)


@pytest.mark.parametrize("place", [("compacted", 0), ("transactions", 1)], ids=str)
def test_available_now_ends_behind_offsets_without_messages(spark, server, topics, tmp_path, place):
    """Compacted ones, those of markers, and those of aborted messages at the end."""
    topic, number = topics[place[0]], place[1]
    last = confluent_kafka.Producer(
        {"bootstrap.servers": server.kafka, "transactional.id": f"{topic}-last"}
    )
    last.init_transactions(90)
    last.begin_transaction()
    last.produce(topic, b"aborted", key=b"k", partition=number)
    last.flush(90)
    last.abort_transaction(90)
    options = {"kafka.isolation.level": "read_committed", "maxOffsetsPerTrigger": 7}

    found = run_both(spark, server, tmp_path, subscribe=topic, **options)
    assert found["trilogue"] == found["kafka"] != []
    assert all(row["value"] != b"aborted" for row in found["trilogue"])
    again = run_both(spark, server, tmp_path, subscribe=topic, **options)

    assert again == found


def test_available_now_reads_what_is_less_than_the_least_as_well(spark, server, topics, tmp_path):
    """Theirs leaves it: a query with availableNow does not come to the end of what is there."""
    options = {"maxOffsetsPerTrigger": 100, "minOffsetsPerTrigger": 30, "maxTriggerDelay": "1h"}

    found = run_both(spark, server, tmp_path, subscribe=topics["codecs"], **options)

    assert len(found["trilogue"]) == 63 * len(CODECS)
    assert all(row in found["trilogue"] for row in found["kafka"])


@pytest.mark.parametrize("kind", FORMATS)
def test_a_time_after_all_messages_is_refused(spark, server, topics, kind):
    frame = read(spark, server, kind, subscribe=topics["codecs"], startingTimestamp=LATE)

    with pytest.raises(Exception, match=r"(?i)no (offset|record)"):
        frame.collect()


def test_streams_whose_next_messages_were_deleted_go_on_or_fail(spark, server, tmp_path):
    topic = make_topic(server, 2)
    rows = [{**row, "partition": number % 2} for number, row in enumerate(numbered(200))]
    produce(server, topic, rows[:80])
    options = {"subscribe": topic}
    assert all(len(each) == 80 for each in run_both(spark, server, tmp_path, **options).values())
    produce(server, topic, rows[80:])
    admin = AdminClient({"bootstrap.servers": server.kafka})
    until = [TopicPartition(topic, 0, 70), TopicPartition(topic, 1, 20)]
    for deleted in admin.delete_records(until).values():
        deleted.result(90)

    for kind in FORMATS:
        made = spark.readStream.format(kind).option("kafka.bootstrap.servers", server.kafka)
        frame = made.option("includeHeaders", "true").options(**options).load()
        with pytest.raises(Exception, match=r"(?i)failOnDataLoss"):
            run_to_table(frame, tmp_path / kind)
    found = run_both(spark, server, tmp_path, failOnDataLoss="false", **options)

    assert found["trilogue"] == found["kafka"]
    offsets = {(row["partition"], row["offset"]) for row in found["trilogue"]}
    assert len(found["trilogue"]) == len(offsets) == 80 + 30 + 60


def test_foreach_batch_gets_the_same_micro_batches(spark, server, topics, tmp_path):
    found: dict[str, list[tuple[int, list[dict[str, Any]]]]] = {kind: [] for kind in FORMATS}
    for kind in FORMATS:
        made = spark.readStream.format(kind).option("kafka.bootstrap.servers", server.kafka)
        made = made.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 90)
        frame = made.option("subscribe", topics["codecs"]).load()

        def keep(rows: DataFrame, number: int, kind: str = kind) -> None:
            found[kind].append((number, collect(rows.orderBy("offset"))))

        writer = frame.writeStream.foreachBatch(keep)
        run_available(writer.option("checkpointLocation", str(tmp_path / kind)))

    batches = {kind: [number for number, _ in each] for kind, each in found.items()}
    assert batches["trilogue"] == batches["kafka"]
    rows = {kind: collect_all(each) for kind, each in found.items()}
    assert rows["trilogue"] == rows["kafka"]
    assert len(rows["kafka"]) == 63 * len(CODECS)


def collect_all(batches: list[tuple[int, list[dict[str, Any]]]]) -> list[dict[str, Any]]:
    rows = [row for _, each in batches for row in each]
    return sorted(rows, key=lambda row: (row["partition"], row["offset"]))


@pytest.mark.parametrize(
    "trigger",
    [{"availableNow": True}, {"once": True}, {"processingTime": "10 milliseconds"}, {}],
    ids=str,
)
def test_every_trigger_reads_the_same_rows(spark, server, topics, tmp_path, trigger):
    found = {}
    for kind in FORMATS:
        made = spark.readStream.format(kind).option("kafka.bootstrap.servers", server.kafka)
        made = made.option("subscribe", topics["codecs"]).option("startingOffsets", "earliest")
        name = f"rows_{kind}_{tmp_path.name}".replace("-", "_")
        writer = (
            made.option("maxOffsetsPerTrigger", 200).load().writeStream.format("memory")
            .queryName(name).option("checkpointLocation", str(tmp_path / kind))
        )  # fmt: skip
        query = (writer.trigger(**trigger) if trigger else writer).start()
        try:
            if trigger.keys() & {"availableNow", "once"}:
                assert query.awaitTermination(120)
            else:
                query.processAllAvailable()
        finally:
            query.stop()
        found[kind] = collect(spark.table(name).orderBy("offset"))
    assert found["trilogue"] == found["kafka"]
    assert len(found["trilogue"]) == 63 * len(CODECS)


def test_a_continuous_trigger_is_refused_in_words(spark, server, topics, tmp_path):
    rows = spark.readStream.format("trilogue").option("kafka.bootstrap.servers", server.kafka)
    writer = rows.load(topics["codecs"]).writeStream.format("noop")
    writer = writer.option("checkpointLocation", str(tmp_path))
    with pytest.raises(Exception, match=r"(?i)continuous (processing|mode|execution|streaming)"):
        writer.trigger(continuous="1 second").start().awaitTermination()


def test_both_sinks_write_the_same_messages(spark, server):
    header = f.struct(f.lit("h").alias("key"), f.encode(f.lit("x"), "UTF-8").alias("value"))
    rows = spark.range(200).select(
        f.when(f.col("id") % 5 != 0, f.concat(f.lit("k"), f.col("id") % 17)).alias("key"),
        f.when(f.col("id") % 7 != 0, f.concat(f.lit("v"), f.col("id"))).alias("value"),
        f.when(f.col("id") % 3 == 0, f.array(header)).alias("headers"),
        f.when(f.col("id") % 4 == 0, f.lit(2)).alias("partition"),
    )
    found = {}
    for kind in FORMATS:
        topic = make_topic(server, 4)
        writer = rows.write.format(kind).option("kafka.bootstrap.servers", server.kafka)
        writer.option("topic", topic).option("includeHeaders", "true").mode("append").save()
        written = read(spark, server, "kafka", subscribe=topic)
        found[kind] = sorted(
            (row["value"] or b"", row["key"] or b"", str(row["headers"]),
             row["partition"] if row["key"] else None)
            for row in collect(written)
        )  # fmt: skip

    assert found["trilogue"] == found["kafka"]
    assert len(found["trilogue"]) == 200


@pytest.mark.parametrize("kind", FORMATS)
def test_rows_that_were_read_are_written_as_they_are(spark, server, topics, kind):
    """With the columns that only reads have, of which the sink has no use."""
    source, target = topics["codecs"], make_topic(server, 3)
    writer = read(spark, server, kind, subscribe=source).write.format(kind).mode("append")
    writer.option("kafka.bootstrap.servers", server.kafka).option("topic", target).save()

    def find(topic: str) -> list[str]:
        columns = ("key", "value", "partition", "headers")
        rows = read(spark, server, "trilogue", subscribe=topic).select(*columns)
        return sorted(repr(row) for row in rows.collect())

    assert find(target) == find(source)
    assert len(find(target)) == 63 * len(CODECS)
