"""`trilogue serve --cluster`: nodes with a directory each and their metadata in one PostgreSQL.

The clients are librdkafka's and Pulsar's own.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pulsar
import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import NewTopic

from tests.node.supervisor.test_nodes import (
    SILENT,
    admin,
    consume,
    create,
    leaders,
    numbered,
    produce,
)
from tests.postgres import PostgresServer, running_postgres
from tests.server import Server, launch_server, run_trilogue
from tests.waiting import wait_until
from trilogue.meta.sqlite import SqliteMeta

LISTEN = dict.fromkeys(("kafka", "pulsar", "http"), "127.0.0.1:0")
SIZE = 3
WAIT_S = 60.0
WRONG_SETTING = 2


class Cluster:
    """The nodes of one database."""

    def __init__(self, folder: Path, postgres: PostgresServer) -> None:
        self.folder, self.postgres = folder, postgres
        self.url = postgres.new_database()
        self.nodes: dict[int, Server] = {}

    def options(self, node_id: int) -> dict[str, object]:
        arguments = ["--cluster", self.url, "--node", str(node_id)]
        return {
            "listen": LISTEN,
            "arguments": arguments,
            "settings": {"nodes": 1, "cluster.size": SIZE},
        }

    def start(self, *node_ids: int, **settings: object) -> None:
        for node_id in node_ids:
            data = self.folder / f"node-{node_id}"
            options = self.options(node_id)
            self.nodes[node_id] = launch_server(data, **options, **settings)
        for node_id in node_ids:
            self.nodes[node_id].wait_ready(WAIT_S)

    def stop(self) -> None:
        for node in self.nodes.values():
            assert node.stop() == 0, node.output
        self.nodes.clear()


@pytest.fixture
def cluster(tmp_path: Path, postgres_server: PostgresServer) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path, postgres_server)
    yield cluster
    for node in cluster.nodes.values():
        node.kill9()


def create_soon(server: Server, topic: str, partitions: int) -> None:
    """Create a topic, or give up before long."""
    client = admin(server)
    wanted = [NewTopic(topic, partitions)]
    client.create_topics(wanted, operation_timeout=1, request_timeout=60)[topic].result(WAIT_S)


def test_clients_of_three_machines_share_one_cluster(cluster: Cluster):
    cluster.start(1, 2, 3)
    first, second, third = cluster.nodes.values()
    create(first, "orders", 6)

    assert set(leaders(second, "orders").values()) == {1, 2, 3}
    produce(second, "orders", numbered(0, 300), 6)
    assert sorted(consume(third, "billing", "orders", 300)) == sorted(numbered(0, 300))
    cluster.nodes[2].kill9()
    cluster.start(2)
    produce(first, "orders", numbered(1_000, 300), 6)
    assert sorted(consume(third, "billing", "orders", 300)) == sorted(numbered(1_000, 300))

    cluster.stop()
    cluster.start(3, 1, 2)
    everything = numbered(0, 300) + numbered(1_000, 300)
    assert sorted(consume(cluster.nodes[1], "again", "orders", 600)) == sorted(everything)
    listed = run_trilogue("nodes", "list", "--json", "--server", cluster.nodes[2].kafka)
    assert listed.stdout.count('"epoch"') == SIZE, listed


def test_addresses_of_another_node_are_logged(cluster: Cluster):
    """As of two machines that both listen on 127.0.0.1."""
    for node_id in (1, 2):
        cluster.start(node_id, advertise__kafka="one.example:9092")

    first, second = (node.output for node in cluster.nodes.values())

    assert "node.address_of_another" not in first
    assert "node.address_of_another listener=kafka address=one.example:9092 other_node=1" in second


def test_the_reason_that_no_slot_moves_between_local_journals(cluster: Cluster):
    cluster.start(1, 2)

    for arguments in (["drain", "2"], ["move", "1", "--to", "2"], ["rebalance", "--dry-run"]):
        refused = run_trilogue("nodes", *arguments, "--cluster", cluster.url)
        assert refused.returncode == 1, refused
        assert "no cluster with ack=shared" in refused.stderr, refused


def test_a_pulsar_client_is_sent_to_the_owner(cluster: Cluster):
    cluster.start(1, 2, 3)
    client = pulsar.Client(cluster.nodes[1].pulsar, logger=SILENT)
    for number in range(4):
        topic = f"persistent://public/default/events-{number}"
        consumer = client.subscribe(topic, "readers")
        producer = client.create_producer(topic)
        for each in range(20):
            producer.send(b"%d" % each)
        received = [consumer.receive(30_000).data() for _ in range(20)]
        assert received == numbered(0, 20)
    client.close()


def test_postgresql_may_be_away_for_some_seconds(tmp_path: Path):
    """Messages go on, metadata is refused with a reason, flushes wait; then all resumes."""
    with running_postgres() as postgres:
        cluster = Cluster(tmp_path, postgres)
        cluster.start(1, 2, 3, journal__file_age="300ms")
        first = cluster.nodes[1]
        create(first, "orders", 6)
        produce(first, "orders", numbered(0, 300), 6)

        postgres.stop()
        produce(first, "orders", numbered(1_000, 300), 6)
        assert len(consume(cluster.nodes[2], "billing", "orders", 600)) == 600
        ends = time.monotonic() + WAIT_S
        while time.monotonic() < ends:
            with pytest.raises(KafkaException) as refused:
                create_soon(first, f"at-{time.monotonic()}", 1)
            if "retry later" in str(refused.value):
                break
        assert "retry later" in str(refused.value)
        postgres.start()

        while time.monotonic() < ends:
            try:
                create_soon(first, "later", 3)
                break
            except KafkaException:
                continue
        produce(cluster.nodes[3], "later", numbered(0, 30), 3)
        assert sorted(consume(cluster.nodes[2], "billing", "later", 30)) == sorted(numbered(0, 30))
        cluster.stop()
        segments = postgres.run("SELECT DISTINCT node_id FROM trilogue.segments", cluster.url)
        assert len(segments) == SIZE, "all nodes have flushed"

        cluster.start(1, 2, 3)
        found = sorted(consume(cluster.nodes[2], "again", "orders", 600))
        assert found == sorted(numbered(0, 300) + numbered(1_000, 300))
        cluster.stop()


def test_segments_of_all_nodes_move_to_one_store_and_are_read_from_it(
    cluster: Cluster, tmp_path: Path
):
    """Each node has a folder of its own there, so none removes another one's objects."""
    objects = tmp_path / "objects"
    objects.mkdir()
    settings = {
        "objects__url": f"file://{objects}",
        "objects__move_after": 0,
        "objects__keep_local": 0,
        "journal__file_age": "100ms",
        "segments__grace": "100ms",
    }
    cluster.start(1, 2, 3, **settings)
    create(cluster.nodes[1], "orders", 6)
    for number in range(14):  # each becomes a segment of each node; these are merged
        produce(cluster.nodes[1], "orders", numbered(100 * number, 100), 6)
        time.sleep(0.2)

    def count_moved() -> int:
        query = "SELECT DISTINCT node_id FROM trilogue.segments WHERE store <> ''"
        return len(cluster.postgres.run(query, cluster.url))

    wait_until(lambda: count_moved() == SIZE, timeout_s=WAIT_S)
    assert len(list(objects.glob("*/node-*/segments/*"))) >= SIZE
    cluster.stop()
    cluster.start(1, 2, 3, **settings)
    found = consume(cluster.nodes[3], "readers", "orders", 1_400)
    assert sorted(found) == sorted(numbered(0, 1_400))


