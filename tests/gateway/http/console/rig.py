"""The console over a node without sockets, called in the loop of the test."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.gateway.http.pulsar.test_access import with_access
from trilogue.broker.access.client_access import ClientAccess
from trilogue.gateway.http.console.app import build_console_app
from trilogue.gateway.http.console.request import ConsoleServices

HOST = "http://127.0.0.1:8080"


def console_services(rig: Any, **services: Any) -> ConsoleServices:
    """The parts of a rig that pages show, with others in place of some."""
    given = {
        "gateway": rig.gateway,
        "pulsar": rig.gateway,
        "gather": lambda: iter(()),
        "list_connections": dict,
        "make_administration": lambda: pytest.fail("no page here needs it"),
        "make_node_clients": lambda: pytest.fail("no page here needs another node"),
        "has_access_control": True,
    }
    return ConsoleServices(**{**given, **services})


def open_console(services: ConsoleServices, access: ClientAccess) -> httpx.AsyncClient:
    """A browser of a principal."""
    app = with_access(build_console_app(services), access)
    return httpx.AsyncClient(transport=Direct(app), base_url=HOST)


class Direct(httpx.AsyncBaseTransport):
    """Calls an application in the running loop, which is no loop that anyio knows."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        sent: list[dict[str, Any]] = []
        body = await request.aread()

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        raw = request.url.raw_path
        scope = {
            "type": "http",
            "method": request.method,
            "path": request.url.path,
            "raw_path": raw.partition(b"?")[0],
            "query_string": request.url.query,
            "headers": [(name.lower(), value) for name, value in request.headers.raw],
            "scheme": "http",
            "server": ("127.0.0.1", 8080),
            "client": ("198.51.100.7", 1),
            "http_version": "1.1",
            "root_path": "",
        }
        await self._app(scope, receive, send)
        content = b"".join(each.get("body", b"") for each in sent[1:])
        return httpx.Response(sent[0]["status"], headers=sent[0]["headers"], content=content)
