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
from trilogue.node.compacting import Compacting
from trilogue.node.settings import Settings

LOOK_EVERY_MIN_S = 0.1  # as `compaction.check-every` has it

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


def obey_values(values: BrokerValues, listener: Listener, compacting: Compacting) -> None:
    """Obey what is said of the door's connections and of compaction, now and whenever it is."""

    def obey() -> None:
        listener.limit_connections(
            int(values.value("max.connections") or 0),
            int(values.value("max.connections.per.ip") or 0),
        )
        said_ms = int(values.value("log.cleaner.backoff.ms") or 0)
        compacting.look_every(max(said_ms / 1_000, LOOK_EVERY_MIN_S))

    values.listeners.append(obey)
    obey()


def _constant(text: str) -> Callable[[], str]:
    return lambda: text
