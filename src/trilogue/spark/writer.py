"""The sink: writes Arrow batches as record batches, acknowledged when durable.

At least once: Spark retries a failed task, which writes stored batches again. Columns: value
(required), key, topic, partition, headers, timestamp.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from trilogue.client.errors import ServerRefused
from trilogue.entry.arrow import build_from_arrow
from trilogue.spark.errors import NotStored, OptionError, RowError, explained_errors
from trilogue.spark.link import Link, link
from trilogue.spark.options import WriteOptions
from trilogue.spark.partitioner import Partitioner
from trilogue.wire.kafka.errors import ErrorCode

if TYPE_CHECKING:
    import pyarrow as pa

TYPES = {
    "key": {"binary", "string"},
    "value": {"binary", "string"},
    "topic": {"string"},
    "partition": {"int"},
    "timestamp": {"timestamp"},
    "headers": {"array<struct<key:string,value:binary>>"},
}


@dataclass
class TaskCommit(WriterCommitMessage):
    """The counts of what one task stored."""

    rows: int
    batches: int


def check_schema(schema: StructType, options: WriteOptions) -> None:
    """Raise OptionError if the rows cannot be written."""
    names = {field.name: field.dataType.simpleString() for field in schema.fields}
    if "value" not in names:
        raise OptionError("a column 'value' is needed")
    for name, kind in names.items():
        if name not in TYPES:
            raise OptionError(f"column {name!r} means nothing here; known: {', '.join(TYPES)}")
        if kind not in TYPES[name]:
            raise OptionError(f"column {name!r} must be {' or '.join(sorted(TYPES[name]))}")
    if options.topic is None and "topic" not in names:
        raise OptionError("give the option 'topic' or a column 'topic'")


class _Sink:
    """The writer of one task: per topic a partitioner, per partition one batch at a time."""

    def __init__(self, options: WriteOptions, at: Link) -> None:
        self._options = options
        self._at = at
        self._partitioners: dict[str, Partitioner] = {}
        self.batches = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Store every row of one Arrow batch; returns when all are durable."""
        work = [
            self._send(topic, number, rows.drop_columns(_ADDRESS & set(rows.schema.names)))
            for topic, of_topic in self._by_topic(batch)
            for number, rows in _split(of_topic, self._partitioner(topic).assign(of_topic))
        ]
        self._at.run(_together(work))

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

    async def _send(self, topic: str, partition: int, rows: pa.RecordBatch) -> None:
        entries = build_from_arrow(
            rows,
            self._options.codec,
            self._options.batch_bytes,
            timestamp_ms=time.time_ns() // 1_000_000,
        )
        for entry in entries:
            try:
                await self._at.producer.send(topic, partition, entry)
            except ServerRefused as refused:
                if refused.code != ErrorCode.MESSAGE_TOO_LARGE:
                    raise
                raise NotStored(
                    f"{topic}-{partition} takes no batch of {len(entry)} bytes (max.message.bytes)."
                    " A row alone may be too large; else option batchBytes makes smaller batches."
                ) from refused
            self.batches += 1


_ADDRESS = {"topic", "partition"}


async def _together(work: Iterable[Coroutine[None, None, None]]) -> None:
    """Wait for all; raise the first error unchanged and cancel the others."""
    try:
        async with asyncio.TaskGroup() as group:
            for one in work:
                group.create_task(one)
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None


def _split(batch: pa.RecordBatch, numbers: pa.Array) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Return the rows by partition, in order."""
    import pyarrow.compute as pc

    for number in pc.unique(numbers).to_pylist():
        yield number, batch.filter(pc.equal(numbers, number))


@explained_errors()
def write_all(options: WriteOptions, batches: Iterator[pa.RecordBatch]) -> TaskCommit:
    """Store all rows of one task."""
    sink = _Sink(options, link(options))
    rows = 0
    for batch in batches:
        sink.write(batch)
        rows += batch.num_rows
    return TaskCommit(rows, sink.batches)


class BatchWriter(DataSourceArrowWriter):
    """`df.write.format("trilogue")`: append only."""

    def __init__(self, options: WriteOptions, schema: StructType, *, overwrite: bool) -> None:
        if overwrite:
            raise OptionError("a topic cannot be overwritten: use mode('append')")
        check_schema(schema, options)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Store the rows of one task."""
        return write_all(self._options, iterator)


class StreamWriter(DataSourceStreamArrowWriter):
    """`df.writeStream.format("trilogue")`: at least once."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        check_schema(schema, options)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Store the rows of one task."""
        return write_all(self._options, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Do nothing: the rows are durable already."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Do nothing: stored rows stay, and Spark runs the micro-batch again."""
