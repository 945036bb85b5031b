from __future__ import annotations

import pytest

from trilogue.broker.errors import InvalidSetting
from trilogue.broker.settings.setting import Setting
from trilogue.broker.settings.topic_settings import (
    Change,
    TopicSettings,
    change_settings,
    check_settings,
    resolve_settings,
)
from trilogue.broker.settings.topic_table import TABLE
from trilogue.broker.settings.values import Kind
from trilogue.entry.entry import Codec

REFUSED = [
    ("retention.ms", "-2"),
    ("retention.ms", "soon"),
    ("retention.ms", ""),
    ("retention.ms", "1_000"),
    ("retention.ms", "\u0661"),
    ("retention.ms", "9" * 30),
    ("retention.ms", "9" * 5_000),
    ("retention.ms", None),
    ("max.message.bytes", "-1"),
    ("max.message.bytes", str((16 << 20) + 1)),
    ("message.timestamp.type", "createtime"),
    ("flush.messages", "0"),
    ("flush.ms", "-1"),
    ("cleanup.policy", "compact,"),
    ("cleanup.policy", "archive"),
    ("cleanup.policy", "compact delete"),
    ("min.cleanable.dirty.ratio", "1.1"),
    ("min.cleanable.dirty.ratio", "-0.1"),
    ("min.cleanable.dirty.ratio", "nan"),
    ("min.cleanable.dirty.ratio", "half"),
    ("min.compaction.lag.ms", "-1"),
    ("max.compaction.lag.ms", "0"),
    ("delete.retention.ms", "-1"),
    ("retention.bytes", "-2"),
    ("flush", "never"),
    ("flush", "Interval"),
    ("min.insync.replicas", "0"),
    ("compression.type", "zip"),
    ("compression.gzip.level", "0"),
    ("compression.gzip.level", "10"),
    ("compression.lz4.level", "0"),
    ("compression.zstd.level", "23"),
    ("segment.bytes", "13"),
    ("segment.ms", "0"),
    ("segment.index.bytes", "3"),
    ("index.interval.bytes", "-1"),
    ("preallocate", "yes"),
    ("unclean.leader.election.enable", ""),
    ("leader.replication.throttled.replicas", "0:1,"),
    ("message.format.version", "9.9"),
    ("local.retention.ms", "-3"),
    ("remote.storage.enable", "true"),
    ("message.timestamp.after.max.ms", "-1"),
    ("retention.MS", "1"),
    ("", "1"),
]

KEPT = [
    ("retention.ms", " 1000 ", {"retention.ms": "1000"}),
    ("retention.ms", "-1", {"retention.ms": "-1"}),
    ("max.message.bytes", "0", {"max.message.bytes": "0"}),
    ("message.timestamp.type", "LogAppendTime", {"message.timestamp.type": "LogAppendTime"}),
    ("flush.messages", "1", {"flush.messages": "1"}),
    ("cleanup.policy", "delete", {"cleanup.policy": "delete"}),
    ("cleanup.policy", " ", {"cleanup.policy": ""}),
    ("cleanup.policy", " Compact ", {"cleanup.policy": "compact"}),
    ("cleanup.policy", "compact, delete,compact", {"cleanup.policy": "compact,delete"}),
    ("min.cleanable.dirty.ratio", " 0 ", {"min.cleanable.dirty.ratio": "0.0"}),
    ("min.cleanable.dirty.ratio", "1e-2", {"min.cleanable.dirty.ratio": "0.01"}),
    ("min.compaction.lag.ms", "0", {"min.compaction.lag.ms": "0"}),
    ("max.compaction.lag.ms", "1", {"max.compaction.lag.ms": "1"}),
    ("delete.retention.ms", "0", {"delete.retention.ms": "0"}),
    ("retention.bytes", "-1", {"retention.bytes": "-1"}),
    ("retention.bytes", "0", {"retention.bytes": "0"}),
    ("flush", "interval", {"flush": "interval"}),
    ("flush", " commit ", {"flush": "commit"}),
    ("min.insync.replicas", "2", {"min.insync.replicas": "2"}),
    ("remote.storage.enable", "FALSE", {}),
    ("compression.type", "zstd", {"compression.type": "zstd"}),
    ("compression.gzip.level", "-1", {"compression.gzip.level": "-1"}),
    ("compression.zstd.level", "-131072", {"compression.zstd.level": "-131072"}),
    ("message.format.version", "2.0-IV1", {"message.format.version": "2.0-IV1"}),
    ("message.format.version", "0.10.2", {"message.format.version": "0.10.2"}),
    ("preallocate", "TRUE", {"preallocate": "true"}),
    ("segment.bytes", "1048576", {"segment.bytes": "1048576"}),
    ("segment.ms", "1", {"segment.ms": "1"}),
    ("unclean.leader.election.enable", "true", {"unclean.leader.election.enable": "true"}),
    (
        "leader.replication.throttled.replicas",
        "0:1, 12:1",
        {"leader.replication.throttled.replicas": "0:1, 12:1"},
    ),
    (
        "follower.replication.throttled.replicas",
        "*",
        {"follower.replication.throttled.replicas": "*"},
    ),
]


