"""The port to a table, and the part of a topic that one commit appends to it.

A table records, in the commit that appends rows, how far each partition was read. So a commit that
was made is recognised when its writer ended before it knew, and none is made twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from trilogue.spark.errors import SourceError

if TYPE_CHECKING:
    import pyarrow as pa


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


class TopicTable(Protocol):
    """A table that messages are appended to. For one thread."""

    def read_positions(self, partitions: Iterable[PartitionName]) -> dict[PartitionName, int]:
        """Load the table, and return the next offset of each partition that is in it."""

    def append(self, schema: pa.Schema, parts: Sequence[TablePart]) -> None:
        """Append rows and positions in one commit, based on the table that was loaded.

        Columns that the table lacks are added. Raises `TableChanged`, `TableError`.
        """

    def compact(self) -> int:
        """Rewrite small files into large ones; return how many were replaced."""

    def close(self) -> None:
        """Release what the table holds, such as a lock."""


def join_rows(schema: pa.Schema, parts: Iterable[TablePart]) -> pa.Table:
    """Return the rows of all parts."""
    import pyarrow as pa

    return pa.Table.from_batches([one for part in parts for one in part.batches], schema)
