"""TubeMQ's own Java client where clients have to log in and ACLs decide."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.clients.pulsar import Process
from tests.conformance.clients.tubemq import Client, ClientError, Out, connect, driver_process
from tests.security.live_node import LiveNode
from tests.waiting import wait_until
from trilogue.broker.access.authorizer import Operation, ResourceKind

pytestmark = pytest.mark.java
READ, WRITE = Operation.READ, Operation.WRITE
TOPIC, GROUP = ResourceKind.TOPIC, ResourceKind.GROUP
HEARTBEAT_MS = 300
CERTIFICATE_FAILURE = 415
SETTINGS = {
    "access.authenticate": "true",
    "access.authorize": "true",
    "tubemq.consumer-timeout": "2s",
    "tubemq.reader-timeout": "2s",
    "tubemq.hold": "200ms",
}


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveNode]:
    names = ("tubemq-master", "tubemq-broker")
    with LiveNode(tmp_path_factory.mktemp("secured"), SETTINGS, names) as node:
        node.put_user("external", None)
        node.put_user("gone", "wonder")
        node.delete_user("gone")
        yield node


@pytest.fixture
def node(secured: LiveNode) -> LiveNode:
    secured.put_user("alice", "wonder")
    return secured


@pytest.fixture
def driver(tube_drivers: dict[str, Process]) -> Process:
    """The Java process that talks to servers of ours."""
    return tube_drivers.setdefault("trilogue", driver_process())


def log_in(
    node: LiveNode, driver: Process, user: str = "alice", password: str = "wonder"
) -> Client:
    words = {"user": user, "password": password} if user else {}
    master = node.doors["tubemq-master"]
    return connect(driver, master, heartbeat_ms=HEARTBEAT_MS, attempts=1, **words)


def grant(node: LiveNode, topic: str, *, group: str = "", write: bool = True) -> None:
    node.allow("alice", READ, TOPIC, f"public/default/{topic}")
    if write:
        node.allow("alice", WRITE, TOPIC, f"public/default/{topic}")
    if group:
        node.allow("alice", READ, GROUP, group)


def reads_nothing(client: Client, topic: str, group: str) -> bool:
    """Return whether a consumer is refused at once, or gets no partition."""
    try:
        consumer = client.pull(group, {topic: []})
    except ClientError:
        return True
    return not consumer.ready(1.5) and not consumer.positions


def test_a_user_with_the_rights_writes_and_reads(node: LiveNode, driver: Process):
    topic = node.make_topic("j-granted")
    grant(node, topic, group="javas")
    client = log_in(node, driver)
    client.producer(topic).sent(*(Out(topic, b"%d" % number) for number in range(5)))

    reads = client.pull("javas", {topic: []}).receive(5)

    assert [int(read.body) for read in reads] == [*range(5)]
    client.close()


@pytest.mark.parametrize(
    ("user", "password"),
    [("", ""), ("alice", "a guess"), ("bob", "wonder"), ("external", "wonder"), ("gone", "wonder")],
    ids=["anonymous", "wrong", "unknown", "no signing password", "deleted"],
)
def test_other_credentials_are_refused(node: LiveNode, driver: Process, user: str, password: str):
    topic = node.make_topic(f"j-refused-{user}-{len(password)}")
    grant(node, topic, group="javas")
    client = log_in(node, driver, user, password)

    with pytest.raises(ClientError):
        client.producer(topic)
    assert reads_nothing(client, topic, "javas")
    client.close()


def test_a_producer_without_the_right_sends_nothing(node: LiveNode, driver: Process):
    topic = node.make_topic("j-readable")
    grant(node, topic, write=False)
    client = log_in(node, driver)

    (refused,) = client.producer(topic).send(Out(topic, b"x"))

    assert not refused.ok
    client.close()


@pytest.mark.parametrize("lacking", ["topic", "group"])
def test_a_consumer_needs_both_rights(node: LiveNode, driver: Process, lacking: str):
    topic = node.make_topic(f"j-half-{lacking}")
    if lacking == "topic":
        node.allow("alice", READ, GROUP, "j-halves")
    else:
        grant(node, topic)
    client = log_in(node, driver)

    assert reads_nothing(client, topic, "j-halves" if lacking == "topic" else "j-others")
    client.close()


def test_a_right_that_is_taken_away_holds_for_an_open_producer(node: LiveNode, driver: Process):
    topic = node.make_topic("j-withdrawn")
    grant(node, topic)
    client = log_in(node, driver)
    producer = client.producer(topic)
    producer.sent(Out(topic, b"one"))

    node.withdraw("alice", WRITE, TOPIC, f"public/default/{topic}")

    (refused,) = producer.send(Out(topic, b"two"))
    assert (refused.ok, refused.code) == (False, CERTIFICATE_FAILURE)
    assert "write on topic" in refused.text
    client.close()


def test_a_deleted_user_loses_its_connections(node: LiveNode, driver: Process):
    topic = node.make_topic("j-deleted")
    grant(node, topic)
    client = log_in(node, driver)
    producer = client.producer(topic)
    producer.sent(Out(topic, b"one"))
    gateway = node.node.gateways.tubemq
    assert gateway is not None
    endpoints = (gateway.master_endpoint, gateway.broker_endpoint)
    before = [connection for each in endpoints for connection in each.connections]
    assert before

    node.delete_user("alice")

    wait_until(lambda: all(each.is_gone for each in before))
    (refused,) = producer.send(Out(topic, b"two"))
    assert not refused.ok
    client.close()
