"""Sending: names, sequence ids, batches, chunks, what is sent again and what is given up."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.client.pulsar.scripted import (
    SILENCE,
    Peer,
    ScriptedPulsar,
    on_broker,
    receipt,
    send_error,
)
from trilogue.client.errors import ClientError
from trilogue.client.pulsar import (
    AccessMode,
    Batching,
    ClosedError,
    MessageId,
    PulsarClient,
    PulsarError,
    QueueFull,
    TimedOut,
)
from trilogue.client.pulsar.section import Section, decompress_payload, read_section, read_singles
from trilogue.wire.pulsar import pulsar_pb2 as pb
from trilogue.wire.pulsar.errors import ServerError

SEND_AT_ONCE = Batching(max_messages=1)
LONG = Batching(max_delay_s=60)


def opened(broker: ScriptedPulsar) -> list[Section]:
    return [read_section(memoryview(section)) for section in broker.sections]


def values(section: Section) -> list[bytes | None]:
    payload = decompress_payload(section.metadata, section.payload, 1 << 20)
    return [one.value for one in read_singles(section.metadata, payload)]


def in_list(into: list[tuple[Peer, Any]]) -> Any:
    return lambda peer, message: into.append((peer, message))


@on_broker
async def test_sequence_ids_count_from_0(broker: ScriptedPulsar, client: PulsarClient):
    """Pulsar protocol, Send: "each message has an associated sequence id which is expected to be
    implemented with a counter starting at 0"."""
    producer = await client.producer("t", batching=None)
    for value in (b"a", b"b", b"c"):
        await producer.send(value)

    assert [send.sequence_id for send in broker.all("SEND")] == [0, 1, 2]
    assert [one.metadata.sequence_id for one in opened(broker)] == [0, 1, 2]
    assert producer.last_sequence_id == 2


@on_broker
async def test_sequence_ids_continue_from_the_broker_or_the_application(
    broker: ScriptedPulsar, client: PulsarClient
):
    broker.last_sequence_id = 41
    producer = await client.producer("t", name="mine")
    await producer.send(b"a")
    await producer.send(b"b", sequence_id=100)
    await producer.send(b"c")
    other = await client.producer("t", first_sequence_id=7)
    await other.send(b"d")

    assert [send.sequence_id for send in broker.all("SEND")] == [42, 100, 101, 7]


@on_broker
async def test_a_name_that_the_broker_made_up_is_kept_over_reconnections(
    broker: ScriptedPulsar, client: PulsarClient
):
    """Pulsar protocol, producer_name: "let the broker generate a new producer name when the
    producer is
    initially created, then reuse it when recreating the producer after reconnections"."""
    await client.producer("t")
    broker.peers[0].hang_up()
    first, second = await broker.saw("PRODUCER", 2)

    assert (first.HasField("producer_name"), second.producer_name) == (False, "made-up")
    assert not first.user_provided_producer_name
    assert not second.user_provided_producer_name
    assert second.epoch > first.epoch


@on_broker
async def test_unacknowledged_messages_are_sent_again_in_order(
    broker: ScriptedPulsar, client: PulsarClient
):
    producer = await client.producer("t", batching=None)
    broker.next_up["SEND"].extend([None, SILENCE, SILENCE, SILENCE])
    futures = [await producer.submit(b"%d" % number) for number in range(4)]
    await broker.saw("SEND", 4)
    broker.peers[0].hang_up()
    await producer.flush()

    assert [send.sequence_id for send in broker.all("SEND")] == [0, 1, 2, 3, 1, 2, 3]
    assert [bytes(one.payload) for one in opened(broker)] == [
        b"0", b"1", b"2", b"3", b"1", b"2", b"3",
    ]  # fmt: skip
    assert [future.result().entry_id for future in futures] == [0, 1, 2, 3]


@on_broker
async def test_message_submitted_while_disconnected_is_sent_on_the_next_connection(
    broker: ScriptedPulsar, client: PulsarClient
):
    producer = await client.producer("t")
    broker.next_up["LOOKUP"].append(SILENCE)
    broker.peers[0].hang_up()
    await broker.saw("GONE")
    sending = asyncio.ensure_future(producer.send(b"x"))
    await broker.saw("LOOKUP", 2)
    broker.peers[1].hang_up()

    assert (await sending).entry_id == 0


