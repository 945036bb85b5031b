"""A server killed or stopped and started again, as its clients see it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, Message
from confluent_kafka.admin import AdminClient, NewTopic

from tests.brokers import Broker
from tests.conformance.clients import DEADLINE, IN_PROCESS, Client, Record, each
from tests.conformance.clients.confluent import Confluent
from tests.conformance.members import AioMember, ConfluentMember, PythonMember, pump
from tests.waiting import wait_until

KAFKA_NEEDS = 90.0  # a real Kafka takes 18-30 s to serve after kill -9

End = Callable[[Broker], object]
ENDS = [
    pytest.param(lambda broker: broker.kill9(), id="kill9"),
    pytest.param(lambda broker: broker.stop(), id="sigterm"),
]
RECORDS = [Record(b"key-%d" % number, b"%d" % number, (("h", b"1"),)) for number in range(10)]

pytestmark = pytest.mark.timeout(300)


@pytest.mark.parametrize("end", ENDS)
def test_records_and_positions_survive_a_restart(own_broker: Broker, end: End):
    for client in IN_PROCESS:
        client.write(own_broker.address, client.name, RECORDS, codec="lz4", idempotent=True)
        client.read(own_broker.address, client.name, 6, group="group")
    before = {
        client.name: IN_PROCESS[0].read(own_broker.address, client.name, 10)
        for client in IN_PROCESS
    }

    end(own_broker)
    own_broker.start()

    for client in IN_PROCESS:
        name = client.name
        assert IN_PROCESS[0].read(own_broker.address, name, 10) == before[name]
        rest = client.read(own_broker.address, name, 4, group="group")
        assert [read.offset for read in rest] == [6, 7, 8, 9]


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("client", each(IN_PROCESS))
def test_offsets_go_on_after_a_restart(own_broker: Broker, client: Client, end: End):
    client.write(own_broker.address, "topic", RECORDS)

    end(own_broker)
    own_broker.start()
    client.write(own_broker.address, "topic", RECORDS)

    reads = client.read(own_broker.address, "topic", 20)
    assert [read.offset for read in reads] == list(range(20))


@pytest.mark.parametrize("end", ENDS)
def test_an_idempotent_producer_goes_on_through_a_restart(own_broker: Broker, end: End):
    """The producer lives on: what it sends while the broker is down arrives once, in order."""
    errors: list[object] = []
    producer = Confluent.producer(
        own_broker.address, {"enable.idempotence": True, "message.timeout.ms": 120_000}
    )

    def send(first: int, last: int) -> None:
        for number in range(first, last):
            producer.produce(
                "topic",
                b"%d" % number,
                on_delivery=lambda error, _: errors.append(error) if error else None,
            )

    send(0, 100)
    assert producer.flush(DEADLINE) == 0
    end(own_broker)
    send(100, 200)
    own_broker.start()
    send(200, 300)

    assert producer.flush(KAFKA_NEEDS) == 0
    assert errors == []
    reads = Confluent().read(own_broker.address, "topic", 300)
    assert [read.value for read in reads] == [b"%d" % number for number in range(300)]


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("kind", [ConfluentMember, AioMember, PythonMember])
def test_a_group_member_goes_on_through_a_restart(own_broker: Broker, kind: type, end: End):
    Confluent().write(own_broker.address, "topic", RECORDS)
    member = kind(own_broker.address, "group", "topic")
    pump([member], lambda: len(member.reads) == 10, "all records")
    member.commit()

    end(own_broker)
    own_broker.start()
    Confluent().write(own_broker.address, "topic", [Record(b"k", b"after")])

    pump([member], lambda: member.reads[-1].value == b"after", "the record after", KAFKA_NEEDS)
    member.close()
    assert [read.offset for read in member.reads] == list(range(11))


class Pair:
    """Two members of one group, what they were given, and what they read."""

    def __init__(self, address: str, protocol: str, topic: str) -> None:
        settings = {
            "bootstrap.servers": address,
            "group.id": "group",
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "reconnect.backoff.max.ms": 500,
        }
        self.rebalances = 0
        self.members = [Consumer(settings) for _ in range(2)]
        self.reads: list[list[Message]] = [[], []]
        callbacks = {f"on_{what}": self._note for what in ("assign", "revoke", "lost")}
        for member in self.members:
            member.subscribe([topic], **callbacks)

    def _note(self, *_: object) -> None:
        self.rebalances += 1

    def read(self, count: int) -> None:
        """Poll until each has read so many."""

        def poll() -> bool:
            for member, reads in zip(self.members, self.reads, strict=True):
                message = member.poll(0.05)
                if message is not None and not message.error():
                    reads.append(message)
            return all(len(reads) >= count for reads in self.reads)

        wait_until(poll, lambda: f"{count} messages each: {self.reads}", KAFKA_NEEDS)

    def settle(self) -> None:
        """Poll until each has two partitions."""

        def settled() -> bool:
            self.read(0)
            return all(len(member.assignment()) == 2 for member in self.members)

        wait_until(settled, "two partitions each", KAFKA_NEEDS)

    def commit(self) -> None:
        for member in self.members:
            member.commit(asynchronous=False)


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_restart_costs_a_group_no_rebalance(own_broker: Broker, end: End, protocol: str):
    """Members keep their partitions, and may commit what they read before."""
    if own_broker.name != "trilogue" and protocol == "consumer":
        pytest.skip("the real broker is a 3.9, which has no consumer groups by default")
    admin = AdminClient({"bootstrap.servers": own_broker.address})
    admin.create_topics([NewTopic("shared", 4, 1)])["shared"].result(DEADLINE)
    producer = Confluent.producer(own_broker.address, {})

    def send(value: bytes) -> None:
        for partition in range(4):
            producer.produce("shared", value, partition=partition)
        assert producer.flush(KAFKA_NEEDS) == 0

    pair = Pair(own_broker.address, protocol, "shared")
    pair.settle()
    send(b"before")
    pair.read(2)
    before = pair.rebalances, [member.assignment() for member in pair.members]

    end(own_broker)
    own_broker.start()
    pair.commit()  # in the generation of before
    send(b"after")
    pair.read(4)

    assert (pair.rebalances, [member.assignment() for member in pair.members]) == before
    assert [len(reads) for reads in pair.reads] == [4, 4]
    pair.commit()
    for member in pair.members:
        member.close()


@pytest.mark.parametrize("end", ENDS)
def test_topics_made_and_removed_stay_so_after_a_restart(own_broker: Broker, end: End):
    admin = AdminClient({"bootstrap.servers": own_broker.address})
    for made in admin.create_topics([NewTopic("kept", 3, 1), NewTopic("gone", 1, 1)]).values():
        made.result(DEADLINE)
    (gone,) = admin.delete_topics(["gone"]).values()
    gone.result(DEADLINE)

    end(own_broker)
    own_broker.start()

    topics = (
        AdminClient({"bootstrap.servers": own_broker.address}).list_topics(timeout=DEADLINE).topics
    )
    assert "gone" not in topics
    assert len(topics["kept"].partitions) == 3


def test_a_second_server_on_the_same_data_is_refused(own_broker: Broker):
    """Only ours: the other keeps serving."""
    if own_broker.name != "trilogue":
        pytest.skip("a rule of our own server")
    from tests.server import ServerDiedError, start_server

    with pytest.raises(ServerDiedError, match=r"exit code [1-9]"):
        start_server(own_broker.data)

    Confluent().write(own_broker.address, "topic", RECORDS)
