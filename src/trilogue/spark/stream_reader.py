"""Streaming reads: offsets planned in the driver, admission by rows, Trigger.AvailableNow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from trilogue.client.kafka.consumer import EARLIEST, LATEST
from trilogue.spark.link import link
from trilogue.spark.offsets import Offsets, admit, from_json, ranges, to_json, wanted
from trilogue.spark.options import OptionError, ReadOptions
from trilogue.spark.reader import RangePartition, read_range

if TYPE_CHECKING:
    import pyarrow as pa


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches. Lives in the planner process; `read` runs in workers, without state."""

    def __init__(self, options: ReadOptions) -> None:
        if options.ending != LATEST:
            raise OptionError("endingOffsets is for batch reads only")
        self._options = options
        self._until: Offsets | None = None
        self._known: Offsets = {}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Where a new query starts: startingOffsets, or the latest."""
        starting = LATEST if self._options.starting is None else self._options.starting
        at = link(self._options.servers)
        partitions = at.partitions(self._options)
        self._known = at.resolve(wanted(starting, partitions, LATEST))
        return to_json(self._known)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return maxOffsetsPerTrigger as Spark's own limit."""
        rows = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if rows is None else ReadMaxRows(rows)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """How far the next micro-batch goes."""
        begin = from_json(start)
        latest = self._ends() if self._until is None else dict(self._until)
        latest = {key: max(end, begin.get(key, 0)) for key, end in latest.items()}
        for key, offset in begin.items():  # a partition that went away keeps its position
            latest.setdefault(key, offset)
        if isinstance(limit, ReadMaxRows):
            new = [key for key in latest if key not in begin]
            begin |= self._beginnings(new)
            latest = admit(begin, latest, limit.max_rows)
        return to_json(latest)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fix what is there now: the query stops when it has read up to here."""
        self._until = self._ends()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Show the backlog in the query's progress."""
        return to_json(self._ends())

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[RangePartition]:
        """Split a micro-batch into tasks. A partition that is new starts at its beginning."""
        begin, last = from_json(start), from_json(end)
        begin |= self._beginnings([key for key in last if key not in begin])
        return [RangePartition(one) for one in ranges(begin, last, self._options.min_partitions)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one range in a worker."""
        return read_range(self._options, partition.value)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing: Spark's checkpoint is the position."""

    def stop(self) -> None:
        """Nothing to free: connections belong to the process."""

    def _ends(self) -> Offsets:
        at = link(self._options.servers)
        return at.resolve(dict.fromkeys(at.partitions(self._options), LATEST))

    def _beginnings(self, partitions: list[tuple[str, int]]) -> Offsets:
        return link(self._options.servers).resolve(dict.fromkeys(partitions, EARLIEST))
