"""What can go wrong when asking a server, by whose fault it is."""

from __future__ import annotations


class ClientError(Exception):
    """Anything that a client of ours raises on purpose."""


class ConnectionLost(ClientError):
    """The connection broke or never came to be; asking again may help."""


class Unsupported(ClientError):
    """The server does not speak any version of the request that we speak."""


class ServerRefused(ClientError):
    """The server answered with an error code of its protocol."""

    def __init__(self, code: int, name: str, about: str, *, retriable: bool) -> None:
        super().__init__(f"{about}: {name} ({code})")
        self.code = code
        self.retriable = retriable
