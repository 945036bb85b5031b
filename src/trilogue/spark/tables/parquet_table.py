"""A folder of Parquet files whose names are the positions: partition, first and next offset.

A file gets its name when it is whole and on the disk, so a reader of `*.parquet` finds each offset
once. One writer at a time holds the lock of the folder.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote, unquote

from trilogue.spark.tables.topic_table import (
    SMALL_BYTES,
    OffsetRange,
    PartitionName,
    TableError,
    TablePart,
    group_small_files,
    make_condition,
)

if TYPE_CHECKING:
    import pyarrow as pa

LOCK = "_trilogue.lock"
DRAFT = ".draft-"
_NAME = re.compile(
    r"(?P<topic>.+)-(?P<id>[0-9a-f]*)-(?P<partition>\d+)-(?P<start>\d+)-(?P<end>\d+)\.parquet"
)


class TopicFile(NamedTuple):
    """A file with the rows of offsets [start, end) of one partition."""

    partition: PartitionName
    start: int
    end: int
    path: Path

    def overlaps(self, wanted: OffsetRange) -> bool:
        """Return whether the file may have rows of a range."""
        same = self.partition.partition == wanted.partition
        return same and self.start < wanted.end and self.end > wanted.start


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
        self._remove_replaced()

    def vacuum(self, hours: int) -> int:
        """Return 0: a compaction removes the files that it has replaced."""
        del hours
        self._find_files()
        return 0

    def close(self) -> None:
        """Release the lock."""
        self._lock.close()

    def read_positions(self, partitions: Iterable[PartitionName]) -> dict[PartitionName, int]:
        """Return the positions in the names of the files."""
        wanted = set(partitions)
        found: dict[PartitionName, int] = {}
        for file in self._list_files():
            if file.partition in wanted:
                found[file.partition] = max(found.get(file.partition, 0), file.end)
        return found

    def append(self, schema: pa.Schema, parts: Sequence[TablePart]) -> None:
        """Write a file for each partition. Each is a commit of its own."""
        import pyarrow as pa

        for part in parts:
            rows = pa.Table.from_batches(part.batches, schema)
            self._write(part.partition, part.start, part.end, rows)
        self._sync_folder()

    def _write(self, partition: PartitionName, start: int, end: int, rows: pa.Table) -> None:
        import pyarrow.parquet as pq

        topic, topic_id, number = partition
        name = f"{quote(topic, safe='')}-{topic_id}-{number}-{start}-{end}.parquet"
        draft = self._folder / f"{DRAFT}{name}"
        with draft.open("wb") as file:
            pq.write_table(rows, file)
            file.flush()
            os.fsync(file.fileno())
        draft.rename(self._folder / name)

    def read_rows(
        self, wanted: OffsetRange | None = None, columns: Sequence[str] | None = None
    ) -> pa.Table:
        """Return rows of the newest version: those of a range, or all."""
        import pyarrow as pa
        import pyarrow.dataset as ds

        files = self._find_files()
        if wanted is not None:
            files = [each for each in files if each.overlaps(wanted)] or files[:1]
        paths = sorted(str(file.path) for file in files)
        schemas = [ds.dataset(path, format="parquet").schema for path in paths]
        dataset = ds.dataset(paths, pa.unify_schemas(schemas), format="parquet")
        chosen = None if columns is None else list(columns)
        return dataset.to_table(columns=chosen, filter=make_condition(wanted))

    def compact(self) -> int:
        """Rewrite small files of neighbouring offsets into one of all their offsets.

        The new file appears, then the old ones go: a reader that lists the folder in between has
        rows twice. What a writer that ended there left is removed when the folder is opened.
        """
        self._find_files()
        replaced = 0
        for run in self._find_runs():
            by_name = {f"{file.start:020}": file for file in run}
            sizes = {name: file.path.stat().st_size for name, file in by_name.items()}
            for group in group_small_files(sizes):
                self._join([by_name[name] for name in group])
                replaced += len(group)
        return replaced

    def _find_files(self) -> list[TopicFile]:
        files = list(self._list_files())
        if not files:
            raise TableError(f"{self._folder} has no files of a topic")
        return files

    def _find_runs(self) -> list[list[TopicFile]]:
        """Return the files of each partition, cut where large files or missing ones are."""
        runs: list[list[TopicFile]] = []
        last: TopicFile | None = None
        for file in sorted(self._list_files(), key=lambda each: (each.partition, each.start)):
            follows = last is not None and (last.partition, last.end) == (
                file.partition,
                file.start,
            )
            last = file
            if file.path.stat().st_size >= SMALL_BYTES:
                last = None
                continue
            if not follows:
                runs.append([])
            runs[-1].append(file)
        return runs

    def _join(self, files: Sequence[TopicFile]) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        tables = [pq.ParquetFile(file.path).read() for file in files]
        self._write(
            files[0].partition,
            files[0].start,
            files[-1].end,
            pa.concat_tables(tables, promote_options="default"),
        )
        self._sync_folder()
        for file in files:
            file.path.unlink()
        self._sync_folder()

    def _remove_replaced(self) -> None:
        """Remove files whose offsets another file has: a compaction ended before it could."""
        kept: TopicFile | None = None
        order = sorted(self._list_files(), key=lambda each: (each.partition, each.start, -each.end))
        for file in order:
            if kept is not None and kept.partition == file.partition and file.end <= kept.end:
                file.path.unlink()
            else:
                kept = file

    def _list_files(self) -> Iterator[TopicFile]:
        for path in self._folder.glob("*.parquet"):
            match = _NAME.fullmatch(path.name)
            if match is not None:
                name = PartitionName(unquote(match["topic"]), match["id"], int(match["partition"]))
                yield TopicFile(name, int(match["start"]), int(match["end"]), path)

    def _sync_folder(self) -> None:
        descriptor = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
