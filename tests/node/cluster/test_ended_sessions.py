"""A user's sessions at each node end soon after one node has changed its password, or deleted it.

The sessions are librdkafka's and those of Pulsar's library, one for each partition.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pulsar
import pytest
from confluent_kafka import Producer

from tests.conformance.across.secured import (
    LISTEN,
    MECHANISM,
    SILENT,
    SecuredNode,
    doors_of,
)
from tests.crash.load import running
from tests.crash.parts import Part
from tests.node.cluster.test_secured import Cluster
from tests.postgres import PostgresServer
from tests.server import start_server
from tests.waiting import wait_until

SIZE = 3
WAIT_S = 60.0
SOON_S = 5.0  # a second on a machine of its own
QUIET_S = 2.0  # without an acknowledgement: longer than a pause of a node that is busy
TOPIC, PASSWORD, OTHER = "sessions", "the first password", "the second password"
USER = "/trilogue/users/alice"

pytestmark = [pytest.mark.full, pytest.mark.timeout(300)]


class Session(Part):
    """Sends to one partition, and knows when the last acknowledgement came."""

    acked_s = 0.0

    def __init__(self, node: SecuredNode, partition: int, password: str) -> None:
        super().__init__()
        self.node, self.partition, self.password = node, partition, password

    def acked(self) -> None:
        self.acked_s = time.monotonic()


class KafkaSession(Session):
    def run(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self.node.doors["kafka-sasl-ssl"],
                "security.protocol": "sasl_ssl",
                "ssl.ca.location": self.node.authority,
                "sasl.mechanism": MECHANISM,
                "sasl.username": "alice",
                "sasl.password": self.password,
                "log_level": 0,
            }
        )
        while not self.stopping.wait(0.02):
            producer.produce(TOPIC, b"x", partition=self.partition, on_delivery=self.delivered)
            producer.poll(0)
        producer.purge()

    def delivered(self, error: object, _message: object) -> None:
        if error is None:
            self.acked()


class PulsarSession(Session):
    def run(self) -> None:
        client = pulsar.Client(
            f"pulsar+ssl://{self.node.doors['pulsar-ssl']}",
            authentication=pulsar.AuthenticationBasic("alice", self.password),
            tls_trust_certs_file_path=self.node.authority,
            operation_timeout_seconds=60,
            logger=SILENT,
        )
        producer = client.create_producer(
            f"{TOPIC}-partition-{self.partition}", send_timeout_millis=1_000
        )
        try:
            while not self.stopping.wait(0.02):
                producer.send(b"x")
                self.acked()
        except pulsar.PulsarException:
            pass  # its time for a message is over
        finally:
            client.close()


@pytest.fixture
def several(tmp_path: Path) -> Iterator[list[SecuredNode]]:
    """`serve --nodes 3`."""
    listen = dict.fromkeys(LISTEN[:3], "127.0.0.1:0")
    data = tmp_path / "data"
    with start_server(data, listen=listen, arguments=["--secure"], nodes=SIZE) as server:
        yield [SecuredNode(data, doors_of(server, each)) for each in range(1, SIZE + 1)]


@pytest.fixture
def machines(tmp_path: Path, postgres_server: PostgresServer) -> Iterator[list[SecuredNode]]:
    """`serve --cluster`, three times."""
    cluster = Cluster(tmp_path, postgres_server)
    try:
        cluster.start_secured(SIZE)
        yield cluster.nodes
    finally:
        for server in cluster.servers.values():
            server.kill9()


def end_s(node: SecuredNode, password: str, end: Callable[[], None]) -> float:
    """Return when the last acknowledgement of sessions at all nodes came, seconds after `end`."""
    sessions: Sequence[Session] = [
        kind(node, each, password) for kind in (KafkaSession, PulsarSession) for each in range(SIZE)
    ]
    with running(list[threading.Thread](sessions)):
        wait_until(lambda: all(each.acked_s for each in sessions), "acknowledgements", WAIT_S)
        end()
        ended_s = time.monotonic()
        wait_until(
            lambda: time.monotonic() - max(each.acked_s for each in sessions) > QUIET_S,
            "no acknowledgements",
            WAIT_S,
        )
    return max(each.acked_s for each in sessions) - ended_s


@pytest.mark.parametrize("where", ["several", "machines"])
def test_sessions_at_all_nodes_end_soon(
    where: str, request: pytest.FixtureRequest, report: Callable[[object], None]
):
    nodes: list[SecuredNode] = request.getfixturevalue(where)
    first, last = nodes[0], nodes[-1]
    login = "admin", (first.data / "clients" / "admin.password").read_text().strip()

    def administer(method: str, path: str, body: object = None) -> None:
        done = first.request(method, path, login, json=body)
        assert done.is_success, done.text

    topic = f"/admin/v2/persistent/public/default/{TOPIC}"
    administer("PUT", f"{topic}/partitions", SIZE)
    administer("PUT", USER, {"password": PASSWORD})
    administer("POST", f"{topic}/permissions/alice", ["produce"])
    changed_s = end_s(
        last, PASSWORD, lambda: administer("POST", f"{USER}/password", {"password": OTHER})
    )
    deleted_s = end_s(last, OTHER, lambda: administer("DELETE", USER))
    report(f"last acknowledgements {changed_s:.2f} and {deleted_s:.2f} s after the answer")
    assert changed_s < SOON_S
    assert deleted_s < SOON_S
