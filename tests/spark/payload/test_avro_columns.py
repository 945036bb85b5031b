"""The columnar decoder of Avro reads what fastavro reads, compiled and uncompiled."""

from __future__ import annotations

import datetime as dt
import io
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.entry.conftest import PURE as PURE_ENTRY
from tests.pure import load_pure
from trilogue.spark.payload import avro_columns, columnar_avro
from trilogue.spark.payload.arrow_types import to_arrow
from trilogue.spark.payload.avro_decoder import AvroDecoder, parse_avro_schema
from trilogue.spark.payload.objects import decode_objects

ROOM = "trilogue.spark.payload"
PURE = load_pure(f"{ROOM}.avro_columns", trilogue__entry__pack=PURE_ENTRY.pack)
PURE_DECODER = load_pure(
    f"{ROOM}.columnar_avro",
    trilogue__entry__arrow=PURE_ENTRY.arrow,
    trilogue__spark__payload__avro_columns=PURE,
)
TWINS = pytest.mark.parametrize("module", [columnar_avro, PURE_DECODER], ids=["installed", "pure"])

TIMES = st.datetimes(timezones=st.just(dt.UTC))
ATOMS: list[tuple[Any, st.SearchStrategy[Any]]] = [
    ("boolean", st.booleans()),
    ("int", st.integers(-(2**31), 2**31 - 1)),
    ("long", st.integers(-(2**63), 2**63 - 1)),
    ("float", st.floats(width=32, allow_nan=False)),
    ("double", st.floats(allow_nan=False)),
    ("string", st.text(max_size=5)),
    ("bytes", st.binary(max_size=5)),
    ({"type": "int", "logicalType": "date"}, st.dates()),
    (
        {"type": "long", "logicalType": "timestamp-millis"},
        TIMES.map(lambda at: at.replace(microsecond=at.microsecond // 1000 * 1000)),
    ),
    ({"type": "long", "logicalType": "timestamp-micros"}, TIMES),
    (
        {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 3},
        st.integers(1 - 10**38, 10**38 - 1).map(lambda one: Decimal(f"{one}e-3")),
    ),
]


class Types:
    """Draws schemas with values; each enum and fixed gets a name of its own."""

    def __init__(self, data: st.DataObject) -> None:
        self.data = data
        self.names = 0

    def name(self) -> str:
        self.names += 1
        return f"n{self.names}"

    def draw(self, depth: int) -> tuple[Any, st.SearchStrategy[Any]]:
        kinds = ["atom", "atom", "enum", "fixed", "union"]
        kinds += ["record", "array", "map"] if depth else []
        match self.data.draw(st.sampled_from(kinds)):
            case "enum":
                symbols = ["A", "B", "C"]
                made = {"type": "enum", "name": self.name(), "symbols": symbols}
                found = made, st.sampled_from(symbols)
            case "fixed":
                made = {"type": "fixed", "name": self.name(), "size": 3}
                found = made, st.binary(min_size=3, max_size=3)
            case "union":
                found = self.draw_union(depth)
            case "record":
                found = self.draw_record(depth)
            case "array":
                made, values = self.draw(depth - 1)
                found = {"type": "array", "items": made}, st.lists(values, max_size=3)
            case "map":
                made, values = self.draw(depth - 1)
                of_map = st.dictionaries(st.text(max_size=2), values, max_size=3)
                found = {"type": "map", "values": made}, of_map
            case _:
                found = self.data.draw(st.sampled_from(ATOMS))
        return found

    def draw_union(self, depth: int) -> tuple[Any, st.SearchStrategy[Any]]:
        kind, values = self.draw(depth)
        while isinstance(kind, list):
            kind, values = self.draw(depth)
        place = self.data.draw(st.sampled_from((0, 1, None)))
        if place is None:
            return [kind], values
        return [kind, "null"] if place else ["null", kind], st.none() | values

    def draw_record(self, depth: int) -> tuple[Any, st.SearchStrategy[Any]]:
        fields, values = [], {}
        for number in range(self.data.draw(st.integers(1, 4))):
            kind, of_kind = self.draw(depth - 1)
            fields.append({"name": f"f{number}", "type": kind})
            values[f"f{number}"] = of_kind
        kind = {"type": "record", "name": self.name(), "fields": fields}
        return kind, st.fixed_dictionaries(values)


def encode(row: object, parsed: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, parsed, row)
    return stream.getvalue()


def decode_one_by_one(values: pa.Array, parsed: Any, kind: pa.StructType) -> list[Any]:
    def decode(content: bytes) -> object:
        stream = io.BytesIO(content)
        found = fastavro.schemaless_reader(stream, parsed, None)
        return found if stream.tell() == len(content) else None

    return decode_objects(values, kind, decode).to_pylist()


def types_of(schema: object) -> tuple[Any, pa.StructType]:
    return fastavro.parse_schema(schema), to_arrow(parse_avro_schema(json.dumps(schema)))


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_random_schemas_and_messages_are_read_as_fastavro_reads_them(data: st.DataObject):
    schema, values = Types(data).draw_record(2)
    parsed, kind = types_of(schema)
    rows = data.draw(st.lists(st.none() | values, max_size=5))
    messages = [None if row is None else encode(row, parsed) for row in rows]
    column = pa.array(messages, pa.binary())

    expected = decode_one_by_one(column, parsed, kind)
    for module in (columnar_avro, PURE_DECODER):
        decoder = module.ColumnarAvroDecoder(parsed, kind)
        assert decoder.decode(column).to_pylist() == expected
        assert decoder.decode(column.slice(1)).to_pylist() == expected[1:]


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_damaged_messages_are_refused_or_read_as_fastavro_reads_them(data: st.DataObject):
    schema, values = Types(data).draw_record(2)
    parsed, kind = types_of(schema)
    good = encode(data.draw(values), parsed)
    damaged = bytearray(good)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, max(0, len(damaged) - 1)))
        damaged[at : at + data.draw(st.integers(0, 1))] = data.draw(st.binary(max_size=2))
    column = pa.array([good, bytes(damaged), good], pa.binary())

    found = columnar_avro.ColumnarAvroDecoder(parsed, kind).decode(column).to_pylist()

    pure = PURE_DECODER.ColumnarAvroDecoder(parsed, kind).decode(column).to_pylist()
    assert repr(pure) == repr(found)  # a NaN does not equal itself
    expected = decode_one_by_one(column, parsed, kind)
    assert (found[0], found[2]) == (expected[0], expected[2])
    if found[1] is not None:
        assert repr(normalized(found[1])) == repr(normalized(expected[1]))
    elif expected[1] is not None:  # fastavro takes other encodings of a value than the one
        decoded = fastavro.schemaless_reader(io.BytesIO(damaged), parsed, None)
        assert encode(decoded, parsed) != damaged


