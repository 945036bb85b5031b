"""Where one begins and goes back to: seeks, readers, reconnections."""

from __future__ import annotations

from typing import Any

import pytest

from tests.client.pulsar.scripted import (
    ScriptedPulsar,
    batch,
    chunk,
    on_broker,
    single,
)
from trilogue.client.errors import ClientError
from trilogue.client.pulsar import (
    Consumer,
    MessageId,
    PulsarClient,
)
from trilogue.client.pulsar.message import EARLIEST, LATEST
from trilogue.wire.pulsar import pulsar_pb2 as pb


async def received(consumer: Consumer, count: int) -> list[bytes | None]:
    return [(await consumer.receive(5)).value for _ in range(count)]


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
    reported, _ = broker.all("SUBSCRIBE")
    await client.reader("t", MessageId(1, 4), inclusive=True)
    alone = broker.all("SUBSCRIBE")[2].start_message_id

    assert await received(after, 1) == [b"c"]
    assert await received(at, 2) == [b"b", b"c"]
    assert not reported.durable
    assert (reported.start_message_id.entryId, reported.start_message_id.batch_index) == (4, 1)
    assert reported.subscription.startswith("reader-")
    # A batch index makes brokers begin with the entry, not behind it.
    assert (alone.entryId, alone.HasField("batch_index"), alone.batch_index) == (4, True, 0)


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
async def test_a_reader_goes_on_with_the_chunks_that_came_mixed_with_messages(
    broker: ScriptedPulsar, client: PulsarClient
):
    """A connection that ends, also before anything came again, loses no message that had begun."""
    reader = await client.reader("t")
    sections = [
        chunk(0, 2, b"ab", 4), single(b"1"), chunk(0, 2, b"x", 2, "other"), chunk(1, 2, b"cd", 4),
    ]  # fmt: skip
    for number, section in enumerate(sections):
        broker.peers[0].message(section, number)
    assert await received(reader, 1) == [b"1"]
    await client.partitions("t")  # its answer comes after all of them
    assert [(each.first, each.last) for each in reader.begun_messages()] == [
        ((1, 0), (1, 3)),
        ((1, 2), (1, 2)),
    ]
    for peer in range(2):
        broker.peers[peer].hang_up()
        await broker.saw("FLOW", peer + 2)
    starts = [each.start_message_id.entryId for each in broker.all("SUBSCRIBE")[1:]]
    for number, section in enumerate([*sections, chunk(1, 2, b"y", 2, "other")]):
        broker.peers[2].message(section, number)

    assert await received(reader, 2) == [b"abcd", b"xy"]
    assert reader.begun_messages() == []
    assert starts == [0, 0]
    broker.peers[2].hang_up()
    assert (await broker.saw("SUBSCRIBE", 4))[-1].start_message_id.entryId == 4


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
