"""Peers that have not logged in, by the thousand."""

from __future__ import annotations

import ssl
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.attacks.node import TLS_LISTENERS, AttackedNode, Report, attack
from tests.attacks.peers import send_what_fits, shake_hands
from tests.crash.kafka.test_hostile import head
from trilogue.wire.tubemq.frame import TOKEN

MIB = 1 << 20
FEW, MANY = 50, 3_000
LONG = [pytest.mark.long, pytest.mark.timeout(300)]
SENT = bytes(500 << 10)
BEGUN = {
    "kafka-ssl": struct.pack(">i", 99 * MIB) + head(0, 7),
    "pulsar-ssl": struct.pack(">II", 511 << 10, 500 << 10),
    "tubemq-broker-ssl": struct.pack(">Iiii", TOKEN, 1, 1, 1 << 20),
    "https": b"POST /admin/v2/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n",
}


@pytest.fixture
def node(tmp_path: Path) -> Iterator[AttackedNode]:
    made = AttackedNode(tmp_path).start()
    yield made
    made.kill9()


@pytest.mark.parametrize(
    ("listeners", "count"),
    [(TLS_LISTENERS, FEW), *(pytest.param((each,), MANY, marks=LONG) for each in TLS_LISTENERS)],
)
def test_half_requests_over_tls(
    node: AttackedNode, report: Report, listeners: tuple[str, ...], count: int
):
    """Each peer shakes hands, begins a request of its protocol, and sends 500 KiB of it."""
    context = ssl.create_default_context(cafile=str(node.authority.certificate))
    with attack(node, report) as stack:
        for listener in listeners:
            for peer in [shake_hands(stack, node.doors[listener], context) for _ in range(count)]:
                if peer is not None:
                    send_what_fits(peer, BEGUN[listener] + SENT)
