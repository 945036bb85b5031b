"""Many clients that request everything and read nothing, or that send half of a large request.

Memory of the server stays within its budgets (connections.unsent-memory and -received-memory, with
what every connection may have), whatever protocol the clients speak, and a well-behaved client that
reads the same old data is answered within a second all the time. What closed connections held is
free within a minute.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

import pulsar
import pytest

from tests.brokers import OurServer, make_topic
from tests.conformance.raw import batch_of
from tests.crash.hostile import Healthy, dial, resident
from tests.crash.kafka.test_hostile import Line, framed, head, text
from tests.crash.pulsar.pulsar_load import client, closing
from tests.crash.pulsar.test_hostile import CONNECT, TYPES, command
from tests.crash.tubemq.tubemq_reader import TubeLine, TubeReader
from tests.waiting import wait_until
from trilogue.wire.pulsar.frame import encode_command
from trilogue.wire.pulsar.pulsar_pb2 import BaseCommand
from trilogue.wire.tubemq.frame import TOKEN

MIB = 1 << 20
GROWTH_MAX = 400 * MIB
ANSWER_WITHIN_S = 2.0  # alone 0.9 at most; other tests run beside it
BATCH = 900_000
BATCHES = 66  # 57 MiB: more than one response
ATTACK_S = 8.0
STEADY_S = 3.0
FETCH_MAX = 55 * MIB

Report = Callable[[object], None]


class EveryListener(OurServer):
    """A server with all listeners."""

    door_names = ("kafka", "pulsar", "tubemq-master", "tubemq-broker", "http")


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> EveryListener:
    """A server that is stopped, with data of each protocol in segments alone."""
    made = EveryListener(tmp_path_factory.mktemp("bounds") / "data")
    made.start()
    for topic in ("cold", "tube", "healthy"):
        make_topic(made.doors["kafka"], topic, 1)
    with Line(made.address) as line:
        batch = batch_of(bytes(BATCH))
        for _ in range(BATCHES):
            assert line.produce("cold", batch) == 0
    writer = TubeReader(made.doors["tubemq-broker"], "c", topic="tube")
    for _ in range(BATCHES):
        writer.send(bytes(1000 << 10))
    writer.line.close()
    with closing(client(made.doors["pulsar"])) as opened:
        producer = opened.create_producer("large", compression_type=pulsar.CompressionType.NONE)
        for _ in range(12):
            producer.send(bytes(5 * MIB - 2_000))
    assert made.stop() == 0
    return made


@pytest.fixture
def server(stored: EveryListener) -> Iterator[EveryListener]:
    stored.start()
    yield stored
    stored.kill9()


class Memory(threading.Thread):
    """The most memory that a process had, beyond what it had at first."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.pid, self.before, self.highest = pid, resident(pid), 0
        self.grew_at = time.monotonic()
        self.stopping = threading.Event()

    def run(self) -> None:
        while not self.stopping.wait(0.02):
            now = resident(self.pid)
            if now > self.highest:
                self.highest, self.grew_at = now, time.monotonic()

    def wait_until_steady(self, most_s: float) -> None:
        """Wait until it has not grown for STEADY_S, `most_s` at most: then it has what it takes."""
        until = time.monotonic() + most_s
        while min(until, self.grew_at + STEADY_S) > time.monotonic():
            time.sleep(0.1)  # by design: the attack goes on

    @property
    def grown(self) -> int:
        return max(0, self.highest - self.before)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopping.set()
        self.join()


def fetch(offset: int, max_bytes: int) -> bytes:
    body = struct.pack(">iiiib", -1, 100, 1, max_bytes, 0)
    body += struct.pack(">i", 1) + text("cold") + struct.pack(">iiqi", 1, 0, offset, max_bytes)
    return framed(head(1, 4) + body)


def reader_of_old_data(server: EveryListener) -> Healthy:
    """Fetches one old batch after the other."""
    line, offsets = Line(server.address), iter(range(1 << 30))

    def request() -> None:
        assert len(line.request(fetch(next(offsets) % BATCHES, 1_000))) > BATCH

    return Healthy(server.pid, request, line.close)


@contextlib.contextmanager
def attack(
    server: EveryListener, report: Report, *, growth: int = GROWTH_MAX, seconds: float = ATTACK_S
) -> Iterator[contextlib.ExitStack]:
    """What is opened in the block stays open until memory is steady, `seconds` at most.

    Then memory and the other client are judged.
    """
    with (
        Memory(server.pid) as memory,
        reader_of_old_data(server) as healthy,
        contextlib.ExitStack() as stack,
    ):
        yield stack
        healthy.wait_for(3)
        memory.wait_until_steady(seconds)
        healthy.wait_for(3)
    grown, slowest = memory.grown / MIB, healthy.slowest
    report(f"+{grown:.0f} MiB, slowest {slowest:.2f} s of {healthy.sent} answers")
    assert server.running.alive
    assert "Traceback" not in server.output
    assert memory.grown < growth
    assert healthy.slowest < ANSWER_WITHIN_S


# ---- clients that do not read


@pytest.mark.parametrize("count", [120, pytest.param(200, marks=pytest.mark.long)])
def test_kafka_fetches_of_old_data(server: EveryListener, report: Report, count: int):
    with attack(server, report) as stack:
        for _ in range(count):
            stack.enter_context(dial(server.address)).sendall(fetch(0, FETCH_MAX) * 3)


