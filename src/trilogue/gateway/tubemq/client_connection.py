"""A connection as handlers see it: held responses, and reads of messages that wait for the peer.

`TubeConnection` (connection.py) derives from this and adds what takes requests.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

from trilogue.broker.access.authorizer import Principal
from trilogue.broker.access.client_access import ClientAccess
from trilogue.gateway.connection import InFlightLimits, MultiplexedConnection
from trilogue.gateway.tubemq.auth.authentication import AdmittedClients
from trilogue.gateway.tubemq.gateway_context import TubeGatewayContext

CLIENTS_MAX = 1_000  # principals of one connection whose decisions are cached
READS_MAX = 8  # in parallel for one connection: each may be as large as the largest message


class HeldResponse(Protocol):
    """A response that is delayed until there is something to send (a get at the end of data)."""

    def end_early(self) -> None:
        """Send the response now: the server drains."""

    def connection_closed(self) -> None:
        """Release everything: there is no peer any more."""


class ClientConnection(MultiplexedConnection, AdmittedClients):
    """One TCP connection; several clients of a process may share it."""

    gateway: TubeGatewayContext

    def __init__(self, gateway: TubeGatewayContext, bounds: InFlightLimits) -> None:
        super().__init__(gateway, bounds)
        AdmittedClients.__init__(self)
        self.is_tls = False  # it came by a listener with TLS
        self.held: dict[object, HeldResponse] = {}  # by the request that is answered
        self._accesses: dict[Principal, ClientAccess] = {}
        self._reads = 0
        self.waiting_reads: deque[asyncio.Future[None]] = deque()

    @property
    def host(self) -> str:
        """The address of the peer."""
        return self.access.host

    def end_session(self, reason: str) -> None:
        """Close: a user that a client of this connection logged in as was changed or deleted."""
        if not self.is_gone:
            self.stream.abort("connection.session_ended", cause=reason)

    def access_of(self, principal: Principal) -> ClientAccess:
        """Return what one of the clients of this connection may do."""
        access = self._accesses.get(principal)
        if access is None:
            if len(self._accesses) >= CLIENTS_MAX:
                self._accesses.clear()
            access = self.gateway.make_access(self.access.host, principal)
            self._accesses[principal] = access
        return access

    @asynccontextmanager
    async def read_slot(self) -> AsyncIterator[None]:
        """Wait until the peer reads and few reads run for it: it may have thousands of gets.

        Returns when the connection is closed, too.
        """
        while not self.is_gone and (self.write_paused or self._reads >= READS_MAX):
            waiter = self.gateway.loop.create_future()
            self.waiting_reads.append(waiter)
            await waiter
        self._reads += 1
        try:
            yield
        finally:
            self._reads -= 1
            self._wake_read()

    def resume_sending(self) -> None:
        """Wake reads that wait for the peer."""
        for _ in range(READS_MAX - self._reads):
            self._wake_read()

    def closed(self) -> None:
        """Wake all waiting reads; the connection is gone."""
        super().closed()
        self.gateway.authentication.close_peer(self)
        while self.waiting_reads:
            self._wake_read()

    def _wake_read(self) -> None:
        while self.waiting_reads:
            waiter = self.waiting_reads.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
