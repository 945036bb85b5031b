"""What goes into one SEND: batches, compression, chunks, keys; and which partition gets it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest

from tests.client.pulsar.scripted import (
    Peer,
    ScriptedPulsar,
    on_broker,
)
from trilogue.client.connection import FrameConnection
from trilogue.client.pulsar import (
    Batching,
    Compression,
    MessageTooLarge,
    PulsarClient,
    Routing,
    Schema,
    SchemaType,
)
from trilogue.client.pulsar.producer.message_router import java_string_hash, murmur3
from trilogue.client.pulsar.section import Section, decompress_payload, read_section, read_singles
from trilogue.wire.pulsar import pulsar_pb2 as pb

LONG = Batching(max_delay_s=60)


def opened(broker: ScriptedPulsar) -> list[Section]:
    return [read_section(memoryview(section)) for section in broker.sections]


def values(section: Section) -> list[bytes | None]:
    payload = decompress_payload(section.metadata, section.payload, 1 << 20)
    return [one.value for one in read_singles(section.metadata, payload)]


def in_list(into: list[tuple[Peer, Any]]) -> Any:
    return lambda peer, message: into.append((peer, message))


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
async def test_batch_contains_its_first_and_last_sequence_id(
    broker: ScriptedPulsar, client: PulsarClient
):
    producer = await client.producer("t", batching=LONG)
    for value in (b"a", None, b"c"):
        await producer.submit(value, key="k", properties={"a": "b"})
    await producer.flush()
    (send,), (section,) = broker.all("SEND"), opened(broker)
    found = read_singles(section.metadata, section.payload)

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
def test_uncompressed_size_is_always_sent(codec: Compression):
    """Pulsar protocol, uncompressed_size: "If compression is used, the producer must fill the
    uncompressed
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
        assert decompress_payload(one.metadata, one.payload, 1 << 20) == b"x" * 1000
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
async def test_messages_without_batches_are_written_together(
    broker: ScriptedPulsar, client: PulsarClient, monkeypatch: pytest.MonkeyPatch
):
    producer = await client.producer("t", batching=None)
    writes: list[int] = []
    send = FrameConnection.send

    def note(connection: FrameConnection, buffers: Iterable[bytes]) -> None:
        writes.append(len(list(buffers)))
        send(connection, buffers)

    monkeypatch.setattr(FrameConnection, "send", note)
    futures = [await producer.submit(b"%d" % number) for number in range(20)]
    ids = await asyncio.gather(*futures)
    await client.partitions("t")

    assert writes[0] == 2 * len(futures), "a head and a section of each"
    assert [each.entry_id for each in ids] == list(range(20))
    assert [bytes(one.payload) for one in opened(broker)] == [b"%d" % each for each in range(20)]


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
async def test_producer_refuses_messages_above_the_limit_of_the_broker(
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
async def test_old_brokers_get_no_batches_and_no_checksums(
    broker: ScriptedPulsar, client: PulsarClient
):
    """Pulsar protocol, CONNECTED: "Client must not attempt to send commands introduced in newer
    revisions
    of the protocol"; LOOKUP itself came with 7, so this one is found over HTTP in life."""
    producer = await client.producer("t", batching=LONG)
    broker.version = 3
    client._core.lookup.broker = lambda _topic: client._core.lookup.service()  # as over HTTP
    broker.peers[0].hang_up()
    await broker.saw("PRODUCER", 2)
    await producer._parts[0].wait_reattached()
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
    """Pulsar protocol, partitioned topics: "the client is expected to create multiple producers or
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
