"""Protobuf schemas of a Confluent registry, and the places of types before messages."""

from __future__ import annotations

import base64
import binascii
import importlib
from typing import TYPE_CHECKING, Final

from google.protobuf import descriptor_pb2
from google.protobuf.message import DecodeError

from trilogue.spark.errors import OptionError, SchemaUnavailable
from trilogue.spark.payload.confluent_registry import (
    SERIALIZED,
    ConfluentRegistry,
    SubjectVersion,
)
from trilogue.spark.payload.confluent_schemas import walk_references
from trilogue.spark.payload.objects import decode_objects

if TYPE_CHECKING:
    import pyarrow as pa

    from trilogue.spark.payload.protobuf_decoder import ProtobufDecoder

WELL_KNOWN: Final = "google/protobuf/"
ROOT_FILE: Final = "schema.proto"
VARINT_BYTES_MAX: Final = 5
INDEXES_MAX: Final = 64


def expand_protobuf(registry: ConfluentRegistry, found: SubjectVersion) -> bytes:
    """Return a descriptor set: the files of the references, then that of the schema."""
    files = descriptor_pb2.FileDescriptorSet()
    placed: set[str] = set()
    for reference, used in walk_references(registry, found, SERIALIZED):
        if reference.name not in placed:
            placed.add(reference.name)
            files.file.append(_parse_file(used.text, reference.name))
    files.file.append(_parse_file(found.text, ROOT_FILE))
    known = descriptor_pb2.FileDescriptorSet()
    for file in files.file:
        for name in file.dependency:
            _add_well_known(known, name, placed)
    known.file.extend(files.file)
    return known.SerializeToString()


def _parse_file(text: str, name: str) -> descriptor_pb2.FileDescriptorProto:
    try:
        file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (ValueError, binascii.Error, DecodeError):
        raise SchemaUnavailable(
            "the registry gives Protobuf as texts, not as descriptors (format=serialized): give "
            "options 'payloadDescriptor', 'payloadMessage' and 'payloadFraming=confluent', without "
            "'schema.registry.url'"
        ) from None
    file.name = name
    return file


def _add_well_known(files: descriptor_pb2.FileDescriptorSet, name: str, placed: set[str]) -> None:
    """Add a file that Protobuf's own library has, with what it imports."""
    if name in placed:
        return
    placed.add(name)
    if not name.startswith(WELL_KNOWN):
        raise OptionError(f"the schema imports {name}, which its references do not name")
    try:
        module = importlib.import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2")
    except ImportError:
        raise OptionError(f"the schema imports {name}, which Protobuf does not have") from None
    file = descriptor_pb2.FileDescriptorProto()
    module.DESCRIPTOR.CopyToProto(file)
    for each in file.dependency:
        _add_well_known(files, each, placed)
    files.file.append(file)


class MessageTypes:
    """The types of the last file of a descriptor set, by their places in it."""

    def __init__(self, definition: bytes) -> None:
        self._file = descriptor_pb2.FileDescriptorSet.FromString(definition).file[-1]

    def find_name(self, indexes: tuple[int, ...]) -> str:
        """Return the full name of a message; IndexError where there is none."""
        place, *nested = indexes
        message = self._file.message_type[place]
        name = f"{self._file.package}.{message.name}".removeprefix(".")
        for each in nested:
            message = message.nested_type[each]
            name += f".{message.name}"
        return name


def read_indexes(content: bytes, start: int) -> tuple[tuple[int, ...], int]:
    """Return the places of a message's type, and where its body begins; ValueError."""
    count, at = _read_varint(content, start)
    if count == 0:
        return (0,), at
    if not 0 < count <= INDEXES_MAX:
        raise ValueError("the number of message indexes")
    indexes = []
    for _ in range(count):
        index, at = _read_varint(content, at)
        if index < 0:
            raise ValueError("a message index below 0")
        indexes.append(index)
    return tuple(indexes), at


def _read_varint(content: bytes, at: int) -> tuple[int, int]:
    """Return a signed number (zigzag), and where it ends."""
    value = 0
    for count in range(VARINT_BYTES_MAX):
        if at >= len(content):
            raise ValueError("cut off")
        value |= (content[at] & 0x7F) << (7 * count)
        at += 1
        if content[at - 1] < 0x80:
            return (value >> 1) ^ -(value & 1), at
    raise ValueError("a number of more than 5 bytes")


class TypedDecoder:
    """Decodes messages of one schema id, which are of the wanted type or malformed."""

    def __init__(self, decoder: ProtobufDecoder, message: str, definition: bytes) -> None:
        self._decoder, self._message = decoder, message
        self._types = MessageTypes(definition)

    def decode(self, values: pa.Array) -> pa.Array:
        """Return a struct for each message, null for one that is malformed."""
        return decode_objects(values, self._decoder.type, self._decode_one)

    def _decode_one(self, content: bytes) -> object:
        indexes, start = read_indexes(content, 0)
        if self._types.find_name(indexes) != self._message:
            raise ValueError("another type of the file")
        return self._decoder.decode_one(content[start:])
