"""Hostile and stalled clients of the Pulsar listener.

Throughout, memory stays within bounds, and a well-behaved client gets its responses.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pulsar
import pytest

from tests.brokers import TrilogueForPulsar
from tests.crash.hostile import ANSWER_WITHIN_S, GROWTH_MAX, Healthy, dial, exchange, resident
from tests.crash.pulsar.pulsar_load import client, closing
from trilogue.wire.pulsar.commands import COMMANDS
from trilogue.wire.pulsar.frame import MAX_FRAME_SIZE, encode_command
from trilogue.wire.pulsar.pulsar_pb2 import BaseCommand

ROUNDS = 40
SLOW = 100
TYPES = {row.field: row.type for row in COMMANDS}


def command(field: str, **fields: object) -> bytes:
    made = BaseCommand(type=TYPES[field])
    getattr(made, field).SetInParent()
    for name, value in fields.items():
        setattr(getattr(made, field), name, value)
    return encode_command(made)


def sized(body: bytes, total: int | None = None, inner: int | None = None) -> bytes:
    inner = len(body) if inner is None else inner
    return struct.pack(">II", len(body) + 4 if total is None else total, inner) + body


CONNECT = command("connect", client_version="hostile", protocol_version=21)
TYPE = b"\x08"  # field 1 of BaseCommand, a varint


def unknown_fields(count: int) -> bytes:
    ping = BaseCommand(type=TYPES["ping"])
    ping.ping.SetInParent()
    return sized(ping.SerializeToString() + b"\xf8\x7f\x01" * count)  # field 2047


HOSTILE = {
    "a frame larger than any": struct.pack(">I", MAX_FRAME_SIZE + 1) + bytes(100),
    "a frame of two gigabytes": struct.pack(">I", 2**31 - 1) + bytes(100),
    "a frame of minus one": b"\xff" * 100,
    "a frame of nothing": struct.pack(">I", 0) * 20,
    "a command larger than its frame": sized(b"\x08\x12", 6, 2**31 - 1),
    "an endless varint": sized(TYPE + b"\xff" * 1_000),
    "a nested length without end": sized(b"\x08\x02\x12\xff\xff\xff\xff\x0f" + b"x" * 50),
    "nesting": sized(b"\x08\x02" + b"\x12\x7e" * 2_000),
    "unknown fields": unknown_fields(100_000),
    "a request of another protocol": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "a greeting in TLS": bytes.fromhex("16030100c8010000c40303") + bytes(200),
    "permits without end": command("flow", consumer_id=1, messagePermits=2**32 - 1) * 50,
    "connected twice": CONNECT * 2,
    "a receipt": command("send_receipt", producer_id=1, sequence_id=1),
    "a message that was cut": CONNECT + struct.pack(">I", 5_000_000) + b"\0\0\0\5",
    "messages for nobody": command("send", producer_id=7, sequence_id=1, num_messages=1) * 100,
    "acks for nobody": b"".join(
        command("ack", consumer_id=each, ack_type=0, request_id=2**64 - 1) for each in range(500)
    ),
}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[TrilogueForPulsar]:
    made = TrilogueForPulsar(tmp_path / "data")
    made.start()
    yield made
    made.kill9()


def healthy_client(server: TrilogueForPulsar) -> Healthy:
    opened = client(server.address)
    producer = opened.create_producer("healthy", send_timeout_millis=30_000)
    return Healthy(server.pid, lambda: producer.send(b"still here"), opened.close)


def test_hostile_frames_cost_their_sender_the_connection_and_no_other_anything(
    server: TrilogueForPulsar,
):
    before = resident(server.pid)
    with healthy_client(server) as healthy:
        for _ in range(ROUNDS):
            for name, content in HOSTILE.items():
                for greeting in (b"", CONNECT):
                    exchange(server.address, greeting + content)
                assert server.running.alive, (name, server.output[-2_000:])

    assert healthy.sent > 0
    assert healthy.slowest < ANSWER_WITHIN_S
    assert resident(server.pid) - before < GROWTH_MAX
    assert "Traceback" not in server.output


def test_consumers_that_never_read_cost_two_buffers_each(server: TrilogueForPulsar):
    """A hundred consumers request more than is stored; the permits of another are respected."""
    payload = bytes(256 << 10)
    with closing(client(server.address)) as opened:
        producer = opened.create_producer("large", block_if_queue_full=True)
        for _ in range(200):  # 50 MiB, and each of them is sent as much as it takes
            producer.send_async(payload, None)
        producer.flush()
        before = resident(server.pid)
        peers = []
        try:
            with healthy_client(server) as healthy:
                for number in range(SLOW):
                    peers.append(dial(server.address))
                    request_everything(peers[-1], number)
                consumer = opened.subscribe(
                    "large",
                    "reads",
                    initial_position=pulsar.InitialPosition.Earliest,
                    receiver_queue_size=1,
                )
                for _ in range(200):
                    consumer.acknowledge(consumer.receive(30_000))
                grown = resident(server.pid) - before
                was_sent = len(peers[0].recv(1 << 20))
        finally:
            for peer in peers:
                peer.close()

    assert healthy.sent > 0
    assert healthy.slowest < ANSWER_WITHIN_S
    assert grown < GROWTH_MAX
    assert was_sent > 32 << 10  # a part of a message at least


def request_everything(peer: socket.socket, number: int) -> None:
    """As a reader that wants everything at once, and then reads nothing."""
    reader = BaseCommand(type=TYPES["subscribe"])
    reader.subscribe.topic = "large"
    reader.subscribe.subscription = f"slow-{number}"
    reader.subscribe.subType = 0
    reader.subscribe.consumer_id = reader.subscribe.request_id = 1
    reader.subscribe.durable = False
    reader.subscribe.initialPosition = 1
    peer.sendall(CONNECT + encode_command(reader))
    for _ in ("connected", "success"):
        (size,) = struct.unpack(">I", peer.recv(4, socket.MSG_WAITALL))
        peer.recv(size, socket.MSG_WAITALL)
    peer.sendall(command("flow", consumer_id=1, messagePermits=2**31 - 1))
