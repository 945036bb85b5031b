"""A compacted topic that clients of both protocols write and read."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import NamedTuple

import pulsar
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.conformance.across.test_across import WAIT_S, World, offset_of, read_by_kafka
from tests.conformance.clients.pulsar import PulsarLibrary, connect
from tests.conformance.clients.pulsar_libraries import GO_CLIENT, JAVA, each
from tests.server import start_server

OFTEN = {"journal.file-age": "200ms", "compaction.check-every": "100ms"}
COMPACT = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "max.compaction.lag.ms": "1000",
}
TOPIC = "t-partition-0"


class Left(NamedTuple):
    """A message that compaction leaves."""

    offset: int
    key: str
    value: bytes


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    data = tmp_path_factory.mktemp("across") / "data"
    with start_server(data, settings=OFTEN) as server:
        yield World(server)


@pytest.fixture(scope="module")
def left(world: World) -> list[Left]:
    """What is left of a Kafka batch, a Pulsar batch and a message, once it is."""
    admin = AdminClient({"bootstrap.servers": world.server.kafka})
    admin.create_topics([NewTopic("t", 1, config=COMPACT)])["t"].result(WAIT_S)
    client = world.pulsar()
    written: list[tuple[str, bytes]] = []
    kafka = world.producer(**{"linger.ms": 50})
    for index in range(20):
        written.append((f"k{index % 6}", b"kafka %d" % index))
        kafka.produce("t", written[-1][1], written[-1][0], partition=0)
    assert kafka.flush(WAIT_S) == 0
    producer = client.create_producer(
        TOPIC, batching_enabled=True, batching_max_publish_delay_ms=200
    )
    for index in range(20):
        written.append((f"k{index % 4}", b"pulsar %d" % index))
        producer.send_async(written[-1][1], lambda *_: None, partition_key=written[-1][0])
    producer.flush()
    kafka.produce("t", b"last", "z", partition=0)
    kafka.flush(WAIT_S)
    written.append(("z", b"last"))
    last = {key: offset for offset, (key, _) in enumerate(written)}
    expected = [Left(at, *written[at]) for at in sorted(last.values())]
    deadline = time.monotonic() + WAIT_S
    while (found := read_by_reader(client)) != expected:
        assert time.monotonic() < deadline, found
    client.close()
    return expected


def read_by_reader(client: pulsar.Client) -> list[Left]:
    reader = client.create_reader(TOPIC, pulsar.MessageId.earliest)
    found = []
    while reader.has_message_available():
        one = reader.read_next(5000)
        found.append(Left(offset_of(one.message_id()), one.partition_key(), one.data()))
    reader.close()
    return found


def test_kafka_reads_compacted_messages_at_the_same_offsets(world: World, left: list[Left]):
    found = read_by_kafka(world, "t", len(left))

    assert [Left(each.offset, (each.key or b"").decode(), each.value) for each in found] == left


@pytest.mark.parametrize("library", each(of=[JAVA, GO_CLIENT]))
def test_pulsar_libraries_read_compacted_messages(
    world: World, left: list[Left], library: PulsarLibrary
):
    library.require()
    connection = connect(library, world.server.pulsar)
    consumer = connection.consumer(TOPIC, f"s-{library.name}", earliest=True)

    found = consumer.receive(len(left))

    assert [Left(each.offset, each.key or "", each.value or b"") for each in found] == left
    consumer.ack(found[-1], cumulative=True)
    assert consumer.nothing_comes()
    connection.close()


def test_nothing_that_went_keeps_a_subscription_back(world: World, left: list[Left]):
    """Without acks of single indexes clients ack a batch only when they have seen all of it."""
    client = world.pulsar()
    how = {"consumer_type": pulsar.ConsumerType.Shared, "batch_index_ack_enabled": True}
    earliest = pulsar.InitialPosition.Earliest
    consumer = client.subscribe(TOPIC, "s", initial_position=earliest, **how)
    for _ in left:
        consumer.acknowledge(consumer.receive(5000))
    consumer.close()

    consumer = client.subscribe(TOPIC, "s", **how)

    with pytest.raises(pulsar.Timeout):
        consumer.receive(500)
    client.close()
