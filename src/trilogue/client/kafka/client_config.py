"""Configurations of librdkafka and Java clients, as options of ours.

A file has `key=value` lines. Spark has the same keys as options that start with `kafka.`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from trilogue.client.errors import InvalidOption
from trilogue.client.properties import read_keys

SERVERS: Final = "bootstrap.servers"
JAAS: Final = "sasl.jaas.config"
KEY_STORE: Final = "ssl.keystore.location"
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
"""The keys that are options of ours; others are left to other clients."""
_BY_FUNCTION: Final = "give the token by oauth_token, a function"
_NOT_INLINE: Final = "PEM is read from files only: use "
_STORE_PASSWORD: Final = "stores with a password are not read: use PEM files"  # noqa: S105
REFUSED: Final[Mapping[str, tuple[frozenset[str], str]]] = {
    "enable.ssl.certificate.verification": (
        frozenset({"true"}),
        "they are always verified, by ssl.ca.location",
    ),
    "ssl.truststore.type": (frozenset({"pem"}), "only PEM files are read"),
    "ssl.keystore.type": (frozenset({"pem"}), "only PEM files are read"),
    "ssl.truststore.password": (frozenset(), _STORE_PASSWORD),
    "ssl.keystore.password": (frozenset(), _STORE_PASSWORD),
    "ssl.truststore.certificates": (frozenset(), _NOT_INLINE + "ssl.truststore.location"),
    "ssl.keystore.certificate.chain": (frozenset(), _NOT_INLINE + KEY_STORE),
    "ssl.keystore.key": (frozenset(), _NOT_INLINE + KEY_STORE),
    "ssl.ca.pem": (frozenset(), _NOT_INLINE + "ssl.ca.location"),
    "ssl.certificate.pem": (frozenset(), _NOT_INLINE + "ssl.certificate.location"),
    "ssl.key.pem": (frozenset(), _NOT_INLINE + "ssl.key.location"),
    "sasl.oauthbearer.method": (frozenset({"default"}), _BY_FUNCTION),
    "sasl.oauthbearer.config": (frozenset(), _BY_FUNCTION),
    "sasl.oauthbearer.token.endpoint.url": (frozenset(), _BY_FUNCTION),
    "sasl.login.callback.handler.class": (frozenset(), _BY_FUNCTION),
}
"""Keys that would change how the client connects: the values without effect, and what to do."""
_JAAS: Final = re.compile(
    r"""(username|password)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;"']+))"""
)


def convert_key(key: str, value: str) -> dict[str, str] | None:
    """Return the options that a key gives, None for a key of other clients; InvalidOption.

    Java's `sasl.jaas.config` gives the user and the password, its `ssl.keystore.location` a PEM
    file with the certificates and the key. No error has the value: it may be a secret.
    """
    if key == JAAS:
        return {
            f"sasl_{name}": re.sub(r"\\(.)", r"\1", "".join(texts))
            for name, *texts in _JAAS.findall(value)
        }
    if key == KEY_STORE:
        return {"ssl_certificate_location": value, "ssl_key_location": value}
    if key in REFUSED:
        harmless, reason = REFUSED[key]
        if value.lower() not in harmless:
            raise InvalidOption(f"{key}: {reason}")
        return {}
    return {NAMES[key]: value} if key in NAMES else None


def read_client_config(path: Path) -> tuple[str, dict[str, Any]]:
    """Return the servers ("" without) and the options of a file; InvalidOption.

    A line may go on in the next one after a backslash, and have `:` for `=`, as Java's may.
    """
    servers, options = "", dict[str, Any]()
    for number, key, value in read_keys(path):
        if key == SERVERS:
            servers = value
            continue
        try:
            options |= convert_key(key, value) or {}
        except InvalidOption as error:
            raise InvalidOption(f"{path}, line {number}: {error}") from None
    return servers, options
