"""Sending: names, sequence ids, batches, chunks, what is sent again and what is given up."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.client.scripted_pulsar import (
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
    Compression,
    MessageId,
    MessageTooLarge,
    PulsarClient,
    PulsarError,
    QueueFull,
    Routing,
    Schema,
    SchemaType,
    TimedOut,
)
from trilogue.client.pulsar.decode import Opened, decompressed, open_section, singles
from trilogue.client.pulsar.routing import java_string_hash, murmur3
from trilogue.wire.pulsar import pulsar_pb2 as pb
from trilogue.wire.pulsar.errors import ServerError

SEND_AT_ONCE = Batching(max_messages=1)
LONG = Batching(max_delay_s=60)


def opened(broker: ScriptedPulsar) -> list[Opened]:
    return [open_section(memoryview(section)) for section in broker.sections]


def values(section: Opened) -> list[bytes | None]:
    payload = decompressed(section.metadata, section.payload, 1 << 20)
    return [one.value for one in singles(section.metadata, payload)]


def in_list(into: list[tuple[Peer, Any]]) -> Any:
    return lambda peer, message: into.append((peer, message))


@on_broker
async def test_sequence_ids_count_from_0(broker: ScriptedPulsar, client: PulsarClient):
    """Seed 001, Send: "each message has an associated sequence id which is expected to be
    implemented with a counter starting at 0"."""
    producer = await client.producer("t", batching=None)
    for value in (b"a", b"b", b"c"):
        await producer.send(value)

    assert [send.sequence_id for send in broker.all("SEND")] == [0, 1, 2]
    assert [one.metadata.sequence_id for one in opened(broker)] == [0, 1, 2]
    assert producer.last_sequence_id == 2


