"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs: settings of topics."""

from __future__ import annotations

import pytest

from tests.gateway.kafka.produce.test_produce import only
from tests.gateway.kafka.produce.test_produce import request as produce
from tests.gateway.kafka.rig import Rig, batch, settle, versions
from tests.gateway.loop import on_loop
from tests.waiting import wait_on_loop
from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.broker.settings.topic_table import TABLE
from trilogue.gateway.kafka.configs import configs as configs_gateway
from trilogue.gateway.kafka.context import KafkaSettings
from trilogue.gateway.memory_budget import MemoryHolder
from trilogue.meta.errors import PreconditionFailed
from trilogue.wire.kafka.configs import configs
from trilogue.wire.kafka.topics.topics import DeleteTopicsRequest, DeleteTopicState

TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)


def describe(*names: str, keys: list[str] | None = None, kind: int = TOPIC, **how):
    resources = [
        configs.DescribeConfigsResource(
            resource_type=kind, resource_name=name, configuration_keys=keys
        )
        for name in names
    ]
    return configs.DescribeConfigsRequest(resources=resources, **how)


def replace(name: str, kind: int = TOPIC, *, validate_only: bool = False, **settings: str | None):
    changed = [
        configs.AlterableConfig(name=key.replace("_", "."), value=value)
        for key, value in settings.items()
    ]
    requested = configs.AlterConfigsResource(
        resource_type=kind, resource_name=name, configs=changed
    )
    return configs.AlterConfigsRequest(resources=[requested], validate_only=validate_only)


def change(name: str, *changes: tuple[str, int, str | None], kind: int = TOPIC, **how):
    changed = [
        configs.IncrementalAlterableConfig(name=key, config_operation=operation, value=value)
        for key, operation, value in changes
    ]
    requested = configs.IncrementalAlterConfigsResource(
        resource_type=kind, resource_name=name, configs=changed
    )
    return configs.IncrementalAlterConfigsRequest(resources=[requested], **how)


def synonyms(reported) -> list[tuple[str, str, int]]:
    return [(each.name, each.value, each.source) for each in reported.synonyms]


def code(response) -> int:
    (result,) = response.responses
    return result.error_code


# ---- describe


@pytest.mark.parametrize("version", versions(32))
@on_loop
async def test_every_version_describes_effective_configs(version):
    async with Rig() as rig:
        rig.topic("t", retention_ms="5", flush="interval")

        (result,) = (await rig.peer().request(describe("t"), version)).results

        assert (result.error_code, result.resource_type, result.resource_name) == (0, TOPIC, "t")
        reported = {each.name: each for each in result.configs}
        assert reported.keys() == TABLE.keys()
        assert (reported["retention.ms"].value, reported["flush"].value) == ("5", "interval")
        assert reported["max.message.bytes"].value == "1048588"
        if version == 0:
            assert (reported["flush"].is_default, reported["retention.bytes"].is_default) == (
                False,
                True,
            )
        else:
            sources = [reported[key].config_source for key in ("flush", "retention.bytes")]
            assert sources == [1, 5]
        assert (reported["flush"].read_only, reported["remote.storage.enable"].read_only) == (
            False,
            True,
        )
        assert reported["retention.ms"].config_type == (5 if version >= 3 else 0)


@on_loop
async def test_only_requested_keys_are_described():
    async with Rig() as rig:
        rig.topic("t", retention_ms="5")
        requested = describe(
            "t",
            keys=["retention.ms", "retention.bytes", "no.such"],
            include_synonyms=True,
            include_documentation=True,
        )

        (result,) = (await rig.peer().request(requested, 4)).results

        first, second = result.configs
        assert synonyms(first) == [("retention.ms", "5", 1)]
        assert synonyms(second) == [("log.retention.bytes", "-1", 5)]
        assert first.documentation == TABLE["retention.ms"].doc


