"""A cluster of three nodes with `ack=shared`; PostgreSQL is one for the tests of a module."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.node.cluster.shared_cluster import SharedCluster
from tests.postgres import PostgresServer, running_postgres

SIZE = 3


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with running_postgres() as server:
        yield server


@pytest.fixture
def cluster(tmp_path: Path, postgres: PostgresServer) -> Iterator[SharedCluster]:
    made = SharedCluster(tmp_path, postgres, SIZE)
    yield made
    made.kill_all()
