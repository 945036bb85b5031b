"""Receiving: permits, acknowledgements, what is bad, what comes again, and where one begins."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.client.scripted_pulsar import (
    SILENCE,
    ScriptedPulsar,
    batch,
    metadata,
    on_broker,
    single,
    text,
)
from trilogue.client.errors import ClientError, ConnectionLost, Unsupported
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
from trilogue.client.pulsar.acks import mask_of, words_of
from trilogue.client.pulsar.message import EARLIEST, LATEST
from trilogue.entry.checksum import crc32c
from trilogue.entry.pulsar_batch import build_section, build_single
from trilogue.wire.pulsar import pulsar_pb2 as pb
from trilogue.wire.pulsar.errors import ServerError

SHARED, EXCLUSIVE = SubscriptionType.SHARED, SubscriptionType.EXCLUSIVE
WRONG = pb.CommandAck
BODY = 6
"""Where a section's checksum ends."""


async def received(consumer: Consumer, count: int) -> list[bytes | None]:
    return [(await consumer.receive(5)).value for _ in range(count)]


def with_checksum(body: bytes) -> bytes:
    return b"\x0e\x01" + crc32c(body).to_bytes(4, "big") + body


@on_broker
async def test_permits_are_a_queue_at_first_and_then_halves_of_it(
    broker: ScriptedPulsar, client: PulsarClient
):
    """Seed 001, flow control: "After the application has dequeued half of the messages in the
    queue, the consumer sends permits to the broker to ask for more messages (equals to half of the
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
async def test_a_batch_costs_a_permit_for_each_message_that_was_not_acknowledged(
    broker: ScriptedPulsar, client: PulsarClient
):
    consumer = await client.subscribe("t", "s", queue_size=8)
    # Of four messages the broker knows two as acknowledged: those cost nothing, and are not shown.
    broker.peers[0].message(batch(b"a", b"b", b"c", b"d"), ack_set=[0b1010])
    broker.peers[0].message(batch(b"e", None, b"f"), 1)  # one was compacted out: it costs

    assert await received(consumer, 4) == [b"b", b"d", b"e", b"f"]
    await broker.saw("FLOW", 2)
    assert [flow.messagePermits for flow in broker.all("FLOW")] == [8, 4]


@on_broker
async def test_without_a_queue_one_message_is_asked_for_at_a_time(
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


BAD = {
    "a byte changed": (single(b"x")[:-1] + b"y", WRONG.ChecksumMismatch),
    "cut in the checksum": (b"\x0e\x01\x00", WRONG.ChecksumMismatch),
    "cut in the size": (with_checksum(b"\x00\x00"), WRONG.BatchDeSerializeError),
    "metadata of 2 GiB": (with_checksum(b"\x7f\xff\xff\xff\x08"), WRONG.BatchDeSerializeError),
    "metadata of 4 GiB": (with_checksum(b"\xff\xff\xff\xff\x08"), WRONG.BatchDeSerializeError),
    "no metadata": (with_checksum(b"\x00\x00\x00\x01\xff"), WRONG.BatchDeSerializeError),
    "broker entry of 4 GiB": (b"\x0e\x02\xff\xff\xff\xff", WRONG.BatchDeSerializeError),
    "a batch cut": (
        build_section(metadata(num_messages_in_batch=2), batch(b"a", b"b")[-9:-3]),
        WRONG.BatchDeSerializeError,
    ),
    "a batch of more than it has": (
        build_section(metadata(num_messages_in_batch=2**31 - 1), b"\x00" * 50),
        WRONG.BatchDeSerializeError,
    ),
    "a batch of minus one": (
        build_section(metadata(num_messages_in_batch=-1), b"\x00" * 50),
        WRONG.BatchDeSerializeError,
    ),
    "bytes behind a batch": (
        build_section(metadata(num_messages_in_batch=1), b"\x00\x00\x00\x02\x18\x00more"),
        WRONG.BatchDeSerializeError,
    ),
    "a message of 2 GiB in a batch": (
        build_section(
            metadata(num_messages_in_batch=1), b"\x00\x00\x00\x06\x18\xff\xff\xff\xff\x07"
        ),
        WRONG.BatchDeSerializeError,
    ),
    "not compressed as it says": (
        build_section(metadata(compression=pb.ZLIB, uncompressed_size=10), b"nothing compressed"),
        WRONG.DecompressionError,
    ),
    "another size than it says": (
        build_section(
            metadata(compression=pb.SNAPPY, uncompressed_size=10),
            bytes.fromhex("0100") + b"x",
        ),
        WRONG.DecompressionError,
    ),
    "4 GiB when decompressed": (
        build_section(metadata(compression=pb.LZ4, uncompressed_size=2**32 - 1), b"x"),
        WRONG.UncompressedSizeCorruption,
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_message_is_acknowledged_with_what_is_wrong(name: str):
    """Seed 001, validation_error: "Indicates that the consumer has discarded the messages due to:
    UncompressedSizeCorruption, DecompressionError, ChecksumMismatch, BatchDeSerializeError"."""
    section, problem = BAD[name]

    @on_broker
    async def work(broker: ScriptedPulsar, client: PulsarClient):
        consumer = await client.subscribe("t", "s")
        broker.peers[0].message(section, 7)
        broker.peers[0].message(single(b"good"), 8)
        assert await received(consumer, 1) == [b"good"]
        (ack,) = await broker.saw("ACK")

        assert ack.validation_error == problem
        assert [one.entryId for one in ack.message_id] == [7]
        assert len(broker.all("FLOW")) == 2  # its permits go back at once
        assert broker.names("GONE") == []

    work()


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
async def test_acks_of_one_turn_go_in_one_command(broker: ScriptedPulsar, client: PulsarClient):
    consumer = await client.subscribe("t", "s")
    for number in range(3):
        broker.peers[0].message(single(b"x"), number)
    for message in [await consumer.receive() for _ in range(3)]:
        await consumer.ack(message)
    (ack,) = await broker.saw("ACK")

    assert ack.ack_type == pb.CommandAck.Individual
    assert [(one.ledgerId, one.entryId) for one in ack.message_id] == [(1, 0), (1, 1), (1, 2)]
    assert not ack.HasField("request_id")


