"""Attacks on `serve --secure`, by one node and by two: over TLS, before and after a login."""

from __future__ import annotations

import base64
import contextlib
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pulsar
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.attacks.node import CPU_MAX_S, GROWTH_MAX, WAIT_S, PeakMemory, Report
from tests.attacks.peers import (
    FETCH_MAX,
    MIB,
    begin_http,
    begin_kafka,
    begin_pulsar,
    begin_tubemq,
)
from tests.crash.hostile import Healthy, dial
from tests.crash.kafka.test_hostile import framed, head
from tests.crash.pulsar.pulsar_load import client
from tests.crash.pulsar.test_hostile import TYPES, command
from tests.security.test_kafka_logins import frame, text
from tests.server import Server, start_server
from trilogue.wire.pulsar.frame import encode_command
from trilogue.wire.pulsar.pulsar_pb2 import BaseCommand

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]
PARTITIONS = 8
BATCH = bytes(900_000)
BATCHES = 66  # 57 MiB: more than one response


class SecuredServer:
    """A secured server of so many nodes; attacks and clients go to the listeners of the first."""

    def __init__(self, folder: Path, nodes: int) -> None:
        self.data, self.nodes = folder / "data", nodes
        self.server = self._start()
        self.authority = str(self.data / "tls" / "ca.pem")
        self.password = (self.data / "clients" / "admin.password").read_text().strip()
        self.context = ssl.create_default_context(cafile=self.authority)
        kafka = self.kafka_settings()
        admin = AdminClient(kafka)
        topics = [NewTopic(name, PARTITIONS) for name in ("cold", "healthy")]
        for made in admin.create_topics(topics).values():
            made.result(WAIT_S)
        self.partitions = {name: self._find_partition(admin, name) for name in ("cold", "healthy")}

    def _start(self) -> Server:
        return start_server(self.data, arguments=["--secure"], settings={"nodes": self.nodes})

    def restart(self) -> None:
        """Read from segments only."""
        assert self.server.stop() == 0
        self.server = self._start()

    def kafka_settings(self) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.server.doors["kafka-sasl-ssl"],
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "admin",
            "sasl.password": self.password,
            "ssl.ca.location": self.authority,
            "log_level": 0,
        }

    def _find_partition(self, admin: AdminClient, topic: str) -> int:
        """Return a partition of the node whose listeners are attacked."""
        found = admin.list_topics(topic, WAIT_S)
        port = int(self.server.doors["kafka-sasl-ssl"].rsplit(":", 1)[1])
        (node,) = [each.id for each in found.brokers.values() if each.port == port]
        leaders = found.topics[topic].partitions.values()
        return next(each.id for each in leaders if each.leader == node)

    @property
    def basic(self) -> bytes:
        return base64.b64encode(b"admin:" + self.password.encode())

    @property
    def connect(self) -> bytes:
        """The login of a Pulsar client."""
        login = f"admin:{self.password}".encode()
        return command(
            "connect",
            client_version="hostile",
            protocol_version=21,
            auth_method_name="basic",
            auth_data=login,
        )

    def open(self, stack: contextlib.ExitStack, listener: str) -> ssl.SSLSocket:
        raw = dial(self.server.doors[listener])
        return stack.enter_context(self.context.wrap_socket(raw, server_hostname="localhost"))

    def open_kafka(self, stack: contextlib.ExitStack) -> ssl.SSLSocket:
        """A connection that is logged in."""
        peer = self.open(stack, "kafka-sasl-ssl")
        token = b"\0admin\0" + self.password.encode()
        peer.sendall(frame(17, 1, text("PLAIN")))
        read_whole(peer)
        peer.sendall(frame(36, 1, struct.pack(">i", len(token)) + token))
        assert struct.unpack_from(">h", read_whole(peer), 4) == (0,)
        return peer

    def open_pulsar(self, stack: contextlib.ExitStack) -> ssl.SSLSocket:
        """A connection that is logged in."""
        peer = self.open(stack, "pulsar-ssl")
        peer.sendall(self.connect)
        assert read_whole(peer)
        return peer

    def healthy(self, stack: contextlib.ExitStack) -> dict[str, Healthy]:
        """Real clients of Kafka and Pulsar, and requests over HTTPS."""
        producer = Producer({**self.kafka_settings(), "linger.ms": 0})
        name, number = "healthy", self.partitions["healthy"]
        login = pulsar.AuthenticationBasic("admin", self.password)
        more = {"authentication": login, "tls_trust_certs_file_path": self.authority}
        opened = client(self.server.doors["pulsar-ssl"], more=more)
        writer = opened.create_producer(f"{name}-partition-{number}")
        web = stack.enter_context(
            httpx.Client(verify=self.context, auth=("admin", self.password), timeout=WAIT_S)
        )
        url = f"https://{self.server.doors['https']}/admin/v2/namespaces/public"

        def produce() -> None:
            producer.produce(name, b"value", partition=number)
            assert producer.flush(WAIT_S) == 0

        requests: dict[str, tuple[Callable[[], object], Callable[[], None]]] = {
            "Kafka": (produce, lambda: None),
            "Pulsar": (lambda: writer.send(b"value"), opened.close),
            "HTTP": (lambda: web.get(url).raise_for_status(), lambda: None),
        }
        return {
            each: Healthy(self.server.pid, request, close)
            for each, (request, close) in requests.items()
        }


def read_whole(peer: ssl.SSLSocket) -> bytes:
    """Return a frame without its size; `recv` of a TLS socket cannot wait for all of it."""
    stream = peer.makefile("rb", buffering=0)
    (size,) = struct.unpack(">i", _read(stream, 4))
    return _read(stream, size)


def _read(stream: Any, size: int) -> bytes:
    found = b""
    while len(found) < size:
        piece = stream.read(size - len(found))
        if not piece:
            raise ConnectionResetError
        found += piece
    return found


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


@contextlib.contextmanager
def attack(node: SecuredServer, report: Report) -> Iterator[contextlib.ExitStack]:
    """As that of nodes without security."""
    with contextlib.ExitStack() as clients:
        healthy = node.healthy(clients)
        for each in healthy.values():
            clients.enter_context(each)
            each.wait_for(3)
        with contextlib.ExitStack() as stack, PeakMemory(node.server.pid) as memory:
            yield stack
            memory.wait_until_steady(10.0)
            for each in healthy.values():
                each.wait_for(3)
        for each in healthy.values():
            each.wait_for(10)  # while the server ends what was opened
    figures = ", ".join(
        f"{name} {each.slowest:.2f} s ({each.busiest:.2f} s CPU)" for name, each in healthy.items()
    )
    report(f"+{memory.grown / MIB:.0f} MiB, slowest answers: {figures}")
    assert node.server.alive
    assert "Traceback" not in node.server.output
    assert memory.grown < GROWTH_MAX
    for name, each in healthy.items():
        assert each.busiest < CPU_MAX_S, name


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
