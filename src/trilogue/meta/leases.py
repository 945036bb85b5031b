"""Leases of nodes in PostgreSQL: when a take-over may be tried, not that it succeeds.

A node counts `renewals` up, several times in a lease. A watcher that sees a count unchanged for a
whole lease, by its own monotonic clock and without an interruption, takes the lease as run out. No
time of another machine is compared. A process that serves also holds a connection whose application
name has its home: when PostgreSQL has lost that, and the count stands still, a part of the lease is
enough, since a killed process loses its connections at once, and a live one renews by another. Who
may acknowledge is decided by the fence of shared_journal.py alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import Final

import msgspec

from trilogue.meta.postgres_connection import Connection

RELEASED: Final = -1  # of renewals: the node has ended in order
SPREAD: Final = -2  # another node has spread its slots; one that it still gets is to be spread, too
RECOVERY_HOME: Final = b"recovery"  # the beginning of a name; others are random
SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS node_leases (
    node_id BIGINT PRIMARY KEY, epoch BIGINT NOT NULL, renewals BIGINT NOT NULL, home BYTEA NOT NULL
)
"""
BEGIN: Final = """
INSERT INTO node_leases VALUES ($1, $2, 0, $3)
ON CONFLICT (node_id) DO UPDATE SET epoch = $2, renewals = 0, home = $3
"""
RENEW: Final = """
UPDATE node_leases SET renewals = renewals + 1 WHERE node_id = $1 AND epoch = $2
"""
RELEASE: Final = """
UPDATE node_leases SET renewals = $3 WHERE node_id = $1 AND epoch = $2
"""
LOCK: Final = "SELECT renewals FROM node_leases WHERE node_id = $1 FOR UPDATE"
READ: Final = "SELECT node_id, epoch, renewals, home FROM node_leases"
PRESENCE: Final = "trilogue node "  # of an application name; the home follows in hexadecimal digits
READ_PRESENCE: Final = """
SELECT application_name FROM pg_stat_activity
WHERE datname = current_database() AND starts_with(application_name, $1)
"""
HEX: Final = re.compile("(?:[0-9a-f]{2})+")
GONE_PART: Final = 1 / 3  # of a lease: for a node whose presence has ended


class Lease(msgspec.Struct, frozen=True):
    """The lease of a node as it was read."""

    node_id: int
    epoch: int
    renewals: int
    home: bytes  # of the directory of its process

    @property
    def is_recovery(self) -> bool:
        """Whether the process serves no client: it spreads the slots of a dead node."""
        return self.home.startswith(RECOVERY_HOME)


async def begin(connection: Connection, node_id: int, epoch: int, home: bytes) -> None:
    """Give a node's lease to the process that begins its epoch, in that transaction."""
    await connection.execute(BEGIN, node_id, epoch, home)


async def renew(connection: Connection, node_id: int, epoch: int) -> bool:
    """Renew a lease; whether the node is still this process."""
    return await connection.execute(RENEW, node_id, epoch) == "UPDATE 1"


async def lock_renewals(connection: Connection, node_id: int) -> int | None:
    """Return how often a node has renewed its lease, locked; None before its first start."""
    count: int | None = await connection.fetchval(LOCK, node_id)
    return count


async def release(
    connection: Connection, node_id: int, epoch: int, renewals: int = RELEASED
) -> None:
    """Give a lease up, as RELEASED or SPREAD: no other node has to wait until it runs out."""
    await connection.execute(RELEASE, node_id, epoch, renewals)


async def read_leases(connection: Connection) -> list[Lease]:
    """Return the leases of all nodes that were started once."""
    if await connection.fetchval("SELECT to_regclass($1)", "node_leases") is None:
        return []
    return [Lease(*row) for row in await connection.fetch(READ)]


def presence_name(home: bytes) -> str:
    """Return the application name of the connection that a process of a directory holds."""
    return PRESENCE + home.hex()


async def read_presence(connection: Connection) -> frozenset[bytes]:
    """Return the homes of the processes that are connected."""
    rows = await connection.fetch(READ_PRESENCE, PRESENCE)
    homes = (row[0].removeprefix(PRESENCE) for row in rows)
    return frozenset(bytes.fromhex(each) for each in homes if HEX.fullmatch(each))


class LeaseWatch:
    """What one watcher has seen of all leases."""

    def __init__(
        self, lease_s: float, monotonic: Callable[[], float], gone_s: float | None = None
    ) -> None:
        """`gone_s` is the time for a node whose presence has ended; None: that does not count."""
        self._lease_s = lease_s
        self._gone_s = lease_s if gone_s is None else gone_s
        self._monotonic = monotonic
        self._present: dict[int, tuple[int, float]] = {}  # epoch, last seen
        self._seen: dict[int, tuple[int, int, float]] = {}  # epoch, renewals, since when

    def reset(self) -> None:
        """Forget everything: PostgreSQL was away, so nodes could not renew their leases."""
        self._seen.clear()
        self._present.clear()

    def over(
        self,
        leases: list[Lease],
        home: bytes,
        asked_s: float | None = None,
        present: Collection[bytes] = (),
    ) -> list[Lease]:
        """Return the leases that are over, given what was read now.

        `asked_s` is the time before the query: a process that stood still since then has old
        rows, and they say nothing about the time after. The lease of the watcher's own directory
        is over, since one process works on a directory. `present` has the homes of the processes
        that are connected; a presence that was never seen in an epoch has not ended.
        """
        now, found = self._monotonic(), []
        asked_s = now if asked_s is None else asked_s
        for lease in leases:
            epoch, renewals, since = self._seen.get(lease.node_id, (0, 0, now))
            if (epoch, renewals) != (lease.epoch, lease.renewals):
                self._seen[lease.node_id] = (lease.epoch, lease.renewals, now)
                since = now
            is_released = lease.renewals in {RELEASED, SPREAD}
            if is_released or lease.home == home or asked_s - since > self._lease_s:
                found.append(lease)
            elif lease.home in present:
                self._present[lease.node_id] = lease.epoch, now
            elif self._is_gone(lease, since, asked_s):
                found.append(lease)
        return found

    def _is_gone(self, lease: Lease, since: float, asked_s: float) -> bool:
        """Whether a node has neither been connected nor renewed its lease for long enough."""
        epoch, last = self._present.get(lease.node_id, (0, 0.0))
        return epoch == lease.epoch and asked_s - max(since, last) > self._gone_s
