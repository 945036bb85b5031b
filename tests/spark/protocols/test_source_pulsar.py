"""What Pulsar clients write, as a table by Kafka's protocol and as a stream by Pulsar's."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pulsar
import pytest
from pyspark.sql import functions as f

from tests.server import Server
from tests.spark.rooms import BEGAN_MS, assert_stream_goes_on, make_topic, numbered, produce, reader
from trilogue.spark.offsets import Range
from trilogue.spark.range_reader import read_range
from trilogue.spark.read_options import ReadOptions

COUNT = 300


@pytest.fixture
def client(server: Server) -> Iterator[pulsar.Client]:
    quiet = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    made = pulsar.Client(server.pulsar, logger=quiet)
    yield made
    made.close()


def write(client: pulsar.Client, topic: str, count: int) -> None:
    producer = client.create_producer(
        topic, compression_type=pulsar.CompressionType.ZSTD, batching_max_publish_delay_ms=20
    )
    for index in range(count):
        producer.send_async(
            b"pulsar %d" % index,
            lambda *_: None,
            partition_key=f"k{index % 5}",
            event_timestamp=BEGAN_MS + index,
            properties={"a": "1"},
        )
    producer.flush()
    producer.close()


def test_a_table_holds_what_both_kinds_of_clients_wrote(spark, server, client):
    topic = make_topic(server, 2)
    produce(server, topic, numbered(COUNT))
    write(client, topic, COUNT)

    rows = reader(spark, server, includeHeaders="true").load(topic)
    found = (
        rows.where(f.expr("string(value) LIKE 'pulsar %'"))
        .withColumn("at", f.unix_millis("timestamp"))
        .orderBy("at")
        .collect()
    )

    assert rows.count() == 2 * COUNT
    assert [bytes(row.value) for row in found] == [b"pulsar %d" % one for one in range(COUNT)]
    assert [row.at for row in found] == [BEGAN_MS + one for one in range(COUNT)]
    assert {bytes(row.key) for row in found} == {b"k%d" % one for one in range(5)}
    assert {row.headers[0].key for row in found} == {"a"}
    places = {(row.partition, row.offset) for row in rows.select("partition", "offset").collect()}
    assert len(places) == 2 * COUNT


def test_a_stream_goes_on_with_what_a_pulsar_client_writes(spark, server, client, tmp_path):
    assert_stream_goes_on(spark, server, tmp_path, partial(write, client), server.pulsar)


def test_range_ends_after_unconverted_messages(server, client):
    """Nothing is lost that the source could have had, and it does not wait for it."""
    topic = make_topic(server, 1)
    producer = client.create_producer(topic, chunking_enabled=True, batching_enabled=False)
    for value in (b"first", bytes(6 << 20), b"last", bytes(6 << 20)):
        producer.send(value)
    options = ReadOptions(servers=server.kafka, topics=(topic,), columns=("offset", "value"))

    batches = list(read_range(options, Range(topic, 0, 0, 6)))

    assert [row for batch in batches for row in batch.to_pylist()] == [
        {"offset": 0, "value": b"first"},
        {"offset": 3, "value": b"last"},
    ]
