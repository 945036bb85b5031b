"""Payloads of Confluent's serializers and their JSON: Avro, JSON Schema and Protobuf.

    0 · id (4 bytes) · [Protobuf: indexes of the message in its file] · payload

The JSON of Avro has the branches of unions with their names, {"string": "x"}; that of Protobuf has
the names of fields as in the schema, as Confluent's proxy prints them.
"""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, cast

from trilogue.broker.schemas.compatibility import Definition
from trilogue.broker.schemas.sources import AVRO, JSON, PROTOBUF

FORMATS: Final[Mapping[str, str]] = {"avro": AVRO, "jsonschema": JSON, "protobuf": PROTOBUF}
NAMES: Final[Mapping[str, str]] = {language: name for name, language in FORMATS.items()}
HEADER: Final = struct.Struct(">BI")  # 0, and the id of the schema
DEPTH_MAX: Final = 64  # of messages inside of messages, in the indexes of Protobuf
VARINT_BYTES: Final = 5
DIALECTS: Final = "json-schema.org/"  # in the `$schema` of each dialect
EMPTY_TYPES: Final = frozenset({"null"})


class PayloadError(Exception):
    """A value that does not fit its schema, or bytes that are no value of it."""


class PayloadCodec(Protocol):
    """One schema: values of JSON to payloads and back; both raise PayloadError."""

    def encode(self, value: Any) -> bytes:
        """Return the payload of a value."""

    def decode(self, payload: bytes) -> Any:
        """Return the value of a payload."""


def make_codec(language: str, definition: Definition) -> PayloadCodec:
    """Return the codec of a definition; raises PayloadError. It may take long: not on the loop."""
    kinds: Mapping[str, Callable[[bytes], PayloadCodec]] = {
        AVRO: AvroCodec,
        JSON: JsonSchemaCodec,
        PROTOBUF: ProtobufCodec,
    }
    try:
        return kinds[language](definition.data)
    except Exception as problem:  # each library has errors of its own
        raise PayloadError(f"the schema cannot be used: {str(problem)[:200]}") from problem


def find_record_name(language: str, definition: Definition) -> str:
    """Return the full name of the record, for strategies that name subjects by it; "" without."""
    found = json.loads(definition.data)
    if not isinstance(found, dict):
        return ""
    if language == PROTOBUF:
        return str(found.get("rootMessageTypeName", ""))
    if language == JSON:
        return str(found.get("title", ""))
    name, space = str(found.get("name", "")), str(found.get("namespace", ""))
    return f"{space}.{name}" if space and "." not in name else name


class AvroCodec:
    """Avro. Logical types are the types that they annotate, in JSON too."""

    def __init__(self, definition: bytes) -> None:
        import fastavro

        bare = _without_logical_types(json.loads(definition))
        self._check_items(bare)
        self._schema = fastavro.parse_schema(bare)
        self._read = fastavro.schemaless_reader
        if _is_recursive(bare, frozenset()):
            # The compiled reader has no bound on its depth, and ends the process.
            from fastavro._read_py import schemaless_reader

            self._read = schemaless_reader

    def encode(self, value: Any) -> bytes:
        """Return the binary form of a value in Avro's JSON."""
        import fastavro

        try:
            (record,) = fastavro.json_reader(io.StringIO(json.dumps(value)), self._schema)
            out = io.BytesIO()
            fastavro.schemaless_writer(out, self._schema, record, strict=True)
        except Exception as problem:
            raise PayloadError(f"the value does not fit its schema: {problem}") from problem
        return out.getvalue()

    def decode(self, payload: bytes) -> Any:
        """Return Avro's JSON of a value."""
        import fastavro

        text = io.StringIO()
        try:
            record = self._read(io.BytesIO(payload), self._schema, None)
            fastavro.json_writer(text, self._schema, [record])
            return json.loads(text.getvalue())
        except Exception as problem:
            raise PayloadError(f"no value of the schema: {problem}") from problem

    def _check_items(self, schema: Any) -> None:
        """Refuse arrays of what takes no bytes: a few bytes would be any number of items."""
        if isinstance(schema, list):
            for each in schema:
                self._check_items(each)
        elif isinstance(schema, dict):
            if schema.get("type") == "array" and _is_empty(schema.get("items")):
                raise PayloadError("arrays of nulls and empty records are not served")
            for key in ("type", "items", "values", "fields"):
                self._check_items(schema.get(key))


def _is_empty(schema: Any) -> bool:
    """Whether values take no bytes."""
    if isinstance(schema, dict):
        if schema.get("type") in {"record", "error"}:
            return all(_is_empty(each.get("type")) for each in schema.get("fields", ()))
        return schema.get("size") == 0 or _is_empty(schema.get("type"))
    return schema in EMPTY_TYPES if isinstance(schema, str) else False


