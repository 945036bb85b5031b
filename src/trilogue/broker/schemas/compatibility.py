"""Validity, equality and compatibility of schemas.

The rules are those of Apache Pulsar 4.0.7: the answers of its own classes, pair by pair, are in
tests/vectors/pulsar/schemas.json.

- AVRO, JSON and PROTOBUF schemas are Avro definitions in JSON. A reader's schema is compatible with
  a writer's if Avro can resolve them; names of records and missing symbols of enums do not matter,
  because they do not stop Avro's resolver; for the schema registry they do (`strict`), as at
  Confluent's. JSON schemas of clients before protocol version 13 are in JSON Schema's form,
  which counts as compatible with everything of the same id; so are those of the schema registry,
  which have the property `schema.language`.
- KEY_VALUE schemas are two: both must be compatible with those before, and keep their types.
- PROTOBUF_NATIVE schemas keep their root message.
- Primitive types have no definition: they are compatible with themselves.

BACKWARD: the new schema reads what the old ones wrote; FORWARD: the old ones read what the new one
writes; FULL: both. Without _TRANSITIVE only the newest of the old schemas counts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

from trilogue.broker.errors import IncompatibleSchema, InvalidSchema
from trilogue.broker.topics.policies import CompatibilityStrategy

SIZE_MAX: Final = 512 << 10
"""Bytes of a definition. Comparing two large ones takes long (`is_slow_to_check`)."""
DEPTH_MAX: Final = 64  # types within types
BRANCHES_MAX: Final = 100  # of a union: those of two schemas are compared each with each
TYPES_MAX: Final = 4_000  # in one definition
_SLOW_FROM: Final = 4 << 10

PRIMITIVES: Final = frozenset(
    {
        "STRING", "BOOLEAN", "INT8", "INT16", "INT32", "INT64", "FLOAT", "DOUBLE", "DATE", "TIME",
        "TIMESTAMP", "INSTANT", "LOCAL_DATE", "LOCAL_TIME", "LOCAL_DATE_TIME", "BYTES",
        "NONE",
    }
)  # fmt: skip
AVRO_LIKE: Final = frozenset({"AVRO", "JSON", "PROTOBUF"})
KEY_VALUE, NATIVE, JSON, STRING = "KEY_VALUE", "PROTOBUF_NATIVE", "JSON", "STRING"
KINDS: Final = PRIMITIVES | AVRO_LIKE | {KEY_VALUE, NATIVE}

_AVRO_PRIMITIVES: Final = frozenset(
    {"null", "boolean", "int", "long", "float", "double", "bytes", "string"}
)
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
BACKWARD: Final = {
    CompatibilityStrategy.BACKWARD, CompatibilityStrategy.BACKWARD_TRANSITIVE,
    CompatibilityStrategy.FULL, CompatibilityStrategy.FULL_TRANSITIVE
}  # fmt: skip
FORWARD: Final = {
    CompatibilityStrategy.FORWARD, CompatibilityStrategy.FORWARD_TRANSITIVE,
    CompatibilityStrategy.FULL, CompatibilityStrategy.FULL_TRANSITIVE
}  # fmt: skip
TRANSITIVE: Final = frozenset(
    {
        CompatibilityStrategy.BACKWARD_TRANSITIVE,
        CompatibilityStrategy.FORWARD_TRANSITIVE,
        CompatibilityStrategy.FULL_TRANSITIVE,
    }
)


class Definition(NamedTuple):
    """A schema without its author and time. `kind` is one of KINDS."""

    kind: str
    data: bytes = b""
    properties: tuple[tuple[str, str], ...] = ()

    @property
    def property_map(self) -> dict[str, str]:
        """The properties by their keys."""
        return dict(self.properties)


JSON_SCHEMA: Final = ("schema.language", "json-schema")
"""The property of a JSON schema that is a JSON Schema, whatever its type is."""


def is_slow_to_check(definition: Definition) -> bool:
    """Whether comparing it may take too long for the event loop."""
    return len(definition.data) > _SLOW_FROM


def check_definition(definition: Definition) -> None:
    """Refuse a malformed definition: InvalidSchema."""
    if definition.kind not in KINDS:
        raise InvalidSchema(f"{definition.kind[:40]} is no type of schema that is kept")
    if len(definition.data) > SIZE_MAX:
        raise InvalidSchema(f"a schema of more than {SIZE_MAX} bytes")
    if definition.kind in AVRO_LIKE:
        if definition.kind != JSON or not is_json_schema(definition):
            _avro(definition.data)
    elif definition.kind == KEY_VALUE:
        for part in key_and_value(definition):
            if part.kind == KEY_VALUE:
                raise InvalidSchema("a key-value schema within a key-value schema")
            check_definition(part)
    elif definition.kind == NATIVE:
        root_message(definition.data)
    elif definition.data and definition.kind != STRING:  # C++ clients send "null" for strings
        raise InvalidSchema(f"a {definition.kind} schema has no definition")


def is_same(one: Definition, other: Definition) -> bool:
    """Whether two schemas are equal; documentation and aliases in Avro do not matter."""
    if one.kind != other.kind:
        return False
    if one.kind == KEY_VALUE:  # the types of key and value stand in the properties
        return all(map(is_same, key_and_value(one), key_and_value(other)))
    if one.data == other.data:
        return True
    if one.kind not in AVRO_LIKE or is_json_schema(one) or is_json_schema(other):
        return False
    return bool(_avro(one.data)[0] == _avro(other.data)[0])


def check_compatible(
    new: Definition,
    olds: Sequence[Definition],
    strategy: CompatibilityStrategy,
    *,
    strict: bool = False,
) -> None:
    """Refuse a new schema that is incompatible with `olds`, newest last.

    `strict`: by Avro's specification, as Confluent's registry does it, where names of records and
    missing symbols of enums matter.
    """
    if strategy is CompatibilityStrategy.ALWAYS_COMPATIBLE or not olds:
        return
    for old in olds:
        if old.kind != new.kind:
            raise IncompatibleSchema(
                f"Incompatible schema: exists schema type {old.kind}, new schema type {new.kind}"
            )
    compared = olds if strategy in TRANSITIVE else olds[-1:]
    if all(is_same(new, old) for old in compared):
        return
    if strategy is CompatibilityStrategy.ALWAYS_INCOMPATIBLE:
        raise IncompatibleSchema("the strategy here is that no schema goes with another")
    check = _CHECKS.get(new.kind)
    if check is not None:
        for old in compared:
            check(new, old, strategy, strict)


def _check_avro(
    new: Definition, old: Definition, strategy: CompatibilityStrategy, strict: bool
) -> None:
    if new.kind == JSON and (is_json_schema(new) or is_json_schema(old)):
        _check_old_json(new, old)
        return
    ours, theirs = _avro(new.data)[1], _avro(old.data)[1]
    causes = _STRICT_CAUSES if strict else _CAUSES
    if strategy in BACKWARD and not can_read(ours, theirs, strict=strict):
        raise IncompatibleSchema(f"the new schema cannot read what the old one wrote ({causes})")
    if strategy in FORWARD and not can_read(theirs, ours, strict=strict):
        raise IncompatibleSchema(f"the old schema cannot read what the new one writes ({causes})")


_CAUSES: Final = "a field without default, or of another type"
_STRICT_CAUSES: Final = f"{_CAUSES}, another name, or a symbol that an enum lacks"


def _check_key_value(
    new: Definition, old: Definition, strategy: CompatibilityStrategy, strict: bool
) -> None:
    for ours, theirs in zip(key_and_value(new), key_and_value(old), strict=True):
        if ours.kind != theirs.kind:
            raise IncompatibleSchema(
                f"key or value schemas are of different types: {theirs.kind}, {ours.kind}"
            )
        check_compatible(ours, [theirs], strategy, strict=strict)


def _check_native(
    new: Definition, old: Definition, _strategy: CompatibilityStrategy, _strict: bool
) -> None:
    if root_message(new.data) != root_message(old.data):
        raise IncompatibleSchema("the root message may not change")


def _check_old_json(new: Definition, old: Definition) -> None:
    if is_json_schema(new) and is_json_schema(old):
        ours, theirs = (json.loads(each.data) for each in (new, old))
        both = isinstance(ours, dict) and isinstance(theirs, dict)
        if both and ours.get("id") != theirs.get("id"):
            raise IncompatibleSchema("the JSON schemas have different ids")


_Check = Callable[[Definition, Definition, CompatibilityStrategy, bool], None]
_CHECKS: Final[Mapping[str, _Check]] = {
    **dict.fromkeys(AVRO_LIKE, _check_avro),
    KEY_VALUE: _check_key_value,
    NATIVE: _check_native,
}


# ---- what stands in definitions


def key_and_value(definition: Definition) -> tuple[Definition, Definition]:
    """Split a key-value schema: size, key's definition, size, value's definition."""
    data, properties = definition.data, definition.property_map
    parts = []
    for which in ("key", "value"):
        size = int.from_bytes(data[:4], "big", signed=True)
        if len(data) < 4 or size > len(data) - 4:
            raise InvalidSchema(f"the {which}'s schema in a key-value schema is cut")
        octets = data[4 : 4 + max(0, size)]
        data = data[4 + max(0, size) :]
        kind = properties.get(f"{which}.schema.type", "BYTES")
        more = json_properties(properties.get(f"{which}.schema.properties", ""))
        parts.append(Definition(kind, octets, more))
    if data:
        raise InvalidSchema(f"{len(data)} bytes after a key-value schema")
    return parts[0], parts[1]


def json_properties(text: str) -> tuple[tuple[str, str], ...]:
    """Read the properties that a key-value schema keeps of its parts; none where there are none."""
    if not text:
        return ()
    try:
        found = json.loads(text)
    except ValueError as error:
        raise InvalidSchema("properties of a key or value schema are no JSON") from error
    if not isinstance(found, dict):
        raise InvalidSchema("properties of a key or value schema are no object")
    return tuple((str(key), str(value)) for key, value in found.items())


def root_message(data: bytes) -> str:
    """The name of the root message of a PROTOBUF_NATIVE schema."""
    found = _json(data)
    name = found.get("rootMessageTypeName") if isinstance(found, dict) else None
    if not isinstance(name, str) or not name or "fileDescriptorSet" not in found:
        raise InvalidSchema("a PROTOBUF_NATIVE schema names its root message and its descriptors")
    return name


def _json(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise InvalidSchema("a definition that is no JSON") from error


def is_json_schema(definition: Definition) -> bool:
    """Whether a definition is a JSON Schema, as clients before protocol 13 send it."""
    if JSON_SCHEMA in definition.properties:
        return True
    try:
        found = json.loads(definition.data)
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict) and found.get("type") == "object"


# ---- Avro


def _avro(data: bytes) -> tuple[Any, Any]:
    """Read an Avro definition: what it comes to, to be compared, and as Avro's library has it."""
    return _read_avro(data) if len(data) > _SLOW_FROM else _read_short(data)


