"""`ack=shared`: what PostgreSQL has is acknowledged, and a node is served by another process.

The clients are librdkafka's, Pulsar's and TubeMQ's; the machines are directories, which are removed
with their nodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from confluent_kafka import Producer

from tests.node.cluster.shared_cluster import WAIT_S, SharedCluster
from tests.node.supervisor.test_nodes import QUIET, consume, create, numbered, produce
from tests.postgres import PostgresServer, running_postgres
from tests.server import Server, run_trilogue
from tests.waiting import wait_until

WRONG_SETTING = 2


TOPICS = "admin/v2/persistent/public/default"


def statuses(node: Server) -> dict[str, int]:
    """Return the status of an answer over HTTP by its path."""
    paths = ("livez", "readyz", "metrics", TOPICS)
    return {path: httpx.get(f"{node.http}/{path}", timeout=WAIT_S).status_code for path in paths}


@pytest.fixture
def shared(tmp_path: Path, postgres_server: PostgresServer) -> Iterator[SharedCluster]:
    cluster = SharedCluster(tmp_path, postgres_server, 1)
    yield cluster
    cluster.kill_all()


def test_a_node_comes_back_without_its_disk(shared: SharedCluster):
    """Three times: from rows, then from rows and segments in object storage, then from both."""
    sent: list[bytes] = []
    for life in range(3):
        node = shared.start(1, f"machine-{life}", journal__file_age="60s" if life else "300ms")
        if not life:
            create(node, "orders", 3)
        more = numbered(1_000 * life, 300)
        produce(node, "orders", more, 3)
        sent += more
        if not life:
            wait_until(lambda: shared.count("segments WHERE store <> ''") > 0, timeout_s=WAIT_S)
        shared.lose(node)
    node = shared.start(1, "machine-3", journal__file_age="300ms")
    assert sorted(consume(node, "readers", "orders", len(sent))) == sorted(sent)
    produce(node, "orders", numbered(9_000, 30), 3)
    assert sorted(consume(node, "readers", "orders", 30)) == sorted(numbered(9_000, 30))
    page = httpx.get(f"{node.http}/metrics", timeout=WAIT_S).text
    for name in ("lease_seconds", "shared_journal_unavailable_seconds"):
        assert f"# TYPE trilogue_{name} gauge" in page

    # Only the tables of this epoch are left when the rest is flushed.
    tables = "pg_tables WHERE schemaname = 'trilogue' AND tablename LIKE 'windows_%'"
    wait_until(lambda: shared.count(tables, schema="pg_catalog") == 2, timeout_s=WAIT_S)
    assert node.stop() == 0, node.output


def test_nothing_is_acknowledged_while_postgresql_is_away(tmp_path: Path):
    """The node gives up its connections when its lease is over, and goes on by itself."""
    with running_postgres() as postgres:
        cluster = SharedCluster(tmp_path, postgres, 1)
        node = cluster.start(1, "machine")
        create(node, "orders", 3)
        produce(node, "orders", numbered(0, 100), 3)
        acked: list[object] = []
        producer = Producer({"bootstrap.servers": node.kafka, "enable.idempotence": True, **QUIET})

        postgres.stop()
        for number, value in enumerate(numbered(100, 100)):
            producer.produce(
                "orders",
                value,
                partition=number % 3,
                on_delivery=lambda error, _message: error or acked.append(_message),
            )
        wait_until(
            lambda: producer.poll(0.1) == 0 and "lease.over" in node.output, timeout_s=WAIT_S
        )
        assert statuses(node) == {"livez": 200, "readyz": 503, "metrics": 200, TOPICS: 503}
        assert "lease" in httpx.get(f"{node.http}/readyz", timeout=WAIT_S).text
        assert acked == []
        postgres.start()

        assert producer.flush(WAIT_S) == 0
        assert len(acked) == 100
        found = consume(node, "readers", "orders", 200)
        assert sorted(found) == sorted(numbered(0, 200))
        assert "lease.renewed" in node.output
        assert statuses(node) == {"livez": 200, "readyz": 200, "metrics": 200, TOPICS: 200}
        assert node.stop() == 0, node.output


def test_ack_is_fixed_when_a_node_is_first_started(shared: SharedCluster):
    node = shared.start(1, "machine")
    assert node.stop() == 0, node.output
    local = shared.launch(1, "machine", ack="local")
    assert local.wait() not in {0, WRONG_SETTING}
    assert "set ack=shared" in local.output


def test_the_journal_of_another_node_is_not_removed(
    tmp_path: Path, postgres_server: PostgresServer
):
    cluster = SharedCluster(tmp_path, postgres_server, 2)
    local = cluster.start(2, "machine", ack="local")
    local.kill9()
    other = cluster.launch(1, "machine")
    assert other.wait() not in {0, WRONG_SETTING}
    assert "the journal of node 2" in other.output
    assert list((tmp_path / "machine" / "journal").iterdir())


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--set", "ack=shared"], "needs cluster.url"),
        (["--set", "ack=shared", "--cluster", "postgresql://localhost/x"], "needs objects.url"),
        (["--set", "cluster.standby=on"], "needs ack=shared"),
    ],
)
def test_settings_of_a_shared_journal_are_checked(
    tmp_path: Path, arguments: list[str], reason: str
):
    done = run_trilogue("serve", "--data", str(tmp_path / "data"), *arguments)

    assert done.returncode == WRONG_SETTING, done
    assert reason in done.stderr
