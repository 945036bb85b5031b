"""The sink: writes Arrow batches as record batches, acknowledged when durable.

At least once: Spark retries a failed task, which writes stored batches again. Exactly once where
the options say so (transactions.py). Columns: value (required), key, topic, partition, headers,
timestamp, deliverAt.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from trilogue.client.errors import ClientError
from trilogue.spark.errors import OptionError, explained_errors
from trilogue.spark.link import link
from trilogue.spark.processes import exempt_modules
from trilogue.spark.topic_sink import TopicSink
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

if TYPE_CHECKING:
    import pyarrow as pa

TYPES = {
    "key": {"binary", "string"},
    "value": {"binary", "string"},
    "topic": {"string"},
    "partition": {"int"},
    "timestamp": {"timestamp"},
    "deliverAt": {"timestamp"},
    "headers": {"array<struct<key:string,value:binary>>"},
}
OF_READS = frozenset({"offset", "timestampType"})
"""Columns of what was read that mean nothing in another topic: they are not written."""


def check_schema(schema: StructType, options: WriteOptions) -> None:
    """Raise OptionError if the rows cannot be written."""
    names = {field.name: field.dataType.simpleString() for field in schema.fields}
    if "value" not in names:
        raise OptionError("a column 'value' is needed")
    for name, kind in names.items():
        if name in OF_READS:
            continue
        if name not in TYPES:
            raise OptionError(
                f"column {name!r} has no place in a message: select those that are to be written "
                f"({', '.join(TYPES)})"
            )
        if kind not in TYPES[name]:
            raise OptionError(f"column {name!r} must be {' or '.join(sorted(TYPES[name]))}")
    if options.topic is None and "topic" not in names:
        raise OptionError("give the option 'topic' or a column 'topic'")


@explained_errors()
def write_all(options: WriteOptions, batches: Iterable[pa.RecordBatch]) -> TaskCommit:
    """Store all rows of one task, visible at once."""
    sink = TopicSink(options, link(options))
    exempt_modules()
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
    exempt_modules()
    filled = (batch for batch in batches if batch.num_rows)
    first = next(filled, None)
    if first is None or is_committed(at, name):
        for _ in filled:
            pass
        return TaskCommit(0, 0, name.application_id)
    transaction = begin_transaction(at, options, name)
    try:
        sink = TopicSink(options, at, transaction)
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
        else:  # each attempt of each task would otherwise wait for an address that is wrong
            link(options).find_servers()

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
