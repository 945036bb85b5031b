"""Receiving: permits, acknowledgements, what is bad, what comes again, and where one begins."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.client.pulsar.scripted import (
    SILENCE,
    Peer,
    ScriptedPulsar,
    metadata,
    on_broker,
    single,
    text,
)
from tests.waiting import run_ready_tasks
from trilogue.client.errors import ClientError
from trilogue.client.pulsar import (
    ClosedError,
    Consumer,
    EndOfTopic,
    InitialPosition,
    MessageId,
    PulsarClient,
    PulsarError,
    SubscriptionType,
    TimedOut,
)
from trilogue.client.pulsar.consumer.receive_queue import ReceiveQueue
from trilogue.entry.pulsar.pulsar_batch import build_section, build_single
from trilogue.wire.pulsar import pulsar_pb2 as pb
from trilogue.wire.pulsar.errors import ServerError

BODY = 6
"""Where a section's checksum ends."""


async def received(consumer: Consumer, count: int) -> list[bytes | None]:
    return [(await consumer.receive(5)).value for _ in range(count)]


@on_broker
async def test_permits_are_a_queue_at_first_and_then_halves_of_it(
    broker: ScriptedPulsar, client: PulsarClient
):
    """Pulsar protocol, flow control: "After the application has dequeued half of the messages in
    the queue, the consumer sends permits to the broker to ask for more messages (equals to half of
    the
    messages in the queue)"."""
    consumer = await client.subscribe("t", "s", queue_size=10)
    for number in range(10):
        broker.peers[0].message(single(b"%d" % number), number)
    await received(consumer, 4)
    await client.partitions("t")  # whatever was sent before it has arrived
    assert [flow.messagePermits for flow in broker.all("FLOW")] == [10]

    await received(consumer, 6)
    await broker.saw("FLOW", 3)
    assert [flow.messagePermits for flow in broker.all("FLOW")] == [10, 5, 5]


@on_broker
async def test_without_a_queue_one_message_is_requested_at_a_time(
    broker: ScriptedPulsar, client: PulsarClient
):
    consumer = await client.subscribe("t", "s", queue_size=0)
    await client.partitions("t")
    assert broker.all("FLOW") == []

    for number in range(2):
        receiving = asyncio.ensure_future(consumer.receive())
        await broker.saw("FLOW", number + 1)
        broker.peers[0].message(single(b"x"), number)
        await receiving
    assert [flow.messagePermits for flow in broker.all("FLOW")] == [1, 1]


@on_broker
async def test_everything_a_message_carries_is_shown(broker: ScriptedPulsar, client: PulsarClient):
    consumer = await client.subscribe("t", "s")
    one = text(b"v", "/w==")._replace(
        key_is_b64=True, ordering_key=b"o", event_time=7, properties=(("a", "b"),)
    )
    section = build_single(one, metadata(sequence_id=9, publish_time=8, replicated_from="far"))
    broker.peers[0].message(section, 5, redelivery_count=2)
    message = await consumer.receive()

    assert (message.key, message.key_bytes, message.ordering_key) == ("/w==", b"\xff", b"o")
    assert (message.event_time_ms, message.publish_time_ms, message.sequence_id) == (7, 8, 9)
    assert (message.properties, message.redelivery_count) == ({"a": "b"}, 2)
    assert (message.producer_name, message.replicated_from) == ("p", "far")
    assert (message.topic, message.id.place) == ("persistent://public/default/t", (1, 5, -1))
    assert message.schema_version is None
    assert repr(message) == "Message(persistent://public/default/t (1, 5, -1), 1 bytes)"


@on_broker
async def test_broker_entry_metadata_and_missing_checksums_are_no_obstacle(
    broker: ScriptedPulsar, client: PulsarClient
):
    consumer = await client.subscribe("t", "s")
    plain = single(b"x")
    broker.peers[0].message(b"\x0e\x02\x00\x00\x00\x02\x08\x05" + plain)
    broker.peers[0].message(plain[BODY:], 1)

    assert await received(consumer, 2) == [b"x", b"x"]


