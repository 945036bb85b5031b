"""Fetch sessions (KIP-227) as the libraries use them: who does, what they cost, what ends them."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Self

import httpx
import pytest

from tests.brokers import Broker, Trilogue
from tests.conformance.clients import DEADLINE, Deadline
from tests.conformance.clients.administrators import CONFLUENT
from tests.conformance.clients.driven import Driven
from tests.conformance.clients.kafka_programs import FRANZ_GO, JAVA_2, JAVA_3, JAVA_4, KAFKAJS
from tests.conformance.clients.pulsar import ClientError
from tests.conformance.kafka.families.families import eventually, produce
from tests.conformance.members import AioMember, ConfluentMember, Member, PythonMember, pump
from trilogue.gateway.kafka.fetch.sessions import FetchSessionCache
from trilogue.node.node import Node
from trilogue.node.settings.sources import load_settings
from trilogue.node.settings.table import LISTENERS

PARTITIONS = 4
WHOLE = range(PARTITIONS)
INCREMENTAL = 'kafka_fetches_total{kind="incremental"}'
OPENED = 'kafka_fetch_session_events_total{kind="opened"}'
CLOSED = 'kafka_fetch_session_events_total{kind="closed"}'
Make = Callable[[str, str, str], Member]


def driven(client: Driven, **settings: object) -> Make:
    return lambda address, group, topic: client.join(address, group, [topic], settings)


JAVA_WAITS = {"fetch.max.wait.ms": 50, "metadata.max.age.ms": 500}
WITH = {
    "java-2.0.0": driven(JAVA_2, **JAVA_WAITS),
    "java-3.9.1": driven(JAVA_3, **JAVA_WAITS),
    "java-4.3.1": driven(JAVA_4, **JAVA_WAITS),
    "franz-go": driven(FRANZ_GO),
    "kafka-python": PythonMember,
}
WITHOUT = {"librdkafka": ConfluentMember, "aiokafka": AioMember, "kafkajs": driven(KAFKAJS)}


def members(makers: dict[str, Make], *names: str) -> list[object]:
    return [
        pytest.param(makers[name], id=name, marks=[pytest.mark.java] if "java" in name else [])
        for name in names or makers
    ]


def counted(broker: Broker) -> Counter[str]:
    """Our server's counters; empty for a real Kafka, whose counters are not read."""
    if not isinstance(broker, Trilogue):
        return Counter()
    lines = httpx.get(f"{broker.running.http}/metrics").text.splitlines()
    rows = [line.removeprefix("trilogue_").rsplit(" ", 1) for line in lines if line[0] != "#"]
    return Counter({name: int(float(value)) for name, value in rows if "fetch" in name})


def since(broker: Broker, before: Counter[str], name: str, least: int) -> bool:
    return not isinstance(broker, Trilogue) or counted(broker)[name] - before[name] >= least


def values(member: Member) -> list[bytes | None]:
    return [read.value for read in member.reads]


def write(
    address: str, topic: str, label: str, partitions: range = range(PARTITIONS)
) -> set[bytes]:
    made = {number: [f"{label} {number}".encode()] for number in partitions}
    produce(address, topic, made)
    return {value for those in made.values() for value in those}


@pytest.mark.parametrize("make", members(WITH))
def test_incremental_fetches_name_partitions_once_and_return_new_records(
    make: Make, broker: Broker, topic: str
):
    before = counted(broker)
    CONFLUENT.create(broker.address, topic, PARTITIONS)
    member = make(broker.address, topic, topic)
    expected = write(broker.address, topic, "first")
    pump([member], lambda: set(values(member)) == expected, "the first ones")
    pump([member], lambda: since(broker, before, INCREMENTAL, 3), "fetches that say nothing")

    expected |= write(broker.address, topic, "second", range(1))
    pump([member], lambda: len(member.reads) >= PARTITIONS + 1, "the second one")
    member.close()

    assert sorted(values(member)) == sorted(expected)
    assert since(broker, before, OPENED, 1)


@pytest.mark.parametrize("make", members(WITH, "java-3.9.1", "java-4.3.1"))
def test_close_of_a_consumer_closes_its_session(make: Make, broker: Broker, topic: str):
    """Java since 3.2 (KAFKA-13483 and its followers); others leave that to the broker."""
    before = counted(broker)
    expected = write(broker.address, topic, "first", range(1))
    member = make(broker.address, topic, topic)
    pump([member], lambda: set(values(member)) == expected, "the first one")
    pump([member], lambda: since(broker, before, OPENED, 1), "a session")

    member.close()

    if isinstance(broker, Trilogue):
        eventually(lambda: since(broker, before, CLOSED, 1), True)


