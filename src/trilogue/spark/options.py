"""What the options of the Spark source and sink share: names, values, the connection.

Names are those of Spark's Kafka connector where it has one, so that a job moves by changing its
format. An option that is unknown is refused; those of other connectors are in foreign_options.py.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping
from typing import Any

from trilogue.client.errors import InvalidOption
from trilogue.client.kafka.client_config import JAAS, KEY_STORE, NAMES, REFUSED, convert_key
from trilogue.client.kafka.options import ClientOptions
from trilogue.client.kafka.security import Security
from trilogue.client.options import build_options
from trilogue.spark.errors import OptionError
from trilogue.spark.foreign_options import drop_foreign_options

KAFKA = "kafka."
CONNECTION_OPTIONS = {
    "kafka.bootstrap.servers": "host:port[,host:port...] of the cluster (required, except to read "
    "a data directory or by option url)",
    "kafka.security.protocol": "PLAINTEXT (default), SSL, SASL_PLAINTEXT or SASL_SSL",
    "kafka.sasl.mechanism": "PLAIN (default), SCRAM-SHA-256 or SCRAM-SHA-512",
    "kafka.sasl.jaas.config": "as Java reads it: its username and password log in",
    "kafka.sasl.username": "the user, in place of kafka.sasl.jaas.config",
    "kafka.sasl.password": "the user's password",
    "kafka.ssl.truststore.location": "PEM file of the authorities (also kafka.ssl.ca.location), "
    "at the same path on the driver and each executor",
    "kafka.ssl.keystore.location": "PEM file of the client's certificate and key",
    "kafka.ssl.certificate.location": "PEM file of the client's certificate",
    "kafka.ssl.key.location": "PEM file of its key",
    "kafka.ssl.key.password": "what the key is encrypted with",
    "kafka.ssl.endpoint.identification.algorithm": "https (default), or none: any server's name",
}
SPARKS_OWN = frozenset({"checkpointlocation", "queryname", "outputmode"})
"""Options of Spark's writer itself, which it hands on to every sink."""
NEAR = 0.75
"""How similar an unknown name is to the one that was meant."""


_CLIENT_KEYS = {
    f"{KAFKA}{key}": f"{KAFKA}{key}" for key in {*NAMES, *REFUSED, JAAS, KEY_STORE} - {"client.id"}
}
"""All keys of Kafka's clients that are obeyed, or refused with a reason."""


def parse_security(options: Mapping[str, str]) -> Security:
    """Return how connections are made; OptionError, which has no secrets."""
    found: dict[str, str] = {}
    try:
        for name, value in options.items():
            found |= convert_key(name.removeprefix(KAFKA), value.strip()) or {}
        return build_options(ClientOptions, found).security
    except InvalidOption as error:
        raise OptionError(f"options {KAFKA}…: {error}") from None


def check_names(
    given: Mapping[str, str], known: Mapping[str, str], aliases: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the options by their documented names; OptionError for an unknown one, or two of one.

    `aliases`: names that stand for documented ones.
    """
    names = {name.lower(): name for name in known} | _CLIENT_KEYS
    names |= {alias.lower(): name for alias, name in (aliases or {}).items()}
    given = drop_foreign_options(given, frozenset(names))
    unknown = sorted(name for name in given if name.lower() not in names.keys() | SPARKS_OWN)
    if unknown:
        near = difflib.get_close_matches(unknown[0].lower(), names, 1, NEAR)
        hint = f"did you mean {names[near[0]]!r}?" if near else f"known: {', '.join(sorted(known))}"
        raise OptionError(f"unknown option {unknown[0]!r}; {hint}")
    found: dict[str, str] = {}
    for name in given:
        if name.lower() in SPARKS_OWN:
            continue
        documented = names[name.lower()]
        if found.setdefault(documented, given[name]) != given[name]:
            raise OptionError(f"option {documented!r} is given twice, by two names")
    return found


def parse_servers(options: Mapping[str, str], *, required: bool = True) -> str:
    """Return the addresses of the cluster; OptionError where there are none, if required."""
    servers = options.get("kafka.bootstrap.servers", "")
    if required and not servers:
        raise OptionError("option 'kafka.bootstrap.servers' is required")
    return servers


def parse_integer(options: Mapping[str, str], name: str) -> int | None:
    """Return a whole number from 1 on; None where the option is not given."""
    text = options.get(name)
    if text is None:
        return None
    if not text.strip().isdigit() or int(text) < 1:
        raise OptionError(f"option {name!r} takes a whole number from 1 on, not {text!r}")
    return int(text)


_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400}


def parse_seconds(options: Mapping[str, str], name: str, default: float) -> float:
    """Return seconds of a duration in Spark's form: 90s, 15m, 1h; a bare number is milliseconds."""
    text = options.get(name)
    if text is None:
        return default
    found = re.fullmatch(r"(\d+)\s*(us|ms|s|m|min|h|d|)", text.strip().lower())
    if found is None:
        raise OptionError(f"option {name!r} takes a duration such as 30s or 15m, not {text!r}")
    return int(found[1]) * _UNITS[found[2] or "ms"]


def parse_boolean(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    """Return true or false."""
    text = options.get(name, str(default)).strip().lower()
    if text not in {"true", "false"}:
        raise OptionError(f"option {name!r} takes true or false, not {text!r}")
    return text == "true"


def parse_json(name: str, text: str) -> dict[str, Any]:
    """Return a JSON object."""
    try:
        parsed = json.loads(text)
    except ValueError as problem:
        raise OptionError(f"option {name!r} is not JSON: {problem}") from None
    if not isinstance(parsed, dict):
        raise OptionError(f"option {name!r} must be a JSON object")
    return parsed
