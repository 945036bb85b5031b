"""Metadata on SQLite: one machine, the standard library, one writer thread.

```
 loop ──write()──► queue ──► writer thread: BEGIN; rules and rows of every waiting change; COMMIT
   ▲                                                                                      │
   └──── state moves, waiters wake, in order ◄──────── call_soon_threadsafe ◄── fsync ────┘
```

Changes that wait together share one transaction and one fsync, but not their outcome: one whose
precondition fails, or whose rows break a rule, does not affect the others. The rules are checked on
the writer's own copy of the state, which is ahead of the loop's copy by exactly what is not durable
yet.

A full disk refuses a transaction cleanly, so that only its changes fail (`DiskFull`). After any
other failure of the store its contents are unknown: the store has failed for good. A second process
of the same node takes the next node epoch; the first is then fenced.

Several nodes may share the file (`shared`): each writes the rows of its changes into the table of
changes, too, and reads there what the others changed: before each transaction, and whenever
SQLite's `data_version` shows that somebody wrote. So the rules are checked on what is durable, and
the states of all nodes move in the same order.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import queue
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from trilogue.log.errors import CorruptLog, DiskFull, LogError, NewerFormat, StorageFailed
from trilogue.log.segments.manifest import Manifest
from trilogue.meta.change_log import (
    decode_writes,
    differences,
    encode_writes,
    last_version,
)
from trilogue.meta.errors import Fenced, InvalidChange, MetaError, TooManyChanges
from trilogue.meta.ids import IdPool
from trilogue.meta.operations import (
    FORMAT_VERSION,
    ID_BLOCKS,
    AllocateIds,
    BeginEpoch,
    ChangeResult,
    Fence,
    Op,
    Precondition,
)
from trilogue.meta.state import (
    MetaState,
    StateChange,
    Write,
    apply_change,
    apply_writes,
)
from trilogue.meta.tables import APPLICATION_ID, SCHEMA, UPGRADES, load_state, write_rows

log = logging.getLogger(__name__)

BATCH_MAX = 256  # changes in one transaction
WAITING_MAX = 10_000  # changes in the queue
BUSY_SECONDS = 5.0  # another process may look into the file for a moment
SIZE_MAX = 16 << 30  # of the database
CHANGES_KEPT = 10_000  # a node that is further behind reads all rows
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

Done = Callable[[ChangeResult | None, Exception | None], None]
OnFollowed = Callable[[Sequence[Write]], None]


class _QueuedChange:
    """One change on its way through the queue and back."""

    __slots__ = ("done", "error", "fence", "made", "ops", "preconditions")

    def __init__(
        self,
        ops: Sequence[Op],
        preconditions: Sequence[Precondition],
        fence: Fence | None,
        done: Done,
    ) -> None:
        self.ops = tuple(ops)
        self.preconditions = tuple(preconditions)
        self.fence = fence
        self.done = done
        self.made: StateChange | None = None
        self.error: Exception | None = None


class SqliteMeta:
    """The store of the nodes of one machine."""

    def __init__(
        self,
        path: Path,
        connection: sqlite3.Connection,
        state: MetaState,
        on_failed: Callable[[Exception], None] | None,
        shared: bool = False,
    ) -> None:
        """Use `open`."""
        self.failed: Exception | None = None
        self.on_followed: OnFollowed = lambda _writes: None
        self.shared = shared
        self.state = state
        self._path = path
        self._connection = connection
        self._on_failed = on_failed
        self._ahead = state.copy()  # the writer's: moves before the change is durable
        self._ids = IdPool()
        self._refilling: set[str] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._queue: queue.SimpleQueue[_QueuedChange | None] = queue.SimpleQueue()
        self._finished: deque[_QueuedChange | list[Write]] = deque()
        self._data_version = 0  # SQLite's: moves with each transaction of another connection
        self._thread = threading.Thread(target=self._write, name="meta", daemon=True)

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
        try:
            _refuse_newer(path)
            connection = _connect(path, create=create)
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

    # ── the loop's side ───────────────────────────────────────────────────────────────────────

    async def write(
        self,
        ops: Sequence[Op],
        preconditions: Sequence[Precondition] = (),
        fence: Fence | None = None,
    ) -> ChangeResult:
        """Make a change durable or raise, as `Meta.write`."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[ChangeResult] = loop.create_future()

        def done(result: ChangeResult | None, error: Exception | None) -> None:
            if future.done():  # the caller was cancelled
                return
            if result is not None:
                future.set_result(result)
            else:
                future.set_exception(error or StorageFailed("no result"))

        self._submit(_QueuedChange(ops, preconditions, fence, done), loop)
        return await future

    def allocate(self, kind: str) -> int:
        """Return one id; the next block is requested when half of one is used."""
        block = ID_BLOCKS.get(kind, 0)
        if self._ids.available(kind) <= block // 2 and block and kind not in self._refilling:
            self._refill(kind, block)
        return self._ids.take_id(kind)

    async def reserve(self, kind: str, count: int) -> None:
        """Wait until `count` ids can be allocated."""
        while (missing := count - self._ids.available(kind)) > 0:
            result = await self.write([AllocateIds(kind, missing)])
            for block in result.blocks:
                self._ids.add(block)

    def follow(self, on_followed: OnFollowed) -> None:
        """Call back with the rows that other nodes wrote, after each move of `state` by them."""
        self.on_followed = on_followed
        self._loop = asyncio.get_running_loop()
        self._loop.call_soon(self._deliver)

    async def catch_up(self) -> None:
        """Return when all changes that are durable now are in `state`."""
        if self.shared:
            await self.write([])

    def snapshots(self) -> Iterator[tuple[bytes, bytes]]:
        """Read all snapshots, in the order of their keys."""
        try:
            with contextlib.closing(_connect(self._path, read_only=True)) as connection:
                yield from connection.execute("SELECT key, value FROM snapshots ORDER BY key")
        except sqlite3.Error as error:
            raise StorageFailed(f"snapshots cannot be read ({error})") from error

    def manifest(self) -> Manifest:
        """Return the present topics, partitions and segments."""
        return self.state.manifest()

    def close(self) -> None:
        """Write the changes in the queue, then close the file."""
        if self._thread.is_alive():
            self._queue.put(None)
            self._thread.join()
        self.failed = self.failed or StorageFailed("meta is closed")

    def _submit(self, change: _QueuedChange, loop: asyncio.AbstractEventLoop) -> None:
        if self.failed is not None:
            raise self._refusal()
        if self._queue.qsize() >= WAITING_MAX:
            raise TooManyChanges("too many changes are waiting")
        self._loop = loop
        self._queue.put(change)

    def _refill(self, kind: str, count: int) -> None:
        def done(result: ChangeResult | None, error: Exception | None) -> None:
            self._refilling.discard(kind)
            for block in result.blocks if result else ():
                self._ids.add(block)
            if error is not None:
                log.warning("meta.refill_failed", extra={"kind": kind, "error": str(error)})

        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # before the loop runs: what is at hand has to do
            return
        self._refilling.add(kind)
        try:
            self._submit(_QueuedChange([AllocateIds(kind, count)], (), None, done), loop)
        except (MetaError, LogError) as error:
            done(None, error)

    def _deliver(self) -> None:
        """Move the state and wake the waiters, in the order in which changes became durable."""
        while self._finished:
            change = self._finished.popleft()
            if isinstance(change, list):
                apply_writes(self.state, change)
                self.on_followed(change)
                continue
            if change.made is None:
                change.done(None, change.error)
                continue
            apply_writes(self.state, change.made.writes)
            change.done(ChangeResult(change.made.version, tuple(change.made.blocks)), None)
        if self.failed is not None and self._on_failed is not None:
            on_failed, self._on_failed = self._on_failed, None
            on_failed(self.failed)

    def _refusal(self) -> Exception:
        if isinstance(self.failed, Fenced):
            return Fenced(str(self.failed))
        return StorageFailed(str(self.failed))

    # ── the writer's side ─────────────────────────────────────────────────────────────────────

    def _write(self) -> None:
        more = True
        poll_s = POLL_S if self.shared else None
        while more:
            try:
                batch = [self._queue.get(timeout=poll_s)]
            except queue.Empty:
                self._poll()
                continue
            with contextlib.suppress(queue.Empty):
                while len(batch) < BATCH_MAX:
                    batch.append(self._queue.get_nowait())
            more = None not in batch
            changes = [change for change in batch if change is not None]
            if changes:
                self._write_batch(changes)
                self._hand_back(changes)
        with contextlib.suppress(sqlite3.Error):  # all that counts is durable already
            self._connection.close()

    def _write_batch(self, changes: list[_QueuedChange]) -> None:
        """Write one transaction. After it every change has either `made` or `error`."""
        try:
            if self.failed is not None:
                raise self._refusal()
            if self.shared and not any(change.ops for change in changes):
                self._follow()  # somebody waits for the changes of others
            else:
                self._connection.execute("BEGIN IMMEDIATE")
                self._follow()
                self._check_epoch()
            for change in changes:
                self._write_change(change)
            if self._connection.in_transaction:
                self._connection.execute("COMMIT")
        except Exception as error:  # noqa: BLE001 - whatever it was, nothing of this may be acked
            self._take_back(changes, self._verdict(error))

    def _write_change(self, change: _QueuedChange) -> None:
        """Apply one change to the writer's state and the open transaction, or to neither."""
        if self.shared and not change.ops and not change.preconditions:
            change.made = StateChange(self._ahead)
            change.made.version = self._ahead.version
            return
        try:
            change.made = apply_change(self._ahead, change.ops, change.preconditions, change.fence)
        except MetaError as error:
            change.error = error
            return
        self._connection.execute("SAVEPOINT one")
        try:
            write_rows(self._connection, change.made.writes)
            if self.shared:
                _record(self._connection, change.made)
        except BAD_VALUES as error:
            self._connection.execute("ROLLBACK TO one")
            change.made.undo()
            change.made, change.error = None, InvalidChange(f"rows cannot be stored: {error}")
        self._connection.execute("RELEASE one")

    def _check_epoch(self) -> None:
        own = (self._ahead.node_id,)
        found = self._connection.execute("SELECT epoch FROM nodes WHERE node_id = ?", own)
        (epoch,) = found.fetchone()
        if epoch != self._ahead.node_epoch:
            raise Fenced(f"epoch {epoch} began, this is {self._ahead.node_epoch}")

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
            self._check_epoch()
        except Exception as error:  # noqa: BLE001 - what others changed is unknown from here on
            self._verdict(error)
            self._hand_back([])

    def _follow(self) -> None:
        """Move the writer's state to the last durable change, and the loop's after it."""
        if not self.shared:
            return
        query = "SELECT writes FROM changes WHERE version > ? ORDER BY version"
        seen = self._ahead.version
        records = self._connection.execute(query, (seen,)).fetchall()
        writes = [write for (record,) in records for write in decode_writes(record)]
        if writes and len(records) != last_version(writes) - seen:  # some were removed already
            writes = differences(self._ahead, self._load())
        if writes:
            apply_writes(self._ahead, writes)
            self._hand_back([writes])

    def _verdict(self, error: Exception) -> Exception:
        """Return the error of a failed transaction; the store fails for good unless it is full."""
        if isinstance(error, sqlite3.Error) and _code(error) == sqlite3.SQLITE_FULL:
            return DiskFull(f"no room for meta: {error}")
        if self.failed is None:
            fenced = isinstance(error, Fenced)
            self.failed = error if fenced else StorageFailed(f"meta cannot be written: {error}")
            self.failed.__cause__ = None if fenced else error
            log.error("meta.failed", extra={"error": repr(error)})
        return self._refusal()

    def _take_back(self, changes: list[_QueuedChange], error: Exception) -> None:
        if self._connection.in_transaction:
            with contextlib.suppress(sqlite3.Error):
                self._connection.execute("ROLLBACK")
        for change in reversed(changes):
            if change.made is not None:
                change.made.undo()
                change.made = None
            if change.error is None:
                change.error = error

    def _load(self) -> MetaState:
        """Read all rows as of one moment."""
        began = not self._connection.in_transaction
        if began:
            self._connection.execute("BEGIN")
        try:
            return load_state(self._connection, self._ahead.node_id)
        finally:
            if began:
                self._connection.execute("COMMIT")

    def _hand_back(self, changes: Sequence[_QueuedChange | list[Write]]) -> None:
        self._finished.extend(changes)
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: no caller waits
                self._loop.call_soon_threadsafe(self._deliver)


def _code(error: sqlite3.Error) -> int:
    """Return SQLite's primary error code; 0 for an error of the binding."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


# ── opening ───────────────────────────────────────────────────────────────────────────────────


def _connect(path: Path, *, create: bool = False, read_only: bool = False) -> sqlite3.Connection:
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
    with contextlib.closing(_connect(path, read_only=True)) as connection:
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
    state = load_state(connection, node_id)
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
    connection.execute("DELETE FROM changes WHERE version <= ?", (made.version - CHANGES_KEPT,))


def _sync_directory(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
