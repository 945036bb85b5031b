"""Typed payloads without a Spark: decoders, and what becomes of malformed messages."""

from __future__ import annotations

import datetime as dt
import http.server
import io
import json
import threading
from decimal import Decimal

import fastavro
import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor_pb2 import FieldDescriptorProto
from hypothesis import given
from hypothesis import strategies as st

from trilogue.spark.errors import MalformedRecord, OptionError, SchemaUnavailable
from trilogue.spark.payload.batch_decoder import BatchDecoder
from trilogue.spark.payload.confluent_registry import Reference, SubjectVersion
from trilogue.spark.payload.confluent_schemas import walk_references
from trilogue.spark.payload.ddl import parse_ddl
from trilogue.spark.payload.framing import strip_header
from trilogue.spark.payload.json_decoder import JsonDecoder
from trilogue.spark.payload.payload import Payload, make_payload
from trilogue.spark.payload.payload_options import parse_payloads
from trilogue.spark.payload.pulsar_registry import fetch_schemas
from trilogue.spark.payload.registered_schema import RegisteredSchema

FLIGHT = {
    "type": "record", "name": "Flight", "namespace": "air",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "tail", "type": ["null", "string"], "default": None},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "again", "type": "air.Kind"},
        {"name": "legs", "type": {"type": "array", "items": "int"}},
        {"name": "tags", "type": {"type": "map", "values": "double"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "fare", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9,
                                  "scale": 2}},
        {"name": "uuid", "type": {"type": "string", "logicalType": "uuid"}},
    ],
}  # fmt: skip
NOON = dt.datetime(2013, 1, 1, 12, tzinfo=dt.UTC)


def make(**options: str) -> Payload:
    (parsed,) = parse_payloads({key.replace("__", "."): value for key, value in options.items()})
    assert parsed is not None
    return make_payload(parsed, None)


def decode(payload: Payload, *values: bytes | None) -> list[object]:
    return payload.make_decoder().decode(pa.array(values, pa.binary())).to_pylist()


def test_json_becomes_typed_fields():
    payload = make(
        payload="json",
        payloadSchema="id BIGINT NOT NULL, `a b` STRING COMMENT 'x, y', n STRUCT<d: DATE, "
        "l: ARRAY<DOUBLE>>, t TIMESTAMP, p DECIMAL(9,2), ok BOOLEAN",
    )
    text = {
        "id": 7, "a b": "ü", "other": [1], "n": {"d": "2013-01-01", "l": [1, 2.5], "x": 1},
        "t": "2013-01-01T12:00:00Z", "p": 1.25, "ok": True,
    }  # fmt: skip

    found = decode(payload, json.dumps(text, indent=1).encode(), b"{}", None)

    assert found == [
        {"id": 7, "a b": "ü", "n": {"d": dt.date(2013, 1, 1), "l": [1.0, 2.5]}, "t": NOON,
         "p": Decimal("1.25"), "ok": True},
        dict.fromkeys(("id", "a b", "n", "t", "p", "ok")),
        None,
    ]  # fmt: skip


@pytest.mark.parametrize(
    "bad",
    [
        b"", b" ", b"null", b"[1]", b"7", b"{", b"}", b'{"a":1}{"a":2}', b'{"a":1} {"a":2}',
        b'{"a":"x"}', b'{"a":1.5}', b'{"a":1,}', b'{"b":"\xff"}', b'{"a":99999999999999999999}',
        b'{"b":"x\ny"}', b'{"a":1,"a":2}', b'{"b":"x}', b"\x00{}",
    ],
)  # fmt: skip
def test_a_malformed_message_costs_no_other_row(bad):
    payload = make(payload="json", payloadSchema="a BIGINT, b STRING")
    good = [b'{"a":%d,"b":"}\\n{"}' % number for number in range(5)]

    found = decode(payload, *good[:2], bad, None, *good[2:], bad)

    rows = [{"a": number, "b": "}\n{"} for number in range(5)]
    assert found == [*rows[:2], None, None, *rows[2:], None]


PIECES = st.sampled_from(
    [b'{"a":', b"1", b"2}", b"}", b"{", b'"', b"x", b",", b'"b":', b"\n", b" ", b'{"a":3}', b"["]
)  # fmt: skip


