"""Protobuf messages to a struct column, by a descriptor set."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
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
from trilogue.spark.payload.objects import decode_objects

if TYPE_CHECKING:
    import pyarrow as pa

DEPTH_MAX = 32
TIMESTAMP = "google.protobuf.Timestamp"
UINT64 = DecimalType(20, 0)
TYPES: dict[int, DataType] = {
    FieldDescriptor.CPPTYPE_INT32: IntegerType(),
    FieldDescriptor.CPPTYPE_INT64: LongType(),
    FieldDescriptor.CPPTYPE_UINT32: LongType(),
    FieldDescriptor.CPPTYPE_UINT64: UINT64,
    FieldDescriptor.CPPTYPE_DOUBLE: DoubleType(),
    FieldDescriptor.CPPTYPE_FLOAT: FloatType(),
    FieldDescriptor.CPPTYPE_BOOL: BooleanType(),
    FieldDescriptor.CPPTYPE_ENUM: StringType(),
}


def parse_descriptor(definition: bytes, message: str) -> StructType:
    """Return the struct of a message of a descriptor set; OptionError."""
    return _struct(_find(definition, message), "", 0)


def parse_registered(definition: str) -> tuple[bytes, str]:
    """Return the descriptor set and the message of a PROTOBUF_NATIVE schema of Pulsar."""
    try:
        parsed = json.loads(definition)
        content = base64.b64decode(parsed["fileDescriptorSet"], validate=True)
        return content, str(parsed["rootMessageTypeName"])
    except (ValueError, KeyError, TypeError, binascii.Error) as problem:
        raise OptionError(
            f"the topic's schema in the registry is no descriptor set ({problem}): give option "
            "'payloadDescriptor'"
        ) from None


def _find(definition: bytes, message: str) -> Descriptor:
    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(definition)
        pool = descriptor_pool.DescriptorPool()
        for file in files.file:
            pool.Add(file)
        return pool.FindMessageTypeByName(message)
    except KeyError:
        raise OptionError(
            f"option 'payloadMessage': the descriptor set has no message {message!r}; it takes a "
            "full name, with the package"
        ) from None
    except Exception as problem:  # noqa: BLE001 - whatever the library raises
        raise OptionError(
            f"option 'payloadDescriptor' is no descriptor set ({problem}): make it by protoc "
            "--include_imports --descriptor_set_out=FILE"
        ) from None


def _struct(descriptor: Descriptor, path: str, depth: int) -> StructType:
    if depth > DEPTH_MAX:
        raise OptionError(f"payloadMessage: {path} has more than {DEPTH_MAX} levels, or itself")
    fields = [
        StructField(field.name, _type(field, f"{path}.{field.name}".removeprefix("."), depth))
        for field in descriptor.fields
    ]
    if not fields:
        raise OptionError(f"payloadMessage: {path or descriptor.full_name} has no fields")
    return StructType(fields)


def _type(field: FieldDescriptor, path: str, depth: int) -> DataType:
    if _is_map(field):
        key, value = (_message_of(field).fields_by_name[name] for name in ("key", "value"))
        return MapType(_single(key, path, depth), _single(value, path, depth))
    kind = _single(field, path, depth)
    return ArrayType(kind) if field.is_repeated else kind


def _single(field: FieldDescriptor, path: str, depth: int) -> DataType:
    if field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
        if _message_of(field).full_name == TIMESTAMP:
            return TimestampType()
        return _struct(_message_of(field), path, depth + 1)
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return BinaryType() if field.type == FieldDescriptor.TYPE_BYTES else StringType()
    return TYPES[field.cpp_type]


def _message_of(field: FieldDescriptor) -> Descriptor:
    assert field.message_type is not None
    return field.message_type


def _is_map(field: FieldDescriptor) -> bool:
    return (
        field.is_repeated
        and field.message_type is not None
        and field.message_type.GetOptions().map_entry
    )


class ProtobufDecoder:
    """Decodes messages of one type; fields that are not set and may be null are null."""

    def __init__(self, definition: bytes, message: str, schema: StructType) -> None:
        descriptor = _find(definition, message)
        self._class = message_factory.GetMessageClass(descriptor)
        self._convert = _converter(descriptor)
        self.type = to_arrow(schema)

    def decode(self, values: pa.Array) -> pa.Array:
        """Return a struct for each message, null for a null and for one that is malformed."""
        return decode_objects(values, self.type, self.decode_one)

    def decode_one(self, content: bytes) -> object:
        """Return the fields of one message; raises what the library raises."""
        return self._convert(self._class.FromString(content))


def _converter(descriptor: Descriptor) -> Callable[[Any], dict[str, Any]]:
    """Return a function from a message to its fields."""
    getters = [(field.name, field.has_presence, _getter(field)) for field in descriptor.fields]

    def convert(message: Any) -> dict[str, Any]:
        return {
            name: None if may_miss and not message.HasField(name) else get(getattr(message, name))
            for name, may_miss, get in getters
        }

    return convert


def _getter(field: FieldDescriptor) -> Callable[[Any], Any]:
    if _is_map(field):
        value = _single_getter(_message_of(field).fields_by_name["value"])
        return lambda entries: [(key, value(each)) for key, each in entries.items()]
    get = _single_getter(field)
    return (lambda items: [get(each) for each in items]) if field.is_repeated else get


def _single_getter(field: FieldDescriptor) -> Callable[[Any], Any]:
    if field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
        if _message_of(field).full_name == TIMESTAMP:
            return lambda time: time.seconds * 1_000_000 + time.nanos // 1_000
        return _converter(_message_of(field))
    if field.cpp_type == FieldDescriptor.CPPTYPE_ENUM:
        assert field.enum_type is not None
        names = {number: each.name for number, each in field.enum_type.values_by_number.items()}
        return lambda number: names.get(number, str(number))
    return lambda value: value
