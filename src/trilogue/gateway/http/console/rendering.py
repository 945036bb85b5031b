"""Pages made of templates: Jinja2 with escaping everywhere, and headers that keep them apart.

The policy of a page allows scripts and styles of this server only, no frames, and forms that go
nowhere else. Nothing is loaded from another host.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.responses import Response

from trilogue import __version__
from trilogue.broker.names import format_kafka
from trilogue.gateway.http.console.request import make_link
from trilogue.gateway.http.request_limits import HEADERS

if TYPE_CHECKING:
    from trilogue.gateway.http.console.request import ConsoleRequest

FOLDER: Final = Path(__file__).parent
LAST_MS: Final = 253_402_300_799_000  # 9999-12-31T23:59:59Z, the last time of datetime
DASH: Final = "\u2013"
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
PAGE_HEADERS: Final = {
    **HEADERS,
    "content-security-policy": POLICY,
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",  # without one the Origin of forms is null
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
MENU: Final = (
    ("/", "Overview", "o"),
    ("/topics", "Topics", "t"),
    ("/groups", "Groups", "g"),
    ("/subscriptions", "Subscriptions", "s"),
    ("/tubemq-groups", "TubeMQ groups", "q"),
    ("/connections", "Connections", "c"),
    ("/transactions", "Transactions", "x"),
    ("/users", "Users", "u"),
    ("/quotas", "Quotas", "k"),
)


class Page:
    """A page: the name of its template, what it shows, and its status."""

    __slots__ = ("status", "template", "values")

    def __init__(self, template: str, values: Mapping[str, Any], status: int = 200) -> None:
        self.template = template
        self.values = values
        self.status = status


class Redirect:
    """Where the browser goes after a change, with a GET."""

    __slots__ = ("address",)

    def __init__(self, address: str) -> None:
        self.address = address


class Renderer:
    """Makes responses of pages."""

    def __init__(self) -> None:
        environment = Environment(
            loader=FileSystemLoader(FOLDER / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        environment.filters.update(
            size=format_size, count=format_count, time=format_time, topic=format_kafka
        )
        environment.globals.update(link=make_link, menu=MENU, version=__version__)
        self._environment = environment

    def render(self, request: ConsoleRequest, page: Page) -> Response:
        """Return the response of a page."""
        path = request.http.url.path
        text = self._environment.get_template(page.template).render(
            page.values,
            principal=request.principal,
            token=request.token,
            has_access_control=request.services.has_access_control,
            path=path,
            query=request.http.url.query if request.http.method == "GET" else "",
            nodes=request.list_nodes(),
            link_at=request.link_at,
        )
        return Response(text, page.status, PAGE_HEADERS, "text/html; charset=utf-8")


def format_size(size: float) -> str:
    """Return a number of bytes for people: `1.5 MiB`."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(size) < 1024 or unit == "TiB":
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError


def format_count(number: float | None) -> str:
    """Return a number with spaces between thousands; a dash for none."""
    if number is None:
        return DASH
    whole = int(number)
    return f"{whole:,}".replace(",", "\u202f") if whole == number else f"{number:.3f}"


def format_time(time_ms: int | None) -> str:
    """Return a time in UTC: `2026-01-31 12:00:00.000`; a dash for none."""
    if time_ms is None or time_ms < 0:
        return DASH
    moment = datetime.fromtimestamp(min(time_ms, LAST_MS) / 1000, UTC)
    return moment.strftime("%Y-%m-%d %H:%M:%S.") + f"{moment.microsecond // 1000:03d}"