def test_kafka_responses_that_are_read_up_to_the_last_part(server: EveryListener, report: Report):
    """All of a response is kept until its last part was read: it is one buffer."""
    with attack(server, report, seconds=4.0) as stack:
        peers = [stack.enter_context(dial(server.address)) for _ in range(60)]
        for peer in peers:
            peer.sendall(fetch(0, FETCH_MAX))
        for peer in peers:
            read_most(peer)


def read_most(peer: socket.socket) -> None:
    with contextlib.suppress(OSError):
        (size,) = struct.unpack(">i", peer.recv(4, socket.MSG_WAITALL))
        left = size - MIB
        while left > 0 and (piece := peer.recv(min(left, MIB))):
            left -= len(piece)


def test_pulsar_permits(server: EveryListener, report: Report):
    with attack(server, report) as stack:
        for number in range(120):
            peer = stack.enter_context(dial(server.doors["pulsar"]))
            request_everything(peer, f"slow-{number}")


def request_everything(peer: socket.socket, subscription: str) -> None:
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


def test_tubemq_gets(server: EveryListener, report: Report):
    """Each connection has gets of many groups: their messages are read in parallel."""
    with attack(server, report) as stack:
        for number in range(120):
            line = stack.enter_context(TubeLine(server.doors["tubemq-broker"]))
            for group in range(12):
                response = line.request(
                    "consumerRegisterC2B", opType=31, readStatus=0, **member(number, group)
                )
                assert response.success, response.errMsg
            for group in range(12):
                line.send("getMessagesC2B", lastPackConsumed=False, **member(number, group))


def member(number: int, group: int) -> dict[str, object]:
    name = f"g{number}.{group}"
    client_id = f"{name}_192.0.2.7-1-1-1-Pull-1.13.0"
    return {"clientId": client_id, "groupName": name, "topicName": "tube", "partitionId": 0}


def test_http_bodies(server: EveryListener, report: Report):
    path = "/admin/v2/persistent/public/default/large/examinemessage?initialPosition=earliest"
    request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    with attack(server, report) as stack:
        for _ in range(120):
            stack.enter_context(dial(server.doors["http"])).sendall(request)


# ---- half of a request


def send_half(stack: contextlib.ExitStack, address: str, count: int, half: bytes) -> None:
    """In parallel, each as far as the server reads."""

    def send(peer: socket.socket) -> None:
        peer.settimeout(60)
        with contextlib.suppress(OSError):
            peer.sendall(half)

    threads = []
    for _ in range(count):
        peer = stack.enter_context(dial(address))
        threads.append(threading.Thread(target=send, args=(peer,), daemon=True))
        threads[-1].start()


def test_half_of_a_tubemq_request(server: EveryListener, report: Report):
    block = 9 * MIB
    half = struct.pack(">Iiii", TOKEN, 1, 2, block) + bytes(block)  # and a second one
    with attack(server, report, seconds=15.0) as stack:
        send_half(stack, server.doors["tubemq-broker"], 30, half)


def test_60_of_99_mib_of_a_kafka_request(server: EveryListener, report: Report):
    half = struct.pack(">i", 99 * MIB) + head(0, 7) + bytes(60 * MIB)
    with attack(server, report, seconds=15.0) as stack:
        send_half(stack, server.address, 16, half)


def test_whole_large_requests_beside_half_ones_are_served(server: EveryListener, report: Report):
    """A request of 14 MiB is received, although others hold all memory for such requests."""
    half = struct.pack(">i", 99 * MIB) + head(0, 7) + bytes(60 * MIB)
    garbage = framed(head(0, 7) + struct.pack(">hhii", -1, 1, 10_000, 0) + bytes(14 * MIB))
    with attack(server, report, seconds=1.0) as stack:
        send_half(stack, server.address, 16, half)
        with Line(server.address) as line:
            for _ in range(5):
                line.request(garbage)


# ---- closed connections


@pytest.mark.long
@pytest.mark.timeout(240)
def test_memory_of_closed_connections_is_free_within_a_minute(tmp_path: Path, report: Report):
    with_room = {"connections.per-address": 20_000, "connections.limit": 20_000}
    made = EveryListener(tmp_path / "data", settings=with_room)
    made.start()
    try:
        before = resident(made.pid)
        request = framed(head(18, 0))
        with contextlib.ExitStack() as stack:
            for number in range(12_000):
                host, port = made.address.rsplit(":", 1)
                source = (f"127.0.1.{1 + number // 3_000}", 0)
                peer = socket.create_connection((host, int(port)), 10, source)
                stack.enter_context(peer)
                peer.sendall(request)
                assert peer.recv(4)
            opened = resident(made.pid) - before
            time.sleep(66.0)  # by design: the collector runs each minute
        closed_s = time.monotonic()
        wait_until(
            lambda: resident(made.pid) - before < 100 * MIB,
            lambda: f"+{(resident(made.pid) - before) / MIB:.0f} MiB of {opened / MIB:.0f}",
            60.0,
        )
        took_s = time.monotonic() - closed_s
        left = resident(made.pid) - before
        report(f"+{opened / MIB:.0f} MiB open, +{left / MIB:.0f} MiB {took_s:.0f} s later")
    finally:
        made.kill9()
