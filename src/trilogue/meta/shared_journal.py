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

Statements are in READ COMMITTED, each in a transaction of its own where it says nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from zlib import crc32

import msgspec

from trilogue.log.errors import CorruptLog
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
READ: Final = "SELECT sequence, piece, pieces, checksum, data FROM {table} WHERE sequence > $1"


class Window(msgspec.Struct, frozen=True):
    """A window that was committed."""

    sequence: int
    data: bytes


def table_of(node_id: int, epoch: int, half: int) -> str:
    """Return the name of a half of a node's windows in one epoch."""
    return f"windows_{node_id:d}_{epoch:d}_{half:d}"


class SharedJournal:
    """The windows of one node in one epoch."""

    def __init__(self, connection: Connection, node_id: int, epoch: int) -> None:
        """Use `open`."""
        self.epoch = epoch
        self._connection = connection
        self._node_id = node_id
        self._half = 0

    @classmethod
    async def open(cls, connection: Connection, node_id: int) -> SharedJournal:
        """Begin the next epoch of a node, with empty tables."""
        async with connection.transaction(isolation="read_committed"):
            epoch: int = await connection.fetchval(
                "INSERT INTO shared_journals VALUES ($1, 1, 0) ON CONFLICT (node_id) "
                "DO UPDATE SET epoch = shared_journals.epoch + 1 RETURNING epoch",
                node_id,
            )
            for half in HALVES:
                await connection.execute(WINDOWS.format(table=table_of(node_id, epoch, half)))
        return cls(connection, node_id, epoch)

    async def write(self, sequence: int, data: bytes) -> None:
        """Store a window; when this returns it is durable and may be acknowledged.

        Acknowledgements leave in the order of the sequence. After an error of the connection the
        outcome is unknown: write the same bytes under the same sequence again, never others.
        Fenced: nothing was stored, and nothing more will be.
        """
        if len(data) > WINDOW_BYTES_MAX:
            raise InvalidChange(f"a window of {len(data)} bytes")
        pieces = [data[at : at + PIECE_BYTES] for at in range(0, len(data), PIECE_BYTES)] or [b""]
        query = INSERT.format(table=table_of(self._node_id, self.epoch, self._half))
        values = (sequence, len(pieces), crc32(data), pieces)
        try:
            status = await self._connection.execute(query, self._node_id, self.epoch, *values)
        except Exception as error:
            if getattr(error, "sqlstate", None) != UNIQUE_VIOLATION:
                raise
            return  # an earlier attempt, whose answer was lost
        if status != f"INSERT 0 {len(pieces)}":
            raise Fenced(f"node {self._node_id} was taken over in epoch {self.epoch}")

    async def set_flushed_through(self, sequence: int) -> None:
        """Record that all windows up to a sequence are in segments. Fenced."""
        own = (self._node_id, self.epoch)
        if await self._connection.execute(SET_FLUSHED, *own, sequence) != "UPDATE 1":
            raise Fenced(f"node {self._node_id} was taken over in epoch {self.epoch}")

    def swap(self) -> None:
        """Write to the other half from now on; it must have been emptied."""
        self._half = 1 - self._half

    async def empty_other_half(self) -> bool:
        """Empty the half that is not written, if all of it is flushed. Fenced."""
        connection = self._connection
        table = table_of(self._node_id, self.epoch, 1 - self._half)
        async with connection.transaction(isolation="read_committed"):
            through = await connection.fetchval(LOCK_EPOCH, self._node_id, self.epoch)
            if through is None:
                raise Fenced(f"node {self._node_id} was taken over in epoch {self.epoch}")
            last = await connection.fetchval(f"SELECT max(sequence) FROM {table}")  # noqa: S608
            if last is not None and last > through:
                return False
            await connection.execute(f"TRUNCATE {table}")
        return True


async def prepare(connection: Connection) -> None:
    """Create the table of journals, if it is not there."""
    await connection.execute(SCHEMA)


async def take_over(connection: Connection, node_id: int, epoch: int) -> bool:
    """Fence a node; whether this caller did it. `read_windows` comes after it, never before."""
    return await connection.execute(RAISE_EPOCH, node_id, epoch) == "UPDATE 1"


async def read_windows(connection: Connection, node_id: int, epoch: int) -> list[Window]:
    """Return the windows of an epoch that is over, in order: all that may have been acknowledged.

    They follow flushed-through without a gap. What is behind a gap was not acknowledged, since
    acknowledgements leave in order.
    """
    query = "SELECT flushed_through FROM shared_journals WHERE node_id = $1"
    through: int = await connection.fetchval(query, node_id)
    pieces: dict[int, list[tuple[int, int, int, bytes]]] = {}
    for half in HALVES:
        for sequence, *piece in await connection.fetch(
            READ.format(table=table_of(node_id, epoch, half)), through
        ):
            pieces.setdefault(sequence, []).append((piece[0], piece[1], piece[2], piece[3]))
    windows: list[Window] = []
    while (following := through + 1 + len(windows)) in pieces:
        windows.append(Window(following, _join(following, sorted(pieces[following]))))
    return windows


def _join(sequence: int, pieces: Sequence[tuple[int, int, int, bytes]]) -> bytes:
    numbers, counts, checksums, parts = zip(*pieces, strict=True)
    data = b"".join(parts)
    if list(numbers) != list(range(1, counts[0] + 1)) or crc32(data) != checksums[0]:
        raise CorruptLog(f"window {sequence} differs from what was written")
    return data


async def finish_recovery(
    connection: Connection, dead: tuple[int, int], recoverer: tuple[int, int], through: int
) -> None:
    """Record that the windows of a dead node up to `through` are in segments.

    Both are a node id and its epoch; the dead node's is the one that `take_over` began. Fenced if
    either has moved: another node has taken the recovery over, or this one.
    """
    async with connection.transaction(isolation="read_committed"):
        if await connection.fetchval(LOCK_EPOCH, *recoverer) is None:
            raise Fenced(f"the recoverer {recoverer} was taken over")
        if await connection.execute(SET_FLUSHED, *dead, through) != "UPDATE 1":
            raise Fenced(f"another node recovers {dead}")
