"""What hostile peers send: requests for everything, and halves of requests."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import threading
from collections.abc import Callable

from tests.crash.hostile import dial
from tests.crash.kafka.test_hostile import framed, head, text
from tests.crash.pulsar.test_hostile import CONNECT, TYPES, command
from tests.crash.tubemq.tubemq_reader import TubeLine
from trilogue.wire.pulsar.frame import encode_command
from trilogue.wire.pulsar.pulsar_pb2 import BaseCommand
from trilogue.wire.tubemq.frame import TOKEN

MIB = 1 << 20
FETCH_MAX = 55 * MIB
GROUPS = 12

# ---- requests for data


def fetch(offset: int, max_bytes: int = FETCH_MAX) -> bytes:
    body = struct.pack(">iiiib", -1, 100, 1, max_bytes, 0)
    body += struct.pack(">i", 1) + text("cold") + struct.pack(">iiqi", 1, 0, offset, max_bytes)
    return framed(head(1, 4) + body)


def read_most(peer: socket.socket) -> None:
    """Read a response but for its last MiB."""
    with contextlib.suppress(OSError):
        (size,) = struct.unpack(">i", peer.recv(4, socket.MSG_WAITALL))
        left = size - MIB
        while left > 0 and (piece := peer.recv(min(left, MIB))):
            left -= len(piece)


def give_all_permits(peer: socket.socket, subscription: str) -> None:
    """As a reader of Pulsar that takes all messages, and reads nothing."""
    reader = BaseCommand(type=TYPES["subscribe"])
    reader.subscribe.topic = "large"
    reader.subscribe.subscription = subscription
    reader.subscribe.subType = 0
    reader.subscribe.consumer_id = reader.subscribe.request_id = 1
    reader.subscribe.durable = False
    reader.subscribe.initialPosition = 1
    peer.sendall(CONNECT + encode_command(reader))
    for _ in ("connected", "success"):
        (size,) = struct.unpack(">I", peer.recv(4, socket.MSG_WAITALL))
        peer.recv(size, socket.MSG_WAITALL)
    peer.sendall(command("flow", consumer_id=1, messagePermits=2**31 - 1))


def send_gets(line: TubeLine, number: int) -> None:
    """As many consumers of TubeMQ over one connection: a get of each."""
    for group in range(GROUPS):
        response = line.request(
            "consumerRegisterC2B", opType=31, readStatus=0, **_member(number, group)
        )
        assert response.success, response.errMsg
    for group in range(GROUPS):
        line.send("getMessagesC2B", lastPackConsumed=False, **_member(number, group))


def _member(number: int, group: int) -> dict[str, object]:
    name = f"g{number}.{group}"
    client_id = f"{name}_192.0.2.7-1-1-1-Pull-1.13.0"
    return {"clientId": client_id, "groupName": name, "topicName": "tube", "partitionId": 0}


PEEK = (
    b"GET /admin/v2/persistent/public/default/large/examinemessage?initialPosition=earliest"
    b" HTTP/1.1\r\nHost: localhost\r\n\r\n"
)

# ---- halves of requests


def begin_kafka(size: int, sent: int) -> bytes:
    return struct.pack(">i", size) + head(0, 7) + bytes(sent)


def begin_tubemq(block: int) -> bytes:
    """One of two blocks."""
    return struct.pack(">Iiii", TOKEN, 1, 2, block) + bytes(block)


def begin_pulsar(size: int, sent: int) -> bytes:
    """A SEND whose message does not end."""
    return struct.pack(">II", size, size // 2) + bytes(sent)


def begin_http(size: int, sent: int) -> bytes:
    path = b"/admin/v2/persistent/public/default/large/properties"
    head_lines = b"PUT " + path + b" HTTP/1.1\r\nHost: localhost\r\n"
    head_lines += b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % size
    return head_lines + bytes(sent)


def send_in_parallel(
    stack: contextlib.ExitStack, address: str, count: int, half: bytes, *, first: bytes = b""
) -> None:
    """From so many connections, each as far as the server reads. `first` has one answer."""

    def send(peer: socket.socket) -> None:
        peer.settimeout(60)
        with contextlib.suppress(OSError):
            if first:
                peer.sendall(first)
                peer.recv(1 << 10)
            peer.sendall(half)

    for _ in range(count):
        peer = stack.enter_context(dial(address))
        threading.Thread(target=send, args=(peer,), daemon=True).start()


# ---- TLS


def shake_hands(
    stack: contextlib.ExitStack, address: str, context: ssl.SSLContext
) -> ssl.SSLSocket | None:
    """A connection whose handshake is complete; None where the server refused it."""
    raw = dial(address)
    try:
        return stack.enter_context(context.wrap_socket(raw, server_hostname="localhost"))
    except OSError:
        raw.close()
        return None


def send_what_fits(peer: socket.socket, content: bytes) -> None:
    peer.setblocking(False)
    with contextlib.suppress(OSError):  # SSLWantWriteError: the server does not read
        while content:
            content = content[peer.send(content) :]


# ---- connections that come and go


def open_and_close(address: str, count: int, first: bytes, *, after: Callable[[], object]) -> None:
    """So many connections at once, each answered once, and then all closed."""
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            peer = stack.enter_context(dial(address))
            peer.sendall(first)
            with contextlib.suppress(OSError):
                peer.recv(1)
        after()
