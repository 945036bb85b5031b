"""An Iceberg table, by PyIceberg: positions are a property of the table and of each snapshot.

The property of the table changes in the commit that adds the snapshot. That of the snapshot shows
which offsets it added, for people who look at the history.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from trilogue.spark.tables.topic_table import (
    OffsetRange,
    PartitionName,
    TableChanged,
    TableError,
    TableFile,
    TablePart,
    check_partition_columns,
    group_small_files,
    join_rows,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import FileScanTask, Table, Transaction

POSITIONS = "trilogue.positions"
BATCHES = "trilogue.batches"
"""The last batch of each application whose files Spark wrote."""
RETRIES = "commit.retry.num-retries"
COMPACTED = "trilogue.compacted-files"
"""In the summary of a snapshot that only rewrote files: how many it replaced."""


class IcebergTopicTable:
    """A table of a catalog, created with its namespace by the first commit."""

    def __init__(
        self,
        identifier: str,
        catalog: str = "default",
        properties: Mapping[str, str] | None = None,
        partition_by: Sequence[str] = (),
    ) -> None:
        """`properties` of the catalog, such as `uri` and `warehouse`; or it is configured.

        `partition_by`: columns by which a new table is divided; others keep their own.
        """
        self._partition_by = tuple(partition_by)
        self._identifier = identifier
        self._name = catalog
        self._properties = dict(properties or {})
        self._catalog: Catalog | None = None
        self._table: Table | None = None

    def read_positions(self, partitions: Iterable[PartitionName]) -> dict[PartitionName, int]:
        """Load the table from its catalog, and return the positions that it has."""
        with _explained_errors(self._identifier):
            self._table = self._load()
            known = {} if self._table is None else _numbers(self._table, POSITIONS)
        return {one: known[str(one)] for one in partitions if str(one) in known}

    def append(self, schema: pa.Schema, parts: Sequence[TablePart]) -> None:
        """Commit rows, new columns and positions as one snapshot."""
        moved = {str(part.partition): part.end for part in parts}
        with _explained_errors(self._identifier):
            table = self._table = self._table or self._create(schema)
            with _begin(table, schema) as commit:
                commit.append(join_rows(schema, parts), {POSITIONS: json.dumps(moved)})
                known = _numbers(table, POSITIONS)
                commit.set_properties({POSITIONS: json.dumps(known | moved)})

    def read_batch(self, application: str) -> int | None:
        """Load the table from its catalog, and return the last batch of an application."""
        with _explained_errors(self._identifier):
            self._table = self._load()
            return None if self._table is None else _numbers(self._table, BATCHES).get(application)

    def make_place(self, schema: pa.Schema, name: str) -> str:
        """Return a folder for new files; the table is created if there is none."""
        with _explained_errors(self._identifier):
            table = self._table = self._table or self._create(schema)
        if not table.spec().is_unpartitioned():
            raise TableError(f"{self._identifier}: files of Spark are not divided by columns")
        return f"{table.location()}/data/{name}"

    def add_files(
        self, schema: pa.Schema, files: Sequence[TableFile], application: str, batch_id: int
    ) -> None:
        """Commit files, new columns and the number of the batch as one snapshot."""
        moved = {application: batch_id}
        with _explained_errors(self._identifier):
            table = self._table
            assert table is not None
            with _begin(table, schema) as commit:
                commit.add_files(
                    [file.path for file in files],
                    {BATCHES: json.dumps(moved)},
                    check_duplicate_files=False,  # their folder is new
                )
                commit.set_properties({BATCHES: json.dumps(_numbers(table, BATCHES) | moved)})

    def read_rows(
        self, wanted: OffsetRange | None = None, columns: Sequence[str] | None = None
    ) -> pa.Table:
        """Return rows of the newest version: those of a range, or all."""
        from pyiceberg.expressions import AlwaysTrue, And, EqualTo, GreaterThanOrEqual, LessThan

        with _explained_errors(self._identifier):
            table = self._load_existing()
            condition = (
                AlwaysTrue()
                if wanted is None
                else And(
                    EqualTo("partition", wanted.partition),
                    GreaterThanOrEqual("offset", wanted.start),
                    LessThan("offset", wanted.end),
                )
            )
            return table.scan(condition, tuple(columns or ("*",))).to_arrow()

    def compact(self) -> int:
        """Rewrite small files, a group in each commit; readers have the table before or after it.

        The old files stay for the snapshots that have them, until those expire. Files with rows
        that were deleted by position are left as they are.
        """
        replaced = 0
        with _explained_errors(self._identifier):
            table = self._table = self._load_existing()
            tasks = {task.file.file_path: task for task in table.scan().plan_files()}
            sizes = {
                path: task.file.file_size_in_bytes
                for path, task in tasks.items()
                if not task.delete_files
            }
            for group in group_small_files(sizes):
                self._replace_files(table, [tasks[path] for path in group])
                replaced += len(group)
        return replaced

    @staticmethod
    def _replace_files(table: Table, tasks: Sequence[FileScanTask]) -> None:
        from pyiceberg.expressions import AlwaysTrue
        from pyiceberg.io.pyarrow import ArrowScan, _dataframe_to_data_files

        rows = ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue()).to_table(tasks)
        table.metadata.properties[RETRIES] = "0"
        with table.transaction() as commit:
            files = _dataframe_to_data_files(commit.table_metadata, rows, table.io)
            with commit.update_snapshot({COMPACTED: str(len(tasks))}).overwrite() as change:
                change.delete_by_predicate(AlwaysTrue())  # looks into all manifests
                for task in tasks:
                    change.delete_data_file(task.file)
                for file in files:
                    change.append_data_file(file)

    def vacuum(self, hours: int) -> int:
        """Expire snapshots that are older, and remove the files that only these had.

        The newest snapshot, and those of tags and branches, stay. Files that no snapshot has ever
        had are left as they are: they may belong to a writer that commits later.
        """
        with _explained_errors(self._identifier):
            table = self._table = self._load_existing()
            before = _find_files(table)
            oldest = datetime.now(UTC) - timedelta(hours=hours)
            table.maintenance.expire_snapshots().older_than(oldest).commit()
            table = self._table = self._load_existing()
            removed = before - _find_files(table)
            for path in sorted(removed):
                table.io.delete(path)
        return len(removed)

    def close(self) -> None:
        """Close the connection to the catalog."""
        self._table = None
        if self._catalog is not None:
            self._catalog.close()
            self._catalog = None

    def _load_existing(self) -> Table:
        table = self._load()
        if table is None:
            raise TableError("there is no such table")
        return table

    def _load(self) -> Table | None:
        from pyiceberg.catalog import load_catalog
        from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

        self._catalog = self._catalog or load_catalog(self._name, **self._properties)
        try:
            return self._catalog.load_table(self._identifier)
        except (NoSuchTableError, NoSuchNamespaceError):
            return None

    def _create(self, schema: pa.Schema) -> Table:
        assert self._catalog is not None
        namespace, _, _ = self._identifier.rpartition(".")
        self._catalog.create_namespace_if_not_exists(namespace)
        check_partition_columns(self._partition_by, schema)
        with (
            self._catalog.create_table_transaction(self._identifier, schema) as creation,
            creation.update_spec() as spec,
        ):
            for column in self._partition_by:
                spec.add_identity(column)
        return self._catalog.load_table(self._identifier)


@contextmanager
def _begin(table: Table, schema: pa.Schema) -> Iterator[Transaction]:
    """One commit to the table as it was loaded, with the columns that it lacks."""
    # A retry of PyIceberg would append to another writer's commit without a look at it.
    # The change is to the copy in memory only.
    table.metadata.properties[RETRIES] = "0"
    known = {field.name for field in table.schema().fields}
    with table.transaction() as commit:
        if not known.issuperset(schema.names):
            with commit.update_schema() as update:
                update.union_by_name(schema)
        yield commit


def _numbers(table: Table, name: str) -> dict[str, int]:
    """Return the numbers by name that a property of the table has."""
    found = json.loads(table.properties.get(name, "{}"))
    return {str(one): int(number) for one, number in found.items()}


def _find_files(table: Table) -> set[str]:
    """Return the paths of all files that a snapshot has: of rows, manifests, and their lists."""
    found: set[str] = set()
    for snapshot in table.metadata.snapshots:
        found.add(snapshot.manifest_list)
        for manifest in snapshot.manifests(table.io):
            if manifest.manifest_path in found:
                continue  # neighbours share most of them
            found.add(manifest.manifest_path)
            entries = manifest.fetch_manifest_entry(table.io, discard_deleted=True)
            found.update(entry.data_file.file_path for entry in entries)
    return found


@contextmanager
def _explained_errors(identifier: str) -> Iterator[None]:
    from pyiceberg.exceptions import (
        CommitFailedException,
        CommitStateUnknownException,
        TableAlreadyExistsError,
    )

    try:
        yield
    except (CommitFailedException, CommitStateUnknownException, TableAlreadyExistsError) as error:
        raise TableChanged(f"{identifier}: {error}") from error
    except Exception as error:  # PyIceberg's have no base class
        raise TableError(f"{identifier}: {error}") from error
