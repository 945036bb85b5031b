"""Addresses that a client asks for by a name in its lookups: Pulsar's `advertisedListeners`."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from trilogue.broker.errors import InvalidSetting

_PART = re.compile(r"([\w.-]{1,60}):(pulsar|pulsar\+ssl)://([^\s,/]+:\d{1,5})")


class NamedAddresses(msgspec.Struct, frozen=True):
    """The addresses of one advertised listener: host and port in clear, and with TLS."""

    plain: str | None = None
    tls: str | None = None

    @property
    def urls(self) -> tuple[str | None, str | None]:
        """Return the service URLs."""
        return (
            self.plain and f"pulsar://{self.plain}",
            self.tls and f"pulsar+ssl://{self.tls}",
        )


def parse_advertised_listeners(text: str) -> dict[str, NamedAddresses]:
    """Return the addresses by listener of `name:pulsar://host:port,…`; InvalidSetting."""
    found: dict[str, NamedAddresses] = {}
    for part in text.replace(" ", "").split(","):
        if not part:
            continue
        match = _PART.fullmatch(part)
        if match is None:
            raise InvalidSetting(f"{part!r} is not name:pulsar://host:port")
        name, scheme, address = match.groups()
        field = "plain" if scheme == "pulsar" else "tls"
        before = found.get(name, NamedAddresses())
        if getattr(before, field) is not None:
            raise InvalidSetting(f"two addresses of {name} are {scheme}://")
        found[name] = msgspec.structs.replace(before, **{field: address})
    return found


def registered_rows(listeners: Mapping[str, NamedAddresses]) -> dict[str, str]:
    """Return the addresses as a node registers them for the other ones."""
    rows: dict[str, str] = {}
    for name, addresses in listeners.items():
        if addresses.plain:
            rows[f"pulsar:{name}"] = addresses.plain
        if addresses.tls:
            rows[f"pulsar-ssl:{name}"] = addresses.tls
    return rows


def of_other_node(rows: Mapping[str, str], name: str) -> NamedAddresses:
    """Return the addresses of a listener from what a node registered."""
    return NamedAddresses(rows.get(f"pulsar:{name}"), rows.get(f"pulsar-ssl:{name}"))
