"""Bytes that the slots of a cluster take, as rows of PostgreSQL: what a rebalance goes by.

The owner of a slot writes its row. It is a hint: a rate that is old, or missing, makes a plan less
even and nothing wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from trilogue.meta.postgres_connection import Connection

SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS slot_loads (slot BIGINT PRIMARY KEY, bytes_s BIGINT NOT NULL)
"""
WRITE: Final = """
INSERT INTO slot_loads VALUES ($1, $2) ON CONFLICT (slot) DO UPDATE SET bytes_s = $2
"""
READ: Final = "SELECT slot, bytes_s FROM slot_loads"
PARTITIONS: Final = "SELECT slot, count(*) FROM partitions GROUP BY slot"


async def write_loads(connection: Connection, rates: Mapping[int, float]) -> None:
    """Record bytes/s by slot."""
    await connection.executemany(WRITE, [(slot, int(rate)) for slot, rate in rates.items()])


async def read_loads(connection: Connection) -> dict[int, float]:
    """Return bytes/s by slot; a database that was made before has none."""
    if await connection.fetchval("SELECT to_regclass($1)", "slot_loads") is None:
        return {}
    return {row[0]: float(row[1]) for row in await connection.fetch(READ)}


async def count_partitions(connection: Connection, slots: int) -> list[int]:
    """Return the number of partitions of each slot."""
    counts = [0] * slots
    for slot, count in await connection.fetch(PARTITIONS):
        counts[slot] = count
    return counts
