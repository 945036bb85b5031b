"""FLOW, REDELIVER, CLOSE_CONSUMER, UNSUBSCRIBE, CONSUMER_STATS and the end of a topic."""

from __future__ import annotations

import pytest

from tests.gateway.loop import on_loop
from tests.gateway.pulsar.readers import (
    ABSENT,
    EXCLUSIVE,
    FAILOVER,
    KEY_SHARED,
    LATEST,
    SHARED,
    ack,
    fill,
    fill_batch,
    ids,
    mark,
    messages,
    offsets,
    received,
    subscribe,
)
from tests.gateway.pulsar.rig import Rig, settle
from trilogue.broker.cursors.position import Cursor
from trilogue.broker.topics.policies import TERMINATED
from trilogue.gateway.pulsar import connection
from trilogue.wire.pulsar.errors import ServerError
from trilogue.wire.pulsar.pulsar_pb2 import KeySharedMode

KINDS = {"Exclusive": EXCLUSIVE, "Shared": SHARED, "Failover": FAILOVER, "Key_Shared": KEY_SHARED}
STICKY = KeySharedMode.STICKY


def cursor(rig: Rig, topic: str = "t", name: str = "s") -> Cursor | None:
    partition = rig.broker.cluster.topic(rig.name(topic)).partitions[0]
    return rig.broker.subscriptions.find_cursor(partition.partition_id, name)


# ---- FLOW


@on_loop
async def test_messages_are_sent_up_to_the_permits():
    """Protocol, flow control: "the client needs to give permission to the broker"."""
    async with Rig() as rig:
        rig.topic("t")
        await fill(rig, *[b"x"] * 5)
        peer = await rig.connected()
        await subscribe(peer, permits=0)

        assert await offsets(peer) == []
        for entry in (0, 1):  # a client with a queue of size 0 sends a permit per message
            peer.send_command("flow", consumer_id=1, messagePermits=1)
            assert [entry] == await offsets(peer)
        peer.send_command("flow", consumer_id=1, messagePermits=2)
        assert await offsets(peer) == [2, 3]


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@on_loop
async def test_permits_count_the_messages_of_a_batch(kind):
    async with Rig() as rig:
        rig.topic("t")
        for _ in range(3):
            await fill_batch(rig, b"a", b"b", b"c")
        peer = await rig.connected()
        await subscribe(peer, kind=kind, permits=4)
        await received(peer)

        peer.send_command("flow", consumer_id=1, messagePermits=2)
        assert await offsets(peer) == []
        peer.send_command("flow", consumer_id=1, messagePermits=1)
        assert await offsets(peer) == [6]


@pytest.mark.parametrize("permits", [0, 2**31, 2**32 - 1])
@on_loop
async def test_permits_of_any_size_do_no_harm(permits):
    async with Rig() as rig:
        rig.topic("t")
        await fill(rig, b"a")
        peer = await rig.connected()
        await subscribe(peer, permits=1)
        for _ in range(3):
            peer.send_command("flow", consumer_id=1, messagePermits=permits)

        assert await offsets(peer) == [0]
        assert peer.connection.consumers[1].demand < 2**31


@on_loop
async def test_a_flow_for_a_consumer_that_is_gone_is_passed_over():
    async with Rig() as rig:
        peer = await rig.connected()

        peer.send_command("flow", consumer_id=9, messagePermits=1)

        assert not peer.is_cut


# ---- REDELIVER


@on_loop
async def test_redelivered_messages_have_a_redelivery_count():
    async with Rig() as rig:
        rig.topic("t")
        await fill(rig, b"0", b"1", b"2")
        peer = await rig.connected()
        await subscribe(peer, kind=SHARED)
        await messages(peer)

        peer.send_command("redeliverUnacknowledgedMessages", consumer_id=1, message_ids=ids(rig, 1))
        (found,) = await messages(peer)
        assert (found.command.message_id.entryId, found.command.redelivery_count) == (1, 1)
        peer.send_command("redeliverUnacknowledgedMessages", consumer_id=1)
        again = await messages(peer)

        assert [
            (each.command.message_id.entryId, each.command.redelivery_count) for each in again
        ] == [(0, 1), (1, 2), (2, 1)]


@on_loop
async def test_an_epoch_is_echoed_and_raised():
    """docs/reference/wire/pulsar.md, MESSAGE field 5: only for consumers that sent an epoch."""
    async with Rig() as rig:
        rig.topic("t")
        await fill(rig, b"0")
        peer, silent = await rig.connected(), await rig.connected()
        await subscribe(peer, consumer_epoch=0)
        await subscribe(silent, name="other")

        (found,) = await messages(peer)
        assert found.command.HasField("consumer_epoch")
        assert found.command.consumer_epoch == 0
        peer.send_command("redeliverUnacknowledgedMessages", consumer_id=1, consumer_epoch=3)
        (again,) = await messages(peer)
        assert again.command.consumer_epoch == 3
        (plain,) = await messages(silent)
        assert not plain.command.HasField("consumer_epoch")


