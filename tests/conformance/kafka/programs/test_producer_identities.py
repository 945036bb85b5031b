"""Ids and epochs of transactional producers: used up, and in requests that are late."""

from __future__ import annotations

import base64
import socket
import struct
from collections.abc import Iterator

import pytest

from tests.brokers import Broker
from tests.conformance.clients import DEADLINE
from tests.conformance.clients.administrators import CONFLUENT, KAFKA_PYTHON
from tests.conformance.clients.kafka_programs import JAVA_2, JAVA_4, JavaClient
from tests.conformance.kafka.test_transactions import producer, read, write
from tests.conformance.raw import coordinator_of, text

NAME, TOPIC = "used-up", "topic"
INIT_PRODUCER_ID, END_TXN = 22, 26
EPOCH_LAST = 32_766
AT_ONCE = 500
ROUNDS = 6
IDENTITY = struct.Struct(">ihqh")  # throttle time, error, producer id, epoch

pytestmark = pytest.mark.timeout(600)


def frame(key: int, version: int, body: bytes) -> bytes:
    request = struct.pack(">hhi", key, version, 0) + text("by hand") + body
    return struct.pack(">i", len(request)) + request


def replies(connection: socket.socket, count: int) -> Iterator[bytes]:
    """Yield replies without their correlation ids."""
    with connection.makefile("rb") as stream:
        for _ in range(count):
            (size,) = struct.unpack(">i", stream.read(4))
            yield stream.read(size)[4:]


def use_up_epochs(address: str, left: int) -> tuple[int, int]:
    """Initialise a producer again and again until few epochs are left; return the last identity."""
    host, port = coordinator_of(address, NAME).split(":")
    request = frame(INIT_PRODUCER_ID, 0, text(NAME) + struct.pack(">i", 60_000))
    producer_id, epoch = -1, -1
    with socket.create_connection((host, int(port)), DEADLINE) as connection:
        while epoch < EPOCH_LAST - left:
            count = min(AT_ONCE, EPOCH_LAST - left - epoch)
            connection.sendall(request * count)
            for reply in replies(connection, count):
                _, error, producer_id, epoch = IDENTITY.unpack(reply)
                assert error == 0
    return producer_id, epoch


def end(address: str, producer_id: int, epoch: int) -> int:
    """Request a commit by hand, as one that was delayed; return the error."""
    host, port = coordinator_of(address, NAME).split(":")
    body = text(NAME) + struct.pack(">qhb", producer_id, epoch, 1)
    with socket.create_connection((host, int(port)), DEADLINE) as connection:
        connection.sendall(frame(END_TXN, 1, body))
        (reply,) = replies(connection, 1)
    return int(struct.unpack(">ih", reply)[1])


def write_by_librdkafka(address: str, value: bytes) -> None:
    """In version 1 of transactions each start of a producer takes an epoch."""
    made = producer(address, NAME)
    made.begin_transaction()
    write(made, TOPIC, value)
    made.commit_transaction(DEADLINE)


def late_end_of_version_2(address: str, producer_id: int, epoch: int) -> int:
    """The same by EndTxn v5, which Java's clients since 4.0 send."""
    host, port = coordinator_of(address, NAME).split(":")
    name = NAME.encode()
    body = bytes([len(name) + 1]) + name + struct.pack(">qhbb", producer_id, epoch, 1, 0)
    with socket.create_connection((host, int(port)), DEADLINE) as connection:
        connection.sendall(frame(END_TXN, 5, b"\0" + body))
        (reply,) = replies(connection, 1)
    return int(struct.unpack_from(">bih", reply)[2])


class JavaProducer:
    """In version 2 of transactions each end takes one."""

    def __init__(self, client: JavaClient, address: str) -> None:
        client.require()
        self.client = client
        self.handle = client.request("open_producer", address, transaction=NAME)

    def begin(self, value: bytes) -> None:
        record = {"partition": 0, "value": base64.b64encode(value).decode()}
        self.client.request("begin_transaction", of=self.handle)
        self.client.request("send", of=self.handle, topic=TOPIC, records=[record])

    def end(self, *, commit: bool) -> None:
        self.client.request("end_transaction", of=self.handle, commit=commit)

    def write(self, value: bytes) -> None:
        self.begin(value)
        self.end(commit=True)