@on_loop
async def test_describe_configs_of_unknown_or_denied_resources_is_refused():
    async with Rig() as rig:
        rig.topic("t")
        rig.topic("secret")
        rig.rules.deny(Operation.DESCRIBE_SETTINGS, ResourceKind.TOPIC, "public/default/secret")
        peer = rig.peer()

        response = await peer.request(describe("t", "missing", "no name!", "secret", ""), 4)
        other = await peer.request(describe("t", kind=99), 4)

        assert [each.error_code for each in response.results] == [0, 3, 17, 29, 17]
        assert [each.error_code for each in other.results] == [42]
        assert other.results[0].error_message


@on_loop
async def test_a_request_names_only_so_many():
    async with Rig(settings=KafkaSettings(described_per_request_max=2)) as rig:
        rig.topic("t")

        response = await rig.peer().request(describe("t", "u", "t", "v"), 1)

        assert [each.error_code for each in response.results] == [0, 3, 42]


@on_loop
async def test_size_of_a_describe_configs_response_is_limited(monkeypatch):
    async with Rig() as rig:
        for name in "tuv":
            rig.topic(name)
        peer = rig.peer()
        one = await peer.request(describe("t", include_documentation=True), 4)
        size = sum(len(each.documentation) + len(each.name) for each in one.results[0].configs)
        monkeypatch.setattr(configs_gateway, "ANSWER_BYTES_MAX", 3 * size)

        response = await peer.request(describe("t", "u", "v", include_documentation=True), 4)

        codes = [each.error_code for each in response.results]
        assert codes == [0, 0, 42]
        assert response.results[0].configs == response.results[1].configs == one.results[0].configs


@on_loop
async def test_each_topic_describes_its_overrides_and_shared_defaults():
    async with Rig() as rig:
        rig.topic("a")
        rig.topic("b", retention_ms="5")
        rig.topic("c")

        found = await rig.peer().request(describe("a", "b", "c"), 4)

        values = [
            {each.name: (each.value, each.config_source) for each in one.configs}
            for one in found.results
        ]
        assert values[0] == values[2]
        assert values[1] == values[0] | {"retention.ms": ("5", 1)}
        order = [[each.name for each in one.configs] for one in found.results]
        assert order[0] == order[1]


# ---- alter


@pytest.mark.parametrize("version", versions(33))
@on_loop
async def test_every_version_replaces_all_settings(version):
    async with Rig() as rig:
        topic = rig.topic("t", retention_ms="5", flush="interval")

        response = await rig.peer().request(replace("t", max_message_bytes="1000"), version)

        assert code(response) == 0
        assert rig.gateway.topic("t").settings == {"max.message.bytes": "1000"}
        row = rig.meta.state.topics[topic.row.key]
        assert (row.settings, row.epoch) == ({"max.message.bytes": "1000"}, 1)
        assert row.partitions == topic.row.partitions


@pytest.mark.parametrize("version", versions(44))
@on_loop
async def test_every_version_changes_one_setting_and_leaves_the_others(version):
    async with Rig() as rig:
        rig.topic("t", retention_ms="5", flush="interval")

        requested = change("t", ("flush", DELETE, None), ("retention.bytes", SET, "7"))
        response = await rig.peer().request(requested, version)

        assert code(response) == 0
        assert rig.gateway.topic("t").settings == {"retention.ms": "5", "retention.bytes": "7"}


@on_loop
async def test_a_change_holds_for_partitions_that_live_and_for_known_shapes():
    async with Rig() as rig:
        topic = rig.topic("t")
        peer = rig.peer()
        for _ in range(2):
            await peer.request(produce("t", batch("x" * 900)), 7)

        await peer.request(
            change("t", ("max.message.bytes", SET, "500"), ("flush", SET, "interval")), 1
        )

        assert only(await peer.request(produce("t", batch("x" * 900)), 7)).error_code == 10
        before = rig.log.journal.counts.commits
        assert only(await peer.request(produce("t", batch("x")), 7)).base_offset == 2
        assert rig.log.journal.counts.commits == before, "acknowledged from memory"
        assert topic.partitions[0].log.end_offset == 3

        await peer.request(change("t", ("flush", SET, "commit")), 1)
        await peer.request(produce("t", batch("x")), 7)

        assert topic.partitions[0].log.high_watermark == 4


