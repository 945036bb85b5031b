"""The work of a refused login is the same for a user that exists and for one that does not.

The measure is the CPU time of this process, in which the node runs: it does not depend on what
else the machine does. Known and unknown users take turns.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import socket
import statistics
import struct
import time
from collections.abc import Callable, Iterator
from itertools import count

import pytest

from tests.gateway.pulsar.rig import frame_of
from tests.gateway.tubemq.rig import frame_of as frame_of_tubemq
from tests.security.live_node import LiveNode
from tests.security.test_kafka_logins import frame, receive, text
from trilogue.broker.access.scram import HASHES, make_verifier
from trilogue.broker.access.users import User, make_user
from trilogue.gateway import failed_logins

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

ROUNDS = 40
WARM = 5
DIFFERENCE_MAX = 0.25  # a check that is left out for one of the two is half of the work, or more
LISTENERS = ("kafka-sasl", "pulsar", "http", "tubemq-master", "tubemq-broker")
PRODUCER = {"clientId": "c", "brokerCheckSum": -1, "hostName": "h", "topicList": ["t"]}
CONSUMER = {
    "clientId": "c",
    "groupName": "g",
    "topicName": "t",
    "partitionId": 0,
    "opType": 31,
    "readStatus": 0,
    "currOffset": 0,
}
WAIT_S = 60.0
WRONG = b"guess"
Attempt = Callable[[LiveNode, str], None]
numbers = count()


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveNode]:
    settings = {"access.authenticate": "true"}
    with LiveNode(tmp_path_factory.mktemp("times"), settings, LISTENERS) as made:
        yield made


def make_full_user(node: LiveNode, name: str) -> User:
    return make_user(name, b"wonder", node.node.now_ms(), key=node.key)


def make_scram_user(node: LiveNode, name: str) -> User:
    """As `kafka-configs.sh` makes one."""
    verifiers = {mechanism: make_verifier(mechanism, b"wonder") for mechanism in HASHES}
    return User(name, node.node.now_ms(), verifiers)


def dial(node: LiveNode, listener: str) -> socket.socket:
    host, port = node.doors[listener].rsplit(":", 1)
    return socket.create_connection((host, int(port)), WAIT_S)


def authenticate(peer: socket.socket, token: bytes) -> tuple[int, bytes]:
    """Return the error code of a SaslAuthenticate, and the token of the answer."""
    peer.sendall(frame(36, 1, struct.pack(">i", len(token)) + token))
    answer = receive(peer)
    (code, length) = struct.unpack_from(">hh", answer, 4)
    at = 8 + max(length, 0)
    (size,) = struct.unpack_from(">i", answer, at)
    return code, answer[at + 4 : at + 4 + size]


def try_plain(node: LiveNode, user: str) -> None:
    with dial(node, "kafka-sasl") as peer:
        peer.sendall(frame(17, 1, text("PLAIN")))
        receive(peer)
        assert authenticate(peer, b"\0" + user.encode() + b"\0" + WRONG)[0] == 58


def try_scram(mechanism: str) -> Attempt:
    proof = base64.b64encode(bytes(int(mechanism[-3:]) // 8)).decode()

    def attempt(node: LiveNode, user: str) -> None:
        with dial(node, "kafka-sasl") as peer:
            peer.sendall(frame(17, 1, text(mechanism)))
            receive(peer)
            code, first = authenticate(peer, f"n,,n={user},r=nonce".encode())
            assert code == 0
            nonce = first.decode().split(",")[0]
            assert authenticate(peer, f"c=biws,{nonce},p={proof}".encode())[0] == 58

    return attempt


def try_pulsar(node: LiveNode, user: str) -> None:
    with dial(node, "pulsar") as peer:
        peer.sendall(
            frame_of(
                "connect",
                client_version="guess",
                protocol_version=21,
                auth_method_name="basic",
                auth_data=user.encode() + b":" + WRONG,
            )
        )
        answer = b""
        while part := peer.recv(4_096):
            answer += part
        assert b"wrong" in answer


def try_http(node: LiveNode, user: str) -> None:
    host, port = node.doors["http"].rsplit(":", 1)
    credentials = base64.b64encode(user.encode() + b":" + WRONG).decode()
    connection = http.client.HTTPConnection(host, int(port), timeout=WAIT_S)
    with contextlib.closing(connection):
        headers = {"Authorization": f"Basic {credentials}"}
        connection.request("GET", "/admin/v2/clusters", headers=headers)
        assert connection.getresponse().status == 401


def try_tubemq_master(node: LiveNode, user: str) -> None:
    stamp = {"userName": user, "timestamp": node.node.now_ms(), "nonce": next(numbers)}
    signed = {**stamp, "othParams": "", "signature": "d3Jvbmc="}
    refused(
        node,
        "tubemq-master",
        frame_of_tubemq(1, "producerRegisterP2M", **PRODUCER, authInfo={"authInfo": signed}),
    )


def try_tubemq_broker(node: LiveNode, user: str) -> None:
    text = f"{user} {node.node.now_ms()} {next(numbers)} d3Jvbmc="
    info = {"visitAuthorizedToken": 0, "authAuthorizedToken": text}
    refused(
        node,
        "tubemq-broker",
        frame_of_tubemq(1, "consumerRegisterC2B", **CONSUMER, authInfo=info),
    )


def refused(node: LiveNode, listener: str, request: bytes) -> None:
    """Send a request of TubeMQ whose signature is wrong."""
    with dial(node, listener) as peer:
        peer.sendall(request)
        answer = b""
        while b"or the signature is wrong" not in answer:
            part = peer.recv(4_096)
            assert part, answer
            answer += part


ATTEMPTS: dict[str, Attempt] = {
    "Kafka PLAIN": try_plain,
    **{f"Kafka {each}": try_scram(each) for each in HASHES},
    "Pulsar basic": try_pulsar,
    "HTTP basic": try_http,
    "TubeMQ master": try_tubemq_master,
    "TubeMQ broker": try_tubemq_broker,
}
KINDS: dict[str, Callable[[LiveNode, str], User]] = {
    "all secrets": make_full_user,
    "SCRAM": make_scram_user,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ATTEMPTS)
def test_an_unknown_user_costs_as_much_as_a_known_one(node, report, monkeypatch, name, kind):
    monkeypatch.setattr(failed_logins, "FAILURES_MAX", 10**6)  # each is checked
    attempt = ATTEMPTS[name]
    users = node.node.storage.broker.users
    known = [f"user-{next(numbers):05}" for _ in range(ROUNDS + WARM)]
    for each in known:
        node.write(users.plan_put(KINDS[kind](node, each)))
    times: dict[str, list[float]] = {"known": [], "unknown": []}

    for each in known:
        for which, user in (("known", each), ("unknown", f"none-{next(numbers):05}")):
            began = time.process_time()
            attempt(node, user)
            times[which].append(time.process_time() - began)

    median = {which: statistics.median(each[WARM:]) for which, each in times.items()}
    report(f"{median['known'] * 1e3:.2f} ms, unknown {median['unknown'] * 1e3:.2f} ms")
    assert median["known"] == pytest.approx(median["unknown"], rel=DIFFERENCE_MAX)