@on_broker
async def test_a_batch_is_acknowledged_when_all_of_it_is(
    broker: ScriptedPulsar, client: PulsarClient
):
    consumer = await client.subscribe("t", "s", type=SHARED)
    broker.peers[0].message(batch(b"a", b"b", b"c"), 4)
    first, second, third = await consumer.receive_many(3)
    await consumer.ack(second)
    await client.partitions("t")
    assert broker.all("ACK") == []

    # Sent again before all was acknowledged, it is shown without what we know of.
    broker.peers[0].message(batch(b"a", b"b", b"c"), 4, redelivery_count=1)
    assert await received(consumer, 2) == [b"a", b"c"]
    await consumer.ack(first)
    await consumer.ack(third)
    (ack,) = await broker.saw("ACK")
    assert [(one.entryId, list(one.ack_set)) for one in ack.message_id] == [(4, [])]


@on_broker
async def test_batch_index_acks_say_what_is_left(broker: ScriptedPulsar, client: PulsarClient):
    consumer = await client.subscribe("t", "s", batch_index_acks=True)
    broker.peers[0].message(batch(*[b"%d" % number for number in range(10)]), 4)
    messages = await consumer.receive_many(10)
    await consumer.ack(messages[3])
    (ack,) = await broker.saw("ACK")
    assert [(list(one.ack_set), one.batch_size) for one in ack.message_id] == [([1015], 10)]

    await consumer.ack_through(messages[5])
    _, ack = await broker.saw("ACK", 2)
    assert ack.ack_type == pb.CommandAck.Cumulative
    assert [list(one.ack_set) for one in ack.message_id] == [[0b1111000000]]

    await consumer.ack_through(messages[9])
    *_, ack = await broker.saw("ACK", 3)
    assert [(one.entryId, list(one.ack_set)) for one in ack.message_id] == [(4, [])]


