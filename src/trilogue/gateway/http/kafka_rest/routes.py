"""The application of the REST proxy, for the paths below /kafka-rest.

Each request is served by a client of Kafka's protocol with the login of the request
(http/node_clients.py): permissions, quotas and other nodes are as for any client of that protocol.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from trilogue.client.errors import ClientError
from trilogue.gateway.dependencies import ProtocolGateway
from trilogue.gateway.http.escaped_paths import ignore_last_slash, keep_escaped_slashes
from trilogue.gateway.http.kafka_rest import acls, clusters, configs, groups, records, topics
from trilogue.gateway.http.kafka_rest.clients import CLIENT_ID, RestClient
from trilogue.gateway.http.kafka_rest.consumers import Instances
from trilogue.gateway.http.kafka_rest.rest_errors import RestError, error_of
from trilogue.gateway.http.kafka_rest.rest_request import (
    RestReply,
    RestRequest,
    RestRoute,
    RestStream,
)
from trilogue.gateway.http.kafka_rest.schema_lookup import SchemaLookup, SchemaStore
from trilogue.gateway.http.node_clients import ClientIdentity, NodeClients
from trilogue.gateway.http.request_limits import HEADERS, HttpError, check_origin, read_body
from trilogue.gateway.http.shared_clients import SharedClients

log = logging.getLogger(__name__)

ROOT: Final = "/kafka-rest"
MEDIA_TYPE: Final = "application/vnd.kafka.v2+json"
BODY_LEFT: Final = frozenset({408, 413})  # with these the body was not read to its end


def all_routes(clients: NodeClients | None = None) -> list[RestRoute]:
    """Return all routes; without `clients` they are for a list only."""
    return [
        *topics.routes(),
        *Instances(clients).routes(),
        *configs.routes(),  # before those of a topic: "-" is none
        *clusters.routes(),
        *groups.routes(),
        *acls.routes(),
        *records.routes(),
    ]


def build_kafka_rest_app(clients: NodeClients, gateway: ProtocolGateway) -> ASGIApp:
    """Return the application."""

    async def nothing_here(request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 404
        return _error(status, f"HTTP {status}: {request.url.path}")

    def make(identity: ClientIdentity) -> RestClient:
        return RestClient(clients.make_kafka(identity, CLIENT_ID))

    shared, store = SharedClients(clients, make), SchemaStore(gateway)
    routes = [
        Route(each.path, _endpoint(shared, store, each), methods=[each.method])
        for each in all_routes(clients)
    ]
    app = Starlette(
        routes=[Mount(ROOT, routes=routes)], exception_handlers={HTTPException: nothing_here}
    )
    return ignore_last_slash(keep_escaped_slashes(app), ROOT)


def _endpoint(
    clients: SharedClients[RestClient], store: SchemaStore, route: RestRoute
) -> Callable[[Request], Awaitable[Response]]:
    async def answer(http: Request) -> Response:
        async with contextlib.AsyncExitStack() as stack:
            try:
                check_origin(http, changes=http.method != "GET")
                body = b"" if route.streams else await read_body(http)
                client = await stack.enter_async_context(clients.use(http.scope))
                lookup = SchemaLookup(store, http)
                result = await route.handler(RestRequest(http, body, client, lookup))
            except HttpError as problem:
                return _error(problem.status, str(problem))
            except (RestError, ClientError) as problem:
                known = problem if isinstance(problem, RestError) else error_of(problem)
                return _error(known.code, str(known))
            except ClientDisconnect:
                return Response(status_code=400)
            except Exception:
                log.exception("request.failed", extra={"listener": "http", "path": route.path})
                return _error(500, "a mistake of ours; the log has it")
            if isinstance(result, RestStream):
                return _StreamedReply(result, stack.pop_all(), route.path)
            return _encode(result)

    return answer


class _StreamedReply(Response):
    """Lines that are sent as they come; the client inside is released after the last one.

    Starlette's streams would read the body of the request to find its end.
    """

    def __init__(self, stream: RestStream, stack: contextlib.AsyncExitStack, path: str) -> None:
        super().__init__(None, 200, HEADERS, stream.media_type)
        del self.headers["content-length"]
        self._lines = stream.lines
        self._stack = stack
        self._path = path

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        """Send the lines."""
        begin = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        async with self._stack, contextlib.aclosing(self._lines) as lines:
            await send(begin)
            try:
                async for line in lines:
                    await send({"type": "http.response.body", "body": line, "more_body": True})
            except ClientDisconnect:
                return
            except Exception:
                log.exception("request.failed", extra={"listener": "http", "path": self._path})
                return  # without the end of the reply, which the client sees
            await send({"type": "http.response.body", "body": b"", "more_body": False})


def _encode(result: Any) -> Response:
    if result is None:
        return Response(status_code=204, headers=HEADERS)
    reply = result if isinstance(result, RestReply) else RestReply(result)
    media_type = reply.media_type or MEDIA_TYPE
    headers = {**HEADERS, **dict(reply.headers)}
    content = b"" if reply.content is None else msgspec.json.encode(reply.content)
    return Response(content, reply.status, headers, media_type)


def _error(code: int, message: str) -> Response:
    status = int(str(code)[:3])
    headers = {**HEADERS, "connection": "close"} if status in BODY_LEFT else HEADERS
    content = msgspec.json.encode({"error_code": code, "message": message})
    return Response(content, status, headers, MEDIA_TYPE)
