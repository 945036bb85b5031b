"""Addresses as `HOST:PORT`: parsing, resolving, and the one that clients are given.

A name is resolved once, before anything is bound: a listener binds exactly the literal addresses
that were checked to be loopback.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Mapping

import msgspec


class AddressError(Exception):
    """A text that is no HOST:PORT, or a host that does not resolve."""


class Address(msgspec.Struct, frozen=True):
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
    """Return every literal address of a host, in the resolver's order; AddressError if none."""
    try:
        found = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except (OSError, UnicodeError) as error:
        raise AddressError(f"{address.host!r} does not resolve: {error}") from error
    literals = [str(sockaddr[0]) for *_, sockaddr in found]
    return [Address(host, address.port) for host in dict.fromkeys(literals)]


def resolve_if_known(address: Address) -> list[Address]:
    """Return what `resolve` does, or nothing: a name that clients use may be unknown here."""
    try:
        return resolve(address)
    except AddressError:
        return []


def is_loopback(literal: Address) -> bool:
    """Return whether only this machine can reach it; 0.0.0.0 and :: count as public."""
    ip = ipaddress.ip_address(literal.host.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped is not None:
        ip = ip.ipv4_mapped
    return ip.is_loopback


def is_wildcard(literal: Address) -> bool:
    """Return whether it is 0.0.0.0 or ::, which a server binds and no client connects to."""
    return ipaddress.ip_address(literal.host.partition("%")[0]).is_unspecified


def choose_advertised(
    setting: str, *, listens: Address, bound: Address, machine_name: Callable[[], str]
) -> Address:
    """Return the address that clients are given to connect to.

    That is `setting` (`advertise.*`); else `listens`, as it was written; else, if the listener is
    bound to every address (0.0.0.0, ::), the name of this machine. `bound` has the real port.
    """
    if setting:
        chosen = parse_address(setting)
        return chosen if chosen.port else Address(chosen.host, bound.port)
    if is_wildcard(bound) or any(is_wildcard(literal) for literal in resolve(listens)):
        return Address(machine_name(), bound.port)
    return Address(listens.host, bound.port)


def _check_ipv6(host: str, text: str) -> None:
    try:
        ipaddress.IPv6Address(host)
    except ValueError as error:
        raise AddressError(f"{text!r}: {host!r} is no IPv6 address") from error


def find_shared_addresses(
    advertised: Mapping[str, str], others: Mapping[int, Mapping[str, str]]
) -> list[tuple[int, str, str]]:
    """Return node, listener and address where another node advertises what this one does.

    It is no error: the other node may have been here before, as those that a standby served for.
    """
    return [
        (node_id, name, address)
        for node_id, listeners in sorted(others.items())
        for name, address in advertised.items()
        if listeners.get(name) == address
    ]
