"""What the HTTP door answers: /healthz for whoever restarts or routes, /metrics for Prometheus.

Both are read-only and say nothing about messages, users or names of topics.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"

State = Literal["starting", "serving", "draining", "failed"]


@dataclass(frozen=True, slots=True)
class Health:
    """How the server is, and since when it runs."""

    state: State
    version: str
    uptime_s: float
    node_id: int


def build_app(health: Callable[[], Health], metrics_page: Callable[[], bytes]) -> Starlette:
    """Make the application; everything it says is asked for at the time of the request."""

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

    return Starlette(
        routes=[
            Route("/healthz", healthz, methods=["GET"]),
            Route("/metrics", metrics, methods=["GET"]),
        ]
    )


_FRESH = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
