"""Values of the broker's own settings: which one holds, what changes them, that they are kept."""

from __future__ import annotations

import pytest

from trilogue.broker.errors import ConcurrentChange, InUse, InvalidRequest, InvalidSetting
from trilogue.broker.metadata_change import MetadataChange
from trilogue.broker.settings.broker_values import BrokerValues, GroupValues, SettingSource
from trilogue.broker.settings.overrides import Overrides
from trilogue.broker.settings.topic_settings import Change
from trilogue.log.errors import CorruptLog
from trilogue.meta.errors import PreconditionFailed
from trilogue.meta.memory import MemoryMeta

SET, RESET, APPEND = Change.SET, Change.RESET, Change.APPEND
NODE = 3


class Desk:
    """Values over a meta, and the overrides that were applied to topics."""

    def __init__(self, meta: MemoryMeta | None = None) -> None:
        self.meta = meta or MemoryMeta(bytes(16), node_id=NODE, node_epoch=1)
        self.topics: list[dict[str, str]] = []
        settings = self.meta.state.settings
        self.values = BrokerValues(
            settings, NODE, apply_to_topics=lambda values: self.apply(dict(values))
        )
        self.groups = GroupValues(settings)

    def apply(self, settings: dict[str, str]) -> None:
        self.topics.append(settings)

    def alter(self, *changes: tuple[str, Change, str | None], all_nodes: bool = False) -> None:
        after = self.values.check(changes, all_nodes=all_nodes, replace=False)
        self.carry_out(self.values.plan_alter(after, all_nodes=all_nodes))

    def carry_out(self, commit: MetadataChange[None]) -> None:
        self.meta.write_now(commit.ops(), commit.preconditions)
        commit.apply()


def test_override_of_this_node_precedes_that_of_all_nodes_and_the_node_settings():
    desk = Desk()
    desk.values.live["message.max.bytes"] = lambda: "7"
    desk.alter(("message.max.bytes", SET, "5"))
    desk.alter(("message.max.bytes", SET, "6"), all_nodes=True)

    assert desk.values.values_by_source("message.max.bytes") == [
        (SettingSource.THIS_NODE, "5"),
        (SettingSource.ALL_NODES, "6"),
        (SettingSource.NODE_SETTINGS, "7"),
        (SettingSource.DEFAULT, "1048588"),
    ]
    assert desk.values.value("message.max.bytes") == "5"
    desk.alter(("message.max.bytes", RESET, None))
    assert desk.values.value("message.max.bytes") == "6"


def test_unset_config_has_the_default_of_kafka_or_no_value():
    desk = Desk()
    desk.values.live["num.partitions"] = lambda: "1"
    desk.values.live["log.retention.ms"] = lambda: None

    assert desk.values.values_by_source("num.partitions") == [(SettingSource.DEFAULT, "1")]
    assert desk.values.values_by_source("log.retention.ms") == []
    assert desk.values.value("log.retention.ms") is None
    desk.values.live["log.retention.ms"] = lambda: "5"
    assert desk.values.values_by_source("log.retention.ms") == [(SettingSource.NODE_SETTINGS, "5")]


def test_changes_notify_topics_of_their_defaults_and_listeners():
    desk = Desk()
    notified: list[int] = []
    desk.values.listeners.append(lambda: notified.append(len(desk.topics)))

    desk.alter(
        ("log.cleanup.policy", SET, "compact"), ("max.connections", SET, "9"), all_nodes=True
    )
    desk.alter(("log.cleanup.policy", SET, "delete"), ("log.segment.bytes", SET, "99"))

    assert desk.topics == [
        {},
        {"cleanup.policy": "compact"},
        {"cleanup.policy": "delete", "segment.bytes": "99"},
    ]
    assert notified == [2, 3]


def test_overrides_survive_a_restart_and_can_be_reset():
    desk = Desk()
    desk.alter(("log.retention.bytes", SET, "5"))
    desk.alter(("log.retention.bytes", SET, "6"), all_nodes=True)

    again = Desk(desk.meta)

    assert again.values.value("log.retention.bytes") == "5"
    assert again.topics == [{"retention.bytes": "5"}]
    again.alter(("log.retention.bytes", RESET, None))
    again.alter(("log.retention.bytes", RESET, None), all_nodes=True)
    assert not again.meta.state.settings


