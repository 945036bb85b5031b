"""Compatibility of JSON Schemas: whether what one schema accepts is accepted by another.

A reader's schema is compatible with a writer's if each value that the writer's accepts is accepted
by the reader's. As in Confluent's registry, a property may be added to an open content model only
where the old schema knew nothing of it and the new one sets no condition (or the model is closed),
and bounds may only widen. What is not compared (`not`, `if`, patterns) has to be the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from trilogue.broker.errors import InvalidSchema

DEPTH_MAX: Final = 64
STEPS_MAX: Final = 50_000  # comparisons of one schema with another

_TYPES: Final = ("null", "boolean", "object", "array", "number", "integer", "string")
_ALL_TYPES: Final = frozenset(_TYPES)
_LOWER: Final = ("minLength", "minItems", "minProperties", "minimum", "exclusiveMinimum")
_UPPER: Final = ("maxLength", "maxItems", "maxProperties", "maximum", "exclusiveMaximum")
_SAME: Final = ("pattern", "format", "not", "if", "then", "else", "dependencies", "contains",
    "patternProperties", "propertyNames", "dependentRequired", "dependentSchemas",
    "multipleOf", "prefixItems", "allOf")  # fmt: skip


def check_json_schema(text: bytes) -> Any:
    """Return the value of a JSON Schema; InvalidSchema."""
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidSchema("a schema that is no JSON") from error
    if not isinstance(schema, dict | bool):
        raise InvalidSchema("a JSON Schema is an object or a boolean")
    _check(schema, 0)
    return schema


def _check(schema: Any, depth: int) -> None:
    if depth > DEPTH_MAX:
        raise InvalidSchema(f"a schema of more than {DEPTH_MAX} levels")
    if not isinstance(schema, dict):
        return
    kinds = schema.get("type", [])
    for kind in kinds if isinstance(kinds, list) else [kinds]:
        if not isinstance(kind, str) or kind not in _ALL_TYPES:
            raise InvalidSchema(f"{str(kind)[:40]!r} is no type of JSON")
    for key, wanted in _SHAPES.items():
        if not isinstance(schema.get(key, wanted()), wanted):
            raise InvalidSchema(f"{key} is {'an object' if wanted is dict else 'a list'}")
    for each in _parts(schema):
        _check(each, depth + 1)


def _parts(schema: Mapping[str, Any]) -> Iterator[Any]:
    """Iterate over the schemas inside a schema."""
    for key in ("properties", "$defs", "definitions", "patternProperties"):
        yield from schema.get(key, {}).values()
    for key in ("oneOf", "anyOf", "allOf"):
        yield from schema.get(key, [])
    for key in ("items", "additionalProperties", "not"):
        yield schema.get(key)


_SHAPES: Final[Mapping[str, type]] = {
    **dict.fromkeys(("properties", "$defs", "definitions", "patternProperties"), dict),
    **dict.fromkeys(("required", "oneOf", "anyOf", "allOf", "enum"), list),
}


def find_difference(reader: bytes, writer: bytes) -> str:
    """Return the first reason why a reader's schema is incompatible; "" if it is compatible."""
    ours, theirs = json.loads(reader), json.loads(writer)
    return next(_Comparison(ours, theirs, [0]).compare(ours, theirs, "#", 0), "")


class _Comparison:
    """One schema against another; pairs that references lead to again are not compared again."""

    def __init__(self, reader: Any, writer: Any, steps: list[int]) -> None:
        self._roots = (reader, writer)
        self._compared: set[tuple[int, int]] = set()
        self._steps = steps  # one count, for the comparisons of branches too

    def compare(self, reader: Any, writer: Any, path: str, depth: int) -> Iterator[str]:
        """Iterate over the reasons why the reader's schema refuses what the writer's accepts."""
        self._steps[0] += 1
        if depth > DEPTH_MAX or self._steps[0] > STEPS_MAX:
            yield f"{path}: too deep to compare"
            return
        ours, theirs = self._follow(reader, 0), self._follow(writer, 1)
        if ours is True or ours == {} or theirs is False or ours == theirs:
            return
        if ours is False or not isinstance(ours, dict):
            yield f"{path}: the reader accepts nothing"
            return
        if (id(ours), id(theirs)) in self._compared:
            return
        self._compared.add((id(ours), id(theirs)))
        if theirs is True:
            theirs = {}
        if "oneOf" in ours or "anyOf" in ours or "oneOf" in theirs or "anyOf" in theirs:
            yield from self._compare_branches(ours, theirs, path, depth)
            return
        for rule in _RULES:
            yield from rule(ours, theirs, path)
        yield from self._compare_properties(ours, theirs, path, depth)
        if "items" in ours:
            items = theirs.get("items", {})
            yield from self.compare(ours["items"], items, f"{path}/items", depth + 1)

    def _follow(self, schema: Any, side: int) -> Any:
        """Return what a reference in a schema leads to; what leads nowhere is left as it is."""
        for _ in range(DEPTH_MAX):
            if not isinstance(schema, dict) or not isinstance(schema.get("$ref"), str):
                return schema
            found = _resolve(self._roots[side], schema["$ref"])
            if found is None:
                return schema
            schema = found
        return schema

    def _compare_branches(
        self, ours: Mapping[str, Any], theirs: Mapping[str, Any], path: str, depth: int
    ) -> Iterator[str]:
        """Require that each branch of the writer is accepted by some branch of the reader."""
        for branch in _branches(theirs):
            if not any(self._accepts(each, branch, path, depth) for each in _branches(ours)):
                yield f"{path}: no branch of the reader accepts one of the writer"
                return

    def _accepts(self, reader: Any, writer: Any, path: str, depth: int) -> bool:
        comparison = _Comparison(*self._roots, self._steps)
        return next(comparison.compare(reader, writer, path, depth + 1), None) is None

    def _compare_properties(
        self, ours: Mapping[str, Any], theirs: Mapping[str, Any], path: str, depth: int
    ) -> Iterator[str]:
        mine, written = ours.get("properties", {}), theirs.get("properties", {})
        more = theirs.get("additionalProperties", True)
        for name, schema in mine.items():
            where = f"{path}/properties/{name}"
            if name in written:
                yield from self.compare(schema, written[name], where, depth + 1)
            elif more is not False:
                yield from self.compare(schema, more, where, depth + 1)
        rest = ours.get("additionalProperties", True)
        for name, schema in written.items():
            if name not in mine:
                where = f"{path}/properties/{name}"
                yield from self.compare(rest, schema, where, depth + 1)
        yield from self.compare(rest, more, f"{path}/additionalProperties", depth + 1)
        for name in ours.get("required", ()):
            is_added = name not in theirs.get("required", ())
            if is_added and "default" not in _as_object(mine.get(name)):
                yield f"{path}: {name!r} is required, and has no default"


