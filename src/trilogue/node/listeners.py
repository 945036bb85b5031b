"""Plans the listeners of a node, and binds their sockets.

The plan is made before storage is opened. An address that another machine can reach is refused
without `insecure` at a listener that has not both TLS and logins. Names are resolved once: the
addresses that are bound are the ones that were checked.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Awaitable, Callable

import msgspec

from trilogue.node.addresses import Address, AddressError, is_loopback, parse_address, resolve
from trilogue.node.errors import WRONG_SETTING, StartError
from trilogue.node.settings.table import ALL_LISTENERS, INTERNAL_LISTENER, Settings

log = logging.getLogger(__name__)

OFF = "off"
# Of an address family or a literal that this machine does not have, although a name resolves to it.
_NOT_HERE = {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}

Bind = Callable[[str, int], Awaitable[tuple[str, int]]]


class ListenerPlan(msgspec.Struct, frozen=True):
    """A listener to open: its address as written, and the literal addresses to bind."""

    name: str
    listens: Address
    literals: tuple[Address, ...]


def plan_listeners(settings: Settings) -> dict[str, ListenerPlan]:
    """Return the listeners to open by name; StartError if an address is invalid or refused."""
    plans: dict[str, ListenerPlan] = {}
    for name in ALL_LISTENERS:
        text = settings.text(f"listen.{name}")
        if text == OFF:
            continue
        try:
            listens = parse_address(text)
            literals = tuple(resolve(listens))
        except AddressError as error:
            origin = settings.origin(f"listen.{name}")
            raise StartError(f"listen.{name} ({origin}): {error}", WRONG_SETTING) from error
        plans[name] = ListenerPlan(name, listens, literals)
        if not is_secured(settings, name):
            _check_reach(plans[name], insecure=settings.switch("insecure"))
    for name in ("tubemq-broker", "tubemq-broker-ssl"):
        if name in plans:
            _check_advertised(plans[name], settings)
    return plans


async def bind_listener(plan: ListenerPlan, bind: Bind) -> Address:
    """Bind every literal address to one port; return the first one with its real port."""
    port = plan.listens.port
    bound: list[Address] = []
    for literal in plan.literals:
        try:
            bound.append(Address(*await bind(literal.host, port)))
        except OSError as error:
            if len(plan.literals) > 1 and error.errno in _NOT_HERE:
                continue
            why = os.strerror(error.errno) if error.errno else str(error)
            if error.errno == errno.EADDRINUSE:
                why += f"; --listen {plan.name}=HOST:PORT gives another port, 0 a free one"
            raise StartError(
                f"{plan.name} cannot listen on {literal.host}:{port}: {why}"
            ) from error
        port = bound[0].port
    if not bound:
        raise StartError(f"{plan.name} cannot listen on {plan.listens}: no such address here")
    return bound[0]


def is_secured(settings: Settings, name: str) -> bool:
    """Whether a listener has TLS, and every client of it a login or a certificate."""
    if name == INTERNAL_LISTENER:
        return has_tls(settings, name)
    if name == "kafka-sasl-ssl":
        return True
    by_certificate = settings.text("tls.client-certificates") == "required"
    if name == "kafka-ssl":
        return by_certificate
    return name.endswith(("-ssl", "https")) and settings.switch("access.authenticate")


def has_tls(settings: Settings, name: str) -> bool:
    """Whether the connections of a listener of Kafka or Pulsar are encrypted."""
    if name == INTERNAL_LISTENER:
        return settings.text("cluster.security-protocol") in {"ssl", "sasl-ssl"}
    return name.endswith("-ssl")


def has_sasl(settings: Settings, name: str) -> bool:
    """Whether clients of a listener log in by SASL."""
    if name == INTERNAL_LISTENER:
        return settings.text("cluster.security-protocol") in {"sasl", "sasl-ssl"}
    return name in {"kafka-sasl", "kafka-sasl-ssl"}


def _check_advertised(plan: ListenerPlan, settings: Settings) -> None:
    """Refuse an IPv6 address: a TubeMQ master sends `brokerId:host:port` to clients."""
    key = f"advertise.{plan.name}"
    setting = settings.text(key)
    address = parse_address(setting) if setting else plan.listens
    if ":" in address.host and address.host != "::":  # for ::, this machine's name is sent
        raise StartError(
            f"TubeMQ clients cannot be given {address}: set {key} to a name or an IPv4 address",
            WRONG_SETTING,
        )


def _check_reach(plan: ListenerPlan, *, insecure: bool) -> None:
    public = [literal.host for literal in plan.literals if not is_loopback(literal)]
    if not public:
        return
    if not insecure:
        raise StartError(
            f"the {plan.name} listener has not both TLS and logins, and {plan.listens} can be "
            "reached from other machines: listen on 127.0.0.1, or set --insecure",
            WRONG_SETTING,
        )
    log.warning("listener.insecure", extra={"listener": plan.name, "address": str(plan.listens)})
