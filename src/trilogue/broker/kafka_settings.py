"""The table of the settings of a broker that Kafka 3.9 lists, and of a consumer group.

Rows are told as settings of a broker (broker/kafka_values.py says their values). What they are:

- one that says what holds for topics that do not say it themselves: it *acts* or is *met* as the
  topic's own row (settings_table.py) and may be changed while the node runs
- *live*: the node's own settings say it, or it is what the node does; shown, not changed here
- *fixed*: shown with Kafka's default, since nothing here looks at it (kafka_settings_fixed.py)

docs/reference/kafka.md is printed from this table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from trilogue.broker.errors import InvalidSetting
from trilogue.broker.kafka_settings_fixed import PARTS
from trilogue.broker.setting import INT32_MAX, INT64_MAX, Kind, Setting, Standing, integer
from trilogue.broker.settings_table import TABLE as TOPICS

# Kafka's own default where it has none: another setting says it.
_NULL = frozenset(
    {"log.retention.ms", "log.flush.interval.ms", "log.roll.ms", "log.roll.jitter.ms"}
)


def _refuse(why: str) -> Callable[[str, str], str]:
    def check(key: str, _text: str) -> str:
        raise InvalidSetting(f"{key} is not changed while the server runs: {why}")

    return check


def _live(key: str, kind: Kind, default: str | None, why: str) -> Setting:
    null = default is None
    return Setting(key, kind, default or "", _refuse(why), Standing.LIVE, why, null=null)


def _acting(
    key: str, kind: Kind, default: str, check: Callable[[str, str], str], doc: str
) -> Setting:
    return Setting(key, kind, default, check, Standing.ACTS, doc)


def _is_said(row: Setting) -> bool:
    """Whether a topic's setting can be said for all topics; Kafka reads one at its start only."""
    return bool(row.broker_keys) and not row.fixed and row.key != "message.format.version"


def _of_topics(row: Setting) -> Setting:
    """The broker's row that says a topic's setting for all topics that do not say it."""
    key = row.broker_keys[0]
    null = key in _NULL
    default = "" if null else row.default
    return replace(row, key=key, default=default, broker_keys=(), topic=row.key, null=null)


def _fixed(why: str, text: str) -> list[Setting]:
    rows = []
    for line in text.strip().splitlines():
        kind, key, *value = line.split(maxsplit=2)
        default = value[0].strip('"') if value else ""
        check = _refuse(why)
        rows.append(Setting(key, Kind(kind), default, check, Standing.FIXED, why, null=not value))
    return rows


_OUR_GROUPS = "how KIP-848 groups are kept"

