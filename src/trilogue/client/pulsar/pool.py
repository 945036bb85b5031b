"""Connections by broker address, and the parsing of service URLs."""

from __future__ import annotations

from trilogue.client import pool
from trilogue.client.errors import ClientError, Unsupported
from trilogue.client.pool import Address, ConnectionPool
from trilogue.client.pulsar.connection import PulsarConnection
from trilogue.client.pulsar.errors import ClosedError
from trilogue.client.pulsar.options import ClientOptions

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
    return pool.address(text, DEFAULT_PORT)


class BrokerPool:
    """At most one connection to each broker (and, through a proxy, for each broker)."""

    def __init__(self, options: ClientOptions) -> None:
        self._options = options
        self._shared = ConnectionPool(self._connect, ClosedError)

    async def get(self, where: Address, proxied_to: str = "") -> PulsarConnection:
        """The open connection to an address; ConnectionLost, TimedOut or PulsarError if none."""
        return await self._shared.get((where, proxied_to))

    async def _connect(self, key: tuple[Address, str]) -> PulsarConnection:
        where, proxied_to = key
        made = PulsarConnection(self._options, proxied_to)
        await made.open(*where)
        return made

    async def close(self) -> None:
        """Close all of them, those that are being opened too."""
        await self._shared.close()
