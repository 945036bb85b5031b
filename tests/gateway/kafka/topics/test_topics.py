"""CreateTopics and DeleteTopics: results, refusals, and timeouts."""

from __future__ import annotations

import pytest

from tests.gateway.kafka.rig import Rig, settle, versions
from tests.gateway.loop import on_loop
from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.broker.settings.topic_table import TABLE
from trilogue.gateway.kafka.context import KafkaSettings
from trilogue.meta.errors import PreconditionFailed
from trilogue.wire.kafka.topics.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)


def create(*topics: CreatableTopic, **how) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=list(topics), **how)


def topic(name: str, partitions: int = -1, copies: int = -1, **settings: str | None):
    configs = [
        CreatableTopicConfig(name=key.replace("_", "."), value=value)
        for key, value in settings.items()
    ]
    return CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=copies, configs=configs
    )


def delete(version: int, *names: str, ids: tuple[bytes, ...] = (), **how) -> DeleteTopicsRequest:
    if version < 6:
        return DeleteTopicsRequest(topic_names=list(names), timeout_ms=1_000, **how)
    states = [DeleteTopicState(name=name) for name in names]
    states += [DeleteTopicState(name=None, topic_id=each) for each in ids]
    return DeleteTopicsRequest(topics=states, timeout_ms=1_000, **how)


def codes(results) -> list[tuple[str | None, int]]:
    return [(each.name, each.error_code) for each in results]


@pytest.mark.parametrize("version", versions(19))
@on_loop
async def test_every_version_makes_topics(version):
    async with Rig() as rig:
        request = create(topic("t", 3, 1, retention_ms="5"), topic("u", 1, 1))

        results = (await rig.peer().request(request, version)).topics

        assert codes(results) == [("t", 0), ("u", 0)]
        made = rig.gateway.topic("t")
        assert (len(made.partitions), made.settings) == (3, {"retention.ms": "5"})
        first = results[0]
        assert not first.error_message
        assert first.topic_id == (made.topic_id if version >= 7 else bytes(16))
        if version >= 5:
            assert (first.num_partitions, first.replication_factor) == (3, 1)
            reported = {each.name: (each.value, each.config_source) for each in first.configs}
            assert set(reported) == set(TABLE)
            assert reported["retention.ms"] == ("5", 1)
            assert reported["cleanup.policy"] == ("delete", 5)


@on_loop
async def test_minus_one_means_what_the_broker_likes():
    async with Rig() as rig:
        (result,) = (await rig.peer().request(create(topic("t")), 5)).topics

        assert (result.error_code, result.num_partitions, result.replication_factor) == (0, 1, 1)


@on_loop
async def test_validate_only_makes_nothing():
    async with Rig() as rig:
        request = create(topic("t", 2), topic("u", 0), validate_only=True)

        assert codes((await rig.peer().request(request, 5)).topics) == [("t", 0), ("u", 37)]
        assert len(rig.broker.cluster) == 0


REFUSED = {
    "taken": (topic("taken"), 36),
    "name": (topic("no good"), 17),
    "dots": (topic(".."), 17),
    "partition name": (topic("t-partition-3"), 17),
    "no partitions": (topic("t", 0), 37),
    "too many partitions": (topic("t", 10_000_000), 37),
    "two copies": (topic("t", 1, 2), 38),
    "no copies": (topic("t", 1, 0), 38),
    "unknown setting": (topic("t", 1, 1, no_such_thing="1"), 40),
    "bad value": (topic("t", 1, 1, retention_ms="soon"), 40),
    "null value": (topic("t", 1, 1, retention_ms=None), 40),
    "not enforced": (topic("t", 1, 1, min_insync_replicas="2"), 40),
}


@pytest.mark.parametrize("kind", REFUSED)
@on_loop
async def test_invalid_topic_is_refused_with_a_message(kind):
    """What is not enforced is refused with a clear error."""
    requested, code = REFUSED[kind]
    async with Rig() as rig:
        rig.topic("taken")

        good, bad = (await rig.peer().request(create(topic("good"), requested), 7)).topics

        assert good.error_code == 0
        assert (bad.error_code, bad.topic_id, bad.num_partitions) == (code, bytes(16), -1)
        assert bad.error_message
        assert len(rig.broker.cluster) == 2


