"""The tables of SQLite and PostgreSQL: one for each dict of `MetaState`, and the snapshots.

```
 identity    cluster_id                             fixed
 nodes       node id -> epoch (+1 at each opening), flushed through, listeners as JSON
 slots       slot -> the owner's node id, epoch
 changes     version -> the rows that this change wrote (meta/change_log.py); only while several
             processes share the file, and only the latest
 counters    version
 next_ids    kind -> the first id that is not allocated
 topics      (tenant, namespace, name) -> topic id, partition ids and settings as JSON, …
 partitions  partition id -> topic id, start offset, flushed end, compacted end, open transactions
             as MessagePack, slot
 segments    segment id -> …, the extents as one blob (log/segments/extents.py; in format 1
             MessagePack: a list of lists of numbers), the store, the hidden partitions as
             MessagePack
 settings    key -> value
 snapshots   key -> value, both the broker's bytes
```

`PRAGMA user_version` is the format version, `PRAGMA application_id` marks it as ours.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from typing import Any, Final, TypeAlias

import msgspec

from trilogue.log.segments.extents import MAGIC, Extent, Extents
from trilogue.log.segments.segment_info import SegmentInfo
from trilogue.meta.operations import (
    NodeRow,
    OpenTransactions,
    PartitionState,
    SlotRow,
    TopicRow,
)
from trilogue.meta.state import REMOVED, MetaState, Write

APPLICATION_ID = 0x5452494C  # "TRIL"

SCHEMA = """
CREATE TABLE identity (key TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE nodes (
    node_id INTEGER PRIMARY KEY, epoch INTEGER NOT NULL, flushed_through INTEGER NOT NULL,
    listeners TEXT NOT NULL
);
CREATE TABLE slots (
    slot INTEGER PRIMARY KEY, node_id INTEGER NOT NULL, epoch INTEGER NOT NULL
);
CREATE TABLE changes (version INTEGER PRIMARY KEY, writes BLOB NOT NULL);
CREATE TABLE counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE next_ids (kind TEXT PRIMARY KEY, next INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE topics (
    tenant TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL,
    topic_id BLOB NOT NULL UNIQUE, partitions TEXT NOT NULL, partitioned INTEGER NOT NULL,
    settings TEXT NOT NULL, created_ms INTEGER NOT NULL, epoch INTEGER NOT NULL,
    PRIMARY KEY (tenant, namespace, name)
) WITHOUT ROWID;
CREATE TABLE partitions (
    partition_id INTEGER PRIMARY KEY, topic_id BLOB NOT NULL,
    start_offset INTEGER NOT NULL, flushed_end INTEGER NOT NULL,
    compacted_end INTEGER NOT NULL DEFAULT 0, open_transactions BLOB NOT NULL DEFAULT x'90',
    slot INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE segments (
    segment_id INTEGER PRIMARY KEY, level INTEGER NOT NULL, name TEXT NOT NULL,
    size INTEGER NOT NULL, node_id INTEGER NOT NULL, node_epoch INTEGER NOT NULL,
    created_ms INTEGER NOT NULL, first_sequence INTEGER NOT NULL, last_sequence INTEGER NOT NULL,
    footer_position INTEGER NOT NULL, footer_size INTEGER NOT NULL, extents BLOB NOT NULL,
    store TEXT NOT NULL DEFAULT '', hidden BLOB NOT NULL DEFAULT x'90'
);
CREATE TABLE settings (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE snapshots (key BLOB PRIMARY KEY, value BLOB NOT NULL);
"""

# What brings a file of an older format to the next one, by the format it is in. `x'90'` is
# MessagePack's empty list. Format 3 has the tables of format 2: what is new are rows, facts and
# entries of other protocols, which a program of format 2 would take for damage or for Kafka's.
# Format 4 has nodes and slots: what was there is of one node, which owns one slot.
UPGRADES = {
    1: """
ALTER TABLE partitions ADD COLUMN compacted_end INTEGER NOT NULL DEFAULT 0;
ALTER TABLE partitions ADD COLUMN open_transactions BLOB NOT NULL DEFAULT x'90';
ALTER TABLE segments ADD COLUMN store TEXT NOT NULL DEFAULT '';
ALTER TABLE segments ADD COLUMN hidden BLOB NOT NULL DEFAULT x'90';
""",
    2: "",
    3: """
CREATE TABLE nodes (
    node_id INTEGER PRIMARY KEY, epoch INTEGER NOT NULL, flushed_through INTEGER NOT NULL,
    listeners TEXT NOT NULL
);
CREATE TABLE slots (
    slot INTEGER PRIMARY KEY, node_id INTEGER NOT NULL, epoch INTEGER NOT NULL
);
CREATE TABLE changes (version INTEGER PRIMARY KEY, writes BLOB NOT NULL);
INSERT INTO nodes SELECT
    (SELECT value FROM identity WHERE key = 'node_id'),
    (SELECT value FROM identity WHERE key = 'node_epoch'),
    coalesce((SELECT value FROM counters WHERE name = 'flushed_through'), 0), '{}';
INSERT INTO slots SELECT 0, node_id, epoch FROM nodes;
DELETE FROM identity WHERE key <> 'cluster_id';
DELETE FROM counters WHERE name <> 'version';
ALTER TABLE partitions ADD COLUMN slot INTEGER NOT NULL DEFAULT 0;
""",
}


class Table(msgspec.Struct, frozen=True):
    """How the rows of one dict are written and removed."""

    columns: str  # in their order in the table, the key first
    put_values: Callable[[Any, Any], tuple[object, ...]]
    drop_values: Callable[[Any], tuple[object, ...]] = lambda key: (key,)
    key_columns: int = 1

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return self.columns.split()


def _pair(key: object, value: object) -> tuple[object, ...]:
    return (key, value)


def _topic(_: object, row: TopicRow) -> tuple[object, ...]:
    partitions, settings = msgspec.json.encode(row.partitions), msgspec.json.encode(row.settings)
    head = (*row.key, row.topic_id, partitions.decode(), int(row.partitioned))
    return (*head, settings.decode(), row.created_ms, row.epoch)


def _partition(partition_id: int, row: PartitionState) -> tuple[object, ...]:
    ends = (row.start_offset, row.flushed_end, row.compacted_end)
    transactions = msgspec.msgpack.encode(row.open_transactions)
    return (partition_id, row.topic_id, *ends, transactions, row.slot)


def _node(node_id: int, row: NodeRow) -> tuple[object, ...]:
    listeners = msgspec.json.encode(row.listeners).decode()
    return (node_id, row.epoch, row.flushed_through, listeners)


def _segment(_: object, row: SegmentInfo) -> tuple[object, ...]:
    return (
        row.segment_id,
        row.level,
        row.name,
        row.size,
        row.node_id,
        row.node_epoch,
        row.created_ms,
        row.first_sequence,
        row.last_sequence,
        row.footer_position,
        row.footer_size,
        row.partitions.to_bytes(),
        row.store,
        msgspec.msgpack.encode(row.hidden),
    )


NO_TRANSACTIONS = msgspec.msgpack.encode(())

TABLES = {
    "nodes": Table("node_id epoch flushed_through listeners", _node),
    "slots": Table("slot node_id epoch", lambda slot, row: (slot, row.node_id, row.epoch)),
    "counters": Table("name value", _pair),
    "next_ids": Table("kind next", _pair),
    "topics": Table(
        "tenant namespace name topic_id partitions partitioned settings created_ms epoch",
        _topic,
        tuple,
        key_columns=3,
    ),
    "partitions": Table(
        "partition_id topic_id start_offset flushed_end compacted_end open_transactions slot",
        _partition,
    ),
    "segments": Table(
        "segment_id level name size node_id node_epoch created_ms first_sequence last_sequence "
        "footer_position footer_size extents store hidden",
        _segment,
    ),
    "settings": Table("key value", _pair),
    "snapshots": Table("key value", _pair),
}
DERIVED = frozenset({"topic_keys"})  # made from other tables when loading

Rows: TypeAlias = list[tuple[object, ...]]
Run: TypeAlias = tuple[str, bool, Rows]  # table, whether rows are removed, the values


def group_writes(writes: Iterable[Write]) -> Iterator[Run]:
    """Return runs of one kind, in the order given."""
    for (name, gone), run in groupby(writes, key=lambda write: (write[0], write[2] is REMOVED)):
        if name in DERIVED:
            continue
        table = TABLES[name]
        if gone:
            yield name, True, [table.drop_values(key) for _, key, _ in run]
        else:
            yield name, False, [table.put_values(key, value) for _, key, value in run]


def _put_statement(name: str, table: Table) -> str:
    places = ", ".join("?" * len(table.names))
    return f"INSERT OR REPLACE INTO {name} VALUES ({places})"  # noqa: S608 - names of TABLES


def _drop_statement(name: str, table: Table) -> str:
    keys = " AND ".join(f"{column} = ?" for column in table.names[: table.key_columns])
    return f"DELETE FROM {name} WHERE {keys}"  # noqa: S608 - names of TABLES


_STATEMENTS = {
    name: (_put_statement(name, table), _drop_statement(name, table))
    for name, table in TABLES.items()
}


def write_rows(connection: sqlite3.Connection, writes: Iterable[Write]) -> None:
    """Write and remove rows in the order given; runs of one kind go in one call."""
    for name, gone, rows in group_writes(writes):
        connection.executemany(_STATEMENTS[name][gone], rows)


def _segment_info(row: tuple[Any, ...]) -> SegmentInfo:
    columns = list(row)
    columns[-3], columns[-1] = _extents(row[-3]), _packed_ints(row[-1])
    info = SegmentInfo(*columns)
    _expect(str, info.name, info.store)
    _expect(int, info.segment_id, info.level, *row[3:-3])
    return info


def _extents(blob: bytes) -> Extents:
    if blob.startswith(MAGIC):
        return Extents.from_bytes(blob)
    rows = msgspec.msgpack.decode(blob, type=list[tuple[int, ...]])  # format 1
    return Extents.of(Extent(*row) for row in rows)


def _packed_ints(blob: bytes) -> tuple[int, ...]:
    return msgspec.msgpack.decode(blob, type=tuple[int, ...])


QUERIES: Final = {
    "identity": "SELECT key, value FROM identity",
    "nodes": "SELECT * FROM nodes",
    "slots": "SELECT * FROM slots ORDER BY slot",
    "counters": "SELECT name, value FROM counters",
    "next_ids": "SELECT kind, next FROM next_ids",
    "settings": "SELECT key, value FROM settings",
    "topics": "SELECT * FROM topics ORDER BY created_ms",
    "partitions": "SELECT * FROM partitions",
    "segments": "SELECT * FROM segments ORDER BY segment_id",
}
"""What `load_state` reads; the same text for SQLite and PostgreSQL."""

Fetch: TypeAlias = Callable[[str], Iterable[Any]]  # a query -> its rows


def load_state(fetch: Fetch, node_id: int) -> MetaState:
    """Read all but snapshots into memory, as a node sees it. A wrong type is a TypeError."""
    identity = dict(fetch(QUERIES["identity"]))
    state = MetaState(identity["cluster_id"], node_id, 0)
    _expect(bytes, state.cluster_id)
    for key, epoch, through, listeners in fetch(QUERIES["nodes"]):
        _expect(int, epoch, through)
        addresses = msgspec.json.decode(listeners, type=dict[str, str])
        state.nodes[key] = NodeRow(epoch, through, addresses)
    for slot, owner, epoch in fetch(QUERIES["slots"]):
        _expect(int, owner, epoch)
        state.slots[slot] = SlotRow(owner, epoch)
    if list(state.slots) != list(range(len(state.slots))) or not state.slots:
        raise ValueError(f"the slots are {list(state.slots)}")
    if node_id in state.nodes:
        state.node_epoch = state.nodes[node_id].epoch
    state.counters.update(fetch(QUERIES["counters"]))
    state.next_ids.update(fetch(QUERIES["next_ids"]))
    state.settings.update(fetch(QUERIES["settings"]))
    _expect(int, *state.counters.values(), *state.next_ids.values())
    _expect(str, *state.settings.values())
    _load_topics(fetch, state)
    none = NO_TRANSACTIONS
    for partition_id, *columns in fetch(QUERIES["partitions"]):
        topic_id, *ends, blob, slot = columns
        _expect(bytes, topic_id)
        _expect(int, *ends, slot)
        columns[-2] = () if blob == none else msgspec.msgpack.decode(blob, type=OpenTransactions)
        state.partitions[partition_id] = PartitionState(*columns)
    for row in fetch(QUERIES["segments"]):
        info = _segment_info(row)
        state.segments[info.segment_id] = info
    return state


def _load_topics(fetch: Fetch, state: MetaState) -> None:
    for (
        tenant,
        namespace,
        name,
        topic_id,
        partitions,
        partitioned,
        settings,
        *rest,
    ) in fetch(QUERIES["topics"]):
        row = TopicRow(
            tenant,
            namespace,
            name,
            topic_id,
            msgspec.json.decode(partitions, type=tuple[int, ...]),
            bool(partitioned),
            msgspec.json.decode(settings, type=dict[str, str]),
            *rest,
        )
        _expect(str, *row.key)
        _expect(bytes, topic_id)
        _expect(int, *rest)
        state.topics[row.key] = row
        state.topic_keys[topic_id] = row.key


def _expect(kind: type, *values: object) -> None:
    """SQLite keeps any type in any column; a damaged page may hold one that was never written."""
    for value in values:
        if type(value) is not kind:
            raise TypeError(f"{value!r} is not of type {kind.__name__}")
