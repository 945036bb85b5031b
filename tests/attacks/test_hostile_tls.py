"""TLS peers that cost CPU for each byte: KeyUpdates, tiny records, in floods from many at once."""

from __future__ import annotations

import contextlib
import struct
import threading
from collections.abc import Callable, Iterator

import pytest

from tests.attacks.node import AttackedNode, Report, attack
from tests.attacks.openssl_peer import (
    KEY_UPDATE_NOT_REQUESTED,
    KEY_UPDATE_REQUESTED,
    OpenSslPeer,
)

LONG = [pytest.mark.long, pytest.mark.timeout(400)]
ROUNDS = 20  # of records that each client sends
HALF_REQUEST = struct.pack(">i", 500_000)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AttackedNode]:
    made = AttackedNode(tmp_path_factory.mktemp("tls")).start()
    yield made
    made.kill9()


def request_key_updates(peer: OpenSslPeer) -> None:
    for _ in range(100):
        peer.update_keys(KEY_UPDATE_REQUESTED)


def update_keys(peer: OpenSslPeer) -> None:
    for _ in range(100):
        peer.update_keys(KEY_UPDATE_NOT_REQUESTED)


def update_keys_among_data(peer: OpenSslPeer) -> None:
    """As many KeyUpdates for each byte of a request as may be."""
    request_key_updates(peer)
    peer.send_data(b"\0")


def send_tiny_records(peer: OpenSslPeer) -> None:
    for _ in range(100):
        peer.send_data(b"\0")


FLOODS = [request_key_updates, update_keys, update_keys_among_data, send_tiny_records]
CASES = [
    (request_key_updates, 10),
    (update_keys_among_data, 10),
    *(pytest.param(each, 200, marks=LONG) for each in FLOODS),
]


def begin_flood(
    node: AttackedNode,
    stack: contextlib.ExitStack,
    add_records: Callable[[OpenSslPeer], None],
    clients: int,
) -> None:
    """Each client has its records ready, and sends them all at once."""

    def flood(peer: OpenSslPeer) -> None:
        with contextlib.suppress(OSError):
            peer.flush()

    peers = []
    for _ in range(clients):
        peer = OpenSslPeer(node.doors["kafka-ssl"], node.authority.certificate)
        stack.callback(peer.close)
        peer.send_data(HALF_REQUEST)
        for _ in range(ROUNDS):
            add_records(peer)
        peers.append(peer)
    threads = [threading.Thread(target=flood, args=(peer,), daemon=True) for peer in peers]
    for thread in threads:
        thread.start()
        stack.callback(thread.join, 60)


@pytest.mark.parametrize(("add_records", "clients"), CASES)
def test_floods_of_records(
    node: AttackedNode,
    report: Report,
    add_records: Callable[[OpenSslPeer], None],
    clients: int,
):
    with attack(node, report, most_s=1.0, cpu_s=1.0) as stack:
        begin_flood(node, stack, add_records, clients)
