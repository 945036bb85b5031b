"""The server of the HTTP and HTTPS listeners: uvicorn in the node's event loop, within its limits.

uvicorn bounds what is in flight and how long an answered connection may stay idle. It does not
bound connections that never finish their first line, nor their number, nor replies that no client
reads; `_Connection` does. A large reply is sent in pieces, and its memory is counted until the last
one was sent (gateway/memory_budget.py). Connections over TLS are accepted by tls_acceptor.py; the
certificate that a client showed is in `scope["state"]`. Signals, logging and lifespan belong to the
node.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Iterator

from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import Server

from trilogue.gateway.http.connection_limits import BACKLOG, HttpLimits
from trilogue.gateway.http.request_limits import CERTIFICATE, MEMORY
from trilogue.gateway.memory_budget import MemoryBudget, MemoryHolder

log = logging.getLogger(__name__)

HEAD_SIZE_LIMIT = 16 << 10
TICK_S = 1.0
PIECE_BYTES = 64 << 10  # of a reply


class HttpServer(Server):
    """Serves an application on the sockets that `serve` is given, until `stop`."""

    def __init__(self, app: ASGIApp, limits: HttpLimits, memory: MemoryBudget) -> None:
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

    def make_connection(self) -> asyncio.Protocol:
        """Return the protocol of a connection that was accepted elsewhere."""
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


class _Connection(H11Protocol):
    """One connection, closed when too many are open or when no request head arrives in time."""

    limits = HttpLimits()
    memory: MemoryBudget

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._app: ASGIApp = self.app
        self.app = self._run_counted
        self._deadline: asyncio.TimerHandle | None = None
        if len(self.connections) > self.limits.connections:
            log.warning("listener.full", extra={"listener": "http"})
            transport.abort()
            return
        self._expect_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        answered = getattr(self.cycle, "response_complete", True)  # no cycle before the first
        if answered:
            self._expect_head()
        else:
            self._cancel()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel()
        super().connection_lost(exc)

    async def _run_counted(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run a request, its reply sent in pieces and counted."""
        client = scope.get("client")
        memory = _ReplyMemory(self.memory, client[0] if client else "", self.transport)
        scope[MEMORY] = memory
        if scope["scheme"] == "https":
            scope["state"][CERTIFICATE] = self.transport.get_extra_info("peercert")

        async def send_piece(message: Message) -> None:
            try:
                async with asyncio.timeout(self.limits.piece_s):
                    await send(message)
            except TimeoutError:
                memory.evict()

        async def send_counted(message: Message) -> None:
            body = message.get("body", b"")
            if len(body) > PIECE_BYTES:
                memory.resize(len(body))
                memory.left_bytes = len(body)
                while memory.left_bytes > PIECE_BYTES and not self.transport.is_closing():
                    at = len(body) - memory.left_bytes
                    piece = body[at : at + PIECE_BYTES]
                    await send_piece({**message, "body": piece, "more_body": True})
                    memory.left_bytes -= PIECE_BYTES
                message = {**message, "body": body[len(body) - memory.left_bytes :]}
            await send_piece(message)

        try:
            await self._app(scope, receive, send_counted)
        finally:
            memory.budget.forget(memory)
            memory.resize(0)

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


def _config(app: ASGIApp, limits: HttpLimits, memory: MemoryBudget) -> Config:
    # uvicorn makes its connections without parameters of ours.
    connection = type("Connection", (_Connection,), {"limits": limits, "memory": memory})
    config = Config(
        app,
        http=connection,
        ws="none",
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
