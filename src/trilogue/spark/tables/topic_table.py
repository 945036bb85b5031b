"""The port to a table, and the part of a topic that one commit appends to it.

A table records, in the commit that appends rows, how far each partition was read. So a commit that
was made is recognised when its writer ended before it knew, and none is made twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from trilogue.spark.errors import SourceError

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc


SMALL_BYTES = 32 << 20
"""A smaller file is rewritten."""
GROUP_BYTES = 128 << 20
"""The most that is rewritten at once: compressed bytes."""


class TableError(SourceError, RuntimeError):
    """A table cannot be read or written."""


class TableChanged(TableError):
    """Another commit came first, or it is not known whether this one was made: read the table."""


class PartitionName(NamedTuple):
    """A partition as tables name it. A topic that was created again has another id."""

    topic: str
    topic_id: str
    partition: int

    def __str__(self) -> str:
        return f"trilogue:{self.topic}:{self.topic_id}:{self.partition}"


class TablePart(NamedTuple):
    """The rows of offsets [start, end) of one partition."""

    partition: PartitionName
    start: int
    end: int
    batches: list[pa.RecordBatch]


class OffsetRange(NamedTuple):
    """Offsets [start, end) of a partition, as columns `partition` and `offset` have them."""

    partition: int
    start: int
    end: int


class TopicTable(Protocol):
    """A table that messages are appended to. For one thread."""

    def read_positions(self, partitions: Iterable[PartitionName]) -> dict[PartitionName, int]:
        """Load the table, and return the next offset of each partition that is in it."""

    def append(self, schema: pa.Schema, parts: Sequence[TablePart]) -> None:
        """Append rows and positions in one commit, based on the table that was loaded.

        Columns that the table lacks are added. Raises `TableChanged`, `TableError`.
        """

    def read_rows(
        self, wanted: OffsetRange | None = None, columns: Sequence[str] | None = None
    ) -> pa.Table:
        """Return rows of the newest version, in no order: those of a range, or all."""

    def compact(self) -> int:
        """Rewrite small files into large ones; return how many were replaced."""

    def vacuum(self, hours: int) -> int:
        """Remove files that no version of the last `hours` has; return how many."""

    def close(self) -> None:
        """Release what the table holds, such as a lock."""


class TableFile(NamedTuple):
    """A Parquet file that Spark has written."""

    path: str
    size: int
    rows: int


class FileTable(Protocol):
    """A table that takes files with the rows of micro-batches. For one thread."""

    def read_batch(self, application: str) -> int | None:
        """Load the table; return the last batch that it has of an application, None if none."""

    def make_place(self, schema: pa.Schema, name: str) -> str:
        """Return a folder for new files below the table, which is created if there is none."""

    def add_files(
        self, schema: pa.Schema, files: Sequence[TableFile], application: str, batch_id: int
    ) -> None:
        """Add files and the number of their batch in one commit to the table that was loaded.

        Columns that the table lacks are added. Raises `TableChanged`, `TableError`.
        """


def check_partition_columns(columns: Iterable[str], schema: pa.Schema) -> None:
    """Raise `TableError` where rows of a new table have not these columns."""
    unknown = sorted(set(columns) - set(schema.names))
    if unknown:
        raise TableError(f"no columns to partition by: {', '.join(unknown)}")


def make_condition(wanted: OffsetRange | None) -> pc.Expression | None:
    """Return the rows of a range as a condition."""
    import pyarrow.dataset as ds

    if wanted is None:
        return None
    partition, offset = ds.field("partition"), ds.field("offset")
    return (partition == wanted.partition) & (offset >= wanted.start) & (offset < wanted.end)


def group_small_files(sizes: Mapping[str, int]) -> list[list[str]]:
    """Return files that become one: neighbours by name below `SMALL_BYTES`, `GROUP_BYTES` at most.

    `sizes`: bytes of each file. The rows of a group are in memory at once.
    """
    groups: list[list[str]] = [[]]
    size = 0
    for name in sorted(sizes):
        if sizes[name] >= SMALL_BYTES:
            continue
        if size + sizes[name] > GROUP_BYTES:
            groups.append([])
            size = 0
        groups[-1].append(name)
        size += sizes[name]
    return [group for group in groups if len(group) > 1]


def join_rows(schema: pa.Schema, parts: Iterable[TablePart]) -> pa.Table:
    """Return the rows of all parts."""
    import pyarrow as pa

    return pa.Table.from_batches([one for part in parts for one in part.batches], schema)
