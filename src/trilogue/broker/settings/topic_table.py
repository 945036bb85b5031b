"""The settings of a topic that clients may send: what each accepts, and its effect.

docs/reference/kafka.md is generated from this table; topic_settings.py computes effective values.
"""

from __future__ import annotations

from functools import partial
from typing import Unpack

from trilogue.broker.settings.setting import (
    DELETE,
    Effect,
    Scope,
    Setting,
    ValueBounds,
    check_cleanup_policy,
    check_format_version,
    check_gzip_level,
    check_replicas,
)
from trilogue.broker.settings.values import INT64_MAX, Kind

DAY_MS = 86_400_000
UNLIMITED_BYTES = -1
DEFAULT_RETENTION_MS = 7 * DAY_MS
DEFAULT_MESSAGE_SIZE_MAX = 1_048_588  # 1 MiB of records and Kafka's 12 bytes before each batch
ENTRY_SIZE_MAX = 16 << 20  # the journal takes no larger entry

CREATE_TIME = "CreateTime"
LOG_APPEND_TIME = "LogAppendTime"

MIN_IN_SYNC = "min.insync.replicas"

FLUSH_COMMIT = "commit"
FLUSH_INTERVAL = "interval"
FLUSH_CHOICES = (FLUSH_COMMIT, FLUSH_INTERVAL)

PRODUCER, UNCOMPRESSED = "producer", "uncompressed"  # as its producer sent it; not compressed
COMPRESSIONS = (UNCOMPRESSED, "zstd", "lz4", "snappy", "gzip", PRODUCER)


def _row(
    effect: Effect,
    key: str,
    kind: Kind,
    default: str,
    doc: str,
    *broker_keys: str,
    **accepted: Unpack[ValueBounds],
) -> Setting:
    return Setting(
        key,
        kind,
        default,
        doc,
        scope=Scope.TOPIC,
        effect=effect,
        broker_keys=broker_keys,
        **accepted,
    )


_effective = partial(_row, Effect.EFFECTIVE)
_no_op = partial(_row, Effect.NO_OP)
_fixed = partial(_row, Effect.FIXED)

_SEGMENTS = "segments hold many topics and are cut by the broker, whatever a topic sets"
_UNDELAYED = "retention and compaction wait for no segment to be full or old"
_INDEX = "the index of a segment is as fine and as large as it needs to be"
_TIERS = "there is no second tier of storage"
_NO_TIER = "it configures a second tier of storage, and there is none"
_THROTTLE = "there are no followers to throttle"
LAGS = (
    ("min.compaction.lag.ms", "max.compaction.lag.ms"),
    ("log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"),
)
_SYNCED = "each append is synced, at once or as `flush` sets, which is stricter than any interval"
_LEVEL = "how hard the broker works where it compresses itself, as `compression.type` sets"
_OLD = "as in Kafka since 3.0 it has no effect: batches are kept in today's format"

