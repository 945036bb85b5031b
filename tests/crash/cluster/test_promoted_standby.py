"""A synchronous standby of PostgreSQL is promoted while the old primary lives.

Two nodes follow to the new primary; the third still sees the old one, whose commits are known to
nobody else. What was acknowledged is there once, in order.
"""

from __future__ import annotations

import contextlib
import random
import socket
import weakref
from collections.abc import Callable, Iterator

import pytest

from tests.crash.cluster.test_spread_slots import assert_good
from tests.crash.cluster.test_take_over import ACKS, WAIT_S, Loads
from tests.crash.load import running
from tests.node.cluster.shared_cluster import SharedCluster
from tests.postgres import PostgresServer, running_postgres
from tests.relay import Relay
from tests.waiting import wait_until
from trilogue.node.errors import STORAGE_FAILED

WAITING = "pg_stat_activity WHERE wait_event = 'SyncRep'"

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


class Route(Relay):
    """The way of some nodes to the primary, which may change."""

    def __init__(self, primary: PostgresServer) -> None:
        self._servers: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        super().__init__(primary.port)

    def turn(self, primary: PostgresServer) -> None:
        """End all connections, and lead new ones to another server."""
        self._target = primary.port
        for each in list(self._servers):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def connect(self) -> socket.socket:
        server = super().connect()
        self._servers.add(server)
        return server


@pytest.fixture
def postgres() -> Iterator[PostgresServer]:
    """A primary of this test alone."""
    with running_postgres() as server:
        yield server


@pytest.fixture
def standby(postgres: PostgresServer) -> Iterator[PostgresServer]:
    """Each commit of the primary waits for it."""
    with running_postgres(primary=postgres) as server:
        postgres.run("ALTER SYSTEM SET synchronous_standby_names = '*'")
        postgres.run("SELECT pg_reload_conf()")
        wait_until(lambda: count(postgres, "pg_stat_replication WHERE sync_state = 'sync'") == 1)
        yield server
        postgres.run("ALTER SYSTEM RESET synchronous_standby_names")


def count(server: PostgresServer, rows: str, database: str | None = None) -> int:
    return int(str(server.run(f"SELECT count(*) FROM {rows}", database)[0][0]))


@pytest.mark.parametrize("warned", [False, True], ids=["waits", "is told not to wait"])
def test_a_node_of_the_old_primary_acknowledges_nothing(
    cluster: SharedCluster,
    postgres: PostgresServer,
    standby: PostgresServer,
    chance: random.Random,
    report: Callable[[object], None],
    *,
    warned: bool,
):
    cluster.spread_after = "0s"
    left, moved = Route(postgres), Route(postgres)
    url = cluster.url.replace(f":{postgres.port}/", ":{}/")
    routes = {1: left, 2: moved, 3: moved}
    nodes = [
        cluster.launch(each, f"node-{each}", arguments=["--cluster", url.format(route.port)])
        for each, route in routes.items()
    ]
    for node in nodes:
        node.wait_ready(WAIT_S)
    loads = Loads(nodes, [], chance)
    with running(loads.threads):
        loads.wait_for_acks(ACKS)
        standby.run("SELECT pg_promote()")
        moved.turn(standby)
        rows = "trilogue.slots WHERE node_id = 1"
        new = url.format(standby.port)
        wait_until(lambda: count(standby, rows, new) == 0, timeout_s=WAIT_S)
        waits_s = [loads.wait_for_acks(ACKS)]
        assert nodes[0].alive, nodes[0].output
        if warned:  # it commits on the old primary, and only a warning says that nobody else has it
            wait_until(lambda: count(postgres, WAITING) > 0)
            postgres.run(f"SELECT pg_cancel_backend(pid) FROM {WAITING}")
            waits_s.append(loads.wait_for_acks(ACKS))
        left.turn(standby)
        assert nodes[0].wait() == STORAGE_FAILED, nodes[0].output
        waits_s.append(loads.wait_for_acks(ACKS))
    assert_good(loads, nodes[1], report, waits_s)
    for node in nodes[1:]:
        assert node.stop() == 0, node.output
