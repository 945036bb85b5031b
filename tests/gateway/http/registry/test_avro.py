"""Avro schemas of PyPI's confluent-kafka, registered with a server in a process of its own."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pulsar
import pytest
from confluent_kafka import DeserializingConsumer, Producer
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.serialization import MessageField, SerializationContext

from tests.gateway.http.admin_client import Admin
from tests.server import start_server

ORDER = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "namespace": "shop",
        "fields": [{"name": "number", "type": "int"}],
    }
)


def widen(text: str, name: str, **field: object) -> str:
    """Return a record with one more field."""
    record = json.loads(text)
    record["fields"].append({"name": name, "type": "string", **field})
    return json.dumps(record)


@pytest.fixture(scope="module")
def registry(admin: Admin) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": f"{admin.server.http}/schema-registry"}) as client:
        yield client


def code_of(problem: pytest.ExceptionInfo[SchemaRegistryError]) -> tuple[int, int]:
    return problem.value.http_status_code, problem.value.error_code


def test_messages_written_with_a_registered_schema_are_read_with_it(admin: Admin, registry):
    topic, written = "orders", {"number": 5}
    serialize = AvroSerializer(registry, ORDER)
    producer = Producer({"bootstrap.servers": admin.server.kafka})
    producer.produce(topic, serialize(written, SerializationContext(topic, MessageField.VALUE)))
    producer.flush(60)
    consumer = DeserializingConsumer(
        {
            "bootstrap.servers": admin.server.kafka,
            "group.id": "readers",
            "auto.offset.reset": "earliest",
            "value.deserializer": AvroDeserializer(registry),
        }
    )
    consumer.subscribe([topic])
    message = consumer.poll(60)
    consumer.close()

    assert message is not None
    assert message.value() == written
    assert registry.get_latest_version("orders-value").version == 1


def test_a_schema_is_seen_by_both_protocols(admin: Admin, registry):
    name = admin.namespace("both")
    topic = f"persistent://{name}/t"
    client = pulsar.Client(admin.server.pulsar)

    class Order(pulsar.schema.Record):
        number = pulsar.schema.Integer(required=True)

    producer = client.create_producer(topic, schema=pulsar.schema.AvroSchema(Order))
    client.close()
    subject = f"{name}/t-value"
    added = registry.get_latest_version(subject)
    wider = widen(added.schema.schema_str, "note", default="")
    registry.register_schema(subject, Schema(wider, "AVRO"))

    assert producer is not None
    assert added.version == 1
    assert registry.get_versions(subject) == [1, 2]
    found = admin.get(f"schemas/{name}/t/schema")
    assert (found["version"], json.loads(found["data"])) == (1, json.loads(wider))


def test_versions_of_a_subject_become_those_of_its_topic(admin: Admin, registry):
    registry.register_schema("later-value", Schema(ORDER, "AVRO"))
    admin.do("PUT", "persistent/public/default/later")

    assert json.loads(admin.get("schemas/public/default/later/schema")["data"]) == json.loads(ORDER)
    assert registry.register_schema("later-value", Schema(widen(ORDER, "n", default=""))) > 0
    assert registry.get_versions("later-value") == [1, 2]
    assert admin.get("schemas/public/default/later/schema")["version"] == 1


def test_the_same_schema_has_one_id(registry):
    first = registry.register_schema("one-value", Schema(ORDER, "AVRO"))
    spaced = json.dumps(json.loads(ORDER), indent=2)

    assert registry.register_schema("com.acme.Order", Schema(spaced, "AVRO")) == first
    assert json.loads(registry.get_schema(first).schema_str) == json.loads(ORDER)


def test_an_incompatible_schema_is_refused(registry):
    registry.register_schema("strict-value", Schema(ORDER, "AVRO"))
    wider = Schema(widen(ORDER, "note"), "AVRO")

    assert not registry.test_compatibility("strict-value", wider)
    with pytest.raises(SchemaRegistryError) as problem:
        registry.register_schema("strict-value", wider)
    assert code_of(problem) == (409, 409)
    registry.set_compatibility("strict-value", "FORWARD")
    assert registry.register_schema("strict-value", wider)


COLOUR = {"type": "enum", "name": "Colour", "symbols": ["RED", "GREEN"]}
CHANGES = {
    "symbol": {**COLOUR, "symbols": ["RED", "GREEN", "BLUE"]},
    "name": {**COLOUR, "name": "Shade"},
}


@pytest.mark.parametrize(
    ("change", "strategy", "accepted"),
    [
        ("symbol", "BACKWARD", True),
        ("symbol", "FORWARD", False),
        ("symbol", "FULL", False),
        ("name", "BACKWARD", False),
        ("name", "NONE", True),
    ],
)
def test_names_and_symbols_matter_as_at_the_real_registry(registry, change, strategy, accepted):
    subject = f"colours-{change}-{strategy}"
    registry.register_schema(subject, Schema(json.dumps(COLOUR), "AVRO"))
    registry.set_compatibility(subject, strategy)
    changed = Schema(json.dumps(CHANGES[change]), "AVRO")

    assert registry.test_compatibility(subject, changed) is accepted
    if accepted:
        registry.register_schema(subject, changed)
    else:
        with pytest.raises(SchemaRegistryError) as problem:
            registry.register_schema(subject, changed)
        assert code_of(problem) == (409, 409)


def test_a_record_of_another_name_is_incompatible(registry):
    registry.register_schema("renamed-value", Schema(ORDER, "AVRO"))
    renamed = Schema(json.dumps({**json.loads(ORDER), "name": "Purchase"}), "AVRO")

    assert not registry.test_compatibility("renamed-value", renamed)


def test_references_are_resolved(admin: Admin, registry):
    registry.register_schema("shop.Order", Schema(ORDER, "AVRO"))
    basket = {"type": "record", "name": "Basket", "fields": [{"name": "o", "type": "shop.Order"}]}
    references = [SchemaReference("shop.Order", "shop.Order", 1)]
    text = json.dumps(basket)
    schema_id = registry.register_schema("baskets-value", Schema(text, "AVRO", references))

    assert registry.get_schema(schema_id).references == references
    with pytest.raises(SchemaRegistryError) as problem:
        registry.delete_version("shop.Order", 1)
    assert code_of(problem) == (422, 42206)
    admin.do("PUT", "persistent/public/default/baskets")
    seen = json.loads(admin.get("schemas/public/default/baskets/schema")["data"])
    assert seen["fields"][0]["type"]["fields"] == json.loads(ORDER)["fields"]


def test_texts_of_one_schema_have_one_id(registry):
    """What a client in Python writes by hand, and what one in Java prints."""
    fields = [{"type": {"type": "string"}, "name": "a"}]
    by_hand = {"namespace": "shop", "name": "User", "fields": fields, "type": "record"}
    printed = (
        '{"type":"record","name":"User","namespace":"shop","fields":[{"name":"a","type":"string"}]}'
    )
    schema_id = registry.register_schema("users-value", Schema(json.dumps(by_hand), "AVRO"))

    assert registry.register_schema("users-value", Schema(printed, "AVRO")) == schema_id
    assert registry.get_versions("users-value") == [1]
    assert registry.get_schema(schema_id).schema_str == printed
    reordered = json.dumps(by_hand, indent=2, sort_keys=True)
    assert registry.lookup_schema("users-value", Schema(reordered, "AVRO")).version == 1


def test_a_schema_with_the_types_of_its_references_in_place_is_the_version_with_references(
    registry,
):
    """Java's serializers look up and register it so."""
    registry.register_schema("shop.Item", Schema(ORDER.replace("Order", "Item"), "AVRO"))
    item = json.loads(ORDER.replace("Order", "Item"))
    references = [SchemaReference("shop.Item", "shop.Item", 1)]

    def make_union(kind: object) -> str:
        return json.dumps([kind, {"type": "record", "name": "Gone", "fields": []}])

    text = make_union("shop.Item")
    schema_id = registry.register_schema("items-value", Schema(text, "AVRO", references))
    whole = Schema(make_union(item), "AVRO")

    found = registry.lookup_schema("items-value", whole)
    assert (found.schema_id, found.version) == (schema_id, 1)
    assert registry.register_schema("items-value", whole) == schema_id
    assert registry.get_versions("items-value") == [1]
    with pytest.raises(SchemaRegistryError) as problem:
        registry.lookup_schema("items-value", Schema(make_union({**item, "name": "I"}), "AVRO"))
    assert code_of(problem) == (404, 40403)


