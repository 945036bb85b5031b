"""The data source in a real Spark on a real server, a foreign Kafka client at the other end."""

from __future__ import annotations

import json

import confluent_kafka
import pytest
from pyspark.sql import functions as f

from tests.server import start_server
from tests.spark.rooms import (
    BEGAN_MS,
    make_topic,
    numbered,
    produce,
    reader,
    run_available,
    stream,
)


def test_every_column_comes_as_the_producer_sent_it(spark, server):
    topic = make_topic(server, 1)
    rows = [
        {"key": b"k", "value": b"v", "timestamp": BEGAN_MS, "headers": [("a", b"1"), ("a", None)]},
        {"key": None, "value": None, "timestamp": BEGAN_MS + 1},
        {"key": b"", "value": b"\xff\0", "timestamp": BEGAN_MS + 2},
    ]
    produce(server, topic, rows, **{"compression.type": "zstd"})

    found = reader(spark, server, includeHeaders="true").load(topic).orderBy("offset").collect()

    first = {"topic": topic, "partition": 0, "timestampType": 0}
    assert found[0].asDict(recursive=True) == {
        **first, "key": b"k", "value": b"v", "offset": 0, "timestamp": found[0].timestamp,
        "headers": [{"key": "a", "value": b"1"}, {"key": "a", "value": None}],
    }  # fmt: skip
    assert [
        (row.key and bytes(row.key) if row.key is not None else None,
         None if row.value is None else bytes(row.value), row.headers)
        for row in found[1:]
    ] == [(None, None, None), (b"", b"\xff\0", None)]  # fmt: skip
    assert [
        row[0] for row in reader(spark, server, columns="timestamp").load(topic)
        .select(f.unix_millis("timestamp").alias("t")).orderBy("t").collect()
    ] == [BEGAN_MS, BEGAN_MS + 1, BEGAN_MS + 2]  # fmt: skip


@pytest.mark.parametrize(
    "codec",
    [
        "none",
        "zstd",
        *(pytest.param(one, marks=pytest.mark.long) for one in ("gzip", "lz4", "snappy")),
    ],
)
def test_every_codec_is_read_and_written(spark, server, codec):
    source, target = make_topic(server, 2), make_topic(server, 2)
    produce(server, source, numbered(200), **{"compression.type": codec})

    (
        reader(spark, server).load(source).select("key", "value").write.format("trilogue")
        .option("kafka.bootstrap.servers", server.kafka).option("compression", codec)
        .mode("append").save(target)
    )  # fmt: skip

    found = reader(spark, server, columns="key,value").load(target).collect()
    assert {(bytes(row.key), bytes(row.value)) for row in found} == {
        (row["key"], row["value"]) for row in numbered(200)
    }
    assert len(found) == 200


def test_starting_and_ending_offsets_bound_a_batch(spark, server):
    topic = make_topic(server, 1)
    produce(server, topic, numbered(100))
    bounds = {
        "startingOffsets": json.dumps({topic: {"0": 17}}),
        "endingOffsets": json.dumps({topic: {"0": 31}}),
    }

    found = reader(spark, server, columns="offset", minPartitions=3, **bounds).load(topic)

    assert found.rdd.getNumPartitions() == 3
    assert list(range(17, 31)) == sorted(row.offset for row in found.collect())


def test_times_bound_a_batch_where_offsets_do_not(spark, server):
    topic = make_topic(server, 2)
    rows = [{**row, "partition": number % 2} for number, row in enumerate(numbered(100))]
    produce(server, topic, rows)
    times = {"startingTimestamp": BEGAN_MS + 31, "endingTimestamp": BEGAN_MS + 50}

    found = reader(spark, server, columns="key", **times).load(topic).collect()
    for_each = {
        "startingOffsetsByTimestamp": json.dumps({topic: {"0": BEGAN_MS + 90, "1": BEGAN_MS}}),
        "endingOffsetsByTimestamp": json.dumps({topic: {"0": BEGAN_MS + 999, "1": BEGAN_MS}}),
    }
    last = reader(spark, server, columns="key", **for_each).load(topic).collect()

    assert {bytes(row.key) for row in found} == {b"k%d" % number for number in range(31, 50)}
    assert {bytes(row.key) for row in last} == {b"k90", b"k92", b"k94", b"k96", b"k98"}


def test_a_time_that_no_record_has_reached_is_an_error_or_the_end(spark, server):
    topic = make_topic(server, 1)
    produce(server, topic, numbered(3))
    later = {"startingTimestamp": BEGAN_MS + 3}

    with pytest.raises(Exception, match=f"no record of {topic}-0 is as late"):
        reader(spark, server, **later).load(topic).count()
    at_the_end = {**later, "startingOffsetsByTimestampStrategy": "latest"}
    assert reader(spark, server, **at_the_end).load(topic).count() == 0


def test_conditions_of_a_query_narrow_what_is_read(spark, server):
    """Spark counts the rows that come out of the scan, before its own filters."""
    topic = make_topic(server, 2)
    produce(server, topic, [{**row, "partition": 0} for row in numbered(100)])
    produce(server, topic, [{**row, "partition": 1} for row in numbered(50, first=100)])
    table = reader(spark, server, pushFilters="true").load(topic)

    def read(condition: str) -> list[str]:
        rows = table.where(condition)
        found = sorted(bytes(row.value).decode() for row in rows.collect())
        plan = rows._jdf.queryExecution().executedPlan()
        while plan.nodeName() != "BatchScan trilogue":
            plan = plan.children().apply(0)
        assert plan.metrics().apply("numOutputRows").value() == len(found)
        return found

    def values(*numbers: int) -> list[str]:
        return sorted(f"v{number}" for number in numbers)

    assert read("partition = 1 AND offset >= 10 AND offset < 12") == values(110, 111)
    late = "timestamp >= '2013-01-01T00:00:00.095Z' AND partition IN (0, 7)"
    assert read(late) == values(*range(95, 100))
    assert read("partition > 5") == []


