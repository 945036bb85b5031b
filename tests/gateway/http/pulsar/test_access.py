"""Denied requests over HTTP have no effect and are 403: every route."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import httpx
from starlette.types import ASGIApp, Receive, Scope, Send

from trilogue.broker.access.authorizer import (
    CLUSTER,
    Operation,
    Principal,
    Resource,
    ResourceKind,
)
from trilogue.broker.access.client_access import ClientAccess
from trilogue.gateway.http import request_limits as incoming
from trilogue.gateway.http.pulsar.routes import all_routes, build_pulsar_app

VALUES = {
    "tenant": "acme",
    "cluster": "eu",
    "namespace": "shop",
    "topic": "orders",
    "domain": "persistent",
}
NAMES = {
    ResourceKind.TOPIC: {"acme/shop/orders", "acme/eu/shop/orders"},
    ResourceKind.NAMESPACE: {"acme/shop", "acme/eu/shop", "acme"},
    ResourceKind.CLUSTER: {"cluster"},
}


class DenyingAuthorizer:
    """Denies everything, and remembers the queries."""

    def __init__(self) -> None:
        self.checks: list[tuple[Operation, Resource]] = []

    allows_all = False

    @property
    def generation(self) -> int:
        return len(self.checks)  # decisions are not cached

    def allowed_on_any(self, *_query: object) -> bool:
        return False

    def allowed(
        self, _principal: Principal, operation: Operation, resource: Resource, _host: str
    ) -> bool:
        self.checks.append((operation, resource))
        return False


def with_access(app: ASGIApp, access: ClientAccess) -> ASGIApp:
    """Return the application as it is behind the login."""

    async def called(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, "access": access}, receive, send)

    return called


def test_every_route_without_permission_is_denied_without_effect():
    denied = DenyingAuthorizer()
    namespaces = SimpleNamespace(has_admin=lambda _role: False)
    broker = SimpleNamespace(cluster=Any, namespaces=namespaces)  # another use is an error
    gateway: Any = SimpleNamespace(broker=broker)
    app = with_access(build_pulsar_app(gateway), ClientAccess(denied))
    protected = [row for row in all_routes() if not row.is_public]

    async def send_all() -> None:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://node") as client:
            for row in protected:
                path = re.sub(
                    r"\{(\w+)(:\w+)?\}", lambda found: VALUES.get(found[1], "1"), row.path
                )
                for method in row.methods.split():
                    before = len(denied.checks)
                    answer = await client.request(method, path, content=b"{}")
                    assert answer.status_code == 403, (method, path, answer.text)
                    assert list(answer.json()) == ["reason"]
                    operation, resource = denied.checks[before]
                    assert resource.kind is row.resource
                    assert resource.name in NAMES[resource.kind], (path, resource)
                    if "{rest:path}" not in row.path:
                        assert operation is row.operation

    asyncio.run(send_all())
    operations = {operation for operation, resource in denied.checks if resource == CLUSTER}
    assert Operation.DESCRIBE in operations  # for the list of tenants, of a missing one


def test_requests_that_need_no_permission_at_a_real_broker():
    """The names of clusters, whether it serves, and its version; not by whom it is changed."""
    public = {(row.methods, row.path) for row in all_routes() if row.is_public}
    paths = ("clusters", "brokers/ready", "brokers/version")
    roots = ("/admin/v2", "/admin")
    assert public == {("GET", f"{root}/{each}") for root in roots for each in paths}

    settings = SimpleNamespace(cluster="standalone")
    gateway: Any = SimpleNamespace(
        broker=SimpleNamespace(cluster=Any), settings=settings, catch_up=None
    )
    app = with_access(build_pulsar_app(gateway), ClientAccess(DenyingAuthorizer()))

    async def read(path: str) -> httpx.Response:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://node") as client:
            return await client.get(f"/admin/v2/{path}")

    assert asyncio.run(read("clusters")).json() == ["standalone"]
    assert [asyncio.run(read(each)).status_code for each in paths] == [200, 200, 200]


def test_a_body_that_does_not_end_is_refused_and_its_connection_closed(monkeypatch: Any):
    monkeypatch.setattr(incoming, "BODY_S", 0.05)
    app = build_pulsar_app(Any)

    async def begun() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.Event().wait()

    async def send_request() -> httpx.Response:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://node") as client:
            return await client.put("/admin/v2/persistent/a/b/t", content=begun())

    answer = asyncio.run(send_request())

    assert answer.status_code == 408
    assert answer.headers["connection"] == "close"
