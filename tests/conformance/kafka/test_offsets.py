"""Finding a place in a partition: begin, end, by time; waiting at its end."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest
from confluent_kafka import TopicPartition

from tests.conformance.clients import CLIENTS, DEADLINE, JAVA, Deadline, Record
from tests.conformance.clients.aio import Aiokafka
from tests.conformance.clients.aio import TopicPartition as AioPartition
from tests.conformance.clients.confluent import Confluent
from tests.conformance.clients.kafka_python import KafkaPython
from tests.conformance.clients.kafka_python import TopicPartition as PythonPartition
from tests.conformance.clients.kcat import Kcat
from tests.conformance.raw import EARLIEST, LATEST, fetch, list_offset

START = 1_600_000_000_000
RECORDS = [Record(b"k", b"%d" % number, (), START + number * 1000) for number in range(20)]
OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC = 1, 3


@pytest.fixture
def filled(address: str, topic: str) -> str:
    """Twenty records a second apart, in batches of five."""
    for first in range(0, len(RECORDS), 5):
        CLIENTS[0].write(address, topic, RECORDS[first : first + 5])
    return topic


def confluent_at(address: str, topic: str, timestamp: int) -> int:
    consumer = Confluent.consumer(address, "nobody")
    (found,) = consumer.offsets_for_times([TopicPartition(topic, 0, timestamp)], DEADLINE)
    consumer.close()
    return found.offset


def aiokafka_at(address: str, topic: str, timestamp: int) -> int:
    async def list_once() -> int:
        async with asyncio.timeout(DEADLINE), Aiokafka.consumer(address, None) as consumer:
            place = AioPartition(topic, 0)
            return (await consumer.offsets_for_times({place: timestamp}))[place].offset

    return asyncio.run(list_once())


def kafka_python_at(address: str, topic: str, timestamp: int) -> int:
    consumer = KafkaPython.consumer(address, None)
    place = PythonPartition(topic, 0)
    try:
        return consumer.offsets_for_times({place: timestamp})[place].offset
    finally:
        consumer.close()


def kcat_at(address: str, topic: str, timestamp: int) -> int:
    output = Kcat().run("-Q", "-b", address, "-t", f"{topic}:0:{timestamp}")
    return int(output.rsplit("offset", 1)[1])


def java_at(address: str, topic: str, timestamp: int) -> int:
    output = JAVA[1].run(
        "org.apache.kafka.tools.GetOffsetShell",
        f"--bootstrap-server={address}",
        f"--topic={topic}",
        f"--time={timestamp}",
    )
    return int(output.rsplit(":", 1)[1])


@pytest.mark.parametrize(
    "offset_at",
    [
        confluent_at,
        aiokafka_at,
        kafka_python_at,
        kcat_at,
        pytest.param(java_at, marks=pytest.mark.java),
    ],
)
def test_the_offset_of_a_time_is_the_first_record_not_before_it(
    address: str, filled: str, offset_at: object
):
    assert offset_at(address, filled, START + 7000) == 7
    assert offset_at(address, filled, START + 7001) == 8


def test_times_outside_the_partition_give_its_begin_or_nothing(address: str, filled: str):
    assert list_offset(address, filled, 0, 1) == 0
    assert list_offset(address, filled, 0, START + 3_600_000) == -1


def test_begin_and_end_are_known_to_every_client(address: str, filled: str):
    consumer = Confluent.consumer(address, "nobody")
    python = KafkaPython.consumer(address, None)
    place = PythonPartition(filled, 0)

    assert consumer.get_watermark_offsets(TopicPartition(filled, 0), DEADLINE) == (0, 20)
    assert python.beginning_offsets([place]) == {place: 0}
    assert python.end_offsets([place]) == {place: 20}
    assert (list_offset(address, filled, 0, EARLIEST), list_offset(address, filled, 0, LATEST)) == (
        0,
        20,
    )
    consumer.close()
    python.close()


def test_a_read_outside_the_partition_is_refused(address: str, filled: str):
    assert fetch(address, filled, 0, 21).error == OFFSET_OUT_OF_RANGE
    assert fetch(address, filled, 0, -5).error == OFFSET_OUT_OF_RANGE
    assert fetch(address, filled, 0, 20).error == 0
    assert fetch(address, filled, 77, 0).error == UNKNOWN_TOPIC


def test_consumer_past_the_end_resets_to_auto_offset_reset(address: str, filled: str):
    consumer = Confluent.consumer(address, "nobody")
    consumer.assign([TopicPartition(filled, 0, 1000)])
    deadline = Deadline("a reset to the earliest offset")
    first = None
    while first is None:
        deadline.check()
        first = consumer.poll(0.5)

    assert first.offset() == 0
    consumer.close()


def test_an_offset_inside_a_batch_gives_the_batch_that_holds_it(address: str, filled: str):
    consumer = Confluent.consumer(address, "nobody")
    consumer.assign([TopicPartition(filled, 0, 7)])

    reads = consumer.consume(1, DEADLINE)

    assert [read.offset() for read in reads] == [7]
    consumer.close()


def test_a_reader_that_waits_gets_a_record_when_it_comes(address: str, filled: str):
    """Long poll: the reader would wait for minutes; the record answers it, not the clock."""
    consumer = Confluent.consumer(
        address, "nobody", {"fetch.wait.max.ms": 200_000, "socket.timeout.ms": 240_000}
    )
    end = consumer.get_watermark_offsets(TopicPartition(filled, 0), DEADLINE)[1]
    consumer.assign([TopicPartition(filled, 0, end)])
    assert consumer.poll(1.0) is None

    late = threading.Timer(0.5, CLIENTS[0].write, (address, filled, [Record(b"k", b"late")]))
    late.start()
    message = consumer.poll(DEADLINE)

    late.join()
    assert message is not None
    assert message.value() == b"late"
    consumer.close()


def test_fetch_at_the_end_waits_for_max_wait_ms(address: str, filled: str):
    began = time.monotonic()

    fetched = fetch(address, filled, 0, 20, max_wait_ms=400)

    assert (fetched.error, fetched.high_watermark, fetched.records) == (0, 20, b"")
    assert time.monotonic() - began >= 0.35
