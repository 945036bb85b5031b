"""Schemas that PyPI's pulsar-client registers, and schemas over HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pulsar
import pytest
from pulsar import schema as s

from tests.gateway.http.admin_client import Admin


class Order(s.Record):
    _avro_namespace = "shop"
    number = s.Integer(required=True)
    note = s.String()


class WiderOrder(s.Record):
    """Order with one more field, which has a default."""

    _avro_namespace = "shop"
    number = s.Integer(required=True)
    note = s.String()
    price = s.Double(required_default=True)


class OtherOrder(s.Record):
    _avro_namespace = "shop"
    number = s.String(required=True)
    note = s.String()


WiderOrder._avro_name = OtherOrder._avro_name = "Order"


@pytest.fixture(scope="module")
def client(admin: Admin) -> Iterator[pulsar.Client]:
    made = pulsar.Client(
        f"pulsar://{admin.server.doors['pulsar']}",
        operation_timeout_seconds=30,
        logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
    )
    yield made
    made.close()


@pytest.fixture
def name(admin: Admin, request: pytest.FixtureRequest) -> str:
    """The test's own namespace."""
    return admin.namespace(request.node.name.replace("[", "-").replace("]", "")[-60:])


def avro(record: type[s.Record]) -> s.AvroSchema:
    return s.AvroSchema(record)


@pytest.mark.parametrize("kind", [s.AvroSchema, s.JsonSchema])
def test_message_written_with_a_schema_is_read_with_it(client, admin: Admin, name: str, kind):
    topic = f"persistent://{name}/t"
    consumer = client.subscribe(topic, "s", schema=kind(Order))
    producer = client.create_producer(topic, schema=kind(Order))

    producer.send(Order(number=5, note="x"))

    assert consumer.receive(60_000).value().number == 5
    found = admin.get(f"schemas/{name}/t/schema")
    assert found["version"] == 0
    assert found["type"] == kind(Order).schema_info().schema_type().name.upper()
    assert {each["name"] for each in json.loads(found["data"])["fields"]} == {"number", "note"}
    producer.close()
    consumer.close()


def test_a_schema_that_fits_becomes_the_next_version(client, admin: Admin, name: str):
    topic = f"persistent://{name}/t"

    for record in (Order, WiderOrder, Order):
        client.create_producer(topic, schema=avro(record)).close()

    found = admin.get(f"schemas/{name}/t/schemas")["getSchemaResponses"]
    assert [each["version"] for each in found] == [0, 1]
    assert admin.get(f"schemas/{name}/t/schema/0") == found[0]
    assert admin.get(f"schemas/{name}/t/schema") == found[1]
    assert admin("GET", f"schemas/{name}/t/schema/2")[0] == 404


def test_messages_contain_the_schema_version_of_their_producer(client, admin: Admin, name: str):
    topic = f"persistent://{name}/t"
    consumer = client.subscribe(topic, "s")
    for record in (Order, WiderOrder):
        producer = client.create_producer(topic, schema=avro(record))
        producer.send(record(number=1))
        producer.close()

    versions = [consumer.receive(60_000)._message.schema_version() for _ in range(2)]

    assert versions == ["\0" * 8, "\0" * 7 + "\1"]
    consumer.close()


def test_a_schema_that_does_not_fit_is_refused(client, admin: Admin, name: str):
    topic = f"persistent://{name}/t"
    client.create_producer(topic, schema=avro(Order)).close()

    for schema in (avro(OtherOrder), s.JsonSchema(Order), s.StringSchema()):
        with pytest.raises(pulsar.IncompatibleSchema):
            client.create_producer(topic, schema=schema)
        with pytest.raises(pulsar.IncompatibleSchema):
            client.subscribe(topic, "s", schema=schema)

    admin("PUT", f"namespaces/{name}/schemaCompatibilityStrategy", "ALWAYS_COMPATIBLE")
    client.create_producer(topic, schema=avro(OtherOrder)).close()
    assert admin.get(f"schemas/{name}/t/schema")["version"] == 1


def test_no_producer_changes_a_schema_where_it_may_not(client, admin: Admin, name: str):
    topic = f"persistent://{name}/t"
    client.create_producer(topic, schema=avro(Order)).close()
    admin("POST", f"namespaces/{name}/isAllowAutoUpdateSchema", False)

    with pytest.raises(pulsar.IncompatibleSchema):
        client.create_producer(topic, schema=avro(WiderOrder))
    client.create_producer(topic, schema=avro(Order)).close()


def test_a_producer_without_schema_is_refused_where_one_is_demanded(client, admin, name: str):
    topic = f"persistent://{name}/t"
    admin("POST", f"namespaces/{name}/schemaValidationEnforced", True)
    client.create_producer(topic).close()
    client.create_producer(topic, schema=avro(Order)).close()

    with pytest.raises(pulsar.IncompatibleSchema):
        client.create_producer(topic)


def test_a_readers_schema_is_looked_at_and_not_kept(client, admin: Admin, name: str):
    topic = f"persistent://{name}/t"
    client.create_producer(topic, schema=avro(Order)).close()

    client.subscribe(topic, "s", schema=avro(WiderOrder)).close()

    assert admin.get(f"schemas/{name}/t/schema")["version"] == 0


