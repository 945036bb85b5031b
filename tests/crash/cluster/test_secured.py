"""A secured cluster with `ack=shared` gives slots away and loses a node, under logins.

What was acknowledged is there once, in order, by TLS and login as well. At each step, each node
that lives lets a new user in by each protocol, refuses a wrong password, and refuses the user when
another node has deleted it.
"""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pulsar
import pytest

from tests.conformance.across.secured import (
    ALLOWED,
    HEARTBEAT_MS,
    LISTEN,
    MECHANISM,
    NO_LOGIN,
    PARTITIONS,
    SecuredNode,
)
from tests.conformance.clients.pulsar import ClientError, Process
from tests.conformance.clients.tubemq import Out, connect, driver_process
from tests.crash import load
from tests.crash.cluster.test_take_over import ACKS, PROTOCOLS, WAIT_S, SerialLoad
from tests.crash.ledger import Ledger, Verdict
from tests.crash.load import ConfluentLoad, create_topic, running
from tests.crash.pulsar.pulsar_load import PulsarLoad, verdict_of
from tests.crash.tubemq.tubemq_load import ALONE, PLACES
from tests.node.cluster.shared_cluster import SharedCluster
from tests.server import Server, run_trilogue
from tests.waiting import wait_until

LEDGER, EVENTS, ORDERS, TUBES = "ledger", "events", "orders", "tubes"
TOPICS = {LEDGER: PARTITIONS, EVENTS: PARTITIONS, ORDERS: PARTITIONS, TUBES: PARTITIONS}
PRODUCER = ("producer", "the password of the load")

pytestmark = [pytest.mark.long, pytest.mark.java, pytest.mark.timeout(900)]


class SecuredNodes:
    """Three secured nodes, the first of which has made the secrets."""

    def __init__(self, cluster: SharedCluster, driver: Process) -> None:
        self.cluster, self.driver = cluster, driver
        cluster.spread_after = "0s"
        self.servers = [self._launch(1).wait_ready(WAIT_S)]
        for node_id in (2, 3):
            folder = cluster.folder / f"node-{node_id}"
            folder.mkdir()
            shutil.copy(self.servers[0].data / "cluster.secret", folder)
        others = [self._launch(node_id) for node_id in (2, 3)]
        self.servers += [each.wait_ready(WAIT_S) for each in others]
        clients = self.servers[0].data / "clients"
        self.admin = "admin", (clients / "admin.password").read_text().strip()
        self.authority = str(self.servers[0].data / "tls" / "ca.pem")

    def _launch(self, node_id: int) -> Server:
        listen = dict.fromkeys(LISTEN, "127.0.0.1:0")
        listen |= dict.fromkeys(("kafka", "pulsar", "http"), "off")
        return self.cluster.launch(node_id, f"node-{node_id}", listen, ["--secure"])

    @property
    def living(self) -> list[SecuredNode]:
        return [SecuredNode(each.data, each.doors) for each in self.servers if each.alive]

    def addresses(self, listener: str) -> str:
        return ",".join(each.doors[listener] for each in self.servers)

    def kafka(self, login: tuple[str, str]) -> dict[str, object]:
        """Return settings of librdkafka."""
        return {
            "security.protocol": "sasl_ssl",
            "ssl.ca.location": self.authority,
            "sasl.mechanism": MECHANISM,
            "sasl.username": login[0],
            "sasl.password": login[1],
        }

    def change(self, node: SecuredNode, method: str, path: str, body: object = None) -> None:
        done = node.request(method, path, self.admin, json=body)
        assert done.is_success, done.text

    def put_user(self, node: SecuredNode, login: tuple[str, str], *topics: str) -> None:
        """Add a user who may write to topics."""
        self.change(node, "PUT", f"/trilogue/users/{login[0]}", {"password": login[1]})
        for topic in topics:
            path = f"/admin/v2/persistent/public/default/{topic}/permissions/{login[0]}"
            self.change(node, "POST", path, ["produce"])

    def _writes_by_tubemq(self, login: tuple[str, str]) -> bool:
        """Whether TubeMQ's Java client writes to all partitions, whose nodes it signs at."""
        masters = ",".join(each.doors["tubemq-master"] for each in self.living)
        words = {"user": login[0], "password": login[1], "heartbeat_ms": HEARTBEAT_MS}
        client = connect(self.driver, masters, attempts=1, **words)
        try:
            sent = client.producer(TUBES).send(*[Out(TUBES, b"x")] * 4)
            return all(each.ok for each in sent)
        except ClientError:
            return False
        finally:
            client.close()

    def outcomes(self, login: tuple[str, str]) -> set[str]:
        """Return the outcomes of a write by Kafka's, Pulsar's and HTTP's clients at each node."""
        nodes = self.living
        asks = [ask for each in nodes for ask in (each.ask_kafka, each.ask_pulsar, each.ask_http)]
        with ThreadPoolExecutor(len(asks)) as pool:
            return set(pool.map(lambda ask: ask(login, ORDERS), asks))

    def check_logins(self, name: str) -> float:
        """Add a user, try right and wrong passwords, and delete it.

        Returns how many seconds after that the last login began that a node still accepted.
        """
        login = (name, f"the password of {name}")
        nodes = self.living
        self.put_user(nodes[0], login, ORDERS, TUBES)
        wait_until(lambda: self.outcomes(login) == {ALLOWED}, "rights at each node", WAIT_S)
        wait_until(lambda: self._writes_by_tubemq(login), "rights by TubeMQ", WAIT_S)
        wrong = (name, "another password")
        assert self.outcomes(wrong) == {NO_LOGIN}
        assert not self._writes_by_tubemq(wrong)
        self.change(nodes[-1], "DELETE", f"/trilogue/users/{name}")
        began_s = time.monotonic()
        took_s = 0.0

        def is_refused(node: SecuredNode) -> bool:
            nonlocal took_s
            asked_s = time.monotonic()
            if node.ask_http(login, ORDERS) == NO_LOGIN:
                return True
            took_s = max(took_s, asked_s - began_s)
            return False

        for node in nodes:
            wait_until(lambda node=node: is_refused(node), "the end of a user", WAIT_S, every=0.05)
        assert self.outcomes(login) == {NO_LOGIN}
        assert not self._writes_by_tubemq(login)
        return took_s


