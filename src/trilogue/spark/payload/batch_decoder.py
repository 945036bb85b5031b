"""Record batches with values or keys decoded, and what becomes of malformed messages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from trilogue.spark.errors import MalformedRecord
from trilogue.spark.payload.framing import Framing, strip_header
from trilogue.spark.payload.payload import Payload
from trilogue.spark.payload.payload_options import Format, Mode

if TYPE_CHECKING:
    import pyarrow as pa

OFFSET = "offset"
DEAD_LETTER_COLUMNS = ("key", "value", "offset", "timestamp", "headers")
"""Of a message that is written to a topic of malformed ones."""


class BatchDecoder:
    """Decodes batches of one partition."""

    def __init__(
        self,
        payload: Payload,
        columns: Sequence[str],
        place: str,
        write_dead_letters: Callable[[pa.RecordBatch], None] | None = None,
    ) -> None:
        """`columns`: those that Spark gets; `place`: the partition, for errors."""
        self._payload = payload
        self._columns = tuple(columns)
        self._place = place
        self._decoder = payload.make_decoder()
        self._write_dead_letters = write_dead_letters
        needed: tuple[str, ...] = ()
        if payload.mode is Mode.FAILFAST:
            needed = (OFFSET,)
        elif write_dead_letters is not None:
            needed = DEAD_LETTER_COLUMNS
        self.columns = (*columns, *(each for each in needed if each not in columns))
        """The columns that batches to decode have."""

    def decode_all(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the batches with typed values; MalformedRecord with FAILFAST."""
        return map(self._decode, batches)

    def _find_bodies(self, values: pa.Array) -> pa.Array:
        if self._payload.framing is Framing.NONE or self._payload.registry is not None:
            return values  # a decoder with a registry reads the header
        return strip_header(values, is_protobuf=self._payload.format is Format.PROTOBUF)

    def _decode(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        import pyarrow as pa
        import pyarrow.compute as pc

        column = self._payload.column
        values = batch.column(column)
        decoded = self._decoder.decode(self._find_bodies(values))
        bad = pc.and_(values.is_valid(), decoded.is_null())
        columns = {name: batch.column(name) for name in self._columns} | {column: decoded}
        has_bad = decoded.null_count > values.null_count
        if self._payload.mode is Mode.PERMISSIVE:
            nothing = pa.scalar(None, pa.binary())
            columns[self._payload.corrupt_column] = (
                pc.if_else(bad, values, nothing) if has_bad else pa.nulls(len(values), pa.binary())
            )
        elif has_bad and self._payload.mode is Mode.FAILFAST:
            offset = batch.column(OFFSET).filter(bad)[0].as_py()
            raise MalformedRecord(
                f"{self._place}, offset {offset}: the message is no {self._payload.format.value} "
                "of the schema. mode=PERMISSIVE keeps its bytes in a column, DROPMALFORMED leaves "
                "it out."
            )
        if has_bad and self._write_dead_letters is not None:
            self._write_dead_letters(batch.filter(bad))
        made = pa.RecordBatch.from_pydict(columns)
        if has_bad and self._payload.mode is Mode.DROPMALFORMED:
            return made.filter(pc.invert(bad))
        return made
