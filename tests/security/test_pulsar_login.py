"""Pulsar clients log in: the Python client by tokens and passwords, and renewals by hand."""

from __future__ import annotations

import json

import jwt
import pytest

from tests.security.live_node import LiveNode
from tests.waiting import wait_until
from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.broker.access.users import make_user

pulsar = pytest.importorskip("pulsar")

SECRET = "a secret of thirty-two bytes, or more"
OTHER = "another secret of more than thirty-two bytes"
SETTINGS = {"access.authenticate": "true", "access.authorize": "true"}
REFUSED_WITHIN_S = 2  # the client tries again until then
READ, WRITE, TOPIC = Operation.READ, Operation.WRITE, ResourceKind.TOPIC


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pulsar-login")
    key = folder / "token.key"
    key.write_text(SECRET)
    key.chmod(0o600)
    with LiveNode(folder, {**SETTINGS, "access.token-key": key}, ("pulsar",)) as live:
        live.make_topic("orders")
        for user in ("alice", "fred"):
            live.allow(user, WRITE, TOPIC, "public/default/orders")
            live.allow(user, READ, TOPIC, "public/default/orders")
        users = live.node.storage.broker.users
        live.write(users.plan_put(make_user("alice", b"wonder", live.node.now_ms(), key=live.key)))
        yield live


def token(node, user="alice", secret=SECRET, **claims):
    now_s = node.node.now_ms() // 1_000
    return jwt.encode({"sub": user, "iat": now_s, **claims}, secret, algorithm="HS256")


def connect(node, authentication=None, *, timeout_s=30):
    quiet = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    return pulsar.Client(
        f"pulsar://{node.doors['pulsar']}",
        authentication=authentication,
        operation_timeout_seconds=timeout_s,
        logger=quiet,
    )


def by_token(*parts, **claims):
    return pulsar.AuthenticationToken(token(*parts, **claims))


def by_password(user, password):
    return pulsar.AuthenticationBasic(user, password)


def failed_logins(node):
    if not node.audit_log.exists():
        return []
    lines = map(json.loads, node.audit_log.read_text().splitlines())
    return [line for line in lines if line["event"] == "login.failed"]


def send_one(client, topic="orders-partition-0"):
    producer = client.create_producer(topic)
    producer.send(b"hello")


@pytest.mark.parametrize("method", ["token", "basic"])
def test_a_user_logs_in_and_sends(node, method):
    right = by_token(node) if method == "token" else by_password("alice", "wonder")
    client = connect(node, right)
    send_one(client)
    client.close()


def wrong_credentials(node):
    now_s = node.node.now_ms() // 1_000
    return {
        "no credentials": None,
        "another key": by_token(node, secret=OTHER),
        "expired": by_token(node, exp=now_s - 60),
        "not yet valid": by_token(node, nbf=now_s + 60),
        "empty token": pulsar.AuthenticationToken(""),
        "no token": pulsar.AuthenticationToken("wonder"),
        "wrong password": by_password("alice", "wander"),
        "empty password": by_password("alice", ""),
        "unknown user": by_password("mallory", "wonder"),
    }


@pytest.mark.parametrize("case", list(range(9)))
def test_wrong_credentials_are_refused_with_one_line(node, case):
    name, authentication = list(wrong_credentials(node).items())[case]
    before = len(failed_logins(node))
    client = connect(node, authentication, timeout_s=REFUSED_WITHIN_S)

    with pytest.raises((pulsar.AuthenticationError, pulsar.Timeout)):
        send_one(client)

    client.close()
    lines = wait_until(lambda: failed_logins(node)[before:], f"a line about {name}")
    assert {line["protocol"] for line in lines} == {"pulsar"}
    assert not any(secret in json.dumps(lines) for secret in ("wonder", "wander", SECRET))


def test_a_topic_without_permission_is_refused(node):
    node.make_topic("secret")
    client = connect(node, by_token(node))
    with pytest.raises(pulsar.AuthorizationError):
        send_one(client, "secret-partition-0")
    client.close()


def test_the_token_of_a_deleted_user_is_refused_and_its_connection_ends(node):
    users = node.node.storage.broker.users
    node.put_user("fred", None)
    old = token(node, "fred", iat=node.node.now_ms() // 1_000 - 10)
    client = connect(node, pulsar.AuthenticationToken(old))
    producer = client.create_producer("orders-partition-0", send_timeout_millis=10_000)
    producer.send(b"before")
    gateway = node.node.gateways.pulsar
    assert [each.principal.name for each in gateway.connections].count("fred") >= 1

    node.write(users.plan_delete("fred", node.node.now_ms()))

    wait_until(
        lambda: "fred" not in [each.principal.name for each in gateway.connections],
        "the end of the session",
    )
    with pytest.raises(pulsar.PulsarException):
        producer.send(b"after")
    again = connect(node, pulsar.AuthenticationToken(old), timeout_s=REFUSED_WITHIN_S)
    with pytest.raises((pulsar.AuthenticationError, pulsar.Timeout)):
        send_one(again)
    again.close()
    client.close()


@pytest.mark.full
def test_a_client_renews_its_token_when_it_is_challenged(node):
    made = []

    def make():
        made.append(token(node, exp=node.node.now_ms() // 1_000 + 8))
        return made[-1]

    client = connect(node, pulsar.AuthenticationToken(make))
    producer = client.create_producer("orders-partition-0")
    wait_until(lambda: len(made) >= 3, "two renewals", timeout_s=100)
    producer.send(b"after the renewal")
    client.close()