def test_override_of_another_node_is_ignored():
    desk = Desk()
    desk.meta.state.settings["kafka/broker/4"] = '{"log.retention.bytes":"5"}'

    again = Desk(desk.meta)

    assert again.values.value("log.retention.bytes") == "-1"


REFUSED = [
    ("no.such", "1"),
    ("num.partitions", "3"),
    ("zookeeper.connect", "host:2181"),
    ("message.max.bytes", "-5"),
    ("message.max.bytes", "soon"),
    ("message.max.bytes", None),
    ("max.connections", "0"),
    ("min.insync.replicas", "2"),
    ("log.cleaner.min.compaction.lag.ms", str(2**63 - 1)),
]


@pytest.mark.parametrize(("key", "value"), REFUSED[:-1])
@pytest.mark.parametrize("all_nodes", [False, True])
def test_invalid_broker_config_raises_invalid_request(key, value, all_nodes):
    with pytest.raises(InvalidRequest, match=key.replace(".", r"\.")):
        Desk().values.check([(key, SET, value)], all_nodes=all_nodes, replace=False)


def test_the_least_lag_of_all_topics_is_not_more_than_the_largest():
    lags = [
        ("log.cleaner.min.compaction.lag.ms", SET, "6"),
        ("log.cleaner.max.compaction.lag.ms", SET, "5"),
    ]

    with pytest.raises(InvalidRequest, match="is more than"):
        Desk().values.check(lags, all_nodes=True, replace=False)


def test_a_reset_ends_what_was_set_before():
    desk = Desk()
    desk.alter(("log.retention.bytes", SET, "5"), ("log.cleanup.policy", APPEND, "compact"))

    kept = desk.values.check([("log.preallocate", SET, "true")], all_nodes=False, replace=True)

    assert kept == {"log.preallocate": "true"}


def test_changes_are_serialized_and_a_conflict_raises_concurrent_change():
    desk = Desk()
    commit = desk.values.plan_alter({"log.retention.bytes": "5"}, all_nodes=True)

    assert desk.values.pending_change(all_nodes=True) is commit.done
    assert desk.values.pending_change(all_nodes=False) is None
    with pytest.raises(InvalidRequest, match="being changed"):
        desk.values.plan_alter({}, all_nodes=True)
    assert isinstance(commit.abandon(PreconditionFailed("meanwhile")), ConcurrentChange)
    assert desk.values.pending_change(all_nodes=True) is None
    assert desk.values.value("log.retention.bytes") == "-1"


# ---- groups


def test_a_groups_own_settings_are_kept_and_reported():
    desk = Desk()
    notified: list[str] = []
    desk.groups.listeners.append(notified.append)
    changes = [("consumer.session.timeout.ms", SET, "50000")]
    kept = desk.groups.check("g", changes, replace=False)
    desk.carry_out(desk.groups.plan_alter("g", kept))

    again = GroupValues(desk.meta.state.settings)

    assert notified == ["g"]
    assert again.names == ["g"]
    assert again.number("g", "consumer.session.timeout.ms") == 50_000
    assert again.number("g", "consumer.heartbeat.interval.ms") is None
    assert again.number("h", "consumer.session.timeout.ms") is None


def test_a_group_has_no_other_settings():
    groups = Desk().groups

    with pytest.raises(InvalidSetting, match=r"no\.such"):
        groups.check("g", [("no.such", SET, "1")], replace=False)
    with pytest.raises(InvalidSetting, match="integer"):
        groups.check("g", [("consumer.session.timeout.ms", SET, "0")], replace=True)


# ---- what is kept


def test_only_so_many_things_have_settings(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("trilogue.broker.settings.overrides.RESOURCES_MAX", 1)
    kept = Overrides({"p/a": "{}"}, "p/", lambda _name: None)

    with pytest.raises(InUse):
        kept.plan_replace("b", {"key": "value"})
    kept.plan_replace("a", {"key": "value"})
    kept.plan_replace("b", {})


def test_a_text_that_no_client_wrote_stops_the_start():
    with pytest.raises(CorruptLog, match="p/a"):
        Overrides({"p/a": "nonsense"}, "p/", lambda _name: None)
