"""Connections by key: opened on demand, shared, and opened again after a loss."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, Protocol, TypeVar

from trilogue.client.errors import ClientError, InvalidOption, InvalidOptionType
from trilogue.client.lifecycle import check_loop

Address = tuple[str, int]
Key = TypeVar("Key", bound=Hashable)


class PooledConnection(Protocol):
    """A connection as the pool sees it."""

    @property
    def is_open(self) -> bool:
        """Whether it may be used."""

    def close(self) -> None:
        """Close at once."""

    async def wait_closed(self) -> None:
        """Wait until its socket is closed."""


Made = TypeVar("Made", bound=PooledConnection)


def split_addresses(name: str, text: object, default_port: int) -> list[Address]:
    """Return the addresses of a text with commas, `name` being the argument of a client.

    InvalidOptionType for what is no text, InvalidOption where an address is not `host:port`.
    """
    if not isinstance(text, str):
        raise InvalidOptionType(
            f"{name}={text!r} is not allowed: {name} is a text, host:port, several with commas"
        )
    if "://" in text:
        raise InvalidOption(
            f"{name}={text!r} is not allowed: {name} is host:port, several with commas, "
            "without a scheme"
        )
    return [address(one, default_port) for one in text.split(",")]


def address(text: str, default_port: int) -> Address:
    """Split `host:port`; IPv6 in brackets; without a port it is the protocol's own.

    InvalidOption where it is none.
    """
    host, found, port = text.strip().rpartition(":")
    if not found or port.endswith("]"):
        host, port = text.strip(), str(default_port)
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise InvalidOption(f"not a host:port address: {text!r}")
    return host.strip("[]"), int(port)


class ConnectionPool(Generic[Key, Made]):
    """At most one connection for each key.

    `connect` opens a connection; `closed` makes the error of calls after the end.
    """

    def __init__(
        self,
        connect: Callable[[Key], Coroutine[Any, Any, Made]],
        closed: Callable[[str], ClientError],
    ) -> None:
        self._connect = connect
        self._closed_error = closed
        self._open: dict[Key, Made] = {}
        self._opening: dict[Key, asyncio.Task[Made]] = {}
        self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self.was_reached = False
        """Whether any connection was ever open."""

    def peek(self, key: Key) -> Made | None:
        """The open connection, if there is one now."""
        known = self._open.get(key)
        return known if known is not None and known.is_open else None

    @property
    def has_open(self) -> bool:
        """Whether any connection is open now."""
        return any(one.is_open for one in self._open.values())

    def check_loop(self) -> None:
        """Raise ClientError in another event loop than that of the connections."""
        self._loop = check_loop(self._loop)

    async def get(self, key: Key) -> Made:
        """The open connection, made now if there is none; what `connect` raises."""
        if self._closed:
            raise self._closed_error("the client is closed")
        self.check_loop()
        known = self.peek(key)
        if known is not None:
            return known
        opening = self._opening.get(key)
        if opening is None:
            opening = asyncio.get_running_loop().create_task(self._make(key))
            self._opening[key] = opening
            opening.add_done_callback(lambda task: self._opened(key, task))
        return await asyncio.shield(opening)  # a cancelled caller cancels only itself

    def _opened(self, key: Key, task: asyncio.Task[Made]) -> None:
        self._opening.pop(key, None)
        if not task.cancelled():
            task.exception()  # every caller may be cancelled

    async def _make(self, key: Key) -> Made:
        made = await self._connect(key)
        self.was_reached = True
        if self._closed:
            made.close()
            raise self._closed_error("the client is closed")
        self._open = {key: one for key, one in self._open.items() if one.is_open}
        self._open[key] = made
        return made

    async def close(self) -> None:
        """Close all of them, those that are being opened too; no socket is open after it."""
        self._closed = True
        opening = list(self._opening.values())
        for task in opening:
            task.cancel()
        await asyncio.gather(*opening, return_exceptions=True)
        ending = list(self._open.values())
        self._open.clear()
        for connection in ending:
            connection.close()
        await asyncio.gather(*(each.wait_closed() for each in ending))
