"""`ack=shared`: what PostgreSQL has is acknowledged, and a node is served by another process.

The clients are librdkafka's, Pulsar's and TubeMQ's; the machines are directories, which are removed
with their nodes.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.node.supervisor.test_nodes import consume, create, numbered, produce
from tests.postgres import PostgresServer
from tests.server import Server, launch_server, run_trilogue
from tests.waiting import wait_until

LISTEN = dict.fromkeys(("kafka", "pulsar", "http"), "127.0.0.1:0")
WAIT_S = 60.0
WRONG_SETTING = 2


class SharedCluster:
    """The nodes of one database and one folder of objects, each with a directory of its own."""

    def __init__(self, folder: Path, postgres: PostgresServer, size: int) -> None:
        self.folder, self.postgres, self.size = folder, postgres, size
        self.url = postgres.new_database()
        self.objects = folder / "objects"
        self.objects.mkdir()
        self.processes: list[Server] = []

    def launch(self, node_id: int, name: str, **settings: object) -> Server:
        process = launch_server(
            self.folder / name,
            listen=LISTEN,
            arguments=["--cluster", self.url, "--node", str(node_id)],
            settings={
                "nodes": 1,
                "ack": "shared",
                "cluster.size": self.size,
                "cluster.lease": "2s",
                "objects.url": f"file://{self.objects}",
                "segments.grace": "100ms",
                "objects.keep-local": 0,
            },
            **settings,
        )
        self.processes.append(process)
        return process

    def start(self, node_id: int, name: str, **settings: object) -> Server:
        return self.launch(node_id, name, **settings).wait_ready(WAIT_S)

    def count(self, rows: str, schema: str = "trilogue") -> int:
        """Return how many rows there are in a table of PostgreSQL."""
        return int(self.postgres.run(f"SELECT count(*) FROM {schema}.{rows}", self.url)[0][0])

    def lose(self, process: Server) -> None:
        """Kill a node, and take its machine's disk away."""
        process.kill9()
        shutil.rmtree(process.data)


@pytest.fixture
def shared(tmp_path: Path, postgres_server: PostgresServer) -> Iterator[SharedCluster]:
    cluster = SharedCluster(tmp_path, postgres_server, 1)
    yield cluster
    for each in cluster.processes:
        each.kill9()


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

    # Only the tables of this epoch are left when the rest is flushed.
    tables = "pg_tables WHERE schemaname = 'trilogue' AND tablename LIKE 'windows_%'"
    wait_until(lambda: shared.count(tables, schema="pg_catalog") == 2, timeout_s=WAIT_S)
    assert node.stop() == 0, node.output


def test_ack_is_fixed_when_a_node_is_first_started(shared: SharedCluster):
    node = shared.start(1, "machine")
    assert node.stop() == 0, node.output
    local = shared.launch(1, "machine", ack="local")
    assert local.wait() not in {0, WRONG_SETTING}
    assert "set ack=shared" in local.output


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
