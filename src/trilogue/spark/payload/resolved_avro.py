"""Avro messages of an older or newer version of a schema, by columns where the versions allow it.

They do where fields came, went or moved, became nullable or wider: what most versions differ by.
https://avro.apache.org/docs/1.12.0/specification/#schema-resolution
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from trilogue.spark.payload.columnar_avro import NULL, ColumnarAvroDecoder

if TYPE_CHECKING:
    import pyarrow as pa

NAMED = frozenset({"record", "enum", "fixed"})
COMPARED = ("type", "name", "size", "symbols", "logicalType", "precision", "scale")
WIDER = {("int", "long"), ("float", "double")}
DEFAULTS: dict[str, type | tuple[type, ...]] = {
    "boolean": bool, "int": int, "long": int, "float": (int, float), "double": (int, float),
    "string": str,
}  # fmt: skip


class ResolvedAvroDecoder:
    """Decodes messages of one version of a record to the columns of another."""

    def __init__(
        self, written: Any, written_type: pa.StructType, sources: list[Any], kind: pa.StructType
    ) -> None:
        """`sources`: of each field the number of the written one, or an array with its default."""
        self.type = kind
        self._written = ColumnarAvroDecoder(written, written_type)
        self._sources = sources

    def decode(self, values: pa.Array) -> pa.Array:
        """Return a struct for each message, null for a null and for one that is malformed."""
        import pyarrow as pa

        read = self._written.decode(values)
        children = [
            read.field(source).cast(field.type)
            if isinstance(source, int)
            else pa.repeat(source[0], len(read))
            for source, field in zip(self._sources, self.type, strict=True)
        ]
        validity = read.buffers()[:1]
        return pa.Array.from_buffers(
            self.type, len(read), validity, read.null_count, children=children
        )


def resolve_by_columns(
    written: Any, written_type: pa.StructType, wanted: Any, kind: pa.StructType
) -> ResolvedAvroDecoder | None:
    """Return a decoder of messages of `written`; None where a rule of other kinds is needed."""
    if written["type"] != "record" or written["name"] != wanted["name"]:
        return None
    old, new = _Shapes(), _Shapes()
    there = {
        each["name"]: (number, old.expand(each["type"]))
        for number, each in enumerate(written["fields"])
    }
    sources: list[Any] = []
    for each, field in zip(wanted["fields"], kind, strict=True):
        shape = new.expand(each["type"])
        if each.get("aliases"):
            return None
        if each["name"] not in there:
            source = _find_default(each, shape, field.type)
        else:
            number, before = there[each["name"]]
            source = number if _is_same_or_wider(before, shape) else None
        if source is None:
            return None
        sources.append(source)
    return ResolvedAvroDecoder(written, written_type, sources, kind)


class _Shapes:
    """Schemas with the definitions of named types in place, without what does not matter."""

    def __init__(self) -> None:
        self._named: dict[str, Any] = {}

    def expand(self, schema: Any) -> Any:
        if isinstance(schema, list):
            return [self.expand(each) for each in schema]
        if isinstance(schema, str):
            return self._named.get(schema, schema)
        kind = schema["type"]
        if isinstance(kind, dict | list):
            return self.expand(kind)
        made = {name: schema[name] for name in COMPARED if name in schema}
        for name in ("items", "values"):
            if name in schema:
                made[name] = self.expand(schema[name])
        if kind == "record":
            made["fields"] = [
                (each["name"], self.expand(each["type"])) for each in schema["fields"]
            ]
        if kind in NAMED:
            self._named[schema["name"]] = made
        return kind if made.keys() == {"type"} else made


def _is_same_or_wider(before: Any, after: Any) -> bool:
    if before == after:
        return True
    if isinstance(after, list) and not isinstance(before, list):
        return any(before == each for each in after)
    return isinstance(before, str) and isinstance(after, str) and (before, after) in WIDER


def _find_default(field: Mapping[str, Any], shape: Any, kind: pa.DataType) -> pa.Array | None:
    import pyarrow as pa

    if "default" not in field:
        return None
    default = field["default"]
    first = shape[0] if isinstance(shape, list) else shape
    if default is None and first == NULL:
        return pa.nulls(1, kind)
    types = DEFAULTS.get(first) if isinstance(first, str) else None
    if types is None or not isinstance(default, types):
        return None
    return pa.array([default], kind)