@on_broker
async def test_a_cumulative_ack_inside_a_batch_is_of_the_entry_before(
    broker: ScriptedPulsar, client: PulsarClient
):
    consumer = await client.subscribe("t", "s")
    broker.peers[0].message(batch(b"a", b"b"), 4)
    first, second = await consumer.receive_many(2)
    await consumer.ack_through(first)
    (ack,) = await broker.saw("ACK")
    assert [one.entryId for one in ack.message_id] == [3]

    await consumer.ack_through(second)
    _, ack = await broker.saw("ACK", 2)
    assert [one.entryId for one in ack.message_id] == [4]


@on_broker
async def test_a_batch_index_from_elsewhere_is_acknowledged_with_its_size(
    broker: ScriptedPulsar, client: PulsarClient
):
    consumer = await client.subscribe("t", "s", batch_index_acks=True)
    await consumer.ack(MessageId(1, 4, batch_index=1, batch_size=3))
    (ack,) = await broker.saw("ACK")

    assert [list(one.ack_set) for one in ack.message_id] == [[0b101]]
    with pytest.raises(ClientError, match="not even its size"):
        await consumer.ack(MessageId(1, 5, batch_index=1))


def test_ack_sets_are_words_of_what_is_left():
    assert words_of(0b1111110111) == [1015]
    assert words_of(1 << 64 | 1 << 63) == [-(1 << 63), 1]
    assert words_of(0) == []
    assert mask_of((2**64 - 1, 1)) == (1 << 65) - 1
    assert mask_of(tuple(words_of(12345 << 60))) == 12345 << 60


@on_broker
async def test_an_ack_with_a_receipt_waits_for_the_broker(
    broker: ScriptedPulsar, client: PulsarClient
):
    """Seed 000, AckResponse: "the response of the broker to an ack ... the client completes the
    request by its request id. If error is set the request failed"."""
    consumer = await client.subscribe("t", "s", ack_receipts=True)
    broker.peers[0].message(single(b"x"), 1)
    message = await consumer.receive()
    await consumer.ack(message)
    assert broker.all("ACK")[0].request_id > 0

    def refused(peer: Any, ack: Any) -> None:
        peer.send(
            ackResponse=pb.CommandAckResponse(
                consumer_id=0, request_id=ack.request_id, error=pb.NotAllowedError, message="no"
            )
        )

    broker.next_up["ACK"].append(refused)
    with pytest.raises(PulsarError, match="NotAllowedError"):
        await consumer.ack(message)

    broker.next_up["ACK"].append(lambda peer, _ack: peer.hang_up())
    with pytest.raises(ConnectionLost):
        await consumer.ack(message)


@on_broker
async def test_a_closed_consumer_acknowledges_nothing(broker: ScriptedPulsar, client: PulsarClient):
    consumer = await client.subscribe("t", "s", ack_receipts=True)
    broker.peers[0].message(single(b"x"), 1)
    message = await consumer.receive()
    broker.next_up["LOOKUP"].append(SILENCE)
    broker.peers[0].hang_up()
    await broker.saw("LOOKUP", 2)
    waiting = asyncio.ensure_future(consumer.ack(message))
    await asyncio.sleep(0)
    await consumer.close()

    with pytest.raises(ClosedError):
        await waiting
    with pytest.raises(ClosedError):
        await consumer.ack(message)
    with pytest.raises(ClosedError):
        await consumer.ack_through(message.id)
    again = await client.subscribe("t", "s")
    await again.ack(message)  # it is the place that counts, not who received it
    assert (await broker.saw("ACK"))[0].consumer_id == 1


