"""CreatePartitions: results, refusals, and which clients get the new partitions."""

from __future__ import annotations

import pytest

from tests.gateway.kafka.produce.test_produce import request as produce
from tests.gateway.kafka.rig import Rig, batch, settle, versions
from tests.gateway.loop import on_loop
from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.broker.names import parse_kafka
from trilogue.gateway.kafka.context import KafkaSettings
from trilogue.wire.kafka.topics.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)


def grow(*topics: CreatePartitionsTopic, **how) -> CreatePartitionsRequest:
    return CreatePartitionsRequest(topics=list(topics), **{"timeout_ms": 1_000} | how)


def to(name: str, count: int, *nodes: list[int], none: bool = True) -> CreatePartitionsTopic:
    """A topic and its new count; `none`: an empty list of assignments."""
    assignments = [CreatePartitionsAssignment(broker_ids=each) for each in nodes]
    return CreatePartitionsTopic(
        name=name, count=count, assignments=None if none and not nodes else assignments
    )


def codes(response) -> list[tuple[str, int]]:
    return [(each.name, each.error_code) for each in response.results]


def count(rig: Rig, name: str) -> int:
    return len(rig.gateway.topic(name).partitions)


@pytest.mark.parametrize("version", versions(37))
@on_loop
async def test_every_version_adds_partitions(version):
    async with Rig() as rig:
        before = rig.topic("t", partitions=2).partitions
        rig.topic("u")
        peer = rig.peer()

        response = await peer.request(grow(to("t", 4, [1], [1]), to("u", 3)), version)

        assert codes(response) == [("t", 0), ("u", 0)]
        assert [each.error_message for each in response.results] == [None, None]
        assert rig.gateway.topic("t").partitions[:2] == before
        assert (count(rig, "t"), count(rig, "u")) == (4, 3)
        written = await peer.request(produce("t", batch("a"), index=3), 7)
        assert written.responses[0].partition_responses[0].error_code == 0


@on_loop
async def test_validate_only_adds_nothing():
    async with Rig() as rig:
        rig.topic("t", partitions=2)

        requested = grow(to("t", 4), to("none", 4), validate_only=True)

        assert codes(await rig.peer().request(requested, 3)) == [("t", 0), ("none", 3)]
        assert count(rig, "t") == 2
        assert rig.broker.cluster.pending_change(parse_kafka("t")) is None


REFUSED = {
    "the same": (to("t", 2), 37),
    "fewer": (to("t", 1), 37),
    "none": (to("t", 0), 37),
    "less than none": (to("t", -1), 37),
    "too many": (to("t", 10_000_000), 37),
    "not numbered": (to("bare", 2), 37),
    "unknown": (to("nowhere", 2), 3),
    "no name": (to("no good", 2), 3),
    "another node": (to("t", 3, [2]), 39),
    "two nodes": (to("t", 3, [1, 1]), 39),
    "nobody": (to("t", 3, []), 39),
    "too few assignments": (to("t", 4, [1]), 39),
    "too many assignments": (to("t", 3, [1], [1]), 39),
    "no assignments, but said": (to("t", 3, none=False), 39),
}


@pytest.mark.parametrize("validate_only", [False, True])
@pytest.mark.parametrize("kind", REFUSED)
@on_loop
async def test_invalid_create_partitions_is_refused_with_a_message(kind, validate_only):
    requested, code = REFUSED[kind]
    async with Rig() as rig:
        rig.topic("t", partitions=2)
        rig.topic("good")
        plan = rig.broker.cluster.check_create(parse_kafka("bare"), partitioned=False)
        await rig.commit(rig.broker.cluster.plan_create(plan))

        response = await rig.peer().request(
            grow(to("good", 2), requested, validate_only=validate_only), 2
        )

        good, bad = response.results
        assert (good.error_code, good.error_message) == (0, None)
        assert bad.error_code == code
        assert bad.error_message
        assert (count(rig, "t"), count(rig, "bare")) == (2, 1)


@on_loop
async def test_a_topic_named_twice_grows_never_and_a_request_has_an_end():
    async with Rig(settings=KafkaSettings(topics_per_request_max=2)) as rig:
        for name in "tuv":
            rig.topic(name)

        response = await rig.peer().request(grow(to("t", 2), to("u", 2), to("t", 3), to("v", 2)), 3)

        assert codes(response) == [("t", 42), ("u", 0), ("v", 42)]
        assert [count(rig, name) for name in "tuv"] == [1, 2, 1]


@on_loop
async def test_create_partitions_without_permission_is_denied():
    async with Rig() as rig:
        name = str(rig.topic("t").name)
        rig.rules.deny(Operation.ALTER, ResourceKind.TOPIC, name)

        assert codes(await rig.peer().request(grow(to("t", 2)), 3)) == [("t", 29)]
        assert count(rig, "t") == 1


@on_loop
async def test_when_time_is_over_the_topic_grows_all_the_same():
    async with Rig() as rig:
        topic = rig.topic("t")
        subscriptions = rig.broker.subscriptions
        subscriptions.create(topic.partitions[0].partition_id, "s", 0)
        await settle()
        rig.hold_commits = True

        # The second request waits for the first: changes of a topic follow each other.
        assert codes(await rig.peer().request(grow(to("t", 2), timeout_ms=100), 3)) == [("t", 7)]
        later = rig.peer()
        later.send(grow(to("t", 3)), 3)
        await settle()
        assert len(rig.commits) == 1
        rig.hold_commits = False
        await rig.commit(rig.commits[0])
        await later.wait()

        assert codes(later.answer()) == [("t", 0)]
        assert count(rig, "t") == 3
        # also those that no consumer waited for
        for partition in rig.gateway.topic("t").partitions[1:]:
            assert subscriptions.find_cursor(partition.partition_id, "s") is not None


@on_loop
async def test_subscriptions_have_the_new_partitions_from_the_beginning():
    async with Rig() as rig:
        topic = rig.topic("t", partitions=2)
        subscriptions = rig.broker.subscriptions
        for name in ("a", "b"):
            subscriptions.create(topic.partitions[0].partition_id, name, 0, {"k": name})
        await settle()

        assert codes(await rig.peer().request(grow(to("t", 4)), 3)) == [("t", 0)]

        for partition in rig.gateway.topic("t").partitions[2:]:
            found = subscriptions.of_partition(partition.partition_id)
            assert {each.name: (each.mark, each.properties) for each in found.values()} == {
                "a": (0, {"k": "a"}), "b": (0, {"k": "b"}),
            }  # fmt: skip
