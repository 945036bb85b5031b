"""The settings of one topic: one table of every name a client may send, and what we do about it.

A setting either acts (we enforce whatever value it takes), or it is *fixed*: the value we in effect
enforce is accepted, any other refused with a sentence that says why. Nothing is stored that nothing
obeys. `flush.messages` and `flush.ms` are a special case: every append is synced before it is
acknowledged, or soon after, so any interval a client may ask for is kept.

`flush` is ours: `commit` (an acknowledged message is on disk) or `interval` (acknowledged from
memory, on disk within some milliseconds; a crash may lose what was acknowledged last).

Retention has two faces. Without a setting a topic keeps 7 days by the time of the *append*, which
is safe for a replay of old data; `retention.ms`, once set, counts the timestamps of the records,
as Kafka does. That is why an explicit 604800000 is not the same as the default.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

from trilogue.broker.errors import InvalidSetting

DAY_MS = 86_400_000
FOREVER_MS = -1
UNLIMITED_BYTES = -1
INT64_MAX = 2**63 - 1
DEFAULT_RETENTION_MS = 7 * DAY_MS
DEFAULT_MESSAGE_SIZE_MAX = 1_048_588  # 1 MiB of records and Kafka's 12 bytes before each batch
ENTRY_SIZE_MAX = 16 << 20  # the journal takes no larger entry

CREATE_TIME = "CreateTime"
LOG_APPEND_TIME = "LogAppendTime"

FLUSH_COMMIT = "commit"
FLUSH_INTERVAL = "interval"
FLUSH_CHOICES = (FLUSH_COMMIT, FLUSH_INTERVAL)


class Kind(Enum):
    """The type of a setting's value, as administration requests name it."""

    BOOLEAN = "boolean"
    STRING = "string"
    INT = "int"
    LONG = "long"
    DOUBLE = "double"
    LIST = "list"


@dataclass(frozen=True, slots=True)
class Setting:
    """One row: `check` returns the value as it is kept, or raises InvalidSetting."""

    key: str
    kind: Kind
    default: str
    check: Callable[[str, str], str]
    acts: bool
    doc: str


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """What a topic's settings mean, ready for the hot path."""

    retention_ms: int = DEFAULT_RETENTION_MS  # -1 = for ever
    retention_by_record_time: bool = False  # explicit retention.ms counts record timestamps
    retention_bytes: int = UNLIMITED_BYTES  # of a partition; -1 = no limit
    message_size_max: int = DEFAULT_MESSAGE_SIZE_MAX
    log_append_time: bool = False
    patient: bool = False  # acknowledged from memory, durable a little later


def _integer(low: int, high: int) -> Callable[[str, str], str]:
    def check(key: str, text: str) -> str:
        try:
            value = int(text.strip()) if text.isascii() and "_" not in text else None
        except ValueError:
            value = None
        if value is None or not low <= value <= high:
            raise InvalidSetting(f"{key}: an integer from {low} to {high} is needed")
        return str(value)

    return check


def _choice(*choices: str) -> Callable[[str, str], str]:
    def check(key: str, text: str) -> str:
        value = text.strip()
        if value not in choices:
            raise InvalidSetting(f"{key}: one of {', '.join(choices)} is needed")
        return value

    return check


def _fixed(value: str, why: str, *aliases: str) -> Callable[[str, str], str]:
    accepted = {value, *aliases}

    def check(key: str, text: str) -> str:
        if text.strip().lower() not in accepted:
            raise InvalidSetting(f"{key}: only {value!r} is served: {why}")
        return value

    return check


def _acting(
    key: str, kind: Kind, default: str, check: Callable[[str, str], str], doc: str
) -> Setting:
    return Setting(key, kind, default, check, acts=True, doc=doc)


def _still(key: str, kind: Kind, value: str, why: str, *aliases: str) -> Setting:
    return Setting(key, kind, value, _fixed(value, why, *aliases), acts=False, doc=why)


_SEGMENTS = "segments hold many topics and are cut by the broker"
_COMPACTION = "topics are not compacted"
_TIERS = "there is no second tier of storage"
_THROTTLE = "there are no followers to throttle"
_ANY_TIME = "every timestamp is accepted"
_SYNCED = "each append is synced, at once or as `flush` says, which is stricter than any interval"
_OLD = "batches are kept as sent and never converted down"

