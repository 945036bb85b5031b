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

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from trilogue.broker.errors import InvalidRequest, InvalidSetting
from trilogue.entry.entry import Codec

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


COMPACT = "compact"
DELETE = "delete"

# Kept with a topic, said by TubeMQ's administration: whether its clients may write and read.
TUBEMQ_PUBLISH, TUBEMQ_SUBSCRIBE = "tubemq.accept-publish", "tubemq.accept-subscribe"
TUBEMQ_STAMP = "tubemq.stamp"  # who made and changed it, as JSON
TUBEMQ_DELETED = "tubemq.deleted"  # taken from TubeMQ's clients; until it is removed, or not


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
    deletes: bool = True  # what is too old or too much goes
    compacts: bool = False  # of messages with one key the last one is kept
    dirty_ratio_min: float = 0.5  # from which share of new bytes on it is worth compacting
    delete_retention_ms: int = DAY_MS  # of tombstones, after they were first compacted
    compaction_lag_min_ms: int = 0
    compaction_lag_max_ms: int = INT64_MAX
    compression: Codec | None = None  # that Kafka's batches are stored in; None: as produced
    compression_level: int | None = None  # None: the codec's own default
    timestamp_before_max_ms: int = INT64_MAX  # how far a message's time may be before the append's
    timestamp_after_max_ms: int = INT64_MAX  # and how far behind it
    converts_down: bool = True  # readers of the old message formats are served


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


def _ratio(key: str, text: str) -> str:
    try:
        value = float(text) if text.isascii() and "_" not in text else -1.0
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise InvalidSetting(f"{key}: a number from 0 to 1 is needed")
    return str(value)


def _policy(key: str, text: str) -> str:
    given = [each.strip().lower() for each in text.split(",")]
    if not set(given) <= {COMPACT, DELETE}:
        raise InvalidSetting(f"{key}: {COMPACT}, {DELETE} or both, with a comma, are needed")
    return ",".join(dict.fromkeys(given))


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
_TIERS = "there is no second tier of storage"
_THROTTLE = "there are no followers to throttle"
_ANY_TIME = "every timestamp is accepted"
_LAGS = ("min.compaction.lag.ms", "max.compaction.lag.ms")
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
        _acting(
            "cleanup.policy", Kind.LIST, DELETE, _policy,
            "What makes room: `delete`, old messages go (retention); `compact`, of messages with "
            "one key only the last one stays, and each needs a key; or both.",
        ),
        _acting(
            "min.cleanable.dirty.ratio", Kind.DOUBLE, "0.5", _ratio,
            "Compaction begins when this share of a partition's bytes is new since the last time.",
        ),
        _acting(
            "min.compaction.lag.ms", Kind.LONG, "0", _integer(0, INT64_MAX),
            "How long a message stays after it was appended, whatever follows it.",
        ),
        _acting(
            "max.compaction.lag.ms", Kind.LONG, str(INT64_MAX), _integer(1, INT64_MAX),
            "From this age of a new message on compaction begins whatever the ratio is.",
        ),
        _acting(
            "delete.retention.ms", Kind.LONG, str(DAY_MS), _integer(0, INT64_MAX),
            "How long a tombstone (a key without a value) stays after it was first compacted.",
        ),
        _still("compression.type", Kind.STRING, "producer", "batches are kept as sent"),
        _still("file.delete.delay.ms", Kind.LONG, "60000", _SEGMENTS),
        _still("follower.replication.throttled.replicas", Kind.LIST, "", _THROTTLE),
        _still("index.interval.bytes", Kind.INT, "4096", _SEGMENTS),
        _still("leader.replication.throttled.replicas", Kind.LIST, "", _THROTTLE),
        _still("local.retention.bytes", Kind.LONG, "-2", _TIERS),
        _still("local.retention.ms", Kind.LONG, "-2", _TIERS),
        _still("message.downconversion.enable", Kind.BOOLEAN, "false", _OLD),
        _still("message.format.version", Kind.STRING, "3.0-iv1", _OLD, "2.0", "2.0-iv1", "3.0"),
        _still("message.timestamp.after.max.ms", Kind.LONG, str(INT64_MAX), _ANY_TIME),
        _still("message.timestamp.before.max.ms", Kind.LONG, str(INT64_MAX), _ANY_TIME),
        _still("message.timestamp.difference.max.ms", Kind.LONG, str(INT64_MAX), _ANY_TIME),
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
    _check_lags(kept)
    return kept


def _check_lags(kept: Mapping[str, str]) -> None:
    low, high = (int(kept.get(key, TABLE[key].default)) for key in _LAGS)
    if low > high:
        raise InvalidSetting(f"{_LAGS[0]} {low} is more than {_LAGS[1]} {high}")


class Change(Enum):
    """What may be done to one setting of a topic."""

    SET = "set"
    RESET = "reset"  # to its default
    APPEND = "append"  # to a list
    SUBTRACT = "subtract"  # from a list


def change_settings(
    kept: Mapping[str, str], changes: Iterable[tuple[str, Change, str | None]]
) -> dict[str, str]:
    """Return what a topic keeps after changes of some settings, or refuse the first wrong one."""
    after = dict(kept)
    seen: set[str] = set()
    for key, change, value in changes:
        row = TABLE.get(key)
        if row is None:
            raise InvalidSetting(f"there is no topic setting {key!r}")
        if key in seen:
            raise InvalidRequest(f"{key} is changed more than once")
        seen.add(key)
        after.pop(key, None)
        if change is Change.RESET:
            continue
        if value is None:
            raise InvalidRequest(f"{key}: a value is needed")
        before = kept.get(key, row.default)
        changed = value if change is Change.SET else _changed_list(row, before, change, value)
        after |= check_settings({key: changed})
    _check_lags(after)
    return after


def _changed_list(row: Setting, before: str, change: Change, value: str) -> str:
    if row.kind is not Kind.LIST:
        raise InvalidSetting(f"{row.key} is no list")
    given = [each.strip() for each in value.split(",")]
    items = [each for each in before.split(",") if each and each not in given]
    return ",".join(items + given if change is Change.APPEND else items)


NODE_DEFAULTS = TopicSettings()


def resolve(kept: Mapping[str, str], defaults: TopicSettings = NODE_DEFAULTS) -> TopicSettings:
    """Say what the kept settings of a topic mean, on a node with these defaults."""
    retention = kept.get("retention.ms")
    policy = kept.get("cleanup.policy", DELETE).split(",")
    deletes = DELETE in policy
    retention_ms = defaults.retention_ms if retention is None else int(retention)
    retention_bytes = int(kept.get("retention.bytes", defaults.retention_bytes))
    own = {key: kept.get(key, row.default) for key, row in TABLE.items() if row.acts}
    return TopicSettings(
        retention_ms=retention_ms if deletes else FOREVER_MS,
        retention_by_record_time=retention is not None,
        retention_bytes=retention_bytes if deletes else UNLIMITED_BYTES,
        message_size_max=int(kept.get("max.message.bytes", defaults.message_size_max)),
        log_append_time=kept.get("message.timestamp.type") == LOG_APPEND_TIME,
        patient=kept["flush"] == FLUSH_INTERVAL if "flush" in kept else defaults.patient,
        deletes=deletes,
        compacts=COMPACT in policy,
        dirty_ratio_min=float(own["min.cleanable.dirty.ratio"]),
        delete_retention_ms=int(own["delete.retention.ms"]),
        compaction_lag_min_ms=int(own["min.compaction.lag.ms"]),
        compaction_lag_max_ms=int(own["max.compaction.lag.ms"]),
    )
