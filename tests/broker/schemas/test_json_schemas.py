"""Compatibility of JSON Schemas: a reader's schema against a writer's."""

from __future__ import annotations

import json

import pytest

from trilogue.broker.errors import InvalidSchema
from trilogue.broker.schemas.json_schemas import check_json_schema, find_difference

CLOSED = {"additionalProperties": False}
A, B = {"a": {"type": "string"}}, {"b": {"type": "string"}}


def record(properties: dict, **more: object) -> dict:
    return {"type": "object", "properties": properties, **more}


@pytest.mark.parametrize(
    ("writer", "reader", "fits"),
    [
        (record(A), record(A), True),
        (record(A), record({**A, **B}), False),  # an open writer may have written any `b`
        (record(A, **CLOSED), record({**A, **B}, **CLOSED), True),
        (record(A, **CLOSED), record({**A, **B}, required=["b"], **CLOSED), False),
        (record({**A, **B}), record(A), True),
        (record({**A, **B}), record(A, **CLOSED), False),
        (record(A, **CLOSED), record(A), True),
        (record(A), record(A, **CLOSED), False),
        (record(A), record(A, required=["a"]), False),
        ({"type": "integer"}, {"type": "number"}, True),
        ({"type": "number"}, {"type": "integer"}, False),
        ({"type": "string"}, {"type": ["string", "null"]}, True),
        ({"type": ["string", "null"]}, {"type": "string"}, False),
        ({"enum": ["x"]}, {"enum": ["x", "y"]}, True),
        ({"enum": ["x", "y"]}, {"enum": ["x"]}, False),
        ({"type": "string", "maxLength": 5}, {"type": "string", "maxLength": 9}, True),
        ({"type": "string", "maxLength": 9}, {"type": "string", "maxLength": 5}, False),
        ({"type": "string"}, {"oneOf": [{"type": "string"}, {"type": "null"}]}, True),
        ({"oneOf": [{"type": "string"}, {"type": "null"}]}, {"type": "string"}, False),
        ({"type": "array", "items": {"type": "integer"}}, {"type": "array", "items": True}, True),
        ({"type": "array"}, {"type": "array", "items": {"type": "integer"}}, False),
        ({"type": "string"}, True, True),
        (True, False, False),
    ],
)
def test_a_reader_accepts_what_a_writer_wrote(writer, reader, fits):
    reason = find_difference(json.dumps(reader).encode(), json.dumps(writer).encode())

    assert (reason == "") is fits, reason


def test_references_inside_a_schema_are_followed():
    def tree(kind: str) -> bytes:
        node = {"properties": {"next": {"$ref": "#/$defs/node"}, "value": {"type": kind}}}
        return json.dumps({"$ref": "#/$defs/node", "$defs": {"node": node}}).encode()

    assert find_difference(tree("number"), tree("integer")) == ""
    assert find_difference(tree("integer"), tree("number")) != ""


def test_many_branches_end_within_the_steps():
    schema: object = {"type": "string"}
    other: object = {"type": "null"}
    for _ in range(30):
        schema = {"oneOf": [{"properties": {"p": schema}}, {"properties": {"q": schema}}]}
        other = {"oneOf": [{"properties": {"p": other}}, {"properties": {"q": other}}]}

    assert find_difference(nested(schema), nested(other)) != ""


def nested(schema: object) -> bytes:
    """Return the text with each shared part once, by references."""
    definitions: dict[str, object] = {}

    def name(part: object) -> object:
        if not isinstance(part, dict) or "oneOf" not in part:
            return part
        key = f"d{id(part)}"
        if key not in definitions:
            definitions[key] = None
            definitions[key] = {
                "oneOf": [
                    {"properties": {k: name(v) for k, v in each["properties"].items()}}
                    for each in part["oneOf"]
                ]
            }
        return {"$ref": f"#/$defs/{key}"}

    root = name(schema)
    assert isinstance(root, dict)
    return json.dumps({**root, "$defs": definitions}).encode()


@pytest.mark.parametrize(
    "text",
    [
        b"{", b"[]", b"1", b'{"type": "text"}', b'{"type": 1}', b'{"properties": []}',
        b'{"required": "a"}', b'{"oneOf": {}}', b'{"items":' * 70 + b"1" + b"}" * 70,
    ],
)  # fmt: skip
def test_a_wrong_schema_is_refused(text):
    with pytest.raises(InvalidSchema):
        check_json_schema(text)
