"""Acknowledging: one by one, through, inside of batches, with receipts; and redelivery."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.client.pulsar.scripted import (
    SILENCE,
    ScriptedPulsar,
    batch,
    chunk,
    metadata,
    on_broker,
    single,
)
from tests.waiting import run_ready_tasks
from trilogue.client.errors import ClientError, ConnectionLost, Unsupported
from trilogue.client.pulsar import (
    ClosedError,
    Consumer,
    MessageId,
    PulsarClient,
    PulsarError,
    SubscriptionType,
)
from trilogue.client.pulsar.consumer.ack_tracker import mask_to_words, words_to_mask
from trilogue.entry.checksum import crc32c
from trilogue.entry.pulsar.pulsar_batch import build_section
from trilogue.wire.pulsar import pulsar_pb2 as pb

SHARED = SubscriptionType.SHARED
WRONG = pb.CommandAck


async def received(consumer: Consumer, count: int) -> list[bytes | None]:
    return [(await consumer.receive(5)).value for _ in range(count)]


def with_checksum(body: bytes) -> bytes:
    return b"\x0e\x01" + crc32c(body).to_bytes(4, "big") + body


@on_broker
async def test_a_batch_costs_a_permit_for_each_message_that_was_not_acknowledged(
    broker: ScriptedPulsar, client: PulsarClient
):
    consumer = await client.subscribe("t", "s", queue_size=8)
    # Of four messages the broker knows two as acknowledged: those cost nothing, and are not shown.
    broker.peers[0].message(batch(b"a", b"b", b"c", b"d"), ack_set=[0b1010])
    broker.peers[0].message(batch(b"e", None, b"f"), 1)  # one was compacted out: it costs

    assert await received(consumer, 3) == [b"b", b"d", b"e"]
    await broker.saw("FLOW", 2)
    assert [flow.messagePermits for flow in broker.all("FLOW")] == [8, 4]


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
    "another size than it declares": (
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
def test_corrupt_message_is_acknowledged_with_its_validation_error(name: str):
    """Pulsar protocol, validation_error: "Indicates that the consumer has discarded the messages
    due to:
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
async def test_batch_index_acks_contain_the_remaining_indexes(
    broker: ScriptedPulsar, client: PulsarClient
):
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


def test_ack_set_words_contain_the_remaining_messages():
    assert mask_to_words(0b1111110111) == [1015]
    assert mask_to_words(1 << 64 | 1 << 63) == [-(1 << 63), 1]
    assert mask_to_words(0) == []
    assert words_to_mask((2**64 - 1, 1)) == (1 << 65) - 1
    assert words_to_mask(tuple(mask_to_words(12345 << 60))) == 12345 << 60


@on_broker
async def test_an_ack_with_a_receipt_waits_for_the_broker(
    broker: ScriptedPulsar, client: PulsarClient
):
    """Pulsar protocol, AckResponse: "the response of the broker to an ack ... the client completes
    the
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
    first, second = broker.all("ACK")
    assert first.request_id != second.request_id

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
    await run_ready_tasks()
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
async def test_a_nack_requests_the_entries_again_after_a_while(
    broker: ScriptedPulsar, client: PulsarClient
):
    """Pulsar protocol, RedeliverUnacknowledgedMessages: "accepts a list of message ids that the
    consumer
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
    """Protocol: "If the list is empty, the broker will redeliver all the pending messages"."""
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
        [chunk(0, 3, b"a", 3), chunk(2, 3, b"c", 3), chunk(1, 3, b"b", 3)],
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
        "its first one is missing", "one is missing", "out of order", "another count",
        "more than said", "less than said", "two thousand million", "two gigabytes",
        "less than nothing", "without a name", "too many at once",
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
async def test_a_chunk_that_was_sent_twice_is_passed_over(
    broker: ScriptedPulsar, client: PulsarClient
):
    """Its producer lost the connection before the receipts, and sent two chunks again."""
    consumer = await client.subscribe("t", "s", max_pending_chunked=0)
    for entry, number in enumerate((0, 1, 1, 2)):
        broker.peers[0].message(chunk(number, 3, b"abc"[number : number + 1], 3), entry)
    message = await consumer.receive(5)
    await consumer.ack(message)
    (ack,) = await broker.saw("ACK")

    assert message.value == b"abc"
    assert [one.entryId for one in ack.message_id] == [0, 1, 2, 3]


@on_broker
async def test_close_sends_pending_acks_and_ends_receive(
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


@pytest.mark.parametrize(("count", "total"), [(2**31 - 1, 9), (2, 1001), (2, -1)])
def test_of_what_would_be_too_large_nothing_is_kept(count: int, total: int):
    @on_broker(max_decompressed_size=1000)
    async def work(broker: ScriptedPulsar, client: PulsarClient):
        consumer = await client.subscribe("t", "s")
        broker.peers[0].message(chunk(0, count, b"a", total), 0)
        broker.peers[0].message(single(b"good"), 1)

        assert await received(consumer, 1) == [b"good"]
        assert len(consumer._parts["persistent://public/default/t"]._chunks) == 0

    work()


@on_broker
async def test_ack_that_sends_no_command_waits_for_no_receipt(
    broker: ScriptedPulsar, client: PulsarClient
):
    """One message of a batch, where batches are acknowledged whole; and a seek meanwhile."""
    consumer = await client.subscribe("t", "s", ack_receipts=True)
    broker.peers[0].message(batch(b"a", b"b"), 4)
    first, second = await consumer.receive_many(2)

    async with asyncio.timeout(60):
        await consumer.ack(first)
        assert broker.all("ACK") == []
        await consumer.ack(second)
    assert len(broker.all("ACK")) == 1


@on_broker
async def test_no_caller_waits_for_the_receipt_of_a_client_that_was_closed(
    broker: ScriptedPulsar, client: PulsarClient
):
    consumer = await client.subscribe("t", "s", ack_receipts=True)
    broker.peers[0].message(single(b"x"), 1)
    message = await consumer.receive()
    broker.next_up["ACK"].append(SILENCE)
    waiting = asyncio.ensure_future(consumer.ack(message))
    await broker.saw("ACK")

    async with asyncio.timeout(60):
        await client.close()
        with pytest.raises(ClosedError):
            await waiting