@given(st.lists(st.none() | st.lists(PIECES, max_size=6).map(b"".join), max_size=12))
def test_messages_are_decoded_together_as_each_alone(values):
    """Pieces of messages that would be a whole one with their neighbours are none."""
    decoder = JsonDecoder(parse_ddl("a BIGINT, b STRING"))

    together = decoder.decode(pa.array(values, pa.binary())).to_pylist()

    alone = [decoder.decode(pa.array([each], pa.binary())).to_pylist()[0] for each in values]
    assert together == alone
    for value, row in zip(values, together, strict=True):
        if row is not None:
            assert json.loads(value).get("a") == row["a"]


def avro(row: object, schema: object = FLIGHT) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(json.loads(json.dumps(schema))), row)
    return stream.getvalue()


def test_avro_becomes_typed_fields():
    row = {
        "id": 1, "tail": None, "kind": "A", "again": "B", "legs": [1, 2], "tags": {"x": 0.5},
        "at": NOON, "day": dt.date(2013, 1, 1), "fare": Decimal("12.50"),
        "uuid": "7f0c1c8e-5d1a-4d0f-9d5b-0a8f0a8f0a8f",
    }  # fmt: skip
    payload = make(payload="avro", payloadSchema=json.dumps(FLIGHT))
    message = avro(row)

    found = decode(payload, message, None, message[:-1], message + b"x", b"", b"\xff" * 40)

    assert found == [{**row, "tags": [("x", 0.5)]}, None, None, None, None, None]


def test_an_avro_schema_describes_json_too():
    payload = make(payload="json", payloadSchema=json.dumps(
        {"type": "record", "name": "r", "fields": [
            {"name": "a", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}]},
        ]}
    ))  # fmt: skip

    assert decode(payload, b'{"a":1356998400000}') == [{"a": 1356998400000}]


def test_a_json_schema_describes_json():
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "properties": {
            "kind": {"enum": ["A", "B", None]},
            "tags": {"type": "object", "additionalProperties": {"type": "integer"}},
            "best": {"anyOf": [{"type": "integer"}, {"type": "number"}, {"type": "null"}]},
            "one": {"allOf": [{"$ref": "#/$defs/a~1b"}]},
        },
        "$defs": {"a/b": {"type": ["boolean", "null"]}},
    }
    payload = make(payload="json", payloadSchema=json.dumps(schema))

    assert payload.schema.simpleString() == (
        "struct<kind:string,tags:map<string,bigint>,best:double,one:boolean>"
    )
    (found,) = decode(payload, b'{"kind": "A", "tags": {"x": 1}, "best": 2, "one": true}')
    assert found == {"kind": "A", "tags": [("x", 1)], "best": 2.0, "one": True}


def test_an_avro_value_that_its_column_has_no_room_for_is_malformed():
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 3}
    schema = {"type": "record", "name": "r", "fields": [{"name": "d", "type": decimal}]}
    payload = make(payload="avro", payloadSchema=json.dumps(schema))

    assert decode(payload, b"\x02\x05", b"\x06\x7f\xff\xff") == [{"d": Decimal(5)}, None]


