"""How clients find, create and lose non-persistent topics; permissions, policies and schemas."""

from __future__ import annotations

from typing import Any

import pytest

from tests.gateway.loop import on_loop
from tests.gateway.pulsar.non_persistent.test_messages import TOPIC, send, topic_of
from tests.gateway.pulsar.readers import SHARED, payloads, received, subscribe
from tests.gateway.pulsar.rig import Peer, Rig
from tests.waiting import pass_time
from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.broker.non_persistent import topics as topics_module
from trilogue.wire.pulsar.errors import ServerError
from trilogue.wire.pulsar.pulsar_pb2 import CommandGetTopicsOfNamespace, ProducerAccessMode

NAME = "public/default/t"
MODES = CommandGetTopicsOfNamespace
STRING = {"name": "", "schema_data": b"", "type": 1}
JSON_A = {
    "name": "",
    "schema_data": b'{"type":"record","name":"A","fields":[{"name":"a","type":"int"}]}',
    "type": 2,
}


async def refused_producer(peer: Peer, **fields: Any) -> int:
    found = await peer.request("producer", "error", topic=TOPIC, producer_id=5, **fields)
    return int(found.error)


@on_loop
async def test_lookup_and_metadata_find_a_topic_that_is_created_later():
    async with Rig() as rig:
        peer = await rig.connected()

        found = await peer.request("lookupTopic", "lookupTopicResponse", topic=TOPIC)
        counted = await peer.request("partitionMetadata", "partitionMetadataResponse", topic=TOPIC)

        assert found.brokerServiceUrl == "pulsar://broker.example:6650"
        assert (counted.partitions, counted.HasField("error")) == (0, False)


@on_loop
async def test_a_topic_that_may_not_be_created_is_not_found():
    async with Rig() as rig:
        await rig.policies("public/default", autoTopicCreation={"allowAutoTopicCreation": False})
        peer = await rig.connected()

        counted = await peer.request("partitionMetadata", "partitionMetadataResponse", topic=TOPIC)
        read = await subscribe(peer, TOPIC, answer="error")

        assert counted.error == read.error == ServerError.TopicNotFound
        assert await refused_producer(peer) == ServerError.TopicNotFound


@on_loop
async def test_a_persistent_topic_of_the_same_name_is_another_one():
    async with Rig() as rig:
        rig.topic("t")
        writer, stored, passing = [await rig.connected() for _ in range(3)]
        await subscribe(stored, "t")
        await subscribe(passing, TOPIC)

        await send(writer, b"kept", topic="t")
        await send(writer, b"gone")

        assert [await payloads(stored), await payloads(passing)] == [[b"kept"], [b"gone"]]


@on_loop
async def test_topics_are_listed_by_mode():
    async with Rig() as rig:
        rig.topic("kept")
        peer = await rig.connected()
        await subscribe(peer, TOPIC)

        lists = [
            list(
                (
                    await peer.request(
                        "getTopicsOfNamespace",
                        "getTopicsOfNamespaceResponse",
                        namespace="public/default",
                        mode=mode,
                    )
                ).topics
            )
            for mode in (MODES.PERSISTENT, MODES.NON_PERSISTENT, MODES.ALL)
        ]

        kept = "persistent://public/default/kept"
        assert lists == [[kept], [TOPIC], [kept, TOPIC]]


@on_loop
async def test_permissions_of_the_topic_hold():
    async with Rig() as rig:
        peer = await rig.connected()
        rig.rules.deny(Operation.WRITE, ResourceKind.TOPIC, NAME)
        rig.rules.deny(Operation.READ, ResourceKind.TOPIC, NAME)

        read = await subscribe(peer, TOPIC, answer="error")

        assert read.error == ServerError.AuthorizationError
        assert await refused_producer(peer) == ServerError.AuthorizationError
        assert list(rig.broker.non_persistent) == []


