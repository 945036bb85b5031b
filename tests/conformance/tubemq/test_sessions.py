"""TubeMQ's own Java client when members or the server die, and with authentication."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import brokers
from tests.brokers import TrilogueForTubeMQ, TubeBroker
from tests.conformance.clients.base import Deadline
from tests.conformance.clients.pulsar import Process
from tests.conformance.clients.tubemq import (
    Client,
    ClientError,
    Consumer,
    Out,
    Producer,
    connect,
    driver_process,
    servers,
)

pytestmark = pytest.mark.java
QUICK = {"tubemq.consumer-timeout": "6s", "tubemq.reader-timeout": "6s", "tubemq.hold": "200ms"}
HEARTBEAT_MS = 300
PATIENCE_S = 70.0  # a real master waits half a minute for a silent member, and then rebalances


def numbers(topic: str, first: int, last: int) -> list[Out]:
    return [Out(topic, b"%d" % number) for number in range(first, last)]


@pytest.fixture
def own(tmp_path: Path) -> Iterator[TrilogueForTubeMQ]:
    """A server of ours that one test has for itself."""
    made = TrilogueForTubeMQ(tmp_path / "data", QUICK)
    made.start()
    yield made
    made.kill9()


@pytest.fixture
def driver(tube_drivers: dict[str, Process]) -> Process:
    """The Java process that talks to servers of ours."""
    return tube_drivers.setdefault("trilogue", driver_process())


@pytest.fixture(params=servers())
def quick(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    tubemq_of_the_session: list[TubeBroker],
) -> Iterator[TubeBroker]:
    """A server that soon misses a member (the real one within half a minute)."""
    root = tmp_path_factory.mktemp(request.param)
    make = brokers.make_tubemq
    with brokers.running(make, request.param, root, QUICK, tubemq_of_the_session) as made:
        yield made


def test_a_killed_members_partitions_go_to_another(quick: TubeBroker):
    """What it took and did not confirm comes again; what it confirmed does not."""
    topic = quick.topic(2)
    doomed, other = driver_process(), driver_process()
    try:
        with quick.inside():
            clients = [
                connect(d, quick.address, heartbeat_ms=HEARTBEAT_MS) for d in (doomed, other)
            ]
        clients[1].filler(topic).sent(*numbers(topic, 0, 10))
        lost = clients[0].pull("mourns", {topic: []})
        lost.wait_for_partitions(2)
        confirmed, taken = lost.get(), lost.get()
        assert lost.confirm(confirmed).ok
        assert len(confirmed.messages) + len(taken.messages) == 10
        left = clients[1].pull("mourns", {topic: []})

        doomed.stop()

        left.wait_for_partitions(2, PATIENCE_S)
        again = left.receive(len(taken.messages), PATIENCE_S)
        assert {read.body for read in again} == {read.body for read in taken.messages}
        assert left.nothing_comes()
    finally:
        doomed.stop()
        other.stop()


def send_until_taken(producer: Producer, *messages: Out) -> None:
    """Again and again: a client that lost its server refuses for a while by itself."""
    for message in messages:
        deadline = Deadline("a server that takes messages")
        while not producer.send(message)[0].ok:
            deadline.check()


@pytest.mark.parametrize("gently", [True, False], ids=["sigterm", "kill"])
def test_clients_outlive_the_server(own: TrilogueForTubeMQ, driver: Process, gently: bool):
    """Nothing that was acked is lost, nothing that was confirmed comes again; the clients stay."""
    topic = own.topic()
    client = connect(driver, own.address, heartbeat_ms=HEARTBEAT_MS)
    producer = client.producer(topic)
    producer.sent(*numbers(topic, 0, 50))
    consumer = client.pull("stays", {topic: []})
    consumer.receive(50)
    producer.sent(*numbers(topic, 50, 100), at_once=True)
    if gently:
        assert own.stop() == 0
    else:
        own.kill9()

    own.start()

    send_until_taken(producer, *numbers(topic, 100, 110))
    reads = reads_until(consumer, 109)
    assert [int(read) for read in reads if int(read) < 100] == [*range(50, 100)]
    client.close()


def reads_until(consumer: Consumer, last: int) -> list[bytes]:
    """Everything until that number came; sends that were repeated may have been kept twice."""
    found: list[bytes] = []
    deadline = Deadline(f"number {last}")
    while b"%d" % last not in found:
        deadline.check(found)
        got = consumer.get()
        found += [read.body for read in got.messages]
        if got.context:
            consumer.confirm(got)
    return found


@pytest.fixture
def locked(tmp_path: Path) -> Iterator[TrilogueForTubeMQ]:
    """Producers and consumers must authenticate; a real master does not verify them."""
    users = tmp_path / "users"
    users.write_text("alice:her password\n")
    users.chmod(0o600)
    settings = {
        "tubemq.authenticate": "both",
        "tubemq.users": users,
        "tubemq.check-visit-tokens": True,
    }
    made = TrilogueForTubeMQ(tmp_path / "data", {**QUICK, **settings})
    made.start()
    yield made
    made.kill9()


def test_authenticated_client_sends_and_reads(locked: TrilogueForTubeMQ, driver: Process):
    topic = locked.topic()
    words = {"heartbeat_ms": HEARTBEAT_MS, "user": "alice", "password": "her password"}
    client = connect(driver, locked.address, **words)  # type: ignore[arg-type]
    client.producer(topic).sent(*numbers(topic, 0, 5))

    reads = client.pull("alices", {topic: []}).receive(5)

    assert [int(read.body) for read in reads] == [*range(5)]
    client.close()


def test_authenticated_client_balance_consumer_reads(locked: TrilogueForTubeMQ, driver: Process):
    topic = locked.topic()
    words = {"heartbeat_ms": HEARTBEAT_MS, "user": "alice", "password": "her password"}
    client = connect(driver, locked.address, **words)  # type: ignore[arg-type]
    client.producer(topic).sent(*numbers(topic, 0, 5))
    consumer = client.balance("alices_own", {topic: []})
    assert consumer.began.ok

    for partition in consumer.wait_for_meta():
        assert consumer.attach(partition, 0).ok

    assert [int(read.body) for read in consumer.receive(5)] == [*range(5)]
    client.close()


@pytest.mark.parametrize(
    "words",
    [{}, {"user": "alice", "password": "a guess"}, {"user": "bob", "password": "her password"}],
    ids=["nobody", "wrong password", "wrong name"],
)
def test_others_may_neither_send_nor_read(
    locked: TrilogueForTubeMQ, driver: Process, words: dict[str, str]
):
    topic = locked.topic()
    connected = {"heartbeat_ms": HEARTBEAT_MS, "attempts": 1, **words}
    client = connect(driver, locked.address, **connected)  # type: ignore[arg-type]

    with pytest.raises(ClientError):
        client.producer(topic)
    assert reads_nothing(client, topic)
    client.close()


def reads_nothing(client: Client, topic: str) -> bool:
    """Whether the client is refused at once, or gets no partition."""
    try:
        consumer = client.pull("strangers", {topic: []})
    except ClientError:
        return True
    return not consumer.ready(1.5) and not consumer.positions
