"""Batch reads, and the loop that turns a range of offsets into Arrow batches.

The next fetch is under way while Spark processes the present one. Memory holds one fetch, the
received part of the next one, and the batch that is being filled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from trilogue.client.errors import ServerRefused
from trilogue.client.kafka.consumer.batch_reader import FetchedRecords
from trilogue.client.kafka.model import EARLIEST, LATEST
from trilogue.entry.arrow import ArrowReader
from trilogue.entry.walk import walk_headers
from trilogue.spark.errors import explained_errors
from trilogue.spark.link import Link, link
from trilogue.spark.offsets import Offsets, Range, ranges
from trilogue.spark.payload.batch_decoder import BatchDecoder
from trilogue.spark.payload.payload import Payload
from trilogue.spark.plan import ending, lost, starting
from trilogue.spark.read_options import ReadOptions
from trilogue.wire.kafka.errors import ErrorCode

if TYPE_CHECKING:
    import pyarrow as pa

WAIT_MS = 500


class RangePartition(InputPartition):
    """The range of one task."""

    def __init__(self, value: Range) -> None:
        super().__init__(value)


class BatchReader(DataSourceReader):
    """Reads every partition from start to end, both fixed at planning."""

    def __init__(self, options: ReadOptions, payload: Payload | None = None) -> None:
        self._options = options.for_batch()
        self._payload = payload

    @explained_errors()
    def partitions(self) -> list[InputPartition]:
        """Return the tasks."""
        options = self._options
        at = link(options)
        partitions = at.partitions(options)
        start = starting(at, options, partitions, EARLIEST)
        end = ending(at, options, partitions)
        return [RangePartition(one) for one in planned(options, start, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one range in a worker."""
        return read_range(self._options, partition.value if partition else None, self._payload)


def planned(options: ReadOptions, start: Offsets, end: Offsets) -> list[Range]:
    """Split ranges into tasks according to the options."""
    return ranges(start, end, options.min_partitions, options.max_records_per_partition)


def read_range(
    options: ReadOptions, wanted_range: Range | None, payload: Payload | None = None
) -> Iterator[pa.RecordBatch]:
    """Fetch and decode one range; DataLost if it is missing and failOnDataLoss is set."""
    if wanted_range is None:  # it is for Spark's single task of a plan without partitions
        return
    with explained_errors():
        if payload is None:
            yield from _read_range(options, wanted_range, options.columns)
        else:
            place = f"{wanted_range.topic}-{wanted_range.partition}"
            decoder = BatchDecoder(payload, options.columns, place)
            yield from decoder.decode_all(_read_range(options, wanted_range, decoder.columns))


def _read_range(
    options: ReadOptions, wanted_range: Range, columns: tuple[str, ...]
) -> Iterator[pa.RecordBatch]:
    at = link(options)
    arrow = ArrowReader(*wanted_range, columns=columns, limit=options.decompressed_limit)
    fetches = _Fetches(at, options, wanted_range)
    waits = 0
    try:
        while not arrow.done:
            before = arrow.next_offset
            fetched = fetches.finish_fetch(before)
            if fetched is not None:
                fetches.go_on(_end(fetched.records, before))
                yield from arrow.feed(fetched.records, fetched.aborted)
            waits = waits + 1 if arrow.next_offset == before else 0
            if fetched is None or waits * WAIT_MS >= options.patience_ms:
                arrow.next_offset = _after_gap(at, wanted_range, options, before, waits)
    finally:
        fetches.drop()
    yield from arrow.flush()


class _Fetches:
    """The fetches of one range, one ahead of what Spark processes."""

    def __init__(self, at: Link, options: ReadOptions, where: Range) -> None:
        self._at, self._options, self._where = at, options, where
        self._offset = -1
        self._task: asyncio.Task[FetchedRecords] | None = None

    def go_on(self, offset: int) -> None:
        """Start the fetch at `offset`, unless it is beyond the range."""
        self._offset = offset
        self._task = None if offset >= self._where.end else self._at.start(self._fetch(offset))

    def finish_fetch(self, offset: int) -> FetchedRecords | None:
        """Return the fetch at `offset`; None if the log has no such offset."""
        if self._task is None or self._offset != offset:
            self.drop()
            self.go_on(offset)
        task, self._task = self._task, None
        assert task is not None
        try:
            return self._at.wait(task)
        except ServerRefused as refused:
            if refused.code != ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            return None

    def drop(self) -> None:
        """Cancel the fetch under way."""
        if self._task is not None:
            self._at.drop(self._task)
            self._task = None

    async def _fetch(self, offset: int) -> FetchedRecords:
        topic, partition, _, _ = self._where
        size = self._options.fetch_bytes
        consumer = self._at.consumer
        return await consumer.fetch(topic, partition, offset, max_bytes=size, max_wait_ms=WAIT_MS)


def _end(records: memoryview, offset: int) -> int:
    """Return where the next fetch begins after this one."""
    entries = walk_headers(records, cut_is_end=True)
    return max(offset, entries[-1][2] + entries[-1][3] + 1) if entries else offset


def _after_gap(at: Link, where: Range, options: ReadOptions, offset: int, waits: int) -> int:
    """Handle a missing offset: raise DataLost, or return the next offset of the log."""
    key = (where.topic, where.partition)
    first = at.resolve({key: EARLIEST})[key]
    last = at.resolve({key: LATEST})[key]
    if first <= offset <= last and waits * WAIT_MS < options.patience_ms:
        return offset  # it is there by now
    if options.fail_on_data_loss:
        raise lost([key], f"offsets [{offset}, {where.end}) are wanted", first, last)
    return min(first, where.end) if offset < first else where.end