def test_a_batch_larger_than_a_fetch_is_read(spark, server):
    topic = make_topic(server, 1)
    rows = [{"value": bytes(900_000)}, *numbered(3), {"value": bytes(900_000)}]
    produce(server, topic, rows)

    found = reader(spark, server, columns="value", fetchBytes=1000).load(topic)

    assert found.select(f.sum(f.length("value"))).first()[0] == 1_800_000 + 6


def test_a_schema_of_one_s_own_is_refused(spark, server):
    with pytest.raises(Exception, match="no other can be given"):
        reader(spark, server).schema("value string").load(make_topic(server, 1)).count()


def test_patterns_and_assignments_choose_partitions(spark, server):
    topic = make_topic(server, 3)
    produce(server, topic, [{**row, "partition": 1} for row in numbered(5)])
    by_pattern = reader(spark, server, subscribePattern=f"{topic[:-1]}.").load()
    assigned = reader(spark, server, assign=json.dumps({topic: [0, 2]})).load()

    assert by_pattern.where(f.col("topic") == topic).count() == 5
    assert assigned.count() == 0


def test_stream_continues_from_its_checkpoint(spark, server, tmp_path):
    topic, target = make_topic(server, 2), make_topic(server, 1)

    def run_once():
        query = run_available(
            stream(spark, server, subscribe=topic, startingOffsets="earliest",
                   maxOffsetsPerTrigger=40)
            .select("key", "value").writeStream.format("trilogue")
            .option("kafka.bootstrap.servers", server.kafka).option("topic", target)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
        )  # fmt: skip
        return [one["numInputRows"] for one in query.recentProgress if one["numInputRows"]]

    produce(server, topic, numbered(100))
    first = run_once()
    produce(server, topic, numbered(10, first=100))
    second = run_once()

    found = [bytes(row.value) for row in reader(spark, server).load(target).collect()]
    assert sum(first) == 100
    assert max(first) <= 41
    assert sum(second) == 10
    assert sorted(row["value"] for row in numbered(110)) == sorted(found)


def test_a_stream_that_starts_at_the_latest_sees_only_what_comes(spark, server, tmp_path):
    topic = make_topic(server, 1)
    produce(server, topic, numbered(5))
    query = (
        stream(spark, server, subscribe=topic, columns="value")
        .writeStream.format("memory").queryName("latest")
        .option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    )  # fmt: skip
    try:
        query.processAllAvailable()
        produce(server, topic, numbered(3, first=5))
        query.processAllAvailable()
        assert sorted(bytes(row.value) for row in spark.table("latest").collect()) == [
            b"v5",
            b"v6",
            b"v7",
        ]
    finally:
        query.stop()


def test_records_written_by_spark_are_read_by_another_client(spark, server):
    topic = make_topic(server, 2)
    rows = spark.range(20).select(
        f.concat(f.lit("k"), f.col("id") % 5).alias("key"),
        f.when(f.col("id") == 7, None).otherwise(f.concat(f.lit("v"), "id")).alias("value"),
        f.array(
            f.struct(f.lit("n").alias("key"), f.to_binary("id", f.lit("utf-8")).alias("value"))
        ).alias("headers"),
        f.timestamp_millis(f.lit(BEGAN_MS) + f.col("id")).alias("timestamp"),
        f.lit(topic).alias("topic"),
    )  # fmt: skip

    (
        rows.write.format("trilogue").option("kafka.bootstrap.servers", server.kafka)
        .mode("append").save()
    )  # fmt: skip

    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": server.kafka, "group.id": "s", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    found = {}
    for message in consumer.consume(20, timeout=90):
        number = int(message.headers()[0][1])
        found[number] = (message.key(), message.value(), message.timestamp()[1])
    consumer.close()
    assert found == {
        number: (b"k%d" % (number % 5), None if number == 7 else b"v%d" % number, BEGAN_MS + number)
        for number in range(20)
    }


@pytest.mark.parametrize(
    ("columns", "message"),
    [(["id"], "value"), (["value", "colour"], "colour"), (["value"], "topic")],
)
def test_rows_that_cannot_be_written_are_refused_before_any_is(spark, server, columns, message):
    rows = spark.range(1).select(*[f.lit("x").alias(name) for name in columns])
    writer = rows.write.format("trilogue").option("kafka.bootstrap.servers", server.kafka)

    with pytest.raises(Exception, match=message):
        writer.mode("append").save()


def test_lost_data_is_an_error_unless_it_is_allowed(spark, server):
    topic = make_topic(server, 1)
    produce(server, topic, numbered(5))
    gone = {"endingOffsets": json.dumps({topic: {"0": 9}})}

    with pytest.raises(Exception, match=r"wanted, the log holds|DataLost"):
        reader(spark, server, startingOffsets=json.dumps({topic: {"0": 7}}), **gone).load(
            topic
        ).count()
    allowed = reader(
        spark, server, startingOffsets=json.dumps({topic: {"0": 3}}), failOnDataLoss="false", **gone
    ).load(topic)
    assert allowed.count() == 2


def test_a_table_outlives_the_server_s_restart(spark, tmp_path):
    first = start_server(tmp_path / "data")
    topic = make_topic(first, 1)
    produce(first, topic, numbered(50))
    first.kill9()

    with start_server(tmp_path / "data") as second:
        assert reader(spark, second).load(topic).count() == 50
