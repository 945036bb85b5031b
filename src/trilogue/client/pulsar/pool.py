"""Connections by address: made when they are wanted, shared, made again when they broke."""

from __future__ import annotations

import asyncio

from trilogue.client.errors import ClientError, Unsupported
from trilogue.client.pulsar.connection import PulsarConnection
from trilogue.client.pulsar.errors import ClosedError
from trilogue.client.pulsar.options import ClientOptions

Address = tuple[str, int]
SCHEME, SECURE_SCHEME = "pulsar://", "pulsar+ssl://"
DEFAULT_PORT = 6650


def addresses(url: str) -> list[Address]:
    """Split `pulsar://host:port,host:port`; IPv6 in brackets."""
    if url.startswith(SECURE_SCHEME):
        raise Unsupported(f"this client does not speak TLS yet: {url!r}")
    if not url.startswith(SCHEME):
        raise ClientError(f"not a pulsar:// address: {url!r}")
    return [address(one) for one in url.removeprefix(SCHEME).rstrip("/").split(",")]


def address(text: str) -> Address:
    """Split `host:port`; without a port it is Pulsar's own."""
    host, found, port = text.strip().rpartition(":")
    if not found or port.endswith("]"):
        host, port = text.strip(), str(DEFAULT_PORT)
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise ClientError(f"not a host:port address: {text!r}")
    return host.strip("[]"), int(port)


class Pool:
    """At most one connection to each broker (and, through a proxy, for each broker)."""

    def __init__(self, options: ClientOptions) -> None:
        self._options = options
        self._open: dict[tuple[Address, str], PulsarConnection] = {}
        self._opening: dict[tuple[Address, str], asyncio.Task[PulsarConnection]] = {}
        self._closed = False

    async def get(self, where: Address, proxied_to: str = "") -> PulsarConnection:
        """The open connection to an address; ConnectionLost, TimedOut or PulsarError if none."""
        if self._closed:
            raise ClosedError("the client is closed")
        key = where, proxied_to
        known = self._open.get(key)
        if known is not None and known.is_open:
            return known
        opening = self._opening.get(key)
        if opening is None:
            opening = asyncio.get_running_loop().create_task(self._connect(where, proxied_to))
            self._opening[key] = opening
            opening.add_done_callback(lambda task: self._opened(key, task))
        return await asyncio.shield(opening)  # whoever gives up does not take it from the others

    def _opened(self, key: tuple[Address, str], task: asyncio.Task[PulsarConnection]) -> None:
        self._opening.pop(key, None)
        if not task.cancelled():
            task.exception()  # everybody who waited may have given up

    async def _connect(self, where: Address, proxied_to: str) -> PulsarConnection:
        made = PulsarConnection(self._options, proxied_to)
        await made.open(*where)
        if self._closed:
            made.close()
            raise ClosedError("the client is closed")
        self._open = {key: one for key, one in self._open.items() if one.is_open}
        self._open[where, proxied_to] = made
        return made

    async def close(self) -> None:
        """Close all of them, those that are being opened too."""
        self._closed = True
        opening = list(self._opening.values())
        for task in opening:
            task.cancel()
        await asyncio.gather(*opening, return_exceptions=True)
        for connection in self._open.values():
            connection.close()
        self._open.clear()
