"""The sink: writes Arrow batches as record batches, acknowledged when durable.

At least once: Spark retries a failed task, which writes stored batches again. Exactly once where
the options say so (transactions.py). Columns: value (required), key, topic, partition, headers,
timestamp.
"""

from __future__ import annotations

import asyncio
import itertools
import time
import uuid
from collections.abc import Coroutine, Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from trilogue.client.errors import ClientError, ServerRefused
from trilogue.client.kafka.producer.transactional_writer import TransactionalWriter
from trilogue.entry.arrow import build_from_arrow
from trilogue.entry.entry import TRANSACTIONAL
from trilogue.spark.errors import NotStored, OptionError, RowError, explained_errors
from trilogue.spark.link import Link, link
from trilogue.spark.partitioner import Partitioner
from trilogue.spark.transactions import (
    BatchName,
    TaskCommit,
    abort_batch,
    begin_transaction,
    check_server,
    commit_batch,
    is_committed,
    name_micro_batch,
)
from trilogue.spark.write_options import WriteOptions
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

    def __init__(
        self, options: WriteOptions, at: Link, transaction: TransactionalWriter | None = None
    ) -> None:
        self._options = options
        self._at = at
        self._transaction = transaction
        self._partitioners: dict[str, Partitioner] = {}
        self.rows = self.batches = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Store every row of one Arrow batch; returns when all are durable."""
        parts = [
            (topic, number, rows.drop_columns(_ADDRESS & set(rows.schema.names)))
            for topic, of_topic in self._by_topic(batch)
            for number, rows in _split(of_topic, self._partitioner(topic).assign(of_topic))
        ]
        if self._transaction is not None:
            partitions = [(topic, number) for topic, number, _ in parts]
            self._at.run(self._transaction.add_partitions(partitions))
        self._at.run(_together(self._send(*each) for each in parts))
        self.rows += batch.num_rows

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
        for entry in self._build(topic, partition, rows):
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

    def _build(self, topic: str, partition: int, rows: pa.RecordBatch) -> list[bytes]:
        """Return the entries of the rows, stamped for the transaction if there is one."""
        options, now_ms = self._options, time.time_ns() // 1_000_000
        if self._transaction is None:
            return build_from_arrow(rows, options.codec, options.batch_bytes, timestamp_ms=now_ms)
        stamp = self._transaction.stamp(topic, partition, rows.num_rows)
        return build_from_arrow(
            rows,
            options.codec,
            options.batch_bytes,
            timestamp_ms=now_ms,
            flags=TRANSACTIONAL,
            **stamp._asdict(),
        )


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
def write_all(options: WriteOptions, batches: Iterable[pa.RecordBatch]) -> TaskCommit:
    """Store all rows of one task, visible at once."""
    sink = _Sink(options, link(options))
    for batch in batches:
        sink.write(batch)
    return TaskCommit(sink.rows, sink.batches)


@explained_errors()
def write_in_transaction(
    options: WriteOptions, batches: Iterable[pa.RecordBatch], name: BatchName
) -> TaskCommit:
    """Store all rows of one task in a transaction that stays open for the driver.

    Rows of a batch that is committed are read and dropped: Spark wants its input to be read.
    """
    at = link(options)
    filled = (batch for batch in batches if batch.num_rows)
    first = next(filled, None)
    if first is None or is_committed(at, name):
        for _ in filled:
            pass
        return TaskCommit(0, 0, name.application_id)
    transaction = begin_transaction(at, options, name)
    try:
        sink = _Sink(options, at, transaction)
        for batch in itertools.chain((first,), filled):
            sink.write(batch)
    except BaseException:
        with suppress(ClientError):  # the driver, the next attempt or its time-out aborts it
            at.run(transaction.abort())
        raise
    return TaskCommit(sink.rows, sink.batches, name.application_id, transaction.prepare())


class BatchWriter(DataSourceArrowWriter):
    """`df.write.format("trilogue")`: append only. Exactly once, all rows are visible at once."""

    def __init__(self, options: WriteOptions, schema: StructType, *, overwrite: bool) -> None:
        if overwrite:
            raise OptionError("a topic cannot be overwritten: use mode('append')")
        check_schema(schema, options)
        self._options = options.for_batch()
        self._name: BatchName | None = None
        if options.is_exactly_once:
            check_server(options)
            name = options.application_id or f"spark-{uuid.uuid4()}"
            self._name = BatchName(name, options.version or 0)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Store the rows of one task."""
        if self._name is None:
            return write_all(self._options, iterator)
        return write_in_transaction(self._options, iterator, self._name)

    @explained_errors()
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Exactly once: commit the transactions of all tasks; else the rows are visible already."""
        if self._name is not None:
            commit_batch(self._options, messages, self._name.batch_id)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Exactly once: abort the transactions; else stored rows stay."""
        if self._name is not None:
            abort_batch(self._options, messages, self._name.application_id)


class StreamWriter(DataSourceStreamArrowWriter):
    """`df.writeStream.format("trilogue")`; Spark makes one for each call of a method."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        check_schema(schema, options)
        self._options = options.for_stream()
        if options.is_exactly_once:
            check_server(options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Store the rows of one task."""
        if not self._options.is_exactly_once:
            return write_all(self._options, iterator)
        return self._write_in_transaction(iterator)

    @explained_errors()
    def _write_in_transaction(self, iterator: Iterator[pa.RecordBatch]) -> TaskCommit:
        return write_in_transaction(self._options, iterator, name_micro_batch(self._options))

    @explained_errors()
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Exactly once: commit the transactions of all tasks; else the rows are visible already."""
        if self._options.is_exactly_once:
            commit_batch(self._options, messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Exactly once: abort the transactions; else stored rows stay. The batch runs again."""
        del batchId
        if self._options.is_exactly_once:
            abort_batch(self._options, messages)
