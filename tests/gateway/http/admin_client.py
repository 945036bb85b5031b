"""A server in a process of its own, and requests to it as curl would send them."""

from __future__ import annotations

import json
from typing import Any, Self

import httpx
import pulsar

from tests.server import Server

V2 = "/admin/v2"


def read_all(
    admin: Admin, client: pulsar.Client, topic: str, subscription: str, **how: Any
) -> list[bytes]:
    """Receive the unacknowledged messages of a subscription without acknowledging them."""
    consumer = client.subscribe(topic, subscription, **how)
    found = [consumer.receive(60_000).data() for _ in range(admin.backlog(topic, subscription))]
    consumer.close()
    return found


class Admin:
    """A client of Pulsar's REST API: calls return (status, the body's JSON or None)."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.client = httpx.Client(base_url=f"http://{server.doors['http']}", timeout=60)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_problem: object) -> None:
        self.client.close()

    def request(self, method: str, path: str, body: Any = ..., **how: Any) -> httpx.Response:
        if not path.startswith(("/admin", "/lookup")):
            path = f"{V2}/{path}"
        content = None if body is ... else json.dumps(body)
        return self.client.request(method, path, content=content, **how)

    def __call__(self, method: str, path: str, body: Any = ..., **how: Any) -> tuple[int, Any]:
        answer = self.request(method, path, body, **how)
        return answer.status_code, answer.json() if answer.content else None

    def get(self, path: str) -> Any:
        status, response = self("GET", path)
        assert status == 200, (status, response)
        return response

    def do(self, method: str, path: str, body: Any = ...) -> None:
        status, response = self(method, path, body)
        assert status == 204, (path, status, response)

    def backlog(self, topic: str, subscription: str) -> int:
        """Return how many messages of `persistent://…` a subscription has not acknowledged."""
        path = topic.replace("://", "/")
        parts = self.get(f"{path}/partitions")["partitions"]
        result = self.get(f"{path}/{'partitioned-stats' if parts else 'stats'}")
        return int(result["subscriptions"][subscription]["msgBacklog"])

    def namespace(self, name: str) -> str:
        """Create a namespace of the tenant `acme`."""
        self("PUT", "tenants/acme", {"allowedClusters": ["standalone"]})
        self.do("PUT", f"namespaces/acme/{name}")
        return f"acme/{name}"