def descriptors() -> descriptor_pb2.FileDescriptorSet:
    """The messages of a .proto file, as protoc writes them."""
    timestamp = descriptor_pb2.FileDescriptorProto()
    from google.protobuf import timestamp_pb2

    timestamp_pb2.DESCRIPTOR.CopyToProto(timestamp)
    file = descriptor_pb2.FileDescriptorProto(
        name="air.proto", package="air", syntax="proto3", dependency=[timestamp.name]
    )
    enum = file.enum_type.add(name="Kind")
    enum.value.add(name="ZERO", number=0)
    enum.value.add(name="ONE", number=1)
    inner = file.message_type.add(name="Leg")
    inner.field.add(name="miles", number=1, type=FieldDescriptorProto.TYPE_UINT64)
    message = file.message_type.add(name="Flight")
    entry = message.nested_type.add(name="TagsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=FieldDescriptorProto.TYPE_STRING)
    entry.field.add(name="value", number=2, type=FieldDescriptorProto.TYPE_INT32)
    repeated, kinds = FieldDescriptorProto.LABEL_REPEATED, FieldDescriptorProto
    message.field.add(name="id", number=1, type=kinds.TYPE_INT64)
    message.field.add(name="name", number=2, type=kinds.TYPE_STRING)
    message.field.add(name="raw", number=3, type=kinds.TYPE_BYTES)
    message.field.add(name="kind", number=4, type=kinds.TYPE_ENUM, type_name=".air.Kind")
    message.field.add(
        name="legs", number=5, type=kinds.TYPE_MESSAGE, type_name=".air.Leg", label=repeated
    )
    message.field.add(
        name="tags", number=6, type=kinds.TYPE_MESSAGE, type_name=".air.Flight.TagsEntry",
        label=repeated,
    )  # fmt: skip
    message.field.add(
        name="at", number=7, type=kinds.TYPE_MESSAGE, type_name=".google.protobuf.Timestamp"
    )
    loop = file.message_type.add(name="Loop")
    loop.field.add(name="next", number=1, type=kinds.TYPE_MESSAGE, type_name=".air.Loop")
    return descriptor_pb2.FileDescriptorSet(file=[timestamp, file])


def test_protobuf_becomes_typed_fields(tmp_path):
    (tmp_path / "air.desc").write_bytes(descriptors().SerializeToString())
    source = {"payload": "protobuf", "payloadDescriptor": str(tmp_path / "air.desc")}
    payload = make(**source, payloadMessage="air.Flight")
    pool = descriptor_pool.DescriptorPool()
    for file in descriptors().file:
        pool.Add(file)
    message = message_factory.GetMessageClass(pool.FindMessageTypeByName("air.Flight"))()
    message.id, message.name, message.raw, message.kind = 5, "n", b"\xff", 1
    message.legs.add(miles=2**64 - 1)
    message.tags["x"] = 3
    message.at.FromDatetime(NOON)

    found = decode(payload, message.SerializeToString(), b"", b"\xff\xff", None)

    nothing = {"id": 0, "name": "", "raw": b"", "kind": "ZERO", "legs": [], "tags": [], "at": None}
    assert found == [
        {"id": 5, "name": "n", "raw": b"\xff", "kind": "ONE", "tags": [("x", 3)], "at": NOON,
         "legs": [{"miles": Decimal(2**64 - 1)}]},
        nothing, None, None,
    ]  # fmt: skip
    with pytest.raises(OptionError, match="or itself"):
        make(**source, payloadMessage="air.Loop")
    with pytest.raises(OptionError, match="no message 'Flight'"):
        make(**source, payloadMessage="Flight")


def batch() -> pa.RecordBatch:
    values = pa.array([b'{"a":1}', b"oops", None], pa.binary())
    return pa.RecordBatch.from_pydict({"value": values, "offset": pa.array([5, 6, 9])})


def test_permissive_keeps_the_bytes_of_a_malformed_message():
    payload = make(payload="json", payloadSchema="a INT")
    decoder = BatchDecoder(payload, ("value", "offset"), "t-0")

    (found,) = decoder.decode_all([batch()])

    assert found.to_pylist() == [
        {"value": {"a": 1}, "offset": 5, "_corrupt_record": None},
        {"value": None, "offset": 6, "_corrupt_record": b"oops"},
        {"value": None, "offset": 9, "_corrupt_record": None},
    ]


def test_maps_of_json_are_read_with_all_other_types():
    payload = make(
        payload="json",
        payloadSchema="a MAP<STRING,INT>, d DATE, t TIMESTAMP, p DECIMAL(9,2), f DOUBLE, "
        "n STRUCT<m: MAP<STRING,ARRAY<BIGINT>>>, s STRING, ok BOOLEAN",
    )
    good = (
        b'{"a":{"x":1,"y":null},"d":"2013-01-01","t":"2013-01-01T12:00:00Z","p":1.25,"f":2,'
        b'"n":{"m":{"k":[1]}},"s":"u","ok":true,"other":{}}'
    )
    bad = [
        b'{"a":{"x":"1"}}', b'{"a":{"x":1},"a":{}}', b"[]", b'{"f":NaN}', b'{"a":[1]}', b"\xff",
        b'{"a":{"x":99999999999}}', b'{"s":7}', b'{"ok":1}', b'{"d":"soon"}', b'{"a":{}}x',
        b'{"n":7}', b'{"n":{"m":{"k":1}}}', b'{"a":{"x":1.5}}', b'{"p":"x"}', b"[" * 100_000,
    ]  # fmt: skip

    found = decode(payload, good, *bad, None, b"{}")

    assert found == [
        {"a": [("x", 1), ("y", None)], "d": dt.date(2013, 1, 1), "t": NOON, "p": Decimal("1.25"),
         "f": 2.0, "n": {"m": [("k", [1])]}, "s": "u", "ok": True},
        *[None] * len(bad), None,
        dict.fromkeys(("a", "d", "t", "p", "f", "n", "s", "ok")),
    ]  # fmt: skip


def test_messages_with_the_header_of_a_confluent_registry_are_read():
    options = {"payload": "json", "payloadSchema": "a INT", "payloadFraming": "confluent"}
    values = [b'\0\0\0\0\7{"a":1}', b'{"a":2}', None, b"\0\0", b'\1\0\0\0\7{"a":1}']
    batch = pa.RecordBatch.from_pydict({"value": pa.array(values, pa.binary())})

    (found,) = BatchDecoder(make(**options), ("value",), "t-0").decode_all([batch])

    assert found.to_pylist() == [
        {"value": {"a": 1}, "_corrupt_record": None},
        {"value": None, "_corrupt_record": values[1]},
        {"value": None, "_corrupt_record": None},
        {"value": None, "_corrupt_record": values[3]},
        {"value": None, "_corrupt_record": values[4]},
    ]


def test_the_header_of_a_protobuf_message_has_the_place_of_its_type():
    values = pa.array([b"\0\0\0\0\7\0ab", b"\0\0\0\0\7\2ab", b"\0\0\0\0\7"], pa.binary())

    assert strip_header(values, is_protobuf=True).to_pylist() == [b"ab", None, None]
    both = strip_header(values[:2], is_protobuf=True)  # an even number of values
    assert both.to_pylist() == [b"ab", None]


def test_dropmalformed_leaves_it_out_and_keeps_nulls():
    payload = make(payload="json", payloadSchema="a INT", mode="dropMalformed")

    (found,) = BatchDecoder(payload, ("value", "offset"), "t-0").decode_all([batch()])

    assert found.to_pylist() == [{"value": {"a": 1}, "offset": 5}, {"value": None, "offset": 9}]


def test_failfast_names_the_message():
    payload = make(payload="json", payloadSchema="a INT", mode="FAILFAST")
    decoder = BatchDecoder(payload, ("value",), "t-0")
    assert decoder.columns == ("value", "offset")

    with pytest.raises(MalformedRecord, match="t-0, offset 6: the message is no json"):
        list(decoder.decode_all([batch()]))
    (found,) = decoder.decode_all([batch().slice(0, 1)])
    assert found.schema.names == ["value"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"payload": "xml"}, "json, avro or protobuf"),
        ({"payload": "json"}, "'payloadSchema', or 'schema.registry.url'"),
        ({"payload": "json", "payloadSchema": "a"}, "no type ''"),
        ({"payload": "json", "payloadSchema": "a INT,"}, "the name of a field"),
        ({"payload": "json", "payloadSchema": "a INT, A INT"}, "twice"),
        ({"payload": "json", "payloadSchema": "a ARRAY<INT"}, "'>' expected"),
        ({"payload": "json", "payloadSchema": "a " + "ARRAY<" * 40 + "INT" + ">" * 40}, "levels"),
        ({"payload": "json", "payloadSchema": "a DECIMAL(99)"}, "DECIMAL"),
        ({"payload": "json", "payloadSchema": "a MAP<INT,INT>"}, "keys of a map in JSON"),
        ({"payload": "json", "payloadSchema": "a MAP<STRING,BINARY>"}, "reads no binary"),
        ({"payload": "json", "payloadSchema": "a INT", "payloadFraming": "x"}, "none or confluent"),
        ({"payload": "json", "payloadSchema": '{"type":"struct"}'}, "no schema of Spark"),
        ({"payload": "json", "payloadSchema": "a INT", "mode": "LAX"}, "PERMISSIVE"),
        ({"payload": "avro", "payloadSchema": "a INT"}, "takes the Avro schema"),
        ({"payload": "avro", "payloadSchema": '{"type":"map","values":"int"}'}, "be a record"),
        ({"payload": "avro", "payloadSchema": '{"type":"record","name":"r","fields":[{"name":"a",'
          '"type":["int","string"]}]}'}, "a has a union"),
        ({"payload": "avro", "payloadSchema": '{"type":"record","name":"r","fields":[{"name":"a",'
          '"type":"r"}]}'}, "contains itself"),
        ({"payload": "protobuf", "payloadMessage": "m"}, "given together"),
        ({"payload": "protobuf", "payloadDescriptor": "/no", "payloadMessage": "m"},
         "No such file"),
        ({"payload": "protobuf", "payloadSchema": "a INT"}, "no schema"),
        ({"mode": "FAILFAST"}, "needs option 'payload'"),
        ({"payload": "avro", "schema.registry.url": "h:1"}, "takes http://host:port"),
        ({"payload": "avro", "schema.registry.subject": "s"}, "needs option 'schema.registry.url'"),
        ({"payload": "avro", "schema.registry.url": "http://h", "admin.url": "http://h"},
         "one registry"),
        ({"payload": "avro", "schema.registry.url": "http://h", "schema.registry.version": "x"},
         "whole number"),
        ({"payload": "avro", "schema.registry.url": "http://u:p@h",
          "schema.registry.basic.auth.user.info": "u:p"}, "given twice"),
        ({"payload": "json", "payloadSchema": '{"type":"object"}'}, "without properties"),
        ({"payload": "json", "payloadSchema": '{"type":"object","properties":{"a":{"type":'
          '["string","integer"]}}}'}, "a has a choice of several types"),
        ({"payload": "json", "payloadSchema": '{"properties":{"a":{"$ref":"#"}}}'}, "or itself"),
        ({"payload": "json", "payloadSchema": '{"properties":{"a":{"$ref":"#/$defs/b"}}}'},
         "which is not there"),
    ],
)  # fmt: skip
def test_payloads_that_cannot_be_decoded_are_refused(options, message):
    with pytest.raises(OptionError, match=message):
        make(**options)


