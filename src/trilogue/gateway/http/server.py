"""The server of the HTTP and HTTPS listeners: uvicorn in the node's event loop, within its limits.

uvicorn bounds what is in flight and how long an answered connection may stay idle. It does not
bound connections that never finish their first line, nor their number, nor replies that no client
reads; `_Connection` does. A large reply is sent in pieces, and its memory is counted until the last
one was sent (gateway/memory_budget.py). Connections are accepted by the listener; the certificate
that a client showed is in `scope["state"]`. Signals, logging and lifespan belong to the node.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections import Counter
from collections.abc import Iterator

import h11
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import Server

from trilogue.gateway.http.connection_limits import BACKLOG, HttpLimits
from trilogue.gateway.http.request_limits import BODY_MEMORY, CERTIFICATE, MEMORY
from trilogue.gateway.http.websocket_connection import (
    PING_S,
    PONG_S,
    WebSocketConnection,
    WebSockets,
)
from trilogue.gateway.memory_budget import ConnectionMemory, MemoryBudget, MemoryHolder
from trilogue.gateway.steps import next_step

log = logging.getLogger(__name__)

HEAD_SIZE_LIMIT = 16 << 10
TICK_S = 1.0
CANCEL_S = 1.0
PIECE_BYTES = 64 << 10  # of a reply
REPLY_BYTES = 4 << 20  # counted for a reply before its size is known


class HttpServer(Server):
    """Serves an application on connections that `make_connection` returns, until `stop`."""

    def __init__(self, app: ASGIApp, limits: HttpLimits, memory: ConnectionMemory) -> None:
        super().__init__(_config(app, limits, memory))
        self.is_ready = asyncio.Event()
        self._stopped = asyncio.Event()

    def stop(self) -> None:
        """Accept nothing more; `serve` returns when the requests in flight are answered."""
        self.should_exit = True
        self._stopped.set()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept, and set `is_ready`."""
        await super().startup(sockets)
        self.is_ready.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer what is in flight within a second, then close every connection."""
        await super().shutdown(sockets)
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        if self.server_state.tasks:  # cancelled
            await asyncio.wait(self.server_state.tasks, timeout=CANCEL_S)
        await asyncio.sleep(0)  # the transports close in the next iteration

    def make_connection(self) -> asyncio.Protocol:
        """Return the protocol of an accepted connection."""
        protocol: type[_Connection] = self.config.http_protocol_class  # type: ignore[assignment]
        return protocol(self.config, self.server_state, self.lifespan.state)

    async def main_loop(self) -> None:
        """Tick once a second (for the date header) instead of ten times: idle costs nothing."""
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TICK_S):
                    await self._stopped.wait()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals to the node."""
        yield


class _ReplyMemory(MemoryHolder):
    """The reply of one request: what a handler reserves for it, then what is left to send."""

    __slots__ = ("_transport", "left_bytes")

    def __init__(self, budget: MemoryBudget, address: str, transport: asyncio.Transport) -> None:
        super().__init__(budget, address)
        self.left_bytes = 0
        self._transport = transport

    def progress(self) -> int | None:
        """What is left to send."""
        return self.left_bytes or None

    def evict(self) -> None:
        """Close: the client does not read, and others wait for the memory."""
        log.warning(
            "connection.unread",
            extra={"listener": "http", "address": self.address, "unsent_bytes": self.size_bytes},
        )
        self._transport.abort()


class _BodyMemory(MemoryHolder):
    """The body of one request, as far as it was received."""

    __slots__ = ("_transport", "pieces")

    def __init__(self, budget: MemoryBudget, address: str, transport: asyncio.Transport) -> None:
        super().__init__(budget, address)
        self.pieces: int | None = 0  # received; None: the body is whole
        self._transport = transport

    def progress(self) -> int | None:
        """How many pieces came, while more are to come."""
        return self.pieces

    def evict(self) -> None:
        """Close: the rest of the body does not come, and others wait for the memory."""
        log.warning(
            "connection.stalled_body",
            extra={"listener": "http", "address": self.address, "received_bytes": self.size_bytes},
        )
        self._transport.abort()


