"""A secured server of one node or of several, and what its users may do by each protocol."""

from __future__ import annotations

import re
import socket
import ssl
import struct
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import httpx
import pulsar
from confluent_kafka import KafkaError, Producer

from tests.broker.access.test_users import Client as ScramClient
from tests.conformance.clients.kafka_tools import ToolOutput, Tools
from tests.conformance.clients.pulsar import ClientError, Process
from tests.conformance.clients.tubemq import Client, Out, connect
from tests.gateway.pulsar.rig import frame_of
from tests.server import Server
from tests.waiting import wait_until

LISTEN: Final = (
    "kafka-sasl-ssl", "pulsar-ssl", "https", "tubemq-master", "tubemq-broker"
)  # fmt: skip
ALLOWED, DENIED, NO_LOGIN = "allowed", "denied", "no login"
MECHANISM: Final = "SCRAM-SHA-512"
PARTITIONS: Final = 2
HEARTBEAT_MS: Final = 300
REQUEST_S: Final = 60.0
SILENT = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)


class SecuredNode:
    """The listeners of one node."""

    def __init__(self, data: Path, doors: Mapping[str, str]) -> None:
        self.data = data
        self.doors = doors
        self.authority = str(data / "tls" / "ca.pem")

    def request(
        self, method: str, path: str, login: tuple[str, str], **options: Any
    ) -> httpx.Response:
        url = f"https://{self.doors['https']}{path}"
        context = ssl.create_default_context(cafile=self.authority)
        return httpx.request(method, url, auth=login, verify=context, timeout=REQUEST_S, **options)

    def connect(self, listener: str) -> ssl.SSLSocket:
        host, _, port = self.doors[listener].rpartition(":")
        context = ssl.create_default_context(cafile=self.authority)
        plain = socket.create_connection((host, int(port)), timeout=REQUEST_S)
        return context.wrap_socket(plain, server_hostname=host)

    # -- whether a user may write, by each protocol

    def ask_kafka(self, login: tuple[str, str], topic: str) -> str:
        failures: list[str] = []
        outcomes: list[str] = []
        producer = Producer(
            {
                "bootstrap.servers": self.doors["kafka-sasl-ssl"],
                "security.protocol": "sasl_ssl",
                "ssl.ca.location": self.authority,
                "sasl.mechanism": MECHANISM,
                "sasl.username": login[0],
                "sasl.password": login[1],
                "log_level": 0,
                "error_cb": lambda error: failures.append(error.name()),
            }
        )
        for partition in range(PARTITIONS):
            producer.produce(
                topic,
                b"x",
                partition=partition,
                on_delivery=lambda error, _: outcomes.append(error.name() if error else ALLOWED),
            )
        refusal = KafkaError(KafkaError._AUTHENTICATION).name()
        wait_until(
            lambda: producer.poll(0.05) >= 0 and (len(outcomes) == 2 or refusal in failures),
            lambda: f"an outcome of {failures} {outcomes}",
        )
        producer.purge()
        if refusal in failures:
            return NO_LOGIN
        (outcome,) = set(outcomes)
        return DENIED if outcome == "TOPIC_AUTHORIZATION_FAILED" else outcome

    def ask_pulsar(self, login: tuple[str, str], topic: str) -> str:
        peer = self.log_in_to_pulsar(*login)
        if peer is None:
            return NO_LOGIN  # the library would try again and again, until its time is over
        peer.close()
        client = pulsar.Client(
            f"pulsar+ssl://{self.doors['pulsar-ssl']}",
            authentication=pulsar.AuthenticationBasic(*login),
            tls_trust_certs_file_path=self.authority,
            operation_timeout_seconds=60,
            logger=SILENT,
        )
        try:
            for partition in range(PARTITIONS):
                client.create_producer(f"{topic}-partition-{partition}").send(b"x")
        except pulsar.AuthorizationError:
            return DENIED
        finally:
            client.close()
        return ALLOWED

    def ask_http(self, login: tuple[str, str], topic: str) -> str:
        """A right to write is one to see the topic."""
        path = f"/admin/v2/persistent/public/default/{topic}/partitions"
        status = self.request("GET", path, login).status_code
        return {200: ALLOWED, 401: NO_LOGIN, 403: DENIED}[status]

    # -- sessions that stay open, without a library that would log in again

    def log_in_to_kafka(
        self, user: str, password: str, *, extension: str = "", mechanism: str = MECHANISM
    ) -> ssl.SSLSocket | None:
        """Return a connection that is logged in by SCRAM; None: the login was refused."""
        peer = self.connect("kafka-sasl-ssl")
        client = ScramClient(mechanism, user, password.encode())
        client.bare += extension
        _kafka(peer, 17, _text(mechanism))
        answer = b""
        for step in range(2):
            token = client.final(answer) if step else client.first()
            received = _kafka(peer, 36, struct.pack(">i", len(token)) + token)
            (code,) = struct.unpack_from(">h", received)
            if code:
                peer.close()
                return None
            (size,) = struct.unpack_from(">h", received, 2)
            at = 4 + max(size, 0)
            (length,) = struct.unpack_from(">i", received, at)
            answer = received[at + 4 : at + 4 + length]
        return peer

    def log_in_to_pulsar(self, user: str, password: str) -> ssl.SSLSocket | None:
        """Return a connection that is logged in by password; None: the login was refused."""
        peer = self.connect("pulsar-ssl")
        credentials = f"{user}:{password}".encode()
        peer.sendall(
            frame_of(
                "connect",
                client_version="test",
                protocol_version=21,
                auth_method_name="basic",
                auth_data=credentials,
            )
        )
        if b"Trilogue" in peer.recv(4_096):
            return peer
        peer.close()
        return None


