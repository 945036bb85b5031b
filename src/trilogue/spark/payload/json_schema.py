"""JSON Schema, as clients of a Confluent registry register it, to Spark's types."""

from __future__ import annotations

import json
from typing import Any, Final

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DoubleType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from trilogue.spark.errors import OptionError

DEPTH_MAX: Final = 32
SCALAR: Final[dict[str, DataType]] = {
    "string": StringType(), "integer": LongType(), "number": DoubleType(),
    "boolean": BooleanType(),
}  # fmt: skip
NULL: Final = {"type": "null"}


def is_json_schema(parsed: dict[str, Any]) -> bool:
    """Whether an object is a JSON Schema, not a schema of Avro or Spark."""
    return parsed.get("type") == "object" or bool(
        parsed.keys() & {"$schema", "$ref", "properties", "$defs", "definitions"}
    )


def parse_json_schema(text: str) -> StructType:
    """Return the struct of the objects that a JSON Schema describes; OptionError."""
    root = json.loads(text)
    kind = _Converter(root).convert(root, "", 0)
    if not isinstance(kind, StructType):
        raise OptionError("option 'payloadSchema': the JSON Schema is not that of an object")
    return kind


class _Converter:
    """Types of JSON Schema to Spark's. What two types share is a text, as Spark infers it."""

    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root

    def convert(self, schema: Any, path: str, depth: int) -> DataType:
        if depth > DEPTH_MAX:
            raise _error(path, f"more than {DEPTH_MAX} levels, or itself")
        if not isinstance(schema, dict):
            raise _error(path, "no type")
        if "$ref" in schema:
            return self.convert(self._find(str(schema["$ref"]), path), path, depth + 1)
        choices = _find_choices(schema)
        if len(choices) == 1:
            return self._convert_one(choices[0], path, depth)
        if choices and all(each.get("type") in {"integer", "number"} for each in choices):
            return DoubleType()
        raise _error(path, "a choice of several types" if choices else "no type")

    def _convert_one(self, schema: dict[str, Any], path: str, depth: int) -> DataType:
        if "type" not in schema and schema.keys() & {"$ref", "oneOf", "anyOf", "allOf"}:
            return self.convert(schema, path, depth + 1)
        kind = schema.get("type", _guess_type(schema))
        if kind in SCALAR:
            return SCALAR[kind]
        if kind == "array":
            items = schema.get("items")
            return ArrayType(self.convert(items, f"{path}[]", depth + 1))
        if kind == "object":
            return self._convert_object(schema, path, depth)
        raise _error(path, f"type {kind!r}" if kind else "no type")

    def _convert_object(self, schema: dict[str, Any], path: str, depth: int) -> DataType:
        properties = schema.get("properties")
        if not properties:
            values = schema.get("additionalProperties")
            if isinstance(values, dict) and values:
                return MapType(StringType(), self.convert(values, f"{path}{{}}", depth + 1))
            raise _error(path, "an object without properties")
        return StructType(
            [
                StructField(name, self.convert(one, f"{path}.{name}".removeprefix("."), depth + 1))
                for name, one in properties.items()
            ]
        )

    def _find(self, reference: str, path: str) -> Any:
        """Return the schema of a reference: `#/a/b`, or the name of another one below $defs."""
        if not reference.startswith("#"):
            found = self._root.get("$defs", {}).get(reference)
            if found is None:
                raise _error(path, f"a reference to {reference!r}, which the registry has not")
            return found
        found = self._root
        for part in reference.removeprefix("#").removeprefix("/").split("/"):
            name = part.replace("~1", "/").replace("~0", "~")
            if name:
                found = found.get(name) if isinstance(found, dict) else None
        if found is None:
            raise _error(path, f"a reference to {reference!r}, which is not there")
        return found


def _find_choices(schema: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what a value may be beside null."""
    for word in ("oneOf", "anyOf", "allOf"):
        if word in schema and "type" not in schema:
            found = [one for one in schema[word] if one != NULL]
            return found if all(isinstance(one, dict) for one in found) else []
    kind = schema.get("type")
    if isinstance(kind, list):
        return [{**schema, "type": one} for one in kind if one != "null"]
    return [schema]


def _guess_type(schema: dict[str, Any]) -> str | None:
    """Return the type of a schema that names none."""
    if "properties" in schema:
        return "object"
    values = schema.get("enum", [schema["const"]] if "const" in schema else [])
    is_text = bool(values) and all(value is None or isinstance(value, str) for value in values)
    return "string" if is_text else None


def _error(path: str, problem: str) -> OptionError:
    return OptionError(
        f"the JSON Schema: {path or 'it'} has {problem}; give option 'payloadSchema' as DDL"
    )
