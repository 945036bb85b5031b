"""What closed connections held is free within a minute, at every listener."""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from tests.attacks.node import AttackedNode, Report, memory_bytes
from tests.attacks.peers import shake_hands
from tests.crash.hostile import dial
from tests.crash.kafka.test_hostile import framed, head
from tests.crash.pulsar.test_hostile import CONNECT
from tests.crash.tubemq.tubemq_reader import TubeLine
from tests.waiting import wait_until

MIB = 1 << 20
ROUNDS = 4
LEFT_MAX = 30 * MIB
HTTP_MAX = 450  # of one address
GROUPS = 3_000  # of TubeMQ

Opener = Callable[[contextlib.ExitStack, AttackedNode], None]

numbers = count(1)


def send(peer: socket.socket, content: bytes) -> None:
    peer.sendall(content)
    assert peer.recv(1)


def open_kafka(stack: contextlib.ExitStack, node: AttackedNode) -> None:
    send(stack.enter_context(dial(node.address)), framed(head(18, 0)))


def open_kafka_over_tls(stack: contextlib.ExitStack, node: AttackedNode) -> None:
    context = ssl.create_default_context(cafile=str(node.authority.certificate))
    peer = shake_hands(stack, node.doors["kafka-ssl"], context)
    if peer is not None:
        send(peer, framed(head(18, 0)))


def open_pulsar(stack: contextlib.ExitStack, node: AttackedNode) -> None:
    send(stack.enter_context(dial(node.doors["pulsar"])), CONNECT)


def open_tubemq(stack: contextlib.ExitStack, node: AttackedNode) -> None:
    """A consumer of a group of its own."""
    line = stack.enter_context(TubeLine(node.doors["tubemq-broker"]))
    name = f"g{next(numbers) % GROUPS}"  # whose position stays, as data does
    response = line.request(
        "consumerRegisterC2B",
        opType=31,
        readStatus=0,
        clientId=f"{name}_192.0.2.7-1-1-1-Pull-1.13.0",
        groupName=name,
        topicName="healthy",
        partitionId=0,
    )
    assert response.success, response.errMsg


def open_http(stack: contextlib.ExitStack, node: AttackedNode) -> None:
    host, port = node.doors["http"].rsplit(":", 1)
    peer = http.client.HTTPConnection(host, int(port), timeout=60)
    stack.callback(peer.close)
    peer.request("GET", "/admin/v2/persistent/public/default")
    peer.getresponse().read()


OPENERS: list[tuple[Opener, int]] = [
    (open_kafka, 3_000),
    (open_kafka_over_tls, 3_000),
    (open_pulsar, 3_000),
    (open_tubemq, 3_000),
    (open_http, HTTP_MAX),
]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[AttackedNode]:
    made = AttackedNode(tmp_path).start()
    yield made
    made.kill9()


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("open_one", "connections"), OPENERS)
def test_memory_of_closed_connections_is_free_within_a_minute(
    node: AttackedNode, report: Report, open_one: Opener, connections: int
):
    """Those of the last round are open while the garbage collector freezes what lives."""
    with contextlib.ExitStack() as stack:
        open_one(stack, node)
    before = memory_bytes(node.pid)
    for number in range(ROUNDS):
        with contextlib.ExitStack() as stack:
            for _ in range(connections):
                open_one(stack, node)
            opened = memory_bytes(node.pid) - before
            if number == ROUNDS - 1:
                time.sleep(66.0)  # by design: the collector runs each minute
    closed_s = time.monotonic()
    wait_until(
        lambda: memory_bytes(node.pid) - before < LEFT_MAX,
        lambda: f"+{(memory_bytes(node.pid) - before) / MIB:.0f} MiB of {opened / MIB:.0f}",
        66.0,
    )
    took_s = time.monotonic() - closed_s
    left = memory_bytes(node.pid) - before
    report(f"+{opened / MIB:.0f} MiB open, +{left / MIB:.0f} MiB {took_s:.0f} s later")