@lru_cache(maxsize=256)
def _read_short(data: bytes) -> tuple[Any, Any]:
    return _read_avro(data)


def _read_avro(data: bytes) -> tuple[Any, Any]:
    import avro.schema

    if data.count(b"{") > TYPES_MAX:
        raise InvalidSchema(f"a schema of more than {TYPES_MAX} types and fields")
    found = _json(data)
    canonical = _canonical(found, "", 0)
    try:
        return canonical, avro.schema.make_avsc_object(_plain(found), validate_names=False)
    except Exception as error:  # it raises what Python does on nonsense, besides its own
        raise InvalidSchema(f"no Avro schema: {str(error)[:200]}") from error


def _canonical(schema: Any, space: str, depth: int) -> Any:
    """Return the canonical form of a definition; check names and depth."""
    if depth > DEPTH_MAX:
        raise InvalidSchema(f"a schema of more than {DEPTH_MAX} types within types")
    if isinstance(schema, str):
        return schema if schema in _AVRO_PRIMITIVES or "." in schema else _full(schema, space)
    if isinstance(schema, list):
        if len(schema) > BRANCHES_MAX:
            raise InvalidSchema(f"a union of more than {BRANCHES_MAX} types")
        return [_canonical(each, space, depth + 1) for each in schema]
    if not isinstance(schema, dict):
        raise InvalidSchema("a type is a name, a list or an object")
    kind = schema.get("type")
    if isinstance(kind, str):
        return _canonical_object(schema, kind, space, depth)
    rest = {key: value for key, value in schema.items() if key != "type"}
    inner = _canonical(kind, space, depth + 1)
    return {**rest, "type": inner} if rest else inner


