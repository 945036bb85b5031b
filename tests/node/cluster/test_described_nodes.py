"""`trilogue nodes describe` of a cluster with `ack=shared`, all its nodes there and one lost."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.node.cluster.shared_cluster import SharedCluster
from tests.node.supervisor.test_nodes import create, numbered, produce
from tests.postgres import PostgresServer
from tests.server import Server, run_trilogue

pytestmark = [pytest.mark.full, pytest.mark.timeout(300)]


@pytest.fixture
def cluster(tmp_path: Path, postgres_server: PostgresServer) -> Iterator[SharedCluster]:
    made = SharedCluster(tmp_path, postgres_server, 2)
    made.spread_after = "1h"  # nobody takes over what a dead node had
    yield made
    made.kill_all()


def describe(server: Server) -> list[dict[str, Any]]:
    described = run_trilogue("nodes", "describe", "--json", "--server", server.kafka)
    rows: list[dict[str, Any]] = json.loads(described.stdout)
    return rows


def test_nodes_of_a_cluster_are_described_and_a_dead_one_is_missed(cluster: SharedCluster):
    first, second = cluster.start_all()
    create(first, "orders", 4)
    produce(second, "orders", numbered(0, 100), 4)

    rows = describe(first)

    assert [each["id"] for each in rows] == [1, 2]
    assert sum(each["partitions"] for each in rows) == 4
    for row in rows:
        assert row["problem"] == ""
        assert row["lease_s"] > 0
        assert row["postgres_away_s"] >= 0
        assert row["commit_ms"] > 0
        assert row["unflushed_bytes"] + row["uploads_waiting"] >= 0

    lost = rows[1]["slots"]
    second.kill9()
    described = run_trilogue("nodes", "describe", "--server", first.kafka)

    named = ",".join(map(str, lost))
    assert f"no node that answers has the slots {named}" in described.stdout, described
