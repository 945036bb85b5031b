"""The bounds of the broker's parts, and their values under the names of Kafka's settings.

A node adds the values that only it knows (addresses, directories, limits of its listeners) to
`BrokerValues.live`.
"""

from __future__ import annotations

import msgspec

from trilogue.broker.cursors.committed_offsets import OffsetLimits
from trilogue.broker.cursors.subscription_cursors import SubscriptionLimits
from trilogue.broker.groups.classic.members import GroupSettings
from trilogue.broker.groups.consumer.group import ConsumerGroupSettings
from trilogue.broker.groups.share.group import ShareGroupSettings
from trilogue.broker.groups.streams.group import StreamsGroupSettings
from trilogue.broker.producers.idempotence import ProducerLimits
from trilogue.broker.settings.broker_values import LiveValue
from trilogue.broker.settings.topic_settings import NODE_DEFAULTS
from trilogue.broker.settings.topic_table import FLUSH_COMMIT, FLUSH_INTERVAL
from trilogue.broker.topics.cluster import ClusterLimits
from trilogue.broker.transactions.transaction import TransactionLimits
from trilogue.broker.tubemq.registrations import RegistrationLimits

ASSIGNORS = "uniform,range"
GROUP_PROTOCOLS = "classic,consumer,streams"
MINUTE_MS = 60_000
WINDOWS = ("quota.window.num", "controller.quota.window.num")
WINDOW_SECONDS = ("quota.window.size.seconds", "controller.quota.window.size.seconds")


class BrokerSettings(msgspec.Struct, frozen=True):
    """The bounds and defaults of each part of the broker."""

    cluster: ClusterLimits = msgspec.field(default_factory=ClusterLimits)
    groups: GroupSettings = msgspec.field(default_factory=GroupSettings)
    consumer_groups: ConsumerGroupSettings = msgspec.field(default_factory=ConsumerGroupSettings)
    share_groups: ShareGroupSettings = msgspec.field(default_factory=ShareGroupSettings)
    streams_groups: StreamsGroupSettings = msgspec.field(default_factory=StreamsGroupSettings)
    producers: ProducerLimits = msgspec.field(default_factory=ProducerLimits)
    committed_offsets: OffsetLimits = msgspec.field(default_factory=OffsetLimits)
    subscriptions: SubscriptionLimits = msgspec.field(default_factory=SubscriptionLimits)
    registrations: RegistrationLimits = msgspec.field(default_factory=RegistrationLimits)
    transactions: TransactionLimits = msgspec.field(default_factory=TransactionLimits)
    quota_burst_s: float = 1.0  # what a quota allows at once after a pause, in seconds of its rate

    def live_values(self, node_id: int) -> dict[str, LiveValue]:
        """Return a function per Kafka setting that returns its value; None is Kafka's default."""
        topic, groups = self.cluster.topic, self.groups
        consumer, share, streams = self.consumer_groups, self.share_groups, self.streams_groups
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
            "num.partitions": self.cluster.default_partitions,
            "message.max.bytes": topic.message_size_max,
            "log.retention.ms": topic.retention_ms if own_retention else None,
            "flush": FLUSH_INTERVAL if topic.acks_from_memory else FLUSH_COMMIT,
            "producer.id.expiration.ms": self.producers.expiration_ms,
            "transaction.max.timeout.ms": self.transactions.timeout_max_ms,
            "transactional.id.expiration.ms": self.transactions.expiration_ms,
            "offset.metadata.max.bytes": self.committed_offsets.metadata_size_max,
            "offsets.retention.minutes": groups.offset_retention_ms // MINUTE_MS,
            "offsets.retention.check.interval.ms": groups.offset_check_ms,
            "group.min.session.timeout.ms": groups.session_timeout_min_ms,
            "group.max.session.timeout.ms": groups.session_timeout_max_ms,
            "group.initial.rebalance.delay.ms": groups.initial_delay_ms,
            "group.max.size": groups.size_max,
            "group.coordinator.rebalance.protocols": GROUP_PROTOCOLS,
            "group.consumer.session.timeout.ms": consumer.session_timeout_ms,
            "group.consumer.heartbeat.interval.ms": consumer.heartbeat_interval_ms,
            "group.consumer.max.size": consumer.size_max,
            "group.consumer.assignors": ASSIGNORS,
            "group.consumer.migration.policy": migration,
            "group.share.session.timeout.ms": share.session_timeout_ms,
            "group.share.heartbeat.interval.ms": share.heartbeat_interval_ms,
            "group.share.max.size": share.size_max,
            "group.share.delivery.count.limit": share.delivery_count_limit,
            "group.share.record.lock.duration.ms": share.record_lock_ms,
            "group.share.min.record.lock.duration.ms": share.record_lock_min_ms,
            "group.share.partition.max.record.locks": share.record_locks_max,
            "group.share.max.share.sessions": share.sessions_max,
            "group.streams.session.timeout.ms": streams.session_timeout_ms,
            "group.streams.heartbeat.interval.ms": streams.heartbeat_interval_ms,
            "group.streams.max.size": streams.size_max,
            "group.streams.num.standby.replicas": streams.standby_replicas,
            "group.streams.initial.rebalance.delay.ms": streams.initial_delay_ms,
            **dict.fromkeys(WINDOWS, 1),  # one bucket of that size instead of many short windows
            **dict.fromkeys(WINDOW_SECONDS, max(1, round(self.quota_burst_s))),
            "offsets.topic.replication.factor": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
        }
        return {key: _constant(value) for key, value in values.items()}


def _constant(value: object) -> LiveValue:
    text = None if value is None else str(value)
    return lambda: text
