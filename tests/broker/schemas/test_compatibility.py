"""Validity, equality and compatibility of schemas, as in Apache Pulsar."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trilogue.broker.errors import BrokerError, IncompatibleSchema, InvalidSchema
from trilogue.broker.schemas.compatibility import (
    SIZE_MAX,
    Definition,
    check_compatible,
    check_definition,
    is_same,
)
from trilogue.broker.topics.policies import CompatibilityStrategy

VECTORS = json.loads((Path(__file__).parents[2] / "vectors/pulsar/schemas.json").read_text())
SCHEMAS = {name: json.dumps(schema).encode() for name, schema in VECTORS["schemas"].items()}
# A default that its type cannot have: ours looks at it only where a reader would need it.
FORGIVEN = {("alias_name", "baddef"), ("alias_field", "baddef")}


def avro(**more: object) -> Definition:
    record = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]} | more
    return Definition("AVRO", json.dumps(record).encode())


def fits(new: Definition, olds: list[Definition], strategy: CompatibilityStrategy) -> bool:
    try:
        check_compatible(new, olds, strategy)
    except (IncompatibleSchema, InvalidSchema):
        return False
    return True


@pytest.mark.parametrize("reader", SCHEMAS)
def test_a_reader_follows_the_writers_it_follows_on_a_real_broker(reader: str):
    new = Definition("AVRO", SCHEMAS[reader])

    found = [
        writer
        for writer, data in SCHEMAS.items()
        if fits(new, [Definition("AVRO", data)], CompatibilityStrategy.BACKWARD)
        and (reader, writer) not in FORGIVEN
    ]

    assert found == VECTORS["reads"].get(reader, [])


def test_forward_is_backward_the_other_way_round_and_full_is_both():
    names = ("f_int", "f_long", "plus_def", "plus_nodef", "enumA", "enumAB", "rec", "nest3")
    for one in names:
        for other in names:
            new, old = Definition("AVRO", SCHEMAS[one]), Definition("AVRO", SCHEMAS[other])
            backward = fits(new, [old], CompatibilityStrategy.BACKWARD)
            forward = fits(new, [old], CompatibilityStrategy.FORWARD)
            assert forward == fits(old, [new], CompatibilityStrategy.BACKWARD)
            assert fits(new, [old], CompatibilityStrategy.FULL) == (backward and forward)


@pytest.mark.parametrize("row", VECTORS["lists"], ids=lambda row: f"{row[0]}-{row[1]}")
def test_a_schema_goes_with_those_before_it_as_on_a_real_broker(row):
    kind, strategy, new, olds, verdict = row

    def definition(name: str) -> Definition:
        return Definition(kind, SCHEMAS.get(name, name.encode()))

    found = fits(
        definition(new),
        [definition(old) for old in reversed(olds)],
        CompatibilityStrategy(strategy),
    )

    assert found == (verdict == "ok")


@pytest.mark.parametrize("strategy", CompatibilityStrategy)
def test_another_type_fits_only_where_everything_does(strategy: CompatibilityStrategy):
    found = fits(Definition("STRING"), [avro()], strategy)

    assert found == (strategy is CompatibilityStrategy.ALWAYS_COMPATIBLE)


def test_the_first_schema_fits_always():
    for strategy in CompatibilityStrategy:
        check_compatible(avro(), [], strategy)


SAME = {
    "documentation": {"doc": "what it is"},
    "other names": {"aliases": ["Q"]},
    "a field's documentation": {"fields": [{"name": "a", "type": "int", "doc": "x"}]},
    "a primitive written at length": {"fields": [{"name": "a", "type": {"type": "int"}}]},
    "an empty namespace": {"namespace": ""},
}
OTHER = {
    "name": {"name": "Q"},
    "namespace": {"namespace": "x"},
    "type": {"fields": [{"name": "a", "type": "long"}]},
    "default": {"fields": [{"name": "a", "type": "int", "default": 1}]},
    "order": {"fields": [{"name": "a", "type": "int", "order": "ignore"}]},
    "meaning": {"fields": [{"name": "a", "type": {"type": "int", "logicalType": "date"}}]},
    "a note of its maker": {"note": "x"},
}


@pytest.mark.parametrize("more", SAME.values(), ids=SAME)
def test_schemas_are_the_same_but_for(more):
    assert is_same(avro(), avro(**more))
    assert is_same(avro(**more), avro())


@pytest.mark.parametrize("more", OTHER.values(), ids=OTHER)
def test_schemas_differ_by_their(more):
    assert not is_same(avro(), avro(**more))


def test_a_full_name_is_its_namespace_and_its_name():
    assert is_same(avro(namespace="x.y"), avro(name="x.y.R"))


def test_schemas_of_other_types_are_others():
    data = avro().data

    assert not is_same(Definition("AVRO", data), Definition("JSON", data))


INVALID = {
    "no type": Definition("", b""),
    "a type that is none": Definition("AUTO_CONSUME"),
    "no JSON": Definition("AVRO", b"{"),
    "no definition": Definition("AVRO", b""),
    "no UTF-8": Definition("AVRO", b'"\xff"'),
    "nothing that is a type": Definition("AVRO", b"5"),
    "an unknown type": Definition("AVRO", b'"Nobody"'),
    "JSON Schema as Avro": Definition("AVRO", b'{"type":"object"}'),
    "no name": Definition("AVRO", b'{"type":"record","fields":[]}'),
    "a name that is none": avro(name="a b"),
    "a field's name that is none": avro(fields=[{"name": "1", "type": "int"}]),
    "a field without type": avro(fields=[{"name": "a"}]),
    "no fields": avro(fields=None),
    "a field twice": avro(fields=[{"name": "a", "type": "int"}, {"name": "a", "type": "int"}]),
    "a primitive with definition": Definition("INT32", b"x"),
    "half a key-value": Definition("KEY_VALUE", b"\0\0\0\0"),
    "a key-value with more": Definition("KEY_VALUE", b"\0" * 9),
    "a key-value of key-values": Definition(
        "KEY_VALUE", b"\0" * 8, (("key.schema.type", "KEY_VALUE"),)),
    "no root message": Definition("PROTOBUF_NATIVE", b'{"fileDescriptorSet":""}'),
    "too long": Definition("JSON", b" " * (SIZE_MAX + 1)),
    "too deep": Definition("AVRO", b'{"type":"array","items":' * 99 + b'"int"' + b"}" * 99),
    "too wide": Definition("AVRO", b"[%s]" % b",".join([b'"int"'] * 101)),
    "too many": avro(fields=[{"name": f"f{i}", "type": "int"} for i in range(4_000)]),
    "much too deep": Definition("AVRO", b"[" * 200_000),
}  # fmt: skip


def test_a_string_may_have_a_definition():
    """C++ and Python clients send `null`; a real broker takes it."""
    check_definition(Definition("STRING", b"null"))


@pytest.mark.parametrize("definition", INVALID.values(), ids=INVALID)
def test_invalid_schema_definition_is_refused(definition: Definition):
    with pytest.raises(InvalidSchema):
        check_definition(definition)


def test_logical_types_are_taken():
    fields = [
        {"name": "d", "type": {"type": "int", "logicalType": "date"}},
        {"name": "n", "type": {"type": "bytes", "logicalType": "decimal", "precision": 4}},
        {"name": "x", "type": {"type": "string", "logicalType": "nobody knows"}},
    ]

    check_definition(avro(fields=fields))


@pytest.mark.parametrize("which", ["key", "value"])
def test_key_and_value_are_judged_by_themselves(which: str):
    def both(key: bytes, value: bytes) -> Definition:
        data = b"".join(len(each).to_bytes(4, "big") + each for each in (key, value))
        kinds = (("key.schema.type", "AVRO"), ("value.schema.type", "AVRO"))
        return Definition("KEY_VALUE", data, kinds)

    old, good, bad = SCHEMAS["f_int"], SCHEMAS["plus_def"], SCHEMAS["f_string"]
    before = both(old, old)
    check_definition(before)
    parts = {"key": old, "value": old}

    check_compatible(both(**parts | {which: good}), [before], CompatibilityStrategy.FULL)
    with pytest.raises(IncompatibleSchema):
        check_compatible(both(**parts | {which: bad}), [before], CompatibilityStrategy.FULL)
    changed = tuple(
        (key, "JSON" if key.startswith(which) else kind) for key, kind in before.properties
    )
    with pytest.raises(IncompatibleSchema, match="different types"):
        check_compatible(before._replace(properties=changed), [before], CompatibilityStrategy.FULL)


JSON = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-5, 5),
        st.sampled_from(["int", "string", "record", "enum", "fixed", "array", "map", "null", "R"]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(["type", "name", "fields", "items", "values", "symbols", "size",
                             "default", "aliases", "namespace", "logicalType"]),
            inner, max_size=5),
    ),
    max_leaves=20,
)  # fmt: skip


@given(one=JSON, other=JSON)
def test_any_json_is_a_schema_or_refused(one: object, other: object):
    new, old = (Definition("AVRO", json.dumps(each).encode()) for each in (one, other))
    try:
        check_definition(new)
        check_definition(old)
        is_same(new, old)
        check_compatible(new, [old], CompatibilityStrategy.FULL)
    except BrokerError:
        return


def test_comparing_costs_no_more_than_a_moment():
    """What is long is compared in another thread, but not for minutes."""

    def wide(order: int) -> Definition:
        branches = [
            {"type": "record", "name": f"R{i}", "fields": [
                {"name": f"f{j}", "type": ["null", "int", "string"]} for j in range(30)]}
            for i in range(99)
        ]  # fmt: skip
        return Definition("AVRO", json.dumps(branches[::order]).encode())

    before = time.process_time()

    assert fits(wide(1), [wide(-1)], CompatibilityStrategy.FULL)

    assert time.process_time() - before < 60  # not exponential, on a slow machine too
