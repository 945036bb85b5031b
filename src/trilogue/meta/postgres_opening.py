"""The start of a node at PostgreSQL: the cluster is there or made, the node gets its next epoch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from trilogue.log.errors import StorageFailed
from trilogue.meta.operations import ID_BLOCKS, AllocateIds, BeginEpoch
from trilogue.meta.postgres_connection import Connection
from trilogue.meta.postgres_schema import (
    LOCK_CLUSTER,
    check_format,
    create_cluster,
    fetch_state,
    write_change,
)
from trilogue.meta.shared_journal import SharedJournal, prepare
from trilogue.meta.state import StateChange, apply_change

CREATION_LOCK: Final = 0x7472696C  # of pg_advisory_xact_lock: nodes may start at once

OTHER_JOURNAL: Final = """
SELECT node_id FROM writers WHERE home = $1 AND node_id NOT IN (SELECT node_id FROM shared_journals)
"""


async def read_beforehand(connection: Connection) -> None:
    """Read, on a connection that waits, what an opening will read."""
    if await check_format(connection):
        await fetch_state(connection, node_id=0)


class WrongCluster(StorageFailed):
    """The database has another cluster, or another folder has the journal of this node."""


class OpeningTransaction(msgspec.Struct, frozen=True):
    """The first transaction of a node: cluster, identity, epoch, blocks of ids."""

    node_id: int
    home: bytes
    cluster_id: bytes | None
    owners: Sequence[int]
    new_cluster_id: Callable[[], bytes]
    after_epoch: int | None = None  # with ack=shared: the epoch of its windows that is over
    after_renewals: int | None = None  # and the count of its lease, unless it is this process's own

    async def begin(self, connection: Connection) -> tuple[StateChange, int]:
        """Return the durable state with the node's new epoch, and the number of the change."""
        async with connection.transaction(isolation="read_committed"):
            await connection.execute("SELECT pg_advisory_xact_lock($1)", CREATION_LOCK)
            if not await check_format(connection):
                if self.cluster_id is not None:
                    raise WrongCluster(
                        f"the database is empty, and the folder belongs to cluster "
                        f"{self.cluster_id.hex()}"
                    )
                await create_cluster(connection, self.new_cluster_id(), self.owners)
            await prepare(connection)
        await self._check_journal(connection)
        if self.after_epoch is not None:
            await SharedJournal.open(
                connection,
                self.node_id,
                after_epoch=self.after_epoch,
                after_renewals=self.after_renewals,
                home=self.home,
            )
        async with connection.transaction(isolation="read_committed"):
            found = await connection.fetchval(LOCK_CLUSTER)
            if self.cluster_id not in {None, found}:
                raise WrongCluster(
                    f"the database has cluster {found.hex()}, and the folder belongs to cluster "
                    f"{(self.cluster_id or b'').hex()}"
                )
            await self._check_home(connection)
            return await self._begin_epoch(connection)

    async def _check_journal(self, connection: Connection) -> None:
        """Refuse a node whose journal is where this process would not look for it."""
        query = "SELECT {} FROM {} WHERE node_id = $1"
        is_local = await connection.fetchval(query.format("1", "writers"), self.node_id)
        is_shared = await connection.fetchval(query.format("1", "shared_journals"), self.node_id)
        other = None
        if self.after_epoch is not None:
            other = await connection.fetchval(OTHER_JOURNAL, self.home)
        if other is not None:
            raise WrongCluster(
                f"the folder has the journal of node {other}, which ack=shared would remove: a "
                "node starts with a folder of its own"
            )
        if self.after_epoch is None and is_shared:
            raise WrongCluster(
                f"the journal of node {self.node_id} is in PostgreSQL: set ack=shared"
            )
        if self.after_epoch is not None and is_local and not is_shared:
            raise WrongCluster(
                f"the journal of node {self.node_id} is in a directory: ack=shared is for nodes "
                "that were started with it from the beginning"
            )

    async def _check_home(self, connection: Connection) -> None:
        query = "SELECT home FROM writers WHERE node_id = $1"
        home = await connection.fetchval(query, self.node_id)
        if self.after_epoch is None and home not in {None, self.home}:
            raise WrongCluster(
                f"node {self.node_id} has its journal in another folder: each node needs a node "
                "id of its own"
            )

    async def _begin_epoch(self, connection: Connection) -> tuple[StateChange, int]:
        state = await fetch_state(connection, self.node_id)
        blocks = (AllocateIds(kind, count) for kind, count in ID_BLOCKS.items())
        made = apply_change(state, [BeginEpoch(self.node_id), *blocks])
        state.node_epoch = state.nodes[self.node_id].epoch
        await write_change(connection, made)
        number: int = await connection.fetchval(
            "INSERT INTO writers VALUES ($1, $2, $3, 1, $4) ON CONFLICT (node_id) DO UPDATE SET "
            "home = $2, node_epoch = $3, number = writers.number + 1, version = $4 "
            "RETURNING number",
            self.node_id,
            self.home,
            state.node_epoch,
            made.version,
        )
        return made, number
