"""A cluster with `ack=shared` whose way to PostgreSQL and to S3 is slow, silent or cut.

PostgreSQL and the S3 server (versitygw) are real, and each is behind a proxy (Toxiproxy) that all
nodes go through. What was acknowledged is there once, in order; clients of all protocols go on by
themselves; everything is flushed in the end.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tools.servers.probe import free_port

from tests.conformance.clients.building import BUILD
from tests.crash.cluster.test_spread_slots import assert_good
from tests.crash.cluster.test_take_over import ACKS, WAIT_S, Loads
from tests.crash.load import running
from tests.node.cluster.shared_cluster import SharedCluster
from tests.node.test_serve_flush import metrics
from tests.postgres import PostgresServer
from tests.s3 import KEYS
from tests.tools import require_program
from tests.waiting import wait_until

TOXIPROXY = "github.com/Shopify/toxiproxy/v2/cmd/server@v2.5.0"
VERSITYGW = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
BUCKET = "segments"
ROOT = {
    "ROOT_ACCESS_KEY": KEYS["AWS_ACCESS_KEY_ID"],
    "ROOT_SECRET_KEY": KEYS["AWS_SECRET_ACCESS_KEY"],
}
BUILD_S, START_S, FLUSH_S = 1_200, 30.0, 240.0
PHASE_S = 8.0  # longer than the lease of a node
SLOW = {"type": "latency", "attributes": {"latency": 150, "jitter": 100}}
NARROW = {"type": "bandwidth", "attributes": {"rate": 512}}  # KB/s
IN_PIECES = {"type": "slicer", "attributes": {"average_size": 64, "size_variation": 32}}
SILENT = {"type": "timeout", "attributes": {"timeout": 0}}
RESET = {"type": "reset_peer", "attributes": {"timeout": 500}}

pytestmark = [pytest.mark.long, pytest.mark.timeout(2_400)]

Report = Callable[[object], None]


def install(package: str) -> Path:
    """Return a program in Go, which is built once."""
    program = BUILD / "go-servers" / package.partition("@")[0].rpartition("/")[2]
    if not program.exists():
        require_program("go")
        subprocess.run(
            ["go", "install", package],
            env={**os.environ, "GOBIN": str(program.parent)},
            check=True,
            timeout=BUILD_S,
        )
    return program


@contextlib.contextmanager
def serving(command: Sequence[object], port: int, log: Path) -> Iterator[None]:
    """Run a server until the end, from the moment when it takes connections."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*map(str, command)], stdout=output, stderr=output, env={**os.environ, **ROOT}
        )

    def takes_connections() -> bool:
        assert process.poll() is None, log.read_text()
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return True
        return False

    try:
        wait_until(takes_connections, f"{command[0]} listens", timeout_s=START_S)
        yield
    finally:
        process.kill()
        process.wait()


class Way:
    """The way of all nodes to one server."""

    def __init__(self, api: int, name: str, server: int) -> None:
        self._api, self._name, self.port = api, name, free_port()
        at = {"listen": f"127.0.0.1:{self.port}", "upstream": f"127.0.0.1:{server}"}
        self._call("POST", "/proxies", {"name": name, "enabled": True, **at})

    @contextlib.contextmanager
    def toxic(self, kind: dict[str, Any]) -> Iterator[None]:
        """Treat what comes from the server, and what goes there, badly."""
        for stream in ("upstream", "downstream"):
            given = {"name": stream, "stream": stream, "toxicity": 1.0, **kind}
            self._call("POST", f"/proxies/{self._name}/toxics", given)
        try:
            yield
        finally:
            for stream in ("upstream", "downstream"):
                self._call("DELETE", f"/proxies/{self._name}/toxics/{stream}")

    @contextlib.contextmanager
    def cut(self) -> Iterator[None]:
        """End all connections, and refuse new ones."""
        self._call("POST", f"/proxies/{self._name}", {"enabled": False})
        try:
            yield
        finally:
            self._call("POST", f"/proxies/{self._name}", {"enabled": True})

    def _call(self, method: str, path: str, body: object = None) -> None:
        data = None if body is None else json.dumps(body).encode()
        url = f"http://127.0.0.1:{self._api}{path}"
        request = urllib.request.Request(url, data, method=method)
        with urllib.request.urlopen(request, timeout=START_S) as answer:
            assert answer.status < 300


@pytest.fixture
def ways(tmp_path: Path, postgres: PostgresServer) -> Iterator[tuple[Way, Way]]:
    """The ways to PostgreSQL and to S3."""
    api, s3 = free_port(), free_port()
    (tmp_path / "buckets" / BUCKET).mkdir(parents=True)
    gateway = [install(VERSITYGW), "--port", f"127.0.0.1:{s3}", "posix", tmp_path / "buckets"]
    proxy = [install(TOXIPROXY), "-host", "127.0.0.1", "-port", api]
    with (
        serving(gateway, s3, tmp_path / "versitygw.log"),
        serving(proxy, api, tmp_path / "toxiproxy.log"),
    ):
        yield Way(api, "postgresql", postgres.port), Way(api, "s3", s3)


def test_clients_go_on_behind_a_bad_network(
    cluster: SharedCluster,
    postgres: PostgresServer,
    ways: tuple[Way, Way],
    chance: random.Random,
    report: Report,
):
    to_postgres, to_s3 = ways
    url = cluster.url.replace(f":{postgres.port}/", f":{to_postgres.port}/")
    cluster.environment = KEYS
    at = {
        "objects__url": f"s3://{BUCKET}/nodes",
        "objects__endpoint": f"http://127.0.0.1:{to_s3.port}",
        "objects__region": "us-east-1",
        "journal__file_size": "256KiB",
        "journal__file_age": "500ms",
    }
    nodes = [
        cluster.launch(each, f"node-{each}", arguments=["--cluster", url], **at)
        for each in range(1, cluster.size + 1)
    ]
    for node in nodes:
        node.wait_ready(WAIT_S)
    loads = Loads(nodes, [], chance)
    phases: list[tuple[str, Sequence[contextlib.AbstractContextManager[None]]]] = [
        ("both slow", [to_postgres.toxic(SLOW), to_s3.toxic(SLOW)]),
        ("S3 narrow", [to_s3.toxic(NARROW)]),
        ("S3 silent", [to_s3.toxic(SILENT)]),
        ("PostgreSQL in pieces", [to_postgres.toxic(IN_PIECES)]),
        ("PostgreSQL silent", [to_postgres.toxic(SILENT)]),
        ("S3 cut", [to_s3.cut()]),
        ("PostgreSQL cut", [to_postgres.cut()]),
        ("both reset", [to_postgres.toxic(RESET), to_s3.toxic(RESET)]),
    ]
    chance.shuffle(phases)
    waits_s: list[float] = []
    with running(loads.threads):
        loads.wait_for_acks(ACKS)
        for name, ills in phases:
            with contextlib.ExitStack() as stack:
                for each in ills:
                    stack.enter_context(each)
                time.sleep(PHASE_S)  # by design: this is how long it lasts
            waits_s.append(loads.wait_for_acks(ACKS))
            report(f"{name}: {ACKS} acks {waits_s[-1]:.1f} s after it")
    alive = [node for node in nodes if node.alive]
    wait_until(
        lambda: all(metrics(node)["trilogue_tail_entries"] == 0 for node in alive),
        "everything is flushed",
        timeout_s=FLUSH_S,
    )
    assert_good(loads, alive[0], report, waits_s)
    for node in alive:
        assert node.stop() == 0, node.output
