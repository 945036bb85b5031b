"""The settings of each of several nodes: the same, with ports and an audit log of their own."""

from __future__ import annotations

from trilogue.broker.settings.values import Value
from trilogue.log.directory import FIRST_NODE
from trilogue.node.addresses import Address, parse_address
from trilogue.node.errors import WRONG_SETTING, StartError
from trilogue.node.listeners import OFF
from trilogue.node.settings.table import ALL_LISTENERS, BY_KEY, Settings

PORTS_APART = 100  # of the same listener of two nodes
PORT_MAX = 65_535


def node_settings(settings: Settings, node_id: int) -> Settings:
    """Return the settings of one of `nodes` nodes; StartError if it has no port."""
    changes: dict[str, Value] = {"ready-file": None}
    audit_log = settings.text("access.audit-log")
    if audit_log and node_id != FIRST_NODE:  # each node rotates a file of its own
        changes["access.audit-log"] = f"{audit_log}.node-{node_id}"
    for name in ALL_LISTENERS:
        key, advertise = f"listen.{name}", f"advertise.{name}"
        if settings.text(key) != OFF:
            changes[key] = _moved(settings, key, node_id)
            if advertise in BY_KEY and settings.text(advertise):
                changes[advertise] = _moved(settings, advertise, node_id)
    return settings.replaced(changes, f"node {node_id}")


def check_ports(nodes: dict[int, Settings]) -> None:
    """Refuse nodes of which two would listen at one address: StartError, before anything starts."""
    taken: dict[str, str] = {}
    for node_id, settings in nodes.items():
        for name in ALL_LISTENERS:
            text = settings.text(f"listen.{name}")
            if text == OFF or not parse_address(text).port:
                continue
            who = f"{name} of node {node_id}"
            other = taken.setdefault(text, who)
            if other != who:
                raise StartError(
                    f"{who} and {other} would both listen on {text}: listeners of one node need "
                    f"ports that differ by other numbers than {PORTS_APART}",
                    WRONG_SETTING,
                )


def _moved(settings: Settings, key: str, node_id: int) -> str:
    address = parse_address(settings.text(key))
    port = address.port + PORTS_APART * (node_id - 1) if address.port else 0
    if port > PORT_MAX:
        raise StartError(
            f"{key} ({settings.origin(key)}): node {node_id} would have port {port}", WRONG_SETTING
        )
    return str(Address(address.host, port))