def _canonical_object(schema: dict[str, Any], kind: str, space: str, depth: int) -> Any:
    made = {key: value for key, value in schema.items() if key not in _UNIMPORTANT}
    if kind in {"record", "error", "enum", "fixed"}:
        name = schema.get("name")
        if not isinstance(name, str) or not _NAME.match(name.rpartition(".")[2]):
            raise InvalidSchema(f"{str(name)[:60]!r} is no name")
        space = name.rpartition(".")[0] or str(schema.get("namespace", space) or "")
        made["name"] = _full(name.rpartition(".")[2], space)
        made.pop("namespace", None)
    if kind in {"record", "error"}:
        made["fields"] = _fields(schema.get("fields"), space, depth)
    inner = {"array": "items", "map": "values"}.get(kind)
    if inner is not None and inner in schema:
        made[inner] = _canonical(schema[inner], space, depth + 1)
    return made if len(made) > 1 else _canonical(kind, space, depth + 1)


_UNIMPORTANT: Final = frozenset({"doc", "aliases"})


def _fields(fields: Any, space: str, depth: int) -> list[Any]:
    if not isinstance(fields, list):
        raise InvalidSchema("a record has a list of fields")
    found = []
    for each in fields:
        if not isinstance(each, dict) or "type" not in each:
            raise InvalidSchema("a field has a name and a type")
        name = each.get("name")
        if not isinstance(name, str) or not _NAME.match(name):
            raise InvalidSchema(f"{str(name)[:60]!r} is no name of a field")
        made = {key: value for key, value in each.items() if key not in _UNIMPORTANT}
        made["type"] = _canonical(each["type"], space, depth + 1)
        found.append(made)
    return found


