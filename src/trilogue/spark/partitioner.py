"""Assigns rows to partitions: by column, by key as Kafka's Java client does, or sticky.

The default partitioner of Java is murmur2(key) & 0x7fffffff mod n: a key has the same partition
whether Spark or a Java producer wrote it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trilogue.client.kafka.producer.hashes import assign_partitions, group_rows
from trilogue.entry.arrow import byte_input
from trilogue.spark.errors import RowError

if TYPE_CHECKING:
    import pyarrow as pa


class Partitioner:
    """Assigns partitions to the rows of one topic."""

    def __init__(self, partitions: int, turn: int = 0) -> None:
        self._partitions = partitions
        self._turn = turn

    def group(self, batch: pa.RecordBatch) -> Iterator[tuple[int, memoryview]]:
        """Yield each partition that gets rows, with the numbers of its rows, in order, as int32."""
        assigned = self.assign(batch)
        numbers = memoryview(assigned.buffers()[1])[4 * assigned.offset :]
        order, ends = group_rows(numbers, batch.num_rows, self._partitions)
        rows, begin = memoryview(order), 0
        for number, end in enumerate(memoryview(ends).cast("i")[: self._partitions]):
            if end > begin:
                yield number, rows[4 * begin : 4 * end]
            begin = end

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
        import pyarrow.compute as pc

        numbers = assign_partitions(byte_input(keys), len(keys), self._partitions)
        assigned = pa.Array.from_buffers(pa.int32(), len(keys), [None, pa.py_buffer(numbers)])
        if not keys.null_count:
            return assigned
        return pc.if_else(keys.is_valid(), assigned, pa.scalar(None, pa.int32()))