@on_broker
async def test_receipts_need_a_broker_that_knows_them(broker: ScriptedPulsar, client: PulsarClient):
    broker.version = 16
    with pytest.raises(Unsupported, match="ack receipts need protocol 17"):
        await client.subscribe("t", "s", ack_receipts=True)
    broker.version = 13
    broker.peers[0].hang_up()
    await broker.saw("GONE")
    with pytest.raises(Unsupported, match="KEY_SHARED needs protocol 14"):
        await client.subscribe("t", "s", type=SubscriptionType.KEY_SHARED)


@on_broker
async def test_shared_subscriptions_have_no_cumulative_acks(
    broker: ScriptedPulsar, client: PulsarClient
):
    consumer = await client.subscribe("t", "s", type=SHARED)
    with pytest.raises(ClientError, match="no order"):
        await consumer.ack_through(MessageId(1, 1))
    assert broker.all("ACK") == []


@on_broker
async def test_a_nack_asks_for_the_entries_again_after_a_while(
    broker: ScriptedPulsar, client: PulsarClient
):
    """Seed 001, RedeliverUnacknowledgedMessages: "accepts a list of message ids that the consumer
    wants to be redelivered"."""
    consumer = await client.subscribe("t", "s", type=SHARED, nack_delay_s=0.01)
    broker.peers[0].message(batch(b"a", b"b"), 4)
    broker.peers[0].message(single(b"c"), 5)
    for message in await consumer.receive_many(2) + await consumer.receive_many(1):
        consumer.nack(message)
    (redeliver,) = await broker.saw("REDELIVER_UNACKNOWLEDGED_MESSAGES")

    assert sorted(one.entryId for one in redeliver.message_ids) == [4, 5]


@on_broker
async def test_redelivery_of_everything_drops_what_waits_and_gives_its_permits_back(
    broker: ScriptedPulsar, client: PulsarClient
):
    """Seed 001: "If the list is empty, the broker will redeliver all the pending messages"."""
    consumer = await client.subscribe("t", "s", queue_size=4)
    for number in range(3):
        broker.peers[0].message(single(b"old"), number, consumer_epoch=0)
    await consumer.receive()
    consumer.redeliver()
    (redeliver,) = await broker.saw("REDELIVER_UNACKNOWLEDGED_MESSAGES")
    broker.peers[0].message(single(b"old"), 3, consumer_epoch=0)  # was under way
    broker.peers[0].message(single(b"new"), 0, consumer_epoch=1)

    assert await received(consumer, 1) == [b"new"]
    assert (list(redeliver.message_ids), redeliver.consumer_epoch) == ([], 1)
    flows = [flow.messagePermits for flow in await broker.saw("FLOW", 3)]
    assert flows == [4, 3, 2]


@on_broker
async def test_after_a_reconnection_what_waited_comes_again(
    broker: ScriptedPulsar, client: PulsarClient
):
    """Seed 001, consumer: "After every reconnection, a client needs to subscribe to the topic"."""
    consumer = await client.subscribe("t", "s", queue_size=4)
    for number in range(3):
        broker.peers[0].message(single(b"%d" % number), number)
    message = await consumer.receive()
    broker.peers[0].hang_up()
    await broker.saw("GONE")
    await consumer.ack(message)  # told as soon as somebody listens, before any permit
    await broker.saw("FLOW", 2)
    for number in range(1, 3):
        broker.peers[1].message(single(b"%d" % number), number)

    assert await received(consumer, 2) == [b"1", b"2"]
    again = broker.names("SUBSCRIBE", "ACK", "FLOW")[2:]
    assert again == ["SUBSCRIBE", "ACK", "FLOW"]


@on_broker(operation_timeout_s=0.2)
async def test_after_a_time_out_the_consumer_is_closed_before_it_is_created_again(
    broker: ScriptedPulsar, client: PulsarClient
):
    """Seed 000, CloseConsumer: a client without an answer in time "must first send CloseConsumer
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
    """Seed 001, ReachedEndOfTopic: "The client should use this command to notify the application
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
async def test_who_is_active_is_told(broker: ScriptedPulsar, client: PulsarClient):
    consumer = await client.subscribe("t", "s", type=SubscriptionType.FAILOVER)
    assert not consumer.is_active
    change = pb.CommandActiveConsumerChange(consumer_id=0, is_active=True)
    broker.peers[0].send(active_consumer_change=change)
    await client.partitions("t")

    assert consumer.is_active


