"""Clients of the node's own protocols that requests share: one for each login and address."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from typing import Final, Generic, Protocol, TypeVar

from starlette.types import Scope

from trilogue.gateway.http.node_clients import ClientIdentity, NodeClients
from trilogue.gateway.http.request_limits import HttpError

CLIENTS_MAX: Final = 100
IDLE_S: Final = 60.0  # after which a client that no request uses is closed
SWEEP_S: Final = 10.0


class ClosableClient(Protocol):
    """What is shared."""

    async def close(self) -> None:
        """Close its connections."""


C = TypeVar("C", bound=ClosableClient)


class SharedClient(Generic[C]):
    """The client of one login, and how many requests use it."""

    __slots__ = ("client", "used_s", "uses")

    def __init__(self, client: C) -> None:
        self.client = client
        self.uses = 0
        self.used_s = 0.0


class SharedClients(Generic[C]):
    """Clients by login; those that were not used for a while are closed."""

    def __init__(self, clients: NodeClients, make: Callable[[ClientIdentity], C]) -> None:
        self._clients = clients
        self._make = make
        self._known: dict[ClientIdentity, SharedClient[C]] = {}  # the one used last is the last
        self._closing: set[asyncio.Task[None]] = set()
        self._sweeper: asyncio.TimerHandle | None = None

    @contextlib.asynccontextmanager
    async def use(self, scope: Scope) -> AsyncIterator[C]:
        """Return the client of a request's login while it uses it; HttpError 401, 429 and 503."""
        identity = self._clients.identify(scope)
        found = self._known.pop(identity, None)
        if found is None:
            self._make_room()
            found = SharedClient(self._make(identity))
        self._known[identity] = found
        found.uses += 1
        try:
            yield found.client
        finally:
            found.uses -= 1
            found.used_s = time.monotonic()
            if self._sweeper is None:
                self._sweeper = asyncio.get_running_loop().call_later(SWEEP_S, self._sweep)

    def _make_room(self) -> None:
        if len(self._known) < CLIENTS_MAX:
            return
        for identity, shared in self._known.items():
            if not shared.uses:
                self._close(identity)
                return
        raise HttpError(429, "requests of too many logins are in flight")

    def _sweep(self) -> None:
        self._sweeper = None
        end_s = time.monotonic() - IDLE_S
        for identity, shared in list(self._known.items()):
            if not shared.uses and shared.used_s < end_s:
                self._close(identity)
        if self._known:
            self._sweeper = asyncio.get_running_loop().call_later(SWEEP_S, self._sweep)

    def _close(self, identity: ClientIdentity) -> None:
        task = asyncio.ensure_future(self._known.pop(identity).client.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