class SecuredCluster:
    """A server with `--secure`, Kafka's tools as its administrator, and all its nodes."""

    def __init__(self, server: Server, nodes: int, tools: Tools, driver: Process) -> None:
        self.server, self.tools, self._driver = server, tools, driver
        found = [doors_of(server, number) for number in range(1, nodes + 1)]
        doors = found if nodes > 1 else [server.doors]
        self.nodes = [SecuredNode(server.data, each) for each in doors]
        self.first, self.last = self.nodes[0], self.nodes[-1]
        self.admin = ("admin", (server.data / "clients" / "admin.password").read_text().strip())
        self._web_token = (server.data / "tubemq-web-token").read_text().strip()
        self._javas: list[Client] = []

    def tool(self, main: str, *arguments: object, node: SecuredNode | None = None) -> ToolOutput:
        """Run a tool of Kafka's as the administrator, at the last node unless one is given."""
        config = self.server.data / "clients" / "kafka.properties"
        at = ["--bootstrap-server", (node or self.last).doors["kafka-sasl-ssl"]]
        done = self.tools.run(main, *at, "--command-config", config, *arguments)
        assert done.status == 0, done.text
        return done

    def change(self, node: SecuredNode, method: str, path: str, body: object = None) -> Any:
        done = node.request(method, path, self.admin, json=body)
        assert done.is_success, done.text
        return done.json() if done.content else None

    def web(self, node: SecuredNode, method: str, **params: str) -> Any:
        """Call a method of TubeMQ's web API as the administrator."""
        given = {"confModAuthToken": self._web_token, "createUser": "admin", "modifyUser": "admin"}
        params = {"method": method, **given, **params}
        response = node.request("GET", "/webapi.htm", self.admin, params=params)
        assert response.json()["result"], response.text
        return response.json()

    def put_user(self, name: str, password: str) -> tuple[str, str]:
        """Create a user with a password, and return its login."""
        self.change(self.first, "PUT", f"/trilogue/users/{name}", {"password": password})
        return name, password

    def make_topic(self, name: str) -> str:
        self.change(
            self.first, "PUT", f"/admin/v2/persistent/public/default/{name}/partitions", PARTITIONS
        )
        return name

    def java(self, login: tuple[str, str]) -> Client:
        """Return a client of TubeMQ's own Java library, which knows the masters of all nodes."""
        masters = ",".join(node.doors["tubemq-master"] for node in self.nodes)
        words = {"user": login[0], "password": login[1], "heartbeat_ms": HEARTBEAT_MS}
        self._javas.append(connect(self._driver, masters, attempts=1, **words))
        return self._javas[-1]

    def writes_by_tubemq(self, login: tuple[str, str], topic: str) -> bool:
        try:
            producer = self.java(login).producer(topic)
        except ClientError:
            return False
        return all(each.ok for each in producer.send(*[Out(topic, b"x")] * PARTITIONS))

    def ask_all(self, login: tuple[str, str], topic: str) -> set[str]:
        """Return the outcomes of a write by each protocol, at each node."""
        asks = [
            ask for each in self.nodes for ask in (each.ask_kafka, each.ask_pulsar, each.ask_http)
        ]
        with ThreadPoolExecutor(len(asks)) as pool:
            return set(pool.map(lambda ask: ask(login, topic), asks))

    def close(self) -> None:
        for client in self._javas:
            client.close()


def doors_of(server: Server, node_id: int) -> dict[str, str]:
    return dict(re.findall(rf"^node {node_id} (\S+) +(\S+)$", server.output, re.MULTILINE))


def _text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def _kafka(peer: ssl.SSLSocket, key: int, body: bytes) -> bytes:
    """Send a request of version 1 and return its response after the correlation id."""
    request = struct.pack(">hhi", key, 1, 7) + _text("test") + body
    peer.sendall(struct.pack(">i", len(request)) + request)
    (size,) = struct.unpack(">i", _receive(peer, 4))
    return _receive(peer, size)[4:]


def _receive(peer: ssl.SSLSocket, size: int) -> bytes:
    received = b""
    while len(received) < size:
        part = peer.recv(size - len(received))
        assert part, "the connection is closed"
        received += part
    return received


def has_ended(peer: ssl.SSLSocket) -> bool:
    """Wait for the end of a connection; what comes before it is no matter."""
    try:
        while peer.recv(4_096):
            pass
    except ConnectionError:
        pass
    except TimeoutError:
        return False
    return True
