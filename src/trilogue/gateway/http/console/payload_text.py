"""Payloads as text: decoded by the schema of their message, else as JSON, as text, or as bytes.

A client may write any bytes to a topic, so a decoder has a budget of values for each page: an Avro
array of 2^60 items without content is a dozen bytes long. What cannot be decoded is shown as it is.
"""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import avro.errors
import avro.io
import avro.schema

from trilogue.broker.errors import InvalidSchema
from trilogue.broker.schemas.version_rows import NumberedSchema, Schema

if TYPE_CHECKING:  # few topics have Protobuf
    from trilogue.gateway.http.console.protobuf_text import ProtobufReader

VALUES_MAX: Final = 20_000  # that the payloads of one page are decoded to
TEXT_SHOWN: Final = 20_000  # characters of one payload
BYTES_SHOWN: Final = 1_024  # of a payload that is no text
AVRO, PROTOBUF_NATIVE = "AVRO", "PROTOBUF_NATIVE"
PROTOBUF_BYTES_MAX: Final = 128 << 10  # of the payloads of a page; a value has a byte or more
NUMBERS: Final = {
    "INT8": struct.Struct(">b"),
    "INT16": struct.Struct(">h"),
    "INT32": struct.Struct(">i"),
    "INT64": struct.Struct(">q"),
    "FLOAT": struct.Struct(">f"),
    "DOUBLE": struct.Struct(">d"),
}
READABLE: Final = frozenset("\t\n\r")


class TooManyValuesError(Exception):
    """A payload stands for more values than a page decodes."""


class PayloadDecoder:
    """Decodes the payloads of one page; for the executor, since Avro's decoder is slow."""

    def __init__(self, schemas: Sequence[NumberedSchema]) -> None:
        self._schemas = dict(schemas)
        self._newest = schemas[-1][0] if schemas else -1
        self._readers: dict[int, _BoundedReader | None] = {}
        self._values_left = VALUES_MAX
        self._protobuf_readers: dict[int, ProtobufReader | None] = {}
        self._protobuf_bytes_left = PROTOBUF_BYTES_MAX

    def decode(self, payload: bytes | None, version: int = -1) -> tuple[str, str]:
        """Return what a payload was decoded as, and its text; -1: by the newest schema."""
        if payload is None:
            return "none", ""
        version = version if version in self._schemas else self._newest
        schema = self._schemas.get(version)
        kind = "" if schema is None else schema.kind.upper()
        if schema is not None and kind == AVRO:
            text = self._decode_avro(payload, version, schema)
            if text is not None:
                return f"Avro, schema {version}", text
        if schema is not None and kind == PROTOBUF_NATIVE:
            text = self._decode_protobuf(payload, version, schema)
            if text is not None:
                return f"Protobuf, schema {version}", text
        number = NUMBERS.get(kind)
        if number is not None and len(payload) == number.size:
            return kind.lower(), str(number.unpack(payload)[0])
        return describe_bytes(payload)

    def _decode_avro(self, payload: bytes, version: int, schema: Schema) -> str | None:
        """Return an Avro datum as JSON; None where the payload is none of this schema."""
        try:
            if version not in self._readers:
                self._readers[version] = None
                definition = avro.schema.parse(schema.data.decode(), validate_names=False)
                self._readers[version] = _BoundedReader(definition, self._count_value)
            reader = self._readers[version]
            return None if reader is None else _format_json(reader.decode(payload))
        except (avro.errors.AvroException, TooManyValuesError, *_BAD_PAYLOAD):
            return None

    def _decode_protobuf(self, payload: bytes, version: int, schema: Schema) -> str | None:
        """Return a Protobuf message as JSON; None where the payload is none of this schema."""
        from trilogue.gateway.http.console.protobuf_text import BAD_PAYLOAD, ProtobufReader

        self._protobuf_bytes_left -= len(payload)
        if self._protobuf_bytes_left < 0:
            return None
        try:
            if version not in self._protobuf_readers:
                self._protobuf_readers[version] = None
                self._protobuf_readers[version] = ProtobufReader(schema.data)
            reader = self._protobuf_readers[version]
            return None if reader is None else _format_json(reader.decode(payload))
        except (InvalidSchema, *BAD_PAYLOAD):
            return None

    def _count_value(self) -> None:
        self._values_left -= 1
        if self._values_left < 0:
            raise TooManyValuesError


class _BoundedReader(avro.io.DatumReader):
    """Reads a datum, and calls a function for each of its values."""

    def __init__(self, schema: Any, count_value: Callable[[], None]) -> None:
        super().__init__(schema, schema)
        self._count_value = count_value

    def decode(self, payload: bytes) -> object:
        """Return the datum of a payload, all of which it must be."""
        stream = io.BytesIO(payload)
        datum: object = self.read(avro.io.BinaryDecoder(stream))
        if stream.tell() != len(payload):
            raise ValueError("there are bytes behind the datum")
        return datum

    def read_data(self, writers_schema: Any, readers_schema: Any, decoder: Any) -> object:
        """Read one value, and count it."""
        self._count_value()
        return super().read_data(writers_schema, readers_schema, decoder)


_BAD_PAYLOAD = (
    ValueError,
    TypeError,
    IndexError,
    KeyError,
    EOFError,
    OverflowError,
    RecursionError,
    AssertionError,
    struct.error,
)


def describe_bytes(payload: bytes) -> tuple[str, str]:
    """Return the kind of some bytes, JSON, text or bytes, and their text."""
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        return "bytes", _format_bytes(payload)
    if text[:1] in {"{", "["}:
        try:
            return "JSON", _format_json(json.loads(text))
        except (ValueError, RecursionError):
            pass
    if all(character.isprintable() or character in READABLE for character in text[:TEXT_SHOWN]):
        return "text", text[:TEXT_SHOWN]
    return "bytes", _format_bytes(payload)


def _format_json(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)[:TEXT_SHOWN]


def _format_bytes(payload: bytes) -> str:
    return payload[:BYTES_SHOWN].hex(" ")