@on_broker
async def test_subscribe_says_what_was_asked_for(broker: ScriptedPulsar, client: PulsarClient):
    await client.subscribe(
        "t", "s", type=SubscriptionType.KEY_SHARED, name="me", priority=2, read_compacted=True,
        initial_position=InitialPosition.EARLIEST, hash_ranges=((0, 99),), rollback_s=5,
        properties={"a": "b"}, subscription_properties={"c": "d"}, allow_out_of_order=True,
    )  # fmt: skip
    broker.peers[0].hang_up()
    said, again = await broker.saw("SUBSCRIBE", 2)

    assert (said.subType, said.consumer_name, said.priority_level) == (3, "me", 2)
    assert (said.initialPosition, said.read_compacted, said.durable) == (1, True, True)
    assert said.keySharedMeta.keySharedMode == pb.KeySharedMode.STICKY
    assert [(one.start, one.end) for one in said.keySharedMeta.hashRanges] == [(0, 99)]
    assert said.keySharedMeta.allowOutOfOrderDelivery
    assert said.start_message_rollback_duration_sec == 5
    assert again.start_message_rollback_duration_sec == 0
    assert [(one.key, one.value) for one in said.metadata] == [("a", "b")]
    assert [(one.key, one.value) for one in said.subscription_properties] == [("c", "d")]
    assert not said.HasField("start_message_id")


@on_broker
async def test_seeking_after_a_message_leaves_it_out(broker: ScriptedPulsar, client: PulsarClient):
    consumer = await client.subscribe("t", "s")
    broker.peers[0].message(batch(b"a", b"b", b"c"), 4)
    messages = await consumer.receive_many(3)
    await consumer.seek(messages[1].id)
    (seek,) = broker.all("SEEK")
    broker.peers[0].message(batch(b"a", b"b", b"c"), 4)
    assert await received(consumer, 1) == [b"c"]

    await consumer.seek(messages[1].id, inclusive=True)
    broker.peers[0].message(batch(b"a", b"b", b"c"), 4)
    assert await received(consumer, 2) == [b"b", b"c"]
    assert (seek.message_id.entryId, seek.message_id.batch_index) == (4, -1)
    assert len(broker.all("SUBSCRIBE")) == 3


@on_broker
async def test_seeking_to_a_time_or_an_end_hides_nothing(
    broker: ScriptedPulsar, client: PulsarClient
):
    consumer = await client.subscribe("t", "s")
    await consumer.seek(time_ms=1234)
    await consumer.seek(EARLIEST)
    await consumer.seek(LATEST)
    time, first, last = broker.all("SEEK")
    broker.peers[0].message(single(b"x"), 0)

    assert await received(consumer, 1) == [b"x"]
    assert (time.message_publish_time, time.HasField("message_id")) == (1234, False)
    assert first.message_id.ledgerId == first.message_id.entryId == 2**64 - 1
    assert last.message_id.ledgerId == last.message_id.entryId == 2**63 - 1
    with pytest.raises(ClientError, match="to a message id or to a time"):
        await consumer.seek()


