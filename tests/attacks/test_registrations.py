"""Clients that register without end: producers, consumers, subscriptions, positions of groups."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from tests.attacks.node import AttackedNode, Report, attack
from tests.attacks.test_storms import PASSWORD, StormedNode
from tests.brokers import make_topic
from tests.conformance.asking import Asker
from tests.crash.hostile import dial
from tests.crash.pulsar.test_hostile import CONNECT, TYPES
from tests.security.test_kafka_logins import frame, receive, text
from tests.waiting import wait_until
from trilogue.broker.cursors.committed_offsets import OffsetLimits
from trilogue.wire.kafka.errors import ErrorCode
from trilogue.wire.kafka.groups.committed_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from trilogue.wire.pulsar.frame import encode_command
from trilogue.wire.pulsar.pulsar_pb2 import BaseCommand

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
WIDE = 200  # partitions
GROUPS = 150
TEXT = "x" * 4_096  # as long as it may be
CALL_S = 120.0
READ = 1 << 16


@pytest.fixture
def node(tmp_path: Path) -> Iterator[AttackedNode]:
    made = AttackedNode(tmp_path).start()
    make_topic(made.address, "wide", WIDE)
    yield made
    made.kill9()


def open_producer(number: int) -> bytes:
    made = BaseCommand(type=TYPES["producer"])
    made.producer.topic = "wide-partition-0"
    made.producer.producer_id = made.producer.request_id = number
    return encode_command(made)


def subscribe(number: int, name: str, *, is_durable: bool = True, kind: int = 1) -> bytes:
    made = BaseCommand(type=TYPES["subscribe"])
    made.subscribe.topic = "wide-partition-0"
    made.subscribe.subscription = name
    made.subscribe.subType = kind
    made.subscribe.consumer_id = made.subscribe.request_id = number
    made.subscribe.durable = is_durable
    return encode_command(made)


def lookup(number: int, name: str) -> bytes:
    made = BaseCommand(type=TYPES["lookupTopic"])
    made.lookupTopic.topic = name
    made.lookupTopic.request_id = number
    return encode_command(made)


def metadata(number: int, name: str) -> bytes:
    made = BaseCommand(type=TYPES["partitionMetadata"])
    made.partitionMetadata.topic = name
    made.partitionMetadata.request_id = number
    return encode_command(made)


def send_and_read(
    address: str, content: bytes, first: bytes = CONNECT, *, answers: int = 0
) -> socket.socket:
    """Send all; read the answers as they come, as long as the connection is open.

    `first` has so many answers before the rest is sent.
    """
    peer = dial(address)
    peer.settimeout(CALL_S)

    def read() -> None:
        with contextlib.suppress(OSError):
            while peer.recv(READ):
                pass

    with contextlib.suppress(OSError, struct.error):
        peer.sendall(first)
        for _ in range(answers):
            (size,) = struct.unpack(">I", peer.recv(4, socket.MSG_WAITALL))
            peer.recv(size, socket.MSG_WAITALL)
        threading.Thread(target=read, daemon=True).start()
        peer.sendall(content)
    return peer


ATTACKS: dict[str, Callable[[int, int], bytes]] = {
    "producers": lambda client, number: open_producer(number),
    "consumers": lambda client, number: subscribe(number, "shared"),
    "failover": lambda client, number: subscribe(number, "failover", kind=2),
    "key shared": lambda client, number: subscribe(number, "key shared", kind=3),
    "subscriptions": lambda client, number: subscribe(number, f"s-{client}-{number}"),
    "readers": lambda client, number: subscribe(number, f"s-{client}-{number}", is_durable=False),
    "lookups": lambda client, number: lookup(number, f"absent-{client}-{number}"),
    "metadata": lambda client, number: metadata(number, f"absent-{client}-{number}"),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_registrations_at_one_partition(node: AttackedNode, report: Report, name: str):
    """Twenty connections with 10,000 each: as many as one may have."""
    make = ATTACKS[name]
    with attack(node, report, most_s=60.0) as stack:
        for client in range(20):
            content = b"".join(make(client, number) for number in range(10_000))
            stack.enter_context(send_and_read(node.doors["pulsar"], content))


def commit(group: str) -> OffsetCommitRequest:
    partitions = [
        OffsetCommitRequestPartition(
            partition_index=each, committed_offset=0, committed_metadata=TEXT
        )
        for each in range(WIDE)
    ]
    return OffsetCommitRequest(
        group_id=group, topics=[OffsetCommitRequestTopic(name="wide", partitions=partitions)]
    )


def test_positions_with_metadata(node: AttackedNode, report: Report):
    """Positions of groups that have no members: there is an end to their texts."""
    codes: Counter[ErrorCode] = Counter()
    with attack(node, report, most_s=5.0), Asker(node.address, timeout=CALL_S) as asker:
        for group in range(GROUPS):
            (topic,) = asker.request(commit(f"g-{group}"), 8).topics
            codes.update(ErrorCode(each.error_code) for each in topic.partitions)
    report(dict(codes))
    assert set(codes) == {ErrorCode.NONE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE}
    assert codes[ErrorCode.NONE] * len(TEXT) < 2 * OffsetLimits().text_bytes_max


def test_groups_of_one_principal(tmp_path: Path):
    """Each user has as many groups as it leaves free: a consumer of another one joins its group."""
    node = StormedNode(tmp_path).start()
    try:
        node.add_users(["alice", "mallory"])
        joins = b"".join(join_group(f"g-{number}") for number in range(5_010))
        with log_in(node, "mallory") as peer:
            sending = threading.Thread(target=peer.sendall, args=(joins,))
            sending.start()
            answers = [receive(peer) for _ in range(5_010)]
            sending.join(CALL_S)
            codes = Counter(read_join_error(each) for each in answers)
        assert codes == {ErrorCode.NONE: 5_000, ErrorCode.GROUP_MAX_SIZE_REACHED: 10}
        consumer = Consumer(
            {
                "bootstrap.servers": node.doors["kafka-sasl"],
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN",
                "sasl.username": "alice",
                "sasl.password": PASSWORD.decode(),
                "group.id": "alice's",
            }
        )
        joined = threading.Event()
        consumer.subscribe(["healthy"], on_assign=lambda *_: joined.set())
        wait_until(
            lambda: consumer.poll(0.1) is None and joined.is_set(), lambda: "no group", CALL_S
        )
        consumer.close()
    finally:
        node.kill9()


def log_in(node: StormedNode, user: str) -> socket.socket:
    token = b"\0" + user.encode() + b"\0" + PASSWORD
    peer = dial(node.doors["kafka-sasl"])
    peer.settimeout(CALL_S)
    peer.sendall(frame(17, 1, text("PLAIN")) + frame(36, 1, struct.pack(">i", len(token)) + token))
    receive(peer)
    assert struct.unpack_from(">h", receive(peer), 4) == (0,)
    return peer


def join_group(group: str) -> bytes:
    """Join by version 1, for half an hour."""
    body = text(group) + struct.pack(">ii", 1_800_000, 60_000) + text("") + text("consumer")
    return frame(11, 1, body + struct.pack(">i", 1) + text("range") + struct.pack(">i", 0))


def read_join_error(response: bytes) -> ErrorCode:
    (code,) = struct.unpack_from(">h", response, 4)
    return ErrorCode(code)
