"""What TubeMQ clients write, as a table by Kafka's protocol and as a stream by TubeMQ's."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest
from pyspark.sql import functions as f

from tests.server import Server
from tests.spark.rooms import assert_stream_goes_on, make_topic, numbered, produce, reader
from trilogue.client.tubemq import Message
from trilogue.client.tubemq.sync import TubeClient

COUNT = 300
MINUTE_MS = 1_356_998_400_000  # 2013-01-01 in UTC


@pytest.fixture
def client(server: Server) -> Iterator[TubeClient]:
    with TubeClient(server.doors["tubemq-master"]) as made:
        yield made


def write(client: TubeClient, topic: str, count: int) -> None:
    messages = []
    for index in range(count):
        message = Message(topic, b"tube %d" % index, {"trilogue.key": f"k{index % 5}", "a": "1"})
        message.put_system_header("kind", f"201301010{index // 60}{index % 60:02d}")
        messages.append(message)
    with client.producer(topic) as producer:
        for sent in producer.submit_many(messages):
            sent.result(90)


def test_a_table_holds_what_both_kinds_of_clients_wrote(spark, server, client):
    topic = make_topic(server, 2)
    produce(server, topic, numbered(COUNT))
    write(client, topic, COUNT)

    rows = reader(spark, server, includeHeaders="true").load(topic)
    found = (
        rows.where(f.expr("string(value) LIKE 'tube %'"))
        .withColumn("at", f.unix_millis("timestamp"))
        .orderBy("at")
        .collect()
    )

    assert rows.count() == 2 * COUNT
    assert [bytes(row.value) for row in found] == [b"tube %d" % one for one in range(COUNT)]
    assert [row.at for row in found] == [MINUTE_MS + one * 60_000 for one in range(COUNT)]
    assert {bytes(row.key) for row in found} == {b"k%d" % one for one in range(5)}
    assert {tuple(each.key for each in row.headers) for row in found} == {("a", "trilogue.type")}
    places = {(row.partition, row.offset) for row in rows.select("partition", "offset").collect()}
    assert len(places) == 2 * COUNT


def test_a_stream_goes_on_with_what_a_tubemq_client_writes(spark, server, client, tmp_path):
    assert_stream_goes_on(
        spark, server, tmp_path, partial(write, client), f"tubemq://{server.tubemq}"
    )
