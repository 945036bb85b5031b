"""How a Kafka client connects: in clear or over TLS, with a login or without.

The names are those of librdkafka and Java, with `_` for `.`: `security_protocol="sasl_ssl"`.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from trilogue.client.errors import InvalidOption
from trilogue.client.kafka.sasl import MECHANISMS, SaslExchange, make_exchange

PROTOCOLS: Final = ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")


@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    """How connections are made; InvalidOption for what does not fit together."""

    protocol: str = "plaintext"
    mechanism: str = "PLAIN"
    username: str = ""
    password: str = field(default="", repr=False)
    oauth_token: Callable[[], str] | None = None
    ca: str = ""
    certificate: str = ""
    key: str = ""
    key_password: str = field(default="", repr=False)
    check_hostname: bool = True

    def __post_init__(self) -> None:
        if self.protocol not in PROTOCOLS:
            raise InvalidOption(
                f"security_protocol={self.protocol!r} is not one of {', '.join(PROTOCOLS)}"
            )
        if self.username and not self.has_login:
            raise InvalidOption(
                "sasl_username needs security_protocol=sasl_ssl or sasl_plaintext, "
                f"not {self.protocol}"
            )
        if self.has_login:
            if self.mechanism not in MECHANISMS:
                raise InvalidOption(
                    f"sasl_mechanism={self.mechanism!r} is not one of {', '.join(MECHANISMS)}"
                )
            if self.mechanism != "OAUTHBEARER" or self.oauth_token is None:
                self.make_exchange()  # says what is missing
        if self.has_tls:
            self.make_context()  # so that a wrong file is reported at once

    @property
    def has_tls(self) -> bool:
        """Whether connections are encrypted."""
        return self.protocol in {"ssl", "sasl_ssl"}

    @property
    def has_login(self) -> bool:
        """Whether the client logs in by SASL."""
        return self.protocol.startswith("sasl_")

    def make_exchange(self) -> SaslExchange:
        """Return a new login."""
        return make_exchange(self.mechanism, self.username, self.password, self.oauth_token)

    def make_context(self) -> ssl.SSLContext | None:
        """Return what connections are encrypted with, None for plain ones; InvalidOption."""
        if not self.has_tls:
            return None
        from trilogue.client.tls import make_client_context

        return make_client_context(
            self.ca,
            self.certificate,
            self.key,
            self.key_password,
            check_hostname=self.check_hostname,
        )
