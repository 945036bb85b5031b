"""LOOKUP and PARTITIONED_METADATA: always here, and how many partitions."""

from __future__ import annotations

import pytest

from tests.gateway.loop import on_loop
from tests.gateway.pulsar.rig import Rig, settle
from trilogue.broker.access.authorizer import CLUSTER, Operation, ResourceKind
from trilogue.broker.errors import InvalidSetting
from trilogue.gateway.pulsar.advertised_listeners import (
    NamedAddresses,
    of_other_node,
    parse_advertised_listeners,
    registered_rows,
)
from trilogue.gateway.pulsar.settings import PulsarSettings
from trilogue.meta.errors import PreconditionFailed
from trilogue.wire.pulsar.errors import ServerError
from trilogue.wire.pulsar.pulsar_pb2 import (
    CommandLookupTopicResponse as Found,
)
from trilogue.wire.pulsar.pulsar_pb2 import (
    CommandPartitionedTopicMetadataResponse as Counted,
)

FOUR = {"allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": 4}


async def found(peer, topic: str, **fields):
    return await peer.request("lookupTopic", "lookupTopicResponse", topic=topic, **fields)


async def counted(peer, topic: str, **fields):
    return await peer.request(
        "partitionMetadata", "partitionMetadataResponse", topic=topic, **fields
    )


@pytest.mark.parametrize(
    "topic",
    [
        "t",
        "public/default/t",
        "persistent://public/default/t",
        "p-partition-1",
        "not-there-yet",
    ],
)
@pytest.mark.parametrize("authoritative", [False, True])
def test_every_topic_is_here(topic, authoritative):
    """Protocol, LookupTopicResponse: "response": "Connect", "authoritative": true."""

    @on_loop
    async def scenario():
        async with Rig() as rig:
            rig.topic("t")
            peer = await rig.connected()

            answer = await found(peer, topic, authoritative=authoritative)

            assert answer.response == Found.Connect
            assert answer.brokerServiceUrl == "pulsar://broker.example:6650"
            assert answer.authoritative
            assert not answer.proxy_through_service_url
            assert not rig.meta.state.topics.get(("public", "default", "not-there-yet"))

    scenario()


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        ("a/b", ServerError.InvalidTopicName),
        ("persistent://a/b", ServerError.InvalidTopicName),
        ("http://a/b/c", ServerError.InvalidTopicName),
        ("", ServerError.InvalidTopicName),
    ],
)
def test_invalid_topic_name_is_reported_in_the_responses(topic, code):
    @on_loop
    async def scenario():
        async with Rig() as rig:
            peer = await rig.connected()

            looked, count = await found(peer, topic), await counted(peer, topic)

            assert (looked.response, looked.error) == (Found.Failed, code)
            assert (count.response, count.error) == (Counted.Failed, code)
            assert looked.message
            assert count.message

    scenario()


@on_loop
async def test_a_namespace_that_is_not_there_is_refused():
    """As by Pulsar 4.0.7; a client that looks up only (`pulsar-flex`) learns it here."""
    async with Rig() as rig:
        peer = await rig.connected()
        for topic in (
            "nope/nope/t",
            "persistent://public/nope/t-partition-1",
            "non-persistent://public/nope/t",
            "persistent://my-property/my-cluster/my-namespace/my-topic",
        ):
            looked = await found(peer, topic)
            assert (looked.response, looked.error) == (Found.Failed, ServerError.TopicNotFound)
            assert "no namespace" in looked.message

        there = await found(peer, "non-persistent://public/default/t")
        assert there.response == Found.Connect


@on_loop
async def test_a_listener_that_is_not_there_is_refused():
    async with Rig() as rig:
        peer = await rig.connected()

        answer = await found(peer, "t", advertised_listener_name="internal")

        assert (answer.response, answer.error) == (Found.Failed, ServerError.NotAllowedError)
        assert "internal" in answer.message


@on_loop
async def test_a_listener_of_this_name_is_found():
    text = "in:pulsar://10.0.0.1:6650, in:pulsar+ssl://10.0.0.1:6651, out:pulsar://[::1]:1"
    settings = PulsarSettings(advertised_listeners=parse_advertised_listeners(text))
    async with Rig(pulsar=settings) as rig:
        peer = await rig.connected()

        inside = await found(peer, "t", advertised_listener_name="in")
        outside = await found(peer, "t", advertised_listener_name="out")
        none = await found(peer, "t")
        other = await found(peer, "t", advertised_listener_name="internal")

        assert inside.brokerServiceUrl == "pulsar://10.0.0.1:6650"
        assert inside.brokerServiceUrlTls == "pulsar+ssl://10.0.0.1:6651"
        assert outside.brokerServiceUrl == "pulsar://[::1]:1"
        assert not outside.brokerServiceUrlTls
        assert none.brokerServiceUrl == "pulsar://broker.example:6650"
        assert (other.response, other.error) == (Found.Failed, ServerError.NotAllowedError)


def test_addresses_of_a_listener_are_registered_for_other_nodes():
    listeners = parse_advertised_listeners("in:pulsar://a:1,in:pulsar+ssl://a:2,out:pulsar://b:3")
    rows = registered_rows(listeners)

    assert {name: of_other_node(rows, name) for name in listeners} == listeners
    assert of_other_node(rows, "x") == NamedAddresses()


@pytest.mark.parametrize(
    "text", ["in", "in:http://a:1", "in:pulsar://a", "in:pulsar://a:1,in:pulsar://b:1"]
)
def test_a_wrong_list_of_listeners_is_refused(text: str):
    with pytest.raises(InvalidSetting):
        parse_advertised_listeners(text)


