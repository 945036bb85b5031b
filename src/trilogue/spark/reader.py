"""Batch reads, and the tasks of batch and streaming reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from trilogue.client.kafka.model import EARLIEST
from trilogue.spark.errors import explained_errors
from trilogue.spark.filters import ALL_COLUMNS, OF_PARTITIONS, ReadFilter
from trilogue.spark.offsets import Ids, Offsets, Range, ranges
from trilogue.spark.plan import check_order, ending, starting
from trilogue.spark.processes import exempt_modules
from trilogue.spark.read_options import ReadOptions
from trilogue.spark.topic_lookup import TopicLookup, find_lookup, find_partition_ids

if TYPE_CHECKING:
    import pyarrow as pa

    from trilogue.spark.payload.payload import Payload


class RangePartition(InputPartition):
    """The range of one task, and the id of its partition in a data directory, if it has one."""

    def __init__(self, value: Range, partition_id: int | None = None) -> None:
        super().__init__(value)
        self.partition_id = partition_id


class BatchReader(DataSourceReader):
    """Reads every partition from start to end, both fixed at planning."""

    def __init__(self, options: ReadOptions, payloads: Sequence[Payload] = ()) -> None:
        self._options = options.for_batch()
        self._payloads = payloads

    @explained_errors()
    def partitions(self) -> list[InputPartition]:
        """Return the tasks."""
        options = self._options
        at = find_lookup(options)
        partitions = at.partitions(options)
        start = starting(at, options, partitions, EARLIEST)
        end = ending(at, options, partitions)
        if options.service is None:
            check_order(start, end)
        start, end = self._narrow(at, start, end)
        return [*planned(at, options, start, end, at.ids(partitions))]

    def _narrow(self, at: TopicLookup, start: Offsets, end: Offsets) -> tuple[Offsets, Offsets]:
        """Return the part of [start, end) that the query needs: all."""
        del at
        return start, end

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one range in a worker."""
        return read_task(self._options, partition, self._payloads)


class FilteredBatchReader(BatchReader):
    """A batch reader that takes filters. Spark fails where it gets one and has no push-down."""

    def __init__(self, options: ReadOptions, payloads: Sequence[Payload] = ()) -> None:
        super().__init__(options, payloads)
        self._filter = ReadFilter(ALL_COLUMNS if options.service is None else OF_PARTITIONS)

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Take what narrows the read, and return the filters that Spark applies as well."""
        return [each for each in filters if not self._filter.add(each)]

    def _narrow(self, at: TopicLookup, start: Offsets, end: Offsets) -> tuple[Offsets, Offsets]:
        return self._filter.narrow(at, start, end)


def planned(
    at: TopicLookup, options: ReadOptions, start: Offsets, end: Offsets, ids: Ids
) -> list[RangePartition]:
    """Split ranges into tasks according to the options; `ids` are those of the topics."""
    if options.min_partitions is not None or options.max_records_per_partition is not None:
        start = at.firsts(start, end)
    split = ranges(start, end, options.min_partitions, options.max_records_per_partition)
    found = find_partition_ids(options, end, ids)
    return [RangePartition(one, found.get((one.topic, one.partition))) for one in split]


def read_task(
    options: ReadOptions, partition: InputPartition, payloads: Sequence[Payload]
) -> Iterator[pa.RecordBatch]:
    """Read one range in a worker."""
    if not isinstance(partition, RangePartition):  # Spark's single task of a plan without any
        return iter(())
    from trilogue.spark.range_reader import read_range

    exempt_modules()
    return read_range(options, partition.value, payloads, partition.partition_id)