TABLE: dict[str, Setting] = {
    row.key: row
    for row in (
        _acting(
            "retention.ms", Kind.LONG, str(DEFAULT_RETENTION_MS), _integer(-1, INT64_MAX),
            "How long messages are kept; -1 for ever. Once set it counts record timestamps.",
        ),
        _acting(
            "max.message.bytes", Kind.INT, str(DEFAULT_MESSAGE_SIZE_MAX),
            _integer(0, ENTRY_SIZE_MAX),
            "The largest batch, as sent, that is accepted.",
        ),
        _acting(
            "message.timestamp.type", Kind.STRING, CREATE_TIME,
            _choice(CREATE_TIME, LOG_APPEND_TIME),
            "Whether a message's time is its producer's or the broker's.",
        ),
        _acting(
            "retention.bytes", Kind.LONG, str(UNLIMITED_BYTES), _integer(-1, INT64_MAX),
            "Bytes that a partition keeps at least; older ones go, in whole runs. -1: no limit.",
        ),
        _acting(
            "flush", Kind.STRING, FLUSH_COMMIT, _choice(*FLUSH_CHOICES),
            "When a message is acknowledged: `commit`, it is on disk; `interval`, it is in memory "
            "and will be on disk within `journal.interval`. Readers see what is on disk.",
        ),
        _acting("flush.messages", Kind.LONG, str(INT64_MAX), _integer(1, INT64_MAX), _SYNCED),
        _acting("flush.ms", Kind.LONG, str(INT64_MAX), _integer(0, INT64_MAX), _SYNCED),
        _still("cleanup.policy", Kind.LIST, "delete", _COMPACTION),
        _still("compression.type", Kind.STRING, "producer", "batches are kept as sent"),
        _still("delete.retention.ms", Kind.LONG, "86400000", _COMPACTION),
        _still("file.delete.delay.ms", Kind.LONG, "60000", _SEGMENTS),
        _still("follower.replication.throttled.replicas", Kind.LIST, "", _THROTTLE),
        _still("index.interval.bytes", Kind.INT, "4096", _SEGMENTS),
        _still("leader.replication.throttled.replicas", Kind.LIST, "", _THROTTLE),
        _still("local.retention.bytes", Kind.LONG, "-2", _TIERS),
        _still("local.retention.ms", Kind.LONG, "-2", _TIERS),
        _still("max.compaction.lag.ms", Kind.LONG, str(INT64_MAX), _COMPACTION),
        _still("message.downconversion.enable", Kind.BOOLEAN, "false", _OLD),
        _still("message.format.version", Kind.STRING, "3.0-iv1", _OLD, "2.0", "2.0-iv1", "3.0"),
        _still("message.timestamp.after.max.ms", Kind.LONG, str(INT64_MAX), _ANY_TIME),
        _still("message.timestamp.before.max.ms", Kind.LONG, str(INT64_MAX), _ANY_TIME),
        _still("message.timestamp.difference.max.ms", Kind.LONG, str(INT64_MAX), _ANY_TIME),
        _still("min.cleanable.dirty.ratio", Kind.DOUBLE, "0.5", _COMPACTION),
        _still("min.compaction.lag.ms", Kind.LONG, "0", _COMPACTION),
        _still("min.insync.replicas", Kind.INT, "1", "there is one durable copy"),
        _still("preallocate", Kind.BOOLEAN, "false", _SEGMENTS),
        _still("remote.log.copy.disable", Kind.BOOLEAN, "false", _TIERS),
        _still("remote.log.delete.on.disable", Kind.BOOLEAN, "false", _TIERS),
        _still("remote.storage.enable", Kind.BOOLEAN, "false", _TIERS),
        _still("segment.bytes", Kind.INT, "1073741824", _SEGMENTS),
        _still("segment.index.bytes", Kind.INT, "10485760", _SEGMENTS),
        _still("segment.jitter.ms", Kind.LONG, "0", _SEGMENTS),
        _still("segment.ms", Kind.LONG, "604800000", _SEGMENTS),
        _still(
            "unclean.leader.election.enable", Kind.BOOLEAN, "false",
            "nothing is served from a copy that may lack messages",
        ),
    )
}  # fmt: skip


def default_of(row: Setting, defaults: TopicSettings) -> str:
    """Return the value of a setting that a topic does not set, on a node with these defaults."""
    own = {
        "retention.ms": defaults.retention_ms,
        "max.message.bytes": defaults.message_size_max,
        "flush": FLUSH_INTERVAL if defaults.patient else FLUSH_COMMIT,
    }
    return str(own.get(row.key, row.default))


def check_settings(given: Mapping[str, str | None]) -> dict[str, str]:
    """Return what a topic keeps of the settings given, or refuse the first wrong one.

    Fixed settings are not kept: what can have one value only is no setting of the topic.
    """
    kept: dict[str, str] = {}
    for key, value in given.items():
        row = TABLE.get(key)
        if row is None:
            raise InvalidSetting(f"there is no topic setting {key!r}")
        if value is None:
            raise InvalidSetting(f"{key}: a value is needed")
        checked = row.check(key, value)
        if row.acts:
            kept[key] = checked
    return kept


NODE_DEFAULTS = TopicSettings()


def resolve(kept: Mapping[str, str], defaults: TopicSettings = NODE_DEFAULTS) -> TopicSettings:
    """Say what the kept settings of a topic mean, on a node with these defaults."""
    retention = kept.get("retention.ms")
    return TopicSettings(
        retention_ms=defaults.retention_ms if retention is None else int(retention),
        retention_by_record_time=retention is not None,
        retention_bytes=int(kept.get("retention.bytes", defaults.retention_bytes)),
        message_size_max=int(kept.get("max.message.bytes", defaults.message_size_max)),
        log_append_time=kept.get("message.timestamp.type") == LOG_APPEND_TIME,
        patient=kept["flush"] == FLUSH_INTERVAL if "flush" in kept else defaults.patient,
    )