@on_broker
async def test_an_encrypted_message_is_left_to_those_with_the_key(
    broker: ScriptedPulsar, client: PulsarClient
):
    consumer = await client.subscribe("t", "s")
    keys = [pb.EncryptionKeys(key="k", value=b"v")]
    broker.peers[0].message(build_section(metadata(encryption_keys=keys), b"secret"), 0)
    broker.peers[0].message(single(b"good"), 1)

    assert await received(consumer, 1) == [b"good"]
    assert broker.all("ACK") == []


@on_broker
async def test_messages_before_the_subscribe_response_are_dropped(
    broker: ScriptedPulsar, client: PulsarClient
):
    def late(peer: Peer, subscribe: Any) -> None:
        peer.message(single(b"stale"))
        broker.on_subscribe(peer, subscribe)

    broker.next_up["SUBSCRIBE"].append(late)
    consumer = await client.subscribe("t", "s")
    broker.peers[0].message(single(b"good"))

    assert await received(consumer, 1) == [b"good"]


def test_a_receiver_that_goes_passes_its_news_on():
    async def work() -> None:
        inbox = ReceiveQueue()
        first, second = (asyncio.ensure_future(inbox.wait()) for _ in range(2))
        await run_ready_tasks()
        inbox.put([None])  # type: ignore[list-item]
        first.cancel()
        await asyncio.wait_for(second, 60)

    asyncio.run(work())


@on_broker
async def test_after_a_reconnection_what_waited_comes_again(
    broker: ScriptedPulsar, client: PulsarClient
):
    """Protocol, consumer: "After every reconnection, a client needs to subscribe to the topic"."""
    consumer = await client.subscribe("t", "s", queue_size=4)
    for number in range(3):
        broker.peers[0].message(single(b"%d" % number), number)
    message = await consumer.receive()
    broker.peers[0].hang_up()
    await broker.saw("GONE")
    await consumer.ack(message)  # sent after the reconnection, before any permit
    await broker.saw("FLOW", 2)
    for number in range(1, 3):
        broker.peers[1].message(single(b"%d" % number), number)

    assert await received(consumer, 2) == [b"1", b"2"]
    again = broker.names("SUBSCRIBE", "ACK", "FLOW")[2:]
    assert again == ["SUBSCRIBE", "ACK", "FLOW"]


@on_broker(request_timeout_s=0.2)
async def test_after_a_time_out_the_consumer_is_closed_before_it_is_created_again(
    broker: ScriptedPulsar, client: PulsarClient
):
    """Pulsar protocol, CloseConsumer: a client without an answer in time "must first send
    CloseConsumer
    before another Subscribe command", and "need not wait for the response"."""
    await client.subscribe("t", "s")
    broker.seen.clear()
    broker.next_up["SUBSCRIBE"].append(SILENCE)
    broker.next_up["CLOSE_CONSUMER"].append(SILENCE)
    broker.peers[0].hang_up()
    await broker.saw("SUBSCRIBE", 2)

    names = broker.names("SUBSCRIBE", "CLOSE_CONSUMER")
    assert names == ["SUBSCRIBE", "CLOSE_CONSUMER", "SUBSCRIBE"]


@on_broker
async def test_the_end_of_the_topic_ends_the_iteration(
    broker: ScriptedPulsar, client: PulsarClient
):
    """Pulsar protocol, ReachedEndOfTopic: "The client should use this command to notify the
    application
    that no more messages are coming from the consumer"."""
    consumer = await client.subscribe("t", "s")
    broker.peers[0].message(single(b"last"))
    broker.peers[0].send(reachedEndOfTopic=pb.CommandReachedEndOfTopic(consumer_id=0))
    values = [message.value async for message in consumer]

    assert values == [b"last"]
    assert consumer.at_end
    with pytest.raises(EndOfTopic):
        await consumer.receive()


