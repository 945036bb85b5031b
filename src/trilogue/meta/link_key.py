"""The key by which the nodes of a cluster know each other: 32 random bytes, made by the first."""

from __future__ import annotations

import os
from typing import Final

from trilogue.meta.postgres_connection import Connection

KEY_BYTES: Final = 32
MAKE: Final = "INSERT INTO identity VALUES ('link_key', $1) ON CONFLICT (key) DO NOTHING"
READ: Final = "SELECT value FROM identity WHERE key = 'link_key'"


async def read_link_key(connection: Connection) -> bytes:
    """Return the key of the cluster, which is made if there is none."""
    await connection.execute(MAKE, os.urandom(KEY_BYTES))
    key: bytes = await connection.fetchval(READ)
    return key
