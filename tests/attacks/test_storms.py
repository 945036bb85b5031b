"""Connections and logins that come and go as fast as they can, at all listeners at once."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from itertools import count, cycle
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from tests.attacks.node import TLS_LISTENERS, WAIT_S, AttackedNode, Report, attack
from tests.attacks.peers import shake_hands
from tests.crash.hostile import Healthy, dial
from tests.security.test_kafka_logins import frame, receive, text

STORMS = 8  # threads of each kind
ROUNDS = [2, pytest.param(100, marks=[pytest.mark.long, pytest.mark.timeout(600)])]
LISTENERS = ("kafka", "pulsar", "tubemq-master", "tubemq-broker", "http")
PASSWORD = b"wonder"
LOGIN_CPU_S = 2.5  # a check that runs for another address, and this one's, beside handshakes
names = count()


class StormedNode(AttackedNode):
    """With a listener for logins."""

    door_names = (*AttackedNode.door_names, "kafka-sasl")

    def add_users(self, names: list[str]) -> None:
        admin = AdminClient({"bootstrap.servers": self.address})
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4_096)
        changes = [UserScramCredentialUpsertion(name, info, PASSWORD) for name in names]
        for future in admin.alter_user_scram_credentials(changes).values():
            future.result(WAIT_S)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[StormedNode]:
    made = StormedNode(tmp_path).start()
    yield made
    made.kill9()


def connect_and_reset(node: StormedNode) -> None:
    for listener in LISTENERS:
        peer = dial(node.doors[listener])
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.close()


def shake_hands_and_close(node: StormedNode) -> None:
    context = ssl.create_default_context(cafile=str(node.authority.certificate))
    for listener in TLS_LISTENERS:
        with contextlib.ExitStack() as stack:
            shake_hands(stack, node.doors[listener], context)


def log_in_wrongly(node: StormedNode) -> None:
    """By a name that no one has, as long as it may be."""
    assert try_login(node, f"{next(names)}{'x' * 200}", b"guess") != 0


def try_login(node: StormedNode, user: str, password: bytes, source: str = "127.0.0.1") -> int:
    """The error code of a login by PLAIN."""
    host, port = node.doors["kafka-sasl"].rsplit(":", 1)
    token = b"\0" + user.encode() + b"\0" + password
    with socket.create_connection((host, int(port)), WAIT_S, (source, 0)) as peer:
        peer.sendall(
            frame(17, 1, text("PLAIN")) + frame(36, 1, struct.pack(">i", len(token)) + token)
        )
        receive(peer)
        (code,) = struct.unpack_from(">h", receive(peer), 4)
        return int(code)


def begin_storm(
    node: StormedNode, stack: contextlib.ExitStack, work: Callable[[StormedNode], None], rounds: int
) -> list[threading.Thread]:
    def run() -> None:
        for _ in range(rounds):
            with contextlib.suppress(OSError):
                work(node)

    threads = [threading.Thread(target=run, daemon=True) for _ in range(STORMS)]
    for each in threads:
        each.start()
        stack.callback(each.join, WAIT_S)
    return threads


@pytest.mark.parametrize("rounds", ROUNDS)
def test_storms_of_connections_and_logins(node: StormedNode, report: Report, rounds: int):
    """A user logs in meanwhile, again and again, from another address."""
    node.add_users(["alice"])

    def log_in() -> None:
        assert try_login(node, "alice", PASSWORD, "127.0.0.4") == 0

    more = {"login": Healthy(node.pid, log_in, lambda: None)}
    with attack(node, report, most_s=0.0, cpu_s=LOGIN_CPU_S, more=more) as stack:
        storms = (connect_and_reset, shake_hands_and_close, log_in_wrongly)
        threads = [each for work in storms for each in begin_storm(node, stack, work, rounds)]
        for each in threads:
            each.join(WAIT_S)


@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.parametrize("users", [100, 1_000])
def test_users_that_log_in_at_once(node: StormedNode, report: Report, users: int):
    """Each by another name from one address; others log in meanwhile from another one.

    These are many, too: a password that was checked before is not checked again.
    """
    others = [f"user-{number}" for number in range(400)]
    node.add_users(others)
    turns = cycle(others)
    started = threading.Barrier(users + 1)

    def log_in() -> None:
        assert try_login(node, next(turns), PASSWORD, "127.0.0.4") == 0

    def log_in_at_once() -> None:
        started.wait(WAIT_S)
        with contextlib.suppress(OSError):
            log_in_wrongly(node)

    more = {"login": Healthy(node.pid, log_in, lambda: None)}
    with attack(node, report, most_s=0.0, cpu_s=LOGIN_CPU_S, more=more):
        threads = [threading.Thread(target=log_in_at_once, daemon=True) for _ in range(users)]
        for each in threads:
            each.start()
        started.wait(WAIT_S)
        for each in threads:
            each.join(WAIT_S)
