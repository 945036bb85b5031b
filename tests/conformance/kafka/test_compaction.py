"""A compacted topic, made, filled and read by foreign clients; the server compacts by itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, KafkaError
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from tests import brokers
from tests.brokers import Broker
from tests.conformance.clients import CLIENTS, DEADLINE, IN_PROCESS, Client, Deadline, Read, Record
from tests.conformance.clients import each as each_client
from tests.conformance.clients.confluent import Confluent, as_read

OFTEN = {"journal.file-age": "200ms", "compaction.check-every": "100ms"}
COMPACT = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "max.compaction.lag.ms": "1000",
}
CODEC_OF = {"confluent": "lz4", "aiokafka": "zstd", "kafka-python": "gzip"}
TOPIC = "compacted"


def written_by(client: Client) -> list[Record]:
    """Each key many times, one of them only by this client, one deleted in the end."""
    found = [
        Record(b"key %d" % (number % 5), b"%d by %s" % (number, client.name.encode()))
        for number in range(50)
    ]
    return [*found, Record(client.name.encode(), b"mine"), Record(b"key 4", None)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    made = brokers.make("trilogue", tmp_path_factory.mktemp("compaction"), OFTEN)
    made.start()
    yield made
    made.kill9()


def make(address: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    (made,) = admin.create_topics([NewTopic(topic, 1, 1, config=COMPACT)]).values()
    made.result(DEADLINE)


@pytest.fixture(scope="module")
def expected(server: Broker) -> list[tuple[int, bytes | None, bytes | None]]:
    """What is left of all that was written, once it is."""
    make(server.address, TOPIC)
    records: list[Record] = []
    for client in IN_PROCESS:
        some = written_by(client)
        idempotent = client.name == "confluent"
        codec = CODEC_OF[client.name]
        client.write(server.address, TOPIC, some, codec=codec, idempotent=idempotent)
        records += some
    last = {record.key: offset for offset, record in enumerate(records)}
    left = [(at, records[at].key, records[at].value) for at in sorted(last.values())]
    deadline = Deadline("compaction")
    while contents(reads := read_all(server.address)) != left:
        assert latest(reads) == {key: value for _, key, value in left if value is not None}
        deadline.check(contents(reads))
    return left


def read_all(address: str, topic: str = TOPIC, **options: object) -> list[Read]:
    """Read from the beginning to what is the end just now."""
    options = {"enable.partition.eof": True} | {
        key.replace("_", "."): value for key, value in options.items()
    }
    consumer = Confluent.consumer(address, "reads-all", options)
    consumer.assign([Place(topic, 0, OFFSET_BEGINNING)])
    deadline = Deadline("the end")
    reads = []
    while True:
        message = consumer.poll(0.5)
        deadline.check()
        if message is None:
            continue
        error = message.error()
        if error is not None and error.code() == KafkaError._PARTITION_EOF:
            consumer.close()
            return reads
        reads.append(as_read(message))


def contents(reads: list[Read]) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(read.offset, read.key, read.value) for read in reads]


def latest(reads: list[Read]) -> dict[bytes | None, bytes]:
    """What an application ends up with that reads everything."""
    found: dict[bytes | None, bytes] = {}
    for read in reads:
        if read.value is None:
            found.pop(read.key, None)
        else:
            found[read.key] = read.value
    return found


@pytest.mark.parametrize("client", each_client(CLIENTS))
def test_every_client_reads_the_last_values_at_their_offsets(
    server: Broker, expected: list[tuple[int, bytes | None, bytes | None]], client: Client
):
    reads = client.read(server.address, TOPIC, len(expected))

    assert contents(reads) == expected


def test_offsets_are_found_by_time(
    server: Broker, expected: list[tuple[int, bytes | None, bytes | None]]
):
    """The first message left at or after a time, and the one with the latest."""
    admin = AdminClient({"bootstrap.servers": server.address})
    place = Place(TOPIC, 0)

    def find(spec: OffsetSpec) -> int:
        (found,) = admin.list_offsets({place: spec}).values()
        return int(found.result(DEADLINE).offset)

    assert find(OffsetSpec.for_timestamp(0)) == expected[0][0]
    assert find(OffsetSpec.max_timestamp()) in {offset for offset, _, _ in expected}
    assert find(OffsetSpec.earliest()) == 0


@pytest.fixture(scope="module")
def emptied(server: Broker) -> str:
    """A topic that begins with an entry of which only the header is left."""
    topic = "emptied"
    make(server.address, topic)
    client = Confluent()
    client.write(server.address, topic, [Record(b"key", b"1")] * 5, idempotent=True)
    client.write(server.address, topic, [Record(b"key", b"2"), Record(b"other", b"1")])
    deadline = Deadline("compaction")
    while len(read_all(server.address, topic)) > 2:
        deadline.check()
    return topic


@pytest.mark.parametrize("client", each_client(CLIENTS))
def test_every_client_passes_over_an_entry_with_nothing_left(
    server: Broker, emptied: str, client: Client
):
    reads = client.read(server.address, emptied, 2)

    assert contents(reads) == [(5, b"key", b"2"), (6, b"other", b"1")]


def test_an_entry_with_nothing_left_may_be_all_that_a_fetch_returns(server: Broker, emptied: str):
    reads = read_all(server.address, emptied, fetch_message_max_bytes=1)

    assert [read.offset for read in reads] == [5, 6]


def test_a_message_without_a_key_is_refused(server: Broker, expected: object):
    errors: list[KafkaError] = []
    producer = Confluent.producer(server.address)

    producer.produce(TOPIC, value=b"nobody's", on_delivery=lambda error, _: errors.append(error))

    assert producer.flush(DEADLINE) == 0
    assert [error.code() for error in errors] == [KafkaError.INVALID_RECORD]


def test_compacted_records_survive_a_kill(
    tmp_path: Path, server: Broker, expected: list[tuple[int, bytes | None, bytes | None]]
):
    server.kill9()
    server.start()

    assert contents(read_all(server.address)) == expected
