"""Journal windows as rows of PostgreSQL: what `ack=shared` means, and how a node is taken over.

```
 a node                                     who takes over
 INSERT ... WHERE its epoch FOR SHARE       UPDATE epoch + 1 WHERE epoch = ...    one winner
   1 row: acknowledged                        COMMIT
   0 rows: fenced, it stops                   a new statement: rows after flushed_through,
   the key exists: it was stored              without a gap: what may have been acknowledged
   no answer: the same bytes again
```

The lock FOR SHARE conflicts with an update of the epoch (FOR KEY SHARE would not): an insert that
has seen the old epoch holds the take-over off until it has committed, so the rows that are read
after the take-over's own commit are all that there will ever be. No clock decides anything.

A window is one statement, in pieces of at most 256 KiB. Its tables belong to one node and one
epoch, and are never used again by name: two halves, of which one is emptied while the other is
filled. Whatever a node changes here is fenced: windows, flushed-through, the emptying of a half.
Tables of earlier epochs are dropped when all of their windows are flushed.

Statements are in READ COMMITTED, each in a transaction of its own where it says nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final
from zlib import crc32

import msgspec

from trilogue.log.errors import CorruptLog, StorageFailed
from trilogue.meta import leases, slot_loads, slot_moves
from trilogue.meta.errors import Fenced, InvalidChange
from trilogue.meta.postgres_connection import Connection

PIECE_BYTES: Final = 256 << 10  # larger rows are no faster, and only flushes wait for objects
WINDOW_BYTES_MAX: Final = 64 << 20
HALVES: Final = (0, 1)
UNIQUE_VIOLATION: Final = "23505"

SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS shared_journals (
    node_id BIGINT PRIMARY KEY, epoch BIGINT NOT NULL, flushed_through BIGINT NOT NULL
)
"""
WINDOWS: Final = """
CREATE TABLE {table} (
    sequence BIGINT NOT NULL, piece INTEGER NOT NULL, pieces INTEGER NOT NULL,
    checksum BIGINT NOT NULL, data BYTEA NOT NULL, PRIMARY KEY (sequence, piece)
)
"""
INSERT: Final = """
INSERT INTO {table}
SELECT $3, each.number, $4, $5, each.data
FROM shared_journals, unnest($6::bytea[]) WITH ORDINALITY AS each (data, number)
WHERE node_id = $1 AND epoch = $2
FOR SHARE OF shared_journals
"""
INSERT_PIECE: Final = """
INSERT INTO {table}
SELECT $3, 1, 1, $4, $5 FROM shared_journals WHERE node_id = $1 AND epoch = $2
FOR SHARE OF shared_journals
"""
RAISE_EPOCH: Final = """
UPDATE shared_journals SET epoch = epoch + 1 WHERE node_id = $1 AND epoch = $2
"""
LOCK_EPOCH: Final = """
SELECT flushed_through FROM shared_journals WHERE node_id = $1 AND epoch = $2 FOR SHARE
"""
SET_FLUSHED: Final = """
UPDATE shared_journals SET flushed_through = $3
WHERE node_id = $1 AND epoch = $2 AND flushed_through <= $3
"""
PROVE: Final = """
UPDATE shared_journals SET flushed_through = flushed_through WHERE node_id = $1 AND epoch = $2
"""
READ: Final = "SELECT sequence, piece, pieces, checksum, data FROM {table} WHERE sequence > $1"
# A node that freezes inside a transaction of this module holds no take-over off for longer.
FREEZE_LIMIT: Final = "SET LOCAL idle_in_transaction_session_timeout = 1000"
TABLES: Final = "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"


class Window(msgspec.Struct, frozen=True):
    """A window that was committed."""

    sequence: int
    data: bytes


def table_of(node_id: int, epoch: int, half: int) -> str:
    """Return the name of a half of a node's windows in one epoch."""
    return f"windows_{node_id:d}_{epoch:d}_{half:d}"


