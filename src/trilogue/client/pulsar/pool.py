"""Connections by broker address, and the parsing of service URLs."""

from __future__ import annotations

from trilogue.client import pool
from trilogue.client.errors import ClientError, InvalidOption
from trilogue.client.pool import Address, ConnectionPool
from trilogue.client.pulsar.connection import PulsarConnection
from trilogue.client.pulsar.errors import ClosedError
from trilogue.client.pulsar.options import ClientOptions

SCHEME, SECURE_SCHEME = "pulsar://", "pulsar+ssl://"
DEFAULT_PORT, SECURE_PORT = 6650, 6651


def is_secure(url: str) -> bool:
    """Return whether the connections of a service URL are encrypted."""
    return url.startswith((SECURE_SCHEME, "https://"))


def addresses(url: str) -> list[Address]:
    """Split `pulsar://host:port,host:port`, or with `pulsar+ssl`; IPv6 in brackets.

    InvalidOption where an address is none.
    """
    if not url.startswith((SCHEME, SECURE_SCHEME)):
        raise InvalidOption(f"not a pulsar:// or pulsar+ssl:// address: {url!r}")
    port = SECURE_PORT if is_secure(url) else DEFAULT_PORT
    hosts = url.partition("://")[2].rstrip("/").split(",")
    return [pool.address(one, port) for one in hosts]


class BrokerPool:
    """At most one connection to each broker (and, through a proxy, for each broker)."""

    def __init__(self, options: ClientOptions, *, is_secure: bool) -> None:
        self._options = options
        self.is_secure = is_secure
        self._shared = ConnectionPool(self._connect, ClosedError)

    def choose_address(self, plain: str, secure: str, about: str) -> Address:
        """Return the address of an answer that this client connects to; ClientError if none.

        An encrypted client never goes on in clear: its login would be read.
        """
        url = secure if self.is_secure else plain
        if not url:
            kind = "a TLS address" if self.is_secure else "an address"
            raise ClientError(f"{about}: an answer without {kind}")
        if is_secure(url) != self.is_secure:
            raise ClientError(f"{about}: the answer leads to {url!r}")
        return addresses(url)[0]

    async def get(self, where: Address, proxied_to: str = "") -> PulsarConnection:
        """The open connection to an address; ConnectionLost, TimedOut or PulsarError if none."""
        return await self._shared.get((where, proxied_to))

    async def _connect(self, key: tuple[Address, str]) -> PulsarConnection:
        where, proxied_to = key
        made = PulsarConnection(self._options, proxied_to, is_secure=self.is_secure)
        await made.open(*where)
        return made

    async def close(self) -> None:
        """Close all of them, those that are being opened too."""
        await self._shared.close()
