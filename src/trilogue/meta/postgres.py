"""Metadata on PostgreSQL: the store of nodes on many machines.

```
 BEGIN ─ lock the identity row ─ changes since ours ─ own epoch FOR SHARE ─ rules ─ rows ─ COMMIT
            one order of changes    new statement,        the fence            │
                                    new snapshot           number of this transaction into `writers`
```

The writer thread has an event loop and a connection of its own. A lost connection before COMMIT is
a transaction that did not happen: it is decided again on the next connection. A COMMIT that was not
answered, or answered with a warning, has an unknown outcome: the next connection waits for the lock
of the identity row, which the old transaction holds until it has ended, and looks up the number of
the transaction in `writers`. So a change is never written twice and never reported wrongly; its
caller waits meanwhile, and `unavailable_s` says for how long PostgreSQL has been away.

Other nodes' changes are announced by NOTIFY. An announcement that was missed is harmless: each
transaction, and a look every second, reads the changes since the last one seen.

After each new connection the server must have this node's last transaction: a standby that was not
synchronous, or a restored copy, lacks it, and then the store has failed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import queue
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final

from trilogue.log.errors import DiskFull, StorageFailed
from trilogue.meta import queued_meta
from trilogue.meta.change_log import differences, encode_writes
from trilogue.meta.errors import Fenced, InvalidChange
from trilogue.meta.postgres_connection import (
    Connection,
    blocking_connection,
    connect,
    is_full,
    may_pass,
)
from trilogue.meta.postgres_opening import OpeningTransaction, WrongCluster
from trilogue.meta.postgres_schema import (
    APPLIED,
    CHANGED,
    LOCK_CLUSTER,
    READ_COMMITTED,
    STATEMENTS,
    fetch_state,
    has_nul,
)
from trilogue.meta.queued_meta import OnFailed, QueuedChange, QueuedMeta
from trilogue.meta.state import MetaState, StateChange, Write
from trilogue.meta.tables import Run, group_writes

log = logging.getLogger(__name__)

LOOK_S: Final = 1.0  # how long a change stays unseen if its announcement was lost
RECONNECT_S: Final = (0.05, 0.2, 0.5, 1.0)
SNAPSHOTS_AT_ONCE: Final = 100


class LostChanges(StorageFailed):
    """The server does not have what it had committed."""


class PostgresMeta(QueuedMeta):
    """The store of one node of a cluster."""

    def __init__(
        self, url: str, state: MetaState, on_failed: OnFailed | None, *, number: int = 0
    ) -> None:
        """Use `open`."""
        super().__init__(state, on_failed, shared=True)
        self._url = url
        self._number = number  # of the last transaction of this node
        self._unsettled: int | None = None  # number of a COMMIT without answer
        self._connection: Connection | None = None
        self._warnings: list[str] = []
        self._away_since: float | None = None
        self._is_closing = False
        self._announced = asyncio.Event()
        self._to_report: int | None = None  # the version that this node has applied
        self._reports: dict[int, tuple[int, float]] = {}  # node id -> what it reported, when
        self._writer_loop: asyncio.AbstractEventLoop | None = None

    @classmethod
    def open(
        cls,
        url: str,
        *,
        node_id: int = 1,
        home: bytes = b"",
        cluster_id: bytes | None = None,
        owners: Sequence[int] = (),
        new_cluster_id: Callable[[], bytes] = lambda: os.urandom(16),
        after_epoch: int | None = None,
        after_renewals: int | None = None,
        on_failed: OnFailed | None = None,
    ) -> PostgresMeta:
        """Open the cluster of a database, take the next epoch of the node and blocks of ids.

        `home` names the folder that has the node's journal: no other one may take its node id.
        `cluster_id` is that of the folder; None for a new folder, and only then a cluster is
        created in an empty database, with a slot for each of `owners` (one of this node if there
        are none). With `after_epoch` the node's journal is in PostgreSQL and this process begins
        the next epoch of it (shared_journal.py), from any folder, if the count of its lease is
        still `after_renewals`. Raises Fenced, StorageFailed,
        CorruptLog, NewerFormat, WrongCluster.
        """
        owners = owners or (node_id,)
        opening = OpeningTransaction(
            node_id, home, cluster_id, owners, new_cluster_id, after_epoch, after_renewals
        )
        with blocking_connection(url) as connection:
            made, number = connection.run(opening.begin)
        meta = cls(url, made.state, on_failed, number=number)
        for block in made.blocks:
            meta._ids.add(block)
        meta._thread.start()
        return meta

    @property
    def unavailable_s(self) -> float:
        """For how many seconds PostgreSQL has not been reachable; 0 if it is."""
        since = self._away_since
        return 0.0 if since is None else time.monotonic() - since

    def report_applied(self, version: int) -> None:
        """Report to the other nodes that this one has applied all changes up to a version."""
        self._to_report = version
        self._wake()

    def applied_by_others(self) -> list[tuple[int, float]]:
        """Return the latest report of each other node: version, and when (monotonic)."""
        return list(self._reports.values())

    def snapshots(self) -> Iterator[tuple[bytes, bytes]]:
        """Read all snapshots, in the order of their keys."""
        with blocking_connection(self._url) as connection:
            after: bytes | None = None
            while True:
                rows = connection.run(partial(_read_snapshots, after=after))
                yield from ((row[0], row[1]) for row in rows)
                if len(rows) < SNAPSHOTS_AT_ONCE:
                    return
                after = rows[-1][0]

    def close(self) -> None:
        """Write the changes in the queue, unless PostgreSQL is away, and close the connection."""
        self._is_closing = True
        super().close()

    def _wake(self) -> None:
        if self._writer_loop is not None:
            with contextlib.suppress(RuntimeError):  # the writer has ended
                self._writer_loop.call_soon_threadsafe(self._announced.set)

    # ── the writer's side ─────────────────────────────────────────────────────────────────────

    def _write(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._writer_loop = asyncio.get_running_loop()
        more = True
        while more:
            self._announced.clear()
            try:
                first = self._queue.get_nowait()
            except queue.Empty:
                await self._idle()
                continue
            changes, more = self._take_waiting([first])
            if changes:
                await self._write_batch(changes)
                self._hand_back(changes)
        await self._disconnect()

    async def _idle(self) -> None:
        """Wait for a change of this node or an announcement, and read what others changed.

        Without a connection it does not wait: the first change finds one. Nor is there one after
        a failure: then it waits for the end.
        """
        has_to_connect = self._connection is None and self.failed is None
        try:
            async with asyncio.timeout(0.0 if has_to_connect else LOOK_S):
                await self._announced.wait()
        except TimeoutError:
            pass
        if self.failed is not None or not self._queue.empty():
            return
        try:
            await self._transact([])
            if self._to_report is not None and self._connection is not None:
                report, self._to_report = f"{self._ahead.node_id} {self._to_report}", None
                await self._connection.execute("SELECT pg_notify($1, $2)", APPLIED, report)
        except Exception as error:  # noqa: BLE001 - what others changed is unknown from here on
            if await self._is_final(error):
                self._hand_back([])

    async def _write_batch(self, changes: list[QueuedChange]) -> None:
        """Write one transaction. After it every change has either `made` or `error`."""
        while True:
            try:
                if self.failed is not None:
                    raise self._refusal()
                await self._transact(changes)
            except Exception as error:  # noqa: BLE001 - whatever it was, nothing may be acked
                if self._unsettled is None:
                    self._undo(changes)
                if is_full(error) and self._unsettled is None:
                    self._refuse(changes, DiskFull(f"no room for meta: {error}"))
                    await self._disconnect()
                    return
                if await self._is_final(error):
                    self._refuse(changes, self._refusal())
                    return
            else:
                return

    async def _transact(self, changes: list[QueuedChange]) -> None:
        """Write the changes in one transaction, on what is durable."""
        connection = await self._connected()
        if self._unsettled is not None:
            if await self._settle(connection, self._unsettled):
                return  # what was written before is durable
            self._undo(changes)
        if not any(change.ops for change in changes):
            await self._follow(connection)
            for change in changes:
                self._apply(change)
            return
        await connection.execute(READ_COMMITTED)
        await self._lock(connection)
        await self._follow(connection)
        await self._check_fence(connection)
        made: list[StateChange] = []
        runs: list[Run] = []
        for change in changes:
            if self._apply(change) and change.made is not None:
                of_change = list(group_writes(change.made.writes))
                if any(has_nul(rows) for _, _, rows in of_change):
                    error = InvalidChange("rows cannot be stored: a text with a NUL")
                    self._refuse([change], error)
                    continue
                made.append(change.made)
                _add_runs(runs, of_change)
        if not made:
            await connection.execute("ROLLBACK")
            return
        await self._write_rows(connection, made, runs)
        await self._commit(connection)

    async def _write_rows(
        self, connection: Connection, made: Sequence[StateChange], runs: Sequence[Run]
    ) -> None:
        for name, gone, rows in runs:
            await connection.executemany(STATEMENTS[name][gone], rows)
        records = [(each.version, encode_writes(each.writes)) for each in made]
        await connection.executemany("INSERT INTO changes VALUES ($1, $2)", records)
        version = made[-1].version
        last_removed = version - queued_meta.CHANGES_KEPT
        await connection.execute("DELETE FROM changes WHERE version <= $1", last_removed)
        status = await connection.execute(
            "UPDATE writers SET number = $3, version = $4 WHERE node_id = $1 AND node_epoch = $2",
            self._ahead.node_id,
            self._ahead.node_epoch,
            self._number + 1,
            version,
        )
        if status != "UPDATE 1":
            raise Fenced(f"node {self._ahead.node_id} was started again")
        await connection.execute("SELECT pg_notify($1, $2)", CHANGED, str(version))

    async def _commit(self, connection: Connection) -> None:
        self._number += 1
        self._unsettled = self._number
        self._warnings.clear()
        await connection.execute("COMMIT")
        if self._warnings:  # durable here, but not on the synchronous standby
            raise ConnectionError(f"the commit was answered with a warning: {self._warnings}")
        self._unsettled = None

    async def _settle(self, connection: Connection, number: int) -> bool:
        """Find out whether a COMMIT without answer took place; the answer is durable itself."""
        await connection.execute(READ_COMMITTED)
        await self._lock(connection)
        row = await connection.fetchrow(
            "UPDATE writers SET version = version WHERE node_id = $1 RETURNING node_epoch, number",
            self._ahead.node_id,
        )
        self._warnings.clear()
        await connection.execute("COMMIT")
        if self._warnings:
            raise ConnectionError(f"the commit was answered with a warning: {self._warnings}")
        if row is None or row[0] != self._ahead.node_epoch:
            raise Fenced(f"node {self._ahead.node_id} was started again")
        self._unsettled = None
        is_done = bool(row[1] == number)
        self._number = row[1]
        log.info("meta.settled", extra={"number": number, "was_written": is_done})
        return is_done

    async def _lock(self, connection: Connection) -> None:
        """Wait until no other node writes. What is read after this is the latest."""
        cluster_id = await connection.fetchval(LOCK_CLUSTER)
        if cluster_id != self._ahead.cluster_id:
            raise WrongCluster(f"the database has cluster {(cluster_id or b'').hex()} now")

    async def _check_fence(self, connection: Connection) -> None:
        query = "SELECT epoch FROM nodes WHERE node_id = $1 FOR SHARE"
        self._check_epoch(await connection.fetchval(query, self._ahead.node_id) or 0)

    async def _follow(self, connection: Connection) -> None:
        """Move the writer's state to the last durable change, and the loop's after it."""
        query = "SELECT writes FROM changes WHERE version > $1 ORDER BY version"
        records = await connection.fetch(query, self._ahead.version)
        writes: list[Write] | None = self._decode_records([row[0] for row in records])
        if writes is None:  # some were removed already
            async with _one_moment(connection):
                after = await fetch_state(connection, self._ahead.node_id)
            writes = differences(self._ahead, after)
        self._apply_followed(writes)
        if writes:
            self._check_epoch(self._ahead.nodes[self._ahead.node_id].epoch)

    # ── the connection ────────────────────────────────────────────────────────────────────────

    async def _connected(self) -> Connection:
        if self._connection is not None and not self._connection.is_closed():
            return self._connection
        connection = await connect(self._url)
        try:
            connection.add_log_listener(self._on_message)
            await connection.add_listener(CHANGED, self._on_announced)
            await connection.add_listener(APPLIED, self._on_report)
            await self._check_history(connection)
        except BaseException:
            connection.terminate()
            raise
        if self._away_since is not None:
            log.info("meta.back", extra={"away_s": round(self.unavailable_s, 3)})
        self._connection, self._away_since = connection, None
        return connection

    async def _check_history(self, connection: Connection) -> None:
        """Refuse a server that lacks what this node has written or seen: StorageFailed."""
        version = await connection.fetchval("SELECT value FROM counters WHERE name = 'version'")
        query = "SELECT node_epoch, number FROM writers WHERE node_id = $1"
        row = await connection.fetchrow(query, self._ahead.node_id)
        known, number = self.state.version, self._number - (self._unsettled is not None)
        epoch = self._ahead.node_epoch
        if row is None or (version or 0) < known or tuple(row) < (epoch, number):
            raise LostChanges(
                f"PostgreSQL has lost changes: it is at version {version}, transaction {row} of "
                f"this node; the node has seen version {known}, transaction {number} of epoch "
                f"{epoch}. Was a standby promoted that was not synchronous, or a copy restored?"
            )

    def _on_message(self, _connection: object, message: object) -> None:
        if getattr(message, "severity_en", None) == "WARNING":
            self._warnings.append(str(message))

    def _on_announced(self, *_announcement: object) -> None:
        self._announced.set()

    def _on_report(self, *announcement: object) -> None:
        with contextlib.suppress(ValueError):
            node_id, version = map(int, str(announcement[-1]).split())
            if node_id != self._ahead.node_id:
                self._reports[node_id] = version, time.monotonic()

    async def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(Exception):
                await connection.close(timeout=1.0)

    async def _is_final(self, error: Exception) -> bool:
        """Whether the store has failed for good; otherwise wait before the next attempt."""
        if not (may_pass(error) or is_full(error)):  # full: of a COMMIT, which is settled
            self._fail(error)
            await self._disconnect()
            return True
        if self._connection is not None:
            self._connection.terminate()  # its transaction, if there is one, ends too
            self._connection = None
        now = time.monotonic()
        if self._away_since is None:
            self._away_since = now
            log.warning("meta.away", extra={"reason": repr(error)})
        if self._is_closing:
            self._fail(error)
            return True
        away_s = now - self._away_since
        await asyncio.sleep(next((each for each in RECONNECT_S if away_s < 4 * each), 1.0))
        return False


@contextlib.asynccontextmanager
async def _one_moment(connection: Connection) -> AsyncIterator[None]:
    """Show one moment to several queries, unless the caller has the lock of the cluster."""
    if connection.is_in_transaction():
        yield
        return
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        yield


async def _read_snapshots(connection: Connection, after: bytes | None) -> list[Any]:
    """Return the next rows behind a key; the first ones for None."""
    query = "SELECT key, value FROM snapshots WHERE $1 OR key > $2 ORDER BY key LIMIT $3"
    return await connection.fetch(query, after is None, after or b"", SNAPSHOTS_AT_ONCE)


def _add_runs(runs: list[Run], more: Sequence[Run]) -> None:
    """Append runs of rows; neighbours of one kind become one."""
    for name, gone, rows in more:
        if runs and runs[-1][:2] == (name, gone):
            runs[-1][2].extend(rows)
        else:
            runs.append((name, gone, rows))
