"""A Delta table, by delta-rs: positions are application transactions of Delta's own log.

The application is the partition, its version is the next offset. Delta keeps the newest version of
each application in its checkpoints, and refuses two commits of one application at the same time.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from trilogue.spark.tables.topic_table import (
    OffsetRange,
    PartitionName,
    TableChanged,
    TableError,
    TableFile,
    TablePart,
    check_partition_columns,
    join_rows,
    make_condition,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable

BATCHES = "trilogue:batches:"
"""Before the name of an application whose version is the number of its last batch."""
FILES = "batches"
"""The folder of files that Spark wrote."""


class DeltaTopicTable:
    """A Delta table at a path or URL, created by the first commit."""

    def __init__(
        self,
        location: str,
        storage_options: Mapping[str, str] | None = None,
        partition_by: Sequence[str] = (),
    ) -> None:
        """`partition_by`: columns by which a new table is divided; others keep their own."""
        self._partition_by = list(partition_by)
        self._location = location
        self._storage = dict(storage_options or {})
        self._table: DeltaTable | None = None

    def read_positions(self, partitions: Iterable[PartitionName]) -> dict[PartitionName, int]:
        """Load the newest version of the table, and return the positions that it has."""
        table = self._load()
        if table is None:
            return {}
        found = {one: table.transaction_version(str(one)) for one in partitions}
        return {one: offset for one, offset in found.items() if offset is not None}

    def append(self, schema: pa.Schema, parts: Sequence[TablePart]) -> None:
        """Commit rows and positions as one version of the table."""
        from deltalake import CommitProperties, Transaction, write_deltalake

        if self._table is None:
            check_partition_columns(self._partition_by, schema)
        moved = [Transaction(str(part.partition), part.end) for part in parts]
        with _explained_errors(self._location):
            write_deltalake(
                self._location if self._table is None else self._table,
                join_rows(schema, parts),
                mode="append",
                schema_mode="merge",
                partition_by=self._partition_by if self._table is None else None,
                storage_options=self._storage,
                commit_properties=CommitProperties(app_transactions=moved),
            )

    def read_batch(self, application: str) -> int | None:
        """Load the newest version of the table, and return the last batch of an application."""
        table = self._load()
        return None if table is None else table.transaction_version(f"{BATCHES}{application}")

    def make_place(self, schema: pa.Schema, name: str) -> str:
        """Return a folder for new files; the table is created if there is none."""
        from deltalake import DeltaTable

        if self._partition_by or (self._table and self._table.metadata().partition_columns):
            raise TableError(f"{self._location}: files of Spark are not divided by columns")
        if self._table is None:
            with _explained_errors(self._location):
                self._table = DeltaTable.create(
                    self._location, schema, mode="ignore", storage_options=self._storage
                )
        return f"{self._location.rstrip('/')}/{FILES}/{name}"

    def add_files(
        self, schema: pa.Schema, files: Sequence[TableFile], application: str, batch_id: int
    ) -> None:
        """Commit files as one version of the table, with the batch as application transaction."""
        from deltalake import CommitProperties, Transaction
        from deltalake.transaction import AddAction

        assert self._table is not None
        now_ms = time.time_ns() // 1_000_000
        actions = [
            AddAction(
                path=file.path.removeprefix(f"{self._location.rstrip('/')}/"),
                size=file.size,
                partition_values={},
                modification_time=now_ms,
                data_change=True,
                stats=json.dumps({"numRecords": file.rows}),
            )
            for file in files
        ]
        batch = Transaction(f"{BATCHES}{application}", batch_id)
        with _explained_errors(self._location):
            self._add_columns(self._table, schema)
            self._table.create_write_transaction(
                actions,
                "append",
                self._table.schema(),
                commit_properties=CommitProperties(app_transactions=[batch]),
            )

    def _add_columns(self, table: DeltaTable, schema: pa.Schema) -> None:
        """Add columns that the table lacks; TableError where one has another type."""
        from deltalake import Schema

        known = {field.name: field.type for field in table.schema().fields}
        missing = []
        for field in Schema.from_arrow(schema).fields:
            if field.name not in known:
                missing.append(field)
            elif field.type != known[field.name]:
                raise TableError(
                    f"{self._location}: column {field.name} is {known[field.name]}, "
                    f"not {field.type}"
                )
        if missing:
            table.alter.add_columns(missing)

    def read_rows(
        self, wanted: OffsetRange | None = None, columns: Sequence[str] | None = None
    ) -> pa.Table:
        """Return rows of the newest version: those of a range, or all."""
        table = self._load_existing()
        with _explained_errors(self._location):
            dataset = table.to_pyarrow_dataset()
            chosen = None if columns is None else list(columns)
            return dataset.to_table(columns=chosen, filter=make_condition(wanted))

    def compact(self) -> int:
        """Rewrite small files; the old ones stay for readers until the table is vacuumed."""
        table = self._load_existing()
        with _explained_errors(self._location):
            return int(table.optimize.compact()["numFilesRemoved"])

    def vacuum(self, hours: int) -> int:
        """Remove files that left the table more than `hours` ago: older versions end with them."""
        table = self._load_existing()
        with _explained_errors(self._location):
            return len(
                table.vacuum(hours, dry_run=False, enforce_retention_duration=False, full=False)
            )

    def close(self) -> None:
        """Forget the loaded table; there is no lock."""
        self._table = None

    def _load_existing(self) -> DeltaTable:
        table = self._load()
        if table is None:
            raise TableError(f"{self._location} is no Delta table")
        return table

    def _load(self) -> DeltaTable | None:
        from deltalake import DeltaTable

        with _explained_errors(self._location):
            exists = DeltaTable.is_deltatable(self._location, self._storage)
            self._table = (
                DeltaTable(self._location, storage_options=self._storage) if exists else None
            )
        return self._table


@contextmanager
def _explained_errors(location: str) -> Iterator[None]:
    from deltalake.exceptions import CommitFailedError, DeltaError

    try:
        yield
    except CommitFailedError as error:
        raise TableChanged(f"{location}: {error}") from error
    except (DeltaError, OSError, ValueError) as error:
        raise TableError(f"{location}: {error}") from error
