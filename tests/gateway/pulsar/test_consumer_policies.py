"""Policies of consumers and subscriptions hold."""

from __future__ import annotations

import pytest

from tests.gateway.loop import on_loop
from tests.gateway.pulsar.readers import (
    EXCLUSIVE,
    FAILOVER,
    KEY_SHARED,
    SHARED,
    ack,
    fill,
    ids,
    offsets,
    payloads,
    received,
    subscribe,
)
from tests.gateway.pulsar.rig import Rig, settle
from tests.waiting import pass_time
from trilogue.broker.cursors.position import Cursor
from trilogue.broker.facts import CursorMove, Protocol
from trilogue.entry.conversion.reserved_names import DELIVER_AT
from trilogue.entry.kafka.record_batch import Record, build_batch
from trilogue.gateway.http.administration import await_promise
from trilogue.wire.pulsar.errors import ServerError
from trilogue.wire.pulsar.pulsar_pb2 import KeySharedMode

KINDS = {"Exclusive": EXCLUSIVE, "Shared": SHARED, "Failover": FAILOVER, "Key_Shared": KEY_SHARED}
STICKY = KeySharedMode.STICKY


def cursor(rig: Rig, topic: str = "t", name: str = "s") -> Cursor | None:
    partition = rig.broker.cluster.topic(rig.name(topic)).partitions[0]
    return rig.broker.subscriptions.find_cursor(partition.partition_id, name)


@on_loop
async def test_consumers_of_a_topic_are_limited():
    async with Rig() as rig:
        await rig.policies("public/default", maxConsumers=2)
        rig.topic("t")
        peer = await rig.connected()
        for number in (1, 2):
            await subscribe(peer, name=f"s{number}", consumer_id=number)

        refused = await subscribe(peer, name="s3", consumer_id=3, answer="error")

        assert refused.error == ServerError.ConsumerBusy


@on_loop
async def test_consumers_of_a_subscription_are_limited():
    async with Rig() as rig:
        await rig.policies("public/default", maxConsumersPerSubscription=2)
        rig.topic("t")
        peer = await rig.connected()
        for number in (1, 2):
            await subscribe(peer, kind=SHARED, consumer_id=number)

        refused = await subscribe(peer, kind=SHARED, consumer_id=3, answer="error")

        assert refused.error == ServerError.ConsumerBusy


@on_loop
async def test_subscriptions_of_a_topic_are_limited():
    async with Rig() as rig:
        await rig.policies("public/default", maxSubscriptionsPerTopic=2)
        rig.topic("t")
        peer = await rig.connected()
        await subscribe(peer, name="s1", consumer_id=1)
        await subscribe(peer, name="s2", consumer_id=2, durable=False)

        for durable in (True, False):
            refused = await subscribe(
                peer, name="s3", consumer_id=3, durable=durable, answer="error"
            )
            assert refused.error == ServerError.NotAllowedError
        assert cursor(rig, name="s3") is None


@on_loop
async def test_types_of_subscriptions_that_are_not_enabled_are_refused():
    async with Rig() as rig:
        await rig.policies("public/default", subscriptionTypesEnabled=["Shared"])
        rig.topic("t")
        peer = await rig.connected()

        refused = await subscribe(peer, kind=EXCLUSIVE, answer="error")
        assert refused.error == ServerError.NotAllowedError
        await subscribe(peer, kind=SHARED)


@on_loop
async def test_a_subscription_is_made_by_mentioning_it_only_where_allowed():
    async with Rig() as rig:
        await rig.policies(
            "public/default", autoSubscriptionCreation={"allowAutoSubscriptionCreation": False}
        )
        rig.topic("t")
        peer = await rig.connected()

        refused = await subscribe(peer, answer="error")
        assert refused.error == ServerError.SubscriptionNotFound
        await subscribe(peer, durable=False)


