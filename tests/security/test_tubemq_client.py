"""Our TubeMQ client where clients have to log in and ACLs decide: every kind of credentials."""

from __future__ import annotations

import json

import pytest

from tests.security.live_node import LiveNode
from tests.waiting import wait_until
from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.client.errors import ClientError
from trilogue.client.tubemq import Message
from trilogue.client.tubemq.errors import NoMessage, TubeError
from trilogue.client.tubemq.sync import TubeClient

READ, WRITE = Operation.READ, Operation.WRITE
TOPIC, GROUP = ResourceKind.TOPIC, ResourceKind.GROUP
SETTINGS = {"access.authenticate": "true", "access.authorize": "true"}
LISTENERS = ("tubemq-master", "tubemq-broker")
WITHIN_S = 10.0  # at once; the next heartbeat comes after 13 s


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("secured")
    with LiveNode(folder, SETTINGS, LISTENERS) as node:
        node.put_user("external", None)
        yield node


@pytest.fixture
def node(shared):
    shared.put_user("alice", "wonder")
    return shared


def canonical(topic):
    return f"public/default/{topic}"


def grant(node, user, topic, group="readers"):
    for operation in (READ, WRITE):
        node.allow(user, operation, TOPIC, canonical(topic))
    node.allow(user, READ, GROUP, group)


def client(node, user="alice", password="wonder"):
    return TubeClient(node.doors["tubemq-master"], user=user, password=password)


def audit_lines(node):
    return [json.loads(line) for line in node.audit_log.read_text().splitlines()]


def test_a_user_with_the_rights_writes_and_reads(node):
    topic = node.make_topic("granted")
    grant(node, "alice", topic)

    with client(node) as tube, tube.producer(topic) as producer:
        producer.send(Message(topic, b"one"))
        with tube.consumer({topic: set()}, group="readers") as consumer:
            batch = consumer.get(10)
            assert [message.body for message in batch] == [b"one"]
            consumer.confirm(batch)


@pytest.mark.parametrize(
    ("user", "password", "advice"),
    [
        (None, None, "check the user and the password"),
        ("alice", "a guess", "check the user and the password"),
        ("alice", "", "check the user and the password"),
        ("bob", "wonder", "check the user and the password"),
        ("external", "wonder", "trilogue users set-password"),
    ],
    ids=["anonymous", "wrong", "empty", "unknown", "no signing password"],
)
def test_wrong_credentials_raise_at_once_and_advise_what_to_do(node, user, password, advice):
    topic = node.make_topic(f"refused-{user}-{password}".replace(" ", "-"))
    before = len(audit_lines(node))

    with client(node, user, password) as tube:
        for make in (tube.producer, lambda name: tube.consumer({name: set()}, group="readers")):
            with pytest.raises(TubeError, match=advice) as refused:
                make(topic)
            assert refused.value.err_code == 415

    lines = audit_lines(node)[before:]
    assert {line["event"] for line in lines} == {"login.failed"}
    assert {line["principal"] for line in lines} == {user or ""}
    assert {(line["protocol"], line["address"]) for line in lines} == {("tubemq", "127.0.0.1")}
    assert "wonder" not in str(lines)


@pytest.mark.parametrize("lacking", ["topic", "group"])
def test_a_consumer_needs_both_rights(node, lacking):
    topic = node.make_topic(f"half-{lacking}")
    if lacking == "topic":
        node.allow("alice", READ, GROUP, "halves")
    else:
        node.allow("alice", READ, TOPIC, canonical(topic))

    with (
        client(node) as tube,
        pytest.raises(TubeError, match=rf"read on {lacking}.*an administrator has to allow it"),
    ):
        tube.consumer({topic: set()}, group="halves" if lacking == "topic" else "others")


def test_a_producer_without_the_right_is_refused(node):
    topic = node.make_topic("readable")
    node.allow("alice", READ, TOPIC, canonical(topic))

    with client(node) as tube, pytest.raises(TubeError, match="write on topic"):
        tube.producer(topic)

    assert audit_lines(node)[-1]["resource"] == f"topic {canonical(topic)}"


def test_a_right_that_is_taken_away_ends_an_open_producer_within_a_second(node):
    topic = node.make_topic("withdrawn")
    grant(node, "alice", topic)
    with client(node) as tube, tube.producer(topic) as producer:
        producer.send(Message(topic, b"one"))

        node.withdraw("alice", WRITE, TOPIC, canonical(topic))

        with pytest.raises(TubeError, match="write on topic"):
            producer.send(Message(topic, b"two"))
        node.allow("alice", WRITE, TOPIC, canonical(topic))
        producer.send(Message(topic, b"three"))


def test_a_right_that_is_taken_away_ends_a_get_that_waits(node):
    topic = node.make_topic("waiting")
    grant(node, "alice", topic)
    node.put_user("bob", "builder")
    node.allow("bob", WRITE, TOPIC, canonical(topic))
    with (
        client(node, "bob", "builder") as writer,
        writer.producer(topic) as producer,
        client(node) as tube,
        tube.consumer({topic: set()}, group="readers") as consumer,
    ):
        with pytest.raises(NoMessage):
            consumer.get(0.5)
        node.withdraw("alice", READ, TOPIC, canonical(topic))
        producer.send(Message(topic, b"secret"))

        with pytest.raises(TubeError):
            consumer.get(2)


@pytest.mark.parametrize("how", ["deleted", "other password"])
def test_a_user_that_is_deleted_or_changed_is_out_within_a_second(node, how):
    topic = node.make_topic(f"changed-{how}".replace(" ", "-"))
    grant(node, "alice", topic)
    gateway = node.node.gateways.tubemq
    endpoints = (gateway.master_endpoint, gateway.broker_endpoint)
    with client(node) as tube, tube.producer(topic) as producer:
        producer.send(Message(topic, b"one"))
        before = [connection for each in endpoints for connection in each.connections]
        assert len(before) == 2

        if how == "deleted":
            node.delete_user("alice")
        else:
            node.put_user("alice", "another")

        wait_until(lambda: all(each.is_gone for each in before), timeout_s=WITHIN_S)
        with pytest.raises(ClientError):
            producer.send(Message(topic, b"two"))
        with pytest.raises(TubeError, match="415"), client(node) as again:
            again.producer(topic)


def test_a_topic_that_is_denied_leaves_the_others_of_a_producer(node):
    allowed, denied = node.make_topic("mine"), node.make_topic("theirs")
    grant(node, "alice", allowed)

    with client(node) as tube, tube.producer(allowed) as producer:
        with pytest.raises(TubeError, match="write on topic"):
            producer.publish(denied)

        producer.send(Message(allowed, b"one"))
