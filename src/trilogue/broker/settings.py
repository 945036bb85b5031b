"""The settings of one topic: one table of every name a client may send, and what we do about it.

A setting *acts* (we do what it says), or it is *met*: whatever value is asked for, what it is
asked for is given already, so any value that Kafka takes is kept and shown, and nothing looks at
it. `segment.bytes` is one: it bounds what waits for a segment to be full, and nothing waits here.
Programs make topics with them (Kafka Streams, Connect). Or it is *fixed*: the value we in effect
enforce is accepted, any other refused with a sentence that says why. Nothing is stored that nothing
obeys (docs/decisions/0049-kafka-settings.md).

`flush` is ours: `commit` (an acknowledged message is on disk) or `interval` (acknowledged from
memory, on disk within some milliseconds; a crash may lose what was acknowledged last).

Retention has two faces. Without a setting a topic keeps 7 days by the time of the *append*, which
is safe for a replay of old data; `retention.ms`, once set, counts the timestamps of the records,
as Kafka does. That is why an explicit 604800000 is not the same as the default.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from trilogue.broker.errors import InvalidRequest, InvalidSetting
from trilogue.broker.setting import COMPACT, DELETE, INT64_MAX, Kind, Setting
from trilogue.broker.settings_table import (
    DAY_MS,
    DEFAULT_MESSAGE_SIZE_MAX,
    DEFAULT_RETENTION_MS,
    FLUSH_INTERVAL,
    LAGS,
    LOG_APPEND_TIME,
    TABLE,
    UNCOMPRESSED,
    UNLIMITED_BYTES,
)
from trilogue.entry.entry import Codec

FOREVER_MS = -1

# Kept with a topic, said by TubeMQ's administration: whether its clients may write and read.
TUBEMQ_PUBLISH, TUBEMQ_SUBSCRIBE = "tubemq.accept-publish", "tubemq.accept-subscribe"
TUBEMQ_STAMP = "tubemq.stamp"  # who made and changed it, as JSON
TUBEMQ_DELETED = "tubemq.deleted"  # taken from TubeMQ's clients; until it is removed, or not


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


def check_settings(
    given: Mapping[str, str | None], table: Mapping[str, Setting] = TABLE
) -> dict[str, str]:
    """Return what a topic keeps of the settings given, or refuse the first wrong one.

    Fixed settings are not kept: what can have one value only is no setting of the topic. With
    another table: of something else that has settings.
    """
    kept: dict[str, str] = {}
    for key, value in given.items():
        row = table.get(key)
        if row is None:
            raise InvalidSetting(f"there is no setting {key!r} here")
        if value is None:
            raise InvalidSetting(f"{key}: a value is needed")
        checked = row.check(key, value)
        if not row.fixed:
            kept[key] = checked
    _check_lags(kept, table)
    return kept


def _check_lags(kept: Mapping[str, str], table: Mapping[str, Setting]) -> None:
    for names in LAGS:
        if names[0] in table:
            low, high = (int(kept.get(key, table[key].default)) for key in names)
            if low > high:
                raise InvalidSetting(f"{names[0]} {low} is more than {names[1]} {high}")


class Change(Enum):
    """What may be done to one setting of a topic."""

    SET = "set"
    RESET = "reset"  # to its default
    APPEND = "append"  # to a list
    SUBTRACT = "subtract"  # from a list


def change_settings(
    kept: Mapping[str, str],
    changes: Iterable[tuple[str, Change, str | None]],
    table: Mapping[str, Setting] = TABLE,
) -> dict[str, str]:
    """Return what a topic keeps after changes of some settings, or refuse the first wrong one.

    To reset what is not set, or what no setting is, is no error, as for Kafka.
    """
    after = dict(kept)
    seen: set[str] = set()
    for key, change, value in changes:
        if key in seen:
            raise InvalidRequest(f"{key} is changed more than once")
        seen.add(key)
        row = table.get(key)
        if change is Change.RESET:
            if row is not None:
                after.pop(key, None)
            continue
        if row is None:
            raise InvalidSetting(f"there is no setting {key!r} here")
        if value is None:
            raise InvalidRequest(f"{key}: a value is needed")
        before = after.pop(key, row.default)
        changed = value if change is Change.SET else _changed_list(row, before, change, value)
        after |= check_settings({key: changed}, table)
    _check_lags(after, table)
    return after


def _changed_list(row: Setting, before: str, change: Change, value: str) -> str:
    if row.kind is not Kind.LIST:
        raise InvalidSetting(f"{row.key} is no list")
    given = [each.strip() for each in value.split(",")]
    items = [each for each in before.split(",") if each and each not in given]
    return ",".join(items + given if change is Change.APPEND else items)


CODECS = {
    UNCOMPRESSED: Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}
NODE_DEFAULTS = TopicSettings()
NOTHING: Mapping[str, str] = {}


def resolve(
    kept: Mapping[str, str],
    defaults: TopicSettings = NODE_DEFAULTS,
    said: Mapping[str, str] = NOTHING,
) -> TopicSettings:
    """Say what the kept settings of a topic mean, on a node with these defaults.

    `said` is what was said for all topics while the node runs, by the names of a topic's settings.
    """
    values = {**said, **kept}
    own = {key: values.get(key, row.default) for key, row in TABLE.items() if row.acts}
    chosen = own["cleanup.policy"].split(",")
    deletes = DELETE in chosen
    retention_ms = int(values.get("retention.ms", defaults.retention_ms))
    retention_bytes = int(values.get("retention.bytes", defaults.retention_bytes))
    either = own["message.timestamp.difference.max.ms"]
    return TopicSettings(
        retention_ms=retention_ms if deletes else FOREVER_MS,
        retention_by_record_time="retention.ms" in kept,
        retention_bytes=retention_bytes if deletes else UNLIMITED_BYTES,
        message_size_max=int(values.get("max.message.bytes", defaults.message_size_max)),
        log_append_time=own["message.timestamp.type"] == LOG_APPEND_TIME,
        patient=values["flush"] == FLUSH_INTERVAL if "flush" in values else defaults.patient,
        deletes=deletes,
        compacts=COMPACT in chosen,
        dirty_ratio_min=float(own["min.cleanable.dirty.ratio"]),
        delete_retention_ms=int(own["delete.retention.ms"]),
        compaction_lag_min_ms=int(own["min.compaction.lag.ms"]),
        compaction_lag_max_ms=int(own["max.compaction.lag.ms"]),
        compression=CODECS.get(own["compression.type"]),
        compression_level=_level(own["compression.type"], values),
        timestamp_before_max_ms=int(values.get("message.timestamp.before.max.ms", either)),
        timestamp_after_max_ms=int(values.get("message.timestamp.after.max.ms", either)),
        converts_down=own["message.downconversion.enable"] == "true",
    )


def _level(compression: str, values: Mapping[str, str]) -> int | None:
    """Return the level for a codec, or None for its own default."""
    level = values.get(f"compression.{compression}.level", "")
    return int(level) if level not in {"", "-1"} else None
