"""Hundreds of guesses at once at Kafka's and Pulsar's listeners: few are checked."""

from __future__ import annotations

import json
import socket
import struct
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import httpx
import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tests.gateway.pulsar.rig import frame_of
from tests.security.live_node import LiveNode
from tests.security.test_kafka_logins import frame, receive, text
from tests.waiting import wait_until
from trilogue.broker.access.users import make_user
from trilogue.gateway.address_turns import AddressTurns
from trilogue.gateway.authentication import TOO_MANY_AT_ONCE
from trilogue.gateway.failed_logins import (
    FAILURES_MAX,
    FAILURES_PER_S,
    TOO_MANY_FAILURES_OF_USER,
    key_of_user,
)
from trilogue.wire.pulsar.pulsar_pb2 import BaseCommand, ServerError

pulsar = pytest.importorskip("pulsar")

PASSWORD = "wonder"
GUESSES = 200

pytestmark = [pytest.mark.full, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    folder = tmp_path_factory.mktemp("guesses")
    settings = {"access.authenticate": "true"}
    with LiveNode(folder, settings, ("kafka-sasl", "pulsar", "http")) as live:
        live.make_topic("orders")
        users = live.node.storage.broker.users
        for name in ("alice", "bob", "carol"):
            user = make_user(name, PASSWORD.encode(), live.node.now_ms(), key=live.key)
            live.write(users.plan_put(user))
        yield live


def connect_all(address: str) -> list[socket.socket]:
    return [open_peer(address) for _ in range(GUESSES)]


def kafka_client(node, user, mechanism="PLAIN"):
    return AdminClient(
        {
            "bootstrap.servers": node.doors["kafka-sasl"],
            "security.protocol": "sasl_plaintext",
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": PASSWORD,
        }
    )


def pulsar_client(node, user, timeout_s=60):
    return pulsar.Client(
        f"pulsar://{node.doors['pulsar']}",
        authentication=pulsar.AuthenticationBasic(user, PASSWORD),
        operation_timeout_seconds=timeout_s,
        logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
    )


def reasons(node, user):
    lines = map(json.loads, node.audit_log.read_text().splitlines())
    return Counter(
        line["reason"]
        for line in lines
        if line["event"] == "login.failed" and line["principal"] == user
    )


def guess_at_kafka(node, user):
    peers = connect_all(node.doors["kafka-sasl"])
    for number, peer in enumerate(peers):
        token = f"\0{user}\0guess {number}".encode()
        peer.sendall(
            frame(17, 1, text("PLAIN")) + frame(36, 1, struct.pack(">i", len(token)) + token)
        )
    for peer in peers:
        receive(peer)
        # A password that had to wait too long, on a slow machine, is not called wrong.
        if peer.recv(1, socket.MSG_PEEK):
            assert struct.unpack_from(">h", receive(peer), 4) == (58,)
        assert peer.recv(1) == b"", "the connection is closed"
        peer.close()


def guess_at_pulsar(node, user):
    peers = connect_all(node.doors["pulsar"])
    for number, peer in enumerate(peers):
        credentials = f"{user}:guess {number}".encode()
        peer.sendall(
            frame_of(
                "connect",
                client_version="guess",
                protocol_version=21,
                auth_method_name="basic",
                auth_data=credentials,
            )
        )
    for peer in peers:
        answer = b""
        while part := peer.recv(4_096):
            answer += part
        assert b"login" in answer or b"wrong" in answer
        peer.close()


@pytest.mark.parametrize("user", ["alice", "mallory"], ids=["known", "unknown"])
@pytest.mark.parametrize("guess", [guess_at_kafka, guess_at_pulsar])
def test_of_hundreds_of_guesses_at_once_few_are_checked(node, guess, user):
    before, began = reasons(node, user), time.monotonic()

    guess(node, user)

    failed = reasons(node, user) - before
    took_s = time.monotonic() - began
    unchecked = failed[TOO_MANY_FAILURES_OF_USER] + failed[TOO_MANY_AT_ONCE]
    assert failed.total() == GUESSES
    assert GUESSES - unchecked <= FAILURES_MAX + FAILURES_PER_S * took_s + 1
    other = pulsar_client(node, "bob")
    other.create_producer("orders-partition-0").send(b"x")
    other.close()
    assert kafka_client(node, "bob").list_topics(timeout=60).topics


def test_a_user_with_many_failures_is_refused_at_every_listener(node):
    key = key_of_user("carol", "127.0.0.1")
    failures = node.node.access.authenticator._failures
    for _ in range(FAILURES_MAX + 120 * int(FAILURES_PER_S)):  # enough for two minutes
        failures.count(key)

    for mechanism in ("PLAIN", "SCRAM-SHA-256"):
        with pytest.raises(KafkaException):
            kafka_client(node, "carol", mechanism).list_topics(timeout=1)
        assert kafka_client(node, "bob", mechanism).list_topics(timeout=60).topics
    locked = pulsar_client(node, "carol", timeout_s=2)
    with pytest.raises((pulsar.AuthenticationError, pulsar.Timeout)):
        locked.create_producer("orders-partition-0")
    locked.close()
    overview = f"http://{node.doors['http']}/admin/v2/clusters"
    assert httpx.get(overview, auth=("carol", PASSWORD)).status_code == 429
    assert httpx.get(overview, auth=("bob", PASSWORD)).status_code == 200
    assert reasons(node, "carol").keys() == {TOO_MANY_FAILURES_OF_USER}

    failures._counts.clear()  # as time does
    assert kafka_client(node, "carol", "SCRAM-SHA-512").list_topics(timeout=60).topics


@contextmanager
def without_room(node):
    """No login has room to wait for a check of its password, until the block ends."""
    authenticator = node.node.access.authenticator
    usual = authenticator._turns

    async def replace(turns):
        authenticator._turns = turns

    full = AddressTurns(0, waiting_of_address_max=0)
    authenticator._remembered.clear()
    node.run(replace(full))
    try:
        yield
    finally:
        node.run(replace(usual))


def list_topics(node, user):
    assert kafka_client(node, user).list_topics(timeout=60).topics


def send(node, user):
    client = pulsar.Client(
        f"pulsar://{node.doors['pulsar']}",
        authentication=pulsar.AuthenticationBasic(user, PASSWORD),
        operation_timeout_seconds=60,
        logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
    )
    client.create_producer("orders-partition-0").send(b"x")
    client.close()


@pytest.mark.parametrize("use", [list_topics, send])
def test_a_client_whose_password_had_to_wait_too_long_tries_again(node, use):
    """As those of many users behind one address, which log in at once."""
    before = reasons(node, "bob")[TOO_MANY_AT_ONCE]
    with ThreadPoolExecutor(1) as pool:
        with without_room(node):
            used = pool.submit(use, node, "bob")
            wait_until(lambda: reasons(node, "bob")[TOO_MANY_AT_ONCE] > before, "a refusal", 60)
        used.result(60)


def test_a_password_without_room_is_not_called_wrong(node):
    """Java's clients give up after an error of authentication, and come back after these."""
    token = f"\0bob\0{PASSWORD}".encode()
    request = frame(17, 1, text("PLAIN")) + frame(36, 1, struct.pack(">i", len(token)) + token)
    connect = frame_of(
        "connect",
        client_version="test",
        protocol_version=21,
        auth_method_name="basic",
        auth_data=f"bob:{PASSWORD}".encode(),
    )
    with without_room(node):
        kafka, broker = (open_peer(node.doors[each]) for each in ("kafka-sasl", "pulsar"))
        with kafka, broker:
            kafka.sendall(request)
            receive(kafka)  # of the handshake
            assert kafka.recv(1) == b"", "the connection is closed"
            broker.sendall(connect)
            error = read_command(broker).error
    assert (error.error, error.message) == (ServerError.ServiceNotReady, TOO_MANY_AT_ONCE)


def open_peer(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=60)


def read_command(peer: socket.socket) -> BaseCommand:
    """Read one command without a payload."""
    size = struct.unpack(">II", peer.recv(8, socket.MSG_WAITALL))[1]
    command = BaseCommand()
    command.ParseFromString(peer.recv(size, socket.MSG_WAITALL))
    return command


def test_a_request_over_http_whose_password_has_no_room_may_be_sent_again(node):
    overview = f"http://{node.doors['http']}/admin/v2/clusters"
    with without_room(node):
        refused = httpx.get(overview, auth=("bob", PASSWORD))
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
    assert httpx.get(overview, auth=("bob", PASSWORD)).status_code == 200
