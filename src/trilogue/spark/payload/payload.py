"""A typed payload: its schema, from options or the registry, and the columns that it adds."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from pyspark.sql.types import StructType

from trilogue.spark.errors import OptionError
from trilogue.spark.payload.framing import Framing
from trilogue.spark.payload.payload_options import VALUE, Format, Mode, PayloadOptions

if TYPE_CHECKING:
    import pyarrow as pa

    from trilogue.spark.payload.confluent_registry import ConfluentRegistry
    from trilogue.spark.payload.registered_schema import RegisteredSchema


class Decoder(Protocol):
    """Decodes the messages of one column."""

    type: pa.StructType

    def decode(self, values: pa.Array) -> pa.Array:
        """Return a struct for each message, null for a null and for one that is malformed."""


@dataclass(frozen=True, slots=True)
class Payload:
    """A payload with its schema; goes to workers."""

    format: Format
    schema: StructType
    definition: str | bytes
    message: str
    mode: Mode
    corrupt_column: str
    column: str = VALUE
    framing: Framing = Framing.NONE
    registry: ConfluentRegistry | None = None
    """Of Confluent: the decoder of Avro or Protobuf reads the ids before messages."""

    def make_decoder(self) -> Decoder:
        """Return the decoder of its format."""
        if self.registry is not None:
            return self._make_registered(self.registry)
        if self.format is Format.JSON:
            return _make_json_decoder(self.schema)
        if self.format is Format.AVRO:
            from trilogue.spark.payload.avro_decoder import AvroDecoder

            return AvroDecoder(str(self.definition), self.schema)
        from trilogue.spark.payload.protobuf_decoder import ProtobufDecoder

        assert isinstance(self.definition, bytes)
        return ProtobufDecoder(self.definition, self.message, self.schema)

    def _make_registered(self, registry: ConfluentRegistry) -> Decoder:
        from trilogue.spark.payload.registered_decoder import (
            make_avro_decoder,
            make_protobuf_decoder,
        )

        if isinstance(self.definition, str):
            return make_avro_decoder(registry, self.definition, self.schema)
        return make_protobuf_decoder(registry, self.definition, self.message, self.schema)


def _make_json_decoder(schema: StructType) -> Decoder:
    from trilogue.spark.payload.json_decoder import JsonDecoder
    from trilogue.spark.payload.json_object_decoder import JsonObjectDecoder, has_map

    return JsonObjectDecoder(schema) if has_map(schema) else JsonDecoder(schema)


def make_payload(options: PayloadOptions, registered: RegisteredSchema | None) -> Payload:
    """Return the payload of the options, with the schema of the registry where they give none."""
    is_framed = options.framing is Framing.CONFLUENT and options.format is not Format.JSON
    made = replace(
        _make(options, registered),
        column=options.column,
        framing=options.framing,
        registry=options.registry if is_framed else None,
    )
    made.make_decoder()  # what it cannot decode is an error of the driver
    return made


def _make(options: PayloadOptions, registered: RegisteredSchema | None) -> Payload:
    text = options.schema_text
    if registered is not None:
        _check_kind(options, registered.kind)
    if options.format is Format.PROTOBUF:
        return _make_protobuf(options, registered)
    if registered is not None:
        text = str(registered.definition)
    assert text is not None
    is_json = options.format is Format.JSON
    schema = parse_schema(text, is_json=is_json, name=options.name_option("Schema"))
    return Payload(options.format, schema, text, "", options.mode, options.corrupt_column)


def parse_schema(text: str, *, is_json: bool, name: str = "payloadSchema") -> StructType:
    """Return the struct of DDL, Spark's JSON of a schema, an Avro schema or a JSON Schema."""
    if not text.lstrip().startswith("{"):
        if not is_json:
            raise OptionError("payload=avro takes the Avro schema of the messages, as JSON")
        from trilogue.spark.payload.ddl import parse_ddl

        return parse_ddl(text)
    try:
        parsed = json.loads(text)
    except ValueError as problem:
        raise OptionError(f"option {name!r} is not JSON: {problem}") from None
    if is_json and parsed.get("type") == "struct":
        try:
            return StructType.fromJson(parsed)
        except Exception as problem:  # noqa: BLE001 - whatever PySpark raises
            raise OptionError(f"option {name!r} is no schema of Spark: {problem}") from None
    if is_json:
        from trilogue.spark.payload.json_schema import is_json_schema, parse_json_schema

        if is_json_schema(parsed):
            return parse_json_schema(text)
    from trilogue.spark.payload.avro_decoder import parse_avro_schema

    return parse_avro_schema(text, is_json=is_json)


def _make_protobuf(options: PayloadOptions, registered: RegisteredSchema | None) -> Payload:
    from trilogue.spark.payload.protobuf_decoder import parse_descriptor, parse_registered

    if registered is not None:
        definition, message = registered.definition, registered.message
        if isinstance(definition, str):
            definition, message = parse_registered(definition)
    else:
        assert options.descriptor is not None
        assert options.message is not None
        try:
            definition = Path(options.descriptor).read_bytes()
        except OSError as problem:
            raise OptionError(f"option {options.name_option('Descriptor')!r}: {problem}") from None
        message = options.message
    schema = parse_descriptor(definition, message)
    return Payload(
        options.format, schema, definition, message, options.mode, options.corrupt_column
    )


_KINDS = {
    Format.JSON: {"JSON"},
    Format.AVRO: {"AVRO"},
    Format.PROTOBUF: {"PROTOBUF_NATIVE", "PROTOBUFNATIVE"},
}


def _check_kind(options: PayloadOptions, kind: str) -> None:
    if kind.upper() not in _KINDS[options.format]:
        raise OptionError(
            f"the topic's schema in the registry is of type {kind}: option "
            f"{options.name_option('')!r} is {options.format.value}; choose the format of the "
            "messages, or give their schema by an option"
        )