@on_loop
async def test_a_consumer_with_too_much_unacked_waits():
    async with Rig() as rig:
        await rig.policies("public/default", maxUnackedMessagesOnConsumer=4)
        rig.topic("t")
        await fill(rig, *[b"x"] * 8)
        peer = await rig.connected()
        await subscribe(peer, kind=SHARED)

        assert await offsets(peer) == [0, 1, 2, 3]
        ack(peer, ids(rig, 0))
        assert await offsets(peer) == []
        ack(peer, ids(rig, 1))
        assert await offsets(peer) == [4, 5]


@on_loop
async def test_a_subscription_with_too_much_unacked_waits():
    async with Rig() as rig:
        await rig.policies("public/default", maxUnackedMessagesOnSubscription=4)
        rig.topic("t")
        await fill(rig, *[b"x"] * 8)
        peer = await rig.connected()
        await subscribe(peer, kind=SHARED, consumer_id=1, permits=0)
        await subscribe(peer, kind=SHARED, consumer_id=2)
        peer.send_command("flow", consumer_id=1, messagePermits=100)

        assert len(await received(peer)) == 4
        ack(peer, ids(rig, 0, 1))
        assert len(await received(peer)) == 2


@on_loop
async def test_changed_limits_apply_to_connected_consumers():
    async with Rig() as rig:
        rig.topic("t")
        peer = await rig.connected()
        await subscribe(peer, kind=SHARED)

        await rig.policies("public/default", maxUnackedMessagesOnConsumer=2)
        await fill(rig, *[b"x"] * 5)

        assert await offsets(peer) == [0, 1]


@on_loop
async def test_a_message_waits_for_its_time():
    async with Rig() as rig:
        rig.topic("t")
        peer = await rig.connected()
        await subscribe(peer, kind=SHARED)
        await fill(rig, b"later", deliver_at_time=rig.now_ms + 5_000)
        await fill(rig, b"now")

        assert await payloads(peer) == [b"now"]
        rig.now_ms += 5_001
        await pass_time(5.1)
        assert await payloads(peer) == [b"later"]


def kafka_entry(*times: int | None) -> memoryview:
    """A batch of Kafka's with a message for each delivery time."""
    names = [[] if each is None else [(DELIVER_AT, b"%d" % each)] for each in times]
    records = [
        Record(number, 1_000, None, b"k%d" % number, tuple(headers))
        for number, headers in enumerate(names)
    ]
    return memoryview(build_batch(records))


@pytest.mark.parametrize("flushed", [False, True])
@pytest.mark.parametrize("kind", [SHARED, KEY_SHARED])
@on_loop
async def test_a_kafka_batch_waits_for_the_time_in_its_headers(kind, flushed):
    """Where its messages have different times it does not: it is delivered as a whole."""
    async with Rig() as rig:
        topic, at = rig.topic("t"), rig.now_ms + 5_000
        for times in ((at, at), (None,), (at, at + 1)):
            topic.partitions[0].append(kafka_entry(*times), now_ms=rig.now_ms)
        await settle()
        if flushed:
            await rig.flush()
        peer, single = await rig.connected(), await rig.connected()

        await subscribe(peer, kind=kind)
        await subscribe(single, name="single")

        assert await offsets(peer) == [2, 3]
        assert await offsets(single) == [0, 2, 3]
        rig.now_ms += 5_001
        await pass_time(5.1)
        assert await offsets(peer) == [0]


@on_loop
async def test_inactive_delayed_delivery_policy_sends_messages_at_once():
    async with Rig() as rig:
        await rig.policies("public/default", delayedDelivery={"active": False, "tickTime": 1000})
        topic = rig.topic("t")
        peer = await rig.connected()
        await subscribe(peer, kind=SHARED)

        await fill(rig, b"later", deliver_at_time=rig.now_ms + 5_000)
        topic.partitions[0].append(kafka_entry(rig.now_ms + 5_000), now_ms=rig.now_ms)

        assert await payloads(peer) == [b"later", b"k0"]


