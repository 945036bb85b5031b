"""How many connections single addresses may have: `max.connections.per.ip.overrides`."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address

from trilogue.broker.settings.values import InvalidValue


def check_address_limits(text: str) -> str:
    """Return a value as it is, or raise InvalidValue."""
    parse_address_limits(text)
    return text


def parse_address_limits(text: str) -> Mapping[str, int]:
    """Return the connections that each address may have, from `10.0.0.1:5,::1:9`; InvalidValue."""
    found = {}
    for part in filter(None, map(str.strip, text.split(","))):
        address, _, count = part.rpartition(":")
        try:
            known = str(ip_address(address.strip().strip("[]")))
        except ValueError:
            raise InvalidValue("expected ADDRESS:CONNECTIONS, of IP addresses") from None
        if not (count.isascii() and count.isdigit() and len(count) <= 9):
            raise InvalidValue(f"expected a number of connections after {address}:")
        found[known] = int(count)
    return found
