"""Batches that expand a thousandfold, from hundreds of clients at once, and who reads them."""

from __future__ import annotations

import contextlib
import itertools
import socket
import struct
import threading
import time
import zlib
from collections.abc import Iterator

import cramjam
import pytest

from tests.attacks.node import GROWTH_MAX, WAIT_S, AttackedNode, Report, attack
from tests.attacks.peers import give_all_permits, send_gets, send_in_parallel
from tests.attacks.test_http_floods import sending, upgrade
from tests.crash.hostile import dial
from tests.crash.kafka.test_hostile import Line, fetch, make_topic_with, old_bomb, produce
from tests.crash.pulsar.test_hostile import CONNECT, TYPES
from tests.crash.tubemq.tubemq_reader import TubeLine
from tests.gateway.pulsar.rig import send_frame
from trilogue.entry.entry import Codec, Record
from trilogue.entry.kafka.record_batch import build_batch
from trilogue.wire.pulsar.frame import encode_command
from trilogue.wire.pulsar.pulsar_pb2 import BaseCommand

MIB = 1 << 20
TOPICS = {
    "large": {},
    "tube": {},
    "compacted": {"cleanup.policy": "compact"},
    "repacked": {"compression.type": "lz4"},
    "packed": {},
}
TIME = 1_600_000_000_000
SMALL_RECORDS = 300_000
TAIL_BYTES = 205 * MIB  # that any writer may fill: 80 % of `tail.limit`
LONG = [pytest.mark.long, pytest.mark.timeout(400)]


def bombs() -> list[bytes]:
    """Of more than is decompressed, and of all that may be, in very many small records."""
    large = [Record(0, TIME, b"key", bytes(192 * MIB))]
    small = [Record(number, TIME, b"key", bytes(85)) for number in range(SMALL_RECORDS)]
    made = [build_batch(large, codec=each) for each in (Codec.GZIP, Codec.LZ4, Codec.ZSTD)]
    made += [build_batch(small, codec=each) for each in (Codec.LZ4, Codec.ZSTD)]
    return [each for each in made if len(each) < 1_000_000]


def pulsar_bombs() -> list[bytes]:
    """Messages whose size is huge, or wrong, or all that may be: as batches, too."""
    content = bytes(31 * MIB)
    packed = {
        1: bytes(cramjam.lz4.compress_block(content, store_size=False)),
        2: zlib.compress(content),
        3: bytes(cramjam.zstd.compress(content)),
    }
    sizes = [31 * MIB, 192 * MIB, 2**32 - 1, 1, 0]
    frames = [
        send_frame(
            1, number, body, metadata_compression=codec, metadata_uncompressed_size=size, **more
        )
        for number, (codec, body, size, more) in enumerate(
            (codec, body, size, more)
            for codec, body in packed.items()
            for size in sizes
            for more in ({}, {"num_messages": 1_000, "metadata_num_messages_in_batch": 1_000})
        )
        if len(body) < 4 * MIB
    ]
    return [create_producer("large-partition-0"), *frames]


def create_producer(topic: str) -> bytes:
    """Return the request for a producer with the id 1."""
    command = BaseCommand(type=TYPES["producer"])
    command.producer.topic = topic
    command.producer.producer_id = command.producer.request_id = 1
    return encode_command(command)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AttackedNode]:
    made = AttackedNode(tmp_path_factory.mktemp("bombs")).start()
    for topic, settings in TOPICS.items():
        make_topic_with(made.address, topic, settings)
    yield made
    made.kill9()


@pytest.mark.parametrize("count", [10, pytest.param(200, marks=LONG)])
def test_producers_of_bombs(node: AttackedNode, report: Report, count: int):
    made, old = bombs(), old_bomb()
    kafka = b"".join(
        content
        for topic in ("large", "compacted", "repacked")
        for content in (*[produce(topic, each) for each in made], produce(topic, old, version=2))
    )
    pulsar = b"".join(pulsar_bombs())
    growth = GROWTH_MAX + TAIL_BYTES + count * MIB  # of each connection a MiB is not counted
    with attack(node, report, growth=growth, most_s=5.0 if count < 100 else 20.0) as stack:
        send_in_parallel(stack, node.address, count, kafka)
        send_in_parallel(stack, node.doors["pulsar"], count, pulsar, first=CONNECT)


@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.parametrize("count", [20, 200])
def test_readers_of_bombs(node: AttackedNode, report: Report, count: int):
    """Clients of all protocols, and of old versions, for which entries are converted."""
    with Line(node.address) as line:
        for each in bombs():
            line.produce("large", each)
            line.produce("tube", each)
    old = b"".join(fetch("large", version=2) for _ in range(20))
    with attack(node, report, most_s=15.0) as stack:
        send_in_parallel(stack, node.address, count, old)
        for number in range(count):
            with contextlib.suppress(OSError, struct.error):
                peer = stack.enter_context(dial(node.doors["pulsar"]))
                give_all_permits(peer, f"slow-{number}")
            send_gets(stack.enter_context(TubeLine(node.doors["tubemq-broker"])), number)


@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.parametrize("is_read", [True, False], ids=["read", "unread"])
@pytest.mark.parametrize("path", ["reader", "consumer"])
def test_websockets_that_receive_bombs(
    node: AttackedNode, report: Report, path: str, is_read: bool
):
    """Sixty of them: each message is 1 KiB packed, 31 MiB in memory, and 41 MiB as JSON."""
    content = bytes(31 * MIB)
    packed = bytes(cramjam.zstd.compress(content))
    with dial(node.doors["pulsar"]) as peer:
        peer.settimeout(WAIT_S)
        for frame in (CONNECT, create_producer("packed-partition-0"), *[
            send_frame(1, number, packed, metadata_compression=3,
                       metadata_uncompressed_size=len(content))
            for number in range(3)
        ]):  # fmt: skip
            peer.sendall(frame)
            assert peer.recv(1 << 12)
    where = f"{path}/persistent/public/default/packed-partition-0"
    names = itertools.count()

    def receive(peer: socket.socket, stopping: threading.Event) -> None:
        more = "?messageId=earliest" if path == "reader" else f"/bombs-{next(names)}"
        peer.sendall(upgrade(where + more))
        while peer.recv(1 << 16) and not stopping.wait(0.0 if is_read else 60.0):
            pass

    with attack(node, report, most_s=12.0) as stack:
        stack.enter_context(sending(stack, node, 60, receive))
        time.sleep(4.0)  # by design: they go on