@pytest.mark.parametrize(("key", "value"), REFUSED)
def test_unsupported_topic_config_is_refused_with_the_key(key: str, value: str | None):
    with pytest.raises(InvalidSetting) as refused:
        check_settings({key: value})

    assert key in str(refused.value)


@pytest.mark.parametrize(("key", "value", "kept"), KEPT)
def test_supported_topic_configs_are_accepted_and_fixed_ones_are_not_kept(
    key: str, value: str, kept: dict[str, str]
):
    assert check_settings({key: value}) == kept


@pytest.mark.parametrize("row", TABLE.values(), ids=TABLE)
def test_every_default_is_acceptable(row):
    assert row.check(row.default) == row.default
    assert isinstance(row.kind, Kind)
    assert row.doc


@pytest.mark.parametrize(
    "row", [row for row in TABLE.values() if row.is_effective], ids=lambda row: row.key
)
def test_an_effective_row_changes_the_settings_of_a_topic(row: Setting):
    """A new row needs its field of `TopicSettings`, which `resolve_settings` fills."""
    prefix, _, rest = row.key.partition(".")
    codec = rest.removesuffix(".level") if prefix == "compression" and rest != "type" else None
    base = {} if codec is None else {"compression.type": codec}
    if row.kind is Kind.BOOLEAN:
        value = "false" if row.default == "true" else "true"
    elif row.key == "cleanup.policy":
        value = "compact"
    else:
        value = next((each for each in row.choices if each != row.default), "1")

    changed = resolve_settings(base | check_settings({row.key: value}))

    assert changed != resolve_settings(base), f"{row.key}={value} has no effect"


def test_a_topic_without_settings_keeps_seven_days_by_append_time():
    assert resolve_settings({}) == TopicSettings(
        retention_ms=604_800_000,
        retention_by_record_time=False,
        retention_bytes=-1,
        message_size_max=1_048_588,
        log_append_time=False,
        acks_from_memory=False,
    )


def test_an_explicit_retention_counts_record_timestamps_even_when_it_is_the_default():
    settings = resolve_settings(check_settings({"retention.ms": "604800000"}))

    assert settings.retention_by_record_time
    assert settings.retention_ms == 604_800_000


def test_topic_configs_resolve_to_topic_settings():
    kept = check_settings(
        {
            "max.message.bytes": "2000000",
            "message.timestamp.type": "LogAppendTime",
            "retention.bytes": "7",
            "flush": "interval",
        }
    )

    settings = resolve_settings(kept)

    assert (settings.message_size_max, settings.log_append_time) == (2_000_000, True)
    assert (settings.retention_bytes, settings.acks_from_memory) == (7, True)


def test_a_node_may_keep_other_defaults_for_topics_that_set_nothing():
    node = TopicSettings(retention_ms=5, message_size_max=7, acks_from_memory=True)

    assert resolve_settings({}, node) == node
    given = {"retention.ms": "9", "max.message.bytes": "8", "flush": "commit"}
    assert resolve_settings(given, node) == TopicSettings(
        retention_ms=9, retention_by_record_time=True, message_size_max=8
    )


