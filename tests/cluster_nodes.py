"""The other nodes of a server that a test starts, with TRILOGUE_TEST_CLUSTER=3.

The server is node 1 of a cluster on PostgreSQL with `ack=shared`, and the others are started,
stopped and killed with it. All tests of a process share one PostgreSQL, and each data directory has
a database and a folder of objects of its own, also when it is served again.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
from collections.abc import Mapping
from pathlib import Path

from tests.postgres import PostgresServer, running_postgres
from trilogue.node.supervisor.node_settings import PORTS_APART

_stack = contextlib.ExitStack()
_urls: dict[Path, str] = {}  # of databases, by data directory


@functools.cache
def _start_postgres() -> PostgresServer:
    atexit.register(_stack.close)
    return _stack.enter_context(running_postgres("max_connections=200"))


def cluster_settings(data: Path, size: int, node_id: int) -> dict[str, object]:
    """Return the settings of a node of the cluster that serves a data directory."""
    if data not in _urls:
        _urls[data] = _start_postgres().new_database()
    objects = data.parent / f"{data.name}.objects"
    objects.mkdir(parents=True, exist_ok=True)
    return {
        "cluster.url": _urls[data],
        "cluster.node": node_id,
        "cluster.size": size,
        "cluster.spread-after": "60s",  # a node that is killed and started again keeps its slots
        "ack": "shared",
        "objects.url": f"file://{objects}",
        "access.key-file": data.parent / f"{data.name}.access.key",  # one for all nodes
    }


def data_directory(data: Path, node_id: int) -> Path:
    """Return the directory of a node."""
    return data if node_id == 1 else data.parent / f"{data.name}.node-{node_id}"


def listeners(doors: Mapping[str, str], node_id: int) -> dict[str, str]:
    """Return the addresses of a node: those of node 1, with ports some way above."""
    return {name: _above(address, node_id - 1) for name, address in doors.items()}


def _above(address: str, number: int) -> str:
    host, _, port = address.rpartition(":")
    if not port.isdecimal() or port == "0":  # "off", or any free port
        return address
    return f"{host}:{int(port) + PORTS_APART * number}"
