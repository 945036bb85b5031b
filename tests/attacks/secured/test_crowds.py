"""Crowds of peers that attack a secured node over TLS: with an administrator's login, with that of
a user without any rights, and without a login."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from tests.attacks import test_http_floods as floods
from tests.attacks import test_pulsar_storms as storms
from tests.attacks import test_registrations as registrations
from tests.attacks.node import WAIT_S, Report
from tests.attacks.peers import send_in_parallel
from tests.attacks.secured.login_relay import LoginRelay
from tests.attacks.secured.server import SecuredServer, attack
from tests.attacks.test_bombs import bombs, pulsar_bombs
from tests.attacks.test_large_requests import REQUESTS
from tests.attacks.test_largest_requests import largest
from tests.attacks.test_members import join_streams_group
from tests.attacks.test_topic_lists import get_topics, watch_topics
from tests.attacks.test_tubemq_requests import make_requests, tubemq_request
from tests.crash.hostile import dial
from tests.crash.kafka.test_hostile import framed, head, old_bomb, produce
from tests.crash.pulsar.test_hostile import CONNECT, TYPES
from tests.security.test_kafka_logins import text
from trilogue.gateway.kafka.apis import TABLE
from trilogue.gateway.tubemq.methods import BROKER, MASTER

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
PASSWORD = "a user without rights"
LISTENERS = {
    "kafka": "kafka-sasl-ssl",
    "pulsar": "pulsar-ssl",
    "tubemq-master": "tubemq-master-ssl",
    "tubemq-broker": "tubemq-broker-ssl",
    "http": "https",
}
TOPICS = {"stormed": 1, "wide": registrations.WIDE, "searched": 1, "large": 1}
MESSAGES = 2_000


class Crowd:
    """What the attackers know: an address for each protocol, behind which is the secured node."""

    def __init__(self, doors: dict[str, str], user: str) -> None:
        self.doors = doors
        self.has_login, self.is_admin = bool(user), user == "admin"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredServer]:
    made = SecuredServer(tmp_path_factory.mktemp("crowds"), 1)
    admin = AdminClient(made.kafka_settings())
    for topic in admin.create_topics([NewTopic(*each) for each in TOPICS.items()]).values():
        topic.result(WAIT_S)
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4_096)
    user = UserScramCredentialUpsertion("mallory", info, PASSWORD.encode())
    for change in admin.alter_user_scram_credentials([user]).values():
        change.result(WAIT_S)
    producer = Producer(made.kafka_settings())
    for _ in range(MESSAGES):
        producer.produce("stormed", b"value", partition=0)
        producer.produce("searched", b"v" * 500, partition=0)
    assert producer.flush(WAIT_S) == 0
    yield made
    made.server.kill9()


@pytest.fixture(params=["admin", "mallory", ""], ids=["administrator", "no rights", "no login"])
def crowd(node: SecuredServer, request: pytest.FixtureRequest) -> Iterator[Crowd]:
    targets = {name: node.server.doors[listener] for name, listener in LISTENERS.items()}
    passwords = {"admin": node.password, "mallory": PASSWORD, "": ""}
    user = request.param
    with LoginRelay(targets, node.authority, user, passwords[user]) as relay:
        yield Crowd(relay.doors, user)


def send_and_read(stack: contextlib.ExitStack, address: str, contents: list[bytes]) -> None:
    """Send each over a connection of its own, all at once, and read what is answered."""

    def send(content: bytes) -> None:
        stack.enter_context(registrations.send_and_read(address, content, b""))

    threads = [threading.Thread(target=send, args=(each,), daemon=True) for each in contents]
    for each in threads:
        each.start()
    for each in threads:
        each.join(WAIT_S)


# ---- Pulsar


def storms_of_pulsar(crowd: Crowd, stack: contextlib.ExitStack) -> None:
    """Each kind of request from four clients with a producer and a consumer."""
    ledger = storms.find_ledger(crowd) if crowd.is_admin else 1
    requests = [make(client, ledger) for client, make in enumerate(storms.STORMS * 4)]
    firsts = [
        CONNECT + storms.subscribe(f"storm-{client}") + storms.open_producer()
        for client in range(len(requests))
    ]
    storms.send_all(stack, crowd.doors["pulsar"], requests, firsts, answers=3)


def registrations_of_pulsar(crowd: Crowd, stack: contextlib.ExitStack) -> None:
    contents = [
        CONNECT + b"".join(make(client, number) for number in range(10_000))
        for client, make in enumerate([*registrations.ATTACKS.values()] * 2)
    ]
    send_and_read(stack, crowd.doors["pulsar"], contents)


def lists_of_pulsar(crowd: Crowd, stack: contextlib.ExitStack) -> None:
    lists = b"".join(get_topics(each) for each in range(100))
    watches = b"".join(watch_topics(each) for each in range(32))
    for content in (lists, watches):
        send_in_parallel(stack, crowd.doors["pulsar"], 60, content, first=CONNECT)


# ---- Kafka


def requests_of_kafka(crowd: Crowd, stack: contextlib.ExitStack) -> None:
    contents = [make() for make in REQUESTS * 6]
    contents += [join_streams_group(f"streams-{each}", "member") for each in range(20)]
    send_and_read(stack, crowd.doors["kafka"], contents)


def largest_requests_of_kafka(crowd: Crowd, stack: contextlib.ExitStack) -> None:
    contents = [largest(api, 0, deep=False) for api in TABLE]
    send_and_read(stack, crowd.doors["kafka"], contents)


# ---- TubeMQ


def requests_of_tubemq(crowd: Crowd, stack: contextlib.ExitStack) -> None:
    """Each method, from two clients, with credentials that are not right."""
    methods = [("tubemq-master", each) for each in MASTER]
    methods += [("tubemq-broker", each) for each in BROKER]
    for listener, spec in methods:
        contents = [
            make_requests(
                lambda filler, spec=spec: tubemq_request(spec, filler), client, is_large=is_large
            )
            for client, is_large in enumerate((False, True))
        ]
        send_and_read(stack, crowd.doors[listener], contents)


# ---- HTTP


def floods_of_http(crowd: Crowd, stack: contextlib.ExitStack) -> None:
    """Requests in pipelines for each path, from ten clients."""
    for path in floods.PATHS.values():
        content = (path + floods.HOST + b"\r\n") * 200

        def flood(peer: socket.socket, stopping: threading.Event, content: bytes = content) -> None:
            threading.Thread(target=floods.drain, args=(peer, True), daemon=True).start()
            while not stopping.is_set():
                peer.sendall(content)

        stack.enter_context(floods.sending(stack, crowd, 10, flood))


def floods_of_websockets(crowd: Crowd, stack: contextlib.ExitStack) -> None:
    for path, content in floods.FRAMES.values():

        def flood(
            peer: socket.socket,
            stopping: threading.Event,
            path: str = path,
            content: bytes = content,
        ) -> None:
            peer.sendall(floods.upgrade(path))
            threading.Thread(target=floods.drain, args=(peer, True), daemon=True).start()
            while not stopping.is_set():
                peer.sendall(content)

        stack.enter_context(floods.sending(stack, crowd, 15, flood))


def test_attackers_reach_the_node(crowd: Crowd):
    """The answers that a login, a login without rights, and none get."""
    is_known = crowd.has_login
    with dial(crowd.doors["kafka"]) as peer:
        peer.sendall(framed(head(3, 1) + struct.pack(">i", 1) + text("stormed")))
        assert bool(peer.recv(1 << 16)) == is_known
    with dial(crowd.doors["pulsar"]) as peer:
        peer.sendall(CONNECT)
        (answer,) = peer.recv(1 << 16)[9:10]
        assert answer == (TYPES["connected"] if is_known else TYPES["error"])
    with dial(crowd.doors["http"]) as peer:
        peer.sendall(
            floods.PATHS["peek"].replace(b"searched", b"stormed-partition-0")
            + floods.HOST
            + b"\r\n"
        )
        status = b"200" if crowd.is_admin else b"403" if is_known else b"401"
        assert peer.recv(1 << 16).startswith(b"HTTP/1.1 " + status)


@pytest.mark.parametrize(
    "begin",
    [
        storms_of_pulsar,
        registrations_of_pulsar,
        lists_of_pulsar,
        requests_of_kafka,
        largest_requests_of_kafka,
        requests_of_tubemq,
        floods_of_http,
        floods_of_websockets,
    ],
)
def test_crowds(
    node: SecuredServer,
    crowd: Crowd,
    report: Report,
    begin: Callable[[Crowd, contextlib.ExitStack], None],
):
    with attack(node, report) as stack:
        begin(crowd, stack)


def test_producers_of_bombs(node: SecuredServer, crowd: Crowd, report: Report):
    """An administrator may fill the tail of the log with them, beside which they are judged."""
    if crowd.is_admin:
        pytest.skip("tests/attacks/test_bombs.py has it")
    kafka = b"".join(
        [*[produce("large", each) for each in bombs()], produce("large", old_bomb(), version=2)]
    )
    pulsar = b"".join(pulsar_bombs())
    with attack(node, report) as stack:
        send_in_parallel(stack, crowd.doors["kafka"], 60, kafka)
        send_in_parallel(stack, crowd.doors["pulsar"], 60, pulsar, first=CONNECT)
