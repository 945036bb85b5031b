"""A worker of distributed Kafka Connect as a process of its own."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Mapping
from pathlib import Path

from tools.servers.probe import free_port

from tests.conformance.clients.base import DEADLINE
from tests.conformance.clients.kafka_apps import App, properties

DISTRIBUTED = "org.apache.kafka.connect.cli.ConnectDistributed"
PLAIN = {
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.storage.StringConverter",
    "offset.flush.interval.ms": 500,
    "plugin.discovery": "only_scan",
}
INTERNAL = {"config": 1, "offset": 5, "status": 3}
"""Connect's own topics and their partitions."""


class ConnectWorker(App):
    """A worker of distributed Connect, controlled through its REST API."""

    def __init__(
        self,
        address: str,
        root: Path,
        version: str,
        more: Mapping[str, object] | None = None,
    ) -> None:
        """`more`: settings of the worker besides those of every one."""
        self.rest = f"http://127.0.0.1:{free_port()}"
        settings: dict[str, object] = {
            **PLAIN,
            "bootstrap.servers": address,
            "group.id": "connect",
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 1000,
            "listeners": self.rest,
            "scheduled.rebalance.max.delay.ms": 0,
            **(more or {}),
        }
        for name, partitions in INTERNAL.items():
            settings[f"{name}.storage.topic"] = f"connect-{name}s"
            settings[f"{name}.storage.replication.factor"] = 1
            if partitions > 1:
                settings[f"{name}.storage.partitions"] = partitions
        made = properties(root / "worker.properties", settings)
        super().__init__(root / "connect", version, DISTRIBUTED, [made], level="warn")

    def request(
        self, path: str, body: Mapping[str, object] | None = None, method: str = "GET"
    ) -> object:
        data = None if body is None else json.dumps(body, default=str).encode()
        request = urllib.request.Request(
            f"{self.rest}{path}", data, {"Content-Type": "application/json"}, method=method
        )
        with urllib.request.urlopen(request, timeout=DEADLINE) as answer:
            return json.loads(answer.read() or b"null")

    def serves(self) -> bool:
        assert self.process.poll() is None, self.output[-4000:]
        try:
            return self.request("/connectors") is not None
        except OSError:
            return False

    def states(self, name: str) -> list[str]:
        """Return the state of the connector and of each of its tasks; empty if there is none."""
        try:
            status = self.request(f"/connectors/{name}/status")
        except OSError:
            return []
        assert isinstance(status, dict)
        return [status["connector"]["state"], *(task["state"] for task in status["tasks"])]

    def runs(self, name: str) -> bool:
        states = self.states(name)
        assert "FAILED" not in states, states
        return states == ["RUNNING", "RUNNING"]