def _branches(schema: Mapping[str, Any]) -> list[Any]:
    """Return the alternatives of a schema, each with the rest of it."""
    for key in ("oneOf", "anyOf"):
        if key in schema:
            rest = {name: value for name, value in schema.items() if name not in {key, *_NOTES}}
            return [
                {**rest, **each} if isinstance(each, dict) and rest else each
                for each in schema[key]
            ]
    return [schema]


def _resolve(root: Any, reference: str) -> Any:
    """Return the schema of a reference inside a document, or of one that it embeds by `$id`."""
    if not reference.startswith("#"):
        name, _, fragment = reference.partition("#")
        for each in _as_object(_as_object(root).get("$defs")).values():
            if _as_object(each).get("$id") == name:
                return _resolve(each, f"#{fragment}")
        return None
    found = root
    for part in reference[1:].split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(found, dict) and key in found:
            found = found[key]
        else:
            return None
    return found


def _as_object(schema: Any) -> Mapping[str, Any]:
    return schema if isinstance(schema, dict) else {}


_NOTES: Final = ("$schema", "$id", "$defs", "definitions", "title", "description")


# ---- rules of single keywords


def _kinds(schema: Mapping[str, Any]) -> frozenset[str]:
    kinds = schema.get("type")
    if kinds is None:
        return _ALL_TYPES
    return frozenset([kinds] if isinstance(kinds, str) else kinds)


def _compare_types(ours: Mapping[str, Any], theirs: Mapping[str, Any], path: str) -> Iterator[str]:
    mine = _kinds(ours)
    if "number" in mine:
        mine |= {"integer"}
    written = _kinds(theirs)
    if "type" not in theirs and ("enum" in theirs or "const" in theirs):
        return
    if written - mine:
        yield f"{path}: the type {sorted(written - mine)} is not accepted any more"


def _values(schema: Mapping[str, Any]) -> list[Any] | None:
    if "const" in schema:
        return [schema["const"]]
    found = schema.get("enum")
    return found if isinstance(found, list) else None


def _compare_values(ours: Mapping[str, Any], theirs: Mapping[str, Any], path: str) -> Iterator[str]:
    mine, written = _values(ours), _values(theirs)
    if mine is not None and (written is None or any(each not in mine for each in written)):
        yield f"{path}: values are not accepted any more"


def _compare_bounds(ours: Mapping[str, Any], theirs: Mapping[str, Any], path: str) -> Iterator[str]:
    for key in _LOWER:
        if key in ours and (key not in theirs or _is_more(ours[key], theirs[key])):
            yield f"{path}: {key} is higher"
    for key in _UPPER:
        if key in ours and (key not in theirs or _is_more(theirs[key], ours[key])):
            yield f"{path}: {key} is lower"


def _is_more(one: Any, other: Any) -> bool:
    is_number = isinstance(one, int | float) and isinstance(other, int | float)
    return bool(one > other if is_number else one != other)


def _compare_same(ours: Mapping[str, Any], theirs: Mapping[str, Any], path: str) -> Iterator[str]:
    for key in (*_SAME, "$ref"):
        if key in ours and ours[key] != theirs.get(key):
            yield f"{path}: {key} is another"
    if ours.get("uniqueItems") and not theirs.get("uniqueItems"):
        yield f"{path}: items have to be unique"


_RULES: Final[tuple[Callable[[Mapping[str, Any], Mapping[str, Any], str], Iterator[str]], ...]] = (
    _compare_types,
    _compare_values,
    _compare_bounds,
    _compare_same,
)
