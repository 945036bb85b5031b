"""The settings of a broker that Kafka 3.9 lists, and the settings of a consumer group.

broker_values.py computes their values. There are three kinds of rows:

- a row that holds for topics without an override: *effective* or *no-op* as the topic's own row
  (topic_table.py), and altered while the node runs
- *read-only*: what the node's own settings or the node itself decide; shown, not altered here
- *fixed*: shown with Kafka's default, because nothing here depends on it (broker_table_fixed.py)

docs/reference/kafka.md is generated from this table.
"""

from __future__ import annotations

from typing import Unpack

from msgspec.structs import replace

from trilogue.broker.settings.address_limits import check_address_limits
from trilogue.broker.settings.broker_table_fixed import PARTS
from trilogue.broker.settings.offset_reset import check_offset_reset
from trilogue.broker.settings.setting import Effect, Scope, Setting, ValueBounds
from trilogue.broker.settings.topic_table import TABLE as TOPICS
from trilogue.broker.settings.values import Kind

# Kafka has no default of its own for these: another setting holds.
_WITHOUT_DEFAULT = frozenset(
    {"log.retention.ms", "log.flush.interval.ms", "log.roll.ms", "log.roll.jitter.ms"}
)


REPLICATION_THROTTLES = (
    "leader.replication.throttled.rate",
    "follower.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
)

_NO_POOLS = "One event loop serves all connections, and helpers of their own do slow work."
_COMPACTION = "Compaction takes as much as `compaction.memory` and `merge.rate` allow."
POOLS = (  # which administrators of Kafka resize while a broker runs; with the least value of each
    ("num.io.threads", Kind.INT, "8", 1, _NO_POOLS),
    ("num.network.threads", Kind.INT, "3", 1, _NO_POOLS),
    ("background.threads", Kind.INT, "10", 1, _NO_POOLS),
    ("num.recovery.threads.per.data.dir", Kind.INT, "1", 1, _NO_POOLS),
    ("num.replica.fetchers", Kind.INT, "1", 1, "There are no followers that fetch."),
    ("log.cleaner.threads", Kind.INT, "1", 1, _COMPACTION),
    ("log.cleaner.io.buffer.size", Kind.INT, "524288", 1, _COMPACTION),
    ("log.cleaner.io.buffer.load.factor", Kind.DOUBLE, "0.9", 0, _COMPACTION),
)


def _dynamic(
    key: str,
    kind: Kind,
    default: str,
    doc: str,
    *,
    effect: Effect = Effect.EFFECTIVE,
    scope: Scope = Scope.BROKER,
    **accepted: Unpack[ValueBounds],
) -> Setting:
    return Setting(key, kind, default, doc, effect=effect, scope=scope, **accepted)


def _read_only(
    key: str, kind: Kind, default: str | None, why: str, *, effect: Effect = Effect.READ_ONLY
) -> Setting:
    nullable = default is None
    return Setting(
        key, kind, default or "", why, effect=effect, scope=Scope.BROKER, nullable=nullable
    )


def _has_broker_key(row: Setting) -> bool:
    """Whether a topic's setting can be set for all topics. One of them is static in Kafka."""
    return bool(row.broker_keys) and not row.is_read_only and row.key != "message.format.version"


def _from_topic_row(row: Setting) -> Setting:
    """Return the broker's row that holds for topics without an override of this setting."""
    key = row.broker_keys[0]
    nullable = key in _WITHOUT_DEFAULT
    return replace(
        row,
        key=key,
        default="" if nullable else row.default,
        broker_keys=(),
        topic_key=row.key,
        nullable=nullable,
        scope=Scope.BROKER,
    )


def _fixed_rows(why: str, text: str) -> list[Setting]:
    rows = []
    for line in text.strip().splitlines():
        kind, key, *value = line.split(maxsplit=2)
        default = value[0].strip('"') if value else None
        rows.append(_read_only(key, Kind(kind), default, why, effect=Effect.FIXED))
    return rows


