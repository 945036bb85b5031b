"""What a PostgreSQL database holds of a cluster: the tables, and their format.

The tables are those of meta/tables.py, in the schema `trilogue`: a cluster is a database. Besides:

```
 identity  format, cluster_id         the row that each writer locks: changes have one order
 writers   node id -> the folder that has its journal (`home`), the number and version of its last
                      transaction: what a node looks up when a COMMIT was not answered
```
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from trilogue.log.errors import CorruptLog, NewerFormat, StorageFailed
from trilogue.meta.change_log import encode_writes
from trilogue.meta.operations import FORMAT_VERSION
from trilogue.meta.postgres_connection import SCHEMA_NAME, Connection
from trilogue.meta.state import MetaState, StateChange
from trilogue.meta.tables import QUERIES, TABLES, Rows, Table, group_writes, load_state

CHANGED: Final = "trilogue_changed"  # the channel on which versions are announced
APPLIED: Final = "trilogue_applied"  # the channel on which nodes report what they have applied
READ_COMMITTED: Final = "BEGIN ISOLATION LEVEL READ COMMITTED"
LOCK_CLUSTER: Final = "SELECT value FROM identity WHERE key = 'cluster_id' FOR UPDATE"
SCHEMA: Final = f"""
CREATE SCHEMA {SCHEMA_NAME};
CREATE TABLE identity (key TEXT PRIMARY KEY, value BYTEA NOT NULL);
CREATE TABLE writers (
    node_id BIGINT PRIMARY KEY, home BYTEA NOT NULL, node_epoch BIGINT NOT NULL,
    number BIGINT NOT NULL, version BIGINT NOT NULL
);
CREATE TABLE nodes (
    node_id BIGINT PRIMARY KEY, epoch BIGINT NOT NULL, flushed_through BIGINT NOT NULL,
    listeners TEXT NOT NULL
);
CREATE TABLE slots (slot BIGINT PRIMARY KEY, node_id BIGINT NOT NULL, epoch BIGINT NOT NULL);
CREATE TABLE changes (version BIGINT PRIMARY KEY, writes BYTEA NOT NULL);
CREATE TABLE counters (name TEXT PRIMARY KEY, value BIGINT NOT NULL);
CREATE TABLE next_ids (kind TEXT PRIMARY KEY, next BIGINT NOT NULL);
CREATE TABLE topics (
    tenant TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL,
    topic_id BYTEA NOT NULL, partitions TEXT NOT NULL, partitioned BIGINT NOT NULL,
    settings TEXT NOT NULL, created_ms BIGINT NOT NULL, epoch BIGINT NOT NULL,
    PRIMARY KEY (tenant, namespace, name)
);
CREATE TABLE partitions (
    partition_id BIGINT PRIMARY KEY, topic_id BYTEA NOT NULL,
    start_offset BIGINT NOT NULL, flushed_end BIGINT NOT NULL, compacted_end BIGINT NOT NULL,
    open_transactions BYTEA NOT NULL, slot BIGINT NOT NULL
);
CREATE TABLE segments (
    segment_id BIGINT PRIMARY KEY, level BIGINT NOT NULL, name TEXT NOT NULL, size BIGINT NOT NULL,
    node_id BIGINT NOT NULL, node_epoch BIGINT NOT NULL, created_ms BIGINT NOT NULL,
    first_sequence BIGINT NOT NULL, last_sequence BIGINT NOT NULL,
    footer_position BIGINT NOT NULL, footer_size BIGINT NOT NULL, extents BYTEA NOT NULL,
    store TEXT NOT NULL, hidden BYTEA NOT NULL
);
CREATE TABLE settings (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE snapshots (key BYTEA PRIMARY KEY, value BYTEA NOT NULL);
"""


def _put_statement(name: str, table: Table) -> str:
    names = table.names
    key, rest = names[: table.key_columns], names[table.key_columns :]
    values = ", ".join(f"${number}" for number in range(1, len(names) + 1))
    moved = ", ".join(f"{column} = excluded.{column}" for column in rest)
    return (
        f"INSERT INTO {name} ({', '.join(names)}) VALUES ({values}) "  # noqa: S608 - of TABLES
        f"ON CONFLICT ({', '.join(key)}) DO UPDATE SET {moved}"
    )


def _drop_statement(name: str, table: Table) -> str:
    key = table.names[: table.key_columns]
    holds = " AND ".join(f"{column} = ${number}" for number, column in enumerate(key, 1))
    return f"DELETE FROM {name} WHERE {holds}"  # noqa: S608 - names of TABLES


STATEMENTS: Final = {
    name: (_put_statement(name, table), _drop_statement(name, table))
    for name, table in TABLES.items()
}
"""By table: what writes a row, and what removes one."""


async def check_format(connection: Connection) -> bool:
    """Return whether the database holds a cluster; NewerFormat, CorruptLog for anything else."""
    query = "SELECT count(*) FROM pg_namespace WHERE nspname = $1"
    if not await connection.fetchval(query, SCHEMA_NAME):
        return False
    if await connection.fetchval("SELECT to_regclass($1)", f"{SCHEMA_NAME}.identity") is None:
        raise CorruptLog(f"the database has a schema {SCHEMA_NAME}, but not one of meta")
    text = await connection.fetchval("SELECT value FROM identity WHERE key = 'format'")
    if text is None or not text.isdigit():
        raise CorruptLog("the database does not name the format of its tables")
    version = int(text)
    if version > FORMAT_VERSION:
        raise NewerFormat(
            f"the database has format {version}, this program knows {FORMAT_VERSION}: "
            "use the version that wrote it, or a newer one"
        )
    if version < FORMAT_VERSION:
        raise StorageFailed(f"the database has format {version}, which this program cannot upgrade")
    return True


async def create_cluster(connection: Connection, cluster_id: bytes, owners: Sequence[int]) -> None:
    """Write tables, format, identity and the owners of the slots, in the open transaction."""
    await connection.execute(SCHEMA)
    rows = [("format", str(FORMAT_VERSION).encode()), ("cluster_id", cluster_id)]
    await connection.executemany("INSERT INTO identity VALUES ($1, $2)", rows)
    nodes = [(node_id,) for node_id in sorted(set(owners))]
    await connection.executemany("INSERT INTO nodes VALUES ($1, 0, 0, '{}')", nodes)
    await connection.executemany("INSERT INTO slots VALUES ($1, $2, 0)", list(enumerate(owners)))


async def fetch_state(connection: Connection, node_id: int) -> MetaState:
    """Read all but snapshots; the transaction shows one moment, or the caller has the lock."""
    rows = {
        query: [tuple(row) for row in await connection.fetch(query)] for query in QUERIES.values()
    }
    return load_state(rows.__getitem__, node_id)


async def write_change(connection: Connection, made: StateChange) -> None:
    """Write the rows of a change, its record and its announcement, in the open transaction."""
    for name, gone, rows in group_writes(made.writes):
        await connection.executemany(STATEMENTS[name][gone], rows)
    record = encode_writes(made.writes)
    await connection.execute("INSERT INTO changes VALUES ($1, $2)", made.version, record)
    await connection.execute("SELECT pg_notify($1, $2)", CHANGED, str(made.version))


def has_nul(rows: Rows) -> bool:
    """Whether a text among the values is one that PostgreSQL does not store."""
    return any(isinstance(value, str) and "\0" in value for row in rows for value in row)