@on_broker
async def test_sequence_ids_go_on_from_what_the_broker_or_the_application_says(
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
    """Seed 001, producer_name: "let the broker generate a new producer name when the producer is
    initially created, then reuse it when recreating the producer after reconnections"."""
    await client.producer("t")
    broker.peers[0].hang_up()
    first, second = await broker.saw("PRODUCER", 2)

    assert (first.HasField("producer_name"), second.producer_name) == (False, "made-up")
    assert not first.user_provided_producer_name
    assert not second.user_provided_producer_name
    assert second.epoch > first.epoch


@on_broker
async def test_what_has_no_receipt_is_sent_again_in_order(
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
async def test_what_is_submitted_without_a_connection_is_sent_with_the_next(
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


@on_broker(operation_timeout_s=0.2)
async def test_after_a_time_out_the_producer_is_closed_before_it_is_created_again(
    broker: ScriptedPulsar, client: PulsarClient
):
    """Seed 000, CloseProducer: a client without an answer in time "must first send CloseProducer
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


@pytest.mark.parametrize(
    ("batching", "count", "sizes"),
    [
        (Batching(max_messages=4, max_delay_s=60), 8, [4, 4]),
        (Batching(max_bytes=350, max_delay_s=60), 6, [2, 2, 2]),
        (Batching(max_delay_s=0.01), 5, [5]),
    ],
    ids=["messages", "bytes", "delay"],
)
def test_a_batch_is_sent_when_it_is_full_or_large_or_old(
    batching: Batching, count: int, sizes: list[int]
):
    @on_broker
    async def work(broker: ScriptedPulsar, client: PulsarClient):
        producer = await client.producer("t", batching=batching)
        futures = [await producer.submit(b"x" * 100) for _ in range(count)]
        if batching.max_bytes == 350:
            await producer.flush()  # the last two
        ids = await asyncio.gather(*futures)

        assert [send.num_messages for send in broker.all("SEND")] == sizes
        assert [one.batch_index for one in ids] == [i for size in sizes for i in range(size)]
        assert {one.batch_size for one in ids} == set(sizes)

    work()


@on_broker
async def test_a_batch_says_its_first_and_last_sequence_id(
    broker: ScriptedPulsar, client: PulsarClient
):
    producer = await client.producer("t", batching=LONG)
    for value in (b"a", None, b"c"):
        await producer.submit(value, key="k", properties={"a": "b"})
    await producer.flush()
    (send,), (section,) = broker.all("SEND"), opened(broker)
    found = singles(section.metadata, section.payload)

    assert (send.sequence_id, send.highest_sequence_id, send.num_messages) == (0, 2, 3)
    assert (section.metadata.sequence_id, section.metadata.highest_sequence_id) == (0, 2)
    assert section.metadata.partition_key == "k"
    assert [(one.value, one.sequence_id) for one in found] == [(b"a", 0), (None, 1), (b"c", 2)]
    assert found[0].properties == (("a", "b"),)


@on_broker
async def test_a_batch_of_one_is_sent_as_a_single_message(
    broker: ScriptedPulsar, client: PulsarClient
):
    producer = await client.producer("t")
    message_id = await producer.send(b"x")

    assert not opened(broker)[0].metadata.is_batch
    assert message_id.batch_index == -1


@pytest.mark.parametrize("codec", [one for one in Compression if one])
def test_the_size_before_compression_is_always_said(codec: Compression):
    """Seed 001, uncompressed_size: "If compression is used, the producer must fill the uncompressed
    size field with the original payload size"."""

    @on_broker
    async def work(broker: ScriptedPulsar, client: PulsarClient):
        producer = await client.producer("t", batching=LONG, compression=codec)
        await producer.submit(b"x" * 1000)
        await producer.flush()
        await producer.submit(b"y" * 500)
        await producer.submit(b"z" * 500)
        await producer.flush()
        one, both = opened(broker)

        assert (one.metadata.compression, one.metadata.uncompressed_size) == (codec, 1000)
        assert decompressed(one.metadata, one.payload, 1 << 20) == b"x" * 1000
        assert values(both) == [b"y" * 500, b"z" * 500]
        assert len(both.payload) < both.metadata.uncompressed_size

    work()


@on_broker
async def test_keys_times_and_delays_stand_in_the_metadata(
    broker: ScriptedPulsar, client: PulsarClient
):
    producer = await client.producer("t")
    await producer.send(b"v", key=b"\xff", ordering_key=b"o", event_time_ms=5, deliver_at_ms=77)
    (metadata,) = [one.metadata for one in opened(broker)]

    assert (metadata.partition_key, metadata.key_is_b64) == ("/w==", True)
    assert (metadata.ordering_key, metadata.event_time) == (b"o", 5)
    assert metadata.deliver_at_time == 77


@on_broker
async def test_a_large_message_goes_in_chunks_that_fit(
    broker: ScriptedPulsar, client: PulsarClient
):
    broker.max_message_size = 1000
    producer = await client.producer("t", batching=None, chunking=True)
    value = bytes(range(256)) * 10
    message_id = await producer.send(value)
    chunks = opened(broker)

    assert b"".join(bytes(one.payload) for one in chunks) == value
    assert all(len(section) <= 1000 for section in broker.sections)
    assert [one.metadata.chunk_id for one in chunks] == list(range(len(chunks)))
    assert {one.metadata.num_chunks for one in chunks} == {len(chunks)}
    assert {one.metadata.total_chunk_size for one in chunks} == {2560}
    assert {one.metadata.uuid for one in chunks} == {"made-up-0"}
    assert {(one.sequence_id, one.is_chunk) for one in broker.all("SEND")} == {(0, True)}
    assert (message_id.entry_id, message_id.first_chunk) == (len(chunks) - 1, (1, 0))


@on_broker
async def test_what_the_broker_would_not_take_is_refused_here(
    broker: ScriptedPulsar, client: PulsarClient
):
    broker.max_message_size = 1000
    producer = await client.producer("t")
    squeezed = await client.producer("t", compression=Compression.ZLIB)
    with pytest.raises(MessageTooLarge):
        await producer.send(b"x" * 1001)
    with pytest.raises(MessageTooLarge):  # it is the whole that counts
        await producer.send(b"x" * 990)
    await squeezed.send(b"x" * 2000)

    assert len(broker.sections) == 1


@on_broker
async def test_a_batch_that_becomes_too_large_is_split(
    broker: ScriptedPulsar, client: PulsarClient
):
    broker.max_message_size = 1000
    producer = await client.producer("t", batching=LONG)
    futures = [await producer.submit(b"", properties={"k": "ä" * 60}) for _ in range(8)]
    await producer.flush()

    assert sum(send.num_messages for send in broker.all("SEND")) == 8
    assert len(broker.sections) > 1
    assert all(len(section) <= 1000 for section in broker.sections)
    assert len({future.result() for future in futures}) == 8


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
    producer = await client.producer("t", batching=None, send_timeout_s=0.05)
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
        producer._parts[0].put(producer_single())
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
    from tests.client.scripted_pulsar import text

    return text(b"z")


@on_broker
async def test_who_waits_for_exclusive_access_waits_past_the_time_out(
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
async def test_old_brokers_get_no_batches_and_no_checksums(
    broker: ScriptedPulsar, client: PulsarClient
):
    """Seed 001, CONNECTED: "Client must not attempt to send commands introduced in newer revisions
    of the protocol"; LOOKUP itself came with 7, so this one is found over HTTP in life."""
    producer = await client.producer("t", batching=LONG)
    broker.version = 3
    client._core.lookup.broker = lambda _topic: client._core.lookup.service()  # as over HTTP
    broker.peers[0].hang_up()
    await broker.saw("PRODUCER", 2)
    await producer._parts[0].attached_again()
    futures = [await producer.submit(b"%d" % number) for number in range(2)]
    await asyncio.gather(*futures)

    assert [send.num_messages for send in broker.all("SEND")] == [1, 1]
    assert [section[:2] for section in broker.sections] == [b"\x00\x00"] * 2
    assert [bytes(one.payload) for one in opened(broker)] == [b"0", b"1"]


@on_broker
async def test_schema_bytes_are_passed_on_and_their_version_repeated(
    broker: ScriptedPulsar, client: PulsarClient
):
    def versioned(peer: Peer, producer: Any) -> None:
        peer.send(
            producer_success=pb.CommandProducerSuccess(
                request_id=producer.request_id, producer_name="p", schema_version=bytes(8)
            )
        )

    broker.next_up["PRODUCER"].append(versioned)
    schema = Schema("mine", SchemaType.AVRO, b"{}", {"a": "b"})
    producer = await client.producer("t", schema=schema)
    await producer.send(b"x")
    (created,) = broker.all("PRODUCER")

    assert (created.schema.type, created.schema.schema_data) == (pb.Schema.Avro, b"{}")
    assert opened(broker)[0].metadata.schema_version == bytes(8)


@on_broker
async def test_a_topic_with_partitions_has_a_producer_for_each(
    broker: ScriptedPulsar, client: PulsarClient
):
    """Seed 001, partitioned topics: "the client is expected to create multiple producers or
    consumers, one for each partition, using the `partition-X` suffix"."""
    full = "persistent://public/default/t"
    broker.partitions[full] = 3
    producer = await client.producer("t", batching=None)
    names = {one.producer_id: one.topic for one in broker.all("PRODUCER")}
    for key in ("key-1", "日本", "hello world"):
        await producer.send(b"x", key=key)
    keyed = [names[send.producer_id] for send in broker.all("SEND")]
    for _ in range(6):
        await producer.send(b"x")
    keyless = [names[send.producer_id] for send in broker.all("SEND")][3:]

    assert sorted(names.values()) == [f"{full}-partition-{number}" for number in range(3)]
    assert keyed == [f"{full}-partition-{value % 3}" for value in (101943363, 835047, 1794106052)]
    assert len(set(keyless[:3])) == 3
    assert keyless[:3] == keyless[3:]


@on_broker
async def test_keyless_messages_change_the_partition_with_each_batch(
    broker: ScriptedPulsar, client: PulsarClient
):
    broker.partitions["persistent://public/default/t"] = 2
    producer = await client.producer("t", batching=Batching(max_messages=3, max_delay_s=60))
    await asyncio.gather(*[await producer.submit(b"x") for _ in range(6)])
    single = await client.producer("t", batching=None, routing=Routing.SINGLE)
    await asyncio.gather(*[await single.submit(b"x") for _ in range(4)])
    sends = broker.all("SEND")

    assert [send.num_messages for send in sends[:2]] == [3, 3]
    assert sends[0].producer_id != sends[1].producer_id
    assert len({send.producer_id for send in sends[2:]}) == 1


def test_keys_are_hashed_as_other_clients_hash_them():
    assert [java_string_hash(key) for key in ("key-1", "日本", "hello world", "")] == [
        101943363, 835047, 1794106052, 0,
    ]  # fmt: skip
    assert [murmur3(key.encode()) for key in ("a", "key-1", "hello world", "", "日本")] == [
        1009084850, 414258592, 1586663183, 0, 1155135810,
    ]  # fmt: skip


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