_OUR_GROUPS = "how KIP-848 groups are kept"
_SHARE_GROUPS = "how share groups are kept; settings of a group override some"
_SHARE_ROWS = (
    ("assignors", Kind.LIST, "simple"),
    ("delivery.count.limit", Kind.INT, "5"),
    ("min.delivery.count.limit", Kind.INT, "2"),
    ("max.delivery.count.limit", Kind.INT, "10"),
    ("heartbeat.interval.ms", Kind.INT, "5000"),
    ("min.heartbeat.interval.ms", Kind.INT, "5000"),
    ("max.heartbeat.interval.ms", Kind.INT, "15000"),
    ("session.timeout.ms", Kind.INT, "45000"),
    ("min.session.timeout.ms", Kind.INT, "45000"),
    ("max.session.timeout.ms", Kind.INT, "60000"),
    ("record.lock.duration.ms", Kind.INT, "30000"),
    ("min.record.lock.duration.ms", Kind.INT, "15000"),
    ("max.record.lock.duration.ms", Kind.INT, "60000"),
    ("partition.max.record.locks", Kind.INT, "2000"),
    ("min.partition.max.record.locks", Kind.INT, "100"),
    ("max.partition.max.record.locks", Kind.INT, "4000"),
    ("max.share.sessions", Kind.INT, "2000"),
    ("max.size", Kind.INT, "200"),
)

_STREAMS_GROUPS = "how streams groups are kept; settings of a group override some"
_STREAMS_ROWS = (
    ("heartbeat.interval.ms", Kind.INT, "5000"),
    ("min.heartbeat.interval.ms", Kind.INT, "5000"),
    ("max.heartbeat.interval.ms", Kind.INT, "15000"),
    ("session.timeout.ms", Kind.INT, "45000"),
    ("min.session.timeout.ms", Kind.INT, "45000"),
    ("max.session.timeout.ms", Kind.INT, "60000"),
    ("max.size", Kind.INT, "2147483647"),
    ("num.standby.replicas", Kind.INT, "0"),
    ("max.standby.replicas", Kind.INT, "2"),
    ("initial.rebalance.delay.ms", Kind.INT, "3000"),
)

