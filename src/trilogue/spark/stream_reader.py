"""Streaming reads: offsets planned in the driver, admission by rows and bytes, AvailableNow."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from trilogue.client.errors import ConnectionLost
from trilogue.client.kafka.model import EARLIEST, LATEST
from trilogue.spark.errors import DataLost, explained_errors
from trilogue.spark.offsets import Ids, Offsets, Partition, from_json, keep_positions, to_json
from trilogue.spark.plan import starting
from trilogue.spark.read_options import ReadOptions
from trilogue.spark.reader import RangePartition, planned, read_task
from trilogue.spark.topic_lookup import TopicLookup, find_group_lookup, find_lookup

if TYPE_CHECKING:
    import pyarrow as pa

    from trilogue.spark.payload.payload import Payload


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches in the planner process; `read` runs in workers, without state.

    A query continues at the offsets of its checkpoint. A new partition is read from its beginning;
    so is a topic that was created again, if failOnDataLoss=false.
    """

    def __init__(
        self,
        options: ReadOptions,
        payloads: Sequence[Payload] = (),
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._options = options.for_stream()
        self._payloads = payloads
        self._monotonic = monotonic
        self._until: tuple[Offsets, Ids] | None = None
        self._last_trigger = -math.inf

    @explained_errors()
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return where a new query starts: startingOffsets, or the latest."""
        at = self._at()
        partitions = at.partitions(self._options)
        return to_json(starting(at, self._options, partitions, LATEST), at.ids(partitions))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return maxOffsetsPerTrigger or maxBytesPerTrigger as Spark's own limit."""
        rows, size = self._options.max_offsets_per_trigger, self._options.max_bytes_per_trigger
        if rows is not None:
            return ReadMaxRows(rows)
        return ReadAllAvailable() if size is None else ReadMaxBytes(size)

    @explained_errors()
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return the end of the next micro-batch; `start` if there is not enough for one yet."""
        latest, ids = self._now() if self._until is None else self._until
        latest = keep_positions(from_json(start)[0], latest)
        begin = self._continued(start, latest, ids)
        latest = begin | latest  # a partition that went away keeps its position
        at = self._at()
        if self._should_wait(lambda: sum(at.lags(begin, latest).values())):
            return start
        rows = self._admitted_rows(at, begin, latest, limit)
        if rows is not None:
            latest = at.admit(begin, latest, rows)
        return to_json(latest, from_json(start)[1] | ids)

    @explained_errors()
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fix the present ends, at which the query stops."""
        self._until = self._now()

    @explained_errors()
    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Return the ends, for the backlog in the query's progress."""
        return to_json(*self._now())

    @explained_errors()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[RangePartition]:
        """Split a micro-batch into tasks; a repeated one gets the same offsets again."""
        last, ids = from_json(end)
        begin, _ = self._known(start, last, ids)
        return planned(self._at(), self._options, begin, last, ids)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one range in a worker."""
        return read_task(self._options, partition, self._payloads)

    @explained_errors()
    def commit(self, end: dict[str, Any]) -> None:
        """Publish the position under a group or subscription; Spark's checkpoint is what counts."""
        if self._options.group is not None:
            with suppress(ConnectionLost):  # the next micro-batch publishes a newer one
                find_group_lookup(self._options).publish_positions(
                    self._options.group, from_json(end)[0]
                )

    def stop(self) -> None:
        """Do nothing: connections belong to the process."""

    def _at(self) -> TopicLookup:
        return find_lookup(self._options)

    def _now(self) -> tuple[Offsets, Ids]:
        at = self._at()
        partitions = at.partitions(self._options)
        return at.resolve(dict.fromkeys(partitions, LATEST)), at.ids(partitions)

    def _admitted_rows(
        self, at: TopicLookup, begin: Offsets, latest: Offsets, limit: ReadLimit
    ) -> int | None:
        """Return how many offsets a limit admits; both options hold where both are given."""
        if not isinstance(limit, ReadMaxRows | ReadMaxBytes):
            return None
        admitted = [limit.max_rows] if isinstance(limit, ReadMaxRows) else []
        size = self._options.max_bytes_per_trigger
        if size is not None:
            sizes, lags = at.mean_sizes(latest), at.lags(begin, latest)
            total = sum(lag * sizes.get(key, 0) for key, lag in lags.items())
            if total > size:  # offsets are shared by lag, and so are bytes then
                admitted.append(max(1, int(sum(lags.values()) * size / total)))
        return min(admitted, default=None)

    def _should_wait(self, count_lag: Callable[[], int]) -> bool:
        """Return whether minOffsetsPerTrigger delays a micro-batch; AvailableNow reads all."""
        least, now = self._options.min_offsets_per_trigger, self._monotonic()
        few = least is not None and self._until is None and count_lag() < least
        if few and now - self._last_trigger < self._options.max_trigger_delay_s:
            return True
        self._last_trigger = now
        return False

    def _continued(self, start: dict[str, Any], latest: Offsets, ids: Ids) -> Offsets:
        """Return where to continue; DataLost if that is no longer in the log."""
        begin, again = self._known(start, latest, ids)
        gone = sorted(begin.keys() - latest.keys())
        if self._options.fail_on_data_loss and (gone or again):
            topic, number = (gone or again)[0]
            what = "is gone" if gone else "was made again, or lost its end"
            raise DataLost(
                f"{topic}-{number} {what}; the query has read up to offset "
                f"{from_json(start)[0][topic, number]} of it. failOnDataLoss=false reads on "
                "from the beginning of what is there."
            )
        return begin

    def _known(
        self, start: dict[str, Any], last: Offsets, ids: Ids
    ) -> tuple[Offsets, list[Partition]]:
        """Return `start` for the present partitions, and the partitions that were created again."""
        begin, old_ids = from_json(start)
        again = sorted(
            (topic, number)
            for (topic, number), offset in begin.items()
            if old_ids.get(topic, ids.get(topic)) != ids.get(topic, old_ids.get(topic))
            or offset > last.get((topic, number), offset)
        )
        new = [key for key in last if key not in begin]
        found = self._at().resolve(dict.fromkeys([*new, *again], EARLIEST))
        return begin | found, again
