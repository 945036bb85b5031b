"""The sink in a real Spark: what it refuses, in words that help, and where its rows go."""

from __future__ import annotations

import confluent_kafka
import pytest
from pyspark.sql import functions as f

from tests.server import start_server
from tests.spark.rooms import BEGAN_MS, make_topic, numbered, produce, reader, run_available
from trilogue.client.kafka.producer.hashes import murmur2


def write(frame, server, topic: str, **options: object) -> None:
    writer = frame.write.format("trilogue").option("kafka.bootstrap.servers", server.kafka)
    for name, value in options.items():
        writer = writer.option(name, value)
    writer.mode("append").save(topic)


def texts(spark, count: int):
    return spark.range(count).select(f.concat(f.lit("v"), "id").alias("value"), f.col("id"))


def test_a_topic_that_no_client_makes_is_named(spark, tmp_path):
    with (
        start_server(tmp_path / "data", settings={"topics.auto-create": False}) as server,
        pytest.raises(Exception, match="no topic 'missing', and the server makes none"),
    ):
        write(texts(spark, 1).select("value"), server, "missing")


def test_a_topic_is_made_where_the_server_makes_topics(spark, server):
    write(texts(spark, 5).select("value"), server, "made-by-the-sink")

    assert reader(spark, server).load("made-by-the-sink").count() == 5


def test_a_row_larger_than_the_topic_takes_is_refused_in_words(spark, server):
    topic = make_topic(server, 1, max_message_bytes="10000")
    rows = spark.range(1).select(f.repeat(f.lit("x"), 20_000).alias("value"))

    with pytest.raises(Exception, match=rf"{topic}-0 takes no batch of 20\d+ bytes"):
        write(rows, server, topic, compression="none")


def test_rows_fit_where_batches_are_made_small_enough(spark, server):
    topic = make_topic(server, 1, max_message_bytes="10000")
    rows = spark.range(50).select(f.repeat(f.lit("x"), 1000).alias("value"))

    write(rows, server, topic, compression="none", batchBytes=8000)

    assert reader(spark, server).load(topic).count() == 50


def test_partitions_are_chosen_by_column_and_by_key(spark, server):
    topic = make_topic(server, 3)
    rows = spark.range(30).select(
        f.concat(f.lit("k"), "id").alias("key"),
        f.lit("v").alias("value"),
        f.when(f.col("id") < 10, f.lit(2)).alias("partition"),
    )

    write(rows, server, topic)

    found = reader(spark, server).load(topic).collect()
    for row in found:
        by_key = (murmur2(bytes(row.key)) & 0x7FFFFFFF) % 3
        assert row.partition == (2 if int(row.key[1:]) < 10 else by_key)
    assert len(found) == 30


def test_a_partition_that_is_not_there_is_refused(spark, server):
    topic = make_topic(server, 2)
    rows = spark.range(1).select(f.lit("v").alias("value"), f.lit(2).alias("partition"))

    with pytest.raises(Exception, match=r"not in 0\.\.1"):
        write(rows, server, topic)


def test_rows_name_their_topic_each(spark, server):
    left, right = make_topic(server, 1), make_topic(server, 2)
    rows = texts(spark, 10).select(
        "value", f.when(f.col("id") % 2 == 0, f.lit(left)).otherwise(f.lit(right)).alias("topic")
    )

    (
        rows.write.format("trilogue").option("kafka.bootstrap.servers", server.kafka)
        .mode("append").save()
    )  # fmt: skip

    assert reader(spark, server).load(left).count() == 5
    assert reader(spark, server).load(right).count() == 5


def test_a_topic_cannot_be_overwritten(spark, server):
    rows = texts(spark, 1).select("value")
    writer = rows.write.format("trilogue").option("kafka.bootstrap.servers", server.kafka)

    with pytest.raises(Exception, match="cannot be overwritten"):
        writer.mode("overwrite").save(make_topic(server, 1))


def totals_of(spark, server):
    source = make_topic(server, 1)
    produce(server, source, [{**row, "key": b"k%d" % (n % 2)} for n, row in enumerate(numbered(9))])
    return (
        spark.readStream.format("trilogue").option("kafka.bootstrap.servers", server.kafka)
        .option("subscribe", source).option("startingOffsets", "earliest").load()
        .groupBy("key").count().select("key", f.col("count").cast("string").alias("value"))
    )  # fmt: skip


def test_totals_go_to_a_topic_in_complete_mode(spark, server, tmp_path):
    target = make_topic(server, 1)

    run_available(
        totals_of(spark, server).writeStream.format("trilogue").outputMode("complete")
        .option("kafka.bootstrap.servers", server.kafka).option("topic", target)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
    )  # fmt: skip

    found = reader(spark, server).load(target).collect()
    assert {(bytes(row.key), bytes(row.value)) for row in found} == {(b"k0", b"5"), (b"k1", b"4")}


def test_totals_go_to_a_topic_in_update_mode_by_way_of_foreach_batch(spark, server, tmp_path):
    """Spark itself lets no Python sink have update mode: this is the way round."""
    target = make_topic(server, 1)

    run_available(
        totals_of(spark, server).writeStream.outputMode("update")
        .foreachBatch(lambda frame, _: write(frame, server, target))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
    )  # fmt: skip

    found = reader(spark, server).load(target).collect()
    assert {(bytes(row.key), bytes(row.value)) for row in found} == {(b"k0", b"5"), (b"k1", b"4")}


def test_times_of_rows_are_kept_and_others_are_now(spark, server):
    topic = make_topic(server, 1)
    rows = spark.range(2).select(
        f.lit("v").alias("value"),
        f.when(f.col("id") == 0, f.timestamp_millis(f.lit(BEGAN_MS))).alias("timestamp"),
    )

    write(rows.coalesce(1), server, topic)

    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": server.kafka, "group.id": "times", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    found = sorted(message.timestamp()[1] for message in consumer.consume(2, timeout=90))
    consumer.close()
    assert found[0] == BEGAN_MS
    assert found[1] > 1_700_000_000_000
