"""The application of the HTTP listener: health for supervisors and load balancers, /metrics.

    /healthz   the state; 200 while the node serves
    /livez     200 unless the node has failed: an orchestrator starts it again then
    /readyz    200 while a load balancer should send clients; with 503 comes the reason, such as a
               full disk. A segment that is lost is none: all other messages are served
    /metrics   names of topics and readers only for principals that may describe the cluster

All are read-only and contain no messages. A node of a cluster whose lease is over is suspended: it
may have been replaced, so all other requests are answered with 503. Pulsar's REST API
(gateway/http/pulsar/routes.py) and TubeMQ's web API (gateway/http/tubemq/routes.py) are built at
their first request. login.py is around all of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Literal

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Mount, Route, WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from trilogue.broker.access.authorizer import CLUSTER, Operation
from trilogue.broker.access.client_access import ClientAccess
from trilogue.gateway.steps import next_step

IS_PUBLIC = "trilogue.is_public"  # in the scope of a request that needed no login
LEASE_OVER = "the lease of this node is over: another node may serve"
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"

State = Literal["starting", "serving", "suspended", "draining", "failed"]


class Health(msgspec.Struct, frozen=True):
    """The state of the server, and for how long it runs."""

    state: State
    version: str
    uptime_s: float
    node_id: int
    missing_segments: Sequence[str] = ()
    disk_full: str = ""  # why messages are refused

    @property
    def not_ready(self) -> str:
        """Why no load balancer should send clients here; "" if it should."""
        if self.state == "suspended":
            return LEASE_OVER
        if self.state != "serving":
            return f"the node is {self.state}"
        return self.disk_full


def build_app(
    health: Callable[[], Health],
    load_metrics: Callable[[], Callable[[], Awaitable[bytes]]],
    more: Callable[[], ASGIApp] | None = None,
    at: Mapping[str, Callable[[], ASGIApp]] = MappingProxyType({}),
    load_named: Callable[[], Callable[[], Awaitable[bytes]]] | None = None,
) -> Starlette:
    """Return the application.

    `load_metrics` returns the function that makes the page of /metrics, and `load_named` the one
    that makes its part with names. `at` has the functions that
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

    async def livez(_request: Request) -> Response:
        return _probe("the node has failed" if health().state == "failed" else "")

    async def readyz(_request: Request) -> Response:
        return _probe(health().not_ready)

    def make_metrics() -> ASGIApp:
        make_page = load_metrics()
        make_named = None if load_named is None else load_named()

        async def make_whole_page() -> bytes:
            page = await make_page()
            return page if make_named is None else page + await make_named()

        whole, public = SharedPage(make_whole_page), SharedPage(make_page)

        async def metrics(scope: Scope, receive: Receive, send: Send) -> None:
            page = await (whole if _may_see_names(scope) else public).get()
            headers = {**_FRESH, "content-type": METRICS_TYPE}
            await Response(page, headers=headers)(scope, receive, send)

        return metrics

    routes: list[BaseRoute] = [
        Route("/healthz", healthz, methods=["GET"]),
        Route("/livez", livez, methods=["GET"]),
        Route("/readyz", readyz, methods=["GET"]),
        Route("/metrics", _LazyApp(make_metrics), methods=["GET"]),
    ]
    for path, make in at.items():
        lazy = _Suspendable(_LazyApp(make), health)
        routes += [Route(path, lazy), WebSocketRoute(path, lazy)]
    if more is not None:
        routes.append(Mount("/", _Suspendable(_LazyApp(more), health)))
    return Starlette(routes=routes)


def _probe(problem: str) -> Response:
    headers = {**_FRESH, "content-type": "text/plain; charset=utf-8"}
    return Response(problem or "ok", 503 if problem else 200, headers=headers)


def _may_see_names(scope: Scope) -> bool:
    access = scope.get("access")
    return (
        isinstance(access, ClientAccess)
        and not scope.get(IS_PUBLIC, False)
        and access.can_see(Operation.DESCRIBE, *CLUSTER)
    )


class SharedPage:
    """A page that is made once for all requests that came before its making began."""

    def __init__(self, make: Callable[[], Awaitable[bytes]]) -> None:
        self._make = make
        self._next: asyncio.Task[bytes] | None = None
        self._lock = asyncio.Lock()  # it is made once at a time

    async def get(self) -> bytes:
        """Return the page as it is now or later."""
        if self._next is None:
            self._next = asyncio.create_task(self._make_next())
        return await asyncio.shield(self._next)

    async def _make_next(self) -> bytes:
        async with self._lock:
            await next_step()
            self._next = None
            return await self._make()


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


class _Suspendable:
    """Refuses all requests while the node is suspended."""

    def __init__(self, app: ASGIApp, health: Callable[[], Health]) -> None:
        self._app = app
        self._health = health

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._health().state != "suspended":
            await self._app(scope, receive, send)
            return
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": _TRY_AGAIN})
            return
        reason = {"reason": LEASE_OVER}
        headers = {**_FRESH, "retry-after": "1"}
        await JSONResponse(reason, 503, headers=headers)(scope, receive, send)


_TRY_AGAIN = 1013  # of WebSocket's codes
_FRESH = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