def test_the_first_reader_of_an_unused_topic_brings_its_schema(client, admin: Admin, name: str):
    first = client.subscribe(f"persistent://{name}/t", "s", schema=avro(Order))
    assert admin.get(f"schemas/{name}/t/schema")["version"] == 0
    first.close()
    used = f"persistent://{name}/used"
    producer = client.create_producer(used)
    producer.send(b"no schema")

    with pytest.raises(pulsar.IncompatibleSchema):
        client.subscribe(used, "s", schema=avro(Order))
    producer.close()


def test_schemas_come_and_go_over_http(client, admin: Admin, name: str):
    place = f"schemas/{name}/t"
    payload = {"type": "AVRO", "schema": json.dumps(Order.schema()), "properties": {"a": "b"}}
    other = {"type": "AVRO", "schema": json.dumps(OtherOrder.schema()), "properties": {}}

    missing = (404, {"reason": "Schema not found"})
    assert admin("GET", f"{place}/schema") == missing
    assert admin("GET", f"{place}/schema/0") == missing
    assert admin("DELETE", f"{place}/schema") == missing
    assert admin("GET", f"{place}/schemas") == (200, {"getSchemaResponses": []})
    assert admin("POST", f"{place}/version", payload) == (200, {"version": -1})
    fitting = {"compatibility": True, "schemaCompatibilityStrategy": "FULL"}
    assert admin("POST", f"{place}/compatibility", payload) == (202, fitting)
    assert admin("POST", f"{place}/schema", payload) == (200, {"version": {"version": 0}})
    assert admin("POST", f"{place}/schema", payload) == (200, {"version": {"version": 0}})
    found = admin.get(f"{place}/schema")
    assert (found["type"], found["properties"], found["data"]) == (
        "AVRO", {"a": "b"}, payload["schema"])  # fmt: skip
    assert admin("POST", f"{place}/version", payload) == (200, {"version": 0})
    assert admin("POST", f"{place}/version", other) == (200, {"version": -1})
    verdict = {"compatibility": False, "schemaCompatibilityStrategy": "FULL"}
    assert admin("POST", f"{place}/compatibility", other) == (202, verdict)
    assert admin("POST", f"{place}/compatibility", payload)[1]["compatibility"] is True
    assert admin("POST", f"{place}/schema", other)[0] == 409
    assert admin("POST", f"{place}/schema", payload | {"schema": "{"})[0] == 422
    assert admin("POST", f"{place}/schema", {"type": "INT32", "schema": "x"})[0] == 422
    assert admin("POST", f"{place}/schema", {"type": "NONSENSE"})[0] == 422
    assert admin("DELETE", f"{place}/schema") == (200, {"version": 1})
    assert admin("GET", f"{place}/schema")[0] == 404
    assert admin("DELETE", f"{place}/schema")[0] == 404
    assert admin("GET", f"{place}/schema/0")[0] == 404
    assert admin("POST", f"{place}/schema", other) == (200, {"version": {"version": 2}})
    assert admin("DELETE", f"{place}/schema?force=true") == (200, {"version": -1})
    assert admin("DELETE", f"{place}/schema?force=true") == missing
    assert admin("GET", f"{place}/schema/0")[0] == 404
    assert admin("POST", f"{place}/schema", other) == (200, {"version": {"version": 0}})


def test_a_topic_made_again_has_no_schema(client, admin: Admin, name: str):
    topic = f"persistent://{name}/t"
    client.create_producer(topic, schema=avro(Order)).close()
    assert admin("DELETE", f"persistent/{name}/t")[0] == 204

    client.create_producer(topic, schema=avro(OtherOrder)).close()

    assert admin.get(f"schemas/{name}/t/schema")["version"] == 0


def test_all_partitions_have_one_schema(client, admin: Admin, name: str):
    admin("PUT", f"persistent/{name}/t/partitions", 3)
    client.create_producer(f"persistent://{name}/t", schema=avro(Order)).close()

    assert admin.get(f"schemas/{name}/t/schema") == admin.get(
        f"schemas/{name}/t-partition-2/schema"
    )
    assert len(admin.get(f"schemas/{name}/t/schemas")["getSchemaResponses"]) == 1


def test_key_value_schemas_are_two_in_one(admin: Admin, name: str):
    place = f"schemas/{name}/t"
    properties = {
        "key.schema.type": "INT32", "value.schema.type": "AVRO", "kv.encoding.type": "SEPARATED",
        "key.schema.properties": "{}", "value.schema.properties": "{}",
    }  # fmt: skip

    def payload(record: type[s.Record], **more: str) -> object:
        both = '{{"key":"","value":{}}}'.format(json.dumps(record.schema(), separators=(",", ":")))
        return {"type": "KEY_VALUE", "schema": both, "properties": properties | more}

    assert admin("POST", f"{place}/schema", payload(Order))[0] == 200
    found = admin.get(f"{place}/schema")
    assert json.loads(found["data"]) == {"key": "", "value": Order.schema()}
    assert admin("POST", f"{place}/schema", payload(WiderOrder))[1] == {"version": {"version": 1}}
    assert admin("POST", f"{place}/schema", payload(OtherOrder))[0] == 409
    assert (
        admin("POST", f"{place}/schema", payload(Order, **{"key.schema.type": "INT64"}))[0] == 409
    )
