"""Settings of brokers, groups and subscriptions, described and altered by clients.

Refusals and their codes are those of Kafka 3.9.1 and 4.3.1 for the same requests.
"""

from __future__ import annotations

import pytest

from tests.gateway.kafka.configs.test_configs import (
    APPEND,
    BROKER,
    DELETE,
    SET,
    change,
    code,
    describe,
    replace,
    synonyms,
)
from tests.gateway.kafka.produce.test_produce import only
from tests.gateway.kafka.produce.test_produce import request as produce
from tests.gateway.kafka.rig import Rig, batch, settle
from tests.gateway.loop import on_loop
from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.broker.settings.broker_table import BROKER as BROKER_SETTINGS
from trilogue.broker.settings.broker_table import GROUPS

LOGGER, METRICS, GROUP = 8, 16, 32


async def reported(rig: Rig, name: str, *keys: str, kind: int = BROKER, **how):
    requested = describe(name, keys=list(keys) or None, kind=kind, include_synonyms=True, **how)
    (result,) = (await rig.peer().request(requested, 4)).results
    assert (result.error_code, result.error_message) == (0, "")
    return {each.name: each for each in result.configs}


# ---- describe


@on_loop
async def test_broker_describes_every_config_with_type_and_documentation():
    async with Rig() as rig:
        found = await reported(rig, "1", include_documentation=True)

        assert found.keys() == BROKER_SETTINGS.keys()
        size, port = found["message.max.bytes"], found["zookeeper.connect"]
        assert (size.value, size.config_source, size.config_type) == ("1048588", 5, 3)
        assert (size.read_only, port.read_only) == (False, True)
        assert port.documentation == "there is no ZooKeeper"
        secret = found["ssl.key.password"]
        assert (secret.value, secret.is_sensitive, secret.config_type) == (None, True, 9)


@on_loop
async def test_node_settings_are_synonyms_before_the_default_of_kafka():
    async with Rig() as rig:
        found = await reported(
            rig, "1", "node.id", "group.initial.rebalance.delay.ms", "log.roll.ms"
        )

        assert synonyms(found["node.id"]) == [("node.id", "1", 4), ("node.id", "-1", 5)]
        delay = found["group.initial.rebalance.delay.ms"]
        assert (delay.value, delay.config_source, delay.read_only) == ("50", 4, True)
        nothing = found["log.roll.ms"]
        assert (nothing.value, nothing.config_source, nothing.synonyms) == (None, 5, [])


@on_loop
async def test_default_broker_resource_has_only_its_overrides():
    async with Rig() as rig:
        requested = change("", ("message.max.bytes", SET, "5000"), kind=BROKER)
        assert code(await rig.peer().request(requested, 1)) == 0

        found = await reported(rig, "", "message.max.bytes", "num.partitions")

        assert {key: synonyms(each) for key, each in found.items()} == {
            "message.max.bytes": [("message.max.bytes", "5000", 3)]
        }


UNKNOWN = [
    (BROKER, "2", 42),
    (BROKER, "one", 42),
    (BROKER, "\u0661", 42),
    (BROKER, "9" * 5_000, 42),
    (LOGGER, "", 42),
    (LOGGER, "2", 42),
    (METRICS, "", 42),
    (GROUP, "", 42),
    (1, "x", 42),
    (99, "x", 42),
]


@pytest.mark.parametrize(("kind", "name", "expected"), UNKNOWN)
@on_loop
async def test_unknown_resource_is_refused_with_a_message(kind, name, expected):
    async with Rig() as rig:
        peer = rig.peer()
        (found,) = (await peer.request(describe(name, kind=kind), 4)).results
        requested = change(name, ("message.max.bytes", SET, "1"), kind=kind)
        (changed,) = (await peer.request(requested, 1)).responses

        assert (found.error_code, bool(found.error_message)) == (expected, True)
        assert (changed.error_code, bool(changed.error_message)) == (expected, True)


# ---- brokers: alter


@on_loop
async def test_broker_config_applies_at_once_to_topics_without_override():
    async with Rig() as rig:
        rig.topic("silent")
        rig.topic("own", max_message_bytes="2000")
        peer = rig.peer()
        large = batch("x" * 900)
        for _ in range(2):  # the second takes the template of its shape
            assert only(await peer.request(produce("silent", large), 7)).error_code == 0

        requested = change("1", ("message.max.bytes", SET, "500"), kind=BROKER)
        assert code(await peer.request(requested, 1)) == 0

        assert only(await peer.request(produce("silent", large), 7)).error_code == 10
        assert only(await peer.request(produce("own", large), 7)).error_code == 0
        assert rig.topic("new").partitions[0].message_size_max == 500


@on_loop
async def test_topic_configs_have_synonyms_by_source():
    async with Rig() as rig:
        rig.topic("t", retention_ms="5")
        peer = rig.peer()
        both = ("log.cleanup.policy", SET, "compact"), ("log.retention.ms", SET, "7")
        await peer.request(change("", *both, kind=BROKER), 1)
        await peer.request(change("1", ("log.cleanup.policy", APPEND, "compact"), kind=BROKER), 1)

        found = await reported(rig, "t", "cleanup.policy", "retention.ms", kind=2)

        assert synonyms(found["cleanup.policy"]) == [
            ("log.cleanup.policy", "delete,compact", 2),
            ("log.cleanup.policy", "compact", 3),
            ("log.cleanup.policy", "delete", 5),
        ]
        assert (found["cleanup.policy"].value, found["cleanup.policy"].config_source) == (
            "delete,compact",
            2,
        )
        assert synonyms(found["retention.ms"]) == [
            ("retention.ms", "5", 1),
            ("log.retention.ms", "7", 3),
        ]