def _is_recursive(schema: Any, outside: frozenset[str]) -> bool:
    """Whether a type is used inside of itself; names without namespaces are taken for the same."""
    if isinstance(schema, str):
        return schema.rpartition(".")[2] in outside
    if isinstance(schema, list):
        return any(_is_recursive(each, outside) for each in schema)
    if not isinstance(schema, dict):
        return False
    if schema.get("type") in {"record", "error"}:
        outside |= {str(schema.get("name")).rpartition(".")[2]}
    parts = [schema.get(key) for key in ("type", "items", "values")]
    parts += [each.get("type") for each in schema.get("fields", ())]
    return any(_is_recursive(each, outside) for each in parts)


def _without_logical_types(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_logical_types(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {key: value for key, value in schema.items() if key != "logicalType"}
    for key in ("type", "items", "values"):
        if key in kept:
            kept[key] = _without_logical_types(kept[key])
    if "fields" in kept:
        kept["fields"] = [_without_logical_types(each) for each in kept["fields"]]
    return kept


class JsonSchemaCodec:
    """JSON Schema: a value is validated when it is produced; no other document is fetched."""

    def __init__(self, definition: bytes) -> None:
        import jsonschema_rs

        schema = json.loads(definition)
        if isinstance(schema, dict) and DIALECTS not in str(schema.get("$schema", DIALECTS)):
            del schema["$schema"]  # a word that no dialect has means nothing to Confluent's, too
        self._validator = jsonschema_rs.validator_for(schema, offline=True)

    def encode(self, value: Any) -> bytes:
        """Return the JSON of a value that fits the schema."""
        try:
            self._validator.validate(value)
            return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
        except Exception as problem:
            reason = str(problem).partition("\n")[0]
            raise PayloadError(f"the value does not fit its schema: {reason}") from problem

    def decode(self, payload: bytes) -> Any:
        """Return the JSON of a payload."""
        try:
            return json.loads(payload)
        except (ValueError, RecursionError) as problem:
            raise PayloadError(f"no JSON: {problem}") from problem


class ProtobufCodec:
    """Protobuf. A value that is produced is of the first message of the file."""

    def __init__(self, definition: bytes) -> None:
        from trilogue.broker.schemas.protobuf_schemas import find_root, make_pool

        self._pool = make_pool(definition)
        self._file = self._pool.FindFileByName(find_root(definition).name)

    def encode(self, value: Any) -> bytes:
        """Return the indexes of the first message, and the binary form of a value."""
        from google.protobuf.json_format import ParseDict

        try:
            message = self._make_message([0])
            ParseDict(value, message, descriptor_pool=self._pool)
            return b"\0" + cast("bytes", message.SerializeToString())
        except Exception as problem:
            raise PayloadError(f"the value does not fit its schema: {problem}") from problem

    def decode(self, payload: bytes) -> Any:
        """Return the JSON of the message that the indexes name."""
        from google.protobuf.json_format import MessageToDict

        try:
            indexes, start = _read_indexes(payload)
            message = self._make_message(indexes)
            message.ParseFromString(payload[start:])
            return MessageToDict(
                message,
                preserving_proto_field_name=True,
                always_print_fields_with_no_presence=True,
                descriptor_pool=self._pool,
            )
        except Exception as problem:
            raise PayloadError(f"no message of the schema: {problem}") from problem

    def _make_message(self, indexes: list[int]) -> Any:
        from google.protobuf.message_factory import GetMessageClass

        found = list(self._file.message_types_by_name.values())[indexes[0]]
        for each in indexes[1:]:
            found = found.nested_types[each]
        return GetMessageClass(found)()


def _read_indexes(payload: bytes) -> tuple[list[int], int]:
    """Return the indexes before a payload of Protobuf, and where it begins; raises ValueError."""
    count, position = _read_varint(payload, 0)
    if not 0 <= count <= DEPTH_MAX:
        raise ValueError(f"{count} indexes of messages")
    indexes: list[int] = []
    for _ in range(count):
        index, position = _read_varint(payload, position)
        if index < 0:
            raise ValueError("an index below 0")
        indexes.append(index)
    return indexes or [0], position


def _read_varint(payload: bytes, start: int) -> tuple[int, int]:
    """Return a number in zigzag form, and the position behind it; raises ValueError."""
    value = 0
    for place, octet in enumerate(payload[start : start + VARINT_BYTES]):
        value |= (octet & 0x7F) << 7 * place
        if octet < 0x80:
            return (value >> 1) ^ -(value & 1), start + place + 1
    raise ValueError("the indexes of the message are cut")
