"""Schemas of a Confluent registry as the decoders take them: whole, with what they reference."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from trilogue.spark.errors import SchemaUnavailable
from trilogue.spark.payload.confluent_registry import (
    ConfluentRegistry,
    Reference,
    SubjectVersion,
)

REFERENCE_DEPTH_MAX: Final = 32


def expand_avro(registry: ConfluentRegistry, found: SubjectVersion) -> str:
    """Return an Avro schema that contains the types of its references."""
    if not found.references:
        return found.text
    named: dict[str, Any] = {}
    for reference, used in walk_references(registry, found, ""):
        named[reference.name] = json.loads(used.text)
    return json.dumps(_AvroInliner(named).inline(json.loads(found.text), ""))


def expand_json(registry: ConfluentRegistry, found: SubjectVersion) -> str:
    """Return a JSON Schema that has the schemas of its references below `$defs`."""
    if not found.references:
        return found.text
    schema = json.loads(found.text)
    defs = schema.setdefault("$defs", {})
    for reference, used in walk_references(registry, found, ""):
        defs.setdefault(reference.name, json.loads(used.text))
    return json.dumps(schema)


def walk_references(
    registry: ConfluentRegistry, found: SubjectVersion, layout: str
) -> Iterator[tuple[Reference, SubjectVersion]]:
    """Iterate over what a schema uses, each once, what that uses first."""
    return _walk(registry, found, layout, set(), 0)


def _walk(
    registry: ConfluentRegistry,
    found: SubjectVersion,
    layout: str,
    walked: set[Reference],
    depth: int,
) -> Iterator[tuple[Reference, SubjectVersion]]:
    if depth > REFERENCE_DEPTH_MAX:
        raise SchemaUnavailable(f"references of more than {REFERENCE_DEPTH_MAX} levels")
    for reference in found.references:
        if reference not in walked:
            used = registry.fetch_reference(reference, layout)
            yield from _walk(registry, used, layout, walked, depth + 1)
            walked.add(reference)
            yield reference, used


class _AvroInliner:
    """Puts the definition of a named type where it is used first."""

    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named
        self._placed: set[str] = set()

    def inline(self, schema: Any, namespace: str) -> Any:
        """Return the schema, whose names are in `namespace` where they have no other."""
        if isinstance(schema, list):
            return [self.inline(each, namespace) for each in schema]
        if isinstance(schema, str):
            return self._inline_name(schema, namespace)
        if not isinstance(schema, dict):
            return schema
        made = dict(schema)
        if "name" in made:
            full = _find_full_name(made, namespace)
            self._placed.add(full)
            namespace = full.rpartition(".")[0]
            made["namespace"] = namespace
        for key in ("type", "items", "values"):
            if key in made:
                made[key] = self.inline(made[key], namespace)
        if "fields" in made:
            made["fields"] = [
                {**each, "type": self.inline(each.get("type"), namespace)}
                for each in made["fields"]
            ]
        return made

    def _inline_name(self, name: str, namespace: str) -> Any:
        local = f"{namespace}.{name}" if namespace and "." not in name else name
        for full in (local, name):
            if full in self._placed:
                return full
            if full in self._named:
                return self.inline(self._named[full], "")
        return name  # a type of Avro's own, or one that is inside of another definition


def _find_full_name(schema: Mapping[str, Any], namespace: str) -> str:
    name = str(schema["name"])
    if "." in name:
        return name
    space = str(schema.get("namespace") or namespace)
    return f"{space}.{name}" if space else name
