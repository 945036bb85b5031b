"""An Iceberg table, by PyIceberg: positions are a property of the table and of each snapshot.

The property of the table changes in the commit that adds the snapshot. That of the snapshot shows
which offsets it added, for people who look at the history.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from trilogue.spark.tables.topic_table import (
    PartitionName,
    TableChanged,
    TableError,
    TablePart,
    join_rows,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

POSITIONS = "trilogue.positions"
RETRIES = "commit.retry.num-retries"


class IcebergTopicTable:
    """A table of a catalog, created with its namespace by the first commit."""

    def __init__(
        self, identifier: str, catalog: str = "default", properties: Mapping[str, str] | None = None
    ) -> None:
        """`properties` of the catalog, such as `uri` and `warehouse`; or it is configured."""
        self._identifier = identifier
        self._name = catalog
        self._properties = dict(properties or {})
        self._catalog: Catalog | None = None
        self._table: Table | None = None

    def read_positions(self, partitions: Iterable[PartitionName]) -> dict[PartitionName, int]:
        """Load the table from its catalog, and return the positions that it has."""
        with _explained_errors(self._identifier):
            self._table = self._load()
            known = {} if self._table is None else _positions(self._table)
        return {one: known[str(one)] for one in partitions if str(one) in known}

    def append(self, schema: pa.Schema, parts: Sequence[TablePart]) -> None:
        """Commit rows, new columns and positions as one snapshot."""
        moved = {str(part.partition): part.end for part in parts}
        with _explained_errors(self._identifier):
            table = self._table = self._table or self._create(schema)
            # A retry of PyIceberg would append to another writer's commit without a look at it.
            # The change is to the copy in memory only.
            table.metadata.properties[RETRIES] = "0"
            known = {field.name for field in table.schema().fields}
            with table.transaction() as commit:
                if not known.issuperset(schema.names):
                    with commit.update_schema() as update:
                        update.union_by_name(schema)
                commit.append(join_rows(schema, parts), {POSITIONS: json.dumps(moved)})
                commit.set_properties({POSITIONS: json.dumps(_positions(table) | moved)})

    def compact(self) -> int:
        """Raise TableError: PyIceberg rewrites no files."""
        raise TableError(
            f"{self._identifier}: PyIceberg does not rewrite files; Spark's rewrite_data_files "
            "does, and keeps the positions"
        )

    def close(self) -> None:
        """Close the connection to the catalog."""
        self._table = None
        if self._catalog is not None:
            self._catalog.close()
            self._catalog = None

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
        return self._catalog.create_table(self._identifier, schema)


def _positions(table: Table) -> dict[str, int]:
    try:
        return {
            str(name): int(end) for name, end in json.loads(table.properties[POSITIONS]).items()
        }
    except KeyError:
        return {}


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