@pytest.mark.parametrize("name", ["", "1"])
@on_loop
async def test_alter_configs_replaces_all_overrides(name):
    async with Rig() as rig:
        peer = rig.peer()
        await peer.request(change(name, ("log.retention.bytes", SET, "5"), kind=BROKER), 1)

        assert code(await peer.request(replace(name, BROKER, log_preallocate="true"), 2)) == 0

        given = rig.broker.values.overrides(all_nodes=not name)
        assert given == {"log.preallocate": "true"}


REFUSED = {
    "unknown": ("no.such", SET, "1"),
    "read at the start": ("num.partitions", SET, "3"),
    "no such thing here": ("ssl.keystore.type", SET, "JKS"),
    "wrong": ("message.max.bytes", SET, "soon"),
    "negative": ("message.max.bytes", SET, "-5"),
    "none": ("message.max.bytes", SET, None),
    "no list": ("message.max.bytes", APPEND, "5"),
    "no operation": ("message.max.bytes", 9, "5"),
}


@pytest.mark.parametrize("name", ["", "1"])
@pytest.mark.parametrize("kind", REFUSED)
@on_loop
async def test_invalid_config_returns_invalid_request_and_changes_nothing(name, kind):
    async with Rig() as rig:
        requested = change(name, ("log.preallocate", SET, "true"), REFUSED[kind], kind=BROKER)

        (result,) = (await rig.peer().request(requested, 1)).responses

        assert (result.error_code, bool(result.error_message)) == (42, True)
        assert rig.broker.values.overrides(all_nodes=not name) == {}


@on_loop
async def test_reset_of_an_unset_config_succeeds():
    """kafka-reassign-partitions.sh removes throttles that were never set."""
    async with Rig() as rig:
        gone = ("leader.replication.throttled.rate", DELETE, None)

        assert code(await rig.peer().request(change("1", gone, kind=BROKER), 1)) == 0
        assert not rig.meta.state.settings


@on_loop
async def test_validate_only_changes_nothing():
    async with Rig() as rig:
        peer = rig.peer()
        right = ("message.max.bytes", SET, "5"), ("message.max.bytes", SET, "soon")

        codes = [
            code(await peer.request(change("", each, kind=BROKER, validate_only=True), 1))
            for each in right
        ]

        assert codes == [0, 42]
        assert not rig.meta.state.settings


@on_loop
async def test_changes_of_a_broker_follow_each_other():
    async with Rig() as rig:
        one, other = rig.peer(), rig.peer()
        one.send(change("1", ("log.retention.bytes", SET, "1"), kind=BROKER), 1)
        other.send(change("1", ("log.preallocate", SET, "true"), kind=BROKER), 1)

        await settle()

        assert (code(one.answer()), code(other.answer())) == (0, 0)
        assert rig.broker.values.overrides(all_nodes=False) == {
            "log.retention.bytes": "1",
            "log.preallocate": "true",
        }


@pytest.mark.parametrize(("kind", "name"), [(BROKER, "1"), (BROKER, ""), (LOGGER, "1")])
@on_loop
async def test_broker_configs_without_permission_are_denied(kind, name):
    async with Rig() as rig:
        rig.rules.deny(Operation.ALTER_SETTINGS, ResourceKind.CLUSTER, "cluster")
        rig.rules.deny(Operation.DESCRIBE_SETTINGS, ResourceKind.CLUSTER, "cluster")
        peer = rig.peer()

        found = await peer.request(describe(name, kind=kind), 4)
        changed = await peer.request(change(name, ("log.preallocate", SET, "true"), kind=kind), 1)

        assert [found.results[0].error_code, code(changed)] == [31, 31]


# ---- groups and client metrics


@on_loop
async def test_group_describes_its_overrides_and_broker_defaults():
    async with Rig() as rig:
        peer = rig.peer()
        key = "consumer.session.timeout.ms"
        assert code(await peer.request(change("g", (key, SET, "50000"), kind=GROUP), 1)) == 0

        found = await reported(rig, "g", kind=GROUP)

        assert found.keys() == GROUPS.keys()
        assert synonyms(found[key]) == [(key, "50000", 8), (f"group.{key}", "45000", 5)]
        assert (found[key].value, found[key].config_source) == ("50000", 8)
        beat = found["consumer.heartbeat.interval.ms"]
        assert (beat.value, beat.config_source) == ("5000", 5)
        assert rig.broker.group_values.number("g", key) == 50_000


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("consumer.session.timeout.ms", "1", 40),
        ("consumer.session.timeout.ms", "60001", 40),
        ("consumer.heartbeat.interval.ms", "4999", 40),
        ("share.record.lock.duration.ms", "14999", 40),
        ("no.such", "1", 40),
        ("consumer.session.timeout.ms", None, 42),
    ],
)
@on_loop
async def test_a_group_gets_no_other_settings_than_the_broker_allows(key, value, expected):
    async with Rig() as rig:
        assert (
            code(await rig.peer().request(change("g", (key, SET, value), kind=GROUP), 1))
            == expected
        )
        assert rig.broker.group_values.names == []


@on_loop
async def test_group_configs_without_permission_are_denied():
    async with Rig() as rig:
        rig.rules.deny(Operation.DESCRIBE_SETTINGS, ResourceKind.GROUP, "g")

        (found,) = (await rig.peer().request(describe("g", kind=GROUP), 4)).results

        assert (found.error_code, found.configs) == (30, [])


@on_loop
async def test_client_metrics_resources_are_empty_and_refused():
    async with Rig() as rig:
        peer = rig.peer()

        assert await reported(rig, "sub", kind=METRICS) == {}
        assert (
            code(await peer.request(change("sub", ("interval.ms", SET, "100"), kind=METRICS), 1))
            == 42
        )
