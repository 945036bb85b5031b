"""Readers, seeks, views, ids and the end of a topic: for every Pulsar library."""

from __future__ import annotations

import pytest

from tests.conformance.clients.base import Deadline
from tests.conformance.clients.pulsar import ClientError, Connection, Out, View
from tests.conformance.clients.pulsar_libraries import each
from tests.conformance.pulsar.pulsar_admin import Admin
from tests.conformance.pulsar.test_clients import LIBRARIES, numbers, values


@LIBRARIES
@pytest.mark.parametrize("batching", [False, True], ids=["single", "batched"])
def test_reader_starts_at_its_start_message_id(connection: Connection, topic: str, batching: bool):
    producer = connection.producer(topic, batching=batching)
    ids = producer.send(*numbers(0, 10))

    assert values(connection.reader(topic).receive(10)) == [*range(10)]
    assert values(connection.reader(topic, ids[3]).receive(6)) == [*range(4, 10)]
    assert values(connection.reader(topic, ids[3], inclusive=True).receive(7)) == [*range(3, 10)]
    latest = connection.reader(topic, "latest")
    assert latest.nothing_comes()
    producer.send(*numbers(10, 11))
    assert values(latest.receive(1)) == [10]


@LIBRARIES
@pytest.mark.parametrize("batching", [False, True], ids=["single", "batched"])
def test_a_reader_knows_whether_there_is_more(connection: Connection, topic: str, batching: bool):
    producer = connection.producer(topic, batching=batching)
    reader = connection.reader(topic)
    assert not reader.has_next

    producer.send(*numbers(0, 5))
    read = []
    while reader.has_next:
        read += values(reader.receive(1))

    assert read == [*range(5)]
    producer.send(*numbers(5, 6))
    assert reader.has_next


@LIBRARIES
def test_a_reader_of_the_latest_message_can_include_it(connection: Connection, topic: str):
    connection.producer(topic, batching=True).send(*numbers(0, 5))

    reader = connection.reader(topic, "latest", inclusive=True)

    assert reader.has_next
    assert values(reader.receive(1)) == [4]
    assert not reader.has_next


@LIBRARIES
def test_readers_leave_no_subscription(connection: Connection, admin: Admin, topic: str):
    connection.producer(topic).send(*numbers(0, 3))
    reader = connection.reader(topic)
    reader.receive(3)

    reader.close()

    assert admin.subscriptions(topic) == []


@LIBRARIES
@pytest.mark.parametrize("batching", [False, True], ids=["single", "batched"])
def test_a_consumer_seeks_by_id(connection: Connection, topic: str, batching: bool):
    """After the id, unless it was made to include it."""
    consumer = connection.consumer(topic, "s", earliest=True)
    including = connection.consumer(topic, "i", earliest=True, inclusive=True)
    producer = connection.producer(topic, batching=batching)
    producer.send(*numbers(0, 10))
    reads = consumer.receive(10)
    consumer.ack(*reads)
    including.receive(10)

    consumer.seek(reads[6].id)
    including.seek(reads[6].id)

    assert values(consumer.receive(3)) == [7, 8, 9]
    assert values(including.receive(4)) == [6, 7, 8, 9]


@pytest.mark.parametrize("library", each(can="ends"))
@pytest.mark.parametrize("batching", [False, True], ids=["single", "batched"])
def test_a_consumer_seeks_to_both_ends(connection: Connection, topic: str, batching: bool):
    consumer = connection.consumer(topic, "s", earliest=True)
    producer = connection.producer(topic, batching=batching)
    producer.send(*numbers(0, 10))
    consumer.ack(*consumer.receive(10))

    consumer.seek("earliest")
    assert values(consumer.receive(10)) == [*range(10)]
    consumer.seek("latest")
    assert consumer.nothing_comes()
    producer.send(*numbers(10, 11))
    assert values(consumer.receive(1)) == [10]


@LIBRARIES
def test_a_consumer_seeks_by_publish_time(connection: Connection, topic: str):
    consumer = connection.consumer(topic, "s", earliest=True)
    producer = connection.producer(topic)
    reads = []
    for number in range(6):  # each with a millisecond of its own
        producer.send(Out(b"%d" % number, event_time=5))
        reads += consumer.receive(1)
        while number and reads[-1].publish_time == reads[-2].publish_time:
            producer.send(Out(b"%d" % number, event_time=5))
            reads[-1:] = consumer.receive(1)
    consumer.ack(*reads)

    consumer.seek_time(reads[3].publish_time)
    assert values([*consumer.receive(1), *consumer.receive_up_to(20, 1.0)])[0] == 3
    consumer.seek_time(reads[-1].publish_time + 60_000)
    assert consumer.nothing_comes()


