"""Metadata: who is there, what topics there are, and topics that come to be."""

from __future__ import annotations

import pytest

from tests.gateway.kafka.rig import Rig, settle, versions
from tests.gateway.loop import on_loop
from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.broker.names import parse_namespace, parse_pulsar
from trilogue.broker.topics.namespaces import Namespace
from trilogue.gateway.kafka.context import KafkaSettings
from trilogue.meta.errors import PreconditionFailed
from trilogue.wire.kafka.metadata.metadata import MetadataRequest, MetadataRequestTopic


def build_request(*names: str, create: bool = True, **how: bool) -> MetadataRequest:
    topics = [MetadataRequestTopic(name=name) for name in names]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=create, **how)


def codes(response) -> dict[str | None, int]:
    return {topic.name: topic.error_code for topic in response.topics}


@pytest.mark.parametrize("version", versions(3))
@on_loop
async def test_every_version_returns_broker_topics_and_partitions(version):
    async with Rig() as rig:
        made = rig.topic("t", partitions=2)

        answer = await rig.peer().request(build_request("t"), version)

        (broker,) = answer.brokers
        assert (broker.node_id, broker.host, broker.port) == (1, "broker.example", 9092)
        assert answer.controller_id == (1 if version >= 1 else -1)
        assert answer.cluster_id == ("YSBjbHVzdGVyJ3MgaWQgMQ" if version >= 2 else None)
        (topic,) = answer.topics
        assert (topic.name, topic.error_code, topic.is_internal) == ("t", 0, False)
        assert topic.topic_id == (made.topic_id if version >= 10 else bytes(16))
        for index, each in enumerate(topic.partitions):
            assert (each.partition_index, each.error_code, each.leader_id) == (index, 0, 1)
            assert (each.replica_nodes, each.isr_nodes, each.offline_replicas) == ([1], [1], [])
            assert each.leader_epoch == (3 if version >= 7 else -1)
        assert len(topic.partitions) == 2


@pytest.mark.parametrize(("version", "topics"), [(0, []), (1, None), (12, None)])
@on_loop
async def test_all_topics(version, topics):
    """null = all, v0 empty = all."""
    async with Rig() as rig:
        rig.topic("t")
        rig.topic("acme/shop/u")

        answer = await rig.peer().request(MetadataRequest(topics=topics), version)

        assert codes(answer) == {"t": 0, "acme/shop/u": 0}


@on_loop
async def test_an_empty_list_is_no_topic_since_v1():
    async with Rig() as rig:
        rig.topic("t")

        assert (await rig.peer().request(build_request(), 1)).topics == []


@on_loop
async def test_requested_topic_is_auto_created_and_returned():
    async with Rig() as rig:
        peer = rig.peer()

        (topic,) = (await peer.request(build_request("new"), 12)).topics

        assert (topic.error_code, len(topic.partitions)) == (0, 1)
        assert rig.gateway.topic("new").topic_id == topic.topic_id


@pytest.mark.parametrize("version", [0, 3, 4])
@on_loop
async def test_old_clients_always_allow_it_and_newer_ones_may_not(version):
    """allow_auto_topic_creation v4+."""
    async with Rig() as rig:
        answer = await rig.peer().request(build_request("new", create=version < 4), version)

        assert codes(answer) == {"new": 0 if version < 4 else 3}


@on_loop
async def test_a_node_may_be_set_not_to_make_topics():
    async with Rig(settings=KafkaSettings(auto_create_topics=False)) as rig:
        assert codes(await rig.peer().request(build_request("new"), 12)) == {"new": 3}


@on_loop
async def test_a_name_that_differs_in_a_dot_only_is_not_auto_created():
    async with Rig() as rig:
        rig.topic("a_b")

        assert codes(await rig.peer().request(build_request("a.b", "c"), 9)) == {"a.b": 17, "c": 0}


@on_loop
async def test_a_topic_that_another_node_created_first_is_described():
    async with Rig() as rig:
        conflicts = []

        async def conflict(change):
            conflicts.append(change)
            raise change.abandon(PreconditionFailed("another change came first"))

        async def catch_up():
            if len(conflicts) == 1:
                rig.topic("new", 3)

        rig.gateway.write_metadata, rig.gateway.catch_up = conflict, catch_up
        answer = await rig.peer().request(build_request("new"), 12)

        (topic,) = answer.topics
        assert (topic.error_code, len(topic.partitions)) == (0, 3)


@on_loop
async def test_namespace_policy_disables_auto_creation():
    async with Rig() as rig:
        given = Namespace(policies={"autoTopicCreation": {"allowAutoTopicCreation": False}})
        home = parse_namespace("public/default")
        await rig.commit(rig.broker.namespaces.plan_alter(home, given))

        answer = await rig.peer().request(build_request("new", "acme/shop/new"), 12)

        assert codes(answer) == {"new": 3, "acme/shop/new": 0}


@on_loop
async def test_topic_with_added_partitions_is_returned_with_all_of_them():
    async with Rig() as rig:
        topic = rig.topic("t", 2)
        peer = rig.peer()
        before = await peer.request(build_request("t"), 12)
        await rig.commit(rig.broker.cluster.plan_add_partitions(topic.name, 5))

        after = await peer.request(build_request("t"), 12)

        assert [len(each.topics[0].partitions) for each in (before, after)] == [2, 5]


@on_loop
async def test_topic_with_an_invalid_kafka_name_is_not_listed():
    async with Rig() as rig:
        rig.topic("t")
        cluster = rig.broker.cluster
        new = cluster.check_create(parse_pulsar("größe 1").topic)
        await rig.commit(cluster.plan_create(new))

        answer = await rig.peer().request(MetadataRequest(topics=None), 12)

        assert codes(answer) == {"t": 0}


