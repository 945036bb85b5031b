"""Which doors are to be opened, where, and whether that is allowed.

Decided before anything is touched: no door here has TLS or authentication yet, so an address that
another machine can reach is refused unless `insecure` says that it is meant. What was judged is
what gets bound: names are resolved once.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from trilogue.node.addresses import Address, AddressError, is_loopback, parse_address, resolve
from trilogue.node.errors import WRONG_SETTING, StartError
from trilogue.node.settings import DOORS, Settings

log = logging.getLogger(__name__)

OFF = "off"
# An address family or a literal that this machine does not have, though a name stands for it.
_NOT_HERE = {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}

Bind = Callable[[str, int], Awaitable[tuple[str, int]]]


@dataclass(frozen=True, slots=True)
class PlannedDoor:
    """A door, its address as it was written, and the literal addresses that stand for."""

    name: str
    listens: Address
    literals: tuple[Address, ...]


def plan_doors(settings: Settings) -> dict[str, PlannedDoor]:
    """Say which doors are to be opened; StartError where that is not allowed or not possible."""
    planned: dict[str, PlannedDoor] = {}
    for door in DOORS:
        text = settings.text(f"listen.{door}")
        if text == OFF:
            continue
        try:
            listens = parse_address(text)
            literals = tuple(resolve(listens))
        except AddressError as error:
            origin = settings.origin(f"listen.{door}")
            raise StartError(f"listen.{door} ({origin}): {error}", WRONG_SETTING) from error
        planned[door] = PlannedDoor(door, listens, literals)
        _check_reach(planned[door], insecure=settings.switch("insecure"))
    if "tubemq-broker" in planned:
        _check_told(planned["tubemq-broker"], settings)
    return planned


async def bind_door(door: PlannedDoor, bind: Bind) -> Address:
    """Bind every literal of a door to one port; say the first one, with the port it really got."""
    port = door.listens.port
    bound: list[Address] = []
    for literal in door.literals:
        try:
            bound.append(Address(*await bind(literal.host, port)))
        except OSError as error:
            if len(door.literals) > 1 and error.errno in _NOT_HERE:
                continue
            why = os.strerror(error.errno) if error.errno else str(error)
            raise StartError(
                f"{door.name} cannot listen on {literal.host}:{port}: {why}"
            ) from error
        port = bound[0].port
    if not bound:
        raise StartError(f"{door.name} cannot listen on {door.listens}: no such address here")
    return bound[0]


def _check_told(door: PlannedDoor, settings: Settings) -> None:
    """A TubeMQ master says `brokerId:host:port`, in which an IPv6 address cannot be told."""
    said = settings.text("advertise.tubemq-broker")
    told = parse_address(said) if said else door.listens
    if ":" in told.host and told.host != "::":  # of which this machine's name is told
        raise StartError(
            f"TubeMQ clients cannot be told {told}: say advertise.tubemq-broker with a name or an "
            "IPv4 address",
            WRONG_SETTING,
        )


def _check_reach(door: PlannedDoor, *, insecure: bool) -> None:
    public = [literal.host for literal in door.literals if not is_loopback(literal)]
    if not public:
        return
    if not insecure:
        raise StartError(
            f"the {door.name} door has no TLS and no authentication, and {door.listens} can be "
            "reached from other machines: listen on 127.0.0.1, or say --insecure",
            WRONG_SETTING,
        )
    log.warning("door.insecure", extra={"door": door.name, "address": str(door.listens)})