@on_loop
async def test_settings_of_other_protocols_are_hidden_and_kept():
    async with Rig() as rig:
        topic = rig.topic("t", retention_ms="5")
        theirs = {"pulsar.maxProducers": "2"}
        await rig.commit(rig.broker.cluster.plan_alter(topic.name, {**topic.settings, **theirs}))
        peer = rig.peer()

        (shown,) = (await peer.request(describe("t"), 1)).results
        replaced = await peer.request(replace("t", max_message_bytes="1000"), 1)
        changed = await peer.request(change("t", ("pulsar.maxProducers", SET, "3")), 1)

        assert "pulsar.maxProducers" not in [each.name for each in shown.configs]
        assert (code(replaced), code(changed)) == (0, 40)
        assert rig.gateway.topic("t").settings == {"max.message.bytes": "1000", **theirs}


@on_loop
async def test_lists_are_changed_item_by_item():
    async with Rig() as rig:
        rig.topic("t")
        peer = rig.peer()

        assert code(await peer.request(change("t", ("cleanup.policy", APPEND, "compact")), 1)) == 0
        assert rig.gateway.topic("t").settings == {"cleanup.policy": "delete,compact"}
        assert code(await peer.request(change("t", ("cleanup.policy", APPEND, "delete")), 1)) == 0
        assert rig.gateway.topic("t").settings == {"cleanup.policy": "delete,compact"}
        assert (
            code(await peer.request(change("t", ("cleanup.policy", SUBTRACT, "compact")), 1)) == 0
        )
        assert rig.gateway.topic("t").settings == {"cleanup.policy": "delete"}
        assert code(await peer.request(change("t", ("retention.ms", APPEND, "5")), 1)) == 40


@on_loop
async def test_a_minimum_in_sync_is_taken_as_one_copy_where_the_node_accepts_it():
    async with Rig(settings=KafkaSettings(accept_replication=True)) as rig:
        rig.topic("t")
        peer = rig.peer()

        changed = await peer.request(change("t", ("min.insync.replicas", SET, "2")), 1)

        assert code(changed) == 0
        assert rig.gateway.topic("t").settings == {"min.insync.replicas": "1"}


REFUSED = {
    "unknown": (change("t", ("no.such", SET, "1")), 40),
    "wrong value": (change("t", ("retention.ms", SET, "soon")), 40),
    "not enforced": (change("t", ("min.insync.replicas", SET, "2")), 40),
    "no value": (change("t", ("retention.ms", SET, None)), 42),
    "twice": (change("t", ("retention.ms", SET, "1"), ("retention.ms", SET, "2")), 42),
    "no operation": (change("t", ("retention.ms", 9, "1")), 42),
    "half wrong": (change("t", ("retention.ms", SET, "1"), ("flush", SET, "never")), 40),
    "missing": (change("missing", ("retention.ms", SET, "1")), 3),
    "bad name": (change("no name!", ("retention.ms", SET, "1")), 17),
    "of all topics": (change("", ("retention.ms", SET, "1")), 42),
    "of nothing": (change("1", ("retention.ms", SET, "1"), kind=99), 42),
}


@pytest.mark.parametrize("kind", REFUSED)
@on_loop
async def test_invalid_config_change_is_refused_and_changes_nothing(kind):
    requested, expected = REFUSED[kind]
    async with Rig() as rig:
        rig.topic("t", retention_ms="5")

        (result,) = (await rig.peer().request(requested, 1)).responses

        assert (result.error_code, bool(result.error_message)) == (expected, True)
        assert rig.gateway.topic("t").settings == {"retention.ms": "5"}


@pytest.mark.parametrize("requested", [replace("t", flush="interval"), replace("t", flush=None)])
@on_loop
async def test_alter_configs_without_permission_is_denied(requested):
    async with Rig() as rig:
        rig.topic("t")
        rig.rules.deny(Operation.ALTER_SETTINGS, ResourceKind.TOPIC, "public/default/t")

        assert code(await rig.peer().request(requested, 2)) == 29


