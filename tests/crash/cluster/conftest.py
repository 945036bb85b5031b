"""A cluster of three nodes with `ack=shared`; PostgreSQL is one for the tests of a module."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.node.cluster.shared_cluster import SharedCluster
from tests.postgres import PostgresServer, running_postgres
from tests.server import Server

SIZE = 3
WAIT_S = 90.0


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with running_postgres() as server:
        yield server


@pytest.fixture
def cluster(tmp_path: Path, postgres: PostgresServer) -> Iterator[SharedCluster]:
    made = SharedCluster(tmp_path, postgres, SIZE)
    yield made
    made.kill_all()


@pytest.fixture
def nodes(cluster: SharedCluster) -> list[Server]:
    """Three nodes; slots of a dead one are spread at once, as by default."""
    cluster.spread_after = "0s"
    return cluster.start_all(WAIT_S)
