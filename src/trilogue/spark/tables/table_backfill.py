"""Copies a table of a topic to a topic, in the order of offsets, exactly once.

    backfill = TableBackfill(DeltaTopicTable("/tables/orders"), "/tables/orders", options)
    while backfill.send_next():
        ...                        # until all rows are in the topic

Each commit is a transaction. The server keeps, in the decision that commits it, the next offset of
the partition, so a process that was killed goes on there, and rows that came later follow.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from trilogue.client.kafka.producer.transactional_writer import TransactionalWriter
from trilogue.entry.arrow import arrow_schema
from trilogue.spark.errors import OptionError, explained_errors
from trilogue.spark.link import link
from trilogue.spark.tables.topic_table import OffsetRange, TableError
from trilogue.spark.topic_sink import TopicSink
from trilogue.spark.write_options import WriteOptions

if TYPE_CHECKING:
    import pyarrow as pa

OFFSETS = 100_000
"""How many offsets a commit covers: their rows are in memory at once."""
ADDRESS = ("partition", "offset")
SENT = ("key", "value", "timestamp", "headers")


class RowTable(Protocol):
    """A table whose rows have columns `partition` and `offset`."""

    def read_rows(
        self, wanted: OffsetRange | None = None, columns: Sequence[str] | None = None
    ) -> pa.Table:
        """Return rows of the newest version, in no order: of a range, or all of them."""


class TableBackfill:
    """Sends the rows of a table, commit by commit. Of a table of one topic."""

    def __init__(
        self, table: RowTable, name: str, options: WriteOptions, *, offsets: int = OFFSETS,
        keep_partitions: bool = True,
    ) -> None:  # fmt: skip
        """`name` of the table: another one, or another topic, sends all rows again.

        `keep_partitions`: rows go to the partition that they came from; else their keys decide.
        """
        if options.topic is None:
            raise OptionError("option 'topic' is required")
        self._table = table
        self._name = name
        self._options = options
        self._offsets = offsets
        self._keep_partitions = keep_partitions
        self._topic = options.topic
        self._ends: dict[int, tuple[int, int]] | None = None

    @explained_errors()
    def send_next(self) -> int:
        """Send the next rows of one partition; return how many, 0 if the topic has all."""
        at = link(self._options)
        if not at.can_commit_batches():
            raise OptionError(
                f"the server at {self._options.servers} keeps no positions of a table with the "
                "rows, as Trilogue does"
            )
        if self._ends is None:
            self._ends = self._find_bounds()
        for partition, (first, end) in sorted(self._ends.items()):
            application = self._find_application(partition)
            last = at.run(at.admin.last_batch(application))
            start = first if last is None else max(first, last.batch_id)
            rows = self._read_rows(partition, start, end)
            if rows is not None:
                self._send(application, rows)
                return int(rows.num_rows)
        self._ends = None  # what comes later is looked for again
        return 0

    def _find_bounds(self) -> dict[int, tuple[int, int]]:
        """Return the first and the next offset of each partition."""
        found = self._table.read_rows(None, ADDRESS)
        grouped = found.group_by("partition").aggregate([("offset", "min"), ("offset", "max")])
        return {
            row["partition"]: (row["offset_min"], row["offset_max"] + 1)
            for row in grouped.to_pylist()
        }

    def _find_application(self, partition: int) -> str:
        at = link(self._options)
        at.run(at.cluster.partitions(self._topic, create=True))
        topic_id = at.ids([(self._topic, 0)]).get(self._topic, "")
        digest = hashlib.sha256(f"{self._name}\n{self._topic}\n{topic_id}".encode()).hexdigest()
        return f"table-{digest[:32]}-{partition}"

    def _read_rows(self, partition: int, start: int, end: int) -> pa.Table | None:
        """Return the next rows in order; None if there are no more."""
        if start >= end:
            return None
        last = min(end, start + self._offsets)
        rows = self._table.read_rows(OffsetRange(partition, start, last))
        if not rows.num_rows:  # a gap
            import pyarrow.compute as pc

            later = self._table.read_rows(OffsetRange(partition, last, end), ADDRESS)
            return self._read_rows(partition, pc.min(later["offset"]).as_py(), end)
        if "topic" in rows.column_names and len(rows["topic"].unique()) > 1:
            raise TableError(f"{self._name} has rows of several topics, which have no one order")
        return rows.sort_by("offset")

    def _send(self, application: str, rows: pa.Table) -> None:
        at = link(self._options)
        writer = TransactionalWriter(
            at.cluster, application, timeout_s=self._options.transaction_timeout_s
        )
        at.run(writer.begin())
        sink = TopicSink(self._options, at, writer)
        for batch in self._convert(rows).combine_chunks().to_batches():
            sink.write(batch)
        prepared = writer.prepare()
        assert prepared is not None
        position = rows["offset"][-1].as_py() + 1
        at.run(
            at.admin.commit_transactions([prepared], application_id=application, batch_id=position)
        )

    def _convert(self, rows: pa.Table) -> pa.Table:
        """Return the columns of messages; typed values become JSON."""
        import pyarrow as pa

        names = [name for name in SENT if name in rows.column_names]
        if "value" not in names:
            raise TableError(f"{self._name} has no column 'value'")
        found = rows.select([*names, *ADDRESS[: self._keep_partitions]])
        at, kind = names.index("value"), rows.schema.field("value").type
        if pa.types.is_nested(kind):
            texts = [
                None if each is None else json.dumps(each, default=_to_json, ensure_ascii=False)
                for each in rows["value"].to_pylist()
            ]
            found = found.set_column(at, "value", pa.array(texts, pa.string()))
        return found.cast(arrow_schema(tuple(found.column_names)))


def _to_json(value: Any) -> str:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
