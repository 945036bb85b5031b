"""A node of a cluster and the bucket of its segments: missing, forbidden, away, of two clusters."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.node.clients import consume, produce
from tests.node.test_serve_flush import make_topic, metrics, values
from tests.postgres import PostgresServer
from tests.s3 import BUCKET, KEYS, S3, Proxy, options, s3_server
from tests.server import Server, launch_server
from tests.waiting import wait_until

pytest.importorskip("asyncpg")

from trilogue.log.files import OsFileSystem
from trilogue.log.objects.obstore_store import DirectoryStore, open_store
from trilogue.node.cluster.store_check import probe_store

pytestmark = pytest.mark.full

SETTINGS = {
    "nodes": 1,
    "ack": "shared",
    "cluster.size": 1,
    "cluster.lease": "3s",
    "objects.region": "us-east-1",
    "journal.file-size": "64KiB",
    "journal.file-age": "100ms",
    "segments.grace": "100ms",
    "objects.keep-local": 0,
}
COUNT = 30


@pytest.fixture(scope="module")
def s3() -> Iterator[S3]:
    with s3_server() as server:
        yield server


@pytest.fixture
def proxy(s3: S3) -> Iterator[Proxy]:
    proxy = Proxy(s3.port)
    yield proxy
    proxy.close()


def launch(data: Path, cluster: str, port: int, url: str) -> Server:
    at = {"objects.url": url, "objects.endpoint": f"http://127.0.0.1:{port}"}
    listen = {"kafka": "127.0.0.1:0", "http": "127.0.0.1:0"}
    return launch_server(
        data,
        listen=listen,
        arguments=["--cluster", cluster, "--node", "1"],
        settings=SETTINGS | at,
        environment=KEYS,
    )


@pytest.mark.parametrize(
    ("bucket", "refused"),
    [("no-such-bucket", set()), (BUCKET, {"PUT", "GET"}), (BUCKET, {"GET"})],
    ids=["no bucket", "no right", "no right to read"],
)
def test_a_bucket_that_cannot_be_used_is_named_and_nothing_is_begun(
    tmp_path: Path,
    postgres_server: PostgresServer,
    proxy: Proxy,
    bucket: str,
    refused: set[str],
):
    cluster = postgres_server.new_database()
    proxy.fault = lambda method, _path: 403 if method in refused else None

    node = launch(tmp_path / "data", cluster, proxy.port, f"s3://{bucket}/{tmp_path.name}")

    assert node.wait() == 1, node.output
    assert f"s3://{bucket}/{tmp_path.name} cannot be used" in node.output
    assert ("403" if refused else "NoSuchBucket") in node.output
    tables = "SELECT count(*) FROM pg_tables WHERE schemaname = 'trilogue'"
    assert postgres_server.run(tables, cluster)[0][0] == 0
    assert not (tmp_path / "data" / "journal").exists()


def test_a_bucket_that_is_away_holds_no_start_up(
    tmp_path: Path, postgres_server: PostgresServer, proxy: Proxy
):
    """Messages are acknowledged, and flushed when it is back."""
    proxy.fault = lambda _method, _path: 503
    cluster = postgres_server.new_database()
    node = launch(tmp_path / "data", cluster, proxy.port, f"s3://{BUCKET}/away").wait_ready(60)
    try:
        sent = values(COUNT)
        make_topic(node, "t")
        assert produce(node, "t", sent) == list(range(COUNT))
        assert "objects.not_reached" in node.output

        proxy.fault = lambda _method, _path: None

        wait_until(lambda: metrics(node)["trilogue_tail_entries"] == 0, "flushed", timeout_s=60)
        assert consume(node, "t", COUNT) == sent
        assert node.stop() == 0, node.output
    finally:
        node.kill9()


def test_nodes_that_start_at_once_check_one_directory(tmp_path: Path):
    store = DirectoryStore(tmp_path, OsFileSystem())

    with ThreadPoolExecutor(8) as pool:
        for each in [pool.submit(probe_store, store) for _ in range(32)]:
            each.result()

    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
def test_two_clusters_in_one_bucket_read_their_own_objects(
    tmp_path: Path, postgres_server: PostgresServer, s3: S3
):
    sent = {name: [b"%s of %s" % (each, name.encode()) for each in values(COUNT)] for name in "ab"}
    databases = {name: postgres_server.new_database() for name in sent}
    nodes = {
        name: launch(tmp_path / name, url, s3.port, f"s3://{BUCKET}/both")
        for name, url in databases.items()
    }
    try:
        for name, node in nodes.items():
            node.wait_ready(60)
            make_topic(node, "t")
            produce(node, "t", sent[name])
        for name, node in nodes.items():
            wait_until(lambda node=node: metrics(node)["trilogue_tail_entries"] == 0, name, 60)
            assert node.stop() == 0, node.output
        names = [each.key for each in open_store(options(s3.port, "both")).list("")]
        assert len({each.split("/")[0] for each in names if "/segments/" in each}) == 2

        for name, url in databases.items():
            node = launch(tmp_path / f"new-{name}", url, s3.port, f"s3://{BUCKET}/both")
            nodes[name] = node.wait_ready(60)
            assert consume(nodes[name], "t", COUNT) == sent[name]
            assert nodes[name].stop() == 0
    finally:
        for node in nodes.values():
            node.kill9()
