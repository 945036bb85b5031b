"""Hostile and stalled clients of both TubeMQ listeners.

Throughout, memory stays within bounds, a well-behaved client gets its responses, and the log has
about one line for each hostile client.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.brokers import TrilogueForTubeMQ, make_topic
from tests.crash.hostile import Healthy, check_server, dial, exchange, resident
from tests.crash.tubemq.tubemq_reader import TubeLine, TubeReader
from tests.gateway.tubemq.rig import frame_of, send_frame
from trilogue.wire.tubemq.frame import TOKEN, encode_frame

ROUNDS = 10
MIB = 1 << 20
SLOW = 100
GROUPS = 300  # each of them has a get held by one connection
LISTENERS = ["tubemq-master", "tubemq-broker"]
LARGE = 1000 << 10
BUFFERED_MAX = 2 * SLOW * LARGE + (32 << 20)  # two responses a connection, and what all share
MANY_MAX = 400 << 20  # for 100,000 registrations, each with a position that is durable
SUCCESS, FORBIDDEN, UNAVAILABLE = 200, 403, 503

Report = Callable[[object], None]


def head(blocks: int, *lengths: int, token: int = TOKEN) -> bytes:
    return struct.pack(f">Iii{len(lengths)}i", token, 1, blocks, *lengths)


HOSTILE = {
    "a wrong token": head(1, 4, token=0xFF7FF4FF) + b"xxxx",
    "a list of minus one": head(-1, 4) + bytes(100),
    "a list of two milliards": head(2**31 - 1, 4) + bytes(100),
    "a list of minus two milliards": head(-(2**31), 4) + bytes(100),
    "a buffer of minus nine": head(1, -9) + bytes(100),
    "a buffer of two gigabytes": head(1, 2**31 - 1) + bytes(100),
    "a buffer that is too large with others": head(3, 4) + b"xxxx" + struct.pack(">i", 28 << 20),
    "empty buffers": (head(3_000) + bytes(4 * 3_000)) * 34,  # 1e5 of them
    "frames of nothing": head(0) * 5_000,
    "a frame that was cut": head(1, 1_000_000) + bytes(1_000),
    "garbage": bytes(range(1, 256)) * 300,
    "frames of garbage": encode_frame(1, b"\xff" * 500) * 200,
    "an endless varint": encode_frame(1, b"\x80" * 1_000) * 20,
    "a request of HTTP": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "a greeting in TLS": bytes.fromhex("16030100c8010000c40303") + bytes(200),
    "unknown methods": b"".join(
        frame_of(each, "sendMessageP2B", service=each % 9) for each in range(200)
    ),
    "sends to nobody": b"".join(send_frame(each, "nobody's", each, b"x") for each in range(200)),
    "gets of nobody": b"".join(
        frame_of(
            each, "getMessagesC2B", clientId="c", groupName="g", topicName="t", partitionId=each,
            lastPackConsumed=True,
        )
        for each in range(200)
    ),
}  # fmt: skip


@pytest.fixture
def server(tmp_path: Path) -> Iterator[TrilogueForTubeMQ]:
    made = TrilogueForTubeMQ(tmp_path / "data")
    made.start()
    for topic in ("healthy", "large"):
        make_topic(made.doors["kafka"], topic, 1)
    yield made
    made.kill9()


def healthy_client(server: TrilogueForTubeMQ) -> Healthy:
    """Sends to the broker and beats at the master, in turn."""
    writer = TubeReader(server.doors["tubemq-broker"], "c", topic="healthy")
    master = TubeLine(server.doors["tubemq-master"])
    me = {"clientId": "healthy-1", "brokerCheckSum": -1, "hostName": "h"}
    assert master.request("producerRegisterP2M", **me).success

    def request() -> None:
        writer.send(b"still here")
        assert master.request("producerHeartbeatP2M", topicList=["healthy"], **me).success

    def close() -> None:
        writer.line.close()
        master.close()

    return Healthy(server.pid, request, close)


def test_hostile_frames_cost_their_sender_the_connection_and_no_other_anything(
    server: TrilogueForTubeMQ,
):
    before, peers = resident(server.pid), 0
    lines = len(server.output.splitlines())
    with healthy_client(server) as healthy:
        for _ in range(ROUNDS):
            for name, content in HOSTILE.items():
                for door in LISTENERS:
                    exchange(server.doors[door], content)
                    peers += 1
                assert server.running.alive, (name, server.output[-2_000:])

        check_server(server, healthy, before)
    output = server.output.splitlines()[lines:]
    assert len(output) < 2 * peers, output[-10:]


def test_unfinished_and_short_connections_delay_no_other_client(server: TrilogueForTubeMQ):
    """A thousand unfinished frames and a thousand short connections, at both listeners."""
    before = resident(server.pid)
    slow: list[socket.socket] = []
    try:
        with healthy_client(server) as healthy:
            for number in range(300):
                for door in LISTENERS:
                    slow.append(dial(server.doors[door]))
                    slow[-1].sendall(head(3, 8_192)[: number % 17])
                    gone = dial(server.doors[door])
                    gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    gone.close()  # with a reset
            check_server(server, healthy, before)
    finally:
        for peer in slow:
            peer.close()


def ids(number: int) -> tuple[str, str]:
    return f"group{number}_192.0.2.7-{number}-1-1-Pull-1.13.0", f"group{number}"


def reader_of(number: int) -> dict[str, object]:
    client_id, group = ids(number)
    return {"clientId": client_id, "groupName": group, "topicName": "large", "partitionId": 0}


def take_up(line: TubeLine, number: int) -> None:
    response = line.request("consumerRegisterC2B", opType=31, readStatus=0, **reader_of(number))
    assert response.success, response.errMsg


def get(line: TubeLine, number: int) -> None:
    line.send("getMessagesC2B", lastPackConsumed=False, **reader_of(number))


def test_consumers_that_never_read_cost_two_buffers_each(server: TrilogueForTubeMQ):
    """A hundred consumers request large packs ten times each, and read no response."""
    writer = TubeReader(server.doors["tubemq-broker"], "c", topic="large")
    for _ in range(4):
        writer.send(bytes(LARGE))
    before = resident(server.pid)
    with contextlib.ExitStack() as stack, healthy_client(server) as healthy:
        for number in range(SLOW):
            line = stack.enter_context(TubeLine(server.doors["tubemq-broker"]))
            take_up(line, number)
            for _ in range(10):
                get(line, number)
        writer.send(b"and on")
        check_server(server, healthy, before, growth=BUFFERED_MAX)


@pytest.mark.parametrize("count", [3_000, pytest.param(101_000, marks=pytest.mark.long)])
@pytest.mark.parametrize("kind", ["producers", "consumers", "readers"])
def test_repeated_registrations_under_other_names_are_limited(
    server: TrilogueForTubeMQ, report: Report, kind: str, count: int
):
    """By one connection, without a pause; others are served meanwhile and may register after it."""
    before = resident(server.pid)
    codes: Counter[int] = Counter()
    door = "tubemq-broker" if kind == "readers" else "tubemq-master"
    with TubeLine(server.doors[door]) as line, healthy_client(server) as healthy:
        waiting = 0
        for number in range(count):
            send_registration(line, kind, number)
            waiting += 1
            while waiting > 500 or (waiting and number == count - 1):
                for _, reported in line.receive():
                    codes[reported.errCode] += 1
                    waiting -= 1
        check_server(server, healthy, before, growth=MANY_MAX)
        grown = (resident(server.pid) - before) >> 20
    report(f"{grown} MiB, slowest answer to another {healthy.slowest:.3f} s, {dict(codes)}")
    assert codes[SUCCESS] >= min(count, 10_000)
    assert set(codes) <= {SUCCESS, FORBIDDEN, UNAVAILABLE}


def send_registration(line: TubeLine, kind: str, number: int) -> None:
    client_id, group = ids(number)
    if kind == "producers":
        line.send("producerRegisterP2M", clientId=client_id, brokerCheckSum=-1, hostName="h")
    elif kind == "consumers":
        me = {"clientId": client_id, "groupName": group}
        line.send("consumerRegisterC2M", hostName="h", topicList=["large"], **me)
    else:
        line.send("consumerRegisterC2B", opType=31, readStatus=0, **reader_of(number))


def test_stuck_peer_with_gets_for_many_groups_costs_two_buffers(
    server: TrilogueForTubeMQ,
):
    """Hundreds of gets of one connection, held or not: a large message is an answer to each."""
    writer = TubeReader(server.doors["tubemq-broker"], "c", topic="large")
    before = resident(server.pid)
    with TubeLine(server.doors["tubemq-broker"]) as line, healthy_client(server) as healthy:
        for number in range(GROUPS):
            take_up(line, number)
        for _ in range(2):
            for number in range(GROUPS):
                get(line, number)
            healthy.wait_for(10)  # all of them are held, or wait for the first ones to be read
            writer.send(bytes(LARGE))
        check_server(server, healthy, before)
        received = 0
        while received < GROUPS:  # a client that reads late receives everything
            received += sum(bool(reported.messages) for _, reported in line.receive())
