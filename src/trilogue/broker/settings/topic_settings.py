"""What the settings of one topic mean: checked, changed and resolved to a `TopicSettings`.

The rows of topic_table.py are *effective* (the broker obeys the value), a *no-op* (what any value
would cause holds anyway: the value is stored and shown, nothing reads it; one is `segment.bytes`)
or *fixed* (the one value that the broker enforces is accepted, any other is refused with the
reason). Nothing is stored that would be ignored (docs/decisions/0049-kafka-settings.md).

`flush` is Trilogue's own: with `commit` an acknowledged message is on disk; with `interval` it is
acknowledged from memory and on disk some milliseconds later, so a crash may lose the last ones.

Retention has two meanings. Without an override a topic keeps messages for 7 days from the *append*,
which is safe for a replay of old data; an override of `retention.ms` counts the timestamps of the
records, as Kafka does. So an explicit 604800000 is not the same as the default.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any

import msgspec

from trilogue.broker.errors import InvalidRequest, InvalidSetting
from trilogue.broker.settings.setting import COMPACT, DELETE, Setting, list_values
from trilogue.broker.settings.topic_table import (
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
from trilogue.broker.settings.values import INT64_MAX, Kind
from trilogue.entry.entry import Codec

FOREVER_MS = -1

# Kept with a topic, set by TubeMQ's administration.
TUBEMQ_PUBLISH, TUBEMQ_SUBSCRIBE = "tubemq.accept-publish", "tubemq.accept-subscribe"
TUBEMQ_STAMP = "tubemq.stamp"  # who created and changed the topic, as JSON
TUBEMQ_DELETED = "tubemq.deleted"  # hidden from TubeMQ's clients until it is removed or restored


class TopicSettings(msgspec.Struct, frozen=True):
    """The effective settings of a topic, typed for the hot path."""

    retention_ms: int = DEFAULT_RETENTION_MS  # -1 = for ever
    retention_by_record_time: bool = False  # an override of retention.ms counts record timestamps
    retention_bytes: int = UNLIMITED_BYTES  # of a partition; -1 = no limit
    message_size_max: int = DEFAULT_MESSAGE_SIZE_MAX
    log_append_time: bool = False
    acks_from_memory: bool = False  # acknowledged from memory, durable a little later
    deletes: bool = True  # retention removes messages
    compacts: bool = False  # only the last message of each key is kept
    dirty_ratio_min: float = 0.5  # share of new bytes from which compaction begins
    delete_retention_ms: int = DAY_MS  # of tombstones, after their first compaction
    compaction_lag_min_ms: int = 0
    compaction_lag_max_ms: int = INT64_MAX
    compression: Codec | None = None  # codec that Kafka's batches are stored in; None: as produced
    compression_level: int | None = None  # None: the codec's own default
    timestamp_before_max_ms: int = INT64_MAX  # how much older than its append a message may be
    timestamp_after_max_ms: int = INT64_MAX  # how much newer than its append a message may be
    converts_down: bool = True  # consumers of the old message formats are served


def check_settings(
    settings: Mapping[str, str | None], table: Mapping[str, Setting] = TABLE
) -> dict[str, str]:
    """Return the overrides to store, in canonical form; InvalidSetting for the first wrong one.

    Fixed settings are not stored, because their value cannot differ. `table` is the table of what
    the settings belong to, a topic by default.
    """
    overrides: dict[str, str] = {}
    for key, value in settings.items():
        row = table.get(key)
        if row is None:
            raise InvalidSetting(f"there is no setting {key!r} here")
        if value is None:
            raise InvalidSetting(f"{key}: a value is needed")
        checked = row.check(value)
        if not row.is_read_only:
            overrides[key] = checked
    _check_lags(overrides, table)
    return overrides


def _check_lags(overrides: Mapping[str, str], table: Mapping[str, Setting]) -> None:
    for names in LAGS:
        if names[0] in table:
            low, high = (int(overrides.get(key, table[key].default)) for key in names)
            if low > high:
                raise InvalidSetting(f"{names[0]} {low} is more than {names[1]} {high}")


class Change(Enum):
    """An operation on one setting, as in IncrementalAlterConfigs (KIP-339)."""

    SET = "set"
    RESET = "reset"  # to its default
    APPEND = "append"  # to a list
    SUBTRACT = "subtract"  # from a list


def change_settings(
    overrides: Mapping[str, str],
    changes: Iterable[tuple[str, Change, str | None]],
    table: Mapping[str, Setting] = TABLE,
) -> dict[str, str]:
    """Return the overrides after changes of some settings; refuses the first wrong change.

    A reset of a setting that is not set, or unknown, is no error, as in Kafka.
    """
    after = dict(overrides)
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
        changed = value if change is Change.SET else _change_list(row, before, change, value)
        after |= check_settings({key: changed}, table)
    _check_lags(after, table)
    return after


def _change_list(row: Setting, before: str, change: Change, value: str) -> str:
    if row.kind is not Kind.LIST:
        raise InvalidSetting(f"{row.key} is no list")
    given = [each.strip() for each in value.split(",")]
    items = [each for each in before.split(",") if each]
    if change is Change.APPEND:
        return ",".join(items + [each for each in given if each not in items])
    return ",".join(each for each in items if each not in given)


CODECS = {
    UNCOMPRESSED: Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}
NODE_DEFAULTS = TopicSettings()
NO_OVERRIDES: Mapping[str, str] = {}
_DEFAULTS = {key: row.parse(row.default) for key, row in TABLE.items() if row.is_effective}


def resolve_settings(
    overrides: Mapping[str, str],
    defaults: TopicSettings = NODE_DEFAULTS,
    broker_overrides: Mapping[str, str] = NO_OVERRIDES,
) -> TopicSettings:
    """Return the effective settings of a topic on a node with these defaults.

    `broker_overrides` hold for all topics, by the keys of a topic's settings.
    """
    layers = (("topic", overrides), ("broker", broker_overrides))
    found = {key: list_values(key, layers) for key in _DEFAULTS}
    own: dict[str, Any] = {
        key: TABLE[key].parse(values[0][1]) for key, values in found.items() if values
    }
    values: dict[str, Any] = {**_DEFAULTS, **own}
    policies = values["cleanup.policy"].split(",")
    deletes = DELETE in policies
    either = values["message.timestamp.difference.max.ms"]
    compression = values["compression.type"]
    return TopicSettings(
        retention_ms=own.get("retention.ms", defaults.retention_ms) if deletes else FOREVER_MS,
        retention_by_record_time="retention.ms" in overrides,
        retention_bytes=(
            own.get("retention.bytes", defaults.retention_bytes) if deletes else UNLIMITED_BYTES
        ),
        message_size_max=own.get("max.message.bytes", defaults.message_size_max),
        log_append_time=values["message.timestamp.type"] == LOG_APPEND_TIME,
        acks_from_memory=(
            own["flush"] == FLUSH_INTERVAL if "flush" in own else defaults.acks_from_memory
        ),
        deletes=deletes,
        compacts=COMPACT in policies,
        dirty_ratio_min=values["min.cleanable.dirty.ratio"],
        delete_retention_ms=values["delete.retention.ms"],
        compaction_lag_min_ms=values["min.compaction.lag.ms"],
        compaction_lag_max_ms=values["max.compaction.lag.ms"],
        compression=CODECS.get(compression),
        compression_level=_compression_level(own.get(f"compression.{compression}.level")),
        timestamp_before_max_ms=own.get("message.timestamp.before.max.ms", either),
        timestamp_after_max_ms=own.get("message.timestamp.after.max.ms", either),
        converts_down=values["message.downconversion.enable"],
    )


def _compression_level(level: int | None) -> int | None:
    """Return a codec's level, or None for the codec's own default."""
    return None if level == -1 else level