@pytest.mark.parametrize("make", members(WITHOUT))
def test_client_without_sessions_fetches_without_a_session(make: Make, broker: Broker, topic: str):
    before = counted(broker)
    expected = write(broker.address, topic, "first", range(1))
    member = make(broker.address, topic, topic)

    pump([member], lambda: set(values(member)) == expected, "the first one")
    member.close()

    assert not since(broker, before, OPENED, 1) or not isinstance(broker, Trilogue)


def goes_on(member: Member, until: Callable[[], object], what: str) -> None:
    """As pump, but franz-go reports each event that happened meanwhile."""
    deadline = Deadline(what, 60.0)
    while not until():
        deadline.check(member.reads)
        with suppress(ClientError):
            member.poll()


@pytest.mark.long
@pytest.mark.parametrize("make", members(WITH, "java-4.3.1", "franz-go", "kafka-python"))
def test_a_restart_of_the_server_costs_a_session_and_nothing_else(
    make: Make, own_broker: Broker, topic: str
):
    address = own_broker.address
    CONFLUENT.create(address, topic, PARTITIONS)
    member = make(address, topic, topic)
    expected = write(address, topic, "first")
    pump([member], lambda: set(values(member)) == expected, "the first ones")
    pump([member], lambda: since(own_broker, Counter(), INCREMENTAL, 3), "a session in use")
    member.commit()

    own_broker.kill9()
    own_broker.start()
    expected |= write(address, topic, "second")
    goes_on(member, lambda: set(values(member)) == expected, "what came after")
    goes_on(member, lambda: since(own_broker, Counter(), INCREMENTAL, 3), "a session again")
    member.close()

    first = [value for value in values(member) if value and value.startswith(b"first")]
    assert len(first) == PARTITIONS, "what was committed came once"


class InProcess:
    """Our server in a thread, so that a test can take its clients' sessions from it."""

    def __init__(self, data: Path, *settings: str) -> None:
        listen = [f"listen.{door}=off" for door in LISTENERS if door not in {"kafka", "http"}]
        listen += ["listen.kafka=127.0.0.1:0", "listen.http=127.0.0.1:0"]
        given = [f"data={data}", *listen, *settings]
        self.node = Node(load_settings(environment={}, assignments=given))
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)

    def run(self, work: Coroutine[object, object, object]) -> object:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(DEADLINE)

    def __enter__(self) -> Self:
        self.thread.start()
        self.run(self.node.start())
        self.address = str(self.node.gateways.addresses["kafka"])
        return self

    def __exit__(self, *_problem: object) -> None:
        self.run(self.node.close())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()

    @property
    def sessions(self) -> FetchSessionCache:
        assert self.node.gateways.kafka is not None
        return self.node.gateways.kafka.fetch_sessions

    def forget_sessions(self) -> None:
        async def forget() -> None:
            self.sessions._sessions.clear()  # as if it had never known them

        self.run(forget())


@pytest.mark.parametrize("make", members(WITH))
def test_a_client_whose_session_is_gone_starts_over_and_misses_nothing(
    make: Make, tmp_path: Path, topic: str
):
    """As after an eviction: 70, then a full fetch, by itself."""
    with InProcess(tmp_path / "data") as server:
        CONFLUENT.create(server.address, topic, PARTITIONS)
        member = make(server.address, topic, topic)
        counts, expected = server.sessions.counts, set()

        def reads(label: str) -> None:
            """It reads, and then sends three fetches without a change."""
            expected.update(write(server.address, topic, label))
            pump([member], lambda: set(values(member)) == expected, "all of it")
            before = counts["incremental"]
            pump([member], lambda: counts["incremental"] > before + 2, "a session in use")

        for number in range(1, 4):
            reads(f"round {number}")
            server.forget_sessions()
            pump([member], lambda: counts["FETCH_SESSION_ID_NOT_FOUND"] >= number, "70")  # noqa: B023
        pump([member], lambda: len(server.sessions) == 1, "another session")
        member.close()

        assert sorted(values(member)) == sorted(expected), "each once"


@pytest.mark.parametrize("make", members(WITH))
def test_a_server_without_room_for_sessions_serves_without(make: Make, tmp_path: Path, topic: str):
    with InProcess(tmp_path / "data", "kafka.fetch-sessions=0") as server:
        member = make(server.address, topic, topic)
        expected = write(server.address, topic, "first", range(1))
        pump([member], lambda: set(values(member)) == expected, "the first one")
        expected |= write(server.address, topic, "second", range(1))
        pump([member], lambda: set(values(member)) == expected, "the second one")
        member.close()

        assert server.sessions.counts["incremental"] == 0
