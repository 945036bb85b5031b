"""The console's routes, and the application: pages for browsers on the HTTP listener.

    GET  /                            to /console/
    GET  /console/…                   pages; each is an address that can be shared
    GET  /console/live.json           the figures that charts follow
    POST /console/…                   a change, made by a form of a page (request.py)
    GET  /console/static/…            the style sheet and the script

login.py is around all of it, and each page checks its principal as the protocols do. A page shows a
bounded number of rows, so that its cost does not depend on how many topics there are.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from trilogue.broker import errors as broker_errors
from trilogue.broker.errors import BrokerError
from trilogue.gateway.http.console import (
    access_changes,
    groups,
    messages,
    node,
    quotas,
    subscriptions,
    topic_changes,
    topics,
    tubemq_groups,
)
from trilogue.gateway.http.console.rendering import FOLDER, PAGE_HEADERS, Page, Redirect, Renderer
from trilogue.gateway.http.console.request import (
    ROOT,
    ConsoleRequest,
    ConsoleServices,
    FormTokens,
)
from trilogue.gateway.http.request_limits import HEADERS, HttpError
from trilogue.log.errors import LogError, OffsetOutOfRange
from trilogue.meta.errors import MetaError

log = logging.getLogger(__name__)

Handler = Callable[[ConsoleRequest], Awaitable[Page | Redirect | dict[str, Any]]]
STATIC_TYPES: Final = {"console.css": "text/css", "console.js": "text/javascript"}
STATUS: Final[dict[type[Exception], int]] = {
    broker_errors.AccessDenied: 403,
    broker_errors.UnknownTopic: 404,
    broker_errors.UnknownGroup: 404,
    broker_errors.UnknownSubscription: 404,
    broker_errors.UnknownUser: 404,
    broker_errors.TopicExists: 409,
    broker_errors.InUse: 409,
    broker_errors.NotOwner: 421,
    broker_errors.NotServed: 501,
    broker_errors.UnknownMember: 409,
    broker_errors.GroupNotEmpty: 409,
    broker_errors.ConcurrentChange: 409,
    broker_errors.DiskFull: 503,
}
PAGES: Final[tuple[tuple[str, Handler], ...]] = (
    ("/", node.show_overview),
    ("/live.json", node.read_figures),
    ("/topics", topics.list_topics),
    ("/topic", topics.show_topic),
    ("/topic.json", topics.read_figures),
    ("/messages", messages.show_messages),
    ("/produce", messages.show_produce),
    ("/groups", groups.list_groups),
    ("/group", groups.show_group),
    ("/group.json", groups.read_figures),
    ("/subscriptions", subscriptions.list_subscriptions),
    ("/subscription", subscriptions.show_subscription),
    ("/subscription.json", subscriptions.read_figures),
    ("/tubemq-groups", tubemq_groups.list_groups),
    ("/tubemq-group", tubemq_groups.show_group),
    ("/tubemq-group.json", tubemq_groups.read_figures),
    ("/connections", node.list_connections),
    ("/transactions", node.list_transactions),
    ("/users", access_changes.list_users),
    ("/quotas", quotas.list_quotas),
)
CHANGES: Final[tuple[tuple[str, Handler], ...]] = (
    ("/topic/create", topic_changes.create_topic),
    ("/topic/delete", topic_changes.delete_topic),
    ("/topic/partitions", topic_changes.grow_topic),
    ("/topic/setting", topic_changes.alter_topic),
    ("/user/create", access_changes.create_user),
    ("/user/password", access_changes.set_password),
    ("/user/delete", access_changes.delete_user),
    ("/acl/add", access_changes.add_acl),
    ("/acl/remove", access_changes.remove_acl),
    ("/quota/set", quotas.set_quota),
    ("/quota/remove", quotas.remove_quota),
    ("/produce", messages.produce_message),
    ("/group/reset", groups.reset_group),
    ("/subscription/reset", subscriptions.reset_subscription),
    ("/tubemq-group/reset", tubemq_groups.reset_group),
)


def build_console_app(services: ConsoleServices) -> ASGIApp:
    """Return the application, for `/` and the paths below `ROOT`."""
    renderer, tokens = Renderer(), FormTokens()

    def endpoint(handler: Handler, *, changes: bool) -> Callable[[Request], Awaitable[Response]]:
        async def answer(http: Request) -> Response:
            request = ConsoleRequest(services, http, tokens)
            try:
                if changes:
                    await request.read_form()
                return respond(request, await handler(request))
            except ClientDisconnect:
                return Response(status_code=400)
            except Exception as problem:  # noqa: BLE001 - each becomes a page
                return _render_error(renderer, request, problem)

        return answer

    def respond(request: ConsoleRequest, result: Page | Redirect | dict[str, Any]) -> Response:
        if isinstance(result, Redirect):
            return RedirectResponse(result.address, 303, PAGE_HEADERS)
        if isinstance(result, Page):
            return renderer.render(request, result)
        return JSONResponse(result, headers=HEADERS)

    async def not_found(http: Request, problem: Exception) -> Response:
        status = problem.status_code if isinstance(problem, HTTPException) else 404
        reason = "there is no such page" if status == 404 else "not by this method"
        request = ConsoleRequest(services, http, tokens)
        return _render_error(renderer, request, HttpError(status, reason))

    return Starlette(
        routes=[
            Route("/", _redirect, methods=["GET"]),
            Route(ROOT, _redirect, methods=["GET"]),
            *(Route(ROOT + path, endpoint(page, changes=False)) for path, page in PAGES),
            *(
                Route(ROOT + path, endpoint(change, changes=True), methods=["POST"])
                for path, change in CHANGES
            ),
            Route(ROOT + "/static/{name}", _send_static),
        ],
        exception_handlers={HTTPException: not_found},
    )


async def _redirect(_http: Request) -> Response:
    return RedirectResponse(f"{ROOT}/", 307, PAGE_HEADERS)


async def _send_static(http: Request) -> Response:
    name = http.path_params["name"]
    media_type = STATIC_TYPES.get(name)
    if media_type is None:
        raise HTTPException(404)
    content = (FOLDER / "static" / name).read_bytes()
    return Response(content, 200, {**PAGE_HEADERS, "cache-control": "no-cache"}, media_type)


def _find_owner_address(request: ConsoleRequest, problem: Exception) -> str:
    """Return the address of the same page at the node that serves what it shows, or ""."""
    if not isinstance(problem, broker_errors.NotOwner):
        return ""
    node = request.find_node(problem.node_id)
    url = request.http.url
    return "" if node is None else f"{node.address}{url.path}?{url.query}"


def _render_error(renderer: Renderer, request: ConsoleRequest, problem: Exception) -> Response:
    """Return the page of an error; one that nothing here expects is logged."""
    if isinstance(problem, HttpError):
        status = problem.status
    elif isinstance(problem, OffsetOutOfRange):
        status = 404
    elif isinstance(problem, BrokerError):
        status = next((STATUS[kind] for kind in type(problem).__mro__ if kind in STATUS), 400)
    elif isinstance(problem, LogError | MetaError | OSError):
        status = 503
    else:
        path = request.http.url.path
        log.error("request.failed", extra={"listener": "http", "path": path}, exc_info=problem)
        status = 500
    reason = "a mistake of ours; the log has it" if status == 500 else str(problem)
    elsewhere = _find_owner_address(request, problem)
    values = {"reason": reason, "elsewhere": elsewhere}
    response = renderer.render(request, Page("error.html", values, status))
    if status in {408, 413}:
        response.headers["connection"] = "close"
    return response
