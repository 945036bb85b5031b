"""What the HTTP door answers: /healthz for whoever restarts or routes, /metrics for Prometheus.

Both are read-only and say nothing about messages, users or names of topics. The administration of
Pulsar (pulsar_admin.py) and of TubeMQ (tubemq_webapi.py) stands beside them, when it is first asked
for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"

State = Literal["starting", "serving", "draining", "failed"]


@dataclass(frozen=True, slots=True)
class Health:
    """How the server is, and since when it runs."""

    state: State
    version: str
    uptime_s: float
    node_id: int


def build_app(
    health: Callable[[], Health],
    metrics_page: Callable[[], bytes],
    more: Callable[[], ASGIApp] | None = None,
    at: Mapping[str, Callable[[], ASGIApp]] = MappingProxyType({}),
) -> Starlette:
    """Make the application; everything it says is asked for at the time of the request.

    `at` makes what answers at single paths, `more` what answers at all others, when the first
    request comes that is for them.
    """

    async def healthz(_request: Request) -> Response:
        now = health()
        content = {
            "state": now.state,
            "version": now.version,
            "uptime_s": round(now.uptime_s, 3),
            "node_id": now.node_id,
        }
        return JSONResponse(content, 200 if now.state == "serving" else 503, headers=_FRESH)

    async def metrics(_request: Request) -> Response:
        return Response(metrics_page(), headers={**_FRESH, "content-type": METRICS_TYPE})

    routes: list[BaseRoute] = [
        Route("/healthz", healthz, methods=["GET"]),
        Route("/metrics", metrics, methods=["GET"]),
    ]
    routes += [Route(path, _Later(make)) for path, make in at.items()]
    if more is not None:
        routes.append(Mount("/", _Later(more)))
    return Starlette(routes=routes)


class _Later:
    """An application that is made when it is first asked: its modules cost the start nothing."""

    def __init__(self, make: Callable[[], ASGIApp]) -> None:
        self._make = make
        self._app: ASGIApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._app
        if app is None:  # two who ask at once make two that are alike
            app = self._app = await asyncio.to_thread(self._make)
        await app(scope, receive, send)


_FRESH = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