def test_the_registry_s_type_has_to_be_that_of_the_messages():
    (options,) = parse_payloads({"payload": "json", "admin.url": "http://h"})
    assert options is not None
    with pytest.raises(OptionError, match="of type AVRO: option 'payload' is json"):
        make_payload(options, RegisteredSchema("AVRO", json.dumps(FLIGHT)))


class References:
    """A registry of schemas that use others; it notes which were requested."""

    def __init__(self, uses: dict[str, str]) -> None:
        self._uses, self.fetched = uses, []

    def version(self, subject: str) -> SubjectVersion:
        used = tuple(Reference(each, each, 1) for each in self._uses[subject])
        return SubjectVersion(1, "AVRO", "{}", used)

    def fetch_reference(self, reference: Reference, _layout: str) -> SubjectVersion:
        self.fetched.append(reference.subject)
        return self.version(reference.subject)


def test_a_schema_that_several_use_is_requested_once():
    registry = References({"a": "bcd", "b": "d", "c": "bd", "d": ""})

    walked = [each.name for each, _ in walk_references(registry, registry.version("a"), "")]

    assert walked == ["d", "b", "c"]
    assert registry.fetched == ["b", "d", "c"]


def test_schemas_that_use_each_other_are_an_error():
    registry = References({"a": "b", "b": "a"})

    with pytest.raises(SchemaUnavailable, match="32 levels"):
        list(walk_references(registry, registry.version("a"), ""))


