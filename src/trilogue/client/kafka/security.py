"""How a Kafka client connects: in clear or over TLS, with a login or without.

The names are those of librdkafka and Java, with `_` for `.`: `security_protocol="sasl_ssl"`. A file
of `key=value` lines, as both read it, becomes options by `read_client_config`.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from trilogue.client.errors import InvalidOption
from trilogue.client.kafka.sasl import MECHANISMS, SaslExchange, make_exchange

PROTOCOLS: Final = ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")
SERVERS: Final = "bootstrap.servers"
NAMES: Final = {
    "security.protocol": "security_protocol",
    "sasl.mechanism": "sasl_mechanism",
    "sasl.mechanisms": "sasl_mechanism",
    "sasl.username": "sasl_username",
    "sasl.password": "sasl_password",
    "ssl.ca.location": "ssl_ca_location",
    "ssl.truststore.location": "ssl_ca_location",
    "ssl.certificate.location": "ssl_certificate_location",
    "ssl.key.location": "ssl_key_location",
    "ssl.key.password": "ssl_key_password",
    "ssl.endpoint.identification.algorithm": "ssl_endpoint_identification_algorithm",
    "client.id": "client_id",
}
"""The keys of a file that are options of ours; others are left to other clients."""
REFUSED: Final = {
    "enable.ssl.certificate.verification": "they are always verified, by ssl.ca.location",
    "sasl.oauthbearer.config": "give the token by oauth_token, a function",
    "sasl.oauthbearer.token.endpoint.url": "give the token by oauth_token, a function",
}
"""Keys that would change how the client connects, and are not obeyed."""
_JAAS: Final = re.compile(
    r"""(username|password)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;"']+))"""
)


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
        try:
            context = ssl.create_default_context(cafile=self.ca or None)
            context.minimum_version = ssl.TLSVersion.TLSv1_2
            context.check_hostname = self.check_hostname
            if self.certificate:
                password = self.key_password or None
                context.load_cert_chain(self.certificate, self.key or None, password)
        except OSError as error:  # SSLError is one
            files = ", ".join(each for each in (self.ca, self.certificate, self.key) if each)
            raise InvalidOption(f"TLS: {files}: {error.strerror or error}") from error
        return context


def read_client_config(path: Path) -> tuple[str, dict[str, Any]]:
    """Return the servers ("" without) and the options of a file; InvalidOption.

    A line may go on in the next one after a backslash, and have `:` for `=`, as Java's may. Java's
    `sasl.jaas.config` gives the user and the password.
    """
    try:
        lines = _join_lines(path.read_text())
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a text"
        raise InvalidOption(f"{path}: {reason}") from error
    servers, options = "", dict[str, Any]()
    for number, line in lines:
        separator = re.search("[=:]", line)
        if separator is None:
            raise InvalidOption(f"{path}, line {number}: a line is key=value")
        key, value = line[: separator.start()].strip(), line[separator.end() :].strip()
        if key == SERVERS:
            servers = value
        elif key == "sasl.jaas.config":
            for name, *texts in _JAAS.findall(value):
                options[f"sasl_{name}"] = re.sub(r"\\(.)", r"\1", "".join(texts))
        elif key in REFUSED and value.lower() != "true":
            raise InvalidOption(f"{path}, line {number}: {key}: {REFUSED[key]}")
        elif key in NAMES:
            options[NAMES[key]] = value
    return servers, options


def _join_lines(content: str) -> list[tuple[int, str]]:
    """Return the lines that say something, with the number of their first line."""
    joined: list[tuple[int, str]] = []
    begun: tuple[int, str] | None = None
    for number, raw in enumerate(content.splitlines(), 1):
        line = raw.strip()
        if begun is None and (not line or line.startswith(("#", "!"))):
            continue
        first, before = begun or (number, "")
        goes_on = line.endswith("\\") and (len(line) - len(line.rstrip("\\"))) % 2 == 1
        if goes_on:
            begun = first, before + line[:-1]
        else:
            joined.append((first, before + line))
            begun = None
    return joined if begun is None else [*joined, begun]