class _Connection(H11Protocol):
    """One connection, closed when too many are open or when no request head arrives in time."""

    limits = HttpLimits()
    memory: ConnectionMemory
    by_address: Counter[str]
    websockets: WebSockets

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        raw = transport.get_extra_info("socket")
        if raw is not None:  # a reply is written as head and body: without Nagle's delay of 40 ms
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._app: ASGIApp = self.app
        self.app = self._run_counted
        self._deadline: asyncio.TimerHandle | None = None
        self._is_upgraded = False
        self.address = str(self.client[0]) if self.client else ""
        self.by_address[self.address] += 1
        is_full = len(self.connections) - self.websockets.count > self.limits.connections
        if is_full or self.by_address[self.address] > self.limits.connections_per_address:
            reason = "listener.full" if is_full else "listener.address_full"
            log.warning(reason, extra={"listener": "http", "address": self.address})
            transport.abort()
            return
        self._expect_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._is_upgraded:
            return
        answered = getattr(self.cycle, "response_complete", True)  # no cycle before the first
        if answered:
            self._expect_head()
        else:
            self._cancel()

    def connection_lost(self, exc: Exception | None) -> None:
        self._release()
        super().connection_lost(exc)

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """Leave the transport to a `WebSocketConnection`, which counts it from now on."""
        self._is_upgraded = True
        self._release()
        super().handle_websocket_upgrade(event)

    def _release(self) -> None:
        self._cancel()
        self.by_address[self.address] -= 1
        if not self.by_address[self.address]:
            del self.by_address[self.address]
        self.memory.closed.add(self)

    async def _run_counted(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run a request, its body and its reply counted, and the reply sent in pieces."""
        if scope["scheme"] == "https":
            scope["state"][CERTIFICATE] = self.transport.get_extra_info("peercert")
        request = _CountedRequest(self, scope, receive, send)
        try:
            await self._app(scope, request.receive, request.send)
        finally:
            request.release()

    def _expect_head(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(self.limits.head_s, self._too_late)

    def _cancel(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_late(self) -> None:
        log.warning("connection.incomplete_head", extra={"listener": "http"})
        self.transport.abort()


class _CountedRequest:
    """What a request holds of the node's memory: its body, then its reply."""

    def __init__(self, connection: _Connection, scope: Scope, receive: Receive, send: Send) -> None:
        memory, address = connection.memory, connection.address
        self._transport = connection.transport
        self._piece_s = connection.limits.piece_s
        self._reply = _ReplyMemory(memory.unsent, address, self._transport)
        self._body = _BodyMemory(memory.received, address, self._transport)
        # Replies to other methods are small, and may take long.
        self._has_large_reply = scope["method"] == "GET"
        self._receive, self._send = receive, send
        scope[MEMORY], scope[BODY_MEMORY] = self._reply, self._body

    def release(self) -> None:
        """Hold nothing: the request is answered."""
        for memory in (self._reply, self._body):
            memory.budget.forget(memory)
            memory.resize(0)

    async def receive(self) -> Message:
        """Return a piece of the body; after the last one there is memory for the reply."""
        message = await self._receive()
        if message.get("more_body", False):
            self._body.pieces = (self._body.pieces or 0) + 1
        elif self._body.pieces is not None:
            self._body.pieces = None
            if self._has_large_reply:
                await self._reply.budget.reserve(self._reply, REPLY_BYTES)
                await next_step()  # of all that have their memory, one makes its reply at a time
        return message

    async def send(self, message: Message) -> None:
        """Send a part of the reply in pieces."""
        body, memory = message.get("body", b""), self._reply
        memory.resize(len(body))
        memory.left_bytes = len(body)
        while memory.left_bytes > PIECE_BYTES and not self._transport.is_closing():
            at = len(body) - memory.left_bytes
            piece = body[at : at + PIECE_BYTES]
            await self._send_piece({**message, "body": piece, "more_body": True})
            memory.left_bytes -= PIECE_BYTES
        if len(body) > PIECE_BYTES:
            message = {**message, "body": body[len(body) - memory.left_bytes :]}
        await self._send_piece(message)

    async def _send_piece(self, message: Message) -> None:
        try:
            async with asyncio.timeout(self._piece_s):
                await self._send(message)
        except TimeoutError:
            self._reply.evict()


def _config(app: ASGIApp, limits: HttpLimits, memory: ConnectionMemory) -> Config:
    # uvicorn makes its connections without parameters of ours.
    websockets = WebSockets(limits, memory)
    own = {
        "limits": limits,
        "memory": memory,
        "by_address": Counter[str](),
        "websockets": websockets,
    }
    connection = type("Connection", (_Connection,), own)
    config = Config(
        app,
        http=connection,
        ws=type("WebSocketConnection", (WebSocketConnection,), {"websockets": websockets}),
        ws_max_size=limits.websocket_message_bytes,
        ws_ping_interval=PING_S,
        ws_ping_timeout=PONG_S,
        ws_per_message_deflate=False,  # a short message could become a long one
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        backlog=BACKLOG,
        timeout_keep_alive=limits.keep_alive_s,
        timeout_graceful_shutdown=1,
        h11_max_incomplete_event_size=HEAD_SIZE_LIMIT,
    )
    config.load()  # here, in a thread: it imports
    return config
