"""Copies topics to a table, commit by commit; each continues where the table is.

    writer = TableWriter(options, DeltaTopicTable("/tables/orders"))
    while writer.write_next():
        ...                        # until all that was there is in the table

A commit has bounds in offsets and in bytes of memory, so a topic of any length is copied.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from trilogue.client.kafka.model import EARLIEST, LATEST
from trilogue.spark.errors import explained_errors
from trilogue.spark.offsets import Offsets, Partition, Range, admit, ranges
from trilogue.spark.plan import lost, starting
from trilogue.spark.range_reader import read_range, read_schema
from trilogue.spark.read_options import ReadOptions
from trilogue.spark.tables.topic_table import PartitionName, TableChanged, TablePart, TopicTable
from trilogue.spark.topic_lookup import find_lookup, find_partition_ids

if TYPE_CHECKING:
    import pyarrow as pa

    from trilogue.spark.payload.payload import Payload

OFFSET = "offset"
COMMIT_OFFSETS = 1_000_000
COMMIT_BYTES = 256 << 20
ATTEMPTS = 5


class CommitLimits(NamedTuple):
    """The most that one commit appends. The last batch may pass the bytes."""

    offsets: int = COMMIT_OFFSETS
    size: int = COMMIT_BYTES


DEFAULT_LIMITS = CommitLimits()


class Plan(NamedTuple):
    """What the table lacks: where each partition goes on, and where it ends now."""

    names: dict[Partition, PartitionName]
    begin: Offsets
    end: Offsets

    @property
    def lag(self) -> int:
        """How many offsets are not in the table."""
        return sum(end - self.begin[key] for key, end in self.end.items())


class TableWriter:
    """Appends the messages of the topics of `options` to a table, exactly once and in order."""

    def __init__(
        self, options: ReadOptions, table: TopicTable, limits: CommitLimits = DEFAULT_LIMITS
    ) -> None:
        """`options` are those of the Spark source. Columns and a payload become columns."""
        self._options = options.for_batch()
        self._table = table
        self._limits = limits
        self._payloads: tuple[Payload, ...] = ()
        self._schema: pa.Schema | None = None

    @explained_errors()
    def plan(self) -> Plan:
        """Load the table, and return what it lacks; DataLost if that is not in the log."""
        options = self._options
        lookup = find_lookup(options)
        partitions = lookup.partitions(options)
        ids = lookup.ids(partitions)
        names = {key: PartitionName(key[0], ids.get(key[0], ""), key[1]) for key in partitions}
        known = self._table.read_positions(names.values())
        begin = {key: known[name] for key, name in names.items() if name in known}
        if len(begin) < len(names):
            begin = starting(lookup, options, partitions, EARLIEST) | begin
        end = lookup.resolve(dict.fromkeys(partitions, LATEST))
        for key, offset in begin.items():
            if offset > end[key] and names[key] in known:
                first = lookup.resolve({key: EARLIEST})[key]
                raise lost([key], f"the table is at offset {offset}", first, end[key])
        return Plan(names, begin, {key: max(begin[key], offset) for key, offset in end.items()})

    @explained_errors()
    def write_next(self) -> int:
        """Make the next commit; return how many offsets it covers, 0 if the table has all."""
        for attempt in range(ATTEMPTS):
            plan = self.plan()
            admitted = admit(plan.begin, plan.end, self._limits.offsets)
            parts = list(self._read_parts(plan, ranges(plan.begin, admitted)))
            if not parts:
                return 0
            try:
                self._table.append(self._find_schema(), parts)
            except TableChanged:
                if attempt == ATTEMPTS - 1:
                    raise
            else:
                return sum(part.end - part.start for part in parts)
        return 0

    def _read_parts(self, plan: Plan, wanted: list[Range]) -> Iterator[TablePart]:
        """Read ranges until the limit of bytes; the last part may end within its range."""
        options = self._resolve()
        ids = {key[0]: name.topic_id for key, name in plan.names.items() if name.topic_id}
        partition_ids = find_partition_ids(options, plan.names, ids)
        left = self._limits.size
        for one in wanted:
            key = (one.topic, one.partition)
            batches, end = [], one.end
            rows = read_range(options, one, self._payloads, partition_ids.get(key))
            for batch in rows:
                batches.append(self._select(batch))
                left -= batch.nbytes
                if left <= 0 and batch.num_rows:
                    end = batch.column(OFFSET)[-1].as_py() + 1
                    break
            rows.close()
            yield TablePart(plan.names[key], one.start, end, batches)
            if left <= 0:
                return

    def _resolve(self) -> ReadOptions:
        """Return the options with the column offset, by which a part knows its end."""
        options = self._options
        if options.payloads and not self._payloads:
            from trilogue.spark.payload.resolution import resolve_payloads

            self._payloads = resolve_payloads(options)
        if OFFSET in options.columns:
            return options
        return replace(options, columns=(*options.columns, OFFSET))

    def _find_schema(self) -> pa.Schema:
        if self._schema is None:
            self._schema = read_schema(self._options, self._payloads)
        return self._schema

    def _select(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.select(self._find_schema().names)