@on_loop
async def test_lookup_without_permission_is_denied():
    async with Rig() as rig:
        rig.rules.deny(Operation.DESCRIBE, ResourceKind.TOPIC, "public/default/t")
        peer = await rig.connected()

        assert (await found(peer, "t")).error == ServerError.AuthorizationError
        assert (await counted(peer, "t")).error == ServerError.AuthorizationError


@pytest.mark.parametrize("sees", [False, True])
def test_the_partitions_in_a_tenant_that_does_not_exist(sees):
    """A real broker: TopicNotFound for each client; here for those that may see the tenants."""

    @on_loop
    async def scenario():
        async with Rig() as rig:
            for tenant in ("nobody", "public"):
                rig.rules.deny(Operation.DESCRIBE, ResourceKind.TOPIC, f"{tenant}/default/t")
            if not sees:
                rig.rules.deny(Operation.DESCRIBE, *CLUSTER)
            peer = await rig.connected()
            missing = "TopicNotFound" if sees else "AuthorizationError"

            assert (await counted(peer, "nobody/default/t")).error == ServerError[missing]
            for name in ("public/default/t", "public/default/t-partition-1"):
                assert (await counted(peer, name)).error == ServerError.AuthorizationError
            assert (await found(peer, "nobody/default/t")).error == ServerError.AuthorizationError

    scenario()


@on_loop
async def test_partitions_are_counted_and_a_bare_topic_has_none():
    """Protocol, PartitionedTopicMetadata: "response": "Success", "partitions": 32."""
    async with Rig() as rig:
        rig.topic("t")
        rig.topic("p", 32)
        peer = await rig.connected()

        assert (await counted(peer, "p")).partitions == 32
        assert (await counted(peer, "t")).partitions == 0
        assert (await counted(peer, "p-partition-3")).partitions == 0


@on_loop
async def test_a_topic_that_kafka_made_with_one_partition_has_one():
    async with Rig() as rig:
        rig.topic("p", 1)
        peer = await rig.connected()

        assert (await counted(peer, "p")).partitions == 1


@on_loop
async def test_partition_metadata_request_creates_no_unpartitioned_topic():
    """As with Apache Pulsar: the client may still create it with partitions."""
    async with Rig() as rig:
        peer = await rig.connected()

        answer = await counted(peer, "new", metadata_auto_creation_enabled=False)
        assert (answer.response, answer.error) == (Counted.Failed, ServerError.TopicNotFound)
        answer = await counted(peer, "new")

        assert (answer.response, answer.partitions) == (Counted.Success, 0)
        assert rig.broker.cluster.find_topic(rig.name("new")) is None


@on_loop
async def test_auto_creation_follows_the_policy_of_the_namespace():
    async with Rig() as rig:
        await rig.policies("public/default", autoTopicCreation=FOUR)
        peer = await rig.connected()

        looked = await counted(peer, "new", metadata_auto_creation_enabled=False)
        assert looked.error == ServerError.TopicNotFound
        assert (await counted(peer, "new")).partitions == 4
        await peer.producer("other-partition-3")

        assert len(rig.broker.cluster.topic(rig.name("other")).partitions) == 4


@on_loop
async def test_nothing_is_made_where_the_node_does_not_allow_it():
    async with Rig(pulsar=PulsarSettings(auto_create_topics=False)) as rig:
        peer = await rig.connected()

        assert (await counted(peer, "new")).error == ServerError.TopicNotFound


@on_loop
async def test_lookups_are_answered_while_others_wait_for_a_topic():
    """Answers carry request ids: no request waits behind a slow one."""
    async with Rig() as rig:
        await rig.policies("public/default", autoTopicCreation=FOUR)
        peer = await rig.connected()
        rig.hold_commits = True
        peer.send_command("partitionMetadata", topic="new", request_id=100)
        await settle()

        await found(peer, "t")
        await rig.release()

        assert (await peer.answer("partitionMetadataResponse")).request_id == 100


@on_loop
async def test_a_topic_that_is_created_behind_the_request_is_counted():
    """Many first consumers of a topic: one creates it between a request and its answer."""
    async with Rig() as rig:
        peer = await rig.connected()
        peer.send_command("partitionMetadata", topic="new", request_id=100)
        rig.topic("new", 3)

        answer = await peer.answer("partitionMetadataResponse")

        assert (answer.response, answer.partitions) == (Counted.Success, 3)


@on_loop
async def test_a_topic_that_another_node_created_first_is_used():
    async with Rig() as rig:
        await rig.policies("public/default", autoTopicCreation=FOUR)
        peer = await rig.connected()
        conflicts = []

        async def conflict(change):
            conflicts.append(change)
            raise change.abandon(PreconditionFailed("another change came first"))

        async def catch_up():
            if len(conflicts) == 1 and rig.broker.cluster.find_topic(rig.name("new")) is None:
                rig.topic("new", 3)

        rig.gateway.write_metadata, rig.gateway.catch_up = conflict, catch_up
        assert (await counted(peer, "new")).partitions == 3
        assert len(conflicts) == 1


@on_loop
async def test_an_address_of_ipv6_is_written_in_brackets():
    async with Rig() as rig:
        rig.gateway.advertised = lambda: ("::1", 6650)
        peer = await rig.connected()

        assert (await found(peer, "t")).brokerServiceUrl == "pulsar://[::1]:6650"
