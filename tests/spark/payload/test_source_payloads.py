"""Typed payloads in a real Spark: as its own from_json, and by the schema of Pulsar's registry."""

from __future__ import annotations

import io
import json
import urllib.request

import fastavro
import pytest
from pyspark.sql import functions as f

import trilogue.spark
from tests.server import Server
from tests.spark.rooms import (
    BEGAN_MS,
    close_links,
    make_topic,
    produce,
    reader,
    run_to_table,
    stream,
)
from trilogue.spark.errors import OptionError

DDL = (
    "id BIGINT, name STRING, at TIMESTAMP, day DATE, fare DECIMAL(9,2), "
    "legs ARRAY<STRUCT<miles: INT>>"
)
ROWS = [
    {"id": number, "name": f"n{number}" if number % 3 else None, "at": "2013-01-01T12:00:00Z",
     "day": "2013-01-02", "fare": number / 4, "legs": [{"miles": number}, {}][: number % 3]}
    for number in range(500)
]  # fmt: skip
FLIGHT = {"type": "record", "name": "Flight", "fields": [
    {"name": "id", "type": "long"}, {"name": "tail", "type": ["null", "string"]}]}  # fmt: skip


@pytest.fixture(scope="module")
def topic(server: Server) -> str:
    """JSON messages, of which one is malformed and one is null."""
    name = make_topic(server, 2)
    texts = [json.dumps(row).encode() for row in ROWS]
    produce(server, name, [{"value": value, "key": b"k"} for value in (*texts, b"{oops", None)])
    return name


def test_json_is_decoded_as_from_json_decodes_it(spark, server, topic):
    typed = reader(spark, server, payload="json", payloadSchema=DDL).load(topic)
    theirs = reader(spark, server).load(topic).select(
        "offset", f.from_json(f.col("value").cast("string"), DDL).alias("value")
    )  # fmt: skip
    good = f"CAST(value.id AS BIGINT) < {len(ROWS)}"

    ours = typed.where(good).select("offset", "value").orderBy("value.id").collect()

    assert len(ours) == len(ROWS)
    assert ours == theirs.where(good).orderBy("value.id").collect()
    bad = typed.where("_corrupt_record IS NOT NULL").collect()
    assert [(row.value, bytes(row._corrupt_record)) for row in bad] == [(None, b"{oops")]
    assert typed.count() == len(ROWS) + 2


def test_malformed_messages_are_left_out_or_fail_the_query(spark, server, topic):
    def typed(mode: str):
        made = reader(spark, server, payload="json", payloadSchema=DDL, mode=mode, columns="value")
        return made.load(topic)

    dropped = typed("DROPMALFORMED")
    assert dropped.columns == ["value"]
    assert dropped.count() == len(ROWS) + 1
    assert dropped.agg(f.sum("value.id")).first()[0] == sum(range(len(ROWS)))
    with pytest.raises(Exception, match=rf"{topic}-\d, offset \d+: the message is no json"):
        typed("FAILFAST").count()


def test_malformed_messages_go_to_a_topic_of_their_own(spark, server):
    source, dead = make_topic(server, 1), make_topic(server, 1)
    produce(
        server,
        source,
        [
            {"value": b'{"id": 1}'},
            {"value": b"oops", "key": b"k", "headers": [("a", b"1")], "timestamp": BEGAN_MS},
            {"value": b'{"id": 2}'},
        ],
    )
    options = {"payload": "json", "payloadSchema": "id BIGINT", "columns": "value"}

    rows = reader(spark, server, deadLetterTopic=dead, **options).load(source)

    assert sorted(row.value.id for row in rows.collect()) == [1, 2]
    (letter,) = reader(spark, server, includeHeaders="true").load(dead).collect()
    assert (bytes(letter.key), bytes(letter.value)) == (b"k", b"oops")
    assert letter.timestamp.timestamp() * 1000 == BEGAN_MS
    prefix = "__connect.errors."
    assert {each.key.removeprefix(prefix): bytes(each.value) for each in letter.headers} == {
        "a": b"1", "topic": source.encode(), "partition": b"0", "offset": b"1",
        "exception.message": b"no json of the schema",
    }  # fmt: skip


def test_the_schema_of_a_topic_is_that_of_its_newest_messages(spark, server):
    topic = make_topic(server, 2)
    texts = (b'{"id": 1, "at": "2013-01-01T12:00:00Z", "n": {"a": [1]}}', b'{"id": 2.5}', b"oops",
             None, b'{"n": {"b": true}, "none": null}')  # fmt: skip
    produce(server, topic, [{"value": text} for text in texts])

    schema = trilogue.spark.find_topic_schema(server.kafka, topic, {"payload": "json"})

    assert {each.name: each.dataType.simpleString() for each in schema["value"].dataType} == {
        "id": "double", "at": "string", "none": "string",
        "n": schema["value"].dataType["n"].dataType.simpleString(),
    }  # fmt: skip
    assert set(schema["value"].dataType["n"].dataType.names) == {"a", "b"}
    typed = reader(spark, server, payload="json", payloadSchema=schema["value"].dataType.json())
    table = typed.load(topic)
    assert table.schema == schema
    assert table.where("value.id IS NOT NULL").count() == 2
    plain = trilogue.spark.find_topic_schema(server.kafka, topic)
    assert plain.names == ["key", "value", "topic", "partition", "offset", "timestamp",
                           "timestampType"]  # fmt: skip
    with pytest.raises(OptionError, match="no JSON object among the newest messages"):
        trilogue.spark.find_topic_schema(server.kafka, make_topic(server, 1), {"payload": "json"})
    close_links(server.kafka)


def test_a_stream_of_avro_has_the_schema_of_the_registry(spark, server, tmp_path):
    topic = make_topic(server, 1)
    body = {"type": "AVRO", "schema": json.dumps(FLIGHT), "properties": {}}
    request = urllib.request.Request(
        f"{server.http}/admin/v2/schemas/public/default/{topic}/schema",
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    urllib.request.urlopen(request, timeout=90).close()
    parsed = fastavro.parse_schema(FLIGHT)
    messages = []
    for number in range(50):
        message = io.BytesIO()
        fastavro.schemaless_writer(message, parsed, {"id": number, "tail": None})
        messages.append({"value": message.getvalue()})
    produce(server, topic, messages)
    options = {"startingOffsets": "earliest", "payload": "avro", "admin.url": server.http}

    frame = stream(spark, server, subscribe=topic, **options)
    assert frame.schema["value"].dataType.simpleString() == "struct<id:bigint,tail:string>"
    run_to_table(frame.select("value.id", "value.tail"), tmp_path)

    rows = spark.read.parquet(str(tmp_path / "table")).orderBy("id").collect()
    assert [(row.id, row.tail) for row in rows] == [(number, None) for number in range(50)]
    other = make_topic(server, 1)
    with pytest.raises(Exception, match=f"topic {other}: has no schema there"):
        stream(spark, server, subscribe=other, **options)


def test_maps_behind_the_header_of_a_registry_are_columns_of_spark(spark, server):
    topic = make_topic(server, 1)
    produce(server, topic, [{"value": b'\0\0\0\0\7{"tags": {"a": 1, "b": null}}'}])
    options = {"payload": "json", "payloadSchema": "tags MAP<STRING, INT>"}

    rows = reader(spark, server, payloadFraming="confluent", **options).load(topic)

    assert rows.selectExpr("value.tags['a']", "value.tags").collect() == [(1, {"a": 1, "b": None})]
