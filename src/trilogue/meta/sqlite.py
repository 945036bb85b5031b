"""Metadata on SQLite: one machine, the standard library, one writer thread.

A full disk refuses a transaction cleanly, so that only its changes fail (`DiskFull`). After any
other failure of the store its contents are unknown: the store has failed for good. A second process
of the same node takes the next node epoch; the first is then fenced.

Several nodes may share the file (`shared`): each writes the rows of its changes into the table of
changes, too, and reads there what the others changed: before each transaction, and whenever
SQLite's `data_version` shows that another process wrote.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from trilogue.log.directory import CLUSTER_FILE
from trilogue.log.errors import CorruptLog, DiskFull, NewerFormat, StorageFailed
from trilogue.meta import queued_meta
from trilogue.meta.change_log import differences, encode_writes
from trilogue.meta.errors import InvalidChange
from trilogue.meta.operations import (
    FORMAT_VERSION,
    ID_BLOCKS,
    AllocateIds,
    BeginEpoch,
)
from trilogue.meta.queued_meta import OnFailed, QueuedChange, QueuedMeta
from trilogue.meta.state import MetaState, StateChange, apply_change
from trilogue.meta.tables import APPLICATION_ID, SCHEMA, UPGRADES, load_state, write_rows

log = logging.getLogger(__name__)

BUSY_SECONDS = 30.0  # other nodes write, and another process may look into the file for a moment
SIZE_MAX = 16 << 30  # of the database
POLL_S = 0.01  # how long another node's change may stay unseen
PAGE_SIZE = 4096

# What SQLite's binding raises for values it cannot store: the change is at fault, not the disk.
BAD_VALUES = (
    OverflowError,
    UnicodeEncodeError,
    TypeError,
    msgspec.MsgspecError,
    sqlite3.InterfaceError,
    sqlite3.ProgrammingError,
    sqlite3.IntegrityError,
    sqlite3.DataError,
)

DAMAGED = frozenset(
    {  # primary codes of a damaged file; 1 = a table is missing
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_NOTADB,
        sqlite3.SQLITE_ERROR,
    }
)


class SqliteMeta(QueuedMeta):
    """The store of the nodes of one machine."""

    def __init__(
        self,
        path: Path,
        connection: sqlite3.Connection,
        state: MetaState,
        on_failed: OnFailed | None,
        shared: bool = False,
    ) -> None:
        """Use `open`."""
        super().__init__(state, on_failed, shared=shared)
        self._path = path
        self._connection = connection
        self._data_version = 0  # SQLite's: moves with each transaction of another connection

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        create: bool = False,
        node_id: int = 1,
        new_cluster_id: Callable[[], bytes] = lambda: os.urandom(16),
        on_failed: Callable[[Exception], None] | None = None,
        size_max: int = SIZE_MAX,
        shared: bool = False,
    ) -> SqliteMeta:
        """Open what is there, take the next node epoch and the first blocks of ids.

        `create` is for a data directory that holds no journal and no segment yet: where meta was
        and is gone (or emptied), a new one would know no partition, and a recovery would drop
        every message as deleted.
        `on_failed` is called once, on the loop's thread, when nothing can be committed any more.
        `shared`: other nodes have the file open, too; `follow` begins to read their changes.
        """
        if (path.parent / CLUSTER_FILE).exists():
            raise StorageFailed(
                "the folder belongs to a node of a cluster, whose metadata is in a database: "
                "cluster.url names it"
            )
        try:
            _refuse_newer(path)
            connection = connect(path, create=create)
            try:
                if _prepare(path, connection, create=create, size_max=size_max):
                    _create(connection, new_cluster_id(), node_id)
                    _sync_directory(path.parent)
                made = _begin_epoch(connection, node_id, shared=shared)
                meta = cls(path, connection, made.state, on_failed, shared)
            except BaseException:
                connection.close()
                raise
        except sqlite3.Error as error:
            kind = CorruptLog if _code(error) in DAMAGED else StorageFailed
            raise kind(f"meta cannot be opened ({error}): {path}") from error
        except (msgspec.MsgspecError, LookupError, TypeError, ValueError) as error:
            raise CorruptLog(f"meta holds rows that cannot be ({error!r})", path) from error
        for block in made.blocks:
            meta._ids.add(block)
        meta._thread.start()
        return meta

    def snapshots(self) -> Iterator[tuple[bytes, bytes]]:
        """Read all snapshots, in the order of their keys."""
        try:
            with contextlib.closing(connect(self._path, read_only=True)) as connection:
                yield from connection.execute("SELECT key, value FROM snapshots ORDER BY key")
        except sqlite3.Error as error:
            raise StorageFailed(f"snapshots cannot be read ({error})") from error

    # ── the writer's side ─────────────────────────────────────────────────────────────────────

    def _write(self) -> None:
        more = True
        poll_s = POLL_S if self.shared else None
        while more:
            try:
                first = self._queue.get(timeout=poll_s)
            except queue.Empty:
                self._poll()
                continue
            changes, more = self._take_waiting([first])
            if changes:
                self._write_batch(changes)
                self._hand_back(changes)
        with contextlib.suppress(sqlite3.Error):  # all that counts is durable already
            self._connection.close()

    def _write_batch(self, changes: list[QueuedChange]) -> None:
        """Write one transaction. After it every change has either `made` or `error`."""
        try:
            if self.failed is not None:
                raise self._refusal()
            if self.shared and not any(change.ops for change in changes):
                self._follow()  # a caller waits for the changes of others
            else:
                self._connection.execute("BEGIN IMMEDIATE")
                self._follow()
                self._check_epoch(self._read_epoch())
            for change in changes:
                self._write_change(change)
            if self._connection.in_transaction:
                self._connection.execute("COMMIT")
        except Exception as error:  # noqa: BLE001 - whatever it was, nothing of this may be acked
            if self._connection.in_transaction:
                with contextlib.suppress(sqlite3.Error):
                    self._connection.execute("ROLLBACK")
            self._refuse(changes, self._verdict(error))

    def _write_change(self, change: QueuedChange) -> None:
        """Apply one change to the writer's state and the open transaction, or to neither."""
        if not self._apply(change) or change.made is None:
            return
        self._connection.execute("SAVEPOINT one")
        try:
            write_rows(self._connection, change.made.writes)
            if self.shared:
                _record(self._connection, change.made)
        except BAD_VALUES as error:
            self._connection.execute("ROLLBACK TO one")
            self._refuse([change], InvalidChange(f"rows cannot be stored: {error}"))
        self._connection.execute("RELEASE one")

    def _read_epoch(self) -> int:
        own = (self._ahead.node_id,)
        found = self._connection.execute("SELECT epoch FROM nodes WHERE node_id = ?", own)
        return int(found.fetchone()[0])

    def _poll(self) -> None:
        """Read the changes of other nodes, if there are any."""
        if self.failed is not None:
            return
        try:
            (version,) = self._connection.execute("PRAGMA data_version").fetchone()
            if version == self._data_version:
                return
            self._data_version = version
            self._follow()
            self._check_epoch(self._read_epoch())
        except Exception as error:  # noqa: BLE001 - what others changed is unknown from here on
            self._verdict(error)
            self._hand_back([])

    def _follow(self) -> None:
        """Move the writer's state to the last durable change, and the loop's after it."""
        if not self.shared:
            return
        query = "SELECT writes FROM changes WHERE version > ? ORDER BY version"
        found = self._connection.execute(query, (self._ahead.version,)).fetchall()
        writes = self._decode_records([record for (record,) in found])
        if writes is None:  # some were removed already
            writes = differences(self._ahead, self._load())
        self._apply_followed(writes)

    def _verdict(self, error: Exception) -> Exception:
        """Return the error of a failed transaction; the store fails for good unless it is full."""
        if isinstance(error, sqlite3.Error) and _code(error) == sqlite3.SQLITE_FULL:
            return DiskFull(f"no room for meta: {error}")
        return self._fail(error)

    def _load(self) -> MetaState:
        """Read all rows as of one moment."""
        began = not self._connection.in_transaction
        if began:
            self._connection.execute("BEGIN")
        try:
            return load_state(self._connection.execute, self._ahead.node_id)
        finally:
            if began:
                self._connection.execute("COMMIT")


