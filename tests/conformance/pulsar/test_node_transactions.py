"""Transactions of Java's and Go's Pulsar clients whose parts are on several nodes."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException

from tests.conformance.clients.pulsar import (
    ClientError,
    Connection,
    Out,
    PulsarLibrary,
    Receiver,
    Sender,
    Transaction,
    connect,
)
from tests.conformance.clients.pulsar_libraries import each
from tests.conformance.pulsar.test_clients import numbers, values
from tests.crash.load import create_topic
from tests.crash.transactions.transaction_load import read_committed
from tests.node.supervisor.test_nodes import pids_of_nodes
from tests.node_ports import NodePorts, find_node_ports
from tests.server import Server, start_server
from tests.waiting import wait_until

NODES, PARTITIONS = 3, 6
TIMEOUT_MS = 10_000
SOURCE, TARGET = "source", "target"
BATCH = 5

pytestmark = [
    pytest.mark.full,
    pytest.mark.timeout(120),
    pytest.mark.parametrize("library", each(can="transactions")),
]


@pytest.fixture
def ports() -> NodePorts:
    return find_node_ports(NODES, "kafka", "pulsar", "http")


@pytest.fixture
def server(tmp_path: Path, ports: NodePorts) -> Iterator[Server]:
    with start_server(tmp_path / "data", listen=ports.listen, nodes=NODES) as started:
        for topic in (SOURCE, TARGET):
            create_topic(started.kafka, topic, PARTITIONS)
        yield started
        assert started.stop() == 0


@pytest.fixture
def connection(server: Server, ports: NodePorts, library: PulsarLibrary) -> Iterator[Connection]:
    made = connect(library, f"pulsar://{ports.addresses('pulsar')}", transactions=True)
    yield made
    made.close()


@pytest.fixture
def senders(connection: Connection) -> list[Sender]:
    """One for each partition of the target."""
    return [
        connection.producer(f"{TARGET}-partition-{number}", batching=False, send_timeout_ms=0)
        for number in range(PARTITIONS)
    ]


def send_to_all(senders: list[Sender], value: bytes, transaction: Transaction) -> None:
    for sender in senders:
        sender.send(Out(value), transaction=transaction)


def subscribe(connection: Connection) -> Receiver:
    """Return a consumer; Go's client fails where its connection has just ended."""

    def create() -> Receiver | None:
        with contextlib.suppress(ClientError):
            return connection.consumer(SOURCE, "s", earliest=True, type="shared", queue=100)
        return None

    found = wait_until(create, "a consumer")
    assert found is not None
    return found


def are_open(ports: NodePorts) -> bool:
    """Whether all nodes accept connections."""
    for address in ports.addresses("pulsar").split(","):
        host, port = address.split(":")
        try:
            socket.create_connection((host, int(port))).close()
        except OSError:
            return False
    return True


def committed(server: Server) -> Counter[bytes]:
    """Return how often each value was committed, once no node is about to start."""

    def read() -> list[bytes]:
        try:
            found = read_committed(server.kafka, TARGET, PARTITIONS)
        except KafkaException:  # the epoch of an owner that has just started is not everywhere yet
            return []
        return [message.value() or b"" for message in found]

    return Counter(wait_until(read, "committed messages"))


def test_messages_and_acks_on_all_nodes_end_with_their_transaction(
    server: Server, connection: Connection, senders: list[Sender]
):
    consumer = subscribe(connection)
    connection.producer(SOURCE, batching=False).send(*numbers(0, 8 * BATCH))
    coordinators, acked, wanted = set(), set(), Counter[bytes]()
    for number in range(8):
        transaction = connection.begin()
        coordinators.add(transaction.most)
        value = b"%d" % number
        send_to_all(senders, value, transaction)
        reads = consumer.receive(BATCH)
        consumer.ack(*reads, transaction=transaction)
        if number % 2:
            transaction.abort()
        else:
            transaction.commit()
            wanted[value] = PARTITIONS
            acked.update(values(reads))

    assert len(coordinators) == 8, "clients use them in turn"
    assert committed(server) == wanted
    consumer.close()
    left = subscribe(connection).receive(8 * BATCH - len(acked))
    assert set(values(left)) == set(range(8 * BATCH)) - acked


def test_transactions_are_whole_while_each_node_is_killed(
    server: Server, ports: NodePorts, connection: Connection, senders: list[Sender]
):
    """Before the end is requested: of the coordinator, of owners of messages, of those of acks."""
    consumer = subscribe(connection)
    connection.producer(SOURCE, batching=False).send(*numbers(0, NODES * BATCH))
    acks: dict[bytes, list[int]] = {}
    sure = set()
    for number in range(NODES):
        value = b"%d" % number
        transaction = connection.begin(timeout_ms=TIMEOUT_MS)
        send_to_all(senders, value, transaction)
        reads = consumer.receive(BATCH)
        consumer.ack(*reads, transaction=transaction)
        acks[value] = values(reads)
        os.kill(pids_of_nodes(server)[number], signal.SIGKILL)
        with contextlib.suppress(ClientError):  # then its outcome is open
            transaction.commit()
            sure.add(value)
        wait_until(lambda: are_open(ports), "all nodes")
        consumer.close()  # a client that connects again has no answer for acks meanwhile
        consumer = subscribe(connection)

    found = committed(server)
    assert sure, "no transaction was committed"
    assert sure <= found.keys()
    assert set(found.values()) == {PARTITIONS}
    acked = {each for value in found for each in acks[value]}
    consumer.close()
    left = subscribe(connection)
    if count := NODES * BATCH - len(acked):
        assert set(values(left.receive(count))) == set(range(NODES * BATCH)) - acked
    assert left.nothing_comes()
