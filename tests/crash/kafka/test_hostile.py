"""Hostile and stalled clients of the Kafka listener.

Throughout, memory stays within bounds, a well-behaved client gets its responses, and the log has
about one line for each hostile client. Twenty connections that declare a large frame and send
twelve bytes stop a real Kafka for minutes.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

import pytest
from tools.servers.probe import receive

from tests.brokers import Trilogue, make_topic
from tests.conformance.raw import CODECS, batch_of, text
from tests.crash.hostile import Healthy, check_server, dial, exchange, resident
from tests.waiting import wait_until
from trilogue.entry.entry import Codec, Record
from trilogue.entry.kafka.record_batch import build_batch

KIB, MIB = 1 << 10, 1 << 20
ROUNDS = 5
IDLE, SLOW, READERS = 1_000, 100, 100
BOMB = 192 * MIB
CONNECTIONS = 1_000
BUDGET = 700 * MIB  # the tail, its caches, and a thousand connections
HUGE = struct.pack(">i", 2**31 - 1)

Report = Callable[[object], None]


def head(key: int, version: int, client: bytes = b"\xff\xff") -> bytes:
    return struct.pack(">hhi", key, version, 1) + client


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def produce(topic: str, records: bytes, *, version: int = 7, acks: int = -1) -> bytes:
    body = struct.pack(">hhii", -1, acks, 10_000, 1) + text(topic)
    if version < 3:
        body = body[2:]
    body += struct.pack(">iii", 1, 0, len(records)) + records
    return framed(head(0, version) + body)


def fetch(topic: str, *, version: int = 4, offset: int = 0, max_bytes: int = MIB) -> bytes:
    body = struct.pack(">iii", -1, 100, 1)
    body += struct.pack(">i", 50 * MIB) if version >= 3 else b""
    body += b"\0" if version >= 4 else b""
    body += struct.pack(">i", 1) + text(topic) + struct.pack(">iiqi", 1, 0, offset, max_bytes)
    return framed(head(1, version) + body)


def damaged(records: bytes, at: int, fmt: str, value: int) -> bytes:
    """A batch with a number that is not true, its checksum as it was."""
    changed = bytearray(records)
    struct.pack_into(fmt, changed, at, value)
    return bytes(changed)


GOOD = batch_of(b"value")
HOSTILE = {
    "a length below nought": struct.pack(">i", -1) + bytes(100),
    "the lowest length": struct.pack(">i", -(2**31)) + bytes(100),
    "a length of nought": bytes(4) * 100,
    "the highest length": HUGE + bytes(100),
    "101 MiB": struct.pack(">i", 101 * MIB) + bytes(100),
    "garbage": bytes(range(1, 256)) * 300,
    "frames of garbage": framed(b"\xff" * 500) * 100,
    "HTTP": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "a greeting in TLS": bytes.fromhex("16030100c8010000c40303") + bytes(200),
    "unknown keys": b"".join(framed(head(key, 0) + bytes(50)) for key in (-1, 999, 0x7FFF)),
    "requests of brokers": b"".join(framed(head(key, 0) + bytes(50)) for key in (4, 5, 6, 7)),
    "unknown versions": framed(head(3, 0x7FFF) + bytes(50)),
    "2^31-1 topics": framed(head(3, 1) + HUGE),
    "2^31-1 tags": framed(head(3, 9) + b"\xff\xff\xff\xff\x07"),
    "an endless varint": framed(head(3, 9) + b"\x00" + b"\xff" * 1_000),
    "a wrong checksum": produce("healthy", damaged(GOOD, 17, ">I", 1)) * 10,
    "a wrong count": produce("healthy", damaged(GOOD, 57, ">i", 2**31 - 1)) * 10,
    "a wrong delta": produce("healthy", damaged(GOOD, 23, ">i", 2**31 - 1)) * 10,
    "a wrong batch length": produce("healthy", damaged(GOOD, 8, ">i", 2**31 - 1)) * 10,
    "nothing where batches are": produce("healthy", b"") * 10,
    "half a batch": produce("healthy", GOOD[:30]) * 10,
    "a cut request": framed(head(0, 7))[:-3],
    "fetches of nobody's topics": fetch("nobody") * 50,
}


class Line:
    """A raw connection: it sends bytes and reads responses by their length."""

    def __init__(self, address: str) -> None:
        self.peer = dial(address)
        self.peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def request(self, request: bytes) -> bytes:
        self.peer.sendall(request)
        (size,) = struct.unpack(">i", receive(self.peer, 4))
        return receive(self.peer, size)

    def produce(self, topic: str, records: bytes, *, version: int = 7) -> int:
        """The error code."""
        answer = self.request(produce(topic, records, version=version))
        (code,) = struct.unpack_from(">h", answer, 4 + 4 + 2 + len(topic) + 4 + 4)
        return int(code)

    def close(self) -> None:
        self.peer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@contextlib.contextmanager
def running(tmp_path: Path, **how: object) -> Iterator[Trilogue]:
    made = Trilogue(tmp_path / "data", **how)
    made.start()
    try:
        with Line(made.address) as line:  # which makes a topic by mentioning it
            line.request(framed(head(3, 1) + struct.pack(">i", 1) + text("healthy")))
        yield made
    finally:
        made.kill9()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Trilogue]:
    with running(tmp_path) as made:
        yield made


def healthy_client(server: Trilogue) -> Healthy:
    line = Line(server.address)

    def request() -> None:
        assert line.produce("healthy", GOOD) == 0

    return Healthy(server.pid, request, line.close)


def is_closed(peer: socket.socket) -> bool:
    try:
        return peer.recv(1) == b""
    except ConnectionError:
        return True


def test_hostile_frames_cost_their_sender_the_connection_and_no_other_anything(server: Trilogue):
    before, peers = resident(server.pid), 0
    lines = len(server.output.splitlines())
    with healthy_client(server) as healthy:
        for _ in range(ROUNDS):
            for name, content in HOSTILE.items():
                exchange(server.address, content)
                peers += 1
                assert server.running.alive, (name, server.output[-2_000:])

        check_server(server, healthy, before)
    output = server.output.splitlines()[lines:]
    assert len(output) < 2 * peers, output[-10:]


def test_a_large_frame_costs_nothing_until_its_bytes_arrive(server: Trilogue):
    """Twenty frames of 99 MiB are declared, and twelve bytes of each arrive."""
    before = resident(server.pid)
    with contextlib.ExitStack() as stack, healthy_client(server) as healthy:
        for _ in range(20):
            peer = stack.enter_context(dial(server.address))
            peer.sendall(struct.pack(">i", 99 * MIB) + head(0, 7))

        check_server(server, healthy, before, growth=16 * MIB)


def bomb(codec: int) -> bytes:
    return build_batch([Record(0, 1_600_000_000_000, b"key", bytes(BOMB))], codec=codec)


def old_bomb() -> bytes:
    """A message set of magic 1 inside a message of magic 1, compressed with gzip."""

    def message(value: bytes, attributes: int) -> bytes:
        body = struct.pack(">bbqi", 1, attributes, 1_600_000_000_000, -1)
        body += struct.pack(">i", len(value)) + value
        checked = struct.pack(">I", zlib.crc32(body)) + body
        return struct.pack(">qi", 0, len(checked)) + checked

    packer = zlib.compressobj(wbits=31)
    packed = packer.compress(message(bytes(BOMB), 0)) + packer.flush()
    return message(packed, 1)


def test_bombs_are_not_unpacked(server: Trilogue):
    """Batches that expand a thousandfold, in every codec, wherever the broker must decompress."""
    topics = {
        "plain": {},
        "compacted": {"cleanup.policy": "compact"},
        "repacked": {"compression.type": "lz4"},
    }
    for topic, settings in topics.items():
        make_topic_with(server.address, topic, settings)
    bombs = [bomb(codec) for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD)]
    assert len(bombs) == len(CODECS) - 1
    small = [each for each in bombs if len(each) < 1_000_000]
    old = old_bomb()
    before = resident(server.pid)
    with healthy_client(server) as healthy, Line(server.address) as line:
        for topic in topics:
            for each in small:
                line.produce(topic, each)
            line.produce(topic, old, version=2)
            for version in (2, 3, 4, 11):
                with contextlib.suppress(ConnectionError), Line(server.address) as reader:
                    reader.request(fetch(topic, version=min(version, 4)))

        check_server(server, healthy, before)


def make_topic_with(address: str, topic: str, settings: dict[str, str]) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": address})
    (made,) = admin.create_topics([NewTopic(topic, 1, config=settings)]).values()
    made.result(90)


def test_idle_and_short_connections_delay_no_other_client(server: Trilogue):
    """A thousand idle connections, unfinished frames, and a flood of connections."""
    before = resident(server.pid)
    request = fetch("healthy")
    with contextlib.ExitStack() as stack, healthy_client(server) as healthy:
        for number in range(IDLE):
            peer = stack.enter_context(dial(server.address))
            peer.sendall(request[: number % len(request)])
            gone = dial(server.address)
            gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            gone.close()  # with a reset

        check_server(server, healthy, before)


def test_connections_are_limited_by_address_and_in_all(tmp_path: Path):
    """A connection over the limit is closed, and accepted once another has ended."""
    settings = {"connections.per-address": 20, "connections.limit": 25}
    with running(tmp_path, settings=settings) as server, contextlib.ExitStack() as stack:
        lines = [stack.enter_context(Line(server.address)) for _ in range(19)]
        assert [line.produce("healthy", GOOD) for line in lines] == [0] * 19
        wait_until(lambda: let_in(server.address))  # those of the fixture are gone
        wait_until(lambda: stays(stack, server.address))
        assert is_closed(stack.enter_context(dial(server.address)))

        host, port = server.address.rsplit(":", 1)
        others = [
            stack.enter_context(
                socket.create_connection((host, int(port)), 10, (f"127.0.0.{at}", 0))
            )
            for at in range(2, 8)
        ]
        assert is_closed(others[-1])
        lines[0].close()
        wait_until(lambda: let_in(server.address))


def stays(stack: contextlib.ExitStack, address: str) -> bool:
    line = stack.enter_context(Line(address))
    try:
        return line.produce("healthy", GOOD) == 0
    except ConnectionError:
        return False


def let_in(address: str) -> bool:
    try:
        with Line(address) as line:
            return line.produce("healthy", GOOD) == 0
    except ConnectionError:
        return False


def test_lack_of_descriptors_pauses_accepting_and_serves_open_connections(tmp_path: Path):
    with running(tmp_path, wrapper=("prlimit", "--nofile=256")) as server:
        before = resident(server.pid)
        with healthy_client(server) as healthy:
            with contextlib.ExitStack() as stack:
                for _ in range(400):
                    peer = stack.enter_context(dial(server.address))
                    peer.sendall(fetch("healthy"))
                check_server(server, healthy, before)
                assert "listener.accept_paused" in server.output

            wait_until(lambda: let_in(server.address))
            check_server(server, healthy, before)


def test_consumers_that_never_read_cost_two_buffers_each(server: Trilogue):
    """A hundred clients request a mebibyte ten times each, and read no response."""
    make_topic(server.address, "large", 1)
    with Line(server.address) as writer:
        for _ in range(8):
            assert writer.produce("large", batch_of(bytes(1_000_000))) == 0
    before = resident(server.pid)
    with contextlib.ExitStack() as stack, healthy_client(server) as healthy:
        for _ in range(READERS):
            peer = stack.enter_context(dial(server.address))
            peer.sendall(fetch("large") * 10)

        check_server(server, healthy, before)


@pytest.mark.parametrize("seconds", [pytest.param(60.0, marks=pytest.mark.long), 5.0])
def test_a_thousand_connections_and_fifty_mebibytes_a_second(
    server: Trilogue, report: Report, seconds: float
):
    """Memory stays within its budget, and every request gets a response."""
    make_topic(server.address, "busy", 8)
    batch = batch_of(bytes(MIB - 1_000))
    lines: list[Line] = []
    sent, highest = 0, 0
    try:
        with healthy_client(server) as healthy:
            for _ in range(CONNECTIONS):
                lines.append(Line(server.address))
            began = time.monotonic()
            while (passed := time.monotonic() - began) < seconds:
                line = lines[sent % CONNECTIONS]
                if sent * len(batch) < passed * 50 * MIB:
                    assert line.produce("busy", batch) == 0
                    sent += 1
                else:
                    lines[(sent * 7) % CONNECTIONS].request(fetch("healthy", max_bytes=KIB))
                    time.sleep(0.002)  # by design: the pace of the load
                if sent % 50 == 0:
                    highest = max(highest, resident(server.pid))
            healthy.wait_for(10)
            slowest = healthy.slowest
    finally:
        for line in lines:
            line.close()
    rate = sent * len(batch) / seconds / MIB
    report(f"{rate:.0f} MiB/s, at most {highest >> 20} MiB, slowest answer {slowest:.3f} s")
    assert highest < BUDGET
    assert server.running.alive
    assert "Traceback" not in server.output
