"""The application of Pulsar's WebSocket API, for the paths below /ws.

Each WebSocket has a client of Pulsar's protocol of its own (http/node_clients.py), so permissions,
quotas and other nodes are as for any client of that protocol. A connection that is refused gets an
HTTP status and {"reason": ...} instead of 101.

A page may connect if it comes from this server or knows a token: a browser sends passwords and
certificates also for pages of others.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Protocol
from urllib.parse import urlsplit

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.types import ASGIApp
from starlette.websockets import WebSocket, WebSocketDisconnect
from uvicorn.protocols.utils import ClientDisconnected

from trilogue.client.errors import ClientError, InvalidOption, InvalidOptionType
from trilogue.client.pulsar.client import PulsarClient
from trilogue.gateway.http.escaped_paths import SLASH, keep_escaped_slashes
from trilogue.gateway.http.node_clients import NodeClients
from trilogue.gateway.http.request_limits import ENTRY_MEMORY, HEADERS, HttpError
from trilogue.gateway.http.websocket.consumer import open_consumer, open_reader
from trilogue.gateway.http.websocket.producer import open_producer
from trilogue.gateway.http.websocket.session import (
    CloseSocket,
    InvalidQuery,
    SocketQuery,
    status_of,
    topic_of,
)

log = logging.getLogger(__name__)

ROOT: Final = "/ws"
PLACE: Final = "{domain}/{tenant}/{namespace}/{topic}"
DOMAINS: Final = ("persistent", "non-persistent")


class Session(Protocol):
    """A WebSocket that was accepted."""

    async def run(self) -> None:
        """Serve until it ends; raises CloseSocket."""


OpenSession = Callable[
    [PulsarClient, str, Mapping[str, str], SocketQuery],
    Awaitable[Callable[[WebSocket], Session]],
]
PATHS: Final[Mapping[str, OpenSession]] = {
    f"/v2/producer/{PLACE}": open_producer,
    f"/v2/consumer/{PLACE}/{{subscription}}": open_consumer,
    f"/v2/reader/{PLACE}": open_reader,
}


def build_websocket_app(clients: NodeClients) -> ASGIApp:
    """Return the application."""

    async def no_upgrade(_request: Request) -> Response:
        return _make_reply(426, "a WebSocket is served at this path")

    async def no_socket(websocket: WebSocket) -> None:
        reason = f"{websocket.url.path}: there is nothing at this path"
        await websocket.send_denial_response(_make_reply(404, reason))

    async def nothing_here(request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 404
        return _make_reply(status, f"{request.url.path}: there is nothing at this path")

    routes = [WebSocketRoute(path, _endpoint(clients, open_)) for path, open_ in PATHS.items()]
    routes.append(WebSocketRoute("/{rest:path}", no_socket))
    pages = [Route(path, no_upgrade, methods=["GET"]) for path in PATHS]
    app = Starlette(
        routes=[Mount(ROOT, routes=[*routes, *pages])],
        exception_handlers={HTTPException: nothing_here},
    )
    return keep_escaped_slashes(app)


def _endpoint(
    clients: NodeClients, open_session: OpenSession
) -> Callable[[WebSocket], Awaitable[None]]:
    async def serve(websocket: WebSocket) -> None:
        try:
            check_page(websocket, requires_login=clients.requires_login)
            identity = clients.identify(websocket.scope)
            client = clients.make_pulsar(identity, websocket.scope["state"].get(ENTRY_MEMORY))
        except HttpError as problem:
            await websocket.send_denial_response(_make_reply(problem.status, str(problem)))
            return
        try:
            session = await _open(websocket, client, open_session)
            if session is not None:
                await _run(websocket, session)
        finally:
            await client.close()

    return serve


async def _open(
    websocket: WebSocket, client: PulsarClient, open_session: OpenSession
) -> Session | None:
    """Return the session of an accepted WebSocket; None where it was refused."""
    params = {name: text.replace(SLASH, "/") for name, text in websocket.path_params.items()}
    try:
        if params["domain"] not in DOMAINS:
            raise InvalidQuery(f"a topic is {' or '.join(DOMAINS)}")
        query = SocketQuery(websocket)
        make_session = await open_session(client, topic_of(params), params, query)
    except (InvalidQuery, InvalidOption, InvalidOptionType) as problem:
        refusal = _make_reply(400, f"Invalid query params: {problem}")
    except ClientError as problem:
        reason = f"Failed to create producer/consumer: {problem}"
        refusal = _make_reply(status_of(problem), reason)
    else:
        await websocket.accept()
        return make_session(websocket)
    await websocket.send_denial_response(refusal)
    return None


async def _run(websocket: WebSocket, session: Session) -> None:
    try:
        await session.run()
    except CloseSocket as order:
        log.warning("websocket.closed", extra={"listener": "http", "problem": order.reason})
        await websocket.close(order.code, order.reason)
    except (WebSocketDisconnect, ClientDisconnected):
        pass


def check_page(websocket: WebSocket, *, requires_login: bool) -> None:
    """Refuse the page of another server, unless it logged in by a token; HttpError 403."""
    headers = websocket.headers
    origin = headers.get("origin", "")
    has_token = requires_login and "authorization" not in headers
    if not origin or (has_token and "token" in websocket.query_params):
        return
    if urlsplit(origin).netloc.lower() != headers.get("host", "").lower():
        raise HttpError(403, "pages of other servers need a token in the query")


def _make_reply(status: int, reason: str) -> Response:
    content = msgspec.json.encode({"reason": reason})
    return Response(content, status, HEADERS, "application/json")