BROKER: dict[str, Setting] = {
    row.key: row
    for row in (
        *(_from_topic_row(row) for row in TOPICS.values() if _has_broker_key(row)),
        _dynamic(
            "max.connections", Kind.INT, "2147483647",
            "Connections of this listener at a time; at first `connections.limit` sets it.",
            minimum=1,
        ),
        _dynamic(
            "max.connections.per.ip", Kind.INT, "2147483647",
            "The same from one address; at first `connections.per-address` sets it.", minimum=1,
        ),
        _dynamic(
            "max.connections.per.ip.overrides", Kind.STRING, "",
            "The same from single addresses, ADDRESS:CONNECTIONS with commas between.",
            rule=check_address_limits,
        ),
        # sarama's suite alters a broker by this one
        _dynamic(
            "log.cleaner.backoff.ms", Kind.LONG, "15000",
            "How often the broker looks for compacted topics that are due, 100 at least; at "
            "first `compaction.check-every` sets it.",
            minimum=0,
        ),
        _dynamic(
            "log.cleaner.dedupe.buffer.size", Kind.LONG, "134217728",
            "Memory for the keys of a partition that is compacted; at first `compaction.memory` "
            "sets it.",
            minimum=64 << 10, maximum=16 << 30,
        ),
        _dynamic(
            "log.cleaner.io.max.bytes.per.second", Kind.DOUBLE, "1.7976931348623157E308",
            "Bytes a second that a compaction may read; at first `merge.rate` sets it.", minimum=1,
        ),
        _dynamic(
            "producer.id.expiration.ms", Kind.INT, "86400000",
            "How long an idle producer is remembered.", minimum=1,
        ),
        # librdkafka's suite alters a broker by this one
        _dynamic(
            "sasl.kerberos.min.time.before.relogin", Kind.LONG, "60000",
            "There is no Kerberos: a client logs in when it likes.", effect=Effect.NO_OP,
        ),
        *(
            _dynamic(key, kind, default, doc, effect=Effect.NO_OP, minimum=least)
            for key, kind, default, least, doc in POOLS
        ),
        # kafka-reassign-partitions --throttle sets these, and --verify removes them
        *(
            _dynamic(
                key, Kind.LONG, "9223372036854775807", "There are no followers to throttle.",
                effect=Effect.NO_OP, minimum=0,
            )
            for key in REPLICATION_THROTTLES
        ),
        _read_only("node.id", Kind.INT, "-1", "the number of this node, which its data has"),
        _read_only("broker.id", Kind.INT, "-1", "the number of this node, which its data has"),
        _read_only("trilogue.pid", Kind.LONG, "0", "the process of this node"),
        _read_only("trilogue.epoch", Kind.LONG, "0", "one more with each start of this node"),
        _read_only("trilogue.slots", Kind.LIST, "", "which slots this node owns"),
        _read_only("trilogue.listeners", Kind.LIST, "", "where clients reach this node"),
        _read_only("trilogue.status", Kind.LIST, "", "what `trilogue nodes describe` shows"),
        _read_only("process.roles", Kind.LIST, "", "a node decides and serves"),
        _read_only("listeners", Kind.STRING, "PLAINTEXT://:9092", "`listen.kafka` sets it"),
        _read_only("advertised.listeners", Kind.STRING, None, "`advertise.kafka` sets it"),
        _read_only("log.dirs", Kind.STRING, None, "`data` sets it"),
        _read_only("log.dir", Kind.STRING, "/tmp/kafka-logs", "`data` sets it"),  # noqa: S108
        _read_only("num.partitions", Kind.INT, "1", "`topics.default-partitions` sets it"),
        _read_only(
            "auto.create.topics.enable", Kind.BOOLEAN, "true", "`topics.auto-create` sets it",
        ),
        _read_only("log.retention.minutes", Kind.INT, None, "`log.retention.ms` sets it"),
        _read_only("log.retention.hours", Kind.INT, "168", "`log.retention.ms` sets it"),
        _read_only(
            "log.retention.check.interval.ms", Kind.LONG, "300000",
            "`retention.check-every` sets it",
        ),
        _read_only("socket.request.max.bytes", Kind.INT, "104857600", "`frames.limit` sets it"),
        _read_only(
            "socket.listen.backlog.size", Kind.INT, "50",
            "how many connections may wait to be accepted",
        ),
        _read_only(
            "connections.max.idle.ms", Kind.LONG, "600000", "how long a connection may be silent",
        ),
        _read_only(
            "connections.max.reauth.ms", Kind.LONG, "0", "`kafka.sasl-session` sets it",
        ),
        _read_only(
            "sasl.enabled.mechanisms", Kind.LIST, "GSSAPI", "`kafka.sasl-mechanisms` sets it",
        ),
        _read_only("fetch.max.bytes", Kind.INT, "57671680", "how much one answer to a fetch has"),
        _read_only(
            "max.incremental.fetch.session.cache.slots", Kind.INT, "1000",
            "`kafka.fetch-sessions` sets it",
        ),
        _read_only(
            "max.request.partition.size.limit", Kind.INT, "2000",
            "how many partitions one DescribeTopicPartitions response holds",
        ),
        _read_only(
            "offset.metadata.max.bytes", Kind.INT, "4096", "how much may be noted at a position",
        ),
        _read_only(
            "offsets.retention.minutes", Kind.INT, "10080", "`groups.offset-retention` sets it",
        ),
        _read_only(
            "offsets.retention.check.interval.ms", Kind.LONG, "600000",
            "`groups.offset-check` sets it",
        ),
        _read_only(
            "group.min.session.timeout.ms", Kind.INT, "6000",
            "`groups.session-timeout-min` sets it",
        ),
        _read_only(
            "group.max.session.timeout.ms", Kind.INT, "1800000",
            "`groups.session-timeout-max` sets it",
        ),
        _read_only(
            "group.initial.rebalance.delay.ms", Kind.INT, "3000", "`groups.initial-delay` sets it",
        ),
        _read_only(
            "delegation.token.max.lifetime.ms", Kind.LONG, "604800000",
            "`kafka.delegation-token-max-lifetime` sets it",
        ),
        _read_only(
            "delegation.token.expiry.time.ms", Kind.LONG, "86400000",
            "`kafka.delegation-token-expiry` sets it",
        ),
        _read_only(
            "delegation.token.expiry.check.interval.ms", Kind.LONG, "3600000",
            "`kafka.delegation-token-check-every` sets it",
        ),
        _read_only("group.max.size", Kind.INT, "2147483647", "how many members a group may have"),
        _read_only(
            "group.coordinator.rebalance.protocols", Kind.LIST, "classic",
            "which kinds of groups are served",
        ),
        _read_only("group.consumer.session.timeout.ms", Kind.INT, "45000", _OUR_GROUPS),
        _read_only("group.consumer.min.session.timeout.ms", Kind.INT, "45000", _OUR_GROUPS),
        _read_only("group.consumer.max.session.timeout.ms", Kind.INT, "60000", _OUR_GROUPS),
        _read_only("group.consumer.heartbeat.interval.ms", Kind.INT, "5000", _OUR_GROUPS),
        _read_only("group.consumer.min.heartbeat.interval.ms", Kind.INT, "5000", _OUR_GROUPS),
        _read_only("group.consumer.max.heartbeat.interval.ms", Kind.INT, "15000", _OUR_GROUPS),
        _read_only("group.consumer.max.size", Kind.INT, "2147483647", _OUR_GROUPS),
        _read_only(
            "group.consumer.assignors", Kind.LIST,
            "org.apache.kafka.coordinator.group.assignor.UniformAssignor,"
            "org.apache.kafka.coordinator.group.assignor.RangeAssignor",
            _OUR_GROUPS,
        ),
        _read_only("group.consumer.migration.policy", Kind.STRING, "bidirectional", _OUR_GROUPS),
        *(
            _read_only(f"group.share.{key}", kind, default, _SHARE_GROUPS)
            for key, kind, default in _SHARE_ROWS
        ),
        *(
            _read_only(f"group.streams.{key}", kind, default, _STREAMS_GROUPS)
            for key, kind, default in _STREAMS_ROWS
        ),
        _read_only(
            "offsets.topic.replication.factor", Kind.SHORT, "3",
            "reported as 1: positions are durable in one copy",
        ),
        _read_only(
            "transaction.state.log.replication.factor", Kind.SHORT, "3",
            "reported as 1: there is one copy",
        ),
        _read_only(
            "transaction.state.log.min.isr", Kind.INT, "2", "reported as 1: there is one copy",
        ),
        _read_only(
            "transaction.max.timeout.ms", Kind.INT, "900000", "the longest that one may take"
        ),
        _read_only(
            "transactional.id.expiration.ms",
            Kind.INT,
            "604800000",
            "an id that is not used for this long is forgotten",
        ),
        *(row for part in PARTS for row in _fixed_rows(*part)),
    )
}  # fmt: skip

