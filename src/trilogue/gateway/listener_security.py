"""How clients come in by one listener: in clear or over TLS, with a login or without."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import msgspec

if TYPE_CHECKING:
    from trilogue.gateway.stream import StreamSession
    from trilogue.wire.frames import Frames

NAMES = {
    (False, False): "PLAINTEXT",
    (True, False): "SSL",
    (False, True): "SASL_PLAINTEXT",
    (True, True): "SASL_SSL",
}


class ListenerSecurity(msgspec.Struct, frozen=True):
    """One listener as its connections see it; `advertised` is the address that clients get.

    `is_internal`: it is for the brokers of the cluster.
    """

    name: str
    advertised: Callable[[], tuple[str, int]]
    tls: bool = False
    sasl: bool = False
    is_internal: bool = False

    @property
    def protocol(self) -> str:
        """Kafka's name of the security protocol."""
        return NAMES[self.tls, self.sasl]


class SecuredGateway(Protocol):
    """A gateway, or a part of one, that several listeners share."""

    def make_connection(self, listener: ListenerSecurity, /) -> StreamSession:
        """Return the handler of a new connection that came by this listener."""

    def frames(self, limit: int) -> Frames:
        """Return the framer of a new connection."""


class ListenerFactory:
    """Makes the connections of one of several listeners of a gateway."""

    def __init__(self, gateway: SecuredGateway, listener: ListenerSecurity) -> None:
        self.name = listener.name
        self._gateway = gateway
        self._listener = listener

    def make_connection(self) -> StreamSession:
        """Return the handler of a new connection."""
        return self._gateway.make_connection(self._listener)

    def frames(self, limit: int) -> Frames:
        """Return the framer of a new connection."""
        return self._gateway.frames(limit)