@pytest.mark.parametrize("name", ["", "..", "a b", "x" * 250, "t-partition-0", "a/b", "ü"])
@on_loop
async def test_a_name_that_no_topic_can_have_is_17(name):
    async with Rig() as rig:
        assert codes(await rig.peer().request(build_request(name), 12)) == {name: 17}
        assert len(rig.broker.cluster) == 0


@on_loop
async def test_one_request_makes_only_so_many_topics():
    async with Rig(settings=KafkaSettings(auto_create_per_request_max=3)) as rig:
        answer = await rig.peer().request(build_request("a", "b", "b", "c", "d"), 12)

        assert [topic.error_code for topic in answer.topics] == [0, 0, 0, 3]
        assert len(rig.broker.cluster) == 3


@on_loop
async def test_two_clients_that_mention_a_new_topic_make_it_once():
    async with Rig() as rig:
        rig.hold_commits = True
        peers = [rig.peer(), rig.peer()]
        for peer in peers:
            peer.send(build_request("new"), 12)
        await settle()
        assert len(rig.commits) == 1
        rig.hold_commits = False

        await rig.commit(rig.commits[0])
        await settle()

        ids = {peer.answer().topics[0].topic_id for peer in peers}
        assert ids == {rig.gateway.topic("new").topic_id}


@on_loop
async def test_a_topic_that_is_not_recorded_in_time_is_leader_not_available():
    async with Rig() as rig:
        rig.hold_commits = True

        assert codes(await rig.peer().request(build_request("new"), 12)) == {"new": 5}


@on_loop
async def test_topics_are_found_by_id():
    async with Rig() as rig:
        made = rig.topic("t")
        wanted = [made.topic_id, bytes(range(16))]
        topics = [MetadataRequestTopic(name=None, topic_id=each) for each in wanted]

        known, unknown = (await rig.peer().request(MetadataRequest(topics=topics), 12)).topics

        assert (known.name, known.error_code, known.topic_id) == ("t", 0, made.topic_id)
        assert (unknown.name, unknown.error_code) == (None, 100)
        assert unknown.topic_id == bytes(range(16))


@pytest.mark.parametrize("version", versions(3))
@on_loop
async def test_a_topic_that_is_requested_twice_is_reported_once(version):
    async with Rig() as rig:
        rig.topic("t")

        answer = await rig.peer().request(build_request("t", "u", "t", create=False), version)

        assert [topic.name for topic in answer.topics] == ["t", "u"]


@on_loop
async def test_topic_id_precedes_the_topic_name():
    async with Rig() as rig:
        made = rig.topic("t")
        topics = [MetadataRequestTopic(name="other", topic_id=made.topic_id)]

        (topic,) = (await rig.peer().request(MetadataRequest(topics=topics), 12)).topics

        assert (topic.name, topic.error_code, topic.topic_id) == ("t", 0, made.topic_id)
        assert len(rig.broker.cluster) == 1


@pytest.mark.parametrize("version", [10, 11])
@pytest.mark.parametrize("name", [None, "t"])
@on_loop
async def test_topic_ids_are_returned_but_not_requestable_before_v12(version, name):
    async with Rig() as rig:
        made = rig.topic("t")
        topics = [MetadataRequestTopic(name=name, topic_id=made.topic_id)]

        (topic,) = (await rig.peer().request(MetadataRequest(topics=topics), version)).topics

        assert (topic.error_code, topic.topic_id, topic.partitions) == (42, made.topic_id, [])


@on_loop
async def test_metadata_hides_topics_without_permission():
    async with Rig() as rig:
        made = rig.topic("secret")
        rig.topic("open")
        rig.rules.deny(Operation.DESCRIBE, ResourceKind.TOPIC, "public/default/secret")
        rig.rules.deny(Operation.DESCRIBE, ResourceKind.TOPIC, "public/default/hidden")
        peer = rig.peer()

        assert codes(await peer.request(MetadataRequest(topics=None), 12)) == {"open": 0}
        named = await peer.request(build_request("secret", "hidden"), 12)
        assert codes(named) == {"secret": 29, "hidden": 29}
        assert {topic.topic_id for topic in named.topics} == {bytes(16)}
        by_id = MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=made.topic_id)])
        assert codes(await peer.request(by_id, 12)) == {None: 100}
        assert len(rig.broker.cluster) == 2


@on_loop
async def test_auto_creation_without_permission_creates_no_topic():
    async with Rig() as rig:
        rig.rules.deny(Operation.CREATE, ResourceKind.CLUSTER, "cluster")
        rig.rules.deny(Operation.CREATE, ResourceKind.TOPIC, "public/default/new")

        assert codes(await rig.peer().request(build_request("new", "other"), 12)) == {
            "new": 29,
            "other": 0,
        }
        assert codes(await rig.peer().request(build_request("new"), 12)) == {"new": 29}


@on_loop
async def test_authorized_operations_are_returned_on_request():
    async with Rig() as rig:
        rig.topic("t")
        rig.rules.deny(Operation.WRITE, ResourceKind.TOPIC, "public/default/t")
        peer = rig.peer()

        silent = await peer.request(build_request("t"), 8)
        requested = build_request(
            "t",
            include_topic_authorized_operations=True,
            include_cluster_authorized_operations=True,
        )
        reported = await peer.request(requested, 8)

        assert silent.topics[0].topic_authorized_operations == -(2**31)
        assert silent.cluster_authorized_operations == -(2**31)
        bits = reported.topics[0].topic_authorized_operations
        assert {bit for bit in range(16) if bits >> bit & 1} == {3, 5, 6, 7, 8, 10, 11}
        bits = reported.cluster_authorized_operations
        assert {bit for bit in range(16) if bits >> bit & 1} == {5, 7, 8, 9, 10, 11, 12}