GROUPS: dict[str, Setting] = {
    row.key: row
    for row in (
        _dynamic(
            "consumer.session.timeout.ms", Kind.INT, "45000",
            "How long a member of a KIP-848 group may be silent.", minimum=1, scope=Scope.GROUP,
        ),
        _dynamic(
            "consumer.heartbeat.interval.ms", Kind.INT, "5000",
            "How often a member of a KIP-848 group sends a heartbeat.", minimum=1,
            scope=Scope.GROUP,
        ),
        _dynamic(
            "share.session.timeout.ms", Kind.INT, "45000",
            "How long a member of a share group may be silent.", minimum=1, scope=Scope.GROUP,
        ),
        _dynamic(
            "share.heartbeat.interval.ms", Kind.INT, "5000",
            "How often a member of a share group sends a heartbeat.", minimum=1,
            scope=Scope.GROUP,
        ),
        _dynamic(
            "share.record.lock.duration.ms", Kind.INT, "30000",
            "How long a record that a member acquired is locked for it.", minimum=1,
            scope=Scope.GROUP,
        ),
        _dynamic(
            "share.delivery.count.limit", Kind.INT, "5",
            "How often a record is delivered at most.", minimum=1, scope=Scope.GROUP,
        ),
        _dynamic(
            "share.partition.max.record.locks", Kind.INT, "2000",
            "With so many records of a partition in flight no new ones are acquired.",
            minimum=1, scope=Scope.GROUP,
        ),
        _dynamic(
            "share.auto.offset.reset", Kind.STRING, "latest",
            "Where a share group begins to read a partition: `latest`, `earliest`, or "
            "`by_duration:` with a duration in ISO 8601.",
            rule=check_offset_reset, scope=Scope.GROUP,
        ),
        _dynamic(
            "share.isolation.level", Kind.STRING, "read_uncommitted",
            "Whether a share group reads records of transactions before they are committed.",
            choices=("read_committed", "read_uncommitted"), scope=Scope.GROUP,
        ),
        _dynamic(
            "share.renew.acknowledge.enable", Kind.BOOLEAN, "true",
            "Whether members of a share group may renew the locks of records.",
            scope=Scope.GROUP,
        ),
        _dynamic(
            "streams.session.timeout.ms", Kind.INT, "45000",
            "How long a member of a streams group may be silent.", minimum=1, scope=Scope.GROUP,
        ),
        _dynamic(
            "streams.heartbeat.interval.ms", Kind.INT, "5000",
            "How often a member of a streams group sends a heartbeat.", minimum=1,
            scope=Scope.GROUP,
        ),
        _dynamic(
            "streams.num.standby.replicas", Kind.INT, "0",
            "How many standby copies a task with stores has.", minimum=0, maximum=2,
            scope=Scope.GROUP,
        ),
        _dynamic(
            "streams.initial.rebalance.delay.ms", Kind.INT, "3000",
            "How long a new streams group waits for more members before tasks are assigned.",
            minimum=0, scope=Scope.GROUP,
        ),
    )
}  # fmt: skip
"""Settings of one group; each overrides the broker's setting `group.` and its key."""
