"""Moves slots of a cluster for `trilogue nodes move|drain|rebalance`: writes rows, and waits.

The database is the only thing that all nodes reach, and it is the right of who may connect to it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping
from typing import Any, Final

import asyncpg

from trilogue.log.errors import LogError
from trilogue.meta import slot_moves
from trilogue.meta.postgres_connection import Connection, connect
from trilogue.node.cluster.rebalance import plan_cluster
from trilogue.node.errors import ControlError
from trilogue.node.supervisor.slot_plans import parse_move

LOOK_S: Final = 0.05


async def request_move(url: str, content: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
    """Return the slots that have moved, and in how many seconds. ControlError."""
    connection: Connection | None = None
    try:
        connection = await connect(url)
        async with asyncio.timeout(timeout_s):
            return await _move(connection, content)
    except TimeoutError:
        raise ControlError(
            f"the slots have not all moved within {timeout_s:g} s: their nodes do not answer, or "
            "object storage is away: see their logs. Moves that have not begun are withdrawn"
        ) from None
    except (OSError, LogError, asyncpg.PostgresError, asyncpg.InterfaceError, ValueError) as error:
        raise ControlError(f"PostgreSQL: {error or type(error).__name__}") from error
    finally:
        if connection is not None:
            with contextlib.suppress(Exception):
                await connection.close(timeout=1.0)


async def _move(connection: Connection, content: Mapping[str, Any]) -> dict[str, Any]:
    began = time.monotonic()
    known = await slot_moves.read_owners(connection)
    if known is None or not known.node_ids:
        raise ControlError("the database has no cluster with ack=shared: others do not move slots")
    if "rebalance" in content:
        plan = await plan_cluster(connection, known, float(content["rebalance"]))
        if content.get("dry_run"):
            return {"slots": plan.moves, "nodes": plan.describe(), "silent": plan.silent}
        wanted = plan.moves
    else:
        wanted = parse_move(content, known.owners, known.node_ids)
    for slot in wanted:
        if known.owners[slot] not in known.node_ids:
            owner = known.owners[slot]
            raise ControlError(f"slot {slot} stays: node {owner} was not started with ack=shared")
    moves = set(wanted.items())
    await slot_moves.request_moves(connection, wanted)
    try:
        await _wait_until_done(connection, moves)
    except BaseException:
        await slot_moves.remove_moves(connection, moves)
        raise
    now = await slot_moves.read_owners(connection)
    moved = {} if now is None else {each: now.owners[each] for each in wanted}
    if moved != wanted:
        raise ControlError("the slots were moved elsewhere meanwhile")
    return {"slots": moved, "seconds": round(time.monotonic() - began, 3)}


async def _wait_until_done(connection: Connection, moves: set[tuple[int, int]]) -> None:
    """Return when the next owners have removed the rows of all moves."""
    left = moves
    while left:
        await asyncio.sleep(LOOK_S)
        left = moves & set((await slot_moves.read_moves(connection)).items())
