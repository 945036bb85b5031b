"""What a process of a cluster with `ack=shared` does before it is a node: it waits for a lease.

A process that is started as a node serves at once if the node's lease is over: it was released, it
ran out, or it belongs to this process's directory. A standby waits until the lease of any node is
over, and then serves as that node. Several may try at once; one of them begins the node's epoch.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from trilogue.log.directory import CLUSTER_FILE
from trilogue.meta.leases import (
    GONE_PART,
    Lease,
    LeaseWatch,
    presence_name,
    read_leases,
    read_presence,
)
from trilogue.meta.postgres_connection import Connection, connect, may_pass
from trilogue.node.cluster.folder import decode_home
from trilogue.node.errors import StartError
from trilogue.node.storage import NodePlace

log = logging.getLogger(__name__)

LOOKS: Final = 8  # in the time of a lease
RECONNECT_S: Final = 0.5
PRESENCE_S: Final = 0.25  # between looks at the connection of this process


async def wait_for_lease(place: NodePlace, data: Path, stop: asyncio.Event) -> NodePlace | None:
    """Return the place of this process when it may serve; None if it was stopped before.

    StartError where PostgreSQL cannot be reached at the start, or refuses for good.
    """
    cluster = place.cluster
    assert cluster is not None
    shared = cluster.shared
    assert shared is not None
    watch = LeaseWatch(shared.lease_s, time.monotonic, shared.lease_s * GONE_PART)
    home = read_home(data)
    connection: Connection | None = None
    is_waiting = False
    try:
        while not stop.is_set():
            try:
                connection = connection or await connect(cluster.url)
                asked_s = time.monotonic()
                present = await read_presence(connection)
                leases = await read_leases(connection)
            except Exception as error:
                if not is_waiting or not may_pass(error):
                    raise StartError(f"PostgreSQL: {error!r}") from error
                watch.reset()
                connection = None
                await _pause(stop, RECONNECT_S)
                continue
            found = choose_lease(place, leases, watch.over(leases, home, asked_s, present))
            if found is not None:
                taken = replace(shared, after_epoch=found.epoch, after_renewals=found.renewals)
                return replace(place, node_id=found.node_id, cluster=replace(cluster, shared=taken))
            if not is_waiting:
                is_waiting = True
                of = "any node" if shared.is_standby else f"node {place.node_id}"
                log.info("cluster.waiting", extra={"lease_of": of})
            await _pause(stop, shared.lease_s / LOOKS)
        return None
    finally:
        if connection is not None:
            with contextlib.suppress(Exception):
                await connection.close(timeout=1.0)


async def keep_presence(url: str, data: Path) -> None:
    """Hold a connection with the name of this directory until the process ends.

    It outlasts the starts of a node within the process, so that its end means that the process has
    ended, or is cut off from PostgreSQL.
    """
    name = presence_name(read_home(data))
    connection: Connection | None = None
    try:
        while True:
            if connection is None or connection.is_closed():
                try:
                    connection = await connect(url, name)
                except Exception as error:  # noqa: BLE001 - a hint: the lease counts without it
                    log.debug("presence.not_connected", extra={"reason": repr(error)})
            await asyncio.sleep(PRESENCE_S)
    finally:
        if connection is not None:
            connection.terminate()


def choose_lease(place: NodePlace, leases: list[Lease], over: list[Lease]) -> Lease | None:
    """Return the lease that a process may take now, given all of them and those that are over."""
    assert place.cluster is not None
    shared = place.cluster.shared
    if shared is not None and shared.is_standby:
        return min(over, key=lambda each: each.node_id, default=None)
    own = next((each for each in leases if each.node_id == place.node_id), None)
    if own is None:  # its first start
        return Lease(place.node_id, 0, 0, b"")
    return own if own in over else None


def read_home(data: Path) -> bytes:
    """Return the name of a data directory; empty if it has none yet."""
    try:
        return decode_home((data / CLUSTER_FILE).read_bytes())
    except OSError:
        return b""


async def _pause(stop: asyncio.Event, limit_s: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(limit_s):
            await stop.wait()
