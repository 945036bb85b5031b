"""A secured server of some nodes, real clients of it, and the judge of attacks on it."""

from __future__ import annotations

import base64
import contextlib
import ssl
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pulsar
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.attacks.node import CPU_MAX_S, GROWTH_MAX, WAIT_S, PeakMemory, Report, process_tree
from tests.attacks.peers import MIB
from tests.crash.hostile import Healthy, dial
from tests.crash.pulsar.pulsar_load import client
from tests.crash.pulsar.test_hostile import command
from tests.security.test_kafka_logins import frame, text
from tests.server import Server, start_server

PARTITIONS = 8


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
        processes = list(process_tree(self.server.pid))  # the nodes and their helpers, too
        return {
            each: Healthy(processes, request, close) for each, (request, close) in requests.items()
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
