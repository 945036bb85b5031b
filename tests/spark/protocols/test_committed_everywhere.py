"""Transactions of five clients, interleaved in one partition with plain messages of three
protocols: every reader of every protocol has the same ones, from memory and from segments."""

from __future__ import annotations

import base64
import itertools
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import httpx
import pulsar
import pytest
from confluent_kafka import Producer

from tests.conformance.clients import tubemq as java_tubemq
from tests.conformance.clients.base import DEADLINE
from tests.conformance.clients.kafka_programs import JAVA_2, JAVA_4, JavaClient
from tests.conformance.clients.pulsar import Connection, Out, Process, connect
from tests.conformance.clients.pulsar_libraries import GO_CLIENT, JAVA
from tests.conformance.kafka.test_transactions import producer, read, write
from tests.conformance.tubes import Tubes
from tests.gateway.http.kafka_rest.test_rest import read as read_rest
from tests.gateway.http.websocket.sockets import Socket
from tests.server import Server, run_trilogue, start_server
from tests.spark.protocols.rows import read_batch
from tests.spark.rooms import close_links
from trilogue.client.tubemq import Message

STEPS = 150
ABORTS = 0.35
HEADERS = {"content-type": "application/vnd.kafka.v2+json"}
COMMITTED = {
    "format": "binary",
    "auto.offset.reset": "earliest",
    "isolation.level": "read_committed",
}
LONG_MS = 800_000  # so that nothing times out
LONG = {"transaction.timeout.ms": LONG_MS}
numbers = itertools.count(1)

pytestmark = [pytest.mark.java, pytest.mark.full, pytest.mark.timeout(800)]


class Writer(Protocol):
    """A transactional producer; each write is acknowledged when it returns."""

    def begin(self) -> None: ...
    def write(self, value: bytes) -> None: ...
    def end(self, *, commit: bool) -> None: ...


class KafkaWriter:
    """librdkafka."""

    def __init__(self, server: Server, topic: str) -> None:
        self.topic = topic
        self.producer = producer(server.kafka, f"librdkafka-{topic}", **LONG)

    def begin(self) -> None:
        self.producer.begin_transaction()

    def write(self, value: bytes) -> None:
        write(self.producer, self.topic, value)

    def end(self, *, commit: bool) -> None:
        if commit:
            self.producer.commit_transaction(DEADLINE)
        else:
            self.producer.abort_transaction(DEADLINE)


class JavaWriter:
    """Kafka's own client of one release."""

    def __init__(self, client: JavaClient, server: Server, topic: str) -> None:
        self.client, self.topic = client, topic
        name = f"{client.name}-{topic}"
        settings = {key: str(value) for key, value in LONG.items()}
        words = {"transaction": name, "settings": settings}
        self.handle = client.request("open_producer", server.kafka, **words)

    def begin(self) -> None:
        self.client.request("begin_transaction", of=self.handle)

    def write(self, value: bytes) -> None:
        record = {"partition": 0, "value": base64.b64encode(value).decode()}
        self.client.request("send", of=self.handle, topic=self.topic, records=[record])

    def end(self, *, commit: bool) -> None:
        self.client.request("end_transaction", of=self.handle, commit=commit)


class PulsarWriter:
    """One of Pulsar's clients; each transaction is another one of the server's coordinators."""

    def __init__(self, connection: Connection, topic: str) -> None:
        self.connection = connection
        how = {"batching": False, "send_timeout_ms": 0}
        self.sender = connection.producer(f"{topic}-partition-0", **how)

    def begin(self) -> None:
        self.transaction = self.connection.begin(timeout_ms=LONG_MS)

    def write(self, value: bytes) -> None:
        self.sender.send(Out(value), transaction=self.transaction)

    def end(self, *, commit: bool) -> None:
        if commit:
            self.transaction.commit()
        else:
            self.transaction.abort()


class World(Tubes):
    """A server, and the clients beside it."""

    connections: list[Connection]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    drivers: list[Process] = []

    def driver() -> Process:
        if not drivers:
            drivers.append(java_tubemq.driver_process())
        return drivers[0]

    for each in (JAVA_2, JAVA_4, JAVA, GO_CLIENT):
        each.require()
    made = World(start_server(tmp_path / "data"), driver=driver)
    made.connections = [
        connect(library, made.server.pulsar, transactions=True) for library in (JAVA, GO_CLIENT)
    ]
    yield made
    for each in (JAVA_2, JAVA_4, JAVA, GO_CLIENT, *drivers):
        each.stop()
    close_links(made.server.kafka)
    made.server.stop()


