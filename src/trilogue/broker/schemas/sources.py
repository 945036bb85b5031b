"""Schemas as clients of the schema registry write them, and as topics have them.

A source is a text in a language, with references to versions of other subjects. The topic has a
definition that needs no others (schemas/compatibility.py):

    AVRO        AVRO, with the types of references in place of their names
    JSON        JSON with the property `schema.language`: a JSON Schema, references in "$defs"
    PROTOBUF    PROTOBUF_NATIVE: the descriptors of the file and of those that it imports

The definition of a Pulsar client becomes a source in the same way: JSON and PROTOBUF with Avro
definitions are AVRO. Other types of schemas have no source. A text has one form, so that equal
sources are the same schema: Avro as its Java library prints it (avro_text.py), JSON without
spaces, Protobuf as its descriptor is printed.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec

from trilogue.broker.errors import IncompatibleSchema, InvalidSchema
from trilogue.broker.schemas import json_schemas
from trilogue.broker.schemas.avro_text import NAMED, find_space, join_name, print_avro
from trilogue.broker.schemas.compatibility import (
    AVRO_LIKE,
    BACKWARD,
    DEPTH_MAX,
    FORWARD,
    JSON_SCHEMA,
    NATIVE,
    SIZE_MAX,
    TRANSITIVE,
    Definition,
    check_compatible,
    check_definition,
    is_json_schema,
)
from trilogue.broker.topics.policies import CompatibilityStrategy

AVRO, JSON, PROTOBUF = "AVRO", "JSON", "PROTOBUF"
LANGUAGES: Final = (JSON, PROTOBUF, AVRO)
REFERENCES_MAX: Final = 100  # of one schema
REFERENCE_BYTES: Final = 256  # of memory that a reference takes beside its names, about
PRINTED_MAX: Final = 64  # texts that are kept, of SIZE_MAX each
NESTED_MAX: Final = 16  # references of references


class Reference(msgspec.Struct, frozen=True):
    """The name by which a schema names a version of another subject."""

    name: str
    subject: str
    version: int


class SchemaSource(msgspec.Struct, frozen=True, omit_defaults=True):
    """A schema as its author wrote it."""

    text: str
    language: str = AVRO
    references: tuple[Reference, ...] = ()

    @property
    def size(self) -> int:
        """The bytes of the text and of the references, about."""
        names = sum(len(each.name) + len(each.subject) for each in self.references)
        return len(self.text) + names + REFERENCE_BYTES * len(self.references)


Resolved = Mapping[str, Definition]  # what the references of a schema name


def make_definition(source: SchemaSource, resolved: Resolved) -> tuple[SchemaSource, Definition]:
    """Return a source in its own form, and its definition; InvalidSchema."""
    if source.language == PROTOBUF:
        source, definition = _define_protobuf(source, resolved)
        return source, _check_size(definition)
    source = msgspec.structs.replace(source, text=_compact(source.text))
    if source.language == JSON:
        definition = Definition(JSON, _bundle_json(source.text, resolved), (JSON_SCHEMA,))
    else:
        source, definition = _define_avro(source, resolved)
    return source, _check_size(definition)


def _define_avro(source: SchemaSource, resolved: Resolved) -> tuple[SchemaSource, Definition]:
    types: dict[str, Any] = {}
    for each in resolved.values():
        _collect_types(json.loads(each.data), "", types, 0)
    check_definition(Definition(AVRO, _inline_avro(source.text, types)))
    source = msgspec.structs.replace(source, text=print_avro(source.text, types))
    return source, Definition(AVRO, _inline_avro(source.text, types))


def find_resolved(source: SchemaSource, definitions: Sequence[Definition]) -> int | None:
    """Return which definition is that of an Avro source without references: its place, or None.

    Java's serializers send a schema with the types of its references in their places, and mean the
    version that has the references.
    """
    for place, each in enumerate(definitions):
        if _print_resolved(each.data) == source.text:
            return place
    return None


@lru_cache(maxsize=PRINTED_MAX)
def _print_resolved(data: bytes) -> str:
    return print_avro(data.decode())


def _check_size(definition: Definition) -> Definition:
    if len(definition.data) > SIZE_MAX:
        raise InvalidSchema(f"a schema with its references has more than {SIZE_MAX} bytes")
    return definition


def find_source(definition: Definition) -> SchemaSource | None:
    """Return the source of a topic's definition; None: no language has it."""
    if definition.kind in AVRO_LIKE:
        language = JSON if definition.kind == JSON and is_json_schema(definition) else AVRO
        text = _print_json(definition.data, language)
    elif definition.kind == NATIVE:
        language, text = PROTOBUF, _print_native(definition.data)
    else:
        return None
    return None if text is None else SchemaSource(text, language)


def check_change(
    new: Definition, olds: Sequence[Definition], strategy: CompatibilityStrategy
) -> None:
    """Refuse a definition that is incompatible with `olds`, newest last: IncompatibleSchema."""
    if not olds or strategy is CompatibilityStrategy.ALWAYS_COMPATIBLE:
        return
    if new.kind != NATIVE and not is_json_schema(new):
        check_compatible(new, olds, strategy, strict=True)
        return
    for old in olds if strategy in TRANSITIVE else olds[-1:]:
        if old.kind != new.kind or is_json_schema(old) != is_json_schema(new):
            raise IncompatibleSchema(f"the schema before is of another type, {old.kind}")
        for reader, writer, strategies in ((new, old, BACKWARD), (old, new, FORWARD)):
            reason = _find_difference(reader, writer) if strategy in strategies else ""
            if reason:
                raise IncompatibleSchema(reason)


def _find_difference(reader: Definition, writer: Definition) -> str:
    if reader.kind == JSON:
        return json_schemas.find_difference(reader.data, writer.data)
    from trilogue.broker.schemas import protobuf_schemas

    return protobuf_schemas.find_difference(reader.data, writer.data)