@on_loop
async def test_a_consumer_subscribes_no_more_often_than_the_subscribe_rate():
    async with Rig() as rig:
        rate = {"subscribeThrottlingRatePerConsumer": 2, "ratePeriodInSecond": 10}
        await rig.policies("public/default", subscribeRate=rate)
        rig.topic("t")
        peer = await rig.connected()

        async def come_and_go(answer: str, name: str = "c", number: int = 1) -> object:
            found = await subscribe(peer, consumer_name=name, answer=answer, consumer_id=number)
            if answer == "success":
                await peer.request("close_consumer", "success", consumer_id=number)
            return found

        for _ in range(2):
            await come_and_go("success")

        refused = await come_and_go("error")

        assert refused.error == ServerError.NotAllowedError
        await come_and_go("success", "another")
        await come_and_go("success", number=2)
        await pass_time(11)
        await come_and_go("success")


@on_loop
async def test_subscriptions_without_consumers_expire():
    async with Rig() as rig:
        await rig.policies("public/default", subscriptionExpirationTime=2)
        rig.topic("t")
        used, left = await rig.connected(), await rig.connected()
        await subscribe(used, name="used")
        await subscribe(left, name="left")
        left.transport.close()
        await rig.gateway.periodic.check_topics()

        rig.now_ms += 119_000
        await rig.gateway.periodic.check_topics()
        assert cursor(rig, name="left") is not None
        rig.now_ms += 1_000
        await rig.gateway.periodic.check_topics()

        assert cursor(rig, name="left") is None
        assert cursor(rig, name="used") is not None


INACTIVE = {
    "inactiveTopicDeleteMode": "delete_when_no_subscriptions",
    "maxInactiveDurationSeconds": 60,
    "deleteWhileInactive": True,
}
NOTHING_KEPT = {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0}


async def topic_is_there(rig: Rig, after_s: int) -> bool:
    """Return whether the topic `t` is still there when so much time has passed without clients."""
    await rig.gateway.periodic.check_topics()
    rig.now_ms += after_s * 1_000
    await rig.gateway.periodic.check_topics()
    return rig.broker.cluster.find_topic(rig.name("t")) is not None


@on_loop
async def test_an_inactive_topic_is_deleted_after_its_time():
    async with Rig() as rig:
        await rig.policies("public/default", inactiveTopicPolicies=INACTIVE)
        rig.topic("t")
        peer = await rig.connected()
        await subscribe(peer, name="s")

        assert await topic_is_there(rig, 100)  # it has a consumer
        await peer.request("close_consumer", "success", consumer_id=1)
        assert await topic_is_there(rig, 100)  # it has a subscription
        await rig.policies(
            "public/default",
            inactiveTopicPolicies=INACTIVE
            | {"inactiveTopicDeleteMode": "delete_when_subscriptions_caught_up"},
        )
        assert await topic_is_there(rig, 59)
        assert not await topic_is_there(rig, 1)


@on_loop
async def test_an_inactive_topic_stays_as_long_as_its_retention():
    async with Rig() as rig:
        await rig.policies("public/default", inactiveTopicPolicies=INACTIVE)
        rig.topic("t")
        await fill(rig, b"m")

        assert await topic_is_there(rig, 10_000)  # the settings of the topic keep its messages
        hour = {"retentionTimeInMinutes": 60, "retentionSizeInMB": -1}
        await rig.policies("public/default", inactiveTopicPolicies=INACTIVE, retention=hour)
        await fill(rig, b"m")
        assert await topic_is_there(rig, 3_599)
        await fill(rig, b"m")
        assert await topic_is_there(rig, 3_599)
        await rig.policies("public/default", inactiveTopicPolicies=INACTIVE, retention=NOTHING_KEPT)
        assert not await topic_is_there(rig, 60)


@on_loop
async def test_a_topic_with_an_offset_of_a_kafka_group_is_not_inactive():
    async with Rig() as rig:
        await rig.policies("public/default", inactiveTopicPolicies=INACTIVE, retention=NOTHING_KEPT)
        move = CursorMove(rig.topic("t").partitions[0].partition_id, 0)
        kept = rig.broker.committed_offsets.commit(Protocol.KAFKA, "g", [move], rig.now_ms)
        await await_promise(kept)

        assert await topic_is_there(rig, 10_000)