def test_deleted_versions_are_hidden_until_they_are_removed(registry):
    subject = "going-value"
    first = registry.register_schema(subject, Schema(ORDER, "AVRO"))
    registry.register_schema(subject, Schema(widen(ORDER, "note", default=""), "AVRO"))

    assert registry.delete_version(subject, 2) == 2
    assert registry.get_versions(subject) == [1]
    assert registry.delete_subject(subject) == [1]
    with pytest.raises(SchemaRegistryError) as problem:
        registry.get_versions(subject)
    assert code_of(problem) == (404, 40401)
    assert registry.get_versions(subject, deleted=True) == [1, 2]
    assert json.loads(registry.get_schema(first).schema_str) == json.loads(ORDER)
    assert registry.delete_subject(subject, permanent=True) == [1, 2]
    assert subject not in registry.get_subjects(deleted=True)


ERRORS = {
    (404, 40401): lambda registry: registry.get_latest_version("absent"),
    (404, 40403): lambda registry: registry.get_schema(99_999),
    (404, 40402): lambda registry: registry.get_version("known-value", 7),
    (422, 42202): lambda registry: registry.get_version("known-value", "x"),
    (422, 42201): lambda registry: registry.register_schema("known-value", Schema("{", "AVRO")),
    (422, 42203): lambda registry: registry.set_compatibility("known-value", "SOME"),
    (404, 40408): lambda registry: registry.get_compatibility("known-value"),
    (404, 40405): lambda registry: registry.delete_subject("known-value", permanent=True),
}


@pytest.mark.parametrize("codes", ERRORS)
def test_errors_have_the_codes_of_the_real_registry(registry, codes):
    registry.register_schema("known-value", Schema(ORDER, "AVRO"))
    with pytest.raises(SchemaRegistryError) as problem:
        ERRORS[codes](registry)

    assert code_of(problem) == codes


def test_schemas_and_configuration_survive_a_kill(tmp_path):
    with start_server(tmp_path / "data") as server:
        url = f"{server.http}/schema-registry"
        with SchemaRegistryClient({"url": url}) as client:
            before = client.register_schema("kept-value", Schema(ORDER, "AVRO"))
            client.set_compatibility("kept-value", "FULL")
        server.kill9()
    with start_server(tmp_path / "data") as server:
        url = f"{server.http}/schema-registry"
        with SchemaRegistryClient({"url": url}) as client:
            assert json.loads(client.get_schema(before).schema_str) == json.loads(ORDER)
            assert client.get_compatibility("kept-value") == "FULL"
            other = client.register_schema("kept-value", Schema(widen(ORDER, "n", default="")))
            assert other > before