TABLE: dict[str, Setting] = {
    row.key: row
    for row in (
        _effective(
            "retention.ms", Kind.LONG, str(DEFAULT_RETENTION_MS),
            "How long messages are kept; -1 for ever. Once set it counts record timestamps.",
            "log.retention.ms", "log.retention.minutes", "log.retention.hours", minimum=-1,
        ),
        _effective(
            "max.message.bytes", Kind.INT, str(DEFAULT_MESSAGE_SIZE_MAX),
            "The largest batch, as sent, that is accepted.", "message.max.bytes", minimum=0,
            maximum=ENTRY_SIZE_MAX,
        ),
        _effective(
            "message.timestamp.type", Kind.STRING, CREATE_TIME,
            "Whether a message's time is its producer's or the broker's.",
            "log.message.timestamp.type", choices=(CREATE_TIME, LOG_APPEND_TIME),
        ),
        _effective(
            "message.timestamp.before.max.ms", Kind.LONG, str(INT64_MAX),
            "How much older than the broker's time the time of a produced message may be.",
            "log.message.timestamp.before.max.ms", minimum=0,
        ),
        _effective(
            "message.timestamp.after.max.ms", Kind.LONG, str(INT64_MAX),
            "How much later than the broker's time the time of a produced message may be.",
            "log.message.timestamp.after.max.ms", minimum=0,
        ),
        _effective(
            "message.timestamp.difference.max.ms", Kind.LONG, str(INT64_MAX),
            "The default of both.", "log.message.timestamp.difference.max.ms",
            minimum=0,
        ),
        _effective(
            "retention.bytes", Kind.LONG, str(UNLIMITED_BYTES),
            "Bytes that a partition keeps at least; older ones are removed, in whole runs. -1: no "
            "limit.",
            "log.retention.bytes", minimum=-1,
        ),
        _effective(
            "compression.type", Kind.STRING, PRODUCER,
            "How batches are kept: `producer`, as they were sent, or in one codec for all.",
            "compression.type", choices=COMPRESSIONS,
        ),
        _effective(
            "compression.gzip.level", Kind.INT, "-1", _LEVEL, "compression.gzip.level", minimum=-1,
            maximum=9, rule=check_gzip_level,
        ),
        _effective(
            "compression.lz4.level", Kind.INT, "9", _LEVEL, "compression.lz4.level", minimum=1,
            maximum=17,
        ),
        _effective(
            "compression.zstd.level", Kind.INT, "3", _LEVEL, "compression.zstd.level",
            minimum=-131_072, maximum=22,
        ),
        _effective(
            "flush", Kind.STRING, FLUSH_COMMIT,
            "When a message is acknowledged: `commit`, it is on disk; `interval`, it is in "
            "memory and will be on disk within `journal.interval`. Readers see what is on "
            "disk.",
            "flush", choices=FLUSH_CHOICES,
        ),
        _effective(
            "cleanup.policy", Kind.LIST, DELETE,
            "How messages are removed: `delete`, by age and size (retention); `compact`, only the "
            "last message of each key stays, and each needs a key; both; or, empty, not at all.",
            "log.cleanup.policy", rule=check_cleanup_policy,
        ),
        _effective(
            "min.cleanable.dirty.ratio", Kind.DOUBLE, "0.5",
            "Compaction begins when this share of a partition's bytes is new since the last time.",
            "log.cleaner.min.cleanable.ratio", minimum=0, maximum=1,
        ),
        _effective(
            "min.compaction.lag.ms", Kind.LONG, "0",
            "How long a message stays after it was appended, whatever follows it.",
            "log.cleaner.min.compaction.lag.ms", minimum=0,
        ),
        _effective(
            "max.compaction.lag.ms", Kind.LONG, str(INT64_MAX),
            "From this age of a new message on compaction begins whatever the ratio is.",
            "log.cleaner.max.compaction.lag.ms", minimum=1,
        ),
        _effective(
            "delete.retention.ms", Kind.LONG, str(DAY_MS),
            "How long a tombstone (a key without a value) stays after it was first compacted.",
            "log.cleaner.delete.retention.ms", minimum=0,
        ),
        _effective(
            "message.downconversion.enable", Kind.BOOLEAN, "true",
            "Whether batches are converted for readers that know older formats only.",
            "log.message.downconversion.enable",
        ),
        _no_op(
            "flush.messages", Kind.LONG, str(INT64_MAX), _SYNCED, "log.flush.interval.messages",
            minimum=1,
        ),
        _no_op("flush.ms", Kind.LONG, str(INT64_MAX), _SYNCED, "log.flush.interval.ms", minimum=0),
        _no_op(
            "segment.bytes", Kind.INT, "1073741824", _UNDELAYED, "log.segment.bytes", minimum=14,
        ),
        _no_op(
            "segment.ms", Kind.LONG, "604800000", _UNDELAYED, "log.roll.ms", "log.roll.hours",
            minimum=1,
        ),
        _no_op(
            "segment.jitter.ms", Kind.LONG, "0", _UNDELAYED, "log.roll.jitter.ms",
            "log.roll.jitter.hours", minimum=0,
        ),
        _no_op(
            "segment.index.bytes", Kind.INT, "10485760", _INDEX, "log.index.size.max.bytes",
            minimum=4,
        ),
        _no_op(
            "index.interval.bytes", Kind.INT, "4096", _INDEX, "log.index.interval.bytes", minimum=0,
        ),
        _no_op("preallocate", Kind.BOOLEAN, "false", _SEGMENTS, "log.preallocate"),
        _no_op(
            "file.delete.delay.ms", Kind.LONG, "60000",
            "files stay for their readers, as `segments.grace` sets",
            "log.segment.delete.delay.ms", minimum=0,
        ),
        _no_op(
            "follower.replication.throttled.replicas", Kind.LIST, "", _THROTTLE,
            rule=check_replicas,
        ),
        _no_op(
            "leader.replication.throttled.replicas", Kind.LIST, "", _THROTTLE, rule=check_replicas,
        ),
        _no_op(
            "unclean.leader.election.enable", Kind.BOOLEAN, "false",
            "there is one copy, so no other leader is ever elected",
            "unclean.leader.election.enable",
        ),
        _no_op(
            "message.format.version", Kind.STRING, "3.0-IV1", _OLD, "log.message.format.version",
            rule=check_format_version,
        ),
        _no_op(
            "local.retention.bytes", Kind.LONG, "-2", _NO_TIER, "log.local.retention.bytes",
            minimum=-2,
        ),
        _no_op(
            "local.retention.ms", Kind.LONG, "-2", _NO_TIER, "log.local.retention.ms", minimum=-2,
        ),
        _no_op("remote.log.copy.disable", Kind.BOOLEAN, "false", _NO_TIER),
        _no_op("remote.log.delete.on.disable", Kind.BOOLEAN, "false", _NO_TIER),
        _fixed("remote.storage.enable", Kind.BOOLEAN, "false", _TIERS),
        _no_op(
            MIN_IN_SYNC, Kind.INT, "1",
            "all replicas that are listed are in sync; more than there are nodes is refused",
            "min.insync.replicas", minimum=1,
        ),
    )
}  # fmt: skip