@on_loop
async def test_producers_consumers_and_subscriptions_are_limited_by_policies():
    async with Rig() as rig:
        await rig.policies(
            "public/default",
            maxProducers=1,
            maxConsumers=2,
            maxSubscriptionsPerTopic=1,
            maxConsumersPerSubscription=1,
            subscriptionTypesEnabled=["Shared"],
        )
        peer = await rig.connected()
        await peer.producer(TOPIC)
        await subscribe(peer, TOPIC, kind=SHARED)

        errors = [
            (await subscribe(peer, TOPIC, kind=SHARED, consumer_id=2, answer="error")).error,
            (await subscribe(peer, TOPIC, "s2", kind=SHARED, consumer_id=3, answer="error")).error,
            (await subscribe(peer, TOPIC, consumer_id=4, answer="error")).error,
            await refused_producer(peer),
        ]

        assert errors == [
            ServerError.ConsumerBusy,
            ServerError.NotAllowedError,
            ServerError.NotAllowedError,
            ServerError.ProducerBusy,
        ]


@on_loop
async def test_producers_are_not_faster_than_the_publish_rate():
    async with Rig() as rig:
        rate = {"publishThrottlingRateInMsg": 5, "publishThrottlingRateInByte": -1}
        await rig.policies("public/default", publishRate=rate)
        peer = await rig.connected()
        await peer.producer(TOPIC)

        for number in range(30):
            peer.send(1, number)
        await received(peer)
        taken = topic_of(rig).received.messages

        await pass_time(20)
        assert taken < 30
        assert topic_of(rig).received.messages == 30


@on_loop
async def test_an_exclusive_producer_keeps_others_out():
    async with Rig() as rig:
        first, second = await rig.connected(), await rig.connected()
        exclusive = ProducerAccessMode.Exclusive
        opened = await first.producer(TOPIC, producer_access_mode=exclusive)

        assert opened.topic_epoch == 0
        assert await refused_producer(second) == ServerError.ProducerBusy
        first.transport.close()
        await received(second)
        assert (await second.producer(TOPIC, 6, producer_access_mode=exclusive)).topic_epoch == 1


@on_loop
async def test_schemas_are_checked_and_found():
    async with Rig() as rig:
        peer = await rig.connected()
        await peer.producer(TOPIC, schema=JSON_A)

        found = await peer.request("getSchema", "getSchemaResponse", topic=TOPIC)

        assert found.schema.schema_data == JSON_A["schema_data"]
        assert await refused_producer(peer, schema=STRING) == ServerError.IncompatibleSchema
        read = await subscribe(peer, TOPIC, answer="error", schema=STRING)
        assert read.error == ServerError.IncompatibleSchema


@on_loop
async def test_a_subscription_is_deleted_by_its_consumer():
    async with Rig() as rig:
        first, second = await rig.connected(), await rig.connected()
        for number, peer in enumerate((first, second), 1):
            await subscribe(peer, TOPIC, kind=SHARED, consumer_id=number)

        refused = await first.request("unsubscribe", "error", consumer_id=1)
        await first.request("unsubscribe", "success", consumer_id=1, force=True)

        assert refused.error == ServerError.NotAllowedError
        assert topic_of(rig).subscriptions == {}
        assert (await second.answer("close_consumer")).consumer_id == 2


@on_loop
async def test_a_subscription_of_a_reader_ends_with_it_and_another_stays():
    async with Rig() as rig:
        peer = await rig.connected()
        await subscribe(peer, TOPIC, "reader", durable=False)
        await subscribe(peer, TOPIC, "durable", consumer_id=2)

        for number in (1, 2):
            await peer.request("close_consumer", "success", consumer_id=number)

        assert list(topic_of(rig).subscriptions) == ["durable"]


@on_loop
async def test_topics_of_a_node_are_limited(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(topics_module, "LOADED_MAX", 1)
    async with Rig() as rig:
        peer = await rig.connected()
        await peer.producer(TOPIC)

        refused = await peer.request("producer", "error", topic=TOPIC + "2", producer_id=2)

        assert refused.error == ServerError.NotAllowedError


@on_loop
async def test_producers_and_consumers_end_when_their_right_is_revoked():
    async with Rig() as rig:
        peer = await rig.connected()
        await peer.producer(TOPIC, 3)
        await subscribe(peer, TOPIC, consumer_id=4)

        rig.rules.deny(Operation.WRITE, ResourceKind.TOPIC, NAME)
        rig.rules.deny(Operation.READ, ResourceKind.TOPIC, NAME)
        await pass_time(1)

        found = {each.field for each in await received(peer)}
        assert found >= {"close_producer", "close_consumer"}
        assert not topic_of(rig).is_used
