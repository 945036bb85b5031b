"""Changes to a cluster's metadata by a process that is none of its nodes.

    with PostgresEditor.open(url, owners=(1, 2, 3)) as editor:
        editor.write([PutSetting("access/...", text)])

A change is one transaction under the lock of the cluster: its rules are checked on what is durable,
and the nodes follow it as they follow one another. The editor has no epoch, so it fences no node,
and no number by which the outcome of a lost COMMIT could be found: such a change is an error, whose
text says that the change may have been made.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from types import TracebackType
from typing import Final, Self

from trilogue.log.errors import StorageFailed
from trilogue.meta.errors import InvalidChange
from trilogue.meta.operations import ChangeResult, Op, Precondition
from trilogue.meta.postgres_connection import BlockingConnection, Connection
from trilogue.meta.postgres_opening import CREATION_LOCK, WrongCluster
from trilogue.meta.postgres_schema import (
    LOCK_CLUSTER,
    READ_COMMITTED,
    check_format,
    create_cluster,
    fetch_state,
    has_nul,
    write_change,
)
from trilogue.meta.state import MetaState, apply_change
from trilogue.meta.tables import group_writes

NO_NODE: Final = 0
UNKNOWN_OUTCOME: Final = "PostgreSQL did not confirm a change, which may have been made"


class PostgresEditor:
    """The metadata of a cluster, and changes to it; `state` is of the last change or opening."""

    def __init__(self, connection: BlockingConnection, state: MetaState) -> None:
        """Use `open`."""
        self.state = state
        self._connection = connection

    @classmethod
    def open(
        cls, url: str, *, cluster_id: bytes | None = None, owners: Sequence[int] = ()
    ) -> PostgresEditor:
        """Open the cluster of a database.

        In an empty database a cluster with a slot for each of `owners` is created, if there are
        any. `cluster_id` is the one that is expected; None: any. Raises StorageFailed, CorruptLog,
        NewerFormat, WrongCluster.
        """
        connection = BlockingConnection(url)
        connection.__enter__()
        try:
            state = connection.run(partial(_open, cluster_id=cluster_id, owners=owners))
        except BaseException:
            connection.__exit__()
            raise
        return cls(connection, state)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._connection.__exit__()

    def refresh(self) -> None:
        """Read what others have changed into `state`."""
        cluster_id = self.state.cluster_id
        self.state = self._connection.run(partial(_open, cluster_id=cluster_id, owners=()))

    def write(self, ops: Sequence[Op], preconditions: Sequence[Precondition] = ()) -> ChangeResult:
        """Make a change durable; PreconditionFailed, InvalidChange, StorageFailed."""
        work = partial(
            _write, cluster_id=self.state.cluster_id, ops=ops, preconditions=preconditions
        )
        self.state, result = self._connection.run(work)
        return result


async def _open(
    connection: Connection, *, cluster_id: bytes | None, owners: Sequence[int]
) -> MetaState:
    async with connection.transaction(isolation="read_committed"):
        await connection.execute("SELECT pg_advisory_xact_lock($1)", CREATION_LOCK)
        if not await check_format(connection):
            if not owners or cluster_id is not None:
                raise WrongCluster("the database has no cluster")
            await create_cluster(connection, os.urandom(16), owners)
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        state = await fetch_state(connection, NO_NODE)
    if cluster_id not in {None, state.cluster_id}:
        raise WrongCluster(
            f"the database has cluster {state.cluster_id.hex()}, and the folder belongs to "
            f"cluster {(cluster_id or b'').hex()}"
        )
    return state


async def _write(
    connection: Connection,
    *,
    cluster_id: bytes,
    ops: Sequence[Op],
    preconditions: Sequence[Precondition],
) -> tuple[MetaState, ChangeResult]:
    warnings: list[str] = []
    connection.add_log_listener(partial(_collect_warning, warnings))
    await connection.execute(READ_COMMITTED)
    try:
        if await connection.fetchval(LOCK_CLUSTER) != cluster_id:
            raise WrongCluster("the database has another cluster now")
        state = await fetch_state(connection, NO_NODE)
        made = apply_change(state, ops, preconditions)
        if any(has_nul(rows) for _, _, rows in group_writes(made.writes)):
            raise InvalidChange("rows cannot be stored: a text with a NUL")
        await write_change(connection, made)
    except BaseException:
        await connection.execute("ROLLBACK")
        raise
    try:
        await connection.execute("COMMIT")
    except Exception as error:
        raise StorageFailed(f"{UNKNOWN_OUTCOME} ({error!r})") from error
    if warnings:  # durable here, but not on the synchronous standby
        raise StorageFailed(f"{UNKNOWN_OUTCOME} ({warnings})")
    return state, ChangeResult(made.version, tuple(made.blocks))


def _collect_warning(warnings: list[str], _connection: object, message: object) -> None:
    if getattr(message, "severity_en", None) == "WARNING":
        warnings.append(str(message))
