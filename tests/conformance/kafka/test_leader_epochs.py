"""Leader epochs of a partition over restarts, as a consumer requests them."""

from __future__ import annotations

import struct
from contextlib import closing

import httpx
import pytest
from confluent_kafka import Consumer, TopicPartition
from tools.servers.probe import call

from tests.brokers import Broker, Trilogue
from tests.conformance import raw
from tests.conformance.clients import Record
from tests.conformance.clients.java import Java

OFFSET_FOR_LEADER_EPOCH = 23
JAVA = "4.3.1"
FENCED, UNKNOWN = 74, 75

pytestmark = pytest.mark.timeout(300)


def epoch_end(address: str, topic: str, epoch: int, *, current: int = -1) -> tuple[int, int, int]:
    """OffsetForLeaderEpoch v2 of partition 0: error, epoch, end offset."""
    body = struct.pack(">i", 1) + raw.text(topic) + struct.pack(">iiii", 1, 0, current, epoch)
    answer = call(raw.leader_of(address, topic, 0), OFFSET_FOR_LEADER_EPOCH, 2, body)
    at = 4 + 4 + len(raw.text(topic)) + 4
    error, _, found, offset = struct.unpack_from(">hiiq", answer, at)
    return error, found, offset


def epochs_of(address: str, topic: str) -> list[int]:
    return [batch.leader_epoch for batch in raw.stored_batches(address, topic)]


def test_an_epoch_ends_where_the_next_one_begins(own_broker: Broker):
    Java(JAVA).write(own_broker.address, "t", [Record(b"k", b"1"), Record(b"k", b"2")])
    own_broker.kill9()
    own_broker.start()
    assert raw.produce(own_broker.address, "t", 0, raw.batch_of(b"3")) == 0
    address = own_broker.address

    first, *_, last = epochs_of(address, "t")

    assert first < last
    assert epoch_end(address, "t", first) == (0, first, 2)
    assert epoch_end(address, "t", last) == (0, last, 3)
    assert epoch_end(address, "t", last + 1) == (0, -1, -1)
    assert epoch_end(address, "t", first, current=last) == (0, first, 2)
    assert epoch_end(address, "t", first, current=last - 1)[0] == FENCED
    assert epoch_end(address, "t", first, current=last + 1)[0] == UNKNOWN
    if last - first > 1:  # no producer wrote in between
        assert epoch_end(address, "t", last - 1) == (0, first, 2)


def test_a_java_consumer_finds_that_what_it_read_survived(own_broker: Broker):
    java = Java(JAVA)
    java.write(own_broker.address, "t", [Record(b"k", b"1"), Record(b"k", b"2")])
    assert len(java.read(own_broker.address, "t", 2, group="g")) == 2
    own_broker.kill9()
    own_broker.start()
    java.write(own_broker.address, "t", [Record(b"k", b"3")])

    (read,) = java.read(own_broker.address, "t", 1, group="g")

    assert (read.offset, read.value) == (2, b"3")
    if isinstance(own_broker, Trilogue):
        metrics = httpx.get(f"{own_broker.running.http}/metrics").text
        assert 'api="OffsetForLeaderEpoch"' in metrics


def test_librdkafka_reads_from_a_position_with_the_epoch_0(address: str, topic: str):
    """As confluent-kafka-go's suite seeks; the first epoch of a real broker is 0."""
    Java(JAVA).write(address, topic, [Record(b"k", b"%d" % each) for each in range(3)])
    options = {"bootstrap.servers": address, "group.id": topic, "auto.offset.reset": "error"}
    with closing(Consumer(options)) as consumer:
        consumer.assign([TopicPartition(topic, 0, 1, leader_epoch=0)])

        read = consumer.poll(60)

    assert read is not None
    assert (read.error(), read.offset(), read.value()) == (None, 1, b"1")
    assert epoch_end(address, topic, 0, current=0)[::2] == (0, 3)
