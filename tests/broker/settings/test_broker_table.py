"""The table of a broker's settings beside what a real Kafka 3.9 lists."""

from __future__ import annotations

import pytest

from trilogue.broker.errors import InvalidSetting
from trilogue.broker.settings.address_limits import parse_address_limits
from trilogue.broker.settings.broker_table import BROKER, GROUPS, POOLS, REPLICATION_THROTTLES
from trilogue.broker.settings.setting import Effect
from trilogue.broker.settings.topic_table import TABLE as TOPICS
from trilogue.broker.settings.values import Kind

KAFKA_3_9 = 314  # settings that DescribeConfigs of a 3.9.1 broker lists
OURS = {  # and what 3.9 does not list, or only once it is set
    "flush",
    "group.consumer.migration.policy",
    *REPLICATION_THROTTLES,
}
SINCE_4 = {
    "group.share.assignors",
    "group.share.max.delivery.count.limit",
    "group.share.max.partition.max.record.locks",
    "group.share.max.share.sessions",
    "group.share.min.delivery.count.limit",
    "group.share.min.partition.max.record.locks",
} | {key for key in BROKER if key.startswith("group.streams.")}
ONLY_OF_GROUPS = {
    "share.auto.offset.reset",
    "share.isolation.level",
    "share.renew.acknowledge.enable",
}


def test_every_setting_of_a_3_9_broker_is_there():
    own = {key for key in BROKER if key.startswith("trilogue.")}  # a node's place among others
    assert len(BROKER.keys() - OURS - SINCE_4 - own) == KAFKA_3_9


@pytest.mark.parametrize("row", BROKER.values(), ids=BROKER)
def test_a_row_has_a_reason_and_a_default_it_would_accept(row):
    assert isinstance(row.kind, Kind)
    assert row.doc
    assert row.nullable <= (row.default == "")
    if row.is_read_only:
        with pytest.raises(InvalidSetting, match="not changed while the server runs"):
            row.check(row.default)
    elif not row.nullable:
        assert row.check(row.default) == row.default


def test_settable_broker_configs_are_topic_defaults_and_few_others():
    settable = {row.key for row in BROKER.values() if not row.is_read_only}

    of_topics = {row.broker_keys[0] for row in TOPICS.values() if row.broker_keys}
    of_node = {"max.connections", "max.connections.per.ip", "max.connections.per.ip.overrides"}
    of_node |= {"log.cleaner.backoff.ms", "log.cleaner.dedupe.buffer.size"}
    of_node |= {"log.cleaner.io.max.bytes.per.second", "producer.id.expiration.ms"}
    pools = {key for key, *_ in POOLS}
    no_op = {"sasl.kerberos.min.time.before.relogin", *REPLICATION_THROTTLES, *pools}
    assert settable - of_topics == of_node | no_op
    assert of_topics - settable == {"min.insync.replicas", "log.message.format.version"}


def test_a_row_that_speaks_for_topics_names_theirs():
    for row in BROKER.values():
        if row.topic_key:
            assert TOPICS[row.topic_key].broker_keys[0] == row.key
            assert TOPICS[row.topic_key].effect is row.effect


@pytest.mark.parametrize("text", ["host:1", "10.0.0.1", "10.0.0.1:", "10.0.0.1:-1", ":5"])
def test_connections_of_single_addresses_are_checked(text):
    row = BROKER["max.connections.per.ip.overrides"]

    assert row.check("10.0.0.1:5, ::1:9,") == "10.0.0.1:5, ::1:9,"
    assert parse_address_limits("10.0.0.1:5, ::1:9,") == {"10.0.0.1": 5, "::1": 9}
    with pytest.raises(InvalidSetting):
        row.check(text)


def test_secrets_are_known_as_such():
    secret = {row.key for row in BROKER.values() if row.kind is Kind.PASSWORD}

    assert {"ssl.key.password", "sasl.jaas.config", "delegation.token.secret.key"} <= secret
    assert all(BROKER[key].nullable for key in secret)


def test_every_group_config_has_a_broker_default():
    assert all(f"group.{key}" in BROKER for key in GROUPS.keys() - ONLY_OF_GROUPS)
    assert all(row.effect is Effect.EFFECTIVE for row in GROUPS.values())
