"""A Kafka client of a few lines, by hand: what is stored, seen without any client library.

Written against the protocol's description and sharing nothing with our own codec, so that a
mistake there cannot hide here. Plain sockets, old request versions that every broker serves.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from crc32c import crc32c
from tools.servers.probe import call

from tests.server import count_nodes

PRODUCE, FETCH, LIST_OFFSETS, METADATA, FIND_COORDINATOR = 0, 1, 2, 3, 10
TRANSACTION = 1  # a coordinator of transactions
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
BATCH_HEADER = struct.Struct(">qiibIhiqqqhii")
LATEST, EARLIEST = -1, -2


class Batch(NamedTuple):
    """The header of one stored record batch (v2)."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def codec(self) -> str:
        return CODECS[self.attributes & 7]

    @property
    def idempotent(self) -> bool:
        return self.producer_id >= 0

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1


class Fetched(NamedTuple):
    error: int
    high_watermark: int
    records: bytes


def text(value: str) -> bytes:
    raw = value.encode()
    return struct.pack(">h", len(raw)) + raw


def leader_of(address: str, topic: str, partition: int) -> str:
    """The address of the node with a partition, by Metadata v1; `address` where one has all."""
    if count_nodes() == 1:
        return address
    answer = call(address, METADATA, 1, struct.pack(">i", 1) + text(topic))
    at = 0
    nodes: dict[int, str] = {}

    def numbers(layout: str) -> tuple[int, ...]:
        nonlocal at
        found = struct.unpack_from(f">{layout}", answer, at)
        at += struct.calcsize(f">{layout}")
        return found

    def read_text() -> str:
        nonlocal at
        (size,) = numbers("h")
        at += max(size, 0)
        return answer[at - max(size, 0) : at].decode()

    for _ in range(*numbers("i")):
        (node_id,), host, (port,), _rack = numbers("i"), read_text(), numbers("i"), read_text()
        nodes[node_id] = f"{host}:{port}"
    numbers("iih")  # the controller, one topic, its error
    read_text()
    numbers("?")
    leaders: dict[int, int] = {}
    for _ in range(*numbers("i")):
        _error, number, leader, copies = numbers("hiii")
        leaders[number] = leader
        numbers(f"{copies}i")
        numbers("{}i".format(*numbers("i")))  # in sync
    return nodes[leaders[partition]]


def coordinator_of(address: str, transactional_id: str) -> str:
    """The node with the transactions of an id, by FindCoordinator v1."""
    if count_nodes() == 1:
        return address
    body = text(transactional_id) + struct.pack(">b", TRANSACTION)
    answer = call(address, FIND_COORDINATOR, 1, body)
    error, size = struct.unpack_from(">hh", answer, 4)
    assert error == 0, f"FindCoordinator error {error}"
    at = 8 + max(size, 0) + 4
    (size,) = struct.unpack_from(">h", answer, at)
    host = answer[at + 2 : at + 2 + size].decode()
    (port,) = struct.unpack_from(">i", answer, at + 2 + size)
    return f"{host}:{port}"


def fetch(
    address: str, topic: str, partition: int, offset: int, *, max_wait_ms: int = 0, version: int = 4
) -> Fetched:
    """One Fetch v4 of one partition, or v10, which topics with compression.type=zstd want."""
    is_later = version >= 10  # sessions, leader epochs, log starts
    body = struct.pack(">iiiib", -1, max_wait_ms, 1, 50_000_000, 0)
    body += struct.pack(">ii", 0, -1) if is_later else b""
    body += struct.pack(">i", 1) + text(topic) + struct.pack(">ii", 1, partition)
    body += struct.pack(">iqq", -1, offset, -1) if is_later else struct.pack(">q", offset)
    body += struct.pack(">i", 10_000_000) + (struct.pack(">i", 0) if is_later else b"")
    answer = call(
        leader_of(address, topic, partition),
        FETCH,
        version,
        body,
        timeout=60.0 + max_wait_ms / 1000,
    )
    at = 4 + (6 if is_later else 0) + 4 + len(text(topic)) + 4
    _, error, high_watermark, _ = struct.unpack_from(">ihqq", answer, at)
    at += 22 + (8 if is_later else 0)
    (aborted,) = struct.unpack_from(">i", answer, at)
    at += 4 + max(aborted, 0) * 16
    (size,) = struct.unpack_from(">i", answer, at)
    return Fetched(error, high_watermark, answer[at + 4 : at + 4 + max(size, 0)])


def list_offset(address: str, topic: str, partition: int, timestamp: int) -> int:
    """ListOffsets v1: by time, LATEST or EARLIEST."""
    body = struct.pack(">ii", -1, 1) + text(topic) + struct.pack(">iiq", 1, partition, timestamp)
    answer = call(leader_of(address, topic, partition), LIST_OFFSETS, 1, body)
    _, error, _, offset = struct.unpack_from(">ihqq", answer, 4 + len(text(topic)) + 4)
    assert error == 0, f"ListOffsets error {error}"
    return offset


def produce(address: str, topic: str, partition: int, records: bytes, acks: int = -1) -> int:
    """One Produce v7 of ready-made record bytes; the error code of the answer."""
    body = struct.pack(">hhii", -1, acks, 10_000, 1) + text(topic)
    body += struct.pack(">iii", 1, partition, len(records)) + records
    answer = call(leader_of(address, topic, partition), PRODUCE, 7, body)
    (error,) = struct.unpack_from(">h", answer, 4 + len(text(topic)) + 4 + 4)
    return error


def stored_batches(
    address: str, topic: str, partition: int = 0, *, version: int = 4
) -> list[Batch]:
    """The headers of all batches of a partition as the broker keeps them."""
    batches: list[Batch] = []
    offset = list_offset(address, topic, partition, EARLIEST)
    end = list_offset(address, topic, partition, LATEST)
    while offset < end:
        fetched = fetch(address, topic, partition, offset, version=version)
        assert fetched.error == 0, f"Fetch error {fetched.error}"
        new = [batch for batch in walk(fetched.records) if batch.next_offset > offset]
        assert new, f"no whole batch at {offset}, end {end}"
        batches += new
        offset = new[-1].next_offset
    return batches


def walk(records: bytes) -> Iterator[Batch]:
    """The whole batches of a fetch answer; the last one may be cut."""
    at = 0
    while at + BATCH_HEADER.size <= len(records):
        batch = Batch(*BATCH_HEADER.unpack_from(records, at))
        at += 12 + batch.length
        if at <= len(records):
            yield batch


def batch_of(value: bytes, time_ms: int = 1_600_000_000_000) -> bytes:
    """One batch of one record without a key."""
    record = b"\0\0\0\1" + varint(len(value)) + value + b"\0"  # attributes, deltas, no key
    record = varint(len(record)) + record
    body = struct.pack(">hiqqqhii", 0, 0, time_ms, time_ms, -1, -1, -1, 1) + record
    checked = struct.pack(">ibI", -1, 2, crc32c(body)) + body
    return struct.pack(">qi", 0, len(checked)) + checked


def varint(value: int) -> bytes:
    """Zigzag, as Kafka writes lengths."""
    value = (value << 1) ^ (value >> 63)
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])