@LIBRARIES
def test_a_reader_seeks(connection: Connection, topic: str):
    reader = connection.reader(topic)
    connection.producer(topic, batching=True).send(*numbers(0, 10))
    reads = reader.receive(10)

    reader.seek(reads[4].id)

    assert values(reader.receive(5)) == [5, 6, 7, 8, 9]


@pytest.mark.parametrize("library", each(can="ends"))
def test_a_reader_seeks_by_publish_time(connection: Connection, topic: str):
    """Go passes over what it read before."""
    reader = connection.reader(topic)
    connection.producer(topic, batching=True).send(*numbers(0, 10))
    reads = reader.receive(10)

    reader.seek_time(reads[0].publish_time)

    assert values(reader.receive(10)) == [*range(10)]


@LIBRARIES
def test_partitions_seek_by_time_together(connection: Connection, admin: Admin, topic: str):
    admin.make_partitioned(topic, 3)
    consumer = connection.consumer(topic, "s", earliest=True)
    connection.producer(topic).send(*numbers(0, 12))
    reads = consumer.receive(12)
    consumer.ack(*reads)

    consumer.seek_time(min(read.publish_time for read in reads) - 1)

    assert sorted(values(consumer.receive(12))) == [*range(12)]


@LIBRARIES
@pytest.mark.parametrize("batching", [False, True], ids=["single", "batched"])
def test_the_last_id_is_that_of_the_last_message(
    connection: Connection, topic: str, batching: bool
):
    consumer = connection.consumer(topic, "s", earliest=True)
    ids = connection.producer(topic, batching=batching).send(*numbers(0, 5))

    last = consumer.last

    reader = connection.reader(topic, last, inclusive=True)
    assert values(reader.receive(1)) == [4]
    assert len(set(ids)) == 5


@pytest.mark.parametrize("library", each(can="late views"))
def test_a_view_has_the_last_value_of_each_key(connection: Connection, topic: str):
    producer = connection.producer(topic, batching=True)
    producer.send(*(Out(b"old", key=f"k{n}") for n in range(5)))
    producer.send(*(Out(b"new-%d" % n, key=f"k{n}") for n in range(3)))

    view = connection.view(topic)

    shows(view, {"k0": b"new-0", "k1": b"new-1", "k2": b"new-2", "k3": b"old", "k4": b"old"})


@LIBRARIES
def test_a_view_follows_its_topic(connection: Connection, topic: str):
    view = connection.view(topic)
    producer = connection.producer(topic)

    producer.send(*(Out(b"%d" % n, key=f"k{n % 3}") for n in range(9)))

    shows(view, {"k0": b"6", "k1": b"7", "k2": b"8"})


def shows(view: View, wanted: dict[str, bytes]) -> None:
    deadline = Deadline("the view's entries")
    while view.entries != wanted:
        deadline.check(view.entries)


@LIBRARIES
def test_terminated_topic_refuses_producers(connection: Connection, admin: Admin, topic: str):
    producer = connection.producer(topic, send_timeout_ms=30_000)
    consumer = connection.consumer(topic, "s", earliest=True)
    producer.send(*numbers(0, 3))

    admin.terminate(topic)

    with pytest.raises(ClientError, match=r"(?i)terminated|closed|timeout"):
        producer.send(Out(b"too late"))
    with pytest.raises(ClientError, match=r"(?i)terminated"):
        connection.producer(topic)
    consumer.ack(*consumer.receive(3))
    assert consumer.nothing_comes()
    assert values(connection.reader(topic).receive(3)) == [0, 1, 2]


@pytest.mark.parametrize("library", each(can="ended"))
def test_consumers_receive_reached_end_of_topic(connection: Connection, admin: Admin, topic: str):
    producer = connection.producer(topic)
    consumer = connection.consumer(topic, "s", earliest=True)
    producer.send(*numbers(0, 3))
    admin.terminate(topic)
    assert not consumer.ended

    consumer.ack(*consumer.receive(3))

    deadline = Deadline("the end")
    while not consumer.ended:
        deadline.check()
        consumer.receive_up_to(1, 0.05)


@pytest.mark.parametrize("library", each(can="events"))
def test_failover_consumers_receive_active_consumer_changes(connection: Connection, topic: str):
    consumers = [
        connection.consumer(topic, "s", type="failover", earliest=True, name=f"c{number}")
        for number in range(2)
    ]
    deadline = Deadline("one active consumer")
    while sorted(c.events[-1] if c.events else "" for c in consumers) != ["active", "inactive"]:
        deadline.check([consumer.events for consumer in consumers])
    active = next(c for c in consumers if c.events[-1] == "active")
    other = next(c for c in consumers if c is not active)

    active.close()

    while other.events[-1] != "active":
        deadline.check(other.events)
