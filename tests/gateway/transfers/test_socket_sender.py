"""Buffers sent to a socket by a thread: all of them in order, or as much as a slow peer accepts."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator

import pytest

from trilogue.gateway.transfers.socket_sender import drop_bytes, send_buffers

STALL_MS, LIMIT_MS = 20, 60_000


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    near, far = socket.socketpair()
    near.setblocking(False)
    with near, far:
        yield near, far


def read_all(far: socket.socket, received: bytearray) -> threading.Thread:
    def read() -> None:
        while data := far.recv(1 << 20):
            received.extend(data)

    thread = threading.Thread(target=read)
    thread.start()
    return thread


def test_buffers_of_all_kinds_arrive_in_order(pair):
    near, far = pair
    received = bytearray()
    reader = read_all(far, received)
    buffers = [os.urandom(3_000_000), b"", bytearray(b"abc"), memoryview(os.urandom(2_000_000))[7:]]

    sent = send_buffers(near.fileno(), buffers, 10_000, LIMIT_MS)
    near.close()
    reader.join()

    assert sent == sum(map(len, buffers))
    assert received == b"".join(buffers)


def test_more_buffers_than_a_system_call_accepts_arrive(pair):
    near, far = pair
    received = bytearray()
    reader = read_all(far, received)
    buffers = [number.to_bytes(4, "big") for number in range(3_000)]

    assert send_buffers(near.fileno(), buffers, 10_000, LIMIT_MS) == 12_000
    near.close()
    reader.join()

    assert received == b"".join(buffers)


def test_a_peer_that_does_not_read_ends_the_transfer(pair):
    near, far = pair
    buffers = [os.urandom(5_000_000), os.urandom(5_000_000)]

    sent = send_buffers(near.fileno(), buffers, STALL_MS, LIMIT_MS)
    near.close()
    received = bytearray()
    read_all(far, received).join()

    assert 0 < sent < 10_000_000
    assert received == b"".join(buffers)[:sent]


def test_a_transfer_has_a_limit_of_time(pair):
    near, _ = pair

    assert send_buffers(near.fileno(), [bytes(5_000_000)], LIMIT_MS, 10) < 5_000_000


def test_a_peer_that_closed_ends_the_transfer(pair):
    near, far = pair
    far.close()

    assert send_buffers(near.fileno(), [b"abc"], STALL_MS, LIMIT_MS) == 0


def test_bytes_behind_those_that_were_sent_remain():
    buffers = [b"abc", bytearray(b"de"), memoryview(b"fgh")]

    assert [b"".join(drop_bytes(buffers, count)) for count in (0, 3, 4, 8)] == [
        b"abcdefgh", b"defgh", b"efgh", b"",
    ]  # fmt: skip
