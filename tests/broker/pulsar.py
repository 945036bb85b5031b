"""Entries as Pulsar's clients send them, for tests of the broker."""

from __future__ import annotations

from typing import NamedTuple

from trilogue.broker.topics.partition import AppendResult, Partition
from trilogue.entry.entry import EntryHeader
from trilogue.entry.pulsar.pulsar_batch import (
    PulsarMessage,
    Stamp,
    build_batch,
    build_entry,
    build_single,
)
from trilogue.wire.pulsar.pulsar_pb2 import MessageMetadata

BROKER_MS = 7_000


class Sent(NamedTuple):
    """One entry, ready to be appended."""

    entry: memoryview
    header: EntryHeader
    stamp: Stamp


def message(value: bytes = b"v", key: str | None = None) -> PulsarMessage:
    return PulsarMessage(0, value, key, False, False, None, 0, -1, ())


def send(
    name: str = "p",
    sequence: int = 0,
    count: int = 1,
    *,
    value: bytes = b"v",
    publish_ms: int = 1_000,
    chunk: tuple[int, int] | None = None,
    txn: bool = False,
) -> Sent:
    """One SEND; `chunk` is (number, of how many). Several messages are a batch, as Java's."""
    metadata = MessageMetadata(producer_name=name, sequence_id=sequence, publish_time=publish_ms)
    if chunk is not None:
        metadata.chunk_id, metadata.num_chunks_from_msg = chunk
        metadata.uuid, metadata.total_chunk_msg_size = f"{name}-{sequence}", 100
    if txn:
        metadata.txnid_least_bits = metadata.txnid_most_bits = 1
    if count == 1:
        section = build_single(message(value), metadata)
    else:
        metadata.highest_sequence_id = sequence + count - 1
        section = build_batch([message(value)] * count, metadata)
    return Sent(*build_entry(memoryview(section), broker_ms=BROKER_MS))


def append(partition: Partition, sent: Sent, now_ms: int = 5_000) -> AppendResult:
    entry, header, stamp = sent
    return partition.append_entry(entry, header, now_ms=now_ms, sequence=stamp)
