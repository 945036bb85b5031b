"""ListConfigResources: the resources that have settings."""

from __future__ import annotations

import pytest

from tests.gateway.kafka.configs.test_configs import SET, change
from tests.gateway.kafka.rig import Rig
from tests.gateway.loop import on_loop
from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.broker.names import parse_pulsar
from trilogue.wire.kafka.configs.list_resources import ListConfigResourcesRequest

TOPICS, BROKERS, LOGGERS, METRICS, GROUPS = 2, 4, 8, 16, 32
EVERY = {(TOPICS, "t"), (TOPICS, "u"), (BROKERS, "1"), (LOGGERS, "1"), (GROUPS, "g")}


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        ([], EVERY),
        ([TOPICS, TOPICS], {each for each in EVERY if each[0] == TOPICS}),
        ([BROKERS, LOGGERS], {(BROKERS, "1"), (LOGGERS, "1")}),
        ([METRICS], set()),
        ([GROUPS], {(GROUPS, "g")}),
    ],
)
@on_loop
async def test_resources_are_listed_by_type_and_groups_with_overrides(kinds, expected):
    async with Rig() as rig:
        rig.topic("t")
        rig.topic("u")
        given = "consumer.session.timeout.ms", SET, "50000"
        await rig.peer().request(change("g", given, kind=GROUPS), 1)

        found = await rig.peer().request(ListConfigResourcesRequest(resource_types=kinds), 1)

        listed = [(each.resource_type, each.resource_name) for each in found.config_resources]
        assert (found.error_code, set(listed)) == (0, expected)
        assert len(listed) == len(expected)


@on_loop
async def test_the_first_version_means_subscriptions_of_client_metrics_and_there_are_none():
    async with Rig() as rig:
        rig.topic("t")

        found = await rig.peer().request(ListConfigResourcesRequest(), 0)

        assert (found.error_code, found.config_resources) == (0, [])


@pytest.mark.parametrize("kind", [0, 1, 99, -1])
@on_loop
async def test_an_unknown_kind_is_one_of_a_version_we_do_not_know(kind):
    """As Kafka 4.3.1."""
    async with Rig() as rig:
        requested = ListConfigResourcesRequest(resource_types=[TOPICS, kind])

        found = await rig.peer().request(requested, 1)

        assert (found.error_code, found.config_resources) == (35, [])


@on_loop
async def test_list_config_resources_without_permission_is_denied():
    async with Rig() as rig:
        rig.rules.deny(Operation.DESCRIBE_SETTINGS, ResourceKind.CLUSTER, "cluster")

        found = await rig.peer().request(ListConfigResourcesRequest(), 1)

        assert (found.error_code, found.config_resources) == (31, [])


@on_loop
async def test_a_topic_that_kafka_cannot_spell_is_not_listed():
    async with Rig() as rig:
        rig.topic("t")
        cluster = rig.broker.cluster
        new = cluster.check_create(parse_pulsar("größe 1").topic)
        await rig.commit(cluster.plan_create(new))

        found = await rig.peer().request(ListConfigResourcesRequest(resource_types=[TOPICS]), 1)

        assert [each.resource_name for each in found.config_resources] == ["t"]