def _code(error: sqlite3.Error) -> int:
    """Return SQLite's primary error code; 0 for an error of the binding."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


# ── opening ───────────────────────────────────────────────────────────────────────────────────


def connect(path: Path, *, create: bool = False, read_only: bool = False) -> sqlite3.Connection:
    """Connect to the file of metadata. Raises CorruptLog where it is missing or empty."""
    if create and not path.exists():
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600))
    if not create and not (path.exists() and path.stat().st_size):
        raise CorruptLog("meta is missing or empty", path)
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={'ro' if read_only else 'rw'}",
        uri=True,
        timeout=BUSY_SECONDS,
        isolation_level=None,
        check_same_thread=False,
    )


def _refuse_newer(path: Path) -> None:
    """Look at the version through a connection that cannot write: what is newer stays as it is.

    Closing one that can would move what a kill left in SQLite's log into the file.
    """
    if not (path.exists() and path.stat().st_size):
        return
    with contextlib.closing(connect(path, read_only=True)) as connection:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > FORMAT_VERSION:
        raise NewerFormat(f"meta has format {version}, this program knows {FORMAT_VERSION}: {path}")


def _prepare(path: Path, connection: sqlite3.Connection, *, create: bool, size_max: int) -> bool:
    """Check the application id before any write; return whether the file is new."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    new = not (application or version or tables)
    if new and not create:
        raise CorruptLog("meta is empty", path)
    if not new and application != APPLICATION_ID:
        raise CorruptLog("this is a database, but not one of meta", path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA journal_size_limit = 16777216")
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute(f"PRAGMA max_page_count = {size_max // PAGE_SIZE}")
    return new


def _create(connection: sqlite3.Connection, cluster_id: bytes, node_id: int) -> None:
    """Write format version, tables and identity in one transaction: all there, or none."""
    connection.execute("BEGIN IMMEDIATE")
    connection.execute(f"PRAGMA user_version = {FORMAT_VERSION}")
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    for statement in SCHEMA.strip().split(";\n"):
        connection.execute(statement)
    connection.executemany("INSERT INTO identity VALUES (?, ?)", [("cluster_id", cluster_id)])
    connection.execute("INSERT INTO nodes VALUES (?, 0, 0, '{}')", (node_id,))
    connection.execute("INSERT INTO slots VALUES (0, ?, 0)", (node_id,))
    connection.execute("COMMIT")


def _upgrade(connection: sqlite3.Connection) -> None:
    """Bring tables of an older format to ours; an older program refuses them from then on."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version == FORMAT_VERSION:
        return
    for older in range(version, FORMAT_VERSION):
        for statement in filter(None, UPGRADES[older].strip().rstrip(";").split(";\n")):
            connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {FORMAT_VERSION}")
    log.info("meta.upgraded", extra={"from_format": version, "to_format": FORMAT_VERSION})


def _begin_epoch(connection: sqlite3.Connection, node_id: int, *, shared: bool) -> StateChange:
    """Fence the former process and allocate the first blocks of ids, durably."""
    connection.execute("BEGIN IMMEDIATE")
    _upgrade(connection)
    state = load_state(connection.execute, node_id)
    blocks = (AllocateIds(kind, count) for kind, count in ID_BLOCKS.items())
    made = apply_change(state, [BeginEpoch(node_id), *blocks])
    state.node_epoch = state.nodes[node_id].epoch
    write_rows(connection, made.writes)
    if shared:
        _record(connection, made)
    else:
        connection.execute("DELETE FROM changes")  # and what is not recorded leaves a gap
    connection.execute("COMMIT")
    return made


def _record(connection: sqlite3.Connection, made: StateChange) -> None:
    """Write the record of a change for other nodes, and remove an old one."""
    record = encode_writes(made.writes)
    connection.execute("INSERT INTO changes VALUES (?, ?)", (made.version, record))
    last_removed = made.version - queued_meta.CHANGES_KEPT
    connection.execute("DELETE FROM changes WHERE version <= ?", (last_removed,))


def _sync_directory(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
