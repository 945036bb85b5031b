"""What only a node knows of its Kafka door, under the names of Kafka's settings of a broker.

DescribeConfigs shows them; what clients may say of them while the node runs, it obeys.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from trilogue.broker.kafka_values import BrokerValues
from trilogue.gateway.listen import BACKLOG, Listener
from trilogue.gateway.stream import Limits
from trilogue.node.addresses import Address
from trilogue.node.settings import Settings

# Kafka's name, our setting: whole numbers, milliseconds of durations, bytes of sizes.
NUMBERS = {
    "socket.request.max.bytes": "frames.limit",
    "max.connections": "connections.limit",
    "max.connections.per.ip": "connections.per-address",
    "log.retention.check.interval.ms": "retention.check-every",
    "log.cleaner.backoff.ms": "compaction.check-every",
    "log.cleaner.dedupe.buffer.size": "compaction.memory",
    "log.cleaner.io.max.bytes.per.second": "merge.rate",
    "max.incremental.fetch.session.cache.slots": "kafka.fetch-sessions",
}


def tell_values(values: BrokerValues, settings: Settings, fetch_bytes_max: int) -> None:
    """Let the broker know what the node's own settings come to."""
    told: dict[str, object] = {key: settings.number(own) for key, own in NUMBERS.items()}
    directory = Path(settings.text("data"))
    told |= {
        "auto.create.topics.enable": str(settings.switch("topics.auto-create")).lower(),
        "connections.max.idle.ms": int(Limits().idle_s * 1_000),
        "fetch.max.bytes": fetch_bytes_max,
        "log.dir": directory,
        "log.dirs": directory,
        "socket.listen.backlog.size": BACKLOG,
    }
    values.live.update({key: _constant(str(value)) for key, value in told.items()})


def tell_addresses(values: BrokerValues, bound: str, advertised: Callable[[], Address]) -> None:
    """Let the broker know where its Kafka door is."""
    values.live["listeners"] = _constant(f"PLAINTEXT://{bound}")
    values.live["advertised.listeners"] = lambda: f"PLAINTEXT://{advertised()}"


def obey_limits(values: BrokerValues, listener: Listener) -> None:
    """Let a door have as many connections as was said, now and whenever it is said again."""

    def obey() -> None:
        listener.limit_connections(
            int(values.value("max.connections") or 0),
            int(values.value("max.connections.per.ip") or 0),
        )

    values.listeners.append(obey)
    obey()


def _constant(text: str) -> Callable[[], str]:
    return lambda: text
