"""Spark's own cluster, whose executors have no Trilogue but what the driver ships to them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.server import Server, start_server
from tests.spark.cluster.driver import Job
from tests.spark.cluster.standalone import StandaloneCluster, make_archive, make_bare_python
from tests.spark.rooms import make_topic, numbered, produce
from tests.spark.test_sink_exactly_once import committed
from tests.tools import require
from trilogue.spark.local_session import find_java

COUNT = 3_000
pytestmark = [pytest.mark.long, pytest.mark.timeout(1_500)]


class Rooms:
    """A cluster of Spark and one of three nodes, with a topic that is spread over these."""

    def __init__(self, folder: Path, cluster: StandaloneCluster, server: Server) -> None:
        self.folder = folder
        self.cluster = cluster
        self.server = server
        self.archive = make_archive(folder / "trilogue.zip")
        self.source = make_topic(server, 6)
        produce(server, self.source, numbered(COUNT))

    def run(self, master: str) -> tuple[dict[str, int], list[str]]:
        """Run the driver; return what it printed, and what it wrote to a new topic."""
        target = make_topic(self.server, 3)
        job = Job(
            master=master, python=str(self.cluster.python), archive=str(self.archive),
            servers=self.server.kafka, source=self.source, target=target, folder=str(self.folder),
        )  # fmt: skip
        done = subprocess.run(
            [sys.executable, "-m", "tests.spark.cluster.driver", json.dumps(job._asdict())],
            capture_output=True, text=True, timeout=900, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-4_000:]
        return json.loads(done.stdout.splitlines()[-1]), committed(self.server, target, 3)


@pytest.fixture(scope="module")
def rooms(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rooms]:
    folder = tmp_path_factory.mktemp("cluster")
    java_home = find_java(folder / "java")
    require("java", found=java_home)
    assert java_home is not None
    python = make_bare_python(folder / "python")
    listen = dict.fromkeys(("kafka", "pulsar", "http"), "127.0.0.1:0")
    with start_server(folder / "data", listen=listen, nodes=3, timeout=300) as server:
        cluster = StandaloneCluster(folder, java_home, python)
        try:
            yield Rooms(folder, cluster, server)
        finally:
            cluster.stop()


EXPECTED = sorted(f"v{number}" for number in range(COUNT))


def test_executors_get_the_package_as_an_archive(rooms):
    """A node serves only what it owns: each task reads from, and writes to, the owner."""
    bare = subprocess.run(
        [rooms.cluster.python, "-I", "-c", "import trilogue"], check=False, capture_output=True
    )
    assert b"No module named" in bare.stderr

    seen, written = rooms.run(rooms.cluster.master)

    assert seen == {"count": COUNT, "values": COUNT}
    assert written == EXPECTED


def test_a_client_of_spark_connect_reads_and_writes(rooms):
    require("grpcio", found=find_spec("grpc_status"))
    with rooms.cluster.connect(rooms.archive, {"spark.executor.memory": "512m"}) as address:
        seen, written = rooms.run(address)

    assert seen == {"count": COUNT, "values": COUNT}
    assert written == EXPECTED
