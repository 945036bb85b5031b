"""A server of its own process and what one asks it over HTTP, as curl would."""

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
    """What a subscription has not acked, received as a whole and not acked."""
    consumer = client.subscribe(topic, subscription, **how)
    found = [consumer.receive(20_000).data() for _ in range(admin.backlog(topic, subscription))]
    consumer.close()
    return found


class Admin:
    """Answers are (status, what the body's JSON says, or None where there is none)."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.client = httpx.Client(base_url=f"http://{server.doors['http']}", timeout=20)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_problem: object) -> None:
        self.client.close()

    def ask(self, method: str, path: str, body: Any = ..., **how: Any) -> httpx.Response:
        if not path.startswith(("/admin", "/lookup")):
            path = f"{V2}/{path}"
        content = None if body is ... else json.dumps(body)
        return self.client.request(method, path, content=content, **how)

    def __call__(self, method: str, path: str, body: Any = ..., **how: Any) -> tuple[int, Any]:
        answer = self.ask(method, path, body, **how)
        return answer.status_code, answer.json() if answer.content else None

    def get(self, path: str) -> Any:
        status, said = self("GET", path)
        assert status == 200, (status, said)
        return said

    def do(self, method: str, path: str, body: Any = ...) -> None:
        status, said = self(method, path, body)
        assert status == 204, (path, status, said)

    def backlog(self, topic: str, subscription: str) -> int:
        """How many messages of `persistent://…` a subscription has not acked."""
        path = topic.replace("://", "/")
        parts = self.get(f"{path}/partitions")["partitions"]
        told = self.get(f"{path}/{'partitioned-stats' if parts else 'stats'}")
        return int(told["subscriptions"][subscription]["msgBacklog"])

    def namespace(self, name: str) -> str:
        """Make a namespace of the tenant `acme`."""
        self("PUT", "tenants/acme", {"allowedClusters": ["standalone"]})
        self.do("PUT", f"namespaces/acme/{name}")
        return f"acme/{name}"
