"""The application of the HTTP listener: /healthz for supervisors and load balancers, /metrics.

Both are read-only and contain no messages, users or names of topics. Pulsar's REST API
(gateway/http/pulsar/routes.py) and TubeMQ's web API (gateway/http/tubemq/routes.py) are built at
their first request. login.py is around all of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Literal

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"

State = Literal["starting", "serving", "draining", "failed"]


class Health(msgspec.Struct, frozen=True):
    """The state of the server, and for how long it runs."""

    state: State
    version: str
    uptime_s: float
    node_id: int
    missing_segments: Sequence[str] = ()


def build_app(
    health: Callable[[], Health],
    load_metrics: Callable[[], Callable[[], bytes]],
    more: Callable[[], ASGIApp] | None = None,
    at: Mapping[str, Callable[[], ASGIApp]] = MappingProxyType({}),
) -> Starlette:
    """Return the application.

    `load_metrics` returns the function that makes the page of /metrics. `at` has the functions that
    build the applications of single paths, `more` is the one for all other paths. Each is called at
    the first request, in a thread.
    """

    async def healthz(_request: Request) -> Response:
        now = health()
        content = {
            "state": now.state,
            "version": now.version,
            "uptime_s": round(now.uptime_s, 3),
            "node_id": now.node_id,
            "missing_segments": list(now.missing_segments),
        }
        return JSONResponse(content, 200 if now.state == "serving" else 503, headers=_FRESH)

    def make_metrics() -> ASGIApp:
        make_page = load_metrics()

        async def metrics(scope: Scope, receive: Receive, send: Send) -> None:
            headers = {**_FRESH, "content-type": METRICS_TYPE}
            await Response(make_page(), headers=headers)(scope, receive, send)

        return metrics

    routes: list[BaseRoute] = [
        Route("/healthz", healthz, methods=["GET"]),
        Route("/metrics", _LazyApp(make_metrics), methods=["GET"]),
    ]
    routes += [Route(path, _LazyApp(make)) for path, make in at.items()]
    if more is not None:
        routes.append(Mount("/", _LazyApp(more)))
    return Starlette(routes=routes)


class _LazyApp:
    """An application that is built at its first request, so that its modules cost no start time."""

    def __init__(self, make: Callable[[], ASGIApp]) -> None:
        self._make = make
        self._app: ASGIApp | None = None
        self._lock = asyncio.Lock()  # concurrent first requests build one

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._lock:
            app = self._app
            if app is None:
                app = self._app = await asyncio.to_thread(self._make)
        await app(scope, receive, send)


_FRESH = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