@on_broker
async def test_active_consumer_change_sets_is_active(broker: ScriptedPulsar, client: PulsarClient):
    consumer = await client.subscribe("t", "s", type=SubscriptionType.FAILOVER)
    assert not consumer.is_active
    change = pb.CommandActiveConsumerChange(consumer_id=0, is_active=True)
    broker.peers[0].send(active_consumer_change=change)
    await client.partitions("t")

    assert consumer.is_active


@on_broker
async def test_subscribe_command_contains_the_options(broker: ScriptedPulsar, client: PulsarClient):
    await client.subscribe(
        "t", "s", type=SubscriptionType.KEY_SHARED, name="me", priority=2, read_compacted=True,
        initial_position=InitialPosition.EARLIEST, hash_ranges=((0, 99),), rollback_s=5,
        properties={"a": "b"}, subscription_properties={"c": "d"}, allow_out_of_order=True,
    )  # fmt: skip
    broker.peers[0].hang_up()
    reported, again = await broker.saw("SUBSCRIBE", 2)

    assert (reported.subType, reported.consumer_name, reported.priority_level) == (3, "me", 2)
    assert (reported.initialPosition, reported.read_compacted, reported.durable) == (1, True, True)
    assert reported.keySharedMeta.keySharedMode == pb.KeySharedMode.STICKY
    assert [(one.start, one.end) for one in reported.keySharedMeta.hashRanges] == [(0, 99)]
    assert reported.keySharedMeta.allowOutOfOrderDelivery
    assert reported.start_message_rollback_duration_sec == 5
    assert again.start_message_rollback_duration_sec == 0
    assert [(one.key, one.value) for one in reported.metadata] == [("a", "b")]
    assert [(one.key, one.value) for one in reported.subscription_properties] == [("c", "d")]
    assert not reported.HasField("start_message_id")


@on_broker
async def test_several_topics_and_all_partitions_share_one_queue(
    broker: ScriptedPulsar, client: PulsarClient
):
    broker.partitions["persistent://public/default/u"] = 2
    consumer = await client.subscribe(["t", "u"], "s")
    for number in range(3):
        broker.peers[0].message(single(b"%d" % number), number, number)
    messages = await consumer.receive_many(3)
    while len(messages) < 3:
        messages += await consumer.receive_many(3)
    for message in messages:
        kept = MessageId.from_bytes(message.id.to_bytes())
        await consumer.ack(kept._replace(topic=message.topic))
    acks = await broker.saw("ACK", 3)

    assert consumer.topics == [
        "persistent://public/default/t",
        "persistent://public/default/u-partition-0",
        "persistent://public/default/u-partition-1",
    ]
    assert sorted((ack.consumer_id, ack.message_id[0].entryId) for ack in acks) == [
        (0, 0), (1, 1), (2, 2),
    ]  # fmt: skip
    assert [one.id.partition for one in sorted(messages, key=lambda one: one.topic)] == [-1, 0, 1]
    with pytest.raises(ClientError, match="which of 3 topics"):
        await consumer.ack(MessageId(1, 1))
    await consumer.ack(MessageId(1, 1, partition=1))


@on_broker
async def test_a_pattern_follows_the_topics_of_its_namespace(
    broker: ScriptedPulsar, client: PulsarClient
):
    start = "persistent://public/default/"
    broker.topics = [f"{start}{name}" for name in ("a1", "b1", "xa1", "a2-partition-0")]
    consumer = await client.subscribe_pattern("a.*", "s", period_s=3600)
    assert consumer.topics == [f"{start}a1", f"{start}a2-partition-0"]

    broker.topics = [f"{start}{name}" for name in ("a1", "a3")]
    await consumer.refresh_topics()
    assert consumer.topics == [f"{start}a1", f"{start}a3"]
    assert len(broker.all("CLOSE_CONSUMER")) == 1
    with pytest.raises(ClientError, match="last part"):
        await client.subscribe_pattern("a.*/b", "s")