def refusal(cluster: Cluster, data: Path, node_id: int) -> str:
    """What a node says that does not start."""
    server = launch_server(data, **cluster.options(node_id))
    assert server.wait() not in {0, WRONG_SETTING}
    return server.output


def test_wrong_nodes_folders_and_databases_are_named_and_change_nothing(
    cluster: Cluster, tmp_path: Path
):
    cluster.start(1)
    create(cluster.nodes[1], "orders", 2)

    assert "another folder" in refusal(cluster, tmp_path / "other", 1)
    assert "owns no slots" in refusal(cluster, tmp_path / "fourth", 4)
    cluster.stop()
    other = Cluster(tmp_path, cluster.postgres)
    assert "the database is empty" in refusal(other, tmp_path / "node-1", 1)
    alone = launch_server(tmp_path / "node-1", listen=LISTEN, settings={"nodes": 1})
    assert alone.wait() not in {0, WRONG_SETTING}
    assert "cluster.url" in alone.output

    (tmp_path / "single").mkdir()
    (tmp_path / "single" / "format").write_text("trilogue data format 1\n")
    SqliteMeta.open(tmp_path / "single" / "meta.sqlite", create=True).close()
    assert "a folder of its own" in refusal(cluster, tmp_path / "single", 2)
    cluster.start(1)
    assert leaders(cluster.nodes[1], "orders").keys() == {0, 1}


@pytest.mark.parametrize(
    "arguments",
    [
        ["--cluster", "mysql://somewhere/else"],
        ["--cluster", "postgresql://localhost/x", "--nodes", "2"],
        ["--cluster", "postgresql://localhost/x", "--node", "0"],
    ],
    ids=["not PostgreSQL", "several nodes", "node 0"],
)
def test_settings_that_cannot_be_are_refused(tmp_path: Path, arguments: list[str]):
    done = run_trilogue("serve", "--data", str(tmp_path / "data"), *arguments)

    assert done.returncode == WRONG_SETTING, done
    assert done.stderr.startswith("trilogue: ")
    assert not (tmp_path / "data").exists()
