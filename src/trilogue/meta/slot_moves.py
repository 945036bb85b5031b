"""Slots that are to move, as rows of PostgreSQL: `trilogue nodes move` writes them, nodes obey.

A row has a slot and the node that is to own it. Its owner hands the slot over, in a transaction of
its own (`GiveSlots`); the next owner removes the row when it serves the slot. A row says what is
wanted, never what is: who owns a slot is in `slots` alone, so a row may be lost, stay, or be
written twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from trilogue.meta.postgres_connection import Connection

SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS slot_moves (slot BIGINT PRIMARY KEY, node_id BIGINT NOT NULL)
"""
WANT: Final = """
INSERT INTO slot_moves VALUES ($1, $2) ON CONFLICT (slot) DO UPDATE SET node_id = $2
"""
READ: Final = "SELECT slot, node_id FROM slot_moves"
REMOVE: Final = "DELETE FROM slot_moves WHERE slot = $1 AND node_id = $2"
OWNERS: Final = "SELECT node_id FROM slots ORDER BY slot"
SHARED_NODES: Final = "SELECT node_id FROM shared_journals ORDER BY node_id"


class SlotOwners(msgspec.Struct, frozen=True):
    """The owners of slots, for a program that plans moves."""

    owners: list[int]  # by slot
    node_ids: list[int]  # of the nodes with `ack=shared`


async def read_owners(connection: Connection) -> SlotOwners | None:
    """Return the owners of the slots; None if the database has no cluster with `ack=shared`."""
    if await connection.fetchval("SELECT to_regclass($1)", "slot_moves") is None:
        return None
    return SlotOwners(
        [row[0] for row in await connection.fetch(OWNERS)],
        [row[0] for row in await connection.fetch(SHARED_NODES)],
    )


async def request_moves(connection: Connection, wanted: Mapping[int, int]) -> None:
    """Record who is to own slots."""
    await connection.executemany(WANT, list(wanted.items()))


async def read_moves(connection: Connection) -> dict[int, int]:
    """Return the slots that are to move, with their next owners."""
    return {row[0]: row[1] for row in await connection.fetch(READ)}


async def remove_moves(connection: Connection, moves: Iterable[tuple[int, int]]) -> None:
    """Remove moves that are done, or are not wanted any more."""
    await connection.executemany(REMOVE, list(moves))