CODECS = [
    ({}, None, None),
    ({"compression.type": "producer", "compression.zstd.level": "9"}, None, None),
    ({"compression.type": "uncompressed"}, Codec.NONE, None),
    ({"compression.type": "snappy", "compression.gzip.level": "9"}, Codec.SNAPPY, None),
    ({"compression.type": "gzip"}, Codec.GZIP, None),
    ({"compression.type": "gzip", "compression.gzip.level": "-1"}, Codec.GZIP, None),
    ({"compression.type": "gzip", "compression.gzip.level": "9"}, Codec.GZIP, 9),
    ({"compression.type": "lz4", "compression.lz4.level": "17"}, Codec.LZ4, 17),
    ({"compression.type": "zstd", "compression.zstd.level": "-7"}, Codec.ZSTD, -7),
]


@pytest.mark.parametrize(("given", "codec", "level"), CODECS)
def test_a_topic_may_have_its_batches_in_one_codec(given, codec, level):
    settings = resolve_settings(check_settings(given))

    assert (settings.compression, settings.compression_level) == (codec, level)


def test_the_old_limit_of_times_holds_where_the_new_ones_are_not_set():
    old = {"message.timestamp.difference.max.ms": "5"}

    both = resolve_settings(check_settings(old))
    one = resolve_settings(check_settings(old | {"message.timestamp.after.max.ms": "7"}))

    assert (both.timestamp_before_max_ms, both.timestamp_after_max_ms) == (5, 5)
    assert (one.timestamp_before_max_ms, one.timestamp_after_max_ms) == (5, 7)


def test_broker_overrides_apply_to_topics_without_own_configs():
    settings = {"retention.ms": "5", "cleanup.policy": "compact", "max.message.bytes": "7"}

    silent = resolve_settings({}, broker_overrides=settings)
    own = resolve_settings({"cleanup.policy": "delete"}, broker_overrides=settings)

    assert (silent.retention_ms, silent.compacts, silent.message_size_max) == (-1, True, 7)
    assert (own.retention_ms, own.compacts, own.message_size_max) == (5, False, 7)
    assert not own.retention_by_record_time, "what holds for all counts the time of the append"


def test_the_least_lag_is_not_more_than_the_largest():
    pair = {"min.compaction.lag.ms": "6", "max.compaction.lag.ms": "5"}

    with pytest.raises(InvalidSetting, match=r"min\.compaction\.lag\.ms 6 is more"):
        check_settings(pair)
    kept = check_settings({"max.compaction.lag.ms": "5"})
    with pytest.raises(InvalidSetting, match="is more"):
        change_settings(kept, [("min.compaction.lag.ms", Change.SET, "6")])
    assert check_settings(pair | {"min.compaction.lag.ms": "5"})


POLICIES = [
    # policy, compacts, retention in ms, retention in bytes
    ("delete", False, 9, 7),
    ("", False, -1, -1),
    ("compact", True, -1, -1),
    ("compact,delete", True, 9, 7),
    ("delete,compact", True, 9, 7),
]


@pytest.mark.parametrize(("policy", "compacts", "retention_ms", "retention_bytes"), POLICIES)
def test_retention_applies_only_with_cleanup_policy_delete(
    policy: str, compacts: bool, retention_ms: int, retention_bytes: int
):
    given = {"cleanup.policy": policy, "retention.ms": "9", "retention.bytes": "7"}

    settings = resolve_settings(check_settings(given))

    assert settings.compacts is compacts
    assert settings.retention_ms == retention_ms
    assert settings.retention_bytes == retention_bytes


def test_compaction_configs_resolve_to_topic_settings():
    settings = resolve_settings(
        check_settings(
            {
                "cleanup.policy": "compact",
                "min.cleanable.dirty.ratio": "0.25",
                "min.compaction.lag.ms": "3",
                "max.compaction.lag.ms": "4",
                "delete.retention.ms": "5",
            }
        )
    )

    assert settings == TopicSettings(
        retention_ms=-1,
        deletes=False,
        compacts=True,
        dirty_ratio_min=0.25,
        compaction_lag_min_ms=3,
        compaction_lag_max_ms=4,
        delete_retention_ms=5,
    )
