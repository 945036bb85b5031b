"""Connections to masters and brokers, and the servers to avoid for a while.

A server is faulty when a connection to it fails, breaks or falls silent, and when it answers 503
(unavailable). Who has a choice takes another one for `avoid_s`.
"""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections.abc import Iterable
from functools import partial
from typing import Final

from trilogue.client.errors import ClientError, ConnectionLost
from trilogue.client.pool import Address, ConnectionPool
from trilogue.client.tubemq.connection import TubeConnection
from trilogue.client.tubemq.errors import BadFrame, ClosedError
from trilogue.client.tubemq.options import BadFrames, ClientOptions, Connections
from trilogue.wire.errors import WireError

log = logging.getLogger("trilogue.client.tubemq")
WARMED_AT_ONCE: Final = 100
"""Connections that are made ahead at a time; others are made when they are needed."""
Key = tuple[object, ...]


class ServerConnections:
    """At most one connection to each server."""

    def __init__(self, options: ClientOptions) -> None:
        self._options = options
        self._loop = asyncio.get_running_loop()
        self._pool: ConnectionPool[Address, TubeConnection] = ConnectionPool(
            self._connect, ClosedError
        )
        self._avoided: dict[Address, float] = {}
        self._broken: dict[Address, BadFrame] = {}
        self._connecting_ahead: dict[Address, asyncio.Task[None]] = {}
        self.has_answered = False
        """Whether any server ever answered: one of another protocol takes connections, too."""
        self.users = 0
        self._closed = False

    def peek(self, where: Address) -> TubeConnection | None:
        """The open connection, if there is one now; BadFrame where that is to be raised."""
        if where in self._broken:
            raise self._broken[where]
        return self._pool.peek(where)

    @property
    def has_open(self) -> bool:
        """Whether any connection is open now."""
        return self._pool.has_open

    async def get(self, where: Address) -> TubeConnection:
        """The open connection, made now if there is none; ConnectionLost, BadFrame."""
        if where in self._broken:
            raise self._broken[where]
        return await self._pool.get(where)

    def connect_ahead(self, addresses: Iterable[Address]) -> None:
        """Connect ahead of the first request."""
        for where in addresses:
            if len(self._connecting_ahead) >= WARMED_AT_ONCE or self._closed:
                return
            if where not in self._connecting_ahead and self._pool.peek(where) is None:
                task = self._loop.create_task(self._connect_ahead(where))
                self._connecting_ahead[where] = task
                task.add_done_callback(partial(self._on_connected_ahead, where))

    def _on_connected_ahead(self, where: Address, _task: asyncio.Task[None]) -> None:
        self._connecting_ahead.pop(where, None)

    async def _connect_ahead(self, where: Address) -> None:
        try:
            await self.get(where)
        except ClientError as problem:
            log.info("tubemq.no_connection", extra={"server": where, "problem": str(problem)})

    def mark_faulty(self, where: Address) -> None:
        """Leave a server alone for a while."""
        self._avoided[where] = self._loop.time() + self._options.avoid_s

    def is_avoided(self, where: Address) -> bool:
        """Whether another one is to be taken, if there is one."""
        until = self._avoided.get(where)
        if until is None:
            return False
        if until > self._loop.time():
            return True
        del self._avoided[where]
        return False

    async def _connect(self, where: Address) -> TubeConnection:
        made = TubeConnection(where, self._options, self._on_gone)
        try:
            await made.open()
        except ConnectionLost:
            self.mark_faulty(where)
            raise
        return made

    def _on_gone(self, connection: TubeConnection, reason: Exception) -> None:
        if isinstance(reason, WireError):
            log.warning(
                "tubemq.bad_frame", extra={"server": connection.where, "problem": str(reason)}
            )
            self._on_bad_frame(connection.where, reason)
        elif connection.waiting:
            self.mark_faulty(connection.where)

    def _on_bad_frame(self, where: Address, reason: Exception) -> None:
        if self._options.bad_frames is BadFrames.RAISE:
            self._broken[where] = BadFrame(f"{where[0]}:{where[1]}: {reason}")
        elif self._options.bad_frames is BadFrames.RECONNECT:
            self._loop.call_soon(self.connect_ahead, [where])
        else:
            self.mark_faulty(where)

    async def close(self) -> None:
        """Close all connections."""
        self._closed = True
        warming = list(self._connecting_ahead.values())
        for task in warming:
            task.cancel()
        await asyncio.gather(*warming, return_exceptions=True)
        await self._pool.close()


_OF_PROCESS: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Key, ServerConnections]] = (
    weakref.WeakKeyDictionary()
)
"""Connections of `Connections.PROCESS`, by loop: a connection belongs to one."""


def borrow_connections(options: ClientOptions) -> ServerConnections:
    """Connections for one more user, shared by the scope of the options."""
    if options.connections is not Connections.PROCESS:
        made = ServerConnections(options)
    else:
        known = _OF_PROCESS.setdefault(asyncio.get_running_loop(), {})
        key = _key(options)
        made = known.get(key) or known.setdefault(key, ServerConnections(options))
    made.users += 1
    return made


async def release_connections(servers: ServerConnections, options: ClientOptions) -> None:
    """Give connections back: the last user closes them."""
    servers.users -= 1
    if servers.users:
        return
    if options.connections is Connections.PROCESS:
        _OF_PROCESS.get(asyncio.get_running_loop(), {}).pop(_key(options), None)
    await servers.close()


def _key(options: ClientOptions) -> Key:
    """All that a connection goes by."""
    return (
        options.request_timeout_s, options.connect_timeout_s, options.idle_s, options.avoid_s,
        options.max_pending, options.max_frame_size, options.bad_frames,
    )  # fmt: skip
