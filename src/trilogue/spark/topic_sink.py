"""Stores rows of Arrow batches as record batches of topics; needs no Spark.

Columns: value, key, topic, partition, headers, timestamp, deliverAt.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Iterable, Iterator
from typing import TYPE_CHECKING

from trilogue.client.errors import ServerRefused
from trilogue.client.kafka.producer.transactional_writer import TransactionalWriter
from trilogue.entry.arrow import build_from_arrow
from trilogue.entry.entry import TRANSACTIONAL
from trilogue.entry.pack import RecordPacker
from trilogue.spark.delivery_times import divide_by_time
from trilogue.spark.errors import NotStored, RowError
from trilogue.spark.link import Link
from trilogue.spark.partitioner import Partitioner
from trilogue.spark.write_options import WriteOptions
from trilogue.wire.kafka.errors import ErrorCode

if TYPE_CHECKING:
    import pyarrow as pa


class TopicSink:
    """Writes rows of Arrow: per topic a partitioner, per partition one batch at a time."""

    def __init__(
        self, options: WriteOptions, at: Link, transaction: TransactionalWriter | None = None
    ) -> None:
        self._options = options
        self._at = at
        self._transaction = transaction
        self._partitioners: dict[str, Partitioner] = {}
        self._packer = RecordPacker()
        self.rows = self.batches = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Store every row of one Arrow batch; returns when all are durable."""
        for rows in divide_by_time(batch):
            self._write(rows)
        self.rows += batch.num_rows

    def _write(self, batch: pa.RecordBatch) -> None:
        parts = [
            (topic, number, of_topic, rows)
            for topic, of_topic in self._by_topic(batch)
            for number, rows in self._partitioner(topic).group(of_topic)
        ]
        if self._transaction is not None:
            partitions = [(topic, number) for topic, number, _, _ in parts]
            self._at.run(self._transaction.add_partitions(partitions))
        self._at.run(_together(self._send(*each) for each in parts))

    def _by_topic(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        import pyarrow.compute as pc

        if self._options.topic is not None:
            yield self._options.topic, batch
            return
        topics = batch.column("topic")
        if topics.null_count:
            raise RowError("column topic: null, and no option 'topic'")
        for topic in pc.unique(topics).to_pylist():
            yield topic, batch.filter(pc.equal(topics, topic))

    def _partitioner(self, topic: str) -> Partitioner:
        if topic not in self._partitioners:
            try:
                count = len(self._at.run(self._at.cluster.partitions(topic, create=True)))
            except ServerRefused as refused:
                if refused.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise NotStored(f"no topic {topic!r}, and the server makes none") from refused
                raise
            self._partitioners[topic] = Partitioner(count, turn=time.monotonic_ns() % count)
        return self._partitioners[topic]

    async def _send(
        self, topic: str, partition: int, batch: pa.RecordBatch, rows: memoryview
    ) -> None:
        for entry in self._build(topic, partition, batch, rows):
            try:
                if self._transaction is None:
                    await self._at.producer.send(topic, partition, entry)
                else:
                    await self._transaction.send(topic, partition, entry)
            except ServerRefused as refused:
                if refused.code != ErrorCode.MESSAGE_TOO_LARGE:
                    raise
                raise NotStored(
                    f"{topic}-{partition} takes no batch of {len(entry)} bytes (max.message.bytes)."
                    " A row alone may be too large; else option batchBytes makes smaller batches."
                ) from refused
            self.batches += 1

    def _build(
        self, topic: str, partition: int, batch: pa.RecordBatch, rows: memoryview
    ) -> list[bytes]:
        """Return the entries of rows of a batch, stamped for the transaction if there is one."""
        stamp: dict[str, int] = {}
        if self._transaction is not None:
            stamp = self._transaction.stamp(topic, partition, len(rows) // 4)._asdict()
            stamp["flags"] = TRANSACTIONAL
        return build_from_arrow(
            batch,
            self._options.codec,
            self._options.batch_bytes,
            timestamp_ms=time.time_ns() // 1_000_000,
            chosen=rows,
            packer=self._packer,
            **stamp,
        )


async def _together(work: Iterable[Coroutine[None, None, None]]) -> None:
    """Wait for all; raise the first error unchanged and cancel the others."""
    try:
        async with asyncio.TaskGroup() as group:
            for one in work:
                group.create_task(one)
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None
