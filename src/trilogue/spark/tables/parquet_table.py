"""A folder of Parquet files whose names are the positions: partition, first and next offset.

A file gets its name when it is whole and on the disk, so a reader of `*.parquet` finds each offset
once. One writer at a time holds the lock of the folder.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from trilogue.spark.tables.topic_table import PartitionName, TableError, TablePart

if TYPE_CHECKING:
    import pyarrow as pa

LOCK = "_trilogue.lock"
DRAFT = ".draft-"
_NAME = re.compile(r"(?P<topic>.+)-(?P<id>[0-9a-f]*)-(?P<partition>\d+)-\d+-(?P<end>\d+)\.parquet")


class ParquetTopicTable:
    """A local folder, created if there is none; locked until `close`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = (folder / LOCK).open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._lock.close()
            raise TableError(f"another writer has the lock of {folder}") from None
        for draft in folder.glob(f"{DRAFT}*"):
            draft.unlink()

    def close(self) -> None:
        """Release the lock."""
        self._lock.close()

    def read_positions(self, partitions: Iterable[PartitionName]) -> dict[PartitionName, int]:
        """Return the positions in the names of the files."""
        wanted = set(partitions)
        found: dict[PartitionName, int] = {}
        for path in self._folder.glob("*.parquet"):
            match = _NAME.fullmatch(path.name)
            if match is None:
                continue
            name = PartitionName(unquote(match["topic"]), match["id"], int(match["partition"]))
            if name in wanted:
                found[name] = max(found.get(name, 0), int(match["end"]))
        return found

    def append(self, schema: pa.Schema, parts: Sequence[TablePart]) -> None:
        """Write a file for each partition. Each is a commit of its own."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        for part in parts:
            topic, topic_id, number = part.partition
            name = f"{quote(topic, safe='')}-{topic_id}-{number}-{part.start}-{part.end}.parquet"
            draft = self._folder / f"{DRAFT}{name}"
            with draft.open("wb") as file:
                pq.write_table(pa.Table.from_batches(part.batches, schema), file)
                file.flush()
                os.fsync(file.fileno())
            draft.rename(self._folder / name)
        self._sync_folder()

    def compact(self) -> int:
        """Raise TableError: readers of a folder would see rows twice, or miss them, meanwhile."""
        raise TableError(f"{self._folder}: Parquet has no commits that replace files; use Delta")

    def _sync_folder(self) -> None:
        descriptor = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
