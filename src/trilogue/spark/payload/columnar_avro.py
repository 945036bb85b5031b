"""Avro messages of one schema to a struct column by compiled code, a message at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trilogue.entry.arrow import byte_input
from trilogue.spark.payload.avro_columns import (
    AvroColumn,
    AvroReader,
    make_array,
    make_boolean,
    make_bytes,
    make_decimal,
    make_float,
    make_map,
    make_number,
    make_record,
    make_string,
)

if TYPE_CHECKING:
    import pyarrow as pa

NULL = "null"
INT32, INT64 = 2**31 - 1, 2**63 - 1
FIRST_DAY, LAST_DAY = -719_162, 2_932_896
"""Days of the years 1 to 9999, from 1970 on: no other times exist in Python, nor in SQL."""
FIRST_MS, LAST_MS = FIRST_DAY * 86_400_000, (LAST_DAY + 1) * 86_400_000 - 1
FIRST_US, LAST_US = FIRST_DAY * 86_400_000_000, (LAST_DAY + 1) * 86_400_000_000 - 1


@dataclass(frozen=True, slots=True)
class ArrowColumn:
    """A column that is being read, and how Arrow sees it."""

    column: AvroColumn
    kind: pa.DataType
    children: Sequence[ArrowColumn] = ()
    symbols: pa.Array | None = None
    """Of an enum: the texts of its numbers."""

    def to_array(self) -> pa.Array:
        """Return the rows as an array, which takes the buffers over."""
        import pyarrow as pa

        column = self.column
        validity = pa.py_buffer(column.validity) if column.null_count else None
        buffers, children = [validity], [each.to_array() for each in self.children]
        kind = self.kind if self.symbols is None else pa.int32()
        if pa.types.is_map(kind):
            entry = pa.struct([kind.key_field, kind.item_field])
            count = len(children[0])
            children = [pa.Array.from_buffers(entry, count, [None], 0, children=children)]
        if pa.types.is_nested(kind):
            if not pa.types.is_struct(kind):
                buffers.append(pa.py_buffer(column.end_room))
        elif pa.types.is_string(kind) or pa.types.is_binary(kind):
            buffers += [pa.py_buffer(column.end_room), pa.py_buffer(column.buffer)]
        else:
            buffers.append(pa.py_buffer(column.value_room))
        array = pa.Array.from_buffers(
            kind, column.count, buffers, column.null_count, children=children or None
        )
        return array if self.symbols is None else self.symbols.take(array)


class ColumnarAvroDecoder:
    """Decodes messages that were written with one schema."""

    def __init__(self, parsed: Any, kind: pa.StructType) -> None:
        """`parsed`: the schema with full names, as fastavro.parse_schema returns it."""
        self.type = kind
        self._root = _Builder().build(parsed, kind)
        self._reader = AvroReader(self._root.column)

    def decode(self, values: pa.Array) -> pa.Array:
        """Return a struct for each message, null for a null and for one that is malformed."""
        import pyarrow as pa

        try:
            return self._decode(values, checks_texts=False)
        except pa.ArrowInvalid:  # a text is not UTF-8
            return self._decode(values, checks_texts=True)

    def _decode(self, values: pa.Array, *, checks_texts: bool) -> pa.Array:
        try:
            self._reader.read_all(byte_input(values), len(values), checks_texts)
            decoded = self._root.to_array()
        finally:
            self._root.column.clear()
        decoded.validate(full=True)
        return decoded


class _Builder:
    """Makes the columns of a schema; named types may be used again."""

    def __init__(self) -> None:
        self._named: dict[str, Any] = {}

    def build(self, schema: Any, kind: pa.DataType) -> ArrowColumn:
        """Return the column of a schema that is read as a type of Arrow."""
        if isinstance(schema, list):
            (inner,) = (each for each in schema if each != NULL)
            made = self.build(inner, kind)
            made.column.set_union(len(schema), schema.index(NULL) if NULL in schema else -1)
            return made
        if isinstance(schema, str):
            return self.build(self._named.get(schema) or {"type": schema}, kind)
        if isinstance(schema["type"], dict | list):
            return self.build(schema["type"], kind)
        if schema["type"] in {"record", "enum", "fixed"}:
            self._named[schema["name"]] = schema
        return self._build_type(schema, kind)

    def _build_type(self, schema: Mapping[str, Any], kind: pa.DataType) -> ArrowColumn:
        match schema["type"]:
            case "record":
                types = zip(schema["fields"], kind, strict=True)
                children = [self.build(each["type"], field.type) for each, field in types]
                column = make_record([each.column for each in children])
            case "array":
                children = [self.build(schema["items"], kind.value_type)]
                column = make_array(children[0].column)
            case "map":
                values = self.build(schema["values"], kind.item_type)
                column = make_map(values.column)
                children = [ArrowColumn(column.children[0], kind.key_type), values]
            case name:
                return _build_atom(name, schema, kind)
        return ArrowColumn(column, kind, children)


def _build_atom(name: str, schema: Mapping[str, Any], kind: pa.DataType) -> ArrowColumn:
    import pyarrow as pa

    symbols = None
    size = schema["size"] if name == "fixed" else None
    if pa.types.is_decimal(kind):
        column = make_decimal(kind.precision, size)
    elif name == "enum":
        symbols = pa.array(schema["symbols"], pa.string())
        column = make_number(4, 0, len(symbols) - 1)
    elif pa.types.is_date(kind):
        column = make_number(4, FIRST_DAY, LAST_DAY)
    elif pa.types.is_timestamp(kind) and schema["logicalType"] == "timestamp-millis":
        column = make_number(8, FIRST_MS, LAST_MS, 1000)
    elif pa.types.is_timestamp(kind):
        column = make_number(8, FIRST_US, LAST_US)
    else:
        column = _ATOMS[name]() if size is None else make_bytes(size)
    return ArrowColumn(column, kind, symbols=symbols)


_ATOMS = {
    "boolean": make_boolean,
    "int": lambda: make_number(4, -INT32 - 1, INT32),
    "long": lambda: make_number(8, -INT64 - 1, INT64),
    "float": lambda: make_float(4),
    "double": lambda: make_float(8),
    "string": make_string,
    "bytes": make_bytes,
}
