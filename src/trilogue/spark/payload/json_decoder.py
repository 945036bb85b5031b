"""JSON objects to a struct column, by Arrow's parser: many messages in one call.

The messages of a batch are parsed as lines of one text. The text's rows are those of the messages
if each message begins with `{` and ends with `}` and there are as many rows as messages: between
`}` and the next `{` JSON ends at the top level, so that each message has at least one row.
Otherwise the batch is halved until what is malformed stands alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DateType,
    StringType,
    StructField,
    StructType,
)

from trilogue.spark.errors import OptionError
from trilogue.spark.payload.arrow_types import to_arrow

if TYPE_CHECKING:
    import pyarrow as pa

ALLOCATION = 64
"""Room that Arrow's parser needs behind the text."""


class JsonDecoder:
    """Decodes messages of one JSON object each; fields that the schema has not are left out."""

    def __init__(self, schema: StructType) -> None:
        import pyarrow as pa

        _check(schema, "")
        self.type = to_arrow(schema)
        read = to_arrow(_as_read(schema))
        self._read_schema = pa.schema(list(read))

    def decode(self, values: pa.Array) -> pa.Array:
        """Return a struct for each message, null for a null and for one that is malformed."""
        import pyarrow as pa
        import pyarrow.compute as pc

        texts = pa.Array.from_buffers(
            pa.string(), len(values), values.buffers(), values.null_count, values.offset
        )
        trimmed = pc.ascii_trim_whitespace(texts)
        may_be = pc.and_(pc.starts_with(trimmed, "{"), pc.ends_with(trimmed, "}"))
        may_be = pc.fill_null(may_be, False)
        if pc.all(may_be).as_py():
            return self._parse(texts)
        numbers = pc.subtract(pc.cumulative_sum(may_be.cast(pa.int32())), 1)
        decoded = self._parse(texts.filter(may_be))
        return decoded.take(pc.if_else(may_be, numbers, pa.scalar(None, pa.int32())))

    def _parse(self, texts: pa.Array) -> pa.Array:
        import pyarrow as pa

        if not len(texts):
            return pa.nulls(0, self.type)
        try:
            decoded = self._parse_all(texts)
        except (pa.ArrowInvalid, UnicodeDecodeError):
            decoded = None
        if decoded is not None:
            return decoded
        if len(texts) == 1:
            return pa.nulls(1, self.type)
        half = len(texts) // 2
        return pa.concat_arrays([self._parse(texts[:half]), self._parse(texts[half:])])

    def _parse_all(self, texts: pa.Array) -> pa.Array | None:
        """Return a struct for each text, None where the rows are not those of the texts."""
        import pyarrow as pa
        import pyarrow.compute as pc
        import pyarrow.json

        whole = pa.ListArray.from_arrays(pa.array([0, len(texts)], pa.int32()), texts)
        text = pc.binary_join(whole, "\n")[0].as_buffer()
        table = pyarrow.json.read_json(
            pa.BufferReader(text),
            read_options=pyarrow.json.ReadOptions(
                use_threads=False, block_size=text.size + ALLOCATION
            ),
            parse_options=pyarrow.json.ParseOptions(
                explicit_schema=self._read_schema, unexpected_field_behavior="ignore"
            ),
        )
        if table.num_rows != len(texts):
            return None
        columns = [table.column(name).combine_chunks() for name in self._read_schema.names]
        decoded = pa.StructArray.from_arrays(columns, fields=list(self._read_schema))
        if decoded.type != self.type:
            decoded = decoded.cast(self.type)
        decoded.validate(full=True)  # texts that are not UTF-8
        return decoded


def _check(kind: DataType, path: str) -> None:
    """Raise OptionError for a type that Arrow reads from no JSON."""
    if isinstance(kind, BinaryType):
        raise OptionError(
            f"option 'payloadSchema': payload=json reads no {kind.simpleString()} ({path}); name "
            "the fields of a STRUCT, or STRING for texts"
        )
    if isinstance(kind, StructType):
        for field in kind.fields:
            _check(field.dataType, f"{path}.{field.name}".removeprefix("."))
    elif isinstance(kind, ArrayType):
        _check(kind.elementType, path)


def _as_read(kind: DataType) -> DataType:
    """Return the type as Arrow's parser reads it: dates are texts."""
    if isinstance(kind, DateType):
        return StringType()
    if isinstance(kind, ArrayType):
        return ArrayType(_as_read(kind.elementType))
    if isinstance(kind, StructType):
        return StructType([StructField(each.name, _as_read(each.dataType)) for each in kind.fields])
    return kind
