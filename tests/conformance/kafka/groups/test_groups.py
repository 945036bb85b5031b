"""Consumer groups of foreign clients: who reads what, and where they go on."""

from __future__ import annotations

import itertools
import signal
import subprocess
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.conformance.clients import DEADLINE, EVERYONE, IN_PROCESS, JAVA, Client, Record, each
from tests.conformance.clients.aio import Aiokafka
from tests.conformance.clients.aio import TopicPartition as AioPartition
from tests.conformance.clients.confluent import Confluent
from tests.conformance.clients.kafka_python import KafkaPython
from tests.conformance.clients.kafka_python import TopicPartition as PythonPartition
from tests.conformance.members import (
    PARTITIONS,
    AioMember,
    ConfluentMember,
    Member,
    PythonMember,
    close,
    pump,
    shares,
    values_of,
)
from tests.tools import require_program

EXPIRY = 20.0  # the clients' session time-out is 6 s
KINDS = [
    pytest.param(ConfluentMember, "range", id="confluent-eager"),
    pytest.param(ConfluentMember, "cooperative-sticky", id="confluent-cooperative"),
    pytest.param(AioMember, "sticky", id="aiokafka-eager"),
    pytest.param(PythonMember, "range", id="kafka-python-eager"),
    pytest.param(PythonMember, "cooperative-sticky", id="kafka-python-cooperative"),
]

MakeMember = Callable[..., Member]


@pytest.fixture
def join(address: str) -> Iterator[MakeMember]:
    """Makes members and closes those that a test left open."""
    members: list[Member] = []

    def make(kind: type, group: str, topic: str, **options: str) -> Member:
        members.append(kind(address, group, topic, **options))
        return members[-1]

    yield make
    close(members)


def spread(topic: str, address: str, count: int, label: str = "") -> set[bytes]:
    """Write to all partitions in turn; the values."""
    producer = Confluent.producer(address)
    values = [f"{label}{number}".encode() for number in range(count)]
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % PARTITIONS)
    assert producer.flush(DEADLINE) == 0
    return set(values)


@pytest.mark.parametrize("client", each([*EVERYONE, JAVA[1]]))
def test_a_group_goes_on_where_it_committed(address: str, topic: str, client: Client):
    records = [Record(b"k", b"%d" % number) for number in range(10)]
    IN_PROCESS[0].write(address, topic, records)

    first = client.read(address, topic, 6, group=topic)
    rest = client.read(address, topic, 4, group=topic)

    assert [read.offset for read in first] == [0, 1, 2, 3, 4, 5]
    assert [read.offset for read in rest] == [6, 7, 8, 9]


@pytest.mark.parametrize(("kind", "strategy"), KINDS)
def test_members_share_the_partitions_as_they_come_and_go(
    address: str, wide_topic: str, join: MakeMember, kind: type, strategy: str
):
    """Every partition has a committed offset before the second member joins.

    Without one librdkafka requests the offset of the beginning with ListOffsets. A response that
    comes after a rebalance is outdated, and librdkafka repeats the request half a second later:
    then it reads the partition from its beginning although it has started at a committed offset
    since. The response may be late because it waits behind a Fetch of the same connection.
    """
    first = join(kind, wide_topic, wide_topic, strategy=strategy)
    pump([first], lambda: shares([first]) == [4], "the first member has all")
    early = spread(wide_topic, address, PARTITIONS, "early-")
    pump([first], lambda: values_of([first]) == early, "it has read from each partition")
    first.commit()
    first.reads.clear()
    second = join(kind, wide_topic, wide_topic, strategy=strategy)
    both = [first, second]
    pump(both, lambda: shares(both) == [2, 2], "each has half")

    sent = spread(wide_topic, address, 40)
    pump(both, lambda: values_of(both) == sent, "all records are read")

    for member in both:
        assert {read.partition for read in member.reads} == member.partitions()
    first.commit()
    second.commit()
    second.close()
    pump([first], lambda: shares([first]) == [4], "the first member has all again")
    later = spread(wide_topic, address, 8, "later-")
    pump([first], lambda: later <= values_of([first]), "all later records are read by one")
    assert len([read for read in first.reads if read.value in later]) == len(later)


def test_members_of_different_libraries_share_a_group(
    address: str, wide_topic: str, join: MakeMember
):
    members = [
        join(kind, wide_topic, wide_topic, strategy="range")
        for kind in (ConfluentMember, AioMember, PythonMember)
    ]
    pump(members, lambda: shares(members) == [1, 1, 2], "each has a share")

    sent = spread(wide_topic, address, 40)

    pump(members, lambda: values_of(members) == sent, "all records are read")
    assert set.union(*(member.partitions() for member in members)) == set(range(PARTITIONS))


