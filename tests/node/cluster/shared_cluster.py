"""The processes of a cluster with `ack=shared`; a machine is a directory, which can be lost."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.postgres import PostgresServer
from tests.server import Server, launch_server

LISTEN = dict.fromkeys(("kafka", "pulsar", "tubemq-master", "tubemq-broker", "http"), "127.0.0.1:0")
WAIT_S = 60.0


class SharedCluster:
    """The nodes of one database and one folder of objects, each with a directory of its own."""

    def __init__(self, folder: Path, postgres: PostgresServer, size: int) -> None:
        self.folder, self.postgres, self.size = folder, postgres, size
        self.url = postgres.new_database()
        self.objects = folder / "objects"
        self.objects.mkdir()
        self.processes: list[Server] = []
        self.environment: Mapping[str, str] = {}
        self.spread_after = "3s"  # so that a node which is started again has its slots

    def launch(
        self,
        node_id: int,
        name: str,
        listen: Mapping[str, str] | None = None,
        arguments: Sequence[str] = (),
        **settings: object,
    ) -> Server:
        process = launch_server(
            self.folder / name,
            listen={**LISTEN, **(listen or {})},
            arguments=["--cluster", self.url, "--node", str(node_id), *arguments],
            environment=self.environment,
            settings={
                "nodes": 1,
                "ack": "shared",
                "cluster.size": self.size,
                "cluster.lease": "3s",
                "cluster.spread-after": self.spread_after,
                "objects.url": f"file://{self.objects}",
                "segments.grace": "100ms",
                "objects.keep-local": 0,
            },
            **settings,
        )
        self.processes.append(process)
        return process

    def launch_standby(self, name: str, **listen: str) -> Server:
        """Start a process that waits, with addresses that clients may know before."""
        listen = {listener.replace("_", "-"): address for listener, address in listen.items()}
        return self.launch(1, name, listen, cluster__standby=True)

    def start(self, node_id: int, name: str, **settings: object) -> Server:
        return self.launch(node_id, name, **settings).wait_ready(WAIT_S)

    def start_all(self, wait_s: float = WAIT_S) -> list[Server]:
        """Start all nodes at once, in the order of their ids."""
        nodes = [self.launch(each, f"node-{each}") for each in range(1, self.size + 1)]
        return [node.wait_ready(wait_s) for node in nodes]

    def count(self, rows: str, schema: str = "trilogue") -> int:
        """Return how many rows there are in a table of PostgreSQL."""
        return int(self.postgres.run(f"SELECT count(*) FROM {schema}.{rows}", self.url)[0][0])

    def lose(self, process: Server) -> None:
        """Kill a node, and take its machine's disk away."""
        process.kill9()
        shutil.rmtree(process.data)

    def kill_all(self) -> None:
        for each in self.processes:
            each.kill9()
