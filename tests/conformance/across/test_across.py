"""What a Kafka client wrote, a Pulsar client reads, and the reverse: bytes, keys, order, ids.

confluent-kafka and pulsar-client against one server, which runs on (`live`), or was killed and
started again (`killed`: everything comes from the journal), or stopped and started (`flushed`: all
of it lies in segments).
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pulsar
import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.server import Server, start_server

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TO_PULSAR = {
    "none": pulsar.CompressionType.NONE,
    "gzip": pulsar.CompressionType.ZLib,
    "snappy": pulsar.CompressionType.SNAPPY,
    "lz4": pulsar.CompressionType.LZ4,
    "zstd": pulsar.CompressionType.ZSTD,
}
PHASES = ("live", "killed", "flushed")
COUNT = 40  # messages of a topic: half of them in batches, half alone
EVENT_MS = 1_600_000_000_000
WAIT_S = 90.0
_groups = itertools.count(1)


class WrittenMessage(NamedTuple):
    """A message as its reader has it."""

    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    time_ms: int


@dataclass
class World:
    """A server, what was written to it, and clients of both kinds."""

    server: Server
    written: dict[str, list[WrittenMessage]] = field(default_factory=dict)

    def pulsar(self) -> pulsar.Client:
        quiet = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
        return pulsar.Client(self.server.pulsar, logger=quiet)

    def consumer(self, **settings: object) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self.server.kafka,
                "group.id": f"across-{next(_groups)}",
                "auto.offset.reset": "earliest",
                **settings,
            }
        )

    def producer(self, **settings: object) -> Producer:
        return Producer({"bootstrap.servers": self.server.kafka, **settings})


def value(index: int) -> bytes:
    return b"value %d " % index * 30


def text_key(index: int) -> str | None:
    return None if index % 4 == 0 else f"schlüssel {index}"


def write_by_kafka(world: World, topic: str, codec: str) -> None:
    """Half in batches, half one by one; keys and values that are null, empty, and no text."""
    producer = world.producer(**{"compression.type": codec, "linger.ms": 50})
    offsets: list[int] = []
    written: list[WrittenMessage] = []

    def done(error: object, message: Message) -> None:
        assert error is None
        offsets.append(message.offset())

    for index in range(COUNT):
        keys = (None, b"", b"\xff\0", (text_key(index) or "").encode())
        reported = WrittenMessage(
            index,
            keys[index % 4],
            None if index % 10 == 9 else b"" if index % 10 == 8 else value(index),
            (("a", b"1"), ("ü", b"\xc3\xbc")) if index % 3 else (),
            EVENT_MS + index,
        )
        producer.produce(
            topic,
            reported.value,
            reported.key,
            partition=0,
            timestamp=reported.time_ms,
            headers=list(reported.headers),
            on_delivery=done,
        )
        written.append(reported)
        if index >= COUNT // 2:
            producer.flush(WAIT_S)
    assert producer.flush(WAIT_S) == 0
    assert offsets == [each.offset for each in written]
    world.written[topic] = written


def write_by_pulsar(world: World, client: pulsar.Client, topic: str, codec: str) -> None:
    """The same by the other client: in batches of ten, and one by one."""
    producer = client.create_producer(
        topic,
        compression_type=TO_PULSAR[codec],
        batching_enabled=True,
        batching_max_messages=10,
        batching_max_publish_delay_ms=1000,
    )
    written: dict[int, WrittenMessage] = {}

    def sent(
        result: pulsar.Result, message_id: pulsar.MessageId, *, reported: WrittenMessage
    ) -> None:
        assert result == pulsar.Result.Ok
        written[offset_of(message_id)] = reported

    for index in range(COUNT):
        key = text_key(index)
        headers = {"a": "1", "ü": "ü"} if index % 3 else {}
        reported = WrittenMessage(
            index,
            None if key is None else key.encode(),
            b"" if index % 10 == 8 else value(index),
            tuple((name, text.encode()) for name, text in headers.items()),
            EVENT_MS + index,
        )
        producer.send_async(
            reported.value,
            partial(sent, reported=reported),
            partition_key=key,
            properties=headers,
            event_timestamp=reported.time_ms,
        )
        if index >= COUNT // 2:
            producer.flush()
    producer.flush()
    producer.close()
    assert {each: reported.offset for each, reported in written.items()} == {
        each: each for each in range(COUNT)
    }
    world.written[topic] = list(written.values())


def offset_of(message_id: pulsar.MessageId) -> int:
    return message_id.entry_id() + max(0, message_id.batch_index())


def read_by_kafka(world: World, topic: str, count: int, start: int = 0) -> list[WrittenMessage]:
    consumer = world.consumer()
    consumer.assign([TopicPartition(topic, 0, start)])
    found: list[WrittenMessage] = []
    deadline = time.monotonic() + WAIT_S
    while len(found) < count and time.monotonic() < deadline:
        message = consumer.poll(1.0)
        if message is None:
            continue
        assert message.error() is None, message.error()
        headers = tuple(message.headers() or ())
        found.append(
            WrittenMessage(
                message.offset(), message.key(), message.value(), headers, message.timestamp()[1]
            )
        )
    consumer.close()
    return found


def read_by_pulsar(consumer: pulsar.Consumer | pulsar.Reader, count: int) -> list[pulsar.Message]:
    if isinstance(consumer, pulsar.Reader):
        return [consumer.read_next(int(WAIT_S * 1000)) for _ in range(count)]
    return [consumer.receive(int(WAIT_S * 1000)) for _ in range(count)]


@pytest.fixture(scope="module", params=PHASES)
def world(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    data: Path = tmp_path_factory.mktemp(f"across-{request.param}") / "data"
    made = World(start_server(data))
    client = made.pulsar()
    for codec in CODECS:
        write_by_kafka(made, f"kafka-{codec}", codec)
        write_by_pulsar(made, client, f"pulsar-{codec}", codec)
    client.close()
    if request.param == "killed":
        made.server.kill9()
        made.server = start_server(data)
    elif request.param == "flushed":
        assert made.server.stop() == 0
        assert list((data / "segments").glob("*.segment"))
        made.server = start_server(data)
    yield made
    made.server.stop()


@pytest.fixture
def client(world: World) -> Iterator[pulsar.Client]:
    made = world.pulsar()
    yield made
    made.close()


# ---- the same messages


@pytest.mark.parametrize("codec", CODECS)
def test_kafka_reads_what_pulsar_wrote(world: World, codec: str):
    topic = f"pulsar-{codec}"

    found = read_by_kafka(world, topic, COUNT)

    assert [each._replace(headers=()) for each in found] == [
        each._replace(headers=()) for each in world.written[topic]
    ]
    assert [dict(each.headers) for each in found] == [
        dict(each.headers) for each in world.written[topic]
    ]
    assert [each.offset for each in found] == list(range(COUNT))


@pytest.mark.parametrize("codec", CODECS)
def test_pulsar_reads_what_kafka_wrote(world: World, client: pulsar.Client, codec: str):
    topic = f"kafka-{codec}"
    reader = client.create_reader(topic, pulsar.MessageId.earliest)

    found = read_by_pulsar(reader, COUNT)

    assert not reader.has_message_available()
    written = world.written[topic]
    assert [offset_of(each.message_id()) for each in found] == [each.offset for each in written]
    assert [each.data() for each in found] == [each.value or b"" for each in written]
    assert [key_of(each) for each in found] == [each.key or b"" for each in written]
    assert [each.event_timestamp() for each in found] == [each.time_ms for each in written]
    assert [each.properties() for each in found] == [
        {name: content.decode() for name, content in each.headers} for each in written
    ]
    ledgers = {each.message_id().ledger_id() for each in found}
    assert len(ledgers) == 1


def key_of(message: pulsar.Message) -> bytes:
    """The key; pulsar-client gives out the base64 of one that is no text."""
    text = message.partition_key()
    return b"\xff\0" if text == "/wA=" else text.encode()


def test_both_kinds_of_clients_write_to_one_partition(world: World, client: pulsar.Client):
    topic = f"both-{next(_groups)}"
    kafka = world.producer()
    kafka.produce(topic, b"0", partition=0)
    kafka.flush(WAIT_S)
    producer = client.create_producer(f"{topic}-partition-0")
    for turn in range(1, 6):
        producer.send(b"%d" % (2 * turn - 1))
        kafka.produce(topic, b"%d" % (2 * turn), partition=0)
        kafka.flush(WAIT_S)

    expected = [b"%d" % each for each in range(11)]

    assert [each.value for each in read_by_kafka(world, topic, 11)] == expected
    reader = client.create_reader(f"{topic}-partition-0", pulsar.MessageId.earliest)
    assert [each.data() for each in read_by_pulsar(reader, 11)] == expected


def test_a_topic_of_several_partitions_is_read_whole(world: World, client: pulsar.Client):
    topic = f"three-{next(_groups)}"
    admin = AdminClient({"bootstrap.servers": world.server.kafka})
    admin.create_topics([NewTopic(topic, 3)])[topic].result(WAIT_S)
    kafka = world.producer(**{"linger.ms": 20})
    for index in range(60):
        kafka.produce(topic, b"%d" % index, partition=index % 3)
    assert kafka.flush(WAIT_S) == 0
    consumer = client.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest)

    found: dict[int, list[int]] = {0: [], 1: [], 2: []}
    for message in read_by_pulsar(consumer, 60):
        found[message.message_id().partition()].append(int(message.data()))
        consumer.acknowledge(message)

    assert found == {each: list(range(each, 60, 3)) for each in range(3)}


# ---- places


def test_kafka_goes_to_an_offset_amid_a_pulsar_batch(world: World):
    found = read_by_kafka(world, "pulsar-lz4", 10, start=7)

    assert found == world.written["pulsar-lz4"][7:17]


def test_kafka_goes_to_a_time_of_what_pulsar_wrote(world: World, client: pulsar.Client):
    reader = client.create_reader("pulsar-none", pulsar.MessageId.earliest)
    published = [each.publish_timestamp() for each in read_by_pulsar(reader, COUNT)]
    consumer = world.consumer()

    for index in (0, 12, COUNT - 1):
        requested = TopicPartition("pulsar-none", 0, published[index])
        (found,) = consumer.offsets_for_times([requested], WAIT_S)
        # an entry has one time, the one its first message was published at
        first = next(at for at, each in enumerate(published) if each >= published[index])
        assert published[found.offset] >= published[index]
        assert found.offset <= first

    (low, high) = consumer.get_watermark_offsets(TopicPartition("pulsar-none", 0), WAIT_S)
    assert (low, high) == (0, COUNT)
    consumer.close()


@pytest.mark.parametrize("topic", ["kafka-zstd", "pulsar-zstd"])
def test_pulsar_goes_to_an_id_amid_a_batch_of_any_writer(
    world: World, client: pulsar.Client, topic: str
):
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    ids = [each.message_id() for each in read_by_pulsar(reader, COUNT)]

    for is_inclusive, index in itertools.product((False, True), (3, 25)):
        consumer = client.subscribe(
            topic, f"seek-{next(_groups)}", start_message_id_inclusive=is_inclusive
        )
        consumer.seek(ids[index])
        found = [offset_of(each.message_id()) for each in read_by_pulsar(consumer, 5)]
        first = index if is_inclusive else index + 1
        assert found == list(range(first, first + 5))

    reader = client.create_reader(topic, ids[5])
    found = [offset_of(each.message_id()) for each in read_by_pulsar(reader, 3)]
    assert found == [6, 7, 8]


@pytest.mark.parametrize("kind", ["shared", "exclusive"])
def test_a_kafka_batch_larger_than_pulsars_frame_comes_in_pieces(
    world: World, client: pulsar.Client, kind: str
):
    topic = f"large-{next(_groups)}"
    admin = AdminClient({"bootstrap.servers": world.server.kafka})
    settings = {"max.message.bytes": "15000000"}
    admin.create_topics([NewTopic(topic, 1, config=settings)])[topic].result(WAIT_S)
    producer = world.producer(
        **{"message.max.bytes": 15_000_000, "batch.size": 14_000_000, "linger.ms": 500}
    )
    values = [random.Random(index).randbytes(400_000) for index in range(30)]
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(WAIT_S) == 0
    how = pulsar.ConsumerType.Shared if kind == "shared" else pulsar.ConsumerType.Exclusive

    consumer = client.subscribe(
        topic, "s", consumer_type=how, initial_position=pulsar.InitialPosition.Earliest
    )
    found = read_by_pulsar(consumer, 30)
    for message in found[:20]:
        consumer.acknowledge(message)
    consumer.close()

    assert [each.data() for each in found] == values
    ids = [each.message_id() for each in found]
    assert [offset_of(each) for each in ids] == list(range(30))
    pieces = sorted({each.entry_id() for each in ids})
    assert len(pieces) >= 3  # twelve megabytes in frames of five
    consumer = client.subscribe(topic, "s", consumer_type=how)
    first = offset_of(consumer.receive(int(WAIT_S * 1000)).message_id())
    assert first in pieces  # clients ack batches whole: of a piece that is not, all comes again
    assert first == max(each for each in pieces if each <= 20)
    reader = client.create_reader(topic, ids[17])
    rest = read_by_pulsar(reader, 12)
    assert [offset_of(each.message_id()) for each in rest] == list(range(18, 30))
    assert not reader.has_message_available()


def test_pulsar_goes_to_a_time_of_what_kafka_wrote(world: World, client: pulsar.Client):
    consumer = client.subscribe("kafka-none", f"time-{next(_groups)}")
    consumer.seek(EVENT_MS + 30)  # from 20 on every message is an entry

    found = [offset_of(each.message_id()) for each in read_by_pulsar(consumer, 3)]

    assert found == [30, 31, 32]


def test_acks_amid_a_kafka_batch_are_kept(world: World, client: pulsar.Client):
    name = f"half-{next(_groups)}"

    def subscribe() -> pulsar.Consumer:
        return client.subscribe(
            "kafka-gzip",
            name,
            consumer_type=pulsar.ConsumerType.Shared,
            initial_position=pulsar.InitialPosition.Earliest,
            batch_index_ack_enabled=True,
        )

    consumer = subscribe()
    for message in read_by_pulsar(consumer, COUNT):
        if offset_of(message.message_id()) % 2:
            consumer.acknowledge(message)
    consumer.close()

    again = subscribe()
    found = [offset_of(each.message_id()) for each in read_by_pulsar(again, COUNT // 2)]
    assert found == list(range(0, COUNT, 2))
    again.close()


# ---- what is not converted


def test_a_chunked_message_is_passed_counted_and_logged(world: World, client: pulsar.Client):
    topic = f"chunked-{next(_groups)}"
    producer = client.create_producer(topic, chunking_enabled=True, batching_enabled=False)
    producer.send(b"before")
    producer.send(bytes(6 << 20))
    producer.send(b"after")

    found = read_by_kafka(world, topic, 2)

    assert [each.value for each in found] == [b"before", b"after"]
    assert found[1].offset == found[0].offset + 3  # two chunks lie between
    assert "conversion.skipped" in world.server.output
    assert "reason=chunked" in world.server.output
