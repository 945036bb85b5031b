"""Non-persistent topics by every Pulsar library, and what clients of Kafka see of them."""

from __future__ import annotations

import pytest

from tests.conformance.clients.base import Deadline
from tests.conformance.clients.pulsar import Connection, In, Out
from tests.conformance.clients.pulsar_libraries import each
from tests.conformance.pulsar.pulsar_admin import Admin
from tests.waiting import wait_until

LIBRARIES = pytest.mark.parametrize("library", each())


def numbers(first: int, last: int) -> list[Out]:
    return [Out(b"%d" % number) for number in range(first, last)]


def values(reads: list[In]) -> list[int]:
    return sorted(int(read.value or b"-1") for read in reads)


def wait_for_permits(admin: Admin, topic: str, count: int) -> None:
    """Wait until so many consumers have permits: clients send them after they are subscribed."""

    def have_permits() -> bool:
        stats = admin.request("GET", f"non-persistent/public/default/{topic}/stats")
        consumers = [
            each for found in stats["subscriptions"].values() for each in found["consumers"]
        ]
        return sum(each["availablePermits"] > 0 for each in consumers) == count

    wait_until(have_permits, f"permits of {count} consumers")


@LIBRARIES
@pytest.mark.parametrize("batching", [False, True], ids=["single", "batched"])
def test_connected_consumers_get_messages_and_later_ones_do_not(
    connection: Connection, admin: Admin, topic: str, batching: bool
):
    name = f"non-persistent://public/default/{topic}"
    producer = connection.producer(name, batching=batching)
    producer.send(*numbers(0, 10))
    shared = [connection.consumer(name, "shared", type="shared") for _ in range(2)]
    exclusive = connection.consumer(name, "exclusive", earliest=True)
    wait_for_permits(admin, topic, 3)

    producer.send(*numbers(10, 60))

    reads = exclusive.receive(50)
    assert values(reads) == [*range(10, 60)]
    exclusive.ack(*reads)
    found: list[In] = []
    deadline = Deadline("the messages of a shared subscription")
    while len(found) < 50:
        deadline.check(values(found))
        found += [read for consumer in shared for read in consumer.receive_up_to(50, 0.1)]
    assert values(found) == [*range(10, 60)]
    assert exclusive.nothing_comes()


@LIBRARIES
def test_a_reader_gets_what_is_sent_while_it_is_connected(
    connection: Connection, admin: Admin, topic: str
):
    name = f"non-persistent://public/default/{topic}"
    reader = connection.reader(name, "latest")
    producer = connection.producer(name)
    wait_for_permits(admin, topic, 1)

    producer.send(*numbers(0, 20))

    assert values(reader.receive(20)) == [*range(20)]


@LIBRARIES
def test_partitions_are_served_together(connection: Connection, admin: Admin, topic: str):
    admin.request("PUT", f"non-persistent/public/default/{topic}/partitions", 3)
    name = f"non-persistent://public/default/{topic}"
    consumer = connection.consumer(name, "s", type="shared")
    producer = connection.producer(name)
    for number in range(3):
        wait_for_permits(admin, f"{topic}-partition-{number}", 1)

    producer.send(*[Out(b"%d" % number, key=f"k{number}") for number in range(30)])

    reads = consumer.receive(30)
    assert values(reads) == [*range(30)]
    assert len({read.partition for read in reads}) == 3
    consumer.ack(*reads)
