"""JSON and Protobuf schemas of PyPI's confluent-kafka, and how Pulsar's clients see them."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import timestamp_pb2
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from tests.gateway.http.admin_client import Admin

ORDER = {
    "type": "object",
    "title": "Order",
    "properties": {"number": {"type": "integer"}},
    "required": ["number"],
    "additionalProperties": False,
}
PROTO = """
syntax = "proto3";
package shop;

import "google/protobuf/timestamp.proto";

// An order.
message Order {
  int32 number = 1;
  optional string note = 2;
  repeated Line lines = 3;
  map<string, double> prices = 4;
  google.protobuf.Timestamp at = 5;
  oneof paid { string card = 6; bool cash = 7; }
  message Line { string item = 1; }
  enum State { OPEN = 0; CLOSED = 1; }
  State state = 8;
  reserved 9, 11 to 12;
}
"""


@pytest.fixture(scope="module")
def registry(admin: Admin) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": f"{admin.server.http}/schema-registry"}) as client:
        yield client


def field(topic: str) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE)


def test_json_is_written_and_read_with_a_registered_schema(admin: Admin, registry):
    text = json.dumps(ORDER)
    written = JSONSerializer(text, registry)({"number": 5}, field("orders-json"))

    assert JSONDeserializer(None, schema_registry_client=registry)(written, field("x")) == {
        "number": 5
    }
    admin.do("PUT", "persistent/public/default/orders-json")
    found = admin.get("schemas/public/default/orders-json/schema")
    assert (found["type"], json.loads(found["data"])) == ("JSON", ORDER)


def test_json_schemas_reference_each_other(registry):
    registry.register_schema("order.json", Schema(json.dumps(ORDER), "JSON"))
    basket = {"type": "object", "properties": {"order": {"$ref": "order.json"}}}
    references = [SchemaReference("order.json", "order.json", 1)]
    schema_id = registry.register_schema("b-value", Schema(json.dumps(basket), "JSON", references))

    assert registry.get_schema(schema_id).references == references
    registry.set_compatibility("order.json", "NONE")
    registry.register_schema("order.json", Schema('{"type": "string"}', "JSON"))
    moved = Schema(json.dumps(basket), "JSON", [SchemaReference("order.json", "order.json", 2)])
    assert not registry.test_compatibility("b-value", moved)


@pytest.mark.parametrize("text", ['{"oneOf": [{"type": "null"}]}', "true", '{"type": "string"}'])
def test_any_json_schema_is_kept(admin: Admin, registry, text):
    topic = f"any-{len(text)}"
    schema_id = registry.register_schema(f"{topic}-value", Schema(text, "JSON"))

    assert json.loads(registry.get_schema(schema_id).schema_str) == json.loads(text)
    admin.do("PUT", f"persistent/public/default/{topic}")
    found = admin.get(f"schemas/public/default/{topic}/schema")["data"]
    assert found == registry.get_schema(schema_id).schema_str


def make_message(descriptor: str) -> type:
    """Return the class of the first message of a descriptor that the registry returned."""
    file = FileDescriptorProto.FromString(base64.b64decode(descriptor))
    pool = DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    name = f"{file.package}.{file.message_type[0].name}"
    return GetMessageClass(pool.FindMessageTypeByName(name))


def pass_on(admin: Admin, message: Any, topic: str, **settings: Any) -> Any:
    """Serialize a message with one client of the registry, and return what another one reads."""
    url = {"url": f"{admin.server.http}/schema-registry"}
    with SchemaRegistryClient(url) as writer, SchemaRegistryClient(url) as reader:
        written = ProtobufSerializer(type(message), writer, settings)(message, field(topic))
        read = ProtobufDeserializer(type(message), schema_registry_client=reader)
        return read(written, field(topic))


def test_a_text_is_returned_as_a_descriptor_and_back(admin: Admin, registry):
    schema_id = registry.register_schema("texts-value", Schema(PROTO, "PROTOBUF"))
    descriptor = registry.get_schema(schema_id, fmt="serialized").schema_str
    again = registry.register_schema("descriptors", Schema(descriptor, "PROTOBUF"))
    message = make_message(descriptor)(number=5, note="x", cash=True)
    message.prices["a"] = 1.5

    assert again == schema_id
    assert registry.lookup_schema("texts-value", Schema(PROTO, "PROTOBUF")).version == 1
    latest = {"auto.register.schemas": False, "use.latest.version": True}
    assert pass_on(admin, message, "texts", **latest) == message
    assert pass_on(admin, message, "by-serializers") == message
    text = httpx.get(f"{admin.server.http}/schema-registry/schemas/ids/{schema_id}/schema").text
    assert text.startswith('syntax = "proto3";\npackage shop;\n')
    admin.do("PUT", "persistent/public/default/texts")
    found = admin.get("schemas/public/default/texts/schema")
    assert found["type"] == "PROTOBUF_NATIVE"
    assert json.loads(found["data"])["rootMessageTypeName"] == "shop.Order"


def test_protobuf_imports_are_references(registry):
    line = 'syntax = "proto3"; message Line { int32 a = 1; }'
    registry.register_schema("line.proto", Schema(line, "PROTOBUF"))
    text = 'syntax = "proto3"; import "line.proto"; message Basket { repeated Line lines = 1; }'
    references = [SchemaReference("line.proto", "line.proto", 1)]

    assert registry.register_schema("basket-value", Schema(text, "PROTOBUF", references)) > 0
    with pytest.raises(SchemaRegistryError, match="import"):
        registry.register_schema("other-value", Schema(text, "PROTOBUF"))


WRONG = {
    "AVRO": '{"type": "record"}',
    "JSON": '{"type": "number", "properties": []}',
    "PROTOBUF": "syntax = ;; message {",
}


@pytest.mark.parametrize("language", WRONG)
def test_a_wrong_schema_is_refused(registry, language):
    with pytest.raises(SchemaRegistryError, match="Invalid schema") as problem:
        registry.register_schema("wrong-value", Schema(WRONG[language], language))

    assert (problem.value.http_status_code, problem.value.error_code) == (422, 42201)


@pytest.mark.parametrize(
    ("before", "after", "fits"),
    [
        ("int32 a = 1;", "int32 a = 1; int32 b = 2;", True),
        ("int32 a = 1;", "int64 a = 1;", True),
        ("int32 a = 1;", "string a = 1;", False),
        ("int32 a = 1;", "repeated int32 a = 1;", False),
        ("int32 a = 1; int32 b = 2;", "int32 a = 1;", True),
        ("oneof o { int32 a = 1; int32 b = 2; }", "oneof o { int32 a = 1; }", False),
        ("int32 a = 1; int32 b = 2;", "oneof o { int32 a = 1; int32 b = 2; }", False),
        ("message I { int32 a = 1; }", "int32 a = 1;", False),
    ],
)
def test_changes_of_messages(registry, before, after, fits):
    subject = f"{before} to {after}"
    first, second = (f'syntax = "proto3"; message M {{ {body} }}' for body in (before, after))
    registry.register_schema(subject, Schema(first, "PROTOBUF"))

    assert registry.test_compatibility(subject, Schema(second, "PROTOBUF")) is fits


def test_a_level_holds_for_the_languages(admin: Admin, registry):
    url = f"{admin.server.http}/schema-registry"
    httpx.put(f"{url}/config/levels-value", json={"compatibility": "FULL"}, timeout=60)
    registry.register_schema("levels-value", Schema(json.dumps(ORDER), "JSON"))
    opened = {**ORDER, "additionalProperties": True}
    body = {"schema": json.dumps(opened), "schemaType": "JSON"}
    path = f"{url}/compatibility/subjects/levels-value/versions?verbose=true"
    reply = httpx.post(path, json=body, timeout=60).json()

    assert reply["is_compatible"] is False
    assert len(reply["messages"]) == 1
    httpx.put(f"{url}/config/levels-value", json={"compatibility": "BACKWARD"}, timeout=60)
    assert httpx.post(path, json=body, timeout=60).json() == {"is_compatible": True, "messages": []}
