"""Avro messages (a body without header, as Pulsar's clients write them) to a struct column."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from trilogue.spark.errors import OptionError
from trilogue.spark.payload.arrow_types import to_arrow
from trilogue.spark.payload.columnar_avro import ColumnarAvroDecoder
from trilogue.spark.payload.objects import decode_objects
from trilogue.spark.payload.resolved_avro import ResolvedAvroDecoder, resolve_by_columns

if TYPE_CHECKING:
    import pyarrow as pa

DEPTH_MAX = 32
PRIMITIVE: Mapping[str, DataType] = {
    "boolean": BooleanType(), "int": IntegerType(), "long": LongType(), "float": FloatType(),
    "double": DoubleType(), "bytes": BinaryType(), "string": StringType(), "enum": StringType(),
    "fixed": BinaryType(),
}  # fmt: skip
LOGICAL = frozenset({"date", "timestamp-millis", "timestamp-micros", "decimal"})
"""Others are read as the type that they annotate."""


def parse_avro_schema(text: str, *, is_json: bool = False) -> StructType:
    """Return the struct of an Avro record; `is_json`: of its JSON, where times are numbers."""
    try:
        schema = json.loads(text)
    except ValueError as problem:
        raise OptionError(f"option 'payloadSchema' is no Avro schema: {problem}") from None
    converter = _Converter(is_json=is_json)
    kind, _ = converter.convert(schema, "", 0)
    if not isinstance(kind, StructType):
        raise OptionError("option 'payloadSchema': an Avro schema has to be a record")
    return kind


class _Converter:
    """Avro's types to Spark's; named types may be used again, but not inside of themselves."""

    def __init__(self, *, is_json: bool) -> None:
        self._is_json = is_json
        self._named: dict[str, DataType | None] = {}

    def convert(self, schema: Any, path: str, depth: int) -> tuple[DataType, bool]:
        """Return the type of a schema, and whether it may be null."""
        if depth > DEPTH_MAX:
            raise _error(path, f"more than {DEPTH_MAX} levels")
        if isinstance(schema, list):
            return self._convert_union(schema, path, depth)
        if isinstance(schema, str):
            return self._convert_name(schema, path)
        if not isinstance(schema, dict):
            raise _error(path, "no Avro type")
        kind = schema.get("type")
        if isinstance(kind, dict | list):
            return self.convert(kind, path, depth + 1)
        return self._convert_complex(str(kind), schema, path, depth), False

    def _convert_complex(
        self, kind: str, schema: dict[str, Any], path: str, depth: int
    ) -> DataType:
        match kind:
            case "record":
                return self._convert_record(schema, path, depth)
            case "array":
                return ArrayType(self.convert(schema.get("items"), path, depth + 1)[0])
            case "map":
                value, _ = self.convert(schema.get("values"), path, depth + 1)
                return MapType(StringType(), value)
            case "enum" | "fixed":
                made = self._convert_logical(schema) or PRIMITIVE[kind]
                self._named[str(schema.get("name"))] = made
                return made
            case _:
                return self._convert_logical(schema) or self._convert_name(kind, path)[0]

    def _convert_record(self, schema: Any, path: str, depth: int) -> DataType:
        name = str(schema.get("name"))
        self._named[name] = None
        fields = []
        for each in schema.get("fields") or ():
            field_name = str(each.get("name"))
            where = f"{path}.{field_name}".removeprefix(".")
            kind, _ = self.convert(each.get("type"), where, depth + 1)
            fields.append(StructField(field_name, kind))
        if not fields:
            raise _error(path, "a record without fields")
        made = StructType(fields)
        self._named[name] = made
        return made

    def _convert_union(self, schema: list[Any], path: str, depth: int) -> tuple[DataType, bool]:
        others = [each for each in schema if each != "null"]
        if len(others) != 1:
            raise _error(path, "a union of more than null and one type")
        return self.convert(others[0], path, depth + 1)[0], len(others) < len(schema)

    def _convert_name(self, name: str, path: str) -> tuple[DataType, bool]:
        if name in PRIMITIVE:
            return PRIMITIVE[name], False
        for known, made in self._named.items():
            if name in {known, name.rpartition(".")[0] + "." + known}:
                if made is None:
                    raise _error(path, f"type {name!r} contains itself")
                return made, False
        raise _error(path, f"no Avro type {name!r}")

    def _convert_logical(self, schema: dict[str, Any]) -> DataType | None:
        match schema.get("logicalType"):
            case _ if self._is_json:
                return None
            case "date" if schema["type"] == "int":
                return DateType()
            case "timestamp-millis" | "timestamp-micros" if schema["type"] == "long":
                return TimestampType()
            case "decimal" if schema["type"] in {"bytes", "fixed"}:
                precision, scale = schema.get("precision"), schema.get("scale", 0)
                if isinstance(precision, int) and isinstance(scale, int) and 0 < precision <= 38:
                    return DecimalType(precision, scale)
        return None


def _error(path: str, problem: str) -> OptionError:
    return OptionError(f"option 'payloadSchema': {path or 'the schema'} has {problem}")


class AvroDecoder:
    """Decodes messages that were written with one schema."""

    def __init__(self, definition: str, schema: StructType, written: str | None = None) -> None:
        """`written`: the schema of the messages, where that of the columns is another version."""
        try:
            import fastavro
        except ImportError:
            raise OptionError(
                "payload=avro needs the library fastavro: pip install fastavro"
            ) from None
        wanted = _parse(fastavro, definition)
        self.type = to_arrow(schema)
        self._columnar: ColumnarAvroDecoder | ResolvedAvroDecoder | None = None
        if written is None:
            self._columnar = ColumnarAvroDecoder(wanted, self.type)
            return
        self._written, self._wanted = _parse(fastavro, written), wanted
        with suppress(OptionError):  # fields of types that no column has
            kind = to_arrow(parse_avro_schema(written))
            self._columnar = resolve_by_columns(self._written, kind, wanted, self.type)

    @property
    def is_columnar(self) -> bool:
        """Whether messages are read without an object for each."""
        return self._columnar is not None

    def decode(self, values: pa.Array) -> pa.Array:
        """Return a struct for each message, null for a null and for one that is malformed."""
        if self._columnar is not None:
            return self._columnar.decode(values)
        import fastavro

        read, written, wanted = fastavro.schemaless_reader, self._written, self._wanted

        def decode_one(content: bytes) -> object:
            stream = io.BytesIO(content)
            decoded = read(stream, written, wanted)
            return decoded if stream.tell() == len(content) else None

        return decode_objects(values, self.type, decode_one)


def _parse(fastavro: Any, definition: str) -> Any:
    try:
        return fastavro.parse_schema(_without_other_logical(json.loads(definition)))
    except Exception as problem:  # noqa: BLE001 - whatever fastavro raises
        raise OptionError(f"the schema is no Avro schema: {problem}") from None


def _without_other_logical(schema: Any) -> Any:
    """Return the schema without annotations that would give other values than their types."""
    if isinstance(schema, list):
        return [_without_other_logical(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: _without_other_logical(value)
        if key in {"type", "items", "values", "fields"}
        else value
        for key, value in schema.items()
        if key != "logicalType" or value in LOGICAL
    }