class SharedJournal:
    """The windows of one node in one epoch.

    Windows are written by `connection`, one at a time. The other methods may use a second
    connection (`beside`) meanwhile; `swap` is for the moment between two windows.
    """

    def __init__(self, connection: Connection, node_id: int, epoch: int) -> None:
        """Go on with an epoch that this process has begun; `open` begins one."""
        self.epoch = epoch
        self.connection = connection
        self._node_id = node_id
        self._half = 0

    @classmethod
    async def open(
        cls,
        connection: Connection,
        node_id: int,
        *,
        after_epoch: int | None = None,
        after_renewals: int | None = None,
        home: bytes = b"",
    ) -> SharedJournal:
        """Begin the next epoch of a node, with empty tables.

        With `after_epoch` it must be the one that is over (0: there was none); Fenced if another
        process has begun the next one, or if the node's lease was renewed since it was read
        (`after_renewals`): the caller may have stood still since then. `home` names the directory
        of the process.
        """
        async with connection.transaction(isolation="read_committed"):
            if after_epoch is not None and not await _raise_epoch(connection, node_id, after_epoch):
                raise Fenced(f"node {node_id} was started elsewhere after epoch {after_epoch}")
            if after_epoch is not None:
                epoch = after_epoch + 1
            else:
                epoch = await connection.fetchval(
                    "INSERT INTO shared_journals VALUES ($1, 1, 0) ON CONFLICT (node_id) "
                    "DO UPDATE SET epoch = shared_journals.epoch + 1 RETURNING epoch",
                    node_id,
                )
            if after_renewals is not None:
                renewals = await leases.lock_renewals(connection, node_id)
                if renewals not in {None, after_renewals}:
                    raise Fenced(f"node {node_id} has renewed its lease")
            for half in HALVES:
                await connection.execute(WINDOWS.format(table=table_of(node_id, epoch, half)))
            await leases.begin(connection, node_id, epoch, home)
        return cls(connection, node_id, epoch)

    async def write(self, sequence: int, data: bytes) -> None:
        """Store a window; when this returns it is durable and may be acknowledged.

        Acknowledgements leave in the order of the sequence. After an error of the connection the
        outcome is unknown: write the same bytes under the same sequence again, never others.
        Fenced: nothing was stored, and nothing more will be.
        """
        if len(data) > WINDOW_BYTES_MAX:
            raise InvalidChange(f"a window of {len(data)} bytes")
        pieces, checksum = -(-len(data) // PIECE_BYTES) or 1, crc32(data)
        values: tuple[object, ...] = (checksum, data)
        insert = INSERT_PIECE  # PostgreSQL plans it once; that with an array at each execution
        if pieces > 1:
            parts = [data[at : at + PIECE_BYTES] for at in range(0, len(data), PIECE_BYTES)]
            insert, values = INSERT, (pieces, checksum, parts)
        query = insert.format(table=table_of(self._node_id, self.epoch, self._half))
        keys = self._node_id, self.epoch, sequence
        try:
            status = await self.connection.execute(query, *keys, *values)
        except Exception as error:
            if getattr(error, "sqlstate", None) != UNIQUE_VIOLATION:
                raise
            # An earlier attempt, whose answer was lost or had a warning: a write that is answered
            # now says that it is on the synchronous standby, too.
            await self._execute(self.connection, PROVE)
            return
        if status != f"INSERT 0 {pieces}":
            raise self._fenced()

    async def set_flushed_through(self, sequence: int, beside: Connection | None = None) -> None:
        """Record that all windows up to a sequence are in segments. Fenced."""
        await self._execute(beside or self.connection, SET_FLUSHED, sequence)

    async def check_last(self, sequence: int) -> None:
        """Raise StorageFailed if the server lacks a window that was acknowledged; Fenced."""
        connection = self.connection
        query = "SELECT epoch, flushed_through FROM shared_journals WHERE node_id = $1"
        epoch, through = await connection.fetchrow(query, self._node_id) or (0, 0)
        if epoch > self.epoch:
            raise self._fenced()
        is_there = epoch == self.epoch and sequence <= through
        for half in HALVES if epoch == self.epoch and not is_there else ():
            table = table_of(self._node_id, self.epoch, half)
            query = f"SELECT EXISTS (SELECT 1 FROM {table} WHERE sequence = $1)"  # noqa: S608
            is_there |= await connection.fetchval(query, sequence)
        if not is_there:
            raise StorageFailed(
                f"PostgreSQL has lost window {sequence}, which was acknowledged. Was a standby "
                "promoted that was not synchronous, or a copy restored?"
            )

    def reached_by(self, connection: Connection) -> SharedJournal:
        """Return this journal, with the same half, for writes by another connection."""
        journal = SharedJournal(connection, self._node_id, self.epoch)
        journal._half = self._half
        return journal

    def swap(self) -> None:
        """Write to the other half from now on; it must have been emptied."""
        self._half = 1 - self._half

    async def empty_other_half(self, beside: Connection | None = None) -> bool:
        """Empty the half that is not written, if all of it is flushed. Fenced."""
        connection = beside or self.connection
        table = table_of(self._node_id, self.epoch, 1 - self._half)
        async with connection.transaction(isolation="read_committed"):
            await connection.execute(FREEZE_LIMIT)
            if not await self._is_flushed(connection, table):
                return False
            await connection.execute(f"TRUNCATE {table}")
        return True

    async def drop_earlier(self, beside: Connection | None = None) -> None:
        """Drop the tables of earlier epochs whose windows are all flushed. Fenced."""
        connection = beside or self.connection
        for epoch in await epochs_of(connection, self._node_id, self.epoch):
            async with connection.transaction(isolation="read_committed"):
                await connection.execute(FREEZE_LIMIT)
                for half in HALVES:
                    table = table_of(self._node_id, epoch, half)
                    if not await self._is_flushed(connection, table):
                        return
                    await connection.execute(f"DROP TABLE {table}")

    async def _is_flushed(self, connection: Connection, table: str) -> bool:
        """Whether all windows of a table are flushed; locks the epoch in the transaction."""
        through = await connection.fetchval(LOCK_EPOCH, self._node_id, self.epoch)
        if through is None:
            raise self._fenced()
        last = await connection.fetchval(f"SELECT max(sequence) FROM {table}")  # noqa: S608
        return last is None or last <= through

    async def _execute(self, connection: Connection, query: str, *values: object) -> None:
        """Run a fenced update of this node's row."""
        if await connection.execute(query, self._node_id, self.epoch, *values) != "UPDATE 1":
            raise self._fenced()

    def _fenced(self) -> Fenced:
        return Fenced(f"node {self._node_id} was taken over in epoch {self.epoch}")


async def prepare(connection: Connection) -> None:
    """Create the tables of journals, leases and moves, if they are not there."""
    schemas = (SCHEMA, leases.SCHEMA, slot_moves.SCHEMA, slot_loads.SCHEMA)
    await connection.execute(";".join(schemas))


async def epochs_of(connection: Connection, node_id: int, before: int) -> list[int]:
    """Return the epochs of a node below `before` that still have tables, in order."""
    pattern = re.compile(rf"windows_{node_id}_(\d+)_[01]")
    names = [pattern.fullmatch(row[0]) for row in await connection.fetch(TABLES)]
    epochs = {int(found[1]) for found in names if found}
    return sorted(each for each in epochs if each < before)


async def _raise_epoch(connection: Connection, node_id: int, after_epoch: int) -> bool:
    """Begin the epoch after a known one; whether this caller did it."""
    if after_epoch:
        return await take_over(connection, node_id, after_epoch)
    query = "INSERT INTO shared_journals VALUES ($1, 1, 0) ON CONFLICT (node_id) DO NOTHING"
    return await connection.execute(query, node_id) == "INSERT 0 1"


async def take_over(connection: Connection, node_id: int, epoch: int) -> bool:
    """Fence a node; whether this caller did it. `read_windows` comes after it, never before."""
    return await connection.execute(RAISE_EPOCH, node_id, epoch) == "UPDATE 1"


async def read_windows(
    connection: Connection, node_id: int, epoch: int, through: int | None = None
) -> list[Window]:
    """Return the windows of an epoch that is over, in order: all that may have been acknowledged.

    They follow `through`, which is flushed-through unless it is given, without a gap. What is
    behind a gap was not acknowledged, since acknowledgements leave in order.
    """
    if through is None:
        query = "SELECT flushed_through FROM shared_journals WHERE node_id = $1"
        through = int(await connection.fetchval(query, node_id))
    pieces: dict[int, list[tuple[int, int, int, bytes]]] = {}
    for half in HALVES:
        for sequence, *piece in await connection.fetch(
            READ.format(table=table_of(node_id, epoch, half)), through
        ):
            pieces.setdefault(sequence, []).append((piece[0], piece[1], piece[2], piece[3]))
    windows: list[Window] = []
    while (following := through + 1 + len(windows)) in pieces:
        windows.append(Window(following, _join(following, sorted(pieces.pop(following)))))
    return windows


async def read_journal(
    connection: Connection, node_id: int, epoch: int, through: int
) -> list[Window]:
    """Return the windows after `through` of all epochs before this process's own, in order."""
    windows: list[Window] = []
    for each in await epochs_of(connection, node_id, epoch):
        windows += await read_windows(connection, node_id, each, through + len(windows))
    return windows


def _join(sequence: int, pieces: Sequence[tuple[int, int, int, bytes]]) -> bytes:
    numbers, counts, checksums, parts = zip(*pieces, strict=True)
    data = b"".join(parts)
    if list(numbers) != list(range(1, counts[0] + 1)) or crc32(data) != checksums[0]:
        raise CorruptLog(f"window {sequence} differs from what was written")
    return data
