"""TubeMQ clients of a node in a `World`: one producer, and one consumer in each of two groups.

The producer never retries: a message without a response may be stored or not. A consumer confirms
its messages explicitly, with its next read or when it unregisters, or leaves them to be read again;
after each restart of the node it registers again. `check` compares a node that has just started
with the responses that the clients have received.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

from tests.crash.log_workload import durable, make_topic
from tests.waiting import pass_time
from trilogue.broker.names import parse_kafka
from trilogue.broker.promise import Promise
from trilogue.broker.topics.partition import Partition
from trilogue.broker.tubemq.registrations import Registration
from trilogue.entry.kafka.record_batch import check_crc
from trilogue.entry.tubemq.tubemq_blob import read_stored
from trilogue.entry.tubemq.tubemq_entry import build_entry
from trilogue.entry.walk import walk_headers
from trilogue.log.clock import wall_clock_ms
from trilogue.log.partition_log import SegmentSlice
from trilogue.node.node import Node

TOPIC = "tubes"
SIZES = (10, 100, 2_000, 9_000)


def partition_of(node: Node) -> Partition:
    return node.storage.broker.cluster.topic(parse_kafka(TOPIC)).partition(0)


def data_of(number: int) -> bytes:
    return (b"%d " % number).ljust(Random(number).choice(SIZES), b".")


def stored(node: Node) -> Iterator[tuple[int, int]]:
    """Yield (offset, number) of every readable message, after a check of its content."""
    log = partition_of(node).log
    offset = log.start_offset
    while offset < log.high_watermark:
        found = log.read(offset, 1 << 20)
        data = (
            found.run() if isinstance(found, SegmentSlice) else memoryview(b"".join(found.slices))
        )
        for at, length, base, delta, *_ in walk_headers(data):
            entry = data[at : at + length]
            check_crc(entry)
            sent = bytes(read_stored(entry).data)
            number = int(sent.split(b" ")[0])
            assert sent == data_of(number), "damaged"
            yield base, number
            offset = base + delta + 1


@dataclass
class Group:
    """The highest offset that a group has requested to confirm, and the highest reported back."""

    name: str
    requested: int = 0
    reported: int = 0
    reader: Registration | None = field(default=None, repr=False)

    def register(self, node: Node) -> None:
        """Register the consumer; its confirmed offset lies between reported and requested."""
        registrations = node.storage.broker.registrations
        reader, promise = registrations.register(
            partition_of(node), self.name, f"{self.name}-1", now_ms=wall_clock_ms()
        )
        assert self.reported <= reader.committed <= self.requested, (self, reader.committed)
        self.reader = reader
        self.report(promise, reader.committed)

    def read(self, node: Node, chance: Random) -> None:
        """Read some messages, and perhaps confirm them or unregister."""
        registrations, reader = node.storage.broker.registrations, self.reader
        assert reader is not None
        consumed, manual = chance.random() < 0.4, chance.random() < 0.2
        self.request(reader, consumed=consumed and not manual)
        start = registrations.begin_read(reader, consumed=consumed, manual=manual)
        end = min(partition_of(node).log.high_watermark, start + chance.randint(0, 6))
        registrations.record_read(reader, start, end, manual=manual, is_empty=False)
        if chance.random() < 0.5:
            confirmed = chance.random() < 0.7
            self.request(reader, consumed=confirmed)
            promise = registrations.confirm(reader, consumed=confirmed)
            self.report(promise, reader.committed)
        if chance.random() < 0.1:
            confirmed = chance.random() < 0.5
            self.request(reader, consumed=confirmed)
            promise = registrations.unregister(reader, consumed=confirmed)
            self.report(promise, reader.committed)
            self.register(node)

    def request(self, reader: Registration, *, consumed: bool) -> None:
        if consumed:
            self.requested = max(self.requested, reader.next_offset)

    def report(self, promise: Promise[None] | None, offset: int) -> None:
        """Note the offset when it is durable: at once without a promise."""

        def note(done: Promise[None] | None) -> None:
            if done is None or done.error is None:
                assert offset >= self.reported, "the confirmed offset moved backwards"
                self.reported = offset

        if promise is None:
            note(None)
        else:
            promise.then(note)


class TubeMQWorkload:
    """All clients of the node; `script` continues their work in each life of the node."""

    def __init__(self, messages: int = 150) -> None:
        self.messages = messages
        self.written = 0
        self.acked: dict[int, int] = {}  # offset by number
        self.groups = [Group(name) for name in "xy"]
        self.is_made = False

    async def script(self, node: Node) -> None:
        """Check the node, register the consumers, and send the remaining messages."""
        if node.storage.broker.cluster.find_topic(parse_kafka(TOPIC)) is None:
            assert not self.is_made, "the topic is gone"
            await make_topic(node, TOPIC, 1, {})
        self.is_made = True
        self.check(node)
        for group in self.groups:
            group.register(node)
        while self.written < self.messages:
            await self.act(node)
        await durable(node)
        await pass_time(20)
        self.check(node)

    async def act(self, node: Node) -> None:
        number = self.written
        chance = Random(number)
        self.send(node)
        for _ in range(2):
            chance.choice(self.groups).read(node, chance)
        if number % 3 == 0:
            await durable(node)
        if number % 7 == 0:
            await pass_time(1.0)

    def send(self, node: Node) -> None:
        number = self.written
        self.written += 1
        now_ms = wall_clock_ms()
        entry, header = build_entry(data_of(number), 0, -1, 1, None, None, now_ms)
        appended = partition_of(node).append_entry(entry, header, now_ms=now_ms)

        def note_ack(error: BaseException | None) -> None:
            if error is None:
                self.acked[number] = appended.base_offset

        node.storage.log.journal.on_commit(note_ack)

    def check_coverage(self, events: Counter[str]) -> None:
        """After a whole life: both groups have confirmed messages."""
        assert all(group.reported > 50 for group in self.groups)

    def check(self, node: Node) -> None:
        """No acked message is lost, repeated or reordered; no confirmed offset moved backwards."""
        messages = list(stored(node))
        numbers = [number for _, number in messages]
        assert numbers == sorted(set(numbers)), "twice, or out of order"
        assert {number: offset for offset, number in messages}.items() >= self.acked.items(), "lost"
        partition_id = partition_of(node).partition_id
        for group in self.groups:
            position = node.storage.broker.registrations.position(partition_id, group.name)
            assert group.reported <= (position or 0) <= group.requested, (group, position)