def _full(name: str, space: str) -> str:
    return f"{space}.{name}" if space else name


def _plain(schema: Any) -> Any:
    """Remove what does not affect resolution, and what Avro's library warns about."""
    if isinstance(schema, list):
        return [_plain(each) for each in schema]
    if isinstance(schema, dict):
        return {
            key: _plain(value) if key in {"type", "fields", "items", "values"} else value
            for key, value in schema.items()
            if key not in {"logicalType", "doc"}
        }
    return "record" if schema == "error" else schema


def can_read(reader: Any, writer: Any, *, strict: bool = False) -> bool:
    """Whether Avro resolves what one schema wrote for a reader with another."""
    from avro.compatibility import SchemaCompatibilityType

    try:
        result = _checker(strict).get_compatibility(reader, writer)
    except Exception as error:  # it raises what Python does where it did not expect something
        raise IncompatibleSchema(f"not to be compared: {str(error)[:200]}") from error
    return result.compatibility is SchemaCompatibilityType.compatible


def _checker(strict: bool) -> Any:
    """Return Avro's own checker; if not `strict`, with the rules of the resolver of Pulsar."""
    from avro.compatibility import (
        CompatibleResult,
        ReaderWriterCompatibilityChecker,
        SchemaIncompatibilityType,
        check_schema_names,
        incompatible,
        merge,
    )

    class Checker(ReaderWriterCompatibilityChecker):
        def calculate_compatibility(self, reader: Any, writer: Any, location: Any) -> Any:
            if reader.type == writer.type == "record":
                named = check_schema_names(reader, writer, location) if strict else CompatibleResult
                return merge(named, self.records(reader, writer, location))
            if not strict and reader.type == writer.type == "enum":
                return check_schema_names(reader, writer, location)
            return super().calculate_compatibility(reader, writer, location)

        def records(self, reader: Any, writer: Any, location: Any) -> Any:
            result = CompatibleResult
            for field in reader.fields:
                theirs = _written(reader, field, writer)
                if theirs is not None:
                    found = self.get_compatibility(field.type, theirs.type, "type", location)
                elif _has_default(field):
                    continue
                else:
                    reason = SchemaIncompatibilityType.reader_field_missing_default_value
                    found = incompatible(reason, field.name, location)
                result = merge(result, found)
            return result

    return Checker()  # type: ignore[no-untyped-call]


def _written(reader: Any, field: Any, writer: Any) -> Any:
    """Find a reader's field in a writer's record; other names of it count in the same record."""
    found = writer.fields_dict.get(field.name)
    if found is None and writer.fullname in {reader.fullname, *reader.props.get("aliases", ())}:
        for alias in field.props.get("aliases", ()):
            found = found or writer.fields_dict.get(alias)
    return found


def _has_default(field: Any) -> bool:
    from avro.io import validate

    if not field.has_default:
        return False
    kind = field.type.schemas[0] if field.type.type == "union" else field.type
    if kind.type in {"bytes", "fixed", "record", "array", "map"}:
        return True  # bytes are written as text there, which only the reader itself can judge
    return bool(validate(kind, field.default))
