"""What the broker's own parts were told at the start, under the names of Kafka's settings.

A node adds what only it knows (addresses, directories, limits of its doors): `BrokerValues.live`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trilogue.broker.kafka_values import Live
from trilogue.broker.settings import NODE_DEFAULTS
from trilogue.broker.settings_table import FLUSH_COMMIT, FLUSH_INTERVAL

if TYPE_CHECKING:
    from trilogue.broker.broker import BrokerSettings

ASSIGNORS = "uniform,range"
PROTOCOLS = "classic,consumer"
MINUTE_MS = 60_000
WINDOWS = ("quota.window.num", "controller.quota.window.num")
WINDOW_SECONDS = ("quota.window.size.seconds", "controller.quota.window.size.seconds")


def live_values(settings: BrokerSettings, node_id: int) -> dict[str, Live]:
    """A function for each value; None: Kafka's default."""
    topic, groups = settings.cluster.topic, settings.groups
    consumer = settings.consumer_groups
    migration = {
        (True, True): "bidirectional",
        (True, False): "upgrade",
        (False, True): "downgrade",
        (False, False): "disabled",
    }[consumer.upgrade, consumer.downgrade]
    own_retention = topic.retention_ms != NODE_DEFAULTS.retention_ms
    values: dict[str, object] = {
        "node.id": node_id,
        "broker.id": node_id,
        "process.roles": "broker,controller",
        "num.partitions": settings.cluster.default_partitions,
        "message.max.bytes": topic.message_size_max,
        "log.retention.ms": topic.retention_ms if own_retention else None,
        "flush": FLUSH_INTERVAL if topic.patient else FLUSH_COMMIT,
        "producer.id.expiration.ms": settings.producers.expiration_ms,
        "offset.metadata.max.bytes": settings.cursors.metadata_size_max,
        "offsets.retention.minutes": groups.offset_retention_ms // MINUTE_MS,
        "offsets.retention.check.interval.ms": groups.offset_check_ms,
        "group.min.session.timeout.ms": groups.session_timeout_min_ms,
        "group.max.session.timeout.ms": groups.session_timeout_max_ms,
        "group.initial.rebalance.delay.ms": groups.initial_delay_ms,
        "group.max.size": groups.size_max,
        "group.coordinator.rebalance.protocols": PROTOCOLS,
        "group.consumer.session.timeout.ms": consumer.session_timeout_ms,
        "group.consumer.heartbeat.interval.ms": consumer.heartbeat_interval_ms,
        "group.consumer.max.size": consumer.size_max,
        "group.consumer.assignors": ASSIGNORS,
        "group.consumer.migration.policy": migration,
        **dict.fromkeys(WINDOWS, 1),  # a bucket that holds so much, instead of many short windows
        **dict.fromkeys(WINDOW_SECONDS, max(1, round(settings.quota_burst_s))),
        "offsets.topic.replication.factor": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
    }
    return {key: _constant(value) for key, value in values.items()}


def _constant(value: object) -> Live:
    text = None if value is None else str(value)
    return lambda: text