BROKER: dict[str, Setting] = {
    row.key: row
    for row in (
        *(_of_topics(row) for row in TOPICS.values() if _is_said(row)),
        _acting(
            "max.connections", Kind.INT, "2147483647", integer(1, INT32_MAX),
            "Connections of this door at a time; at first `connections.limit` says it.",
        ),
        _acting(
            "max.connections.per.ip", Kind.INT, "2147483647", integer(1, INT32_MAX),
            "The same from one address; at first `connections.per-address` says it.",
        ),
        _acting(  # sarama's suite alters a broker by this one
            "log.cleaner.backoff.ms", Kind.LONG, "15000", integer(0, INT64_MAX),
            "How often compacted topics that are due are looked for, 100 at least; at first "
            "`compaction.check-every` says it.",
        ),
        Setting(  # librdkafka's suite alters a broker by this one
            "sasl.kerberos.min.time.before.relogin", Kind.LONG, "60000",
            integer(-INT64_MAX - 1, INT64_MAX), Standing.MET,
            "There is no Kerberos: between two log-ins is as much time as one likes.",
        ),
        _live("node.id", Kind.INT, "-1", "the number of this node, which its data has"),
        _live("broker.id", Kind.INT, "-1", "the number of this node, which its data has"),
        _live("process.roles", Kind.LIST, "", "a node decides and serves"),
        _live("listeners", Kind.STRING, "PLAINTEXT://:9092", "`listen.kafka` says it"),
        _live("advertised.listeners", Kind.STRING, None, "`advertise.kafka` says it"),
        _live("log.dirs", Kind.STRING, None, "`data` says it"),
        _live("log.dir", Kind.STRING, "/tmp/kafka-logs", "`data` says it"),  # noqa: S108
        _live("num.partitions", Kind.INT, "1", "`topics.default-partitions` says it"),
        _live("auto.create.topics.enable", Kind.BOOLEAN, "true", "`topics.auto-create` says it"),
        _live("log.retention.minutes", Kind.INT, None, "`log.retention.ms` says it"),
        _live("log.retention.hours", Kind.INT, "168", "`log.retention.ms` says it"),
        _live(
            "log.retention.check.interval.ms", Kind.LONG, "300000",
            "`retention.check-every` says it",
        ),
        _live(
            "log.cleaner.dedupe.buffer.size", Kind.LONG, "134217728",
            "`compaction.memory` says it",
        ),
        _live(
            "log.cleaner.io.max.bytes.per.second", Kind.DOUBLE, "1.7976931348623157E308",
            "`merge.rate` says it",
        ),
        _live("socket.request.max.bytes", Kind.INT, "104857600", "`frames.limit` says it"),
        _live("socket.listen.backlog.size", Kind.INT, "50", "how many may wait to be let in"),
        _live("connections.max.idle.ms", Kind.LONG, "600000", "how long one may be silent"),
        _live("fetch.max.bytes", Kind.INT, "57671680", "how much one answer to a fetch has"),
        _live(
            "max.incremental.fetch.session.cache.slots", Kind.INT, "1000",
            "`kafka.fetch-sessions` says it",
        ),
        _live(
            "max.request.partition.size.limit", Kind.INT, "2000",
            "how many partitions DescribeTopicPartitions tells at once",
        ),
        _live(
            "producer.id.expiration.ms", Kind.INT, "86400000",
            "how long an idle producer is remembered",
        ),
        _live("offset.metadata.max.bytes", Kind.INT, "4096", "how much may be noted at a position"),
        _live("offsets.retention.minutes", Kind.INT, "10080", "`groups.offset-retention` says it"),
        _live(
            "offsets.retention.check.interval.ms", Kind.LONG, "600000",
            "`groups.offset-check` says it",
        ),
        _live(
            "group.min.session.timeout.ms", Kind.INT, "6000",
            "`groups.session-timeout-min` says it",
        ),
        _live(
            "group.max.session.timeout.ms", Kind.INT, "1800000",
            "`groups.session-timeout-max` says it",
        ),
        _live(
            "group.initial.rebalance.delay.ms", Kind.INT, "3000", "`groups.initial-delay` says it"
        ),
        _live("group.max.size", Kind.INT, "2147483647", "how many members a group may have"),
        _live(
            "group.coordinator.rebalance.protocols", Kind.LIST, "classic",
            "which kinds of groups are served",
        ),
        _live("group.consumer.session.timeout.ms", Kind.INT, "45000", _OUR_GROUPS),
        _live("group.consumer.min.session.timeout.ms", Kind.INT, "45000", _OUR_GROUPS),
        _live("group.consumer.max.session.timeout.ms", Kind.INT, "60000", _OUR_GROUPS),
        _live("group.consumer.heartbeat.interval.ms", Kind.INT, "5000", _OUR_GROUPS),
        _live("group.consumer.min.heartbeat.interval.ms", Kind.INT, "5000", _OUR_GROUPS),
        _live("group.consumer.max.heartbeat.interval.ms", Kind.INT, "15000", _OUR_GROUPS),
        _live("group.consumer.max.size", Kind.INT, "2147483647", _OUR_GROUPS),
        _live(
            "group.consumer.assignors", Kind.LIST,
            "org.apache.kafka.coordinator.group.assignor.UniformAssignor,"
            "org.apache.kafka.coordinator.group.assignor.RangeAssignor",
            _OUR_GROUPS,
        ),
        _live("group.consumer.migration.policy", Kind.STRING, "bidirectional", _OUR_GROUPS),
        _live(
            "offsets.topic.replication.factor", Kind.SHORT, "3", "positions are durable in one copy"
        ),
        _live("transaction.state.log.replication.factor", Kind.SHORT, "3", "there is one copy"),
        _live("transaction.state.log.min.isr", Kind.INT, "2", "there is one copy"),
        *(row for part in PARTS for row in _fixed(*part)),
    )
}  # fmt: skip

GROUPS: dict[str, Setting] = {
    row.key: row
    for row in (
        _acting(
            "consumer.session.timeout.ms", Kind.INT, "45000", integer(1, INT32_MAX),
            "How long a member of a KIP-848 group may be silent.",
        ),
        _acting(
            "consumer.heartbeat.interval.ms", Kind.INT, "5000", integer(1, INT32_MAX),
            "How often a member of a KIP-848 group is told to say that it lives.",
        ),
    )
}  # fmt: skip
"""Settings of one group, which hold for it in place of `group.` and the name."""