VERSIONS = json.dumps(
    {"getSchemaResponses": [{"version": 0, "type": "JSON", "data": ""},
                            {"version": 1, "type": "AVRO", "data": "{}"}]}
).encode()  # fmt: skip


@pytest.mark.parametrize(
    ("status", "body", "problem"),
    [
        (200, VERSIONS, ""),
        (200, b'{"getSchemaResponses": []}', "topic t: has no schema there"),
        (200, b'{"getSchemaResponses": [{"type": "AVRO"}]}', "no schema registry answered"),
        (200, b'{"type": "AVRO", "data": "{}"}', "no schema registry answered"),
        (200, b"<html>", "no schema registry answered"),
        (404, b'{"reason": "Schema not found"}', "topic t: has no schema there"),
        (401, b"", "topic t: HTTP 401"),
    ],
)
def test_the_schema_of_a_topic_comes_from_pulsar_s_registry(status: int, body: bytes, problem: str):
    requests = []

    class Registry(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            requests.append((self.path, self.headers.get("Authorization")))
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Registry) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}/"
        if problem:
            with pytest.raises(OptionError, match=problem):
                fetch_schemas(url, "t", "secret", None)
        else:
            newest, older = fetch_schemas(url, "t", "secret", None)
            assert (newest, older) == (RegisteredSchema("AVRO", "{}"), RegisteredSchema("JSON", ""))
        thread.join()

    assert requests == [("/admin/v2/schemas/public/default/t/schemas", "Bearer secret")]