@pytest.fixture
def nodes(cluster: SharedCluster) -> Iterator[SecuredNodes]:
    driver = driver_process()
    try:
        yield SecuredNodes(cluster, driver)
    finally:
        driver.stop()


class SecuredLoads:
    """A producer of each protocol with a login, and a ledger each."""

    def __init__(self, nodes: SecuredNodes, chance: random.Random) -> None:
        self.nodes = nodes
        self.ledgers = {each: Ledger(chance.randbytes(8)) for each in PROTOCOLS}
        kafka, admin = nodes.addresses("kafka-sasl-ssl"), nodes.kafka(nodes.admin)
        singles = [PLACES[place][0] for place in ALONE]
        for topic, count in {**TOPICS, **dict.fromkeys(singles, 1)}.items():
            create_topic(kafka, topic, count, admin)
        path = "/admin/v2/namespaces/public/default/deduplication"
        nodes.change(nodes.living[0], "POST", path, body=True)
        nodes.put_user(nodes.living[0], PRODUCER, LEDGER, EVENTS, *singles)
        seed = chance.randrange(10**6)
        trusted = {
            "authentication": pulsar.AuthenticationBasic(*PRODUCER),
            "tls_trust_certs_file_path": nodes.authority,
        }
        signed = {"user": PRODUCER[0], "password": PRODUCER[1]}
        ledgers = self.ledgers
        self.threads = [
            ConfluentLoad(
                kafka,
                LEDGER,
                PARTITIONS,
                ledgers["kafka"],
                number=1,
                seed=seed,
                more=nodes.kafka(PRODUCER),
            ),
            PulsarLoad(
                nodes.addresses("pulsar-ssl"),
                EVENTS,
                PARTITIONS,
                ledgers["pulsar"],
                number=1,
                seed=seed,
                more=trusted,
            ),
            SerialLoad(
                nodes.addresses("tubemq-master"),
                ledgers["tubemq"],
                number=1,
                seed=seed,
                more=signed,
            ),
        ]

    def wait_for_acks(self) -> None:
        """Wait until each protocol's producer got some more."""
        for ledger in self.ledgers.values():
            ledger.wait_for_acks(ACKS, WAIT_S)

    def verdicts(self) -> dict[str, Verdict]:
        """Return what a reader of Kafka finds of each protocol's messages."""
        at = self.nodes.living[0].doors["kafka-sasl-ssl"]
        admin = self.nodes.kafka(self.nodes.admin)
        kafka = load.full_read(at, LEDGER, PARTITIONS, admin)
        events = load.full_read(at, EVENTS, PARTITIONS, admin)
        tubes = {place: load.full_read(at, PLACES[place][0], 1, admin)[0] for place in ALONE}
        return {
            "kafka": self.ledgers["kafka"].verdict(kafka),
            "pulsar": verdict_of(self.ledgers["pulsar"], events, repeats=False)[0],
            "tubemq": self.ledgers["tubemq"].verdict(tubes),
        }


def test_a_secured_cluster_loses_nothing_and_keeps_its_logins(
    cluster: SharedCluster,
    nodes: SecuredNodes,
    chance: random.Random,
    report: Callable[[object], None],
):
    loads = SecuredLoads(nodes, chance)
    took_s = []
    with running(loads.threads):
        loads.wait_for_acks()
        took_s.append(nodes.check_logins("first"))
        for words in (("drain", "1"), ("rebalance",)):
            moved = run_trilogue("nodes", *words, "--cluster", cluster.url, timeout=WAIT_S)
            assert moved.returncode == 0, moved.stderr
            loads.wait_for_acks()
            took_s.append(nodes.check_logins(f"after-{words[0]}"))
        cluster.lose(nodes.servers[2])
        wait_until(lambda: cluster.count("slots WHERE node_id = 3") == 0, timeout_s=WAIT_S)
        loads.wait_for_acks()
        took_s.append(nodes.check_logins("after-the-loss"))
        loads.wait_for_acks()
    verdicts = loads.verdicts()
    refused = ", ".join(f"{each:.2f}" for each in took_s)
    report(f"{verdicts}; last logins of deleted users after {refused} s")
    assert [each.bad for each in verdicts.values()] == [{}] * len(PROTOCOLS), verdicts
    assert all(each.acked >= 2 * ACKS for each in verdicts.values())
    for server in nodes.servers[:2]:
        assert server.stop() == 0, server.output
