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
from collections.abc import Callable, Iterator

import h11
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.config import Config
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import Server

from trilogue.gateway.http.connection_limits import BACKLOG, HttpLimits
from trilogue.gateway.http.peer_memory import PeerMemory
from trilogue.gateway.http.received_pieces import PIECE_BYTES, ReceivedPieces
from trilogue.gateway.http.request_limits import BODY_MEMORY, CERTIFICATE, MEMORY
from trilogue.gateway.http.request_starts import RequestStarts
from trilogue.gateway.http.websocket_connection import (
    PING_S,
    PONG_S,
    WebSocketConnection,
    WebSockets,
)
from trilogue.gateway.memory_budget import ConnectionMemory
from trilogue.gateway.steps import next_step

log = logging.getLogger(__name__)

HEAD_SIZE_LIMIT = 16 << 10
TICK_S = 1.0
CANCEL_S = 1.0
REPLY_PIECE_BYTES = 64 << 10
PLAIN_PIECE_BYTES = 1 << 20  # of a body that is not in chunks
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


class _Connection(H11Protocol):
    """One connection, closed when too many are open or when no request head arrives in time."""

    limits = HttpLimits()
    memory: ConnectionMemory
    by_address: Counter[str]
    websockets: WebSockets
    starts: RequestStarts

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
        self._pieces = ReceivedPieces(
            transport,
            self.memory,
            self._parse,
            address=self.address,
            is_paused=lambda: self.flow.read_paused,
            is_unread=lambda: self.flow.write_paused,
            is_ready=self._may_parse,
            piece_bytes=self._piece_bytes,
        )
        self.flow = _ReadFlow(transport, self._go_on)
        self.by_address[self.address] += 1
        is_full = len(self.connections) - self.websockets.count > self.limits.connections
        if is_full or self.by_address[self.address] > self.limits.connections_per_address:
            reason = "listener.full" if is_full else "listener.address_full"
            log.warning(reason, extra={"listener": "http", "address": self.address})
            transport.abort()
            return
        self._expect_head()

    def data_received(self, data: bytes) -> None:
        self._pieces.add(data)

    def _piece_bytes(self) -> int:
        """Return how much is parsed at once: of a body with a length, all of it is one step."""
        is_body = self.conn.their_state is h11.SEND_BODY
        if is_body and any(name == b"content-length" for name, _ in self.headers):
            return PLAIN_PIECE_BYTES
        return PIECE_BYTES

    def on_response_complete(self) -> None:
        """Take the next request."""
        super().on_response_complete()
        self._go_on()

    def _may_parse(self) -> bool:
        """Whether h11 would not just keep it: the next request waits for the response to this."""
        return self.conn.their_state is not h11.DONE and not self.flow.read_paused

    def _go_on(self) -> None:
        """Parse what was received meanwhile, once uvicorn has done what it does now."""
        if self._pieces.keep_held():
            self.loop.call_soon(self._pieces.parse_on)

    def _parse(self, data: bytes) -> None:
        super().data_received(data)
        if self._is_upgraded:
            return
        self._pieces.keep_held()  # uvicorn resumes reading after the body of an early response
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
        self._pieces.close()
        self.by_address[self.address] -= 1
        if not self.by_address[self.address]:
            del self.by_address[self.address]
        self.memory.closed.add(self)

    async def _run_counted(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run a request, its body and its reply counted, and the reply sent in pieces."""
        if scope["scheme"] == "https":
            scope["state"][CERTIFICATE] = self.transport.get_extra_info("peercert")
        await self.starts.wait()
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


class _ReadFlow(FlowControl):
    """Resumes reading, and calls a function then."""

    def __init__(self, transport: asyncio.Transport, on_resume: Callable[[], None]) -> None:
        super().__init__(transport)
        self._on_resume = on_resume

    def resume_reading(self) -> None:
        if self.read_paused:
            super().resume_reading()
            self._on_resume()


class _CountedRequest:
    """What a request holds of the node's memory: its body, then its reply."""

    def __init__(self, connection: _Connection, scope: Scope, receive: Receive, send: Send) -> None:
        memory, address = connection.memory, connection.address
        self._transport = connection.transport
        self._piece_s = connection.limits.piece_s
        self._reply = PeerMemory(memory.unsent, address, self._transport, "connection.unread")
        self._body = PeerMemory(
            memory.received, address, self._transport, "connection.stalled_body"
        )
        self._body.steps = 0  # pieces received; None: the body is whole
        # Replies to other methods are small, and may take long.
        self._has_large_reply = scope["method"] == "GET"
        self._receive, self._send = receive, send
        scope[MEMORY], scope[BODY_MEMORY] = self._reply, self._body

    def release(self) -> None:
        """Hold nothing: the request is answered."""
        self._reply.release()
        self._body.release()

    async def receive(self) -> Message:
        """Return a piece of the body; after the last one there is memory for the reply."""
        message = await self._receive()
        if message.get("more_body", False):
            self._body.steps = (self._body.steps or 0) + 1
        elif self._body.steps is not None:
            self._body.steps = None
            if self._has_large_reply:
                await self._reply.budget.reserve(self._reply, REPLY_BYTES)
                await next_step()  # of all that have their memory, one makes its reply at a time
        return message

    async def send(self, message: Message) -> None:
        """Send a part of the reply in pieces."""
        body = message.get("body", b"")
        self._reply.resize(len(body))
        left_bytes = len(body)
        while left_bytes > REPLY_PIECE_BYTES and not self._transport.is_closing():
            self._reply.steps = left_bytes
            at = len(body) - left_bytes
            piece = body[at : at + REPLY_PIECE_BYTES]
            await self._send_piece({**message, "body": piece, "more_body": True})
            left_bytes -= REPLY_PIECE_BYTES
        if len(body) > REPLY_PIECE_BYTES:
            message = {**message, "body": body[len(body) - left_bytes :]}
        self._reply.steps = left_bytes or None
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
        "starts": RequestStarts(),
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
