"""The HTTP and HTTPS listeners: their sockets, and a server that the first connection loads.

    bind ── serve ──first connection──► modules and application, in a thread ──► HttpServer
              └── only the sockets are watched

uvicorn, Starlette and the applications take as long to import as half of the rest of a node, and
many nodes are never sent an HTTP request. The first connection waits in the backlog meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from trilogue.gateway.http.connection_limits import BACKLOG, HttpLimits
from trilogue.gateway.memory_budget import ConnectionMemory
from trilogue.gateway.socket_acceptor import ConnectionTasks, SocketAcceptor
from trilogue.gateway.telemetry.request_latency import RequestLatencies
from trilogue.gateway.tls import HANDSHAKE_S, TlsContexts, log_failed_handshake

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from trilogue.gateway.http.server import HttpServer

log = logging.getLogger(__name__)


class HttpListener:
    """The sockets of the HTTP and HTTPS listeners and their application.

    `make_app` returns the application; it is called once, in a thread.
    """

    def __init__(
        self,
        make_app: Callable[[], ASGIApp],
        limits: HttpLimits,
        memory: ConnectionMemory | None = None,
    ) -> None:
        self.latencies = RequestLatencies()
        self._make_app = make_app
        self._limits = limits
        self._memory = memory or ConnectionMemory()
        self._sockets: list[socket.socket] = []
        self._tls_sockets: dict[socket.socket, TlsContexts] = {}
        self._acceptors: list[SocketAcceptor] = []
        self._building = ConnectionTasks(self._connect)
        self._handshakes: list[ConnectionTasks] = []
        self._server: HttpServer | None = None
        self._starting: asyncio.Task[None] | None = None
        self._running: asyncio.Task[None] | None = None

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return 0 if self._server is None else len(self._server.server_state.connections)

    @property
    def requests(self) -> int:
        """The number of answered requests."""
        return 0 if self._server is None else self._server.server_state.total_requests

    def bind(self, host: str, port: int, tls: TlsContexts | None = None) -> tuple[str, int]:
        """Bind an address (port 0: any free port) and return it; raises OSError."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = socket.socket(family, socket.SOCK_STREAM)
        try:
            listening.setblocking(False)
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family is socket.AF_INET6:
                listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listening.bind((host, port))
            listening.listen(BACKLOG)
        except OSError:
            listening.close()
            raise
        if tls is None:
            self._sockets.append(listening)
        else:
            self._tls_sockets[listening] = tls
        bound = listening.getsockname()
        return str(bound[0]), int(bound[1])

    def serve(self) -> None:
        """Start to serve the bound sockets."""
        loop = asyncio.get_running_loop()
        for name, listening in self._listening():
            loop.add_reader(listening, self._load_server)
            host, port = listening.getsockname()[:2]
            log.info("listener.opened", extra={"listener": name, "host": host, "port": port})

    async def close(self) -> None:
        """Finish the requests in flight and close everything."""
        if self._starting is None:
            self._stop_watching()
        else:
            await self._starting
        for acceptor in self._acceptors:
            acceptor.close()
        for handshakes in self._handshakes:
            handshakes.cancel()
        # What is not cancelled is complete in an iteration or two.
        for tasks in (self._building, *self._handshakes):
            await tasks.wait()
        if self._server is not None and self._running is not None:
            self._server.stop()
            await self._running
        for _, listening in self._listening():
            listening.close()

    def _listening(self) -> Iterator[tuple[str, socket.socket]]:
        """Iterate over the sockets and the names of their listeners."""
        yield from (("http", listening) for listening in self._sockets)
        yield from (("https", listening) for listening in self._tls_sockets)

    def _stop_watching(self) -> None:
        loop = asyncio.get_running_loop()
        for _, listening in self._listening():
            loop.remove_reader(listening)

    def _load_server(self) -> None:
        """Load the server for the first connection, which waits in the backlog."""
        self._stop_watching()
        self._starting = asyncio.create_task(self._start_server())

    async def _start_server(self) -> None:
        try:
            self._server = server = await asyncio.to_thread(self._make_server)
        except Exception:  # an incomplete installation
            log.exception("listener.failed", extra={"listener": "http"})
            for _, listening in self._listening():
                listening.close()
            return
        self._running = asyncio.create_task(server.serve([]))
        await server.is_ready.wait()
        for listening in self._sockets:
            self._acceptors.append(SocketAcceptor("http", listening, self._building.begin))
        for listening, tls in self._tls_sockets.items():
            handshakes = ConnectionTasks(partial(self._shake_hands, tls))
            self._handshakes.append(handshakes)
            self._acceptors.append(SocketAcceptor("https", listening, handshakes.begin))

    async def _connect(self, accepted: socket.socket, _address: str) -> None:
        assert self._server is not None
        make_connection = self._server.make_connection
        await asyncio.get_running_loop().connect_accepted_socket(make_connection, accepted)

    async def _shake_hands(self, tls: TlsContexts, accepted: socket.socket, address: str) -> None:
        assert self._server is not None
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(HANDSHAKE_S):
                await tls.connect(loop, self._server.make_connection, accepted, address)
        except OSError as problem:
            accepted.close()
            log_failed_handshake("https", address, problem)

    def _make_server(self) -> HttpServer:
        from trilogue.gateway.http.request_timing import TimedApp
        from trilogue.gateway.http.server import HttpServer

        app = TimedApp(self._make_app(), self.latencies)
        return HttpServer(app, self._limits, self._memory)
