"""How a Pulsar client connects: with TLS or without, and what it logs in with.

The names of the options are those of pulsar-client. A login is a token, a name and a password, or
the certificate of the TLS connection.
"""

from __future__ import annotations

import base64
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field

from trilogue.client.errors import InvalidOption
from trilogue.client.tls import make_client_context


@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    """The login and TLS of all connections of a client; InvalidOption for what does not fit."""

    token: str | Callable[[], str] | None = field(default=None, repr=False)
    username: str = ""
    password: str = field(default="", repr=False)
    authorities: str = ""
    certificate: str = ""
    key: str = ""
    check_hostname: bool = True

    def __post_init__(self) -> None:
        if bool(self.username) != bool(self.password):
            raise InvalidOption("username and password are given together")
        if self.token is not None and self.username:
            raise InvalidOption("token and username: give one of them")
        if bool(self.certificate) != bool(self.key):
            raise InvalidOption(
                "tls_certificate_file_path and tls_private_key_file_path are given together"
            )
        if ":" in self.username:
            raise InvalidOption("username has a colon, which ends names in Pulsar's logins")
        if self.authorities or self.certificate:
            self.make_context()  # so that a wrong file is reported at once

    @property
    def method(self) -> str:
        """The name of the authentication method: token, basic, tls or none."""
        if self.token is not None:
            return "token"
        if self.username:
            return "basic"
        return "tls" if self.certificate else "none"

    def make_credentials(self) -> bytes:
        """Return what CONNECT and AUTH_RESPONSE have; a token's function is called each time."""
        if self.token is not None:
            return (self.token() if callable(self.token) else self.token).encode()
        return f"{self.username}:{self.password}".encode() if self.username else b""

    def make_header(self) -> dict[str, str]:
        """Return the header of HTTP requests: Authorization, or none."""
        credentials = self.make_credentials()
        if self.method == "token":
            return {"Authorization": f"Bearer {credentials.decode()}"}
        if self.method == "basic":
            return {"Authorization": f"Basic {base64.b64encode(credentials).decode()}"}
        return {}

    def make_context(self) -> ssl.SSLContext:
        """Return what TLS connections are encrypted with; InvalidOption for a wrong file."""
        return make_client_context(
            self.authorities, self.certificate, self.key, check_hostname=self.check_hostname
        )
