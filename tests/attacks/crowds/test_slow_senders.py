"""Honest clients that send large requests slowly, many at once: each of them is answered."""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.attacks.node import AttackedNode, Report, attack
from tests.attacks.peers import MIB
from tests.crash.kafka.test_hostile import framed, head

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]
CLIENTS = 8
SIZE = 16 * MIB  # two have room at a time
RATE = 2 * MIB  # bytes a second: a request takes longer than others wait with patience
PIECE = 128 << 10
TRIES = 5  # on a machine that is busy with other work, where a client is slower than it means to be
WAIT_S = 300.0
REQUEST = framed(head(0, 7) + struct.pack(">hhii", -1, 1, 10_000, 0) + bytes(SIZE))


@pytest.fixture
def node(tmp_path: Path) -> Iterator[AttackedNode]:
    made = AttackedNode(tmp_path, **{"connections.received-memory": "48MiB"}).start()
    yield made
    made.kill9()


def send_slowly(node: AttackedNode, number: int) -> int:
    """Return how often the connection was closed before the request was answered."""
    host, port = node.address.rsplit(":", 1)
    for closed in range(TRIES):
        with socket.socket() as peer, contextlib.suppress(ConnectionError):
            peer.settimeout(WAIT_S)
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, PIECE)
            peer.bind((f"127.0.1.{number + 1}", 0))
            peer.connect((host, int(port)))
            for at in range(0, len(REQUEST), PIECE):
                peer.sendall(REQUEST[at : at + PIECE])
                time.sleep(PIECE / RATE)  # by design: it is a slow client
            if peer.recv(4):
                return closed
    raise AssertionError(f"client {number} was not answered in {TRIES} tries")


def test_slow_senders_that_wait_for_each_other(node: AttackedNode, report: Report):
    with attack(node, report, most_s=0.0), ThreadPoolExecutor(CLIENTS) as pool:
        closed = list(pool.map(lambda number: send_slowly(node, number), range(CLIENTS)))
    report(f"closed before the end, by client: {closed}")