def normalized(value: Any) -> Any:
    """Return the value with each key of a map once: fastavro keeps the last one."""
    if isinstance(value, dict):
        return {name: normalized(each) for name, each in value.items()}
    if isinstance(value, list):
        if value and isinstance(value[0], tuple):
            return sorted({key: normalized(each) for key, each in value}.items())
        return [normalized(each) for each in value]
    return value


LISTS = {
    "type": "record", "name": "r", "fields": [
        {"name": "texts", "type": {"type": "array", "items": "string"}},
        {"name": "end", "type": {"type": "enum", "name": "e", "symbols": ["A", "B"]}},
    ],
}  # fmt: skip


@TWINS
def test_blocks_are_counted_with_and_without_their_size(module: Any):
    parsed, kind = types_of(LISTS)
    message = b"\x02\x02a\x03\x08\x02b\x02c\x00\x02"

    found = module.ColumnarAvroDecoder(parsed, kind).decode(pa.array([message], pa.binary()))

    assert found.to_pylist() == [{"texts": ["a", "b", "c"], "end": "B"}]


@TWINS
@pytest.mark.parametrize(
    "bad",
    [
        b"", b"\x02", b"\xff" * 11, b"\x00", b"\x00\x04", b"\x00\x01", b"\x00\x00\x00",
        b"\x02\x01\x00\x00", b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01\x00\x00",
        b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x00\x00\x00",
        b"\x02\x02\xff\x00\x00", b"\x02\x04\xc3\x28\x00\x00",
    ],
)  # fmt: skip
def test_a_malformed_message_costs_no_other_row(module: Any, bad: bytes):
    """Counts and sizes beyond the message, numbers without an end, enums without a symbol."""
    parsed, kind = types_of(LISTS)
    good = encode({"texts": ["ü", ""], "end": "B"}, parsed)
    decoder = module.ColumnarAvroDecoder(parsed, kind)

    found = decoder.decode(pa.array([good, bad, None, bad, good], pa.binary())).to_pylist()

    row = {"texts": ["ü", ""], "end": "B"}
    assert found == [row, None, None, None, row]
    assert decoder.decode(pa.array([good], pa.binary())).to_pylist() == [row]