@on_loop
async def test_validation_alone_changes_nothing():
    async with Rig() as rig:
        rig.topic("t")
        peer = rig.peer()

        good = await peer.request(change("t", ("retention.ms", SET, "1"), validate_only=True), 1)
        bad = await peer.request(replace("t", retention_ms="soon", validate_only=True), 2)

        assert (code(good), code(bad)) == (0, 40)
        assert rig.gateway.topic("t").settings == {}


@on_loop
async def test_a_topic_named_twice_is_changed_never():
    async with Rig() as rig:
        rig.topic("t")
        requested = change("t", ("retention.ms", SET, "1"))
        requested.resources *= 2

        response = await rig.peer().request(requested, 1)

        assert [each.error_code for each in response.responses] == [42, 42]
        assert rig.gateway.topic("t").settings == {}


@on_loop
async def test_changes_of_one_topic_follow_each_other():
    async with Rig() as rig:
        topic = rig.topic("t")
        one, other, third = rig.peer(), rig.peer(), rig.peer()
        rig.hold_commits = True
        one.send(change("t", ("retention.ms", SET, "1")), 1)
        other.send(change("t", ("retention.bytes", SET, "2")), 1)
        state = [DeleteTopicState(name="t")]
        third.send(DeleteTopicsRequest(topics=state, timeout_ms=60_000), 6)
        await settle()
        assert len(rig.commits) == 1

        await rig_carry_out(rig)
        assert code(one.answer()) == 0
        while rig.commits:
            await rig_carry_out(rig)

        assert code(other.answer()) in {0, 3}
        assert third.answer().responses[0].error_code == 0
        assert topic.row.key not in rig.meta.state.topics


async def rig_carry_out(rig: Rig) -> None:
    commit = rig.commits.pop(0)
    rig.hold_commits = False
    await rig.commit(commit)
    rig.hold_commits = True
    await settle()


@on_loop
async def test_two_changes_at_once_are_both_kept():
    async with Rig() as rig:
        rig.topic("t")
        one, other = rig.peer(), rig.peer()
        one.send(change("t", ("retention.ms", SET, "1")), 1)
        other.send(change("t", ("retention.bytes", SET, "2")), 1)

        await settle()

        assert (code(one.answer()), code(other.answer())) == (0, 0)
        assert rig.gateway.topic("t").settings == {"retention.ms": "1", "retention.bytes": "2"}


@on_loop
async def test_conflicting_change_returns_its_error():
    async with Rig() as rig:
        rig.topic("t")
        rig.hold_commits = True
        peer = rig.peer()
        peer.send(change("t", ("retention.ms", SET, "1")), 1)
        await settle()

        rig.commits[0].abandon(PreconditionFailed("another node deleted it"))
        await settle()

        assert code(peer.answer()) == 3
        rig.hold_commits = False
        assert code(await peer.request(change("t", ("retention.ms", SET, "1")), 1)) == 0


@on_loop
async def test_a_topic_that_is_being_deleted_changes_no_more():
    async with Rig() as rig:
        topic = rig.topic("t")
        rig.broker.cluster.plan_delete(topic.name)

        assert code(await rig.peer().request(change("t", ("retention.ms", SET, "1")), 1)) == 3


@on_loop
async def test_a_thing_that_is_named_again_is_reported_once():
    """A small request must not get an unlimited response: all settings, thousands of times."""
    async with Rig() as rig:
        rig.topic("t")
        requested = describe("t")
        requested.resources *= 1_000
        requested.resources += describe("t", keys=["retention.ms"]).resources

        reported = await rig.peer().request(requested, 4)

        everything, one = reported.results
        assert len(everything.configs) > len(one.configs) == 1


@on_loop
async def test_a_response_that_may_be_large_waits_for_memory():
    async with Rig() as rig:
        names = [f"t{number}" for number in range(50)]
        for name in names:
            rig.topic(name)
        budget = rig.memory.unsent
        others = MemoryHolder(budget)
        others.resize(budget.limit_bytes)
        peer = rig.peer()
        peer.send(describe(*names), 4)
        await wait_on_loop(lambda: budget.waiting == 1)
        assert peer.answered == 0

        others.resize(0)
        await wait_on_loop(lambda: peer.answered == 1)

        assert len(peer.answer().results) == len(names)
        assert budget.size_bytes == 0