def write_history(world: World, topic: str, chance: random.Random) -> list[bytes]:
    """Write interleaved transactions, two of which stay open; return what is committed before."""
    server = world.server
    writers: list[Writer] = [
        KafkaWriter(server, topic),
        *(JavaWriter(client, server, topic) for client in (JAVA_2, JAVA_4)),
        *(PulsarWriter(connection, topic) for connection in world.connections),
    ]
    plain = plain_writers(world, topic)
    order: list[tuple[bytes, int]] = []  # each value, with the number of its transaction
    is_committed = {-1: True}
    open_ones: dict[int, int] = {}  # transaction of each writer
    counts = itertools.count(1)
    for number in range(STEPS):
        value = b"%d" % number
        chosen = chance.randrange(len(writers) + len(plain))
        if chosen >= len(writers):
            plain[chosen - len(writers)](value)
            order.append((value, -1))
            continue
        writer = writers[chosen]
        if chosen in open_ones and chance.random() < 0.3:
            commit = chance.random() >= ABORTS
            writer.end(commit=commit)
            is_committed[open_ones.pop(chosen)] = commit
            continue
        if chosen not in open_ones:
            writer.begin()
            open_ones[chosen] = next(counts)
        writer.write(value)
        order.append((value, open_ones[chosen]))
    left = [each for each in open_ones if each in (0, len(writers) - 1)]  # one of each protocol
    for chosen in open_ones.keys() - set(left):
        writers[chosen].end(commit=True)
        is_committed[open_ones[chosen]] = True
    for chosen in left:
        writers[chosen].write(b"open")
    first_open = next(
        (at for at, (_, one) in enumerate(order) if one not in is_committed), len(order)
    )
    return [value for value, one in order[:first_open] if is_committed[one]]


def plain_writers(world: World, topic: str) -> list[Callable[[bytes], object]]:
    """Return producers without transactions, one of each protocol."""
    kafka = Producer({"bootstrap.servers": world.server.kafka})
    sender = world.connections[0].producer(f"{topic}-partition-0", batching=False)
    return [
        lambda value: write(kafka, topic, value),
        lambda value: sender.send(Out(value)),
        lambda value: world.write("own", Message(topic, value)),
    ]


def readers(world: World, topic: str, count: int) -> dict[str, Callable[[], list[bytes | None]]]:
    """Return readers of committed messages by name; most of them also see that no more come."""
    server = world.server

    def by_java(client: JavaClient) -> list[bytes | None]:
        found = client.read(server.kafka, topic, count, committed=True)
        return [each.value for each in found]

    def by_pulsar_library(connection: Connection) -> list[bytes | None]:
        reader = connection.consumer(topic, f"s{next(numbers)}", earliest=True)
        found = [each.value for each in reader.receive(count)]
        assert reader.nothing_comes()
        reader.close()
        return found

    def by_pulsar_python() -> list[bytes | None]:
        client = world.pulsar()
        reader = client.create_reader(f"{topic}-partition-0", pulsar.MessageId.earliest)
        found = []
        while reader.has_message_available():
            found.append(reader.read_next(int(DEADLINE * 1_000)).data())
        client.close()
        return found

    def by_rest() -> list[bytes | None]:
        with httpx.Client(base_url=f"{server.http}/kafka-rest", timeout=DEADLINE) as rest:
            made = rest.post(f"/consumers/g{next(numbers)}", headers=HEADERS, json=COMMITTED)
            address = made.json()["base_uri"]
            rest.post(f"{address}/subscription", json={"topics": [topic]})
            found = read_rest(rest, address, count)
            found += rest.get(f"{address}/records", params={"timeout": 200}).json()
            rest.delete(address)
        return [base64.b64decode(each["value"]) for each in found]

    def by_web_socket() -> list[bytes | None]:
        path = f"reader/persistent/public/default/{topic}-partition-0?messageId=earliest"
        socket = Socket(server.doors["http"], path)
        found = [socket.take() for _ in range(count)]
        socket.close()
        return found

    def by_command_line() -> list[bytes | None]:
        words = ("consume", topic, "--committed", "--server", server.kafka)
        done = run_trilogue(*words)
        return [line.encode() for line in done.stdout.splitlines()]

    def by_source(url: str) -> list[bytes | None]:
        return [row["value"] for row in read_batch(url=url, subscribe=topic)]

    return {
        "librdkafka": lambda: list(read(server.kafka, topic, count)),
        **{client.name: lambda client=client: by_java(client) for client in (JAVA_2, JAVA_4)},
        "pulsar, Java": lambda: by_pulsar_library(world.connections[0]),
        "pulsar, Go": lambda: by_pulsar_library(world.connections[1]),
        "pulsar, Python": by_pulsar_python,
        "TubeMQ, ours": lambda: [each.body for each in world.read("own", topic, count)],
        "TubeMQ, Java": lambda: [each.body for each in world.read("java", topic, count)],
        "REST": by_rest,
        "WebSocket": by_web_socket,
        "command line": by_command_line,
        "source, Kafka": lambda: by_source(f"kafka://{server.kafka}"),
        "source, Pulsar": lambda: by_source(server.pulsar),
        "source, TubeMQ": lambda: by_source(f"tubemq://{world.master}"),
    }


def test_every_reader_has_the_committed_messages(world: World, seed: int, tmp_path: Path):
    topic = world.topic("everywhere")
    wanted = write_history(world, topic, random.Random(seed))

    def check(where: str) -> None:
        for name, reading in readers(world, topic, len(wanted)).items():
            assert reading() == wanted, f"{name}, {where}"

    check("from memory")
    doors = dict(world.server.doors)
    assert world.server.stop() == 0
    world.server = start_server(tmp_path / "data", listen=doors)
    check("from segments")
