"""Assigns rows to partitions: by column, by key as Kafka's Java client does, or sticky.

The default partitioner of Java is murmur2(key) & 0x7fffffff mod n: a key has the same partition
whether Spark or a Java producer wrote it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trilogue.client.kafka.producer.hashes import murmur2
from trilogue.spark.errors import RowError

if TYPE_CHECKING:
    import pyarrow as pa

_REMEMBERED = 100_000


class Partitioner:
    """Assigns partitions to the rows of one topic."""

    def __init__(self, partitions: int, turn: int = 0) -> None:
        self._partitions = partitions
        self._turn = turn
        self._known: dict[bytes, int] = {}

    def assign(self, batch: pa.RecordBatch) -> pa.Array:
        """Return an int32 per row. Rows without a key share a partition, another one each batch."""
        import pyarrow as pa
        import pyarrow.compute as pc

        self._turn = (self._turn + 1) % self._partitions
        rows = batch.num_rows
        numbers = pa.nulls(rows, pa.int32())
        if "partition" in batch.schema.names:
            numbers = batch.column("partition").cast(pa.int32())
            out = pc.any(pc.or_(pc.less(numbers, 0), pc.greater_equal(numbers, self._partitions)))
            if out.as_py():
                raise RowError(f"column partition: not in 0..{self._partitions - 1}")
        if "key" in batch.schema.names and numbers.null_count:
            numbers = pc.coalesce(numbers, self._by_key(batch.column("key").cast(pa.binary())))
        return pc.fill_null(numbers, pa.scalar(self._turn, pa.int32()))

    def _by_key(self, keys: pa.Array) -> pa.Array:
        import pyarrow as pa

        coded = keys.dictionary_encode()
        numbers = pa.array([self._one(key) for key in coded.dictionary.to_pylist()], pa.int32())
        return numbers.take(coded.indices)

    def _one(self, key: bytes) -> int:
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            known = self._known[key] = murmur2(key) % self._partitions
        return known
