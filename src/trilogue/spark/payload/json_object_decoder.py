"""JSON objects with maps to a struct column: one by one, since Arrow's parser has no maps."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegralType,
    MapType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from trilogue.spark.errors import OptionError
from trilogue.spark.payload.arrow_types import to_arrow
from trilogue.spark.payload.objects import decode_objects

if TYPE_CHECKING:
    import pyarrow as pa

Convert = Callable[[Any], Any]


class JsonObjectDecoder:
    """Decodes messages of one JSON object each; fields that the schema has not are left out."""

    def __init__(self, schema: StructType) -> None:
        self._convert = _struct_converter(schema)
        self.type = to_arrow(schema)

    def decode(self, values: pa.Array) -> pa.Array:
        """Return a struct for each message, null for a null and for one that is malformed."""
        return decode_objects(values, self.type, self._decode_one)

    def _decode_one(self, content: bytes) -> object:
        parsed = json.loads(
            content.decode(),
            parse_float=Decimal,
            parse_constant=_refuse_constant,
            object_pairs_hook=_build_object,
        )
        return self._convert(parsed)


def has_map(kind: DataType) -> bool:
    """Whether a type is or contains a map."""
    if isinstance(kind, StructType):
        return any(has_map(field.dataType) for field in kind.fields)
    return isinstance(kind, MapType) or (isinstance(kind, ArrayType) and has_map(kind.elementType))


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _build_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object of these pairs; a name that comes twice is malformed."""
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ValueError("a name twice")
    return made


def _struct_converter(schema: StructType) -> Convert:
    fields = [(field.name, _converter(field.dataType)) for field in schema.fields]

    def convert(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise TypeError("no object")
        return {name: one(value.get(name)) for name, one in fields}

    return convert


def _converter(kind: DataType) -> Convert:
    """Return the conversion of a value of JSON, which raises where it is of another type."""
    convert = _non_null_converter(kind)
    return lambda value: None if value is None else convert(value)


def _non_null_converter(kind: DataType) -> Convert:
    if isinstance(kind, StructType):
        return _struct_converter(kind)
    if isinstance(kind, ArrayType):
        return _array_converter(kind)
    if isinstance(kind, MapType):
        return _map_converter(kind)
    for types, accepted, convert in _ATOMS:
        if isinstance(kind, types):
            return _atom_converter(accepted, convert)
    raise OptionError(f"option 'payloadSchema': payload=json reads no {kind.simpleString()}")


def _array_converter(kind: ArrayType) -> Convert:
    element = _converter(kind.elementType)

    def convert(value: Any) -> list[Any]:
        if not isinstance(value, list):
            raise TypeError("no array")
        return [element(each) for each in value]

    return convert


def _map_converter(kind: MapType) -> Convert:
    if not isinstance(kind.keyType, StringType):
        raise OptionError("option 'payloadSchema': the keys of a map in JSON are of type STRING")
    converter = _converter(kind.valueType)

    def convert(value: Any) -> list[tuple[str, Any]]:
        if not isinstance(value, dict):
            raise TypeError("no object")
        return [(name, converter(each)) for name, each in value.items()]

    return convert


def _atom_converter(accepted: tuple[type, ...], convert: Convert) -> Convert:
    def checked(value: Any) -> Any:
        if type(value) not in accepted:
            raise TypeError("another type")
        return convert(value)

    return checked


def _to_time(text: str) -> dt.datetime:
    found = dt.datetime.fromisoformat(text)
    return found if found.tzinfo is not None else found.replace(tzinfo=dt.UTC)


_ATOMS: list[tuple[type[DataType] | tuple[type[DataType], ...], tuple[type, ...], Convert]] = [
    (StringType, (str,), str),
    (BooleanType, (bool,), bool),
    (IntegralType, (int,), int),
    ((FloatType, DoubleType), (int, Decimal), float),
    (DecimalType, (int, Decimal, str), Decimal),
    (DateType, (str,), dt.date.fromisoformat),
    (TimestampType, (str,), _to_time),
    (TimestampNTZType, (str,), dt.datetime.fromisoformat),
]
