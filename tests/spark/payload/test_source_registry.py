"""Messages of confluent-kafka's serializers, read by the schemas of a Confluent registry."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from typing import Any

import pulsar
import pulsar.schema
import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import timestamp_pb2
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

import trilogue.spark
from tests.server import Server
from tests.spark.rooms import close_links, make_topic, produce, reader
from trilogue.spark.errors import MalformedRecord, OptionError, SchemaUnavailable
from trilogue.spark.offsets import Range
from trilogue.spark.payload.confluent_protobuf import read_indexes
from trilogue.spark.payload.resolution import resolve_payloads
from trilogue.spark.range_reader import read_range
from trilogue.spark.read_options import ReadOptions
from trilogue.spark.reader import RangePartition
from trilogue.spark.source import DefaultSource

FIRST = {
    "type": "record", "name": "Flight", "namespace": "air",
    "fields": [{"name": "id", "type": "long"}, {"name": "tail", "type": ["null", "string"]}],
}  # fmt: skip
SECOND = {
    **FIRST,
    "fields": [
        {"name": "tail", "type": ["null", "string"]},
        {"name": "id", "type": "long"},
        {"name": "fare", "type": "double", "default": 9.5},
    ],
}
AIRPORT = {"type": "record", "name": "Airport", "namespace": "air",
           "fields": [{"name": "code", "type": "string"}]}  # fmt: skip
LEG = {"type": "record", "name": "Leg", "namespace": "air", "fields": [
    {"name": "begin", "type": "Airport"},
    {"name": "ends", "type": {"type": "array", "items": "air.Airport"}},
]}  # fmt: skip
ORDER = {
    "type": "object", "title": "Order",
    "properties": {
        "number": {"type": "integer"},
        "note": {"oneOf": [{"type": "null"}, {"type": "string"}]},
        "price": {"type": ["number", "null"]},
        "lines": {"type": "array", "items": {"$ref": "#/definitions/line"}},
    },
    "definitions": {"line": {"type": "object", "properties": {"item": {"type": "string"}}}},
}  # fmt: skip
PROTO = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
message Note { string text = 1; }
message Order {
  int64 number = 1;
  google.protobuf.Timestamp at = 2;
  message Line { string item = 1; }
  repeated Line lines = 3;
}
"""


@pytest.fixture(scope="module")
def registry(server: Server) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": f"{server.http}/schema-registry"}) as client:
        yield client
    close_links(server.kafka)


def context(topic: str) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE)


def given(server: Server, topic: str, kind: str, **more: str) -> dict[str, str]:
    options = {
        "kafka.bootstrap.servers": server.kafka, "subscribe": topic, "payload": kind,
        "schema.registry.url": f"{server.http}/schema-registry", "columns": "value",
    }  # fmt: skip
    return options | {name.replace("__", "."): value for name, value in more.items()}


def read(options: dict[str, str], count: int) -> list[Any]:
    """Return what Spark's worker would give it: values, or the bytes of malformed messages."""
    parsed = ReadOptions.parse(options)
    payload = resolve_payloads(parsed)
    where = Range(parsed.topics[0], 0, 0, count)
    rows = [row for one in read_range(parsed, where, payload) for row in one.to_pylist()]
    return [row["value"] or row.get("_corrupt_record") for row in rows]


def write_flights(server: Server, registry: SchemaRegistryClient, topic: str) -> None:
    """Write messages of two versions by turns, and what is no message of either."""
    first = AvroSerializer(registry, json.dumps(FIRST))
    old = [first({"id": one, "tail": f"N{one}"}, context(topic)) for one in range(2)]
    second = AvroSerializer(registry, json.dumps(SECOND))
    new = [second({"id": one, "tail": None, "fare": one / 2}, context(topic)) for one in (2, 3)]
    values = [old[0], new[0], b"oops", None, old[1], new[1], b"\0\0\1\0\0ab", old[0] + b"x"]
    produce(server, topic, [{"value": value, "partition": 0} for value in values])


FLIGHTS = [
    {"tail": "N0", "id": 0, "fare": 9.5}, {"tail": None, "id": 2, "fare": 1.0}, b"oops", None,
    {"tail": "N1", "id": 1, "fare": 9.5}, {"tail": None, "id": 3, "fare": 1.5}, b"\0\0\1\0\0ab",
]  # fmt: skip


