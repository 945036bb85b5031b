"""Connects Kafka's broker settings with a node: its values are shown, and changes are applied.

The broker (broker/settings) has the table; only the node knows addresses and limits of listeners.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from trilogue.broker.settings.address_limits import parse_address_limits
from trilogue.broker.settings.broker_values import BrokerValues
from trilogue.gateway.listener import BACKLOG, Listener
from trilogue.gateway.stream import Limits
from trilogue.meta.state import MetaState
from trilogue.node.addresses import Address
from trilogue.node.background.compaction import CompactionPlanner
from trilogue.node.settings.table import Settings

UNLIMITED_RATE = 1e15  # bytes a second; Kafka's default is the largest double
LOOK_EVERY_MIN_S = 0.1  # as `compaction.check-every` has it

# Kafka's name, our setting: whole numbers, milliseconds of durations, bytes of sizes.
NUMBERS = {
    "socket.request.max.bytes": "frames.limit",
    "connections.max.reauth.ms": "kafka.sasl-session",
    "max.connections": "connections.limit",
    "max.connections.per.ip": "connections.per-address",
    "log.retention.check.interval.ms": "retention.check-every",
    "log.cleaner.backoff.ms": "compaction.check-every",
    "log.cleaner.dedupe.buffer.size": "compaction.memory",
    "log.cleaner.io.max.bytes.per.second": "merge.rate",
    "max.incremental.fetch.session.cache.slots": "kafka.fetch-sessions",
    "delegation.token.max.lifetime.ms": "kafka.delegation-token-max-lifetime",
    "delegation.token.expiry.time.ms": "kafka.delegation-token-expiry",
    "delegation.token.expiry.check.interval.ms": "kafka.delegation-token-check-every",
}


def set_node_values(values: BrokerValues, settings: Settings, fetch_bytes_max: int) -> None:
    """Set the values that follow from the node's own settings."""
    constants: dict[str, object] = {key: settings.number(own) for key, own in NUMBERS.items()}
    directory = Path(settings.text("data"))
    constants |= {
        "auto.create.topics.enable": str(settings.switch("topics.auto-create")).lower(),
        "connections.max.idle.ms": int(Limits().idle_s * 1_000),
        "fetch.max.bytes": fetch_bytes_max,
        "log.dir": directory,
        "log.dirs": directory,
        "sasl.enabled.mechanisms": settings.text("kafka.sasl-mechanisms").replace(" ", ""),
        "socket.listen.backlog.size": BACKLOG,
    }
    values.live.update({key: _constant(str(value)) for key, value in constants.items()})


def set_addresses(values: BrokerValues, bound: str, advertised: Callable[[], Address]) -> None:
    """Set the addresses of the Kafka listener."""
    values.live["listeners"] = _constant(f"PLAINTEXT://{bound}")
    values.live["advertised.listeners"] = lambda: f"PLAINTEXT://{advertised()}"


def set_node(values: BrokerValues, state: MetaState, listeners: Mapping[str, str]) -> None:
    """Set what this node is: its process, its slots, its addresses by listener."""
    values.live["trilogue.pid"] = _constant(str(os.getpid()))
    values.live["trilogue.epoch"] = _constant(str(state.node_epoch))
    values.live["trilogue.slots"] = lambda: ",".join(
        str(slot) for slot in state.slots if state.owns(slot)
    )
    values.live["trilogue.listeners"] = lambda: ",".join(
        f"{name}={address}" for name, address in listeners.items()
    )


def follow_values(values: BrokerValues, listener: Listener, compacting: CompactionPlanner) -> None:
    """Apply the limits of connections and of compaction, now and after each change."""

    def apply() -> None:
        listener.limit_connections(
            int(values.value("max.connections") or 0),
            int(values.value("max.connections.per.ip") or 0),
            parse_address_limits(values.value("max.connections.per.ip.overrides") or ""),
        )
        backoff_ms = int(values.value("log.cleaner.backoff.ms") or 0)
        compacting.look_every(max(backoff_ms / 1_000, LOOK_EVERY_MIN_S))
        compacting.map_bytes = int(values.value("log.cleaner.dedupe.buffer.size") or 0)
        rate = float(values.value("log.cleaner.io.max.bytes.per.second") or 0)
        compacting.bytes_per_second = int(rate) if rate < UNLIMITED_RATE else 0

    values.listeners.append(apply)
    apply()


def _constant(text: str) -> Callable[[], str]:
    return lambda: text
