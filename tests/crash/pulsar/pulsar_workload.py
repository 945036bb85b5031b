"""Pulsar clients of a node in a `World`: named producers and two durable subscriptions.

With retention 0, 0 a message is removed once both subscriptions have acked it; deduplication stores
each sequence id of a producer once. Producers resend what has no receipt; consumers ack single
messages and ranges, and wait for some of the acks to be durable. `check` compares a node that has
just started with the receipts and durable acks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

from msgspec.structs import replace

from tests.broker.pulsar import send
from tests.crash.log_workload import durable
from tests.waiting import pass_time
from trilogue.broker.cursors.position import Cursor
from trilogue.broker.names import parse_kafka
from trilogue.broker.topics.partition import Partition
from trilogue.entry.kafka.record_batch import check_crc
from trilogue.entry.pulsar.pulsar_batch import read_stamp
from trilogue.entry.walk import walk_headers
from trilogue.log.clock import wall_clock_ms
from trilogue.log.partition_log import SegmentSlice
from trilogue.node.node import Node

TOPIC = "letters"
SETTINGS = {
    "pulsar.deduplication": "true",
    "pulsar.retention": '{"retentionTimeInMinutes": 0, "retentionSizeInMB": 0}',
}
SIZES = (10, 100, 2_000, 9_000)


def partition_of(node: Node) -> Partition:
    return node.storage.broker.cluster.topic(parse_kafka(TOPIC)).partition(0)


def entries(node: Node) -> Iterator[tuple[int, int, int]]:
    """Yield (base offset, producer key, sequence id) of every readable entry."""
    log = partition_of(node).log
    offset = log.start_offset
    while offset < log.high_watermark:
        found = log.read(offset, 1 << 20)
        data = (
            found.run() if isinstance(found, SegmentSlice) else memoryview(b"".join(found.slices))
        )
        for at, length, base, delta, *_ in walk_headers(data):
            check_crc(data[at : at + length])
            stamp = read_stamp(data[at : at + length])
            yield base, stamp.producer_key, stamp.sequence_id
            offset = base + delta + 1


@dataclass
class Writer:
    """A named producer, with its receipts and the entries that have none yet."""

    name: str
    sequence: int = 0
    receipts: dict[int, int] = field(default_factory=dict)  # offset by sequence
    waiting: dict[int, tuple[int, int]] = field(default_factory=dict)  # count and size by sequence

    def send_next(self, node: Node, chance: Random) -> None:
        self.sequence += chance.randint(1, 3)
        self.waiting[self.sequence] = chance.choice((1, 1, 2, 4)), chance.choice(SIZES)
        self.send(node, self.sequence)

    def send(self, node: Node, sequence: int) -> None:
        count, size = self.waiting[sequence]
        entry, header, stamp = send(self.name, sequence, count, value=bytes(size))
        self.sequence = max(self.sequence, stamp.highest_sequence_id)
        appended = partition_of(node).append_entry(
            entry, header, now_ms=wall_clock_ms(), sequence=stamp
        )

        def note_receipt(error: BaseException | None) -> None:
            if error is None and self.waiting.pop(sequence, None) is not None:
                self.receipts[sequence] = appended.base_offset

        node.storage.log.journal.on_commit(note_receipt)


@dataclass
class Reader:
    """A subscription: the offsets that it has acked, and those whose ack is known to be durable."""

    name: str
    is_made: bool = False
    acked: set[int] = field(default_factory=set)
    durably_acked: set[int] = field(default_factory=set)

    def cursor(self, node: Node) -> Cursor | None:
        return node.storage.broker.subscriptions.find_cursor(
            partition_of(node).partition_id, self.name
        )

    async def make(self, node: Node) -> None:
        if self.cursor(node) is None:
            assert not self.is_made, f"subscription {self.name} is gone"
            partition_id = partition_of(node).partition_id
            promise = node.storage.broker.subscriptions.create(partition_id, self.name, 0)
            await durable(node)
            promise.result()
            self.is_made = True

    def ack(self, node: Node, chance: Random) -> None:
        """Ack nearly in order, so that the start offset can advance; leave gaps for a while."""
        cursor = self.cursor(node)
        assert cursor is not None
        high = partition_of(node).log.high_watermark
        first = cursor.first_missing(cursor.mark)
        start = min(high, first + chance.choice((0, 0, 0, 1, 2)))
        offsets = range(start, min(high, start + chance.randint(1, 6)))
        if not offsets:
            return
        subscriptions = node.storage.broker.subscriptions
        if chance.random() < 0.2:
            offsets = range(first, offsets.stop)
            subscriptions.ack_until(cursor, offsets.stop)
        else:
            subscriptions.ack(cursor, [(offsets.start, offsets.stop)])
        self.acked.update(offsets)

        def durable_now(error: BaseException | None) -> None:
            if error is None:
                self.durably_acked.update(offsets)

        if chance.random() < 0.5:
            node.storage.log.journal.on_commit(durable_now)


class PulsarWorkload:
    """All clients of the node; `script` continues their work in each life of the node."""

    def __init__(self, messages: int = 150) -> None:
        self.messages = messages
        self.written = 0
        self.writers = [Writer(name) for name in "abc"]
        self.readers = [Reader(name) for name in "xy"]
        self.start = 0

    async def script(self, node: Node) -> None:
        """Check the node, resend what has no receipt, and send the remaining messages."""
        await self.make_topic(node)
        for reader in self.readers:
            await reader.make(node)
        self.check(node)
        for writer in self.writers:
            for sequence in list(writer.waiting):
                writer.send(node, sequence)
        await durable(node)
        while self.written < self.messages:
            await self.act(node)
        await durable(node)
        assert not any(writer.waiting for writer in self.writers)
        await pass_time(20)
        self.check(node)

    async def act(self, node: Node) -> None:
        number = self.written
        self.written += 1
        chance = Random(number)
        chance.choice(self.writers).send_next(node, chance)
        for _ in range(3):
            chance.choice(self.readers).ack(node, chance)
        if number % 3 == 0:
            await durable(node)
        if number % 7 == 0:
            await pass_time(1.0)

    async def make_topic(self, node: Node) -> None:
        cluster = node.storage.broker.cluster
        if cluster.find_topic(parse_kafka(TOPIC)) is None:
            assert not self.written, "the topic is gone"
            planned = replace(cluster.check_create(parse_kafka(TOPIC)), settings=SETTINGS)
            await node.metadata_writer.write(cluster.plan_create(planned))

    def check_coverage(self, events: Counter[str]) -> None:
        """After a whole life: flushes and retention ran, and some acks were not waited for."""
        assert events["flush.done"] >= 5
        assert events["retention.moved"] >= 3
        assert self.start > 50
        assert all(reader.acked - reader.durably_acked for reader in self.readers)

    def check(self, node: Node) -> None:
        """Only entries that both subscriptions have acked are removed; no entry is stored twice."""
        log = partition_of(node).log
        assert log.start_offset >= self.start, "the start offset moved backwards"
        self.start = log.start_offset
        stored = list(entries(node))
        for writer in self.writers:
            key = send(writer.name).stamp.producer_key
            mine = {sequence: base for base, its, sequence in stored if its == key}
            in_order = [sequence for _, its, sequence in stored if its == key]
            assert in_order == sorted(mine), "twice, or out of order"
            assert mine.keys() <= writer.receipts.keys() | writer.waiting.keys()
            for sequence, offset in writer.receipts.items():
                if offset >= self.start:
                    assert mine.get(sequence) == offset, "lost, or moved"
        needless = set.intersection(*(reader.acked for reader in self.readers))
        assert set(range(self.start)) <= needless, "removed before every subscription had acked it"
        for reader in self.readers:
            self.check_reader(node, reader)

    def check_reader(self, node: Node, reader: Reader) -> None:
        cursor = reader.cursor(node)
        if cursor is None:
            assert not reader.is_made
            return
        end = partition_of(node).log.high_watermark
        acked = {offset for offset in range(end) if cursor.contains(offset)}
        assert reader.durably_acked <= acked, "a durable ack is lost"
        assert acked <= reader.acked, "an ack that no consumer sent"