def test_each_message_of_avro_is_read_by_its_own_schema(server, registry):
    topic = make_topic(server, 1)
    write_flights(server, registry, topic)

    found = read(given(server, topic, "avro"), 8)

    assert found[:7] == FLIGHTS
    assert found[7].endswith(b"x")
    older = given(server, topic, "avro", schema__registry__version="1")
    assert read(older, 8)[:2] == [{"id": 0, "tail": "N0"}, {"id": 2, "tail": None}]
    chosen = given(server, topic, "avro", payloadSchema=json.dumps(AIRPORT | {"name": "Flight",
        "fields": [{"name": "tail", "type": ["null", "string"]}]}))  # fmt: skip
    assert read(chosen, 8)[:2] == [{"tail": "N0"}, {"tail": None}]
    with pytest.raises(MalformedRecord, match=f"{topic}-0, offset 2: "):
        read(given(server, topic, "avro", mode="FAILFAST", columns="value,offset"), 8)


def test_a_frame_keeps_the_columns_that_it_was_loaded_with(server, registry):
    """Spark asks for a reader each time a frame is used, however old its columns are by then."""
    topic, other = make_topic(server, 1), make_topic(server, 1)
    registry.register_schema(f"{topic}-value", Schema(json.dumps(FIRST), "AVRO"))
    options = given(server, topic, "avro")
    loaded = DefaultSource(options).schema()
    write_flights(server, registry, topic)  # registers the second version
    assert DefaultSource(options).schema() != loaded

    task = DefaultSource(options).streamReader(loaded)
    rows = [row for one in task.read(RangePartition(Range(topic, 0, 0, 2))) for row in one["value"]]

    assert [row.as_py() for row in rows] == [{"id": 0, "tail": "N0"}, {"id": 2, "tail": None}]
    assert DefaultSource(options).reader(loaded)
    pinned = options | {"schema.registry.version": "2"}
    with pytest.raises(OptionError, match="no other can be given"):
        DefaultSource(pinned).reader(loaded)
    registry.register_schema(f"{other}-value", Schema(json.dumps(AIRPORT), "AVRO"))
    with pytest.raises(OptionError, match="no other can be given"):
        DefaultSource(given(server, other, "avro")).reader(loaded)


class Item(pulsar.schema.Record):
    id = pulsar.schema.Long(required=True)


FARE = {"id": pulsar.schema.Long(required=True),
        "fare": pulsar.schema.Double(required_default=True)}  # fmt: skip
NewItem = type("Item", (pulsar.schema.Record,), FARE)


