"""Probe a Kafka address over a plain socket: is it up, and does it advertise itself?

ApiVersions v0 and Metadata v1 (with at least one broker) are what a client needs before it can do
anything, so the moment both answer is "the first answer" of a start. Standard library only.
"""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import time
from pathlib import Path

API_VERSIONS, METADATA = 18, 3
LOOK_EVERY = 0.003
PROBE_S = 2.0  # for the answer of a server that may just be starting
PORTS = (11_000, 31_000)
_CHANCE = random.SystemRandom()
_given: set[int] = set()  # by this process


def call(address: str, key: int, version: int, body: bytes, timeout: float = 30.0) -> bytes:
    """One request with a header v1, its answer without the correlation id."""
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout) as connection:
        client_id = b"probe"
        frame = struct.pack(">hhih", key, version, 7, len(client_id)) + client_id + body
        connection.sendall(struct.pack(">i", len(frame)) + frame)
        (size,) = struct.unpack(">i", receive(connection, 4))
        return receive(connection, size)[4:]


def receive(connection: socket.socket, count: int) -> bytes:
    parts = bytearray()
    while len(parts) < count:
        part = connection.recv(count - len(parts))
        if not part:
            raise ConnectionResetError("closed in the middle of an answer")
        parts += part
    return bytes(parts)


def answers(address: str) -> bool:
    """Both questions are answered, and the second one names a broker."""
    try:
        (error,) = struct.unpack_from(">h", call(address, API_VERSIONS, 0, b"", PROBE_S))
        (brokers,) = struct.unpack_from(
            ">i", call(address, METADATA, 1, struct.pack(">i", 0), PROBE_S)
        )
    except OSError:
        return False
    return error == 0 and brokers >= 1


def wait_for_answer(address: str, pid: int, timeout: float = 60.0) -> float:
    """The monotonic time of the first answer; an error when the process ends or time runs out."""
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        if answers(address):
            return time.monotonic()
        if not Path(f"/proc/{pid}").exists() or process_state(pid) == "Z":
            raise RuntimeError(f"process {pid} ended before it answered")
        time.sleep(LOOK_EVERY)
    raise RuntimeError(f"{address} did not answer within {timeout} s")


def process_state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]


def own_time(*pids: int) -> float:
    """Monotonic seconds without the time in which the first thread of the processes, or the
    calling thread, was ready to run while another process had the core."""
    waited = sum(made_to_wait(str(pid)) for pid in pids)
    return time.monotonic() - waited - made_to_wait("thread-self")


def made_to_wait(task: str) -> float:
    """Seconds that a thread waited for its core, ready to run; 0 if the kernel does not count."""
    try:
        return int(Path(f"/proc/{task}/schedstat").read_text().split()[1]) / 1e9
    except OSError:  # the process ended, or a kernel without
        return 0.0


def free_port() -> int:
    """Return a port that is free, below those that the kernel gives to others' connections.

    A port that it gave itself could be another program's before a server listens to it.
    """
    while True:
        port = _CHANCE.randrange(*PORTS)
        if port in _given:
            continue
        with contextlib.suppress(OSError), socket.socket() as bound:
            bound.bind(("127.0.0.1", port))
            _given.add(port)
            return port
