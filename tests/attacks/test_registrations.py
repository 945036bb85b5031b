"""Clients that register without end: producers, consumers, subscriptions, positions of groups."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.attacks.node import AttackedNode, Report, attack
from tests.brokers import make_topic
from tests.conformance.asking import Asker
from tests.crash.hostile import dial
from tests.crash.pulsar.test_hostile import CONNECT, TYPES
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
CPU_MAX_S = 3.0  # gaps.md: 100,000 durable subscriptions of one partition


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


def subscribe(number: int, name: str, *, is_durable: bool = True) -> bytes:
    made = BaseCommand(type=TYPES["subscribe"])
    made.subscribe.topic = "wide-partition-0"
    made.subscribe.subscription = name
    made.subscribe.subType = 1  # shared
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


def send_and_read(address: str, content: bytes) -> socket.socket:
    """Send all; read the answers as they come, as long as the connection is open."""
    peer = dial(address)
    peer.settimeout(CALL_S)

    def read() -> None:
        with contextlib.suppress(OSError):
            while peer.recv(READ):
                pass

    threading.Thread(target=read, daemon=True).start()
    with contextlib.suppress(OSError):
        peer.sendall(CONNECT + content)
    return peer


ATTACKS: dict[str, Callable[[int, int], bytes]] = {
    "producers": lambda client, number: open_producer(number),
    "consumers": lambda client, number: subscribe(number, "shared"),
    "subscriptions": lambda client, number: subscribe(number, f"s-{client}-{number}"),
    "readers": lambda client, number: subscribe(number, f"s-{client}-{number}", is_durable=False),
    "lookups": lambda client, number: lookup(number, f"absent-{client}-{number}"),
    "metadata": lambda client, number: metadata(number, f"absent-{client}-{number}"),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_registrations_at_one_partition(node: AttackedNode, report: Report, name: str):
    """Twenty connections with 10,000 each: as many as one may have."""
    make = ATTACKS[name]
    with attack(node, report, most_s=60.0, cpu_s=CPU_MAX_S) as stack:
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
