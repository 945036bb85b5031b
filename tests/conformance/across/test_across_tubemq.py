"""All pairs with TubeMQ in them: what one client wrote the others read, at the same places.

confluent-kafka, pulsar-client, TubeMQ's own Java client and ours, against one server, which runs on
(`live`), or was killed and started again (`killed`: everything comes from the journal), or stopped
and started (`flushed`: all of it lies in segments). The other pairs: test_across.py.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from pathlib import Path

import pulsar
import pytest
from confluent_kafka import TopicPartition

from tests.conformance.across.test_across import (
    CODECS,
    COUNT,
    EVENT_MS,
    PHASES,
    WAIT_S,
    WrittenMessage,
    key_of,
    offset_of,
    read_by_kafka,
    read_by_pulsar,
    write_by_kafka,
    write_by_pulsar,
)
from tests.conformance.clients import tubemq as java
from tests.conformance.clients.pulsar import Process
from tests.conformance.tubes import (
    MINUTE,
    Seen,
    Tubes,
    as_seen,
    as_written,
    groups,
    message,
)
from tests.server import start_server
from trilogue.client.tubemq import Message
from trilogue.client.tubemq.sync import TubeClient
from trilogue.entry.conversion.convert import read_messages
from trilogue.entry.entry import Format
from trilogue.entry.walk import read_header, walk_headers
from trilogue.log.segments.sealed import SealedLog

LIBRARIES = ("own", pytest.param("java", marks=pytest.mark.java))


@pytest.fixture(scope="module", params=PHASES)
def world(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    tube_drivers: dict[str, Process],
) -> Iterator[Tubes]:
    def driver() -> Process:
        if "trilogue" not in tube_drivers:
            tube_drivers["trilogue"] = java.driver_process()
        return tube_drivers["trilogue"]

    data: Path = tmp_path_factory.mktemp(f"tubes-{request.param}") / "data"
    made = Tubes(start_server(data), driver=driver)
    client = made.pulsar()
    for codec in CODECS:
        write_by_kafka(made, f"kafka-{codec}", codec)
        write_by_pulsar(made, client, f"pulsar-{codec}", codec)
    client.close()
    topic = made.topic("tube")
    messages = [message(topic, index) for index in range(COUNT)]
    offsets = made.write("own", *messages)
    assert offsets == list(range(COUNT))
    made.written[topic] = [
        as_written(each, offset) for each, offset in zip(messages, offsets, strict=True)
    ]
    made.tube_topic = topic
    if request.param == "killed":
        made.server.kill9()
        made.server = start_server(data)
    elif request.param == "flushed":
        assert made.server.stop() == 0
        made.server = start_server(data)
    yield made
    made.server.stop()


@pytest.fixture
def client(world: Tubes) -> Iterator[pulsar.Client]:
    made = world.pulsar()
    yield made
    made.close()


def same_time(found: WrittenMessage, written: WrittenMessage) -> WrittenMessage:
    """A message without a time has that of its append."""
    if written.time_ms:
        return found
    assert abs(found.time_ms - time.time() * 1000) < 600_000
    return found._replace(time_ms=0)


# ---- TubeMQ to the others


def test_kafka_reads_what_tubemq_wrote(world: Tubes):
    written = world.written[world.tube_topic]

    found = read_by_kafka(world, world.tube_topic, COUNT)

    assert [same_time(*pair) for pair in zip(found, written, strict=True)] == written


def test_pulsar_reads_what_tubemq_wrote(world: Tubes, client: pulsar.Client):
    written = world.written[world.tube_topic]
    reader = client.create_reader(world.tube_topic, pulsar.MessageId.earliest)

    found = read_by_pulsar(reader, COUNT)

    assert not reader.has_message_available()
    assert [offset_of(each.message_id()) for each in found] == [each.offset for each in written]
    assert [each.data() for each in found] == [each.value for each in written]
    assert [key_of(each) for each in found] == [each.key or b"" for each in written]
    assert [each.event_timestamp() for each in found] == [each.time_ms for each in written]
    assert [each.properties() for each in found] == [
        {name: (text or b"").decode() for name, text in each.headers} for each in written
    ]


@pytest.mark.java
def test_the_others_read_what_java_wrote(world: Tubes, client: pulsar.Client):
    topic = world.topic("by-java")
    messages = [message(topic, index) for index in range(COUNT)]
    offsets = world.write("java", *messages)
    written = [as_written(*pair) for pair in zip(messages, offsets, strict=True)]

    by_kafka = read_by_kafka(world, topic, COUNT)
    by_pulsar = read_by_pulsar(client.create_reader(topic, pulsar.MessageId.earliest), COUNT)

    assert offsets == list(range(COUNT))
    assert [
        same_time(each, expected)._replace(headers=())
        for each, expected in zip(by_kafka, written, strict=True)
    ] == [each._replace(headers=()) for each in written]
    assert [dict(each.headers) for each in by_kafka] == [dict(each.headers) for each in written]
    assert [each.data() for each in by_pulsar] == [each.value for each in written]
    assert [each.properties() for each in by_pulsar] == [
        {name: (text or b"").decode() for name, text in each.headers} for each in written
    ]


# ---- the others to TubeMQ


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("codec", CODECS)
def test_tubemq_reads_what_kafka_wrote(world: Tubes, library: str, codec: str):
    topic = f"kafka-{codec}"

    found = world.read(library, topic, COUNT)

    assert found == [as_seen(each) for each in world.written[topic]]


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("codec", CODECS)
def test_tubemq_reads_what_pulsar_wrote(world: Tubes, library: str, codec: str):
    topic = f"pulsar-{codec}"

    found = world.read(library, topic, COUNT)

    assert found == [as_seen(each) for each in world.written[topic]]


@pytest.mark.parametrize("library", LIBRARIES)
def test_tubemq_reads_what_tubemq_wrote(world: Tubes, library: str):
    found = world.read(library, world.tube_topic, COUNT)

    assert found == [
        Seen(
            index,
            each.body,
            {name: text for name, text in each.attributes.items() if not name.startswith("$")},
            each.type,
            each.time,
        )
        for index in range(COUNT)
        for each in [message("t", index)]
    ]


# ---- together


@pytest.mark.parametrize("library", LIBRARIES)
def test_clients_of_all_kinds_write_to_one_partition(
    world: Tubes, client: pulsar.Client, library: str
):
    topic = world.topic("all")
    kafka = world.producer()
    producer = client.create_producer(topic)
    for turn in range(4):
        kafka.produce(topic, b"%d" % (3 * turn), partition=0)
        assert kafka.flush(WAIT_S) == 0
        producer.send(b"%d" % (3 * turn + 1))
        assert world.write(library, Message(topic, b"%d" % (3 * turn + 2))) == [3 * turn + 2]

    expected = [b"%d" % each for each in range(12)]

    assert [each.value for each in read_by_kafka(world, topic, 12)] == expected
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    assert [each.data() for each in read_by_pulsar(reader, 12)] == expected
    found = world.read(library, topic, 12)
    assert [each.body for each in found] == expected
    assert [each.offset for each in found] == list(range(12))


def test_a_topic_of_several_partitions_is_read_whole(world: Tubes, client: pulsar.Client):
    topic = world.topic("three", 3)
    kafka = world.producer(**{"linger.ms": 20})
    for index in range(60):
        kafka.produce(topic, b"%d" % index, partition=index % 3)
    assert kafka.flush(WAIT_S) == 0
    world.write("own", *(Message(topic, b"%d" % index) for index in range(60, 90)))

    found: dict[str, list[int]] = {}
    with (
        TubeClient(world.master) as tube,
        tube.consumer(f"three-{next(groups)}", topic) as consumer,
    ):
        while sum(map(len, found.values())) < 90:
            batch = consumer.get(WAIT_S)
            found.setdefault(batch.partition, []).extend(int(each.body) for each in batch)
            consumer.confirm(batch)
    by_kafka = [read_partition(world, topic, number) for number in range(3)]

    assert [found[f"1:{topic}:{number}"] for number in range(3)] == by_kafka
    assert sorted(itertools.chain(*by_kafka)) == list(range(90))
    assert [each[:20] for each in by_kafka] == [list(range(number, 60, 3)) for number in range(3)]


def read_partition(world: Tubes, topic: str, number: int) -> list[int]:
    consumer = world.consumer()
    end = consumer.get_watermark_offsets(TopicPartition(topic, number), WAIT_S)[1]
    consumer.assign([TopicPartition(topic, number, 0)])
    found: list[int] = []
    deadline = time.monotonic() + WAIT_S
    while len(found) < end and time.monotonic() < deadline:
        each = consumer.poll(1.0)
        if each is not None:
            found.append(int(each.value()))
    consumer.close()
    return found


@pytest.mark.parametrize("library", LIBRARIES)
def test_tubemq_filters_match_types_of_kafka_and_pulsar_messages(
    world: Tubes, client: pulsar.Client, library: str
):
    topic = world.topic("types")
    kafka = world.producer(**{"linger.ms": 50})
    for index in range(10):
        kafka.produce(topic, b"k%d" % index, headers={"trilogue.type": f"t{index % 2}"})
    assert kafka.flush(WAIT_S) == 0
    producer = client.create_producer(topic)
    for index in range(4):
        producer.send(b"p%d" % index, properties={"trilogue.type": f"t{index % 2}"})
    typed = [Message(topic, b"m%d" % index) for index in range(4)]
    for index, each in enumerate(typed):
        each.put_system_header(f"t{index % 2}", MINUTE)
    world.write("own", *typed)

    found = world.read(library, topic, 9, ("t1",))

    assert [each.body for each in found] == [
        *(b"k%d" % index for index in range(1, 10, 2)), b"p1", b"p3", b"m1", b"m3"
    ]  # fmt: skip
    assert {each.type for each in found} == {"t1"}


# ---- places


def test_a_position_amid_a_kafka_batch_is_kept_over_a_kill(tmp_path: Path):
    """Confirmed is what was handed out, which ends where an answer is full."""
    data = tmp_path / "data"
    world = Tubes(start_server(data), driver=Process)  # no Java here
    topic = world.topic("amid")
    kafka = world.producer(**{"linger.ms": 500, "batch.num.messages": 10_000})
    for index in range(2_500):
        kafka.produce(topic, b"%d" % index)
    assert kafka.flush(WAIT_S) == 0
    with TubeClient(world.master) as client, client.consumer(topic, group="g") as consumer:
        batch = consumer.get(WAIT_S)
        taken = [int(each.body) for each in batch]
        consumer.confirm(batch)
    world.server.kill9()
    world.server = start_server(data)

    with TubeClient(world.master) as client, client.consumer(topic, group="g") as consumer:
        while len(taken) < 2_500:
            batch = consumer.get(WAIT_S)
            taken += [int(each.body) for each in batch]
            consumer.confirm(batch)

    assert taken == list(range(2_500))
    world.server.stop()


def test_sealed_readers_get_what_tubemq_wrote_as_it_is_stored(tmp_path: Path):
    """And can have it in neutral words by themselves."""
    data = tmp_path / "data"
    world = Tubes(start_server(data), driver=Process)  # no Java here
    topic = world.topic("sealed")
    messages = [message(topic, index) for index in range(COUNT)]
    world.write("own", *messages)
    assert world.server.stop() == 0

    sealed = SealedLog(data)
    (partition_id,) = sealed.topic("public", "default", topic).partitions
    found: list[tuple[int, bytes | None, str | None]] = []
    for entries in sealed.read(partition_id):
        for at, length, *_ in walk_headers(entries):
            entry = entries[at : at + length]
            header = read_header(entry)
            assert header.format is Format.TUBEMQ
            placed, _ = read_messages(entry, header)
            found += [(offset, each.value, each.type) for offset, each in placed]

    assert found == [(index, each.body, each.type) for index, each in enumerate(messages)]


def test_kafka_goes_to_a_time_of_what_tubemq_wrote(world: Tubes):
    topic = world.topic("times")
    world.write("own", Message(topic, b"before"))
    time.sleep(0.02)  # by design: timestamps in milliseconds must differ
    middle_ms = int(time.time() * 1000)
    time.sleep(0.02)
    world.write("own", Message(topic, b"after"))
    consumer = world.consumer()

    (found,) = consumer.offsets_for_times([TopicPartition(topic, 0, middle_ms)], WAIT_S)

    assert found.offset == 1
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), WAIT_S) == (0, 2)
    consumer.close()


def test_pulsar_goes_to_a_time_and_to_an_id_of_what_tubemq_wrote(
    world: Tubes, client: pulsar.Client
):
    reader = client.create_reader(world.tube_topic, pulsar.MessageId.earliest)
    found = read_by_pulsar(reader, COUNT)
    published = [each.publish_timestamp() for each in found]
    consumer = client.subscribe(world.tube_topic, f"seek-{next(groups)}")

    # All messages are received before the next seek: the client's answer to a seek may come before
    # it has emptied its queue, and what is left there would come first.
    first = published.index(published[COUNT // 2])
    consumer.seek(published[COUNT // 2])
    by_time = [offset_of(each.message_id()) for each in read_by_pulsar(consumer, COUNT - first)]
    consumer.seek(found[7].message_id())
    by_id = offset_of(consumer.receive(int(WAIT_S * 1000)).message_id())

    assert by_time == [*range(first, COUNT)]
    assert by_id in {7, 8}  # whether it is wanted itself is the client's setting
    assert reader.has_message_available() is False


# ---- what is not converted


def test_a_chunked_message_is_passed_counted_and_logged(world: Tubes, client: pulsar.Client):
    topic = world.topic("chunked")
    producer = client.create_producer(topic, chunking_enabled=True, batching_enabled=False)
    producer.send(b"before")
    producer.send(bytes(6 << 20))
    producer.send(b"after")

    found = world.read("own", topic, 2)

    assert [each.body for each in found] == [b"before", b"after"]
    assert found[1].offset == found[0].offset + 3  # two chunks lie between
    lines = [each for each in world.server.output.splitlines() if "conversion.skipped" in each]
    assert any("reader=tubemq" in each and "reason=chunked" in each for each in lines)


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_record_as_large_as_topics_take_comes_to_tubemqs_clients(world: Tubes, library: str):
    topic = world.topic("large", **{"max.message.bytes": "9000000"})
    kafka = world.producer(**{"message.max.bytes": 9_000_000})
    body = bytes(range(256)) * 32_000
    kafka.produce(topic, body, b"k", timestamp=EVENT_MS)
    assert kafka.flush(WAIT_S) == 0

    (found,) = world.read(library, topic, 1)

    assert found.body == body
