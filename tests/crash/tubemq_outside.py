"""TubeMQ's clients around a node in a `World`: one writes, the readers of two groups confirm.

A writer sends nothing twice: what has no answer is there or not. Readers are handed messages out,
confirm them by themselves, with the next read or when they end, or have them come again; and each
life of the node is new to them all. `check` holds a node that has just started against what they
were told.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

from tests.crash.outside import durable, make_topic

from trilogue.broker.names import parse_kafka
from trilogue.broker.partition import Partition
from trilogue.broker.promise import Promise
from trilogue.broker.readings import Reader
from trilogue.entry.kafka_batch import check_crc
from trilogue.entry.tubemq_blob import read_stored
from trilogue.entry.tubemq_entry import build_entry
from trilogue.entry.walk import walk_headers
from trilogue.log.partition_log import Cold
from trilogue.node.node import Node
from trilogue.node.storage import wall_clock_ms

TOPIC = "tubes"
SIZES = (10, 100, 2_000, 9_000)


def partition_of(node: Node) -> Partition:
    return node.storage.broker.cluster.topic(parse_kafka(TOPIC)).partition(0)


def data_of(number: int) -> bytes:
    return (b"%d " % number).ljust(Random(number).choice(SIZES), b".")


def stored(node: Node) -> Iterator[tuple[int, int]]:
    """(offset, number) of all that may be read, each as it was sent."""
    log = partition_of(node).log
    offset = log.start_offset
    while offset < log.high_watermark:
        found = log.read(offset, 1 << 20)
        data = found.run() if isinstance(found, Cold) else memoryview(b"".join(found.slices))
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
    """Where it asked to be at most, and where it was told that it is."""

    name: str
    asked: int = 0
    told: int = 0
    reader: Reader | None = field(default=None, repr=False)

    def register(self, node: Node) -> None:
        """Come back after whatever happened."""
        readings = node.storage.broker.readings
        reader, promise = readings.register(
            partition_of(node), self.name, f"{self.name}-1", now_ms=wall_clock_ms()
        )
        assert self.told <= reader.committed <= self.asked, (self, reader.committed)
        self.reader = reader
        self.hear(promise, reader.committed)

    def read(self, node: Node, chance: Random) -> None:
        """Be handed some messages out, and say what became of the last ones now or later."""
        readings, reader = node.storage.broker.readings, self.reader
        assert reader is not None
        consumed, manual = chance.random() < 0.4, chance.random() < 0.2
        self.ask(reader, consumed=consumed and not manual)
        start = readings.begin(reader, consumed=consumed, manual=manual)
        end = min(partition_of(node).log.high_watermark, start + chance.randint(0, 6))
        readings.handed_out(reader, start, end, manual=manual, is_empty=False)
        if chance.random() < 0.5:
            confirmed = chance.random() < 0.7
            self.ask(reader, consumed=confirmed)
            promise = readings.confirm(reader, consumed=confirmed)
            self.hear(promise, reader.committed)
        if chance.random() < 0.1:
            confirmed = chance.random() < 0.5
            self.ask(reader, consumed=confirmed)
            promise = readings.unregister(reader, consumed=confirmed)
            self.hear(promise, reader.committed)
            self.register(node)

    def ask(self, reader: Reader, *, consumed: bool) -> None:
        if consumed:
            self.asked = max(self.asked, reader.next_offset)

    def hear(self, promise: Promise[None] | None, offset: int) -> None:
        """It is told where it is when that is durable, which it is without a promise."""

        def told(kept: Promise[None] | None) -> None:
            if kept is None or kept.error is None:
                assert offset >= self.told, "a position went back"
                self.told = offset

        if promise is None:
            told(None)
        else:
            promise.then(told)


class TubeOutside:
    """Everybody but the node. `script` is what they do in one life, from where they were."""

    def __init__(self, messages: int = 150) -> None:
        self.messages = messages
        self.written = 0
        self.told: dict[int, int] = {}  # offset by number
        self.groups = [Group(name) for name in "xy"]
        self.is_made = False

    async def script(self, node: Node) -> None:
        """Find what was promised, come back, go on."""
        if node.storage.broker.cluster.find(parse_kafka(TOPIC)) is None:
            assert not self.is_made, "the topic is gone"
            await make_topic(node, TOPIC, 1, {})
        self.is_made = True
        self.check(node)
        for group in self.groups:
            group.register(node)
        while self.written < self.messages:
            await self.act(node)
        await durable(node)
        await asyncio.sleep(20)
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
            await asyncio.sleep(1.0)

    def send(self, node: Node) -> None:
        number = self.written
        self.written += 1
        now_ms = wall_clock_ms()
        entry, header = build_entry(data_of(number), 0, -1, 1, None, None, now_ms)
        appended = partition_of(node).append_entry(entry, header, now_ms=now_ms)

        def told(error: BaseException | None) -> None:
            if error is None:
                self.told[number] = appended.base_offset

        node.storage.log.journal.on_commit(told)

    def check(self, node: Node) -> None:
        """Nothing answered is gone, nothing is there twice or out of order, nobody went back."""
        there = list(stored(node))
        numbers = [number for _, number in there]
        assert numbers == sorted(set(numbers)), "twice, or out of order"
        assert {number: offset for offset, number in there}.items() >= self.told.items(), "lost"
        partition_id = partition_of(node).partition_id
        for group in self.groups:
            position = node.storage.broker.readings.position(partition_id, group.name)
            assert group.told <= (position or 0) <= group.asked, (group, position)
