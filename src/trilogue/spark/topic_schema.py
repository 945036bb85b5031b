"""The schema of a topic in one call: of its table, with typed values from a schema or a sample."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from trilogue.spark.read_options import ReadOptions

SAMPLE = 1_000
"""How many of the newest offsets are read to infer the schema of JSON messages."""


def find_topic_schema(
    servers: str, topic: str, options: dict[str, str] | None = None, *, sample: int = SAMPLE
) -> StructType:
    """Return the schema of the table that `load(topic)` gives with these options of the source.

    With payload=json and neither payloadSchema nor a registry, the schema of column `value` is
    inferred from the newest `sample` offsets of each partition; pass its DDL or JSON to
    payloadSchema. Raises OptionError where there is no object to infer from.
    """
    from trilogue.spark.source import DefaultSource

    given = {"kafka.bootstrap.servers": servers, "subscribe": topic, **(options or {})}
    is_json = given.get("payload", "").strip().lower() == "json"
    if is_json and not given.keys() & {"payloadSchema", "admin.url", "schema.registry.url"}:
        given["payloadSchema"] = _infer_schema(given, sample).json()
    return DefaultSource(given).schema()


def _infer_schema(given: dict[str, str], sample: int) -> StructType:
    """Return the struct of the newest JSON objects."""
    from pyspark.sql.pandas.types import from_arrow_schema

    from trilogue.spark.errors import OptionError
    from trilogue.spark.read_options import ReadOptions

    options = ReadOptions.parse(
        {
            **{
                name: one for name, one in given.items() if name.startswith(("kafka.", "subscribe"))
            },
            "columns": "value",
        }
    )
    lines = [
        line
        for values in _read_newest(options, sample)
        for line in values.to_pylist()
        if line is not None
    ]
    schema = _merge(lines)
    if schema is None:
        raise OptionError(f"{given['subscribe']}: no JSON object among the newest messages")
    return from_arrow_schema(schema)


def _read_newest(options: ReadOptions, sample: int) -> list[pa.Array]:
    from trilogue.client.kafka.model import EARLIEST, LATEST
    from trilogue.spark.offsets import ranges
    from trilogue.spark.range_reader import read_range
    from trilogue.spark.topic_lookup import find_lookup

    at = find_lookup(options)
    partitions = at.partitions(options)
    first = at.resolve(dict.fromkeys(partitions, EARLIEST))
    end = at.resolve(dict.fromkeys(partitions, LATEST))
    start = {key: max(first[key], end[key] - sample) for key in end}
    return [
        batch.column("value") for one in ranges(start, end) for batch in read_range(options, one)
    ]


def _merge(lines: list[bytes]) -> pa.Schema | None:
    """Return the schema that all objects have; messages that are no objects are left out."""
    import pyarrow as pa
    import pyarrow.json

    found = []
    for line in lines:
        if not line.strip().startswith(b"{"):
            continue
        try:
            one = pyarrow.json.read_json(pa.BufferReader(line.replace(b"\n", b" ")))
        except pa.ArrowInvalid:
            continue
        if one.num_rows == 1:
            found.append(one.schema)
    if not found:
        return None
    merged = pa.unify_schemas(found, promote_options="permissive")
    return pa.schema([field.with_type(_to_plain(field.type)) for field in merged])


def _to_plain(kind: pa.DataType) -> pa.DataType:
    """Return the type as Spark infers it: times are texts, and so is what was always null."""
    import pyarrow as pa

    if pa.types.is_struct(kind):
        return pa.struct([each.with_type(_to_plain(each.type)) for each in kind])
    if pa.types.is_list(kind):
        return pa.list_(_to_plain(kind.value_type))
    return pa.string() if pa.types.is_temporal(kind) or pa.types.is_null(kind) else kind