def field(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


def record(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "air.Leg", "fields": list(fields)}


KIND = {"type": "enum", "name": "air.Kind", "symbols": ["A", "B"]}
OLD = record(field("id", "int"), field("gone", {"type": "array", "items": "string"}),
             field("kind", KIND), field("fare", "float"), field("tail", "string"))  # fmt: skip
OLD_ROW = {"id": 7, "gone": ["x"], "kind": "B", "fare": 0.5, "tail": "N1"}


@pytest.mark.parametrize(
    ("fields", "by_columns"),
    [
        ([field("tail", ["null", "string"]), field("id", "long"), field("fare", "double")], True),
        ([field("kind", KIND), field("again", ["null", "air.Kind"], default=None)], True),
        ([field("more", "double", default=9), field("text", "string", default="-"),
          field("flag", ["boolean", "null"], default=True), field("id", "int")], True),
        ([field("id", "double")], False),
        ([field("new", "string")], False),
        ([field("name", "string", aliases=["tail"])], False),
        ([field("kind", {**KIND, "symbols": ["B"]})], False),
        ([field("id", "int"), field("list", {"type": "array", "items": "int"}, default=[])], False),
        ([field("id", "string")], False),
    ],
)  # fmt: skip
def test_messages_of_another_version_are_read_as_fastavro_resolves_them(fields, by_columns):
    wanted = record(*fields)
    message = encode(OLD_ROW, fastavro.parse_schema(OLD))
    column = pa.array([message, None, message + b"x", message], pa.binary())

    decoder = AvroDecoder(json.dumps(wanted), parse_avro_schema(json.dumps(wanted)),
                          json.dumps(OLD))  # fmt: skip
    found = decoder.decode(column).to_pylist()

    def resolve(content: bytes) -> object:
        stream = io.BytesIO(content)
        written, read = fastavro.parse_schema(OLD), fastavro.parse_schema(wanted)
        row = fastavro.schemaless_reader(stream, written, read)
        return row if stream.tell() == len(content) else None

    assert found == decode_objects(column, types_of(wanted)[1], resolve).to_pylist()
    assert decoder.is_columnar == by_columns


def test_compiled_columns_are_those_of_the_present_source():
    built = Path(avro_columns.__file__)
    name = built.name.split(".")[0]
    newest = max(built.with_name(f"{name}{kind}").stat().st_mtime for kind in (".py", ".pxd"))

    assert PURE.__file__.endswith(".py")
    assert PURE_DECODER.AvroReader is PURE.AvroReader
    assert built.suffix == ".py" or built.stat().st_mtime >= newest, "run `make native`"