@on_broker(request_timeout_s=0.2)
async def test_after_a_time_out_the_producer_is_closed_before_it_is_created_again(
    broker: ScriptedPulsar, client: PulsarClient
):
    """Pulsar protocol, CloseProducer: a client without an answer in time "must first send
    CloseProducer
    before another Producer command", and "need not wait for the response"."""
    broker.next_up["PRODUCER"].append(SILENCE)
    broker.next_up["CLOSE_PRODUCER"].append(SILENCE)
    # The first attempt may take the whole time that creating may take; reconnecting may not.
    with pytest.raises(TimedOut):
        await client.producer("t")
    assert broker.names("PRODUCER", "CLOSE_PRODUCER")[:2] == ["PRODUCER", "CLOSE_PRODUCER"]

    await client.producer("u")
    broker.seen.clear()
    broker.next_up["PRODUCER"].append(SILENCE)
    broker.next_up["CLOSE_PRODUCER"].append(SILENCE)
    broker.peers[-1].hang_up()
    await broker.saw("PRODUCER", 2)

    assert broker.names("PRODUCER", "CLOSE_PRODUCER") == ["PRODUCER", "CLOSE_PRODUCER", "PRODUCER"]
    first, second = broker.all("PRODUCER")
    assert first.producer_id == broker.all("CLOSE_PRODUCER")[0].producer_id == second.producer_id
    assert first.request_id != second.request_id


@on_broker
async def test_a_message_that_is_refused_costs_only_itself(
    broker: ScriptedPulsar, client: PulsarClient
):
    producer = await client.producer("t", batching=None)
    broker.next_up["SEND"].extend([None, send_error(ServerError.NotAllowedError)])
    futures = [await producer.submit(b"%d" % number) for number in range(3)]
    found = await asyncio.gather(*futures, return_exceptions=True)

    assert [type(one) for one in found] == [MessageId, PulsarError, MessageId]
    assert len(broker.all("SEND")) == 3


@on_broker
async def test_a_terminated_topic_fails_everything(broker: ScriptedPulsar, client: PulsarClient):
    producer = await client.producer("t", batching=None)
    broker.next_up["SEND"].extend([send_error(ServerError.TopicTerminatedError), SILENCE])
    futures = [await producer.submit(b"x") for _ in range(2)]
    found = await asyncio.gather(*futures, return_exceptions=True)

    assert [one.error for one in found] == [ServerError.TopicTerminatedError] * 2
    with pytest.raises(PulsarError, match="TopicTerminatedError"):
        await producer.send(b"y")


@pytest.mark.parametrize(
    "error", [ServerError.PersistenceError, ServerError.UnknownError, ServerError.ChecksumError]
)
def test_after_other_errors_the_producer_is_created_again_and_sends_again(error: ServerError):
    @on_broker
    async def work(broker: ScriptedPulsar, client: PulsarClient):
        producer = await client.producer("t", batching=None)
        broker.next_up["SEND"].extend([send_error(error), SILENCE])
        futures = [await producer.submit(b"%d" % number) for number in range(2)]
        await asyncio.gather(*futures)

        assert [send.sequence_id for send in broker.all("SEND")] == [0, 1, 0, 1]
        assert broker.names("PRODUCER", "CLOSE_PRODUCER") == [
            "PRODUCER", "CLOSE_PRODUCER", "PRODUCER",
        ]  # fmt: skip
        assert len(broker.peers) == 1

    work()


@on_broker
async def test_a_checksum_that_never_comes_right_is_given_up(
    broker: ScriptedPulsar, client: PulsarClient
):
    producer = await client.producer("t", batching=None)
    broker.next_up["SEND"].extend([send_error(ServerError.ChecksumError)] * 4)

    with pytest.raises(PulsarError, match="ChecksumError"):
        await producer.send(b"x")
    assert len(broker.all("SEND")) == 4


@on_broker
async def test_a_receipt_that_skips_one_means_sending_again(
    broker: ScriptedPulsar, client: PulsarClient
):
    producer = await client.producer("t", batching=None)
    broker.next_up["SEND"].append(SILENCE)
    futures = [await producer.submit(b"%d" % number) for number in range(2)]
    await asyncio.gather(*futures)

    assert [send.sequence_id for send in broker.all("SEND")] == [0, 1, 0, 1]


@on_broker
async def test_receipts_of_messages_that_were_given_up_are_passed_over(
    broker: ScriptedPulsar, client: PulsarClient
):
    late: list[tuple[Peer, Any]] = []
    producer = await client.producer("t", batching=None, delivery_timeout_s=0.05)
    broker.next_up["SEND"].append(in_list(late))
    with pytest.raises(TimedOut, match="no receipt"):
        await producer.send(b"0")
    receipt(*late[0], 99)
    message_id = await producer.send(b"1")

    assert message_id.entry_id == 0
    assert len(broker.all("SEND")) == 2


@on_broker
async def test_more_than_may_wait_waits_for_room(broker: ScriptedPulsar, client: PulsarClient):
    late: list[tuple[Peer, Any]] = []
    producer = await client.producer("t", batching=None, max_pending=2)
    broker.next_up["SEND"].extend([in_list(late)] * 3)
    first, second = [await producer.submit(b"x") for _ in range(2)]
    third = asyncio.ensure_future(producer.submit(b"y"))
    with pytest.raises(QueueFull):
        producer._parts[0].enqueue(producer_single())
    await broker.saw("SEND", 2)

    assert not third.done()
    receipt(*late[0], 0)
    future = await third
    assert (first.done(), second.done(), future.done()) == (True, False, False)
    await broker.saw("SEND", 3)
    receipt(*late[1], 1)
    receipt(*late[2], 2)
    assert (await future).entry_id == 2


