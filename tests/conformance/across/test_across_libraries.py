"""Java and Go clients of Pulsar beside a Kafka client, every Kafka client beside a Pulsar one."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from tests.conformance.across.test_across import EVENT_MS, TO_PULSAR, WAIT_S, World, read_by_kafka
from tests.conformance.clients import CLIENTS as KAFKA_CLIENTS
from tests.conformance.clients import Client
from tests.conformance.clients import each as each_kafka
from tests.conformance.clients.pulsar import Connection, Out, PulsarLibrary, connect
from tests.conformance.clients.pulsar_libraries import GO_CLIENT, JAVA, each
from tests.server import start_server

CODECS = {"none": "none", "gzip": "zlib", "snappy": "snappy", "lz4": "lz4", "zstd": "zstd"}
LIBRARIES = pytest.mark.parametrize("library", each(of=[JAVA, GO_CLIENT]))
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with start_server(tmp_path_factory.mktemp("across") / "data") as server:
        yield World(server)


@pytest.fixture
def connection(world: World, library: PulsarLibrary) -> Iterator[Connection]:
    library.require()
    made = connect(library, world.server.pulsar)
    yield made
    made.close()


@LIBRARIES
def test_it_reads_what_kafka_wrote(world: World, connection: Connection, library: PulsarLibrary):
    """Batches and singles, in every codec, null distinct from empty where supported."""
    topic = f"kafka-{next(_numbers)}"
    sent: list[tuple[object, ...]] = []
    for codec in CODECS:
        # What is not flushed waits: a library drops empty messages that are in no batch. The first
        # one is flushed, so that the partition is known and the next ten go in one batch.
        producer = world.producer(**{"compression.type": codec, "linger.ms": 5_000})
        for index in range(-1, 20):
            value = None if index == 5 else b"" if index == 6 else b"value %d " % index * 20
            key = None if index % 3 == 0 else f"k{index}"
            headers = {"a": "1", "ü": "zwei"} if index % 2 else {}
            producer.produce(
                topic, value, key, 0, timestamp=EVENT_MS + index, headers=list(headers.items())
            )
            is_distinct = "null" not in library.cannot
            sent.append((value if is_distinct else value or b"", key, headers, EVENT_MS + index))
            if index >= 10 or index < 0:
                producer.flush(WAIT_S)
        assert producer.flush(WAIT_S) == 0
    consumer = connection.consumer(topic, "s", earliest=True)

    found = consumer.receive(len(sent))
    consumer.ack(found[-1], cumulative=True)

    assert [
        (each.value if "null" not in library.cannot else each.value or b"", *each.content[1:])
        for each in found
    ] == sent
    assert [each.offset for each in found] == list(range(len(sent)))
    assert len({each.ledger for each in found}) == 1
    assert {each.producer for each in found} == {"trilogue.kafka"}
    consumer.close()
    again = connection.consumer(topic, "s")
    kafka = world.producer()
    kafka.produce(topic, b"after", partition=0)
    kafka.flush(WAIT_S)
    assert again.receive(1)[0].value == b"after"  # the cumulative ack was kept


@LIBRARIES
@pytest.mark.parametrize("batching", [False, True], ids=["single", "batched"])
def test_kafka_reads_what_it_wrote(
    world: World, connection: Connection, library: PulsarLibrary, batching: bool
):
    topic = f"pulsar-{next(_numbers)}"
    sent: list[Out] = []
    for codec in CODECS.values():
        some = [
            Out(
                b"value %d " % index * 20,
                key=f"k{index}" if index % 3 else None,
                properties={"a": "1"} if index % 2 else {},
                event_time=EVENT_MS + index,
            )
            for index in range(10)
        ]
        if "null" not in library.cannot:
            some.append(Out(None, key="gone", event_time=EVENT_MS))
        producer = connection.producer(topic, batching=batching, compression=codec)
        producer.send(*some)
        producer.close()
        sent += some

    found = read_by_kafka(world, topic, len(sent))

    assert [(each.value, each.key, dict(each.headers), each.time_ms) for each in found] == [
        (
            each.value,
            None if each.key is None else each.key.encode(),
            {name: text.encode() for name, text in each.properties.items()},
            each.event_time,
        )
        for each in sent
    ]
    assert [each.offset for each in found] == list(range(len(sent)))


@pytest.fixture(scope="module")
def by_pulsar(world: World) -> tuple[str, list[tuple[int, bytes | None, bytes]]]:
    """A topic in every codec, with messages in it, and before its end, that Kafka cannot get."""
    topic = "with-chunks"
    client = world.pulsar()
    sent: list[tuple[int, bytes | None, bytes]] = []
    offset = 0

    def chunked() -> int:
        producer = client.create_producer(topic, chunking_enabled=True, batching_enabled=False)
        producer.send(bytes(6 << 20))
        producer.close()
        return 2

    for number, (codec, kind) in enumerate(TO_PULSAR.items()):
        producer = client.create_producer(
            topic, compression_type=kind, batching_max_publish_delay_ms=50
        )
        for index in range(10):
            key = f"k{index}" if index % 2 else None
            value = f"{codec} {index} ".encode() * 20
            producer.send_async(value, lambda *_: None, partition_key=key)
            sent.append((offset, None if key is None else key.encode(), value))
            offset += 1
        producer.flush()
        producer.close()
        if number in {1, 3}:
            offset += chunked()
    client.close()
    return topic, sent


@pytest.mark.parametrize("client", each_kafka(KAFKA_CLIENTS))
def test_every_kafka_client_reads_what_pulsar_wrote(
    world: World, by_pulsar: tuple[str, list[tuple[int, bytes | None, bytes]]], client: Client
):
    topic, sent = by_pulsar

    reads = client.read(world.server.kafka, topic, len(sent))

    assert [(each.offset, each.key, each.value) for each in reads] == sent