@on_broker
async def test_a_seek_during_which_the_broker_closes_the_consumer_ends_well(
    broker: ScriptedPulsar, client: PulsarClient
):
    def closed_first(peer: Any, seek: Any) -> None:
        close = pb.CommandCloseConsumer(consumer_id=0, request_id=2**64 - 1)
        peer.send(close_consumer=close)
        peer.send(success=pb.CommandSuccess(request_id=seek.request_id))

    def closed_after(peer: Any, seek: Any) -> None:
        peer.send(success=pb.CommandSuccess(request_id=seek.request_id))
        close = pb.CommandCloseConsumer(consumer_id=0, request_id=2**64 - 1)
        peer.send(close_consumer=close)

    consumer = await client.subscribe("t", "s")
    for number, answer in enumerate([closed_first, closed_after]):
        broker.next_up["SEEK"].append(answer)
        await consumer.seek(EARLIEST)
        broker.peers[0].message(single(b"x"), number)
        assert await received(consumer, 1) == [b"x"]
    assert len(broker.all("SUBSCRIBE")) == 3


@on_broker
async def test_a_reader_begins_after_a_message_or_at_it(
    broker: ScriptedPulsar, client: PulsarClient
):
    place = MessageId(1, 4, batch_index=1, batch_size=3)
    after = await client.reader("t", place)
    at = await client.reader("t", place, inclusive=True)
    for consumer in range(2):
        broker.peers[0].message(batch(b"a", b"b", b"c"), 4, consumer)
    said = broker.all("SUBSCRIBE")[0]

    assert await received(after, 1) == [b"c"]
    assert await received(at, 2) == [b"b", b"c"]
    assert not said.durable
    assert (said.start_message_id.entryId, said.start_message_id.batch_index) == (4, 1)
    assert said.subscription.startswith("reader-")


@on_broker
async def test_a_reader_goes_on_after_the_last_message_it_gave_out(
    broker: ScriptedPulsar, client: PulsarClient
):
    reader = await client.reader("t")
    for number in range(3):
        broker.peers[0].message(single(b"%d" % number), number)
    assert await received(reader, 2) == [b"0", b"1"]
    broker.peers[0].hang_up()
    _, again = await broker.saw("SUBSCRIBE", 2)
    await broker.saw("FLOW", 2)
    broker.peers[1].message(single(b"1"), 1)  # an entry too early: some brokers begin with it
    broker.peers[1].message(single(b"2"), 2)

    assert await received(reader, 1) == [b"2"]
    assert again.start_message_id.entryId == 1
    with pytest.raises(ClientError):
        await reader.unsubscribe()


@on_broker
async def test_a_reader_knows_whether_more_is_there(broker: ScriptedPulsar, client: PulsarClient):
    reader = await client.reader("t")
    assert not await reader.has_message_available()

    broker.last_message_id = pb.MessageIdData(ledgerId=1, entryId=4, batch_index=1)
    assert await reader.has_message_available()
    assert [one.place for one in await reader.last_message_ids()] == [(1, 4, 1)]

    broker.peers[0].message(batch(b"a", b"b"), 4)
    await reader.receive()
    assert await reader.has_message_available()
    await reader.receive()
    assert not await reader.has_message_available()
    end = await client.reader("t", LATEST)
    assert not await end.has_message_available()
    inside = await client.reader("t", MessageId(1, 4, batch_index=1))
    assert not await inside.has_message_available()
    at = await client.reader("t", MessageId(1, 4, batch_index=1), inclusive=True)
    assert await at.has_message_available()


def chunk(number: int, count: int, payload: bytes, total: int, uuid: str = "u") -> bytes:
    return build_section(
        metadata(uuid=uuid, chunk_id=number, num_chunks_from_msg=count, total_chunk_msg_size=total),
        payload,
    )


@on_broker
async def test_chunks_are_joined_and_acknowledged_together(
    broker: ScriptedPulsar, client: PulsarClient
):
    consumer = await client.subscribe("t", "s", queue_size=4)
    peer = broker.peers[0]
    peer.message(chunk(0, 2, b"ab", 4), 0)
    peer.message(chunk(0, 2, b"AB", 3, "other"), 1)
    peer.message(chunk(1, 2, b"cd", 4), 2)
    peer.message(chunk(1, 2, b"C", 3, "other"), 3)
    first, second = await consumer.receive(5), await consumer.receive(5)
    await consumer.ack(first)
    (ack,) = await broker.saw("ACK")

    assert (first.value, second.value) == (b"abcd", b"ABC")
    assert (first.id.place, first.id.first_chunk) == ((1, 2, -1), (1, 0))
    assert [one.entryId for one in ack.message_id] == [0, 2]
    assert sum(flow.messagePermits for flow in await broker.saw("FLOW", 3)) == 8