def test_a_frame_of_a_pulsar_topic_keeps_its_columns(server):
    topic = make_topic(server, 1)
    options = {"kafka.bootstrap.servers": server.kafka, "subscribe": topic, "payload": "json",
               "columns": "value", "admin.url": server.http}  # fmt: skip
    client = pulsar.Client(server.pulsar, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    first = client.create_producer(topic, schema=pulsar.schema.JsonSchema(Item))
    first.send(Item(id=1))
    loaded = DefaultSource(options).schema()
    second = client.create_producer(topic, schema=pulsar.schema.JsonSchema(NewItem))
    second.send(NewItem(id=2, fare=1.5))
    client.close()
    newest = DefaultSource(options).schema()

    for schema, rows in (
        (loaded, [{"id": 1}, {"id": 2}]),
        (newest, [{"id": 1, "fare": None}, {"id": 2, "fare": 1.5}]),
    ):
        task = DefaultSource(options).streamReader(schema)
        batches = task.read(RangePartition(Range(topic, 0, 0, 2)))
        assert [row for one in batches for row in one["value"].to_pylist()] == rows


def test_schemas_that_others_use_are_read_with_them(server, registry):
    topic = make_topic(server, 1)
    registry.register_schema(f"{topic}-airport", Schema(json.dumps(AIRPORT), "AVRO"))
    references = [SchemaReference("air.Airport", f"{topic}-airport", 1)]
    serializer = AvroSerializer(registry, Schema(json.dumps(LEG), "AVRO", references))
    leg = {"begin": {"code": "JFK"}, "ends": [{"code": "LAX"}, {"code": "SFO"}]}
    produce(server, topic, [{"value": serializer(leg, context(topic))}])

    assert read(given(server, topic, "avro"), 1) == [leg]


def test_json_has_the_types_of_its_schema(server, registry):
    topic = make_topic(server, 1)
    serializer = JSONSerializer(json.dumps(ORDER), registry)
    orders = [
        {"number": 1, "note": "n", "price": 2, "lines": [{"item": "a"}]},
        {"number": 2, "note": None, "price": None, "lines": []},
    ]
    values = [serializer(order, context(topic)) for order in orders]
    produce(server, topic, [{"value": value} for value in (*values, b"oops")])

    assert read(given(server, topic, "json"), 3) == [orders[0] | {"price": 2.0}, orders[1], b"oops"]
    given_options = given(server, topic, "json")
    schema = trilogue.spark.find_topic_schema(server.kafka, topic, given_options)
    assert schema["value"].dataType.simpleString() == (
        "struct<number:bigint,note:string,price:double,lines:array<struct<item:string>>>"
    )


@pytest.fixture(scope="module")
def messages(registry: SchemaRegistryClient) -> Callable[[str], Any]:
    """Classes of the messages of PROTO, by their names in it."""
    schema_id = registry.register_schema("proto-source", Schema(PROTO, "PROTOBUF"))
    serialized = registry.get_schema(schema_id, fmt="serialized")
    file = FileDescriptorProto.FromString(base64.b64decode(serialized.schema_str))
    file.name = "shop.proto"
    pool = DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    return lambda name: GetMessageClass(pool.FindMessageTypeByName(f"shop.{name}"))


def test_protobuf_is_read_by_the_type_that_its_indexes_name(server, registry, messages):
    topic = make_topic(server, 1)
    order, note, line = messages("Order"), messages("Note"), messages("Order.Line")
    values = []
    for made in (
        order(number=7, at={"seconds": 1}, lines=[{"item": "a"}]), note(text="t"), line(item="l")
    ):  # fmt: skip
        serializer = ProtobufSerializer(type(made), registry)
        values.append(serializer(made, context(topic)))
    produce(server, topic, [{"value": value} for value in values])

    first, other, nested = read(
        given(server, topic, "protobuf", payloadMessage="shop.Order"), len(values)
    )

    assert (first["number"], first["at"].timestamp(), first["lines"]) == (7, 1.0, [{"item": "a"}])
    assert (other, nested) == (values[1], values[2])
    assert read(given(server, topic, "protobuf"), 3)[1] == {"text": "t"}
    nested_type = given(server, topic, "protobuf", payloadMessage="shop.Order.Line")
    assert read(nested_type, 3)[2] == {"item": "l"}


@pytest.mark.parametrize(
    ("content", "expected"),
    [(b"\0x", ((0,), 1)), (b"\2\2x", ((1,), 2)), (b"\4\2\0", ((1, 0), 3)),
     (b"\2\x80\1", ((64,), 3))],
)  # fmt: skip
def test_places_of_types_are_signed_varints(content, expected):
    assert read_indexes(content, 0) == expected


@pytest.mark.parametrize("content", [b"", b"\2", b"\1", b"\2\1", b"\xff" * 6, b"\xfe\1"])
def test_places_that_are_damaged_are_an_error(content):
    with pytest.raises(ValueError, match=r"cut|index|bytes"):
        read_indexes(content, 0)


def test_a_registry_that_is_away_or_has_no_such_schema_fails_the_read(server, registry):
    topic = make_topic(server, 1)
    with pytest.raises(OptionError, match=f"subject {topic}-value: no version latest"):
        read(given(server, topic, "avro"), 0)
    write_flights(server, registry, topic)
    with pytest.raises(OptionError, match="of type AVRO: option 'payload' is json"):
        read(given(server, topic, "json"), 0)
    wrong = given(server, topic, "avro", schema__registry__url=server.http)
    with pytest.raises(SchemaUnavailable, match="HTTP 404"):
        read(wrong, 0)
    # the columns are known, and messages cannot be read: they are not malformed
    away = given(server, topic, "avro", payloadSchema=json.dumps(FIRST),
                 schema__registry__url="http://user:secret@127.0.0.1:1/")  # fmt: skip
    with pytest.raises(SchemaUnavailable, match=r"127\.0\.0\.1:1 gives no schema") as failed:
        read(away, 8)
    assert "secret" not in str(failed.value)
    assert "secret" not in repr(ReadOptions.parse(away))


def test_spark_gets_the_columns_of_the_newest_version(spark, server, registry):
    topic = make_topic(server, 1)
    write_flights(server, registry, topic)
    options = given(server, topic, "avro", mode="DROPMALFORMED")

    frame = reader(spark, server, **options).load().where("value IS NOT NULL").orderBy("value.id")

    assert frame.schema["value"].dataType.simpleString() == (
        "struct<tail:string,id:bigint,fare:double>"
    )
    assert [(row.value.id, row.value.fare) for row in frame.collect()] == [
        (0, 9.5), (1, 9.5), (2, 1.0), (3, 1.5)
    ]  # fmt: skip
