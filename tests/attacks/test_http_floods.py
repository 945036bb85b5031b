"""Floods of HTTP: requests that are not read, bodies without an end, slow heads, WebSockets."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from tests.attacks.node import WAIT_S, AttackedNode, Report, attack
from tests.attacks.peers import send_in_parallel
from tests.brokers import make_topic
from tests.crash.hostile import dial
from tests.crash.kafka.test_hostile import Line
from trilogue.entry.entry import Codec, Record
from trilogue.entry.kafka.record_batch import build_batch

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]
CPU_S = 1.0
HOST = b" HTTP/1.1\r\nHost: localhost\r\n"
PIPELINED = 2_000
SECONDS = 15.0
RECORDS = 20_000
TEXT, BINARY, PING, PONG = 1, 2, 9, 10
FIN = 0x80

PATHS = {
    "health": b"GET /healthz",
    "metrics": b"GET /metrics",
    "unknown": b"GET /nothing/here",
    "clusters": b"GET /admin/v2/clusters",
    "statistics": b"GET /admin/v2/persistent/public/default/searched/stats",
    "console": b"GET /console/",
    "console topic": b"GET /console/topic?name=searched",
    "subjects": b"GET /schema-registry/subjects",
    "REST proxy": b"GET /kafka-rest/v3/clusters",
    "TubeMQ": b"GET /webapi.htm?method=admin_query_master_group_info",
    "lookup": b"GET /lookup/v2/topic/persistent/public/default/searched",
    "peek": b"GET /admin/v2/persistent/public/default/searched/examinemessage"
    b"?initialPosition=earliest",
}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AttackedNode]:
    made = AttackedNode(tmp_path_factory.mktemp("http")).start()
    make_topic(made.address, "searched", 1)
    records = [Record(each, 1_600_000_000_000, b"key", b"v" * 500) for each in range(1_000)]
    batch = build_batch(records, codec=Codec.NONE)
    with Line(made.address) as line:
        for _ in range(RECORDS // 1_000):
            assert line.produce("searched", batch) == 0
    yield made
    made.kill9()


@contextlib.contextmanager
def sending(
    stack: contextlib.ExitStack,
    node: AttackedNode,
    count: int,
    work: Callable[[socket.socket, threading.Event], None],
) -> Iterator[list[threading.Thread]]:
    """So many connections, each with a thread that sends until it is stopped."""
    stopping = threading.Event()
    stack.callback(stopping.set)

    def run(peer: socket.socket) -> None:
        with contextlib.suppress(OSError):
            work(peer, stopping)

    threads = []
    for _ in range(count):
        peer = stack.enter_context(dial(node.doors["http"]))
        peer.settimeout(WAIT_S)
        threads.append(threading.Thread(target=run, args=(peer,), daemon=True))
    for each in threads:
        each.start()
    yield threads


@pytest.mark.parametrize("is_read", [True, False], ids=["read", "unread"])
@pytest.mark.parametrize("name", PATHS)
def test_pipelined_requests(node: AttackedNode, report: Report, name: str, is_read: bool):
    content = (PATHS[name] + HOST + b"\r\n") * PIPELINED

    def flood(peer: socket.socket, stopping: threading.Event) -> None:
        threading.Thread(target=drain, args=(peer, is_read), daemon=True).start()
        while not stopping.is_set():
            peer.sendall(content)

    with attack(node, report, most_s=8.0, cpu_s=CPU_S) as stack:
        stack.enter_context(sending(stack, node, 100, flood))


def drain(peer: socket.socket, is_read: bool) -> None:
    with contextlib.suppress(OSError):
        while is_read and peer.recv(1 << 16):
            pass


@pytest.mark.parametrize("piece", [1, 1 << 10, 60 << 10], ids=["1 byte", "1 KiB", "60 KiB"])
@pytest.mark.parametrize(
    "path", ["/admin/v2/persistent/public/default/x/properties", "/kafka-rest/v3/clusters"]
)
def test_chunked_bodies_without_an_end(node: AttackedNode, report: Report, path: str, piece: int):
    head = b"POST " + path.encode() + HOST + b"Content-Type: application/json\r\n"
    chunk = b"%x\r\n" % piece + b" " * piece + b"\r\n"
    chunks = chunk * max(1, (256 << 10) // len(chunk))

    def flood(peer: socket.socket, stopping: threading.Event) -> None:
        peer.sendall(head + b"Transfer-Encoding: chunked\r\n\r\n")
        while not stopping.is_set():
            peer.sendall(chunks)

    with attack(node, report, most_s=8.0, cpu_s=CPU_S) as stack:
        stack.enter_context(sending(stack, node, 100, flood))


def test_slow_heads(node: AttackedNode, report: Report):
    """Four hundred connections that send a byte of a head every 50 ms."""

    def send_slowly(peer: socket.socket, stopping: threading.Event) -> None:
        peer.sendall(b"GET /healthz" + HOST)
        while not stopping.wait(0.05):
            peer.sendall(b"x")

    with attack(node, report, most_s=15.0, cpu_s=CPU_S) as stack:
        stack.enter_context(sending(stack, node, 400, send_slowly))
        time.sleep(5.0)  # by design: they go on


def test_heads_of_many_lines(node: AttackedNode, report: Report):
    """As many header lines as a head may have, and more."""

    def send_heads(peer: socket.socket, stopping: threading.Event) -> None:
        peer.sendall(b"GET /healthz" + HOST)
        while not stopping.is_set():
            peer.sendall(b"x: y\r\n" * 1_000)

    def send_names(peer: socket.socket, stopping: threading.Event) -> None:
        lines = b"".join(b"x-%d: y\r\n" % number for number in range(4_000))
        while not stopping.is_set():
            peer.sendall(b"GET /healthz" + HOST + lines + b"\r\n")
            peer.recv(1 << 16)

    with attack(node, report, most_s=8.0, cpu_s=CPU_S) as stack:
        stack.enter_context(sending(stack, node, 150, send_heads))
        stack.enter_context(sending(stack, node, 150, send_names))


def test_searches_of_the_console(node: AttackedNode, report: Report):
    """Forty searches at once through all messages of a topic, which find nothing."""
    request = b"GET /console/messages?name=searched&text=nowhere"

    def search(peer: socket.socket, stopping: threading.Event) -> None:
        while not stopping.is_set():
            peer.sendall(request + HOST + b"\r\n")
            peer.recv(1 << 16)

    with attack(node, report, most_s=SECONDS, cpu_s=CPU_S) as stack:
        stack.enter_context(sending(stack, node, 40, search))
        time.sleep(5.0)  # by design: they go on


def test_searches_that_are_not_read(node: AttackedNode, report: Report):
    request = b"GET /console/messages?name=searched&text=v" + HOST + b"\r\n"
    with attack(node, report, most_s=SECONDS, cpu_s=CPU_S) as stack:
        send_in_parallel(stack, node.doors["http"], 200, request * 50)


# ---- WebSockets


def masked(code: int, payload: bytes, *, is_last: bool = True) -> bytes:
    """A frame of a client; its mask is nothing."""
    head = bytes([code | (FIN if is_last else 0)])
    if len(payload) < 126:
        head += bytes([0x80 | len(payload)])
    elif len(payload) < 1 << 16:
        head += bytes([0x80 | 126]) + struct.pack(">H", len(payload))
    else:
        head += bytes([0x80 | 127]) + struct.pack(">Q", len(payload))
    return head + bytes(4) + payload


def upgrade(path: str) -> bytes:
    key = base64.b64encode(os.urandom(16))
    head = b"GET /ws/v2/" + path.encode() + HOST + b"Upgrade: websocket\r\nConnection: Upgrade\r\n"
    return head + b"Sec-WebSocket-Key: " + key + b"\r\nSec-WebSocket-Version: 13\r\n\r\n"


MESSAGE = json.dumps({"payload": base64.b64encode(b"x" * 100).decode()}).encode()
PRODUCE = "producer/persistent/public/default/flooded"
CONSUME = "consumer/persistent/public/default/searched/"
READ = "reader/persistent/public/default/searched?messageId=earliest"
FRAMES: dict[str, tuple[str, bytes]] = {
    "pings": (PRODUCE, masked(PING, b"x" * 125) * 500),
    "pongs": (PRODUCE, masked(PONG, b"") * 2_000),
    "tiny pieces": (
        PRODUCE,
        masked(TEXT, b"[", is_last=False) + masked(0, b"1,", is_last=False) * 10_000,
    ),
    "empty pieces": (PRODUCE, masked(0, b"", is_last=False) * 10_000),
    "messages": (PRODUCE, masked(TEXT, MESSAGE) * 200),
    "no JSON": (PRODUCE, masked(TEXT, b"no JSON") * 500),
    "large messages": (PRODUCE, masked(TEXT, b"[" * (4 << 20))),
    "nested JSON": (PRODUCE, masked(TEXT, b"[" * 100_000)),
    "binary": (PRODUCE, masked(BINARY, bytes(1 << 20))),
    "acks": (CONSUME + "flood", masked(TEXT, b'{"messageId":"CAAQADAA"}') * 500),
    "permits": (
        CONSUME + "f2?pullMode=true",
        masked(TEXT, b'{"type":"permit","permitMessages":1000}') * 100,
    ),
    "readers": (READ, masked(PING, b"")),
}


@pytest.mark.parametrize("is_read", [True, False], ids=["read", "unread"])
@pytest.mark.parametrize("name", FRAMES)
def test_websockets(node: AttackedNode, report: Report, name: str, is_read: bool):
    """Two hundred and fifty sessions that send without an end."""
    path, content = FRAMES[name]
    if name == "empty pieces":
        content = masked(TEXT, b"", is_last=False) + content

    def flood(peer: socket.socket, stopping: threading.Event) -> None:
        peer.sendall(upgrade(path))
        threading.Thread(target=drain, args=(peer, is_read), daemon=True).start()
        while not stopping.is_set():
            peer.sendall(content)

    with attack(node, report, most_s=10.0, cpu_s=CPU_S) as stack:
        stack.enter_context(sending(stack, node, 250, flood))
        time.sleep(3.0)  # by design: they go on
