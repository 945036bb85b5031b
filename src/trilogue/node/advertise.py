"""Where clients are told to come back to.

What `advertise.DOOR` says; else the address the door listens on, as it was written (a name stays a
name); else, where the door listens on every address, this machine's name: 0.0.0.0 is nothing that a
client could connect to.
"""

from __future__ import annotations

from collections.abc import Callable

from trilogue.node.addresses import Address, is_wildcard, parse_address, resolve


def advertised(
    setting: str, *, listens: Address, bound: Address, machine_name: Callable[[], str]
) -> Address:
    """Choose; `listens` is as it was set, `bound` is the literal address with the real port."""
    if setting:
        chosen = parse_address(setting)
        return chosen if chosen.port else Address(chosen.host, bound.port)
    if is_wildcard(bound) or any(is_wildcard(literal) for literal in resolve(listens)):
        return Address(machine_name(), bound.port)
    return Address(listens.host, bound.port)
