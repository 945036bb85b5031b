"""Tasks that are slow on purpose, so that Spark starts a second attempt of them beside the first.

In each micro-batch task 0 has written all its rows in both attempts before one of them ends. By
the number of the micro-batch the second attempt ends, or the first, or both at once; the other
stays until Spark kills it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.types import StructType

from tests.waiting import wait_until
from trilogue.spark.source import DefaultSource
from trilogue.spark.transactions import BATCH_ID
from trilogue.spark.write_options import WriteOptions
from trilogue.spark.writer import StreamWriter

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import WriterCommitMessage

WINNERS = ({1}, {0}, {0, 1})
"""The attempts that end, by micro-batch."""
WAIT_S = 240.0


def mark_path(folder: Path, batch_id: int, attempt: int) -> Path:
    """Return the file that an attempt of task 0 leaves when it has written its rows."""
    return folder / f"written-{batch_id}-{attempt}"


def linger(batches: Iterable[pa.RecordBatch], folder: Path) -> Iterator[pa.RecordBatch]:
    """Pass batches on; come to the end when the other attempt of task 0 has written them too."""
    yield from batches
    context = TaskContext.get()
    assert context is not None
    if context.partitionId() != 0:
        return
    batch_id = int(context.getLocalProperty(BATCH_ID) or 0)
    attempt = context.attemptNumber()
    mark_path(folder, batch_id, attempt).touch()
    if attempt in WINNERS[batch_id]:
        wait_until(mark_path(folder, batch_id, 1 - attempt).exists, "the other attempt", WAIT_S)
    else:
        threading.Event().wait(WAIT_S)
        raise AssertionError(f"attempt {attempt} of micro-batch {batch_id} was not killed")


class SlowSource(DefaultSource):
    """The sink, with an option `folder` for the marks."""

    @classmethod
    def name(cls) -> str:
        return "slow"

    def streamWriter(self, schema: StructType, overwrite: bool) -> SlowWriter:  # noqa: N802
        del overwrite
        options = dict(self.options)
        folder = next(Path(options.pop(key)) for key in list(options) if key.lower() == "folder")
        return SlowWriter(WriteOptions.parse(options), schema, folder)


class SlowWriter(StreamWriter):
    """The sink's writer, whose task 0 ends late."""

    def __init__(self, options: WriteOptions, schema: StructType, folder: Path) -> None:
        super().__init__(options, schema)
        self._folder = folder

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return super().write(linger(iterator, self._folder))