@pytest.mark.java
def test_a_java_member_shares_a_group_with_another_library(
    address: str, wide_topic: str, join: MakeMember
):
    java = JAVA[1]
    first = join(ConfluentMember, wide_topic, wide_topic, strategy="range")
    pump([first], lambda: shares([first]) == [4], "the first member has all")
    reader = java.start_reading(address, wide_topic, group=wide_topic)
    pump([first], lambda: shares([first]) == [2], "half went to the Java member")

    sent = spread(wide_topic, address, 40)
    printed = [reader.stdout.readline() for _ in range(20)]
    pump([first], lambda: len(first.reads) == 20, "the other half is read here")

    reader.send_signal(signal.SIGTERM)
    reader.wait(DEADLINE)
    reader.stdout.close()
    theirs = {line.strip().rsplit(b"|", 1)[1] for line in printed}
    assert theirs | values_of([first]) == sent
    pump([first], lambda: shares([first]) == [4], "it left, and the rest came back")


def test_a_static_member_comes_back_to_its_partitions_without_a_rebalance(
    address: str, wide_topic: str, join: MakeMember
):
    stays = join(ConfluentMember, wide_topic, wide_topic, instance="stays")
    goes = join(ConfluentMember, wide_topic, wide_topic, instance="goes")
    pump([stays, goes], lambda: shares([stays, goes]) == [2, 2], "each has half")
    before, seen = goes.partitions(), stays.rebalances

    goes.close()
    back = join(ConfluentMember, wide_topic, wide_topic, instance="goes")
    pump([stays, back], lambda: len(back.partitions()) == 2, "it is back")

    assert back.partitions() == before
    assert stays.rebalances == seen


def test_a_static_member_is_fenced_by_a_second_one_of_its_name(
    address: str, wide_topic: str, join: MakeMember
):
    first = join(ConfluentMember, wide_topic, wide_topic, instance="only")
    pump([first], lambda: shares([first]) == [4], "the first has all")

    second = join(ConfluentMember, wide_topic, wide_topic, instance="only")
    pump([first, second], lambda: shares([second]) == [4] and first.errors, "the second has all")

    assert "_FATAL" in first.errors


def test_a_member_that_dies_loses_its_partitions_when_its_session_ends(
    address: str, wide_topic: str, join: MakeMember
):
    require_program("kcat")
    command = ["kcat", "-b", address, "-q", "-u", "-X", "session.timeout.ms=6000"]
    command += ["-X", "heartbeat.interval.ms=500", "-X", "partition.assignment.strategy=range"]
    first = join(ConfluentMember, wide_topic, wide_topic, strategy="range")
    pump([first], lambda: shares([first]) == [4], "the first member has all")
    with subprocess.Popen(
        [*command, "-G", wide_topic, wide_topic], stdout=subprocess.DEVNULL
    ) as other:
        pump([first], lambda: shares([first]) == [2], "the other has half")
        other.kill()

    pump([first], lambda: shares([first]) == [4], "its half came back", EXPIRY)


def committed_by_confluent(address: str, group: str, topic: str) -> int:
    consumer = Confluent.consumer(address, group)
    (place,) = consumer.committed([TopicPartition(topic, 0)], DEADLINE)
    consumer.close()
    return place.offset


def committed_by_aiokafka(address: str, group: str, topic: str) -> int | None:
    import asyncio

    async def fetch_offset() -> int | None:
        async with Aiokafka.consumer(address, group) as consumer:
            consumer.assign([AioPartition(topic, 0)])
            return await consumer.committed(AioPartition(topic, 0))

    return asyncio.run(fetch_offset())


def committed_by_kafka_python(address: str, group: str, topic: str) -> int | None:
    consumer = KafkaPython.consumer(address, group)
    try:
        return consumer.committed(PythonPartition(topic, 0))
    finally:
        consumer.close()


FETCHERS = [committed_by_confluent, committed_by_aiokafka, committed_by_kafka_python]


@pytest.mark.parametrize(
    ("client", "fetch"),
    [
        pytest.param(client, fetch, id=f"{client.name}-{fetch.__name__}")
        for client, fetch in itertools.product(IN_PROCESS, FETCHERS)
    ],
)
def test_a_position_committed_by_one_library_is_seen_by_another(
    address: str, topic: str, client: Client, fetch: Callable[[str, str, str], int]
):
    client.write(address, topic, [Record(b"k", b"%d" % number) for number in range(5)])

    client.read(address, topic, 3, group=topic)

    assert fetch(address, topic, topic) == 3


def test_a_commit_keeps_its_metadata_and_may_go_back(address: str, topic: str):
    Confluent().write(address, topic, [Record(b"k", b"v")] * 5)
    consumer: Consumer = Confluent.consumer(address, topic)
    place = TopicPartition(topic, 0, 4, metadata="why it stands here")

    consumer.commit(offsets=[place], asynchronous=False)
    (there,) = consumer.committed([TopicPartition(topic, 0)], DEADLINE)
    consumer.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
    (back,) = consumer.committed([TopicPartition(topic, 0)], DEADLINE)

    assert (there.offset, there.metadata) == (4, "why it stands here")
    assert back.offset == 1
    consumer.close()


def test_a_group_without_a_position_has_none(address: str, topic: str):
    Confluent().write(address, topic, [Record(b"k", b"v")])
    consumer = Confluent.consumer(address, topic)

    (place,) = consumer.committed([TopicPartition(topic, 0)], DEADLINE)

    assert place.offset == -1001  # librdkafka's word for "none"
    consumer.close()
