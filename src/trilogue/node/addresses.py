"""`HOST:PORT` as people write it, and what it means on this machine.

A name is resolved once, before anything is bound, and what was checked is what gets bound: a
door never listens on an address that was not judged to be loopback.
"""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass


class AddressError(Exception):
    """A text that is no HOST:PORT, or a host that does not resolve."""


@dataclass(frozen=True, slots=True)
class Address:
    """A host (name or literal, without brackets) and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> Address:
    """Read `127.0.0.1:9092`, `[::1]:9092` or `broker.example:9092`; port 0 means a free one."""
    host, colon, port = text.strip().rpartition(":")
    if not colon or not host:
        raise AddressError(f"{text!r} is not HOST:PORT (as 127.0.0.1:9092 or [::1]:9092)")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
        _check_ipv6(host, text)
    elif ":" in host:
        raise AddressError(f"{text!r}: write an IPv6 address in brackets, as [::1]:9092")
    elif any(character.isspace() or character in "[]/@" for character in host):
        raise AddressError(f"{text!r} is not HOST:PORT: {host!r} is no host")
    if not (port.isascii() and port.isdigit() and int(port) <= 65535):
        raise AddressError(f"{text!r}: the port must be a number from 0 to 65535")
    return Address(host, int(port))


def resolve(address: Address) -> list[Address]:
    """Every literal address a host stands for, in the resolver's order."""
    try:
        found = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except (OSError, UnicodeError) as error:
        raise AddressError(f"{address.host!r} does not resolve: {error}") from error
    literals = [str(sockaddr[0]) for *_, sockaddr in found]
    return [Address(host, address.port) for host in dict.fromkeys(literals)]


def is_loopback(literal: Address) -> bool:
    """True when only this machine can reach it; the unspecified address (0.0.0.0, ::) is public."""
    ip = ipaddress.ip_address(literal.host.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped is not None:
        ip = ip.ipv4_mapped
    return ip.is_loopback


def is_wildcard(literal: Address) -> bool:
    """True for 0.0.0.0 and ::, which a server can listen on and no client can connect to."""
    return ipaddress.ip_address(literal.host.partition("%")[0]).is_unspecified


def _check_ipv6(host: str, text: str) -> None:
    try:
        ipaddress.IPv6Address(host)
    except ValueError as error:
        raise AddressError(f"{text!r}: {host!r} is no IPv6 address") from error