def _define_protobuf(source: SchemaSource, resolved: Resolved) -> tuple[SchemaSource, Definition]:
    from trilogue.broker.schemas.protobuf_printer import print_proto
    from trilogue.broker.schemas.protobuf_schemas import make_native, read_file

    imports = {name: each.data for name, each in resolved.items() if each.kind == NATIVE}
    if len(imports) < len(resolved):
        raise InvalidSchema("a Protobuf schema references Protobuf schemas")
    file = read_file(source.text, imports)
    definition = Definition(NATIVE, make_native(file, imports))
    return msgspec.structs.replace(source, text=print_proto(file)), definition


@lru_cache(maxsize=PRINTED_MAX)
def _print_json(data: bytes, language: str) -> str | None:
    """Return the text of a definition in JSON; None: it is none."""
    try:
        text = _compact(data.decode())
        return print_avro(text) if language == AVRO else text
    except (InvalidSchema, UnicodeDecodeError):
        return None


@lru_cache(maxsize=PRINTED_MAX)
def _print_native(native: bytes) -> str | None:
    """Return the text of a PROTOBUF_NATIVE definition; None: Pulsar's client sent nonsense."""
    from trilogue.broker.schemas.protobuf_schemas import print_native

    try:
        return print_native(native)
    except InvalidSchema:
        return None


def encode_descriptor(definition: Definition) -> str:
    """Return the descriptor of a PROTOBUF_NATIVE definition in base64."""
    from trilogue.broker.schemas.protobuf_schemas import find_root

    return base64.b64encode(find_root(definition.data).SerializeToString()).decode()


def _bundle_json(text: str, resolved: Resolved) -> bytes:
    """Return a JSON Schema with those that it references in "$defs", found by their `$id`."""
    schema = json_schemas.check_json_schema(text.encode())
    if not resolved:
        return text.encode()
    if not isinstance(schema, dict) or any(not is_json_schema(each) for each in resolved.values()):
        raise InvalidSchema("a JSON Schema references JSON Schemas")
    parts = {
        name: {**found, "$id": name}
        for name, found in ((name, json.loads(each.data)) for name, each in resolved.items())
        if isinstance(found, dict)
    }
    return json.dumps({**schema, "$defs": {**schema.get("$defs", {}), **parts}}).encode()


def _compact(text: str) -> str:
    """Return JSON without spaces; InvalidSchema."""
    if not text.strip():
        raise InvalidSchema("Empty schema")
    try:
        found = json.loads(text)
        compact = json.dumps(found, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        compact.encode()
    except (ValueError, RecursionError) as error:
        raise InvalidSchema("a schema that is no JSON") from error
    return compact


def _inline_avro(text: str, types: Mapping[str, Any]) -> bytes:
    """Return an Avro definition with the types of references at the first place of their names."""
    if not types:
        return text.encode()
    inlined = _Inliner(types).walk(json.loads(text), "", 0)
    return json.dumps(inlined, separators=(",", ":")).encode()


def _collect_types(schema: Any, space: str, types: dict[str, Any], depth: int) -> None:
    """Add the named types of a definition, by their full names."""
    if depth > DEPTH_MAX:
        raise InvalidSchema(f"a schema of more than {DEPTH_MAX} types within types")
    if isinstance(schema, list):
        for each in schema:
            _collect_types(each, space, types, depth + 1)
        return
    if not isinstance(schema, dict):
        return
    if schema.get("type") in NAMED and isinstance(schema.get("name"), str):
        space = find_space(schema, space)
        types.setdefault(join_name(schema["name"], space), {**schema, "namespace": space})
    for key in ("type", "items", "values"):
        _collect_types(schema.get(key), space, types, depth + 1)
    for field in schema.get("fields") or ():
        if isinstance(field, dict):
            _collect_types(field.get("type"), space, types, depth + 1)


class _Inliner:
    """Replaces the first use of each referenced type by its definition."""

    def __init__(self, types: Mapping[str, Any]) -> None:
        self._types = types
        self._defined: set[str] = set()

    def walk(self, schema: Any, space: str, depth: int) -> Any:
        """Return a schema with the definitions in place."""
        if depth > DEPTH_MAX:
            raise InvalidSchema(f"a schema of more than {DEPTH_MAX} types within types")
        if isinstance(schema, str):
            return self._walk_name(schema, space, depth)
        if isinstance(schema, list):
            return [self.walk(each, space, depth + 1) for each in schema]
        return self._walk_object(schema, space, depth) if isinstance(schema, dict) else schema

    def _walk_name(self, text: str, space: str, depth: int) -> Any:
        for name in (join_name(text, space), text):
            if name in self._defined:
                return name
            if name in self._types:
                return self.walk(self._types[name], "", depth + 1)
        return text

    def _walk_object(self, schema: dict[str, Any], space: str, depth: int) -> Any:
        made = dict(schema)
        if schema.get("type") in NAMED and isinstance(schema.get("name"), str):
            space = find_space(schema, space)
            name = join_name(schema["name"], space)
            if name in self._defined:
                return name
            self._defined.add(name)
        elif "type" in schema:
            made["type"] = self.walk(schema["type"], space, depth + 1)
        for key in ("items", "values"):
            if key in schema:
                made[key] = self.walk(schema[key], space, depth + 1)
        if isinstance(schema.get("fields"), list):
            made["fields"] = [self._walk_field(each, space, depth) for each in schema["fields"]]
        return made

    def _walk_field(self, field: Any, space: str, depth: int) -> Any:
        if not isinstance(field, dict) or "type" not in field:
            return field
        return {**field, "type": self.walk(field["type"], space, depth + 1)}
