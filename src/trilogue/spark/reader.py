"""Batch reads, and the one loop that turns a range of offsets into Arrow batches.

While Spark takes a batch, the next fetch is already on its way. Memory holds one fetch and the
batch that is being filled.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from trilogue.client.errors import ServerRefused
from trilogue.client.kafka.consumer import EARLIEST, LATEST, Fetched
from trilogue.entry.arrow import ArrowReader
from trilogue.spark.link import Link, link
from trilogue.spark.offsets import Range, ranges, wanted
from trilogue.spark.options import OptionError, ReadOptions

if TYPE_CHECKING:
    import pyarrow as pa

OFFSET_OUT_OF_RANGE = 1
WAIT_MS = 500
EMPTY_FETCHES = 120
"""A range that yields nothing for so many waits in a row (a minute) has lost its data."""


class DataLost(RuntimeError):
    """Offsets that were asked for are no longer (or not yet) in the log."""


class RangePartition(InputPartition):
    """One task's range."""

    def __init__(self, value: Range) -> None:
        super().__init__(value)


class BatchReader(DataSourceReader):
    """Reads [startingOffsets, endingOffsets) of every partition, fixed at planning."""

    def __init__(self, options: ReadOptions) -> None:
        if options.max_offsets_per_trigger is not None:
            raise OptionError("maxOffsetsPerTrigger is for streams only")
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """Plan the tasks."""
        options = self._options
        at = link(options.servers)
        partitions = at.partitions(options)
        starting = EARLIEST if options.starting is None else options.starting
        start = at.resolve(wanted(starting, partitions, EARLIEST))
        end = at.resolve(wanted(options.ending, partitions, LATEST))
        return [RangePartition(one) for one in ranges(start, end, options.min_partitions)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one range in a worker."""
        return read_range(self._options, partition.value if partition else None)


def read_range(options: ReadOptions, wanted_range: Range | None) -> Iterator[pa.RecordBatch]:
    """Fetch and decode one range; DataLost when it is not there and failOnDataLoss holds."""
    if wanted_range is None:  # Spark's one task of a plan without partitions
        return
    topic, partition, start, end = wanted_range
    at = link(options.servers)
    arrow = ArrowReader(topic, partition, start, end, columns=options.columns)
    waits = 0
    fetching = at.start(_fetch(at, wanted_range, options, start))
    while not arrow.done:
        try:
            fetched = at.wait(fetching)
        except ServerRefused as refused:
            if refused.code != OFFSET_OUT_OF_RANGE:
                raise
            arrow.next_offset = _after_gap(at, wanted_range, options, arrow.next_offset)
            fetching = at.start(_fetch(at, wanted_range, options, arrow.next_offset))
            continue
        before = arrow.next_offset
        yield from arrow.feed(fetched.records, fetched.aborted)
        waits = waits + 1 if arrow.next_offset == before else 0
        if waits == EMPTY_FETCHES:
            raise DataLost(f"{topic}-{partition}: nothing came at offset {before} of {end}")
        if not arrow.done:
            fetching = at.start(_fetch(at, wanted_range, options, arrow.next_offset))
    yield from arrow.flush()


async def _fetch(at: Link, where: Range, options: ReadOptions, offset: int) -> Fetched:
    return await at.consumer.fetch(
        where.topic, where.partition, offset, max_bytes=options.fetch_bytes, max_wait_ms=WAIT_MS
    )


def _after_gap(at: Link, where: Range, options: ReadOptions, offset: int) -> int:
    """Decide what to do about an offset outside the log: fail, or go on where the log starts."""
    key = (where.topic, where.partition)
    first = at.resolve({key: EARLIEST})[key]
    last = at.resolve({key: LATEST})[key]
    if options.fail_on_data_loss:
        raise DataLost(
            f"{where.topic}-{where.partition}: offsets [{offset}, {where.end}) are wanted, the log "
            f"holds [{first}, {last}). Old data was removed, or the topic was made again. "
            "failOnDataLoss=false reads what is there."
        )
    return where.end if offset > last or first >= where.end else max(first, offset)
