"""Messages with schemas: the REST proxy beside Confluent's serializers, over one registry."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator

import httpx
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from tests.gateway.http.kafka_rest.test_rest import make_instance, read
from tests.server import Server, start_server

NUMBERS = itertools.count(1)
AVRO = json.dumps({
    "type": "record", "name": "User", "namespace": "org.example",
    "fields": [
        {"name": "name", "type": "string"},
        {"name": "age", "type": ["null", "int"], "default": None},
    ],
})  # fmt: skip
JSON = json.dumps({
    "$schema": "http://json-schema.org/draft-07/schema#", "title": "User", "type": "object",
    "properties": {"name": {"type": "string", "pattern": "^[a-z]+$"}}, "required": ["name"],
})  # fmt: skip
PROTOBUF = (
    'syntax = "proto3"; package org.example; message User { string name = 1; int32 age = 2; }'
)
RECURSIVE = json.dumps({
    "type": "record", "name": "Link", "fields": [{"name": "next", "type": ["null", "Link"]}],
})  # fmt: skip

NESTED = {"next": {"Link": {"next": None}}}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with start_server(tmp_path_factory.mktemp("node") / "data") as made:
        yield made


@pytest.fixture
def rest(server: Server) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"{server.http}/kafka-rest", timeout=60) as made:
        yield made


@pytest.fixture
def registry(server: Server) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": f"{server.http}/schema-registry"}) as made:
        yield made


@pytest.fixture
def topic() -> str:
    return f"schema-{next(NUMBERS)}"


def media(embedded: str) -> str:
    return f"application/vnd.kafka.{embedded}.v2+json"


def produce(rest: httpx.Client, topic: str, embedded: str, **body: object) -> httpx.Response:
    headers = {"content-type": media(embedded)}
    return rest.post(f"/topics/{topic}", headers=headers, json=body)


def consume(server: Server, topic: str, count: int) -> list[bytes]:
    consumer = Consumer(
        {"bootstrap.servers": server.kafka, "group.id": topic, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    found: list[bytes] = []
    while len(found) < count:
        found += [each.value() for each in consumer.consume(count - len(found), 60)]
    consumer.close()
    return found


def make_user_class():
    file = descriptor_pb2.FileDescriptorProto(
        name="user.proto", package="org.example", syntax="proto3"
    )
    message = file.message_type.add(name="User")
    text, number = descriptor_pb2.FieldDescriptorProto.TYPE_STRING, 5
    message.field.add(name="name", number=1, type=text, label=1)
    message.field.add(name="age", number=2, type=number, label=1)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("org.example.User"))


def deserialize(kind: str, registry: SchemaRegistryClient, topic: str, value: bytes) -> object:
    context = SerializationContext(topic, MessageField.VALUE)
    if kind == "avro":
        return AvroDeserializer(registry)(value, context)
    if kind == "jsonschema":
        return JSONDeserializer(None, schema_registry_client=registry)(value, context)
    message = ProtobufDeserializer(make_user_class(), {"use.deprecated.format": False}, registry)(
        value, context
    )
    return {"name": message.name, "age": message.age}


def serialize(kind: str, registry: SchemaRegistryClient, topic: str, name: str) -> bytes:
    context = SerializationContext(topic, MessageField.VALUE)
    if kind == "avro":
        return AvroSerializer(registry, AVRO)({"name": name, "age": 3}, context)
    if kind == "jsonschema":
        return JSONSerializer(JSON, registry)({"name": name}, context)
    user = make_user_class()
    serializer = ProtobufSerializer(user, registry, {"use.deprecated.format": False})
    return serializer(user(name=name, age=3), context)


KINDS = {
    "avro": (AVRO, {"name": "ada", "age": {"int": 36}}, {"name": "ada", "age": 36}),
    "jsonschema": (JSON, {"name": "ada"}, {"name": "ada"}),
    "protobuf": (PROTOBUF, {"name": "ada", "age": 36}, {"name": "ada", "age": 36}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_confluent_deserializers_read_what_the_proxy_produces(server, rest, registry, topic, kind):
    schema, value, expected = KINDS[kind]
    first = produce(rest, topic, kind, value_schema=schema, records=[{"value": value}])
    assert first.status_code == 200, first.text
    schema_id = first.json()["value_schema_id"]
    assert registry.get_latest_version(f"{topic}-value").schema_id == schema_id
    again = produce(rest, topic, kind, value_schema_id=schema_id, records=[{"value": value}] * 2)
    assert again.json()["value_schema_id"] == schema_id

    found = consume(server, topic, 3)

    assert [deserialize(kind, registry, topic, each) for each in found] == [expected] * 3


def test_an_id_is_that_of_a_version_of_the_topic(rest, topic):
    value = KINDS["avro"][1]
    made = produce(rest, f"{topic}-other", "avro", value_schema=AVRO, records=[{"value": value}])
    schema_id = made.json()["value_schema_id"]

    def by_id(name: str) -> httpx.Response:
        named = {"value_schema_id": str(schema_id), "records": [{"value": value}]}
        return produce(rest, name, "avro", **named)

    refused = by_id(topic)
    assert (refused.status_code, refused.json()["error_code"]) == (422, 42207)
    assert by_id(f"{topic}-other").json()["value_schema_id"] == schema_id


def test_a_dialect_that_is_none_means_nothing(rest, topic):
    schema = json.dumps(
        {"$schema": "https://json.schema.org/draft/2020-12/schema", "type": "integer"}
    )
    records = [{"value": 1}]
    stored = produce(rest, topic, "jsonschema", value_schema=schema, records=records)
    assert stored.status_code == 200, stored.text
    refused = produce(rest, topic, "jsonschema", value_schema=schema, records=[{"value": "x"}])
    assert refused.status_code == 400


@pytest.mark.parametrize("kind", KINDS)
def test_the_proxy_shows_what_confluent_serializers_write(server, rest, registry, topic, kind):
    producer = Producer({"bootstrap.servers": server.kafka})
    producer.produce(topic, serialize(kind, registry, topic, "bob"))
    producer.flush(60)
    address = make_instance(rest, topic, format=kind)

    (found,) = read(rest, address, 1)

    expected = {
        "avro": {"name": "bob", "age": {"int": 3}},
        "jsonschema": {"name": "bob"},
        "protobuf": {"name": "bob", "age": 3},
    }
    assert found["value"] == expected[kind]
    assert found["key"] is None
    reply = rest.get(f"{address}/records", headers={"accept": media("binary")})
    assert reply.json()["error_code"] == 40601
    rest.delete(address)


@pytest.mark.parametrize(
    ("kind", "body", "code"),
    [
        ("avro", {"records": [{"value": {"name": "x"}}]}, 42202),
        ("avro", {"value_schema": AVRO, "records": [{"key": 1, "value": None}]}, 42201),
        ("avro", {"value_schema": "{", "records": [{"value": 1}]}, 42205),
        ("avro", {"value_schema": AVRO, "records": [{"value": {"name": 7}}]}, 400),
        ("avro", {"value_schema_id": 999_999, "records": [{"value": 1}]}, 42207),
        ("avro", {"value_schema": '{"type": "array", "items": "null"}',
                  "records": [{"value": []}]}, 42205),
        ("jsonschema", {"value_schema": JSON, "records": [{"value": {"name": "X"}}]}, 400),
        ("protobuf", {"value_schema": PROTOBUF, "records": [{"value": {"title": "x"}}]}, 400),
        ("protobuf", {"value_schema": "message {", "records": [{"value": 1}]}, 42205),
    ],
)  # fmt: skip
def test_a_message_that_does_not_fit_gets_its_code(rest, topic, kind, body, code):
    reply = produce(rest, topic, kind, **body)
    assert (reply.status_code, reply.json()["error_code"]) == (int(str(code)[:3]), code), reply.text


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"no header",
        b"\0\0\0\xff\xff?",
        b"\0ID" + b"\x02" * 300_000,  # a list of so many links, which is one of each other
        b"\0ID\x02",
    ],
)
def test_bytes_that_are_no_value_are_an_error_and_the_node_stays(
    server, rest, registry, topic, payload
):
    made = produce(rest, topic, "avro", value_schema=RECURSIVE, records=[])
    assert made.status_code == 422
    made = produce(rest, topic, "avro", value_schema=RECURSIVE, records=[{"value": NESTED}])
    assert made.status_code == 200, made.text
    schema_id = made.json()["value_schema_id"].to_bytes(4, "big")
    producer = Producer({"bootstrap.servers": server.kafka})
    producer.produce(topic, payload.replace(b"ID", schema_id))
    producer.flush(60)
    address = make_instance(rest, topic, format="avro")

    assert read(rest, address, 1)[0]["value"] == NESTED
    reply = rest.get(f"{address}/records", params={"timeout": 30_000})
    assert reply.status_code == 422
    assert rest.post(f"{address}/positions/end", json={"partitions": [
        {"topic": topic, "partition": 0}]}).status_code == 204  # fmt: skip
    rest.delete(address)


def test_version_3_finds_schemas_by_id_version_text_and_subject(server, rest, registry, topic):
    cluster = rest.get("/v3/clusters").json()["data"][0]["cluster_id"]
    path = f"/v3/clusters/{cluster}/topics/{topic}/records"
    value = {"name": "ada", "age": None}
    by_text = rest.post(path, json={"value": {"type": "AVRO", "schema": AVRO, "data": value}})
    assert by_text.status_code == 200, by_text.text
    report = by_text.json()["value"]
    schema_id = report["schema_id"]
    assert report == {
        "type": "AVRO", "subject": f"{topic}-value", "schema_id": schema_id, "schema_version": 1,
        "size": 5 + 1 + 3 + 1,
    }  # fmt: skip
    for given in (
        {"schema_id": schema_id},
        {"schema_version": 1},
        {"subject": f"{topic}-value"},
        {},
    ):
        reply = rest.post(path, json={"value": {**given, "data": value}})
        assert reply.json()["value"] == report, reply.text
    named = {"type": "AVRO", "schema": AVRO, "subject_name_strategy": "RECORD_NAME", "data": value}
    reply = rest.post(path, json={"value": named})
    assert reply.json()["value"]["subject"] == "org.example.User", reply.text
    named["subject_name_strategy"] = "TOPIC_RECORD_NAME"
    reply = rest.post(path, json={"value": named})
    assert reply.json()["value"]["subject"] == f"{topic}-org.example.User"
    for wrong, status in (
        ({"schema_id": schema_id, "schema_version": 1}, 400),
        ({"type": "AVRO"}, 400),
        ({"schema": AVRO}, 400),
        ({"type": "JSON", "schema_id": schema_id}, 400),
        ({"schema_id": schema_id, "subject": "other"}, 422),
        ({"subject_name_strategy": "RECORD_NAME"}, 400),
        ({"schema_version": 7}, 422),
    ):
        reply = rest.post(path, json={"value": {**wrong, "data": value}})
        assert reply.status_code == status, (wrong, reply.text)

    found = consume(server, topic, 7)
    assert {deserialize("avro", registry, topic, each)["name"] for each in found} == {"ada"}
    assert rest.get(f"/topics/{topic}").json()["name"] == topic
