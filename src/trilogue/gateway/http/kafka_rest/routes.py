"""The application of the REST proxy, for the paths below /kafka-rest.

Each request is served by a client of Kafka's protocol with the login of the request
(http/node_clients.py): permissions, quotas and other nodes are as for any client of that protocol.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp

from trilogue.client.errors import ClientError
from trilogue.gateway.http.escaped_paths import keep_escaped_slashes
from trilogue.gateway.http.kafka_rest import clusters as v3
from trilogue.gateway.http.kafka_rest import topics
from trilogue.gateway.http.kafka_rest.clients import RestClients
from trilogue.gateway.http.kafka_rest.consumers import Instances
from trilogue.gateway.http.kafka_rest.rest_request import (
    RestError,
    RestReply,
    RestRequest,
    RestRoute,
    error_of,
)
from trilogue.gateway.http.node_clients import NodeClients
from trilogue.gateway.http.request_limits import HEADERS, HttpError, check_origin, read_body

log = logging.getLogger(__name__)

ROOT: Final = "/kafka-rest"
MEDIA_TYPE: Final = "application/vnd.kafka.v2+json"
BODY_LEFT: Final = frozenset({408, 413})  # with these the body was not read to its end


def all_routes(clients: NodeClients | None = None) -> list[RestRoute]:
    """Return all routes; without `clients` they are for a list only."""
    return [*topics.routes(), *Instances(clients).routes(), *v3.routes()]


def build_kafka_rest_app(clients: NodeClients) -> ASGIApp:
    """Return the application."""

    async def nothing_here(request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 404
        return _error(status, f"HTTP {status}: {request.url.path}")

    shared = RestClients(clients)
    routes = [
        Route(each.path, _endpoint(shared, each), methods=[each.method])
        for each in all_routes(clients)
    ]
    app = Starlette(
        routes=[Mount(ROOT, routes=routes)], exception_handlers={HTTPException: nothing_here}
    )
    return keep_escaped_slashes(app)


def _endpoint(clients: RestClients, route: RestRoute) -> Callable[[Request], Awaitable[Response]]:
    async def answer(http: Request) -> Response:
        try:
            check_origin(http, changes=http.method != "GET")
            body = await read_body(http)
            identity = clients.node_clients.identify(http.scope)
            async with clients.use(identity) as client:
                result = await route.handler(RestRequest(http, body, client))
        except RestError as problem:
            return _error(problem.code, str(problem))
        except ClientError as problem:
            known = error_of(problem)
            return _error(known.code, str(known))
        except HttpError as problem:
            return _error(problem.status, str(problem))
        except ClientDisconnect:
            return Response(status_code=400)
        except Exception:
            log.exception("request.failed", extra={"listener": "http", "path": route.path})
            return _error(500, "a mistake of ours; the log has it")
        return _encode(result)

    return answer


def _encode(result: Any) -> Response:
    if result is None:
        return Response(status_code=204, headers=HEADERS)
    reply = result if isinstance(result, RestReply) else RestReply(result)
    media_type = reply.media_type or MEDIA_TYPE
    return Response(msgspec.json.encode(reply.content), reply.status, HEADERS, media_type)


def _error(code: int, message: str) -> Response:
    status = int(str(code)[:3])
    headers = {**HEADERS, "connection": "close"} if status in BODY_LEFT else HEADERS
    content = msgspec.json.encode({"error_code": code, "message": message})
    return Response(content, status, headers, MEDIA_TYPE)
