"""The text of an Avro schema as Avro's Java library prints it.

Confluent's registry keeps schemas in this form, so that texts which differ in spaces, in the order
of attributes or in attributes without meaning are the same schema: the text that a Python client
sends and the one of a Java client. Attributes have a fixed order, then those that Avro does not
know; names in the namespace that encloses them are short, `"ascending"` and the namespace around
are left out, and a primitive type without attributes is its name.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any, Final

from trilogue.broker.errors import InvalidSchema
from trilogue.broker.schemas.compatibility import DEPTH_MAX

PRIMITIVES: Final = frozenset(
    {"null", "boolean", "int", "long", "float", "double", "bytes", "string"}
)
NAMED: Final = ("record", "error", "enum", "fixed")
KEYWORDS: Final = PRIMITIVES | frozenset(NAMED) | {"array", "map", "union"}
RESERVED: Final = frozenset({
    "doc", "fields", "items", "name", "namespace", "size", "symbols", "values", "type", "aliases"
})  # fmt: skip
FIELD_RESERVED: Final = frozenset({"default", "doc", "name", "order", "type", "aliases"})


def print_avro(text: str, known: Collection[str] = ()) -> str:
    """Return a valid schema's text; `known` are full names that its references define."""
    return encode(_Printer(known).print_schema(json.loads(text), "", 0))


def encode(schema: Any) -> str:
    """Return JSON without spaces."""
    return json.dumps(schema, separators=(",", ":"), ensure_ascii=False)


def find_space(schema: Mapping[str, Any], space: str) -> str:
    """Return the namespace of a named type that stands within `space`."""
    return schema["name"].rpartition(".")[0] or str(schema.get("namespace", space) or "")


def join_name(name: str, space: str) -> str:
    """Return the full name of a name that is used within `space`."""
    return name if "." in name or not space else f"{space}.{name}"


class _Printer:
    """Puts the attributes of a schema into their order; types are known once they were defined."""

    def __init__(self, known: Collection[str]) -> None:
        self._known = set(known)

    def print_schema(self, schema: Any, space: str, depth: int) -> Any:
        if depth > DEPTH_MAX:
            raise InvalidSchema(f"a schema of more than {DEPTH_MAX} types within types")
        if isinstance(schema, str):
            return self._print_name(schema, space)
        if isinstance(schema, list):
            return [self.print_schema(each, space, depth + 1) for each in schema]
        if isinstance(schema, dict) and "type" in schema:
            return self._print_object(schema, schema["type"], space, depth)
        return schema

    def _print_object(self, schema: dict[str, Any], kind: Any, space: str, depth: int) -> Any:
        if not isinstance(kind, str):  # Java refuses it, others take the type within
            return {**schema, "type": self.print_schema(kind, space, depth + 1)}
        if kind in NAMED and isinstance(schema.get("name"), str):
            return self._print_named(schema, kind, space, depth)
        made: dict[str, Any] = {"type": kind}
        if kind in PRIMITIVES:
            made |= _others(schema, RESERVED)
            return made if len(made) > 1 else kind
        inner = {"array": "items", "map": "values"}.get(kind)
        if inner is not None and inner in schema:
            made[inner] = self.print_schema(schema[inner], space, depth + 1)
            return made | _others(schema, RESERVED)
        return self._print_name(kind, space)

    def _print_name(self, text: str, space: str) -> str:
        if text in PRIMITIVES:
            return text
        full = join_name(text, space)
        if full not in self._known and text in self._known:
            full = text
        return _shorten(full, space)

    def _print_named(self, schema: dict[str, Any], kind: str, around: str, depth: int) -> Any:
        space = find_space(schema, around)
        full = join_name(schema["name"], space)
        self._known.add(full)
        made: dict[str, Any] = {"type": kind, "name": full.rpartition(".")[2]}
        if space != around:
            made["namespace"] = space
        if isinstance(schema.get("doc"), str):
            made["doc"] = schema["doc"]
        reserved = RESERVED
        if kind == "enum":
            reserved = RESERVED | {"default"}
            made |= {each: schema[each] for each in ("symbols", "default") if each in schema}
        elif kind == "fixed":
            made |= {each: schema[each] for each in ("size",) if each in schema}
        else:
            fields = schema.get("fields")
            made["fields"] = [
                self._print_field(each, space, depth)
                for each in (fields if isinstance(fields, list) else ())
            ]
        made |= _others(schema, reserved)
        aliases = schema.get("aliases")
        if isinstance(aliases, list) and aliases:
            names = [join_name(each, space) for each in aliases if isinstance(each, str)]
            made["aliases"] = list(dict.fromkeys(_shorten(each, space) for each in names))
        return made

    def _print_field(self, field: Any, space: str, depth: int) -> Any:
        if not isinstance(field, dict) or "type" not in field:
            return field
        made = {
            "name": field.get("name"), "type": self.print_schema(field["type"], space, depth + 1)
        }  # fmt: skip
        if isinstance(field.get("doc"), str):
            made["doc"] = field["doc"]
        if "default" in field:
            made["default"] = field["default"]
        order = field.get("order")
        if isinstance(order, str) and order.lower() != "ascending":
            made["order"] = order.lower()
        if isinstance(field.get("aliases"), list) and field["aliases"]:
            made["aliases"] = field["aliases"]
        return made | _others(field, FIELD_RESERVED)


def _others(schema: Mapping[str, Any], reserved: Collection[str]) -> dict[str, Any]:
    return {name: value for name, value in schema.items() if name not in reserved}


def _shorten(full: str, space: str) -> str:
    """Return a name as it is written within `space`: short there, unless it is a type's word."""
    place, _, name = full.rpartition(".")
    return name if place == space and name not in KEYWORDS else full
