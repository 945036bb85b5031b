"""Keys as typed columns: what change data capture writes, by confluent-kafka's serializers."""

from __future__ import annotations

import json

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from tests.server import Server
from tests.spark.rooms import close_links, make_topic, produce, reader
from trilogue.spark.errors import MalformedRecord, OptionError
from trilogue.spark.payload.resolution import resolve_payloads
from trilogue.spark.read_options import ReadOptions
from trilogue.spark.reader import BatchReader

pytestmark = pytest.mark.full
KEY = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "long"}]}
ROW = {"type": "record", "name": "Row", "fields": [
    {"name": "id", "type": "long"}, {"name": "name", "type": ["null", "string"]}]}  # fmt: skip
TYPED = {"payload": "json", "payloadSchema": "name STRING", "keyPayload": "json",
         "keyPayloadSchema": "id BIGINT"}  # fmt: skip


@pytest.fixture(scope="module")
def topic(server: Server) -> str:
    """JSON: two rows, one that was deleted, a malformed key, a malformed value, and both."""
    name = make_topic(server, 1)
    good, bad = b'{"id": 1}', b"oops"
    pairs = [
        (good, b'{"name": "a"}'),
        (b'{"id": 2}', b'{"name": "b"}'),
        (good, None),
        (bad, b'{"name": "c"}'),
        (b'{"id": 3}', b"no"),
        (bad, b"no"),
        (None, b"{}"),
    ]
    produce(server, name, [{"key": key, "value": value} for key, value in pairs])
    return name


def read(server: Server, topic: str, **more: str) -> list[dict[str, object]]:
    given = {"kafka.bootstrap.servers": server.kafka, "subscribe": topic, **more}
    options = ReadOptions.parse({name.replace("__", "."): one for name, one in given.items()})
    batches = BatchReader(options, resolve_payloads(options))
    try:
        return [
            row
            for one in batches.partitions()
            for batch in batches.read(one)
            for row in batch.to_pylist()
        ]
    finally:
        close_links(server.kafka)


def test_keys_and_values_are_decoded_by_the_schemas_of_their_subjects(server):
    topic = make_topic(server, 1)
    with SchemaRegistryClient({"url": f"{server.http}/schema-registry"}) as registry:
        rows = []
        for number in range(20):
            of_key = SerializationContext(topic, MessageField.KEY)
            of_value = SerializationContext(topic, MessageField.VALUE)
            key = AvroSerializer(registry, json.dumps(KEY))({"id": number}, of_key)
            row = {"id": number, "name": f"n{number}"}
            value = AvroSerializer(registry, json.dumps(ROW))(row, of_value)
            rows.append({"key": key, "value": value if number % 5 else None})
    produce(server, topic, rows)

    found = read(
        server, topic, payload="avro", keyPayload="avro", columns="key,value,offset",
        schema__registry__url=f"{server.http}/schema-registry",
    )  # fmt: skip

    assert [row["key"] for row in found] == [{"id": number} for number in range(20)]
    assert [row["value"] for row in found] == [
        {"id": number, "name": f"n{number}"} if number % 5 else None for number in range(20)
    ]
    assert {row["_corrupt_key"] for row in found} == {row["_corrupt_record"] for row in found}


def test_keys_that_cannot_be_decoded_have_the_mode_of_values(server, topic):
    found = read(server, topic, columns="key,value", **TYPED)

    assert [(row["key"] and row["key"]["id"], row["_corrupt_key"]) for row in found] == [
        (1, None), (2, None), (1, None), (None, b"oops"), (3, None), (None, b"oops"), (None, None)
    ]  # fmt: skip
    assert [row["_corrupt_record"] for row in found] == [None] * 4 + [b"no"] * 2 + [None]
    dropped = read(server, topic, columns="key,value", mode="DROPMALFORMED", **TYPED)
    assert [row["key"] for row in dropped] == [{"id": 1}, {"id": 2}, {"id": 1}, None]
    keys = {name: one for name, one in TYPED.items() if name.startswith("key")}
    with pytest.raises(MalformedRecord, match=rf"{topic}-0, offset 3"):
        read(server, topic, columns="key", mode="FAILFAST", **keys)
    alone = read(server, topic, columns="key,value", **keys)
    assert [row["value"] for row in alone][:2] == [b'{"name": "a"}', b'{"name": "b"}']


def test_spark_gets_keys_with_their_columns(spark, server, topic):
    rows = reader(spark, server, **TYPED).load(topic)

    assert rows.schema.simpleString().startswith(
        "struct<key:struct<id:bigint>,value:struct<name:string>,"
    )
    counted = rows.groupBy("key.id").count().where("id IS NOT NULL").orderBy("id").collect()
    assert [tuple(row) for row in counted] == [(1, 2), (2, 1), (3, 1)]
    assert rows.where("_corrupt_key IS NOT NULL").count() == 2


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"keyPayload": "xml"}, "'keyPayload' takes json, avro or protobuf"),
        ({"keyPayload": "json"}, "keyPayload: give its schema by option 'keyPayloadSchema'"),
        (
            {"keyPayload": "json", "keyPayloadSchema": "a INT", "admin.url": "http://h"},
            "'admin.url' needs option 'payload'",
        ),
        ({"keyPayloadSchema": "a INT"}, "'keyPayloadSchema' needs option 'keyPayload'"),
        ({**TYPED, "deadLetterTopic": "d"}, "not with 'keyPayload'"),
        ({"keyPayload": "protobuf", "keyPayloadMessage": "m"}, "keyPayloadDescriptor and"),
    ],
)
def test_options_of_keys_are_checked(more, message):
    given = {"kafka.bootstrap.servers": "h:1", "subscribe": "t", **more}
    with pytest.raises(OptionError, match=message):
        ReadOptions.parse(given)