@on_loop
async def test_messages_of_a_lost_consumer_are_redelivered_to_others_first():
    async with Rig() as rig:
        rig.topic("t")
        await fill(rig, *[b"x"] * 4)
        lost, other = await rig.connected(), await rig.connected()
        await subscribe(lost, kind=SHARED, permits=3)
        await messages(lost)
        ack(lost, ids(rig, 1))
        await subscribe(other, kind=SHARED, permits=0)

        lost.transport.close()
        other.send_command("flow", consumer_id=1, messagePermits=10)

        assert await offsets(other) == [0, 2, 3]


@on_loop
async def test_thousands_of_consumers_of_a_lost_connection_leave_in_turns(monkeypatch):
    monkeypatch.setattr(connection, "GONE_AT_ONCE", 3)
    monkeypatch.setattr(connection, "GONE_PER_TURN", 2)
    async with Rig() as rig:
        topic = rig.topic("t")
        await fill(rig, *[b"x"] * 4)
        lost, other = await rig.connected(), await rig.connected()
        for number in range(9):
            await subscribe(lost, kind=SHARED, consumer_id=number, permits=0)
        for number in (1, 8):
            lost.send_command("flow", consumer_id=number, messagePermits=2)
        assert await offsets(lost) == [0, 1, 2, 3]
        partition_id = topic.partitions[0].partition_id
        dispatcher = other.connection.subscriptions.find_dispatcher(partition_id, "s")
        assert dispatcher is not None

        lost.transport.close()
        assert len(dispatcher.consumers) == 6, "others are served before the rest leaves"
        await settle()
        assert not dispatcher.consumers
        await subscribe(other, kind=SHARED)
        assert await offsets(other) == [0, 1, 2, 3]


# ---- the end of a consumer


@on_loop
async def test_closing_a_consumer_is_answered_and_ends_its_messages():
    async with Rig() as rig:
        rig.topic("t")
        peer = await rig.connected()
        await subscribe(peer)

        await peer.request("close_consumer", "success", consumer_id=1)
        await fill(rig, b"0")

        assert await received(peer) == []
        assert cursor(rig) is not None


@on_loop
async def test_close_of_an_unknown_consumer_succeeds():
    """As on a real broker."""
    async with Rig() as rig:
        peer = await rig.connected()

        await peer.request("close_consumer", "success", consumer_id=9)


@on_loop
async def test_unsubscribing_deletes_the_subscription():
    async with Rig() as rig:
        rig.topic("t")
        peer = await rig.connected()
        await subscribe(peer)

        await peer.request("unsubscribe", "success", consumer_id=1)

        assert cursor(rig) is None
        assert not peer.connection.consumers


@on_loop
async def test_unsubscribe_with_other_consumers_requires_force():
    async with Rig() as rig:
        rig.topic("t")
        peer, other = await rig.connected(), await rig.connected()
        await subscribe(peer, kind=SHARED)
        await subscribe(other, kind=SHARED)

        refused = await peer.request("unsubscribe", "error", consumer_id=1)
        assert refused.error == ServerError.MetadataError
        await peer.request("unsubscribe", "success", consumer_id=1, force=True)
        response = await other.answer("close_consumer")

        assert response.request_id == ABSENT
        assert cursor(rig) is None


@on_loop
async def test_a_subscription_that_was_made_again_has_none_of_the_old_ones_consumers():
    async with Rig() as rig:
        topic = rig.topic("t")
        await fill(rig, b"0")
        old, new = await rig.connected(), await rig.connected()
        await subscribe(old, kind=SHARED)
        await messages(old)

        rig.broker.subscriptions.delete(topic.partitions[0].partition_id, "s")
        await subscribe(new, kind=SHARED)

        await old.answer("close_consumer")
        assert await offsets(new) == [0]


@on_loop
async def test_unsubscribe_of_an_unknown_consumer_is_an_error():
    async with Rig() as rig:
        peer = await rig.connected()

        refused = await peer.request("unsubscribe", "error", consumer_id=9)

        assert refused.error == ServerError.MetadataError


@on_loop
async def test_a_topic_that_is_deleted_sends_its_consumers_off():
    async with Rig() as rig:
        topic = rig.topic("t")
        peer, old = await rig.connected(), await rig.connected(4)
        await subscribe(peer, kind=SHARED)
        await subscribe(old, kind=SHARED)

        await rig.commit(rig.broker.cluster.plan_delete(topic.name))
        await peer.answer("close_consumer")
        await settle()

        assert old.is_cut, "it does not know CLOSE_CONSUMER from a broker"