@on_broker
async def test_one_topic_of_a_pattern_that_is_refused_keeps_no_other_away(
    broker: ScriptedPulsar, client: PulsarClient
):
    start = "persistent://public/default/"
    consumer = await client.subscribe_pattern("a.*", "s", period_s=3600)
    broker.topics = [f"{start}{name}" for name in ("a1", "a2")]
    broker.next_up["SUBSCRIBE"].append(ServerError.AuthorizationError)
    with pytest.raises(PulsarError, match="AuthorizationError"):
        await consumer.refresh_topics()
    assert consumer.topics == [f"{start}a2"]

    broker.topics = [f"{start}{name}" for name in ("a2", "a3")]
    await consumer.refresh_topics()
    broker.next_up["SUBSCRIBE"].append(ServerError.TopicNotFound)
    broker.peers[0].send(close_consumer=pb.CommandCloseConsumer(consumer_id=1, request_id=1))
    await broker.saw("SUBSCRIBE", 4)
    await client.partitions("t")
    broker.peers[0].message(single(b"x"), consumer=2)
    assert (await consumer.receive(5)).value == b"x"
    with pytest.raises(TimedOut):
        await consumer.receive(0.01)
    assert consumer.topics == [f"{start}a3"]


@on_broker
async def test_unsubscribing_removes_the_subscription_and_closes(
    broker: ScriptedPulsar, client: PulsarClient
):
    """Pulsar protocol, Unsubscribe: "sent by the client to unsubscribe the consumer_id from the
    associated
    topic"."""
    consumer = await client.subscribe("t", "s")
    await consumer.unsubscribe()

    assert broker.names("UNSUBSCRIBE", "CLOSE_CONSUMER") == ["UNSUBSCRIBE"]
    with pytest.raises(ClosedError):
        await consumer.receive()


@on_broker
async def test_a_time_out_of_receive_loses_no_message(broker: ScriptedPulsar, client: PulsarClient):
    consumer = await client.subscribe("t", "s")
    with pytest.raises(TimedOut, match="no message"):
        await consumer.receive(0.01)
    first, second = (asyncio.ensure_future(consumer.receive()) for _ in range(2))
    await client.partitions("t")
    broker.peers[0].message(single(b"x"))
    first.cancel()

    assert (await second).value == b"x"


@on_broker
async def test_permanent_error_is_raised_by_receive(broker: ScriptedPulsar, client: PulsarClient):
    consumer = await client.subscribe("t", "s")
    broker.next_up["SUBSCRIBE"].append(ServerError.TopicNotFound)
    receiving = asyncio.ensure_future(consumer.receive())
    broker.peers[0].hang_up()

    with pytest.raises(PulsarError, match="TopicNotFound"):
        await receiving


@on_broker
async def test_a_subscription_in_use_is_an_error_first_and_waited_for_when_it_was_ours(
    broker: ScriptedPulsar, client: PulsarClient
):
    broker.next_up["SUBSCRIBE"].append(ServerError.ConsumerBusy)
    with pytest.raises(PulsarError, match="ConsumerBusy"):
        await client.subscribe("t", "s")

    consumer = await client.subscribe("t", "s")
    broker.next_up["SUBSCRIBE"].append(ServerError.ConsumerBusy)
    broker.peers[0].hang_up()
    await broker.saw("FLOW", 2)
    broker.peers[1].message(single(b"x"), consumer=1)

    assert await received(consumer, 1) == [b"x"]


@on_broker
async def test_messages_beyond_permits_end_the_connection(
    broker: ScriptedPulsar, client: PulsarClient, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("trilogue.client.pulsar.consumer.topic_consumer.MAX_UNREQUESTED", 10)
    await client.subscribe("t", "s", queue_size=2)
    for number in range(20):
        broker.peers[0].message(single(b"x"), number)
    await broker.saw("GONE")
