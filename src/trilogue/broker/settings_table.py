"""The table of the settings that a topic may have: what each means and what we do about it.

Standing and checks are explained in setting.py, what a topic's settings come to in settings.py.
The reference in docs/reference/kafka.md is printed from this table.
"""

from __future__ import annotations

from collections.abc import Callable

from trilogue.broker.setting import (
    DELETE,
    INT32_MAX,
    INT64_MAX,
    Kind,
    Setting,
    Standing,
    boolean,
    choice,
    format_version,
    gzip_level,
    integer,
    only,
    policy,
    ratio,
    replicas,
)

DAY_MS = 86_400_000
UNLIMITED_BYTES = -1
DEFAULT_RETENTION_MS = 7 * DAY_MS
DEFAULT_MESSAGE_SIZE_MAX = 1_048_588  # 1 MiB of records and Kafka's 12 bytes before each batch
ENTRY_SIZE_MAX = 16 << 20  # the journal takes no larger entry

CREATE_TIME = "CreateTime"
LOG_APPEND_TIME = "LogAppendTime"

FLUSH_COMMIT = "commit"
FLUSH_INTERVAL = "interval"
FLUSH_CHOICES = (FLUSH_COMMIT, FLUSH_INTERVAL)

PRODUCER, UNCOMPRESSED = "producer", "uncompressed"  # as its producer sent it; not compressed
COMPRESSIONS = (UNCOMPRESSED, "zstd", "lz4", "snappy", "gzip", PRODUCER)


def _acting(
    key: str, kind: Kind, default: str, check: Callable[[str, str], str], doc: str, *of_broker: str
) -> Setting:
    return Setting(key, kind, default, check, Standing.ACTS, doc, of_broker)


def _met(
    key: str, kind: Kind, default: str, check: Callable[[str, str], str], why: str, *of_broker: str
) -> Setting:
    return Setting(key, kind, default, check, Standing.MET, why, of_broker)


def _still(key: str, kind: Kind, value: str, why: str, *of_broker: str) -> Setting:
    return Setting(key, kind, value, only(value, why), Standing.FIXED, why, of_broker)


_SEGMENTS = "segments hold many topics and are cut by the broker, whatever a topic says"
_UNDELAYED = "retention and compaction wait for no segment to be full or old"
_INDEX = "the index of a segment is as fine and as large as it needs to be"
_TIERS = "there is no second tier of storage"
_NO_TIER = "it says how a second tier of storage is used, and there is none"
_THROTTLE = "there are no followers to throttle"
LAGS = (
    ("min.compaction.lag.ms", "max.compaction.lag.ms"),
    ("log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"),
)
_SYNCED = "each append is synced, at once or as `flush` says, which is stricter than any interval"
_LEVEL = "how hard the broker works where it compresses itself, as `compression.type` says"
_OLD = "as in Kafka since 3.0 it says nothing: batches are kept in today's format"
_LONG = integer(0, INT64_MAX)
_INT = integer(0, INT32_MAX)