@pytest.mark.parametrize(
    "sections",
    [
        [chunk(1, 2, b"b", 2)],
        [chunk(0, 3, b"a", 3), chunk(2, 3, b"c", 3)],
        [chunk(0, 2, b"a", 2), chunk(1, 3, b"b", 2)],
        [chunk(0, 2, b"a", 2), chunk(1, 2, b"bc", 2)],
        [chunk(0, 2, b"a", 9), chunk(1, 2, b"b", 9)],
        [chunk(0, 2**31 - 1, b"a", 9)],
        [chunk(0, 2, b"a", 2**31 - 1)],
        [chunk(0, 2, b"a", -1)],
        [chunk(0, 2, b"a", 2, "")],
        [chunk(0, 2, b"a", 2, f"u{one}") for one in range(11)] + [chunk(1, 2, b"b", 2, "u0")],
    ],
    ids=[
        "its first one is missing", "one is missing", "another count", "more than said",
        "less than said", "two thousand million", "two gigabytes", "less than nothing",
        "without a name", "too many at once",
    ],
)  # fmt: skip
def test_chunks_that_do_not_fit_are_not_joined(sections: list[bytes]):
    @on_broker
    async def work(broker: ScriptedPulsar, client: PulsarClient):
        consumer = await client.subscribe("t", "s")
        for number, section in enumerate(sections):
            broker.peers[0].message(section, number)
        broker.peers[0].message(chunk(0, 2, b"go", 4, "good"), 98)
        broker.peers[0].message(chunk(1, 2, b"od", 4, "good"), 99)

        assert await received(consumer, 1) == [b"good"]
        assert len(consumer._parts["persistent://public/default/t"]._chunks) <= 10

    work()


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
    await consumer.look_again()
    assert consumer.topics == [f"{start}a1", f"{start}a3"]
    assert len(broker.all("CLOSE_CONSUMER")) == 1
    with pytest.raises(ClientError, match="last part"):
        await client.subscribe_pattern("a.*/b", "s")


@on_broker
async def test_unsubscribing_removes_the_subscription_and_closes(
    broker: ScriptedPulsar, client: PulsarClient
):
    """Seed 001, Unsubscribe: "sent by the client to unsubscribe the consumer_id from the associated
    topic"."""
    consumer = await client.subscribe("t", "s")
    await consumer.unsubscribe()

    assert broker.names("UNSUBSCRIBE", "CLOSE_CONSUMER") == ["UNSUBSCRIBE"]
    with pytest.raises(ClosedError):
        await consumer.receive()


@on_broker
async def test_closing_tells_what_was_acknowledged_and_wakes_who_waits(
    broker: ScriptedPulsar, client: PulsarClient
):
    consumer = await client.subscribe("t", "s")
    broker.peers[0].message(single(b"x"))
    await consumer.ack(await consumer.receive())
    waiting = asyncio.ensure_future(consumer.receive())
    await client.partitions("t")
    await consumer.close()

    assert broker.names("ACK", "CLOSE_CONSUMER") == ["ACK", "CLOSE_CONSUMER"]
    with pytest.raises(ClosedError):
        await waiting


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
async def test_a_refusal_for_good_reaches_who_receives(
    broker: ScriptedPulsar, client: PulsarClient
):
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
async def test_more_than_was_ever_asked_for_ends_the_connection(
    broker: ScriptedPulsar, client: PulsarClient, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("trilogue.client.pulsar.topic_consumer.MOST_UNASKED", 10)
    await client.subscribe("t", "s", queue_size=2)
    for number in range(20):
        broker.peers[0].message(single(b"x"), number)
    await broker.saw("GONE")