@pytest.mark.parametrize("first", ["a.b_c", "a_b.c"])
@on_loop
async def test_a_name_that_differs_in_dots_and_underscores_only_is_refused(first):
    """A topic of another namespace does not collide, and one that is deleted does no more."""
    async with Rig() as rig:
        rig.topic(first)
        peer = rig.peer()

        names = ("a.b.c", "abc", "acme/shop/a.b.c", first)
        results = (await peer.request(create(*map(topic, names)), 7)).topics

        assert codes(results) == list(zip(names, (17, 0, 0, 36), strict=True))
        assert results[0].error_message == f"Topic 'a.b.c' collides with existing topic: {first}"
        await peer.request(delete(6, first), 6)
        assert codes((await peer.request(create(topic("a.b.c")), 7)).topics) == [("a.b.c", 0)]
        assert codes((await peer.request(create(topic(first)), 7)).topics) == [(first, 17)]


@on_loop
async def test_a_pulsar_topic_may_collide_and_counts():
    """The rule is for topics that Kafka clients create."""
    async with Rig() as rig:
        peer = rig.peer()
        await peer.request(create(topic("x.y")), 7)
        rig.topic("x_y")
        await peer.request(delete(6, "x.y"), 6)

        assert codes((await peer.request(create(topic("x.y")), 7)).topics) == [("x.y", 17)]


@on_loop
async def test_replication_is_refused_with_advice():
    async with Rig() as rig:
        requested = create(topic("a", 1, 3), topic("b", 1, 1, min_insync_replicas="2"))

        results = (await rig.peer().request(requested, 7)).topics

        assert [each.error_code for each in results] == [38, 40]
        assert all("kafka.accept-replication" in each.error_message for each in results)


@on_loop
async def test_replication_is_taken_as_one_copy_where_the_node_accepts_it(caplog):
    async with Rig(settings=KafkaSettings(accept_replication=True)) as rig:
        requested = create(
            topic("a", 1, 3), topic("b", 1, 1, min_insync_replicas="2"), topic("c", 1, 0)
        )

        made = (await rig.peer().request(requested, 7)).topics

        assert [each.error_code for each in made] == [0, 0, 38]
        assert [each.replication_factor for each in made[:2]] == [1, 1]
        settings = [{each.name: each.value for each in result.configs} for result in made[:2]]
        assert [each["min.insync.replicas"] for each in settings] == ["1", "1"]
        warnings = [each for each in caplog.records if each.levelname == "WARNING"]
        assert [(each.topic, each.setting, each.requested) for each in warnings] == [
            ("a", "replication.factor", 3),
            ("b", "min.insync.replicas", "2"),
        ]


@pytest.mark.parametrize(
    ("nodes", "code"), [({0: [1], 1: [1]}, 0), ({0: [2]}, 39), ({1: [1]}, 39), ({0: [1, 2]}, 39)]
)
@on_loop
async def test_assignments_may_name_this_node_only(nodes, code):
    async with Rig() as rig:
        request = topic("t")
        request.assignments = [
            CreatableReplicaAssignment(partition_index=index, broker_ids=ids)
            for index, ids in nodes.items()
        ]

        (result,) = (await rig.peer().request(create(request), 5)).topics

        assert result.error_code == code
        assert result.num_partitions == (2 if code == 0 else -1)


@on_loop
async def test_a_topic_named_twice_in_one_request_is_made_never():
    async with Rig() as rig:
        request = create(topic("t"), topic("u"), topic("t"))

        assert codes((await rig.peer().request(request, 5)).topics) == [("t", 42), ("u", 0)]


@on_loop
async def test_an_assignment_that_names_a_partition_twice_is_refused():
    async with Rig() as rig:
        request = topic("t")
        request.assignments = [
            CreatableReplicaAssignment(partition_index=0, broker_ids=[1]) for _ in range(2)
        ]

        (result,) = (await rig.peer().request(create(request), 5)).topics

        assert (result.error_code, result.configs) == (39, [])
        assert len(rig.broker.cluster) == 0


@on_loop
async def test_one_request_makes_and_deletes_only_so_many_topics():
    async with Rig(settings=KafkaSettings(topics_per_request_max=2)) as rig:
        peer = rig.peer()

        made = await peer.request(create(*(topic(name) for name in "abc")), 5)
        assert codes(made.topics) == [("a", 0), ("b", 0), ("c", 42)]
        rig.topic("c")
        gone = await peer.request(delete(5, "a", "b", "c"), 5)

        assert codes(gone.responses) == [("a", 0), ("b", 0), ("c", 42)]


