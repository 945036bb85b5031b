"""Pulsar's administration over HTTP: every path of it in one table, and the application behind.

The paths are those of /admin/v2 and /lookup/v2; topics and namespaces are served under the old
/admin/… with a cluster in the path as well. Each row names the thing it touches and the operation,
and the authorizer is asked before the handler runs. What has no row is 404 with a reason; the
methods that a path has not are 405.

    build_pulsar_app(door)     an ASGI application, to be mounted at the root of the HTTP door
"""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Awaitable, Callable
from dataclasses import replace
from urllib.parse import unquote

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from trilogue.broker.access import ANONYMOUS, Operation, ResourceKind
from trilogue.broker.errors import BrokerError
from trilogue.gateway.http import (
    pulsar_clusters,
    pulsar_lookup,
    pulsar_namespaces,
    pulsar_schemas,
    pulsar_subscriptions,
    pulsar_topics,
)
from trilogue.gateway.http.incoming import HEADERS, Problem, check_origin, read_body
from trilogue.gateway.http.pulsar_asked import (
    Asked,
    Reply,
    Row,
    encode,
    refusal,
    status_of,
)
from trilogue.gateway.pulsar.shared import Shared
from trilogue.log.errors import LogError
from trilogue.meta.errors import MetaError

log = logging.getLogger(__name__)

V1, V2, V3 = "/admin", "/admin/v2", "/admin/v3"
PLACE, OLD_PLACE = "{tenant}/{namespace}", "{tenant}/{cluster}/{namespace}"
ESCAPED_SLASH = re.compile("%2[fF]")
BODY_LEFT = frozenset({408, 413})  # of these a body was not read to its end


def no_transactions(asked: Asked) -> None:
    """Refuse: there are none."""
    del asked
    raise Problem(405, "transactions are not served")


def every_row() -> list[Row]:
    """THE TABLE."""
    cluster, describe = ResourceKind.CLUSTER, Operation.DESCRIBE
    return [
        *(
            Row(row.methods, V2 + row.path, row.handler, row.resource, row.operation)
            for row in pulsar_clusters.ROWS
        ),
        *pulsar_lookup.rows("/lookup/v2"),
        *pulsar_topics.rows(f"{V2}/persistent/{PLACE}/{{topic}}"),
        *pulsar_subscriptions.rows(f"{V2}/persistent/{PLACE}/{{topic}}"),
        *pulsar_schemas.rows(f"{V2}/schemas/{PLACE}/{{topic}}"),
        *pulsar_namespaces.rows(V2, PLACE),
        *pulsar_topics.rows_not_kept(f"{V2}/non-persistent/{PLACE}/{{topic}}"),
        Row("GET", f"{V2}/namespaces/{{tenant}}", pulsar_namespaces.namespaces,
            ResourceKind.NAMESPACE, describe),
        *pulsar_topics.rows(f"{V1}/persistent/{OLD_PLACE}/{{topic}}"),
        *pulsar_subscriptions.rows(f"{V1}/persistent/{OLD_PLACE}/{{topic}}"),
        *pulsar_namespaces.rows(V1, OLD_PLACE),
        Row("GET PUT POST DELETE", V3 + "/transactions/{rest:path}", no_transactions, cluster,
            describe),
    ]  # fmt: skip


def build_pulsar_app(door: Shared) -> ASGIApp:
    """Make the application; it has no state of its own."""
    app = _build(door)

    async def with_slashes(scope: Scope, receive: Receive, send: Send) -> None:
        """A part of a path may have a slash in it, as `%2F`: names of subscriptions do."""
        raw = scope.get("raw_path") or b""
        if b"%2f" in raw.lower() and b"%00" not in raw:
            path = ESCAPED_SLASH.sub("%00", raw.decode("ascii", "replace"))
            scope = {**scope, "path": unquote(path)}
        await app(scope, receive, send)

    return with_slashes


def _build(door: Shared) -> Starlette:

    async def nothing_here(request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 404
        reason = "there is nothing at this path" if status == 404 else "not by this method"
        return _response(refusal(status, f"{request.url.path}: {reason}"))

    return Starlette(
        routes=[
            Route(row.path, _endpoint(door, row), methods=row.methods.split())
            for row in every_row()
        ],
        exception_handlers={HTTPException: nothing_here},
    )


def _response(reply: Reply) -> Response:
    response = Response(reply.content, reply.status, HEADERS, reply.media_type)
    # As they are written: Java's client looks for `X-Pulsar-PROPERTY` in just these letters.
    response.raw_headers += [(k.encode(), v.encode()) for k, v in reply.headers.items()]
    return response


def _endpoint(door: Shared, row: Row) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        try:
            reply = await _answer(door, row, request)
        except Problem as problem:
            reply = refusal(problem.status, str(problem))
            if problem.status in BODY_LEFT:
                reply = replace(reply, headers={"Connection": "close"})
        except BrokerError as problem:
            reply = refusal(status_of(problem), str(problem))
        except (LogError, MetaError) as problem:
            reply = refusal(503, str(problem))
        except ClientDisconnect:
            reply = Reply(400)
        except Exception:
            log.exception("request.failed", extra={"door": "http", "path": row.path})
            reply = refusal(500, "a mistake of ours; the log has it")
        return _response(reply)

    return answer


async def _answer(door: Shared, row: Row, request: Request) -> Reply:
    check_origin(request, changes=request.method not in {"GET", "HEAD"})
    body = await read_body(request)
    asked = Asked(door, request, body, operation=row.operation, principal=ANONYMOUS)
    asked.check(row.resource, _named(asked, row.resource))
    answer = row.handler(asked)
    if inspect.isawaitable(answer):
        answer = await answer
    if request.method not in {"GET", "HEAD"}:
        log.info(
            "admin.done",
            extra={"method": request.method, "path": request.url.path, "by": asked.principal.name},
        )
    return encode(answer)


def _named(asked: Asked, kind: ResourceKind) -> object:
    """The name of the thing that the row says is touched, in our spelling."""
    if kind is ResourceKind.TOPIC:
        return asked.name.topic
    if kind is ResourceKind.NAMESPACE:
        if "namespace" in asked.params:
            return asked.namespace
        return asked.params["tenant"]
    return "cluster"