@on_loop
async def test_reached_end_of_topic_is_sent_when_all_messages_are_acked():
    """Protocol, ReachedEndOfTopic: the topic was terminated and everything was acked."""
    async with Rig() as rig:
        topic = rig.topic("t")
        await fill(rig, b"0", b"1")
        peer, old = await rig.connected(), await rig.connected(8)
        await subscribe(peer)
        await subscribe(old, name="old")
        await messages(peer)
        await messages(old)

        await rig.commit(rig.broker.cluster.plan_alter(topic.name, {TERMINATED: "[0]"}))
        ack(peer, ids(rig, 0))
        ack(old, ids(rig, 1), ack_type=1)
        assert await received(peer) == []
        ack(peer, ids(rig, 1))
        assert (await peer.answer("reachedEndOfTopic")).consumer_id == 1

        assert await received(old) == [], "it does not know the command"
        late = await rig.connected()
        await subscribe(late, name="late", initialPosition=LATEST)
        await late.answer("reachedEndOfTopic")


@on_loop
async def test_reached_end_of_topic_is_not_sent_to_go_clients():
    """Apache's Go client cuts the connection, connects again, and would get the command again."""
    async with Rig() as rig:
        topic = rig.topic("t")
        await fill(rig, b"0")
        await rig.commit(rig.broker.cluster.plan_alter(topic.name, {TERMINATED: "[0]"}))
        go = rig.peer()
        await go.connect(20, client_version="Pulsar-Go-0.21.0-description")
        await subscribe(go)
        await messages(go)

        ack(go, ids(rig, 0))

        assert await received(go) == []


# ---- CONSUMER_STATS


@on_loop
async def test_consumer_stats_describe_the_consumer():
    """Protocol, ConsumerStats."""
    async with Rig() as rig:
        rig.topic("t")
        await fill(rig, *[b"x"] * 5)
        peer = await rig.connected()
        await subscribe(peer, kind=SHARED, permits=3, consumer_name="mine")
        await messages(peer)
        ack(peer, ids(rig, 0))

        found = await peer.request("consumerStats", "consumerStatsResponse", consumer_id=1)

        assert not found.HasField("error_code")
        assert (found.consumerName, found.type) == ("mine", "Shared")
        assert (found.availablePermits, found.unackedMessages, found.msgBacklog) == (0, 2, 4)
        assert not found.blockedConsumerOnUnackedMsgs
        assert found.address == "/192.0.2.1:40000"


@on_loop
async def test_consumer_stats_of_an_unknown_consumer_contain_an_error():
    """Protocol, ConsumerStatsResponse: error_code and error_message."""
    async with Rig() as rig:
        peer = await rig.connected()

        found = await peer.request("consumerStats", "consumerStatsResponse", consumer_id=9)

        assert found.error_code == ServerError.ConsumerNotFound
        assert found.error_message


@on_loop
async def test_administration_sees_subscriptions_and_consumers():
    async with Rig() as rig:
        topic = rig.topic("t")
        await fill(rig, b"0", b"1")
        peer = await rig.connected()
        await subscribe(peer, name="a", kind=SHARED, consumer_name="one")
        await messages(peer)
        await subscribe(peer, name="b", consumer_id=2)
        await settle()
        peer.send_command("close_consumer", request_id=7, consumer_id=2)

        a, b = rig.gateway.subscriptions.stats(topic.partitions[0])

        assert a[:5] == ("a", "Shared", True, 2, 2)
        assert [each.name for each in a.consumers] == ["one"]
        assert b[:5] == ("b", "", True, 2, 0)
        assert mark(rig, name="a") == 0


@on_loop
async def test_counts_of_a_subscription_survive_its_consumers():
    async with Rig() as rig:
        topic = rig.topic("t")
        peer = await rig.connected()
        await subscribe(peer, name="s")
        await fill(rig, b"one", b"two")
        await received(peer)

        await peer.request("close_consumer", "success", consumer_id=1)
        (left,) = rig.gateway.subscriptions.stats(topic.partitions[0])
        await subscribe(peer, name="s")
        await received(peer)
        (back,) = rig.gateway.subscriptions.stats(topic.partitions[0])
        await peer.request("unsubscribe", "success", consumer_id=1)
        await subscribe(peer, name="s", permits=0)
        (new,) = rig.gateway.subscriptions.stats(topic.partitions[0])

        assert (left.messages_out, back.messages_out, new.messages_out) == (2, 4, 0)