@on_loop
async def test_create_topics_without_permission_is_denied():
    async with Rig() as rig:
        rig.rules.deny(Operation.CREATE, ResourceKind.CLUSTER, "cluster")
        rig.rules.deny(Operation.CREATE, ResourceKind.TOPIC, "public/default/t")

        request = create(topic("t"), topic("u"))

        assert codes((await rig.peer().request(request, 5)).topics) == [("t", 29), ("u", 0)]


@on_loop
async def test_when_time_is_over_the_topic_is_made_all_the_same():
    async with Rig() as rig:
        rig.hold_commits = True
        peer = rig.peer()

        answer = await peer.request(create(topic("t"), timeout_ms=100), 5)

        assert codes(answer.topics) == [("t", 7)]
        rig.hold_commits = False
        await rig.commit(rig.commits[0])
        assert rig.gateway.topic("t")


@on_loop
async def test_a_client_that_was_slower_is_notified_that_the_name_is_taken():
    async with Rig() as rig:
        rig.hold_commits = True
        peer = rig.peer()
        peer.send(create(topic("t")), 5)
        await settle()

        rig.commits[0].abandon(PreconditionFailed("somebody made it"))
        await settle()

        (result,) = peer.answer().topics
        assert (result.error_code, result.error_message) == (36, "Topic 't' already exists.")


@on_loop
async def test_a_request_behind_a_long_one_waits_for_it():
    async with Rig() as rig:
        peer = rig.peer()

        peer.send(create(topic("t")), 5)
        assert not peer.transport.reading
        await settle()

        assert codes(peer.answer().topics) == [("t", 0)]
        assert peer.transport.reading


# ---- delete


@pytest.mark.parametrize("version", versions(20))
@on_loop
async def test_every_version_deletes_topics(version):
    async with Rig() as rig:
        rig.topic("t")
        rig.topic("u")

        results = (await rig.peer().request(delete(version, "t", "missing"), version)).responses

        assert codes(results) == [("t", 0), ("missing", 3)]
        assert [str(each.name) for each in rig.broker.cluster] == ["public/default/u"]
        assert bool(results[1].error_message) == (version >= 5)


@pytest.mark.parametrize("version", versions(20))
@on_loop
async def test_a_name_that_no_topic_can_have_is_an_unknown_topic_to_delete(version):
    async with Rig() as rig:
        results = (await rig.peer().request(delete(version, "a b", ""), version)).responses

        assert codes(results) == [("a b", 3), ("", 3)]


@pytest.mark.parametrize("version", versions(20))
@on_loop
async def test_duplicate_topic_in_a_delete_request_stays_and_has_one_result(version):
    async with Rig() as rig:
        rig.topic("t")

        results = (await rig.peer().request(delete(version, "t", "t"), version)).responses

        assert codes(results) == [("t", 42)]
        assert len(rig.broker.cluster) == 1


@on_loop
async def test_topics_are_deleted_by_id():
    async with Rig() as rig:
        made = rig.topic("t")

        request = delete(6, ids=(made.topic_id, bytes(range(16))))
        known, unknown = (await rig.peer().request(request, 6)).responses

        assert (known.name, known.topic_id, known.error_code) == ("t", made.topic_id, 0)
        assert (unknown.name, unknown.error_code) == (None, 100)


@on_loop
async def test_a_topic_is_deleted_by_name_or_by_id_but_not_by_both():
    async with Rig() as rig:
        made = rig.topic("t")
        both = DeleteTopicState(name="t", topic_id=made.topic_id)
        neither = DeleteTopicState(name=None)

        request = DeleteTopicsRequest(topics=[both, neither], timeout_ms=1_000)

        results = (await rig.peer().request(request, 6)).responses
        assert [each.error_code for each in results] == [42, 42]
        assert len(rig.broker.cluster) == 1


@on_loop
async def test_delete_topics_without_permission_is_denied_without_names():
    async with Rig() as rig:
        made, hidden = rig.topic("t"), rig.topic("hidden")
        rig.rules.deny(Operation.DELETE, ResourceKind.TOPIC, "public/default/t")
        for operation in (Operation.DELETE, Operation.DESCRIBE):
            rig.rules.deny(operation, ResourceKind.TOPIC, "public/default/hidden")
        peer = rig.peer()

        by_name = await peer.request(delete(6, "t", "hidden"), 6)
        by_id = await peer.request(delete(6, ids=(made.topic_id, hidden.topic_id)), 6)

        assert codes(by_name.responses) == [("t", 29), ("hidden", 29)]
        assert [each.error_code for each in by_id.responses] == [29, 100]
        assert by_id.responses[1].name is None
        assert len(rig.broker.cluster) == 2