def check(address: str, used_up: int, values: list[bytes]) -> None:
    """All messages are committed, by two producers, and the first one is fenced."""
    assert read(address, TOPIC, len(values)) == values
    producers = {each["id"] for each in KAFKA_PYTHON.producers(address, TOPIC, 0)}
    assert len(producers) == 2
    assert used_up in producers
    made = producer(address, NAME)  # the next one
    made.begin_transaction()
    write(made, TOPIC, b"open")
    for epoch in (EPOCH_LAST - 1, EPOCH_LAST):
        assert end(address, used_up, epoch) != 0
    assert read(address, TOPIC, len(values)) == values
    made.abort_transaction(DEADLINE)


@pytest.mark.parametrize("kills", [False, True], ids=["alive", "killed"])
def test_librdkafka_goes_on_with_another_producer_id(own_broker: Broker, kills: bool):
    address = own_broker.address
    CONFLUENT.create(address, TOPIC, 1)
    used_up, _ = use_up_epochs(address, ROUNDS // 2)
    values = [b"%d" % number for number in range(ROUNDS)]
    for value in values:
        write_by_librdkafka(address, value)
        if kills:
            own_broker.kill9()
            own_broker.start()

    check(address, used_up, values)


@pytest.mark.java
@pytest.mark.parametrize("client", [JAVA_2, JAVA_4], ids=lambda client: client.name)
@pytest.mark.parametrize("kills", [False, True], ids=["alive", "killed"])
def test_java_goes_on_with_another_producer_id(own_broker: Broker, kills: bool, client: JavaClient):
    address = own_broker.address
    CONFLUENT.create(address, TOPIC, 1)
    used_up, _ = use_up_epochs(address, ROUNDS // 2)
    values = [b"%d" % number for number in range(ROUNDS)]
    made = JavaProducer(client, address)
    for value in values:
        made.write(value)
        if client is JAVA_2:  # which has version 1
            made = JavaProducer(client, address)
        if kills:
            own_broker.kill9()
            own_broker.start()

    check(address, used_up, values)


def find_identity(address: str) -> tuple[int, int]:
    """Return the producer id and epoch of the newest transaction."""
    newest = KAFKA_PYTHON.producers(address, TOPIC, 0)[-1]
    return int(newest["id"]), int(newest["epoch"])


@pytest.mark.java
def test_a_late_end_does_not_end_the_next_transaction_of_version_2(own_broker: Broker):
    """A copy of the EndTxn that Java's client has sent, by either version of the request."""
    address = own_broker.address
    CONFLUENT.create(address, TOPIC, 1)
    made = JavaProducer(JAVA_4, address)
    made.begin(b"first")
    identity = find_identity(address)
    made.end(commit=True)
    made.begin(b"second")

    assert end(address, *identity) != 0
    assert late_end_of_version_2(address, *identity) != 0

    assert read(address, TOPIC, 1) == [b"first"]
    made.end(commit=False)
    assert late_end_of_version_2(address, *identity) != 0
    made.write(b"third")
    assert read(address, TOPIC, 2) == [b"first", b"third"]


def test_a_late_end_of_version_1_ends_the_open_transaction(own_broker: Broker):
    """Its epoch is that of the producer, so that no server can tell it from a timely one."""
    address = own_broker.address
    CONFLUENT.create(address, TOPIC, 1)
    made = producer(address, NAME)
    for value in (b"first", b"second"):
        made.begin_transaction()
        write(made, TOPIC, value)
        if value == b"first":
            made.commit_transaction(DEADLINE)

    assert end(address, *find_identity(address)) == 0

    assert read(address, TOPIC, 2) == [b"first", b"second"]
