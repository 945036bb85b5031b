"""Applies settings that have changed to a node that serves: what SIGHUP does.

All sources are read again. Settings of `LIVE` are applied at once, and clients stay connected.
Others wait for the next start, and one line of the log names them. After an error in a source
nothing is applied. Certificates, users' files and keys for tokens are read again whenever their
files change; a certificate that cannot be used is logged here at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

from trilogue.node.background.compaction import CompactionPlanner
from trilogue.node.background.merge import MergePlanner
from trilogue.node.background.splits import SplitPlanner
from trilogue.node.errors import StartError
from trilogue.node.logs import start_logging
from trilogue.node.settings.kafka_values import set_node_values
from trilogue.node.settings.table import Settings, SettingsError
from trilogue.node.storage import broker_settings

if TYPE_CHECKING:
    from trilogue.gateway.memory_budget import ConnectionMemory
    from trilogue.node.background.flush import Flusher
    from trilogue.node.background.maintenance import Maintenance
    from trilogue.node.background.retention import Retention
    from trilogue.node.gateways import Gateways
    from trilogue.node.storage import Storage

log = logging.getLogger(__name__)

SOURCES = ("default", "file ", "environment ", "--")  # origins that are read; others a start made


class LiveNode(Protocol):
    """The parts of a node whose settings may change."""

    settings: Settings
    storage: Storage
    memory: ConnectionMemory
    flusher: Flusher
    retention: Retention
    maintenance: Maintenance
    compacting: CompactionPlanner
    gateways: Gateways


async def reload_settings(node: LiveNode, read: Callable[[], Settings]) -> None:
    """Read all sources again, apply what may change, and log a line."""
    wanted = await asyncio.to_thread(read_sources, read)
    if wanted is None:
        return
    settings, applied = keep_fixed(node.settings, wanted)
    for key in applied:
        LIVE[key](node, settings)
    node.settings = settings
    if applied:
        _show_values(node)
    if node.gateways.tls is not None:
        node.gateways.tls.reload()
    log_reload(applied, list_fixed(settings, wanted))


def read_sources(read: Callable[[], Settings]) -> Settings | None:
    """Read all sources again; after an error in one of them log a line and return None."""
    try:
        return read()
    except (SettingsError, StartError) as error:
        log.error("settings.not_read", extra={"problem": str(error)})  # noqa: TRY400
        return None


def log_reload(applied: list[str], fixed: list[str]) -> None:
    """Log which settings were applied, and which the next start applies."""
    level = logging.WARNING if fixed else logging.INFO
    fields = {"applied": ",".join(applied), "at_next_start": ",".join(fixed)}
    log.log(level, "settings.read", extra=fields)


def keep_fixed(current: Settings, wanted: Settings) -> tuple[Settings, list[str]]:
    """Return the current settings with the values of `wanted` that may change, and their keys."""
    keys = [key for key in _list_changed(current, wanted) if key in LIVE]
    return current.taken_from(wanted, keys), keys


def list_fixed(current: Settings, wanted: Settings) -> list[str]:
    """Return the keys whose values differ and that only a start applies."""
    return [key for key in _list_changed(current, wanted) if key not in LIVE]


def _list_changed(current: Settings, wanted: Settings) -> list[str]:
    was = {row.key: given for row, given in current}
    return [
        row.key
        for row, given in wanted
        if given.value != was[row.key].value and was[row.key].origin.startswith(SOURCES)
    ]


def _log_lines(_node: LiveNode, settings: Settings) -> None:
    start_logging(level=settings.text("log.level"), form=settings.text("log.format"))


def _unsent_memory(node: LiveNode, settings: Settings) -> None:
    node.memory.unsent.change_limit(settings.number("connections.unsent-memory"))


def _received_memory(node: LiveNode, settings: Settings) -> None:
    node.memory.received.change_limit(settings.number("connections.received-memory"))


def _connections(node: LiveNode, settings: Settings) -> None:
    """Set the limits of all listeners; those of Kafka obey overrides, which come afterwards."""
    for listener in node.gateways.listeners.values():
        listener.limit_connections(
            settings.number("connections.limit"), settings.number("connections.per-address")
        )


def _flush_rate(node: LiveNode, settings: Settings) -> None:
    node.flusher.bytes_per_second = settings.number("flush.rate")


def _merge_rate(node: LiveNode, settings: Settings) -> None:
    for planner in node.maintenance.planners:
        if isinstance(planner, SplitPlanner | MergePlanner | CompactionPlanner):
            planner.bytes_per_second = settings.number("merge.rate")


def _compaction_memory(node: LiveNode, settings: Settings) -> None:
    node.compacting.map_bytes = settings.number("compaction.memory")


def _compaction_interval(node: LiveNode, settings: Settings) -> None:
    node.compacting.look_every(settings.seconds("compaction.check-every"))


def _retention_interval(node: LiveNode, settings: Settings) -> None:
    node.retention.every_s = settings.seconds("retention.check-every")


def _quota_burst(node: LiveNode, settings: Settings) -> None:
    node.storage.broker.quotas.change_burst(settings.seconds("quotas.burst"))


def _topic_defaults(node: LiveNode, settings: Settings) -> None:
    """Set the retention and the partitions of topics that have none of their own."""
    node.storage.broker.cluster.limits = broker_settings(settings).cluster


def _at_the_end(_node: LiveNode, _settings: Settings) -> None:
    """Do nothing: it is read when it is needed."""


def _show_values(node: LiveNode) -> None:
    """Bring Kafka's names for the settings up to date, and apply overrides of them again."""
    values = node.storage.broker.values
    live = broker_settings(node.settings).live_values(node.storage.meta.state.node_id)
    values.live.update(live)
    if node.gateways.kafka is not None:
        set_node_values(values, node.settings, node.gateways.kafka.settings.fetch_bytes_max)
    values.refresh()


LIVE: Mapping[str, Callable[[LiveNode, Settings], None]] = {
    "log.level": _log_lines,
    "log.format": _log_lines,
    "connections.limit": _connections,
    "connections.per-address": _connections,
    "connections.unsent-memory": _unsent_memory,
    "connections.received-memory": _received_memory,
    "flush.rate": _flush_rate,
    "merge.rate": _merge_rate,
    "compaction.memory": _compaction_memory,
    "compaction.check-every": _compaction_interval,
    "retention.check-every": _retention_interval,
    "quotas.burst": _quota_burst,
    "topics.retention": _topic_defaults,
    "topics.default-partitions": _topic_defaults,
    "shutdown.limit": _at_the_end,
}
"""The settings that may change while a node serves, with what applies them."""