def producer_single() -> Any:
    from tests.client.pulsar.scripted import text

    return text(b"z")


@on_broker
async def test_wait_for_exclusive_outlasts_the_request_timeout(
    broker: ScriptedPulsar, client: PulsarClient
):
    waiting: list[tuple[Peer, Any]] = []

    def not_yet(peer: Peer, producer: Any) -> None:
        answer(peer, producer, ready=False)
        waiting.append((peer, producer))

    broker.next_up["PRODUCER"].append(not_yet)
    making = asyncio.ensure_future(client.producer("t", access=AccessMode.WAIT_FOR_EXCLUSIVE))
    await broker.saw("PRODUCER")
    answer(*waiting[0], ready=True)
    producer = await making
    broker.peers[0].hang_up()
    _, again = await broker.saw("PRODUCER", 2)

    assert producer.name == "exclusive"
    assert again.topic_epoch == 3
    assert again.producer_access_mode == AccessMode.WAIT_FOR_EXCLUSIVE


def answer(peer: Peer, producer: Any, *, ready: bool) -> None:
    peer.send(
        producer_success=pb.CommandProducerSuccess(
            request_id=producer.request_id, producer_name="exclusive", schema_version=b"",
            topic_epoch=3, producer_ready=ready,
        )
    )  # fmt: skip


@on_broker
async def test_a_fenced_producer_stays_fenced(broker: ScriptedPulsar, client: PulsarClient):
    producer = await client.producer("t", access=AccessMode.EXCLUSIVE)
    broker.next_up["PRODUCER"].append(ServerError.ProducerFenced)
    broker.next_up["SEND"].append(SILENCE)
    sending = asyncio.ensure_future(producer.send(b"x"))
    await broker.saw("SEND")
    broker.peers[0].hang_up()

    with pytest.raises(PulsarError, match="ProducerFenced"):
        await sending
    with pytest.raises(PulsarError, match="ProducerFenced"):
        await producer.send(b"y")


@on_broker
async def test_a_name_in_use_is_an_error_first_and_waited_for_when_it_was_ours(
    broker: ScriptedPulsar, client: PulsarClient
):
    broker.next_up["PRODUCER"].append(ServerError.ProducerBusy)
    with pytest.raises(PulsarError, match="ProducerBusy"):
        await client.producer("t", name="mine")

    producer = await client.producer("t", name="mine")
    broker.next_up["PRODUCER"].extend([ServerError.ProducerBusy])
    broker.peers[0].hang_up()
    await broker.saw("PRODUCER", 4)

    assert (await producer.send(b"x")).entry_id == 0


@on_broker
async def test_closing_waits_for_receipts_and_closes_at_the_broker(
    broker: ScriptedPulsar, client: PulsarClient
):
    async with await client.producer("t", batching=LONG) as producer:
        future = await producer.submit(b"x")
    await producer.close()

    assert future.done()
    assert broker.names("SEND", "CLOSE_PRODUCER") == ["SEND", "CLOSE_PRODUCER"]
    with pytest.raises(ClosedError):
        await producer.send(b"y")


@on_broker(request_timeout_s=0.1)
async def test_closing_does_not_wait_for_a_broker_that_is_gone(
    broker: ScriptedPulsar, client: PulsarClient
):
    producer = await client.producer("t", delivery_timeout_s=0)
    broker.next_up["SEND"].append(SILENCE)
    future = await producer.submit(b"x")
    await producer.close()

    with pytest.raises(ClosedError):
        await future


@on_broker
async def test_a_future_that_was_given_up_is_not_missed(
    broker: ScriptedPulsar, client: PulsarClient
):
    producer = await client.producer("t", batching=LONG)
    first, second = [await producer.submit(b"x") for _ in range(2)]
    first.cancel()
    await producer.flush()

    assert second.result().batch_index == 1
    assert broker.all("SEND")[0].num_messages == 2


@pytest.mark.parametrize(
    "options",
    [{"chunking": True}, {"max_pending": 0}, {"batching": "all"}],
    ids=["chunks in batches", "nothing under way", "no batching"],
)
def test_options_that_cannot_be_are_refused(options: dict[str, Any]):
    @on_broker
    async def work(_broker: ScriptedPulsar, client: PulsarClient):
        if options.get("batching"):
            options["batching"] = Batching(max_messages=0)
        await client.producer("t", **options)

    with pytest.raises(ClientError):
        work()
