"""The latency of HTTP requests, by the part of the server that answers them.

WebSockets and streams last as long as their clients want; only requests with an end are measured.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from trilogue.gateway.telemetry.request_latency import RequestLatencies

AREAS: Final = frozenset(
    {
        "admin",
        "broker.htm",
        "console",
        "healthz",
        "kafka-rest",
        "livez",
        "lookup",
        "metrics",
        "readyz",
        "schema-registry",
        "topics",
        "trilogue",
        "webapi.htm",
    }
)
"""First parts of paths that have a name; the label is bounded, whatever clients request."""
OTHER: Final = "other"


class TimedApp:
    """An ASGI application around another: it measures requests until they are answered."""

    def __init__(self, app: ASGIApp, latencies: RequestLatencies) -> None:
        self._app = app
        self._latencies = latencies
        self._counts: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request and measure it."""
        timer = None
        if scope["type"] == "http":
            area = find_area(scope["path"])
            self._counts[area] += 1
            timer = self._latencies.start(area, self._counts[area])
        try:
            await self._app(scope, receive, send)
        finally:
            if timer is not None:
                timer.stop()


def find_area(path: str) -> str:
    """Return the part of the server that a path belongs to."""
    first = path[1:].partition("/")[0]
    return first if first in AREAS else OTHER
