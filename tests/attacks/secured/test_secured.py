"""Attacks on `serve --secure`, by one node and by two: over TLS, before and after a login."""

from __future__ import annotations

import contextlib
import ssl
import struct
import threading
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Producer

from tests.attacks.node import WAIT_S, Report
from tests.attacks.peers import (
    FETCH_MAX,
    MIB,
    begin_http,
    begin_kafka,
    begin_pulsar,
    begin_tubemq,
)
from tests.attacks.secured.server import SecuredServer, attack, read_whole
from tests.crash.kafka.test_hostile import framed, head
from tests.crash.pulsar.test_hostile import TYPES, command
from tests.security.test_kafka_logins import text
from trilogue.wire.pulsar.frame import encode_command
from trilogue.wire.pulsar.pulsar_pb2 import BaseCommand

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]
BATCH = bytes(900_000)
BATCHES = 66  # 57 MiB: more than one response


@pytest.fixture(scope="module", params=[1, 2], ids=["one node", "two nodes"])
def node(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[SecuredServer]:
    made = SecuredServer(tmp_path_factory.mktemp("secured"), request.param)
    producer = Producer({**made.kafka_settings(), "batch.num.messages": 1})
    for _ in range(BATCHES):
        producer.produce("cold", BATCH, partition=made.partitions["cold"])
    assert producer.flush(WAIT_S) == 0
    made.restart()
    yield made
    made.server.kill9()


def send_in_background(stack: contextlib.ExitStack, peer: ssl.SSLSocket, content: bytes) -> None:
    """Send as far as the server reads, until the connection is closed."""

    def send() -> None:
        with contextlib.suppress(OSError, ValueError):
            peer.settimeout(60)
            peer.sendall(content)

    threading.Thread(target=send, daemon=True).start()


# ---- halves of requests


def half_of_kafka(node: SecuredServer, stack: contextlib.ExitStack) -> None:
    for _ in range(16):
        send_in_background(stack, node.open_kafka(stack), begin_kafka(99 * MIB, 60 * MIB))


def half_of_kafka_before_login(node: SecuredServer, stack: contextlib.ExitStack) -> None:
    for _ in range(400):
        peer = node.open(stack, "kafka-sasl-ssl")
        send_in_background(stack, peer, begin_kafka(500_000, 499_000))


def half_of_pulsar(node: SecuredServer, stack: contextlib.ExitStack) -> None:
    half = begin_pulsar(5 * MIB, 5 * MIB - 1_000)
    for _ in range(100):
        send_in_background(stack, node.open_pulsar(stack), half)


def half_of_pulsar_before_login(node: SecuredServer, stack: contextlib.ExitStack) -> None:
    half = begin_pulsar(5 * MIB, 5 * MIB - 1_000)
    for _ in range(400):
        send_in_background(stack, node.open(stack, "pulsar-ssl"), half)


def half_of_tubemq(node: SecuredServer, stack: contextlib.ExitStack) -> None:
    for _ in range(30):
        send_in_background(stack, node.open(stack, "tubemq-broker-ssl"), begin_tubemq(9 * MIB))


def half_of_http(node: SecuredServer, stack: contextlib.ExitStack) -> None:
    half = begin_http(MIB, MIB - 1_000)
    login = b"Host: localhost\r\nAuthorization: Basic " + node.basic
    half = half.replace(b"Host: localhost", login, 1)
    for _ in range(400):
        send_in_background(stack, node.open(stack, "https"), half)


# ---- readers of old data that read nothing


def fetch_old_data(node: SecuredServer, stack: contextlib.ExitStack) -> None:
    body = struct.pack(">iiiib", -1, 100, 1, FETCH_MAX, 0) + struct.pack(">i", 1) + text("cold")
    body += struct.pack(">iiqi", 1, node.partitions["cold"], 0, FETCH_MAX)
    for _ in range(120):
        node.open_kafka(stack).sendall(framed(head(1, 4) + body) * 3)


def take_messages(node: SecuredServer, stack: contextlib.ExitStack) -> None:
    for number in range(120):
        reader = BaseCommand(type=TYPES["subscribe"])
        reader.subscribe.topic = f"cold-partition-{node.partitions['cold']}"
        reader.subscribe.subscription = f"slow-{number}"
        reader.subscribe.subType = 0
        reader.subscribe.consumer_id = reader.subscribe.request_id = 1
        reader.subscribe.durable, reader.subscribe.initialPosition = False, 1
        peer = node.open_pulsar(stack)
        peer.sendall(encode_command(reader))
        assert read_whole(peer)
        peer.sendall(command("flow", consumer_id=1, messagePermits=2**31 - 1))


def peek_messages(node: SecuredServer, stack: contextlib.ExitStack) -> None:
    path = f"persistent/public/default/cold-partition-{node.partitions['cold']}/examinemessage"
    request = f"GET /admin/v2/{path}?initialPosition=earliest HTTP/1.1\r\nHost: localhost\r\n"
    request += f"Authorization: Basic {node.basic.decode()}\r\n\r\n"
    for _ in range(120):
        node.open(stack, "https").sendall(request.encode() * 3)


# ---- what is registered without end


def subscribe_key_shared(node: SecuredServer, stack: contextlib.ExitStack) -> None:
    """A quarter of a million consumers: more than one user may have beside what it leaves free."""
    for _ in range(25):
        consumers = bytearray()
        for number in range(10_000):
            made = BaseCommand(type=TYPES["subscribe"])
            made.subscribe.topic = f"cold-partition-{node.partitions['cold']}"
            made.subscribe.subscription, made.subscribe.subType = "keyed", 3
            made.subscribe.consumer_id = made.subscribe.request_id = number
            consumers += encode_command(made)
        peer = node.open_pulsar(stack)
        send_in_background(stack, peer, bytes(consumers))
        threading.Thread(target=read_all, args=(peer,), daemon=True).start()


def read_all(peer: ssl.SSLSocket) -> None:
    with contextlib.suppress(OSError, ValueError):
        while peer.recv(1 << 16):
            pass


AFTER_LOGIN = [half_of_kafka, half_of_pulsar, half_of_tubemq, half_of_http]
BEFORE_LOGIN = [half_of_kafka_before_login, half_of_pulsar_before_login]
# The memory that bodies had is that of frames next.
BODIES_FIRST = [half_of_http, *BEFORE_LOGIN, half_of_kafka, half_of_pulsar, half_of_tubemq]
READERS = [fetch_old_data, take_messages, peek_messages]


@pytest.mark.parametrize("begin", [*AFTER_LOGIN, *BEFORE_LOGIN, *READERS, subscribe_key_shared])
def test_one_listener(
    node: SecuredServer,
    report: Report,
    begin: Callable[[SecuredServer, contextlib.ExitStack], None],
):
    with attack(node, report) as stack, contextlib.suppress(ConnectionError, ssl.SSLError):
        begin(node, stack)


@pytest.mark.parametrize(
    "every",
    [AFTER_LOGIN, BODIES_FIRST, READERS],
    ids=["halves", "halves, also before a login", "readers"],
)
def test_all_listeners_at_once(
    node: SecuredServer,
    report: Report,
    every: list[Callable[[SecuredServer, contextlib.ExitStack], None]],
):
    with attack(node, report) as stack:
        for begin in every:
            with contextlib.suppress(ConnectionError, ssl.SSLError):
                begin(node, stack)