TABLE: dict[str, Setting] = {
    row.key: row
    for row in (
        _acting(
            "retention.ms", Kind.LONG, str(DEFAULT_RETENTION_MS), integer(-1, INT64_MAX),
            "How long messages are kept; -1 for ever. Once set it counts record timestamps.",
            "log.retention.ms", "log.retention.minutes", "log.retention.hours",
        ),
        _acting(
            "max.message.bytes", Kind.INT, str(DEFAULT_MESSAGE_SIZE_MAX),
            integer(0, ENTRY_SIZE_MAX),
            "The largest batch, as sent, that is accepted.",
            "message.max.bytes",
        ),
        _acting(
            "message.timestamp.type", Kind.STRING, CREATE_TIME,
            choice(CREATE_TIME, LOG_APPEND_TIME),
            "Whether a message's time is its producer's or the broker's.",
            "log.message.timestamp.type",
        ),
        _acting(
            "message.timestamp.before.max.ms", Kind.LONG, str(INT64_MAX), _LONG,
            "How much older than the broker's time the time of a produced message may be.",
            "log.message.timestamp.before.max.ms",
        ),
        _acting(
            "message.timestamp.after.max.ms", Kind.LONG, str(INT64_MAX), _LONG,
            "How much later than the broker's time the time of a produced message may be.",
            "log.message.timestamp.after.max.ms",
        ),
        _acting(
            "message.timestamp.difference.max.ms", Kind.LONG, str(INT64_MAX), _LONG,
            "Both of these where they are not set.",
            "log.message.timestamp.difference.max.ms",
        ),
        _acting(
            "retention.bytes", Kind.LONG, str(UNLIMITED_BYTES), integer(-1, INT64_MAX),
            "Bytes that a partition keeps at least; older ones go, in whole runs. -1: no limit.",
            "log.retention.bytes",
        ),
        _acting(
            "compression.type", Kind.STRING, PRODUCER, choice(*COMPRESSIONS),
            "How batches are kept: `producer`, as they were sent, or in one codec for all.",
            "compression.type",
        ),
        _acting(
            "compression.gzip.level", Kind.INT, "-1", gzip_level, _LEVEL, "compression.gzip.level"
        ),
        _acting(
            "compression.lz4.level", Kind.INT, "9", integer(1, 17), _LEVEL, "compression.lz4.level"
        ),
        _acting(
            "compression.zstd.level", Kind.INT, "3", integer(-131_072, 22), _LEVEL,
            "compression.zstd.level",
        ),
        _acting(
            "flush", Kind.STRING, FLUSH_COMMIT, choice(*FLUSH_CHOICES),
            "When a message is acknowledged: `commit`, it is on disk; `interval`, it is in memory "
            "and will be on disk within `journal.interval`. Readers see what is on disk.",
            "flush",
        ),
        _acting(
            "cleanup.policy", Kind.LIST, DELETE, policy,
            "What makes room: `delete`, old messages go (retention); `compact`, of messages with "
            "one key only the last one stays, and each needs a key; both; or, empty, nothing.",
            "log.cleanup.policy",
        ),
        _acting(
            "min.cleanable.dirty.ratio", Kind.DOUBLE, "0.5", ratio,
            "Compaction begins when this share of a partition's bytes is new since the last time.",
            "log.cleaner.min.cleanable.ratio",
        ),
        _acting(
            "min.compaction.lag.ms", Kind.LONG, "0", _LONG,
            "How long a message stays after it was appended, whatever follows it.",
            "log.cleaner.min.compaction.lag.ms",
        ),
        _acting(
            "max.compaction.lag.ms", Kind.LONG, str(INT64_MAX), integer(1, INT64_MAX),
            "From this age of a new message on compaction begins whatever the ratio is.",
            "log.cleaner.max.compaction.lag.ms",
        ),
        _acting(
            "delete.retention.ms", Kind.LONG, str(DAY_MS), _LONG,
            "How long a tombstone (a key without a value) stays after it was first compacted.",
            "log.cleaner.delete.retention.ms",
        ),
        _acting(
            "message.downconversion.enable", Kind.BOOLEAN, "true", boolean,
            "Whether batches are converted for readers that know older formats only.",
            "log.message.downconversion.enable",
        ),
        _met(
            "flush.messages", Kind.LONG, str(INT64_MAX), integer(1, INT64_MAX), _SYNCED,
            "log.flush.interval.messages",
        ),
        _met("flush.ms", Kind.LONG, str(INT64_MAX), _LONG, _SYNCED, "log.flush.interval.ms"),
        _met(
            "segment.bytes", Kind.INT, "1073741824", integer(14, INT32_MAX), _UNDELAYED,
            "log.segment.bytes",
        ),
        _met(
            "segment.ms", Kind.LONG, "604800000", integer(1, INT64_MAX), _UNDELAYED,
            "log.roll.ms", "log.roll.hours",
        ),
        _met(
            "segment.jitter.ms", Kind.LONG, "0", _LONG, _UNDELAYED,
            "log.roll.jitter.ms", "log.roll.jitter.hours",
        ),
        _met(
            "segment.index.bytes", Kind.INT, "10485760", integer(4, INT32_MAX), _INDEX,
            "log.index.size.max.bytes",
        ),
        _met(
            "index.interval.bytes", Kind.INT, "4096", _INT, _INDEX, "log.index.interval.bytes"
        ),
        _met("preallocate", Kind.BOOLEAN, "false", boolean, _SEGMENTS, "log.preallocate"),
        _met(
            "file.delete.delay.ms", Kind.LONG, "60000", _LONG,
            "files stay for those who read them, as `segments.grace` says",
            "log.segment.delete.delay.ms",
        ),
        _met("follower.replication.throttled.replicas", Kind.LIST, "", replicas, _THROTTLE),
        _met("leader.replication.throttled.replicas", Kind.LIST, "", replicas, _THROTTLE),
        _met(
            "unclean.leader.election.enable", Kind.BOOLEAN, "false", boolean,
            "there is one copy, so nobody else is ever elected",
            "unclean.leader.election.enable",
        ),
        _met(
            "message.format.version", Kind.STRING, "3.0-IV1", format_version, _OLD,
            "log.message.format.version",
        ),
        _met(
            "local.retention.bytes", Kind.LONG, "-2", integer(-2, INT64_MAX), _NO_TIER,
            "log.local.retention.bytes",
        ),
        _met(
            "local.retention.ms", Kind.LONG, "-2", integer(-2, INT64_MAX), _NO_TIER,
            "log.local.retention.ms",
        ),
        _met("remote.log.copy.disable", Kind.BOOLEAN, "false", boolean, _NO_TIER),
        _met("remote.log.delete.on.disable", Kind.BOOLEAN, "false", boolean, _NO_TIER),
        _still("remote.storage.enable", Kind.BOOLEAN, "false", _TIERS),
        _still(
            "min.insync.replicas", Kind.INT, "1", "there is one durable copy",
            "min.insync.replicas",
        ),
    )
}  # fmt: skip
