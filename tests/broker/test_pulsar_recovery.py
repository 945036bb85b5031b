"""Named producers and durable subscriptions on the real log, over a disk that loses what it may.

Producers send again what was not acknowledged, readers ack one message here and one there, journal
files are sealed and flushed, and again and again the process or the power goes. Afterwards every
message is there once and in its producer's order, and nothing whose ack was confirmed is handed
out again.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from msgspec.structs import replace

from tests.broker.node_room import Node, Steps
from tests.broker.pulsar import Sent, append, send
from tests.sharing import seeds
from trilogue.broker.cursors.position import Cursor
from trilogue.broker.names import parse_kafka
from trilogue.broker.topics.partition import AppendResult
from trilogue.broker.topics.policies import DEFAULT_POLICIES
from trilogue.entry.pulsar.pulsar_batch import read_stamp
from trilogue.log.partition_log import SegmentSlice

DEDUPLICATED = {"pulsar.deduplication": "true"}


def create(node: Node, settings: dict[str, str]) -> None:
    cluster = node.broker.cluster
    new = replace(cluster.check_create(parse_kafka("orders")), settings=settings)
    commit = cluster.plan_create(new)
    node.meta.write_now(commit.ops(), commit.preconditions)
    commit.apply()


def stored(node: Node) -> list[tuple[int, int]]:
    """(producer key, sequence id) of every entry that can be read, by offset."""
    log = node.partition(0).log
    offset, found = log.start_offset, []
    while offset < log.high_watermark:
        part = log.read(offset, 1)
        data = part.run() if isinstance(part, SegmentSlice) else b"".join(part.slices)
        stamp = read_stamp(data)
        found.append((stamp.producer_key, stamp.sequence_id))
        offset += int.from_bytes(data[23:27], "big") + 1
    return found


def write(node: Node, sent: Sent) -> AppendResult:
    return append(node.partition(0), sent, node.loop.now_ms())


@dataclass
class Writer:
    """A producer of some name; after a crash it sends again what has no receipt."""

    name: str
    sequence: int = 0
    receipts: list[int] = field(default_factory=list)
    waiting: dict[int, int] = field(default_factory=dict)  # how many messages, by sequence

    def send(self, node: Node) -> None:
        self.sequence += node.random.randint(1, 3)
        count = node.random.randint(1, 3)
        self.waiting[self.sequence] = count
        self.append(node, self.sequence, count)
        self.sequence += count - 1

    def append(self, node: Node, sequence: int, count: int) -> None:
        write(node, send(self.name, sequence, count))

        def receipt(error: BaseException | None) -> None:
            assert error is None
            if self.waiting.pop(sequence, None) is not None:
                self.receipts.append(sequence)

        node.log.journal.on_commit(receipt)

    def come_back(self, node: Node) -> None:
        partition = node.partition(0)
        if self.receipts:
            assert partition.last_sequence_id(self.name) >= self.receipts[-1]
            again = send(self.name, self.receipts[-1])
            assert write(node, again).duplicate
        for sequence, count in list(self.waiting.items()):
            self.append(node, sequence, count)


@dataclass
class Reader:
    """A subscription; which offsets it acked, and which of these acks were confirmed."""

    name: str
    requested: set[int] = field(default_factory=set)
    acknowledged: set[int] = field(default_factory=set)

    def cursor(self, node: Node) -> Cursor | None:
        return node.broker.subscriptions.find_cursor(node.partition(0).partition_id, self.name)

    def ack(self, node: Node) -> None:
        subscriptions, partition = node.broker.subscriptions, node.partition(0)
        cursor = self.cursor(node)
        if cursor is None:
            subscriptions.create(partition.partition_id, self.name, 0, {"of": self.name})
            return
        high = partition.log.high_watermark
        if not high:
            return
        if node.random.random() < 0.1:
            offsets = range(node.random.randint(cursor.mark, min(high, cursor.mark + 10)))
            subscriptions.ack_until(cursor, offsets.stop)
        else:
            start = node.random.randrange(max(0, high - 40), high)
            offsets = range(start, min(high, start + node.random.randint(1, 3)))
            subscriptions.ack(cursor, [(offsets.start, offsets.stop)])
        self.requested.update(offsets)

        def durable(error: BaseException | None) -> None:
            assert error is None
            self.acknowledged.update(offsets)

        if node.random.random() < 0.5:
            node.log.journal.on_commit(durable)

    def check(self, node: Node) -> None:
        cursor = self.cursor(node)
        if cursor is None:
            assert not self.acknowledged
            return
        high = node.partition(0).log.high_watermark
        acked = {each for each in range(high) if cursor.contains(each)}
        assert self.acknowledged <= acked <= self.requested
        assert cursor.mark <= high
        assert cursor.properties == {"of": self.name}


class World(Steps):
    """One node, three producers on one partition, two subscriptions."""

    def __init__(self, seed: int) -> None:
        super().__init__(Node(seed))
        create(self.node, DEDUPLICATED)
        self.writers = [Writer(name) for name in "abc"]
        self.readers = [Reader(name) for name in "xy"]

    def send(self) -> None:
        self.node.random.choice(self.writers).send(self.node)

    def ack(self) -> None:
        self.node.random.choice(self.readers).ack(self.node)

    def crash(self) -> None:
        self.node.crash()
        for reader in self.readers:
            reader.check(self.node)
        for writer in self.writers:
            writer.come_back(self.node)

    def check(self) -> None:
        self.node.loop.run()
        for reader in self.readers:
            reader.check(self.node)
        assert not any(writer.waiting for writer in self.writers)
        keys = {send(writer.name).stamp.producer_key: writer for writer in self.writers}
        found: dict[str, list[int]] = {writer.name: [] for writer in self.writers}
        for key, sequence in stored(self.node):
            found[keys[key].name].append(sequence)
        assert found == {writer.name: writer.receipts for writer in self.writers}


CHANCES = {
    World.send: 50,
    World.ack: 25,
    World.turn: 20,
    World.work: 3,
    World.seal: 2,
    World.flush: 3,
    World.crash: 2,
}


@pytest.mark.parametrize("seed", seeds(25, quick=10))
def test_nothing_is_lost_repeated_or_handed_out_again(seed: int):
    world = World(seed)

    for step in world.node.random.choices(list(CHANCES), list(CHANCES.values()), k=400):
        step(world)

    world.check()


def test_a_snapshot_does_not_know_of_an_entry_that_came_during_the_cut():
    """Otherwise a producer that sends again after the power cut would get a receipt for it."""
    node = Node(1)
    create(node, DEDUPLICATED)
    write(node, send("p", 1))
    node.log.journal.on_commit(lambda _: write(node, send("p", 2)) and None)

    node.loop.turn()
    node.log.seal()
    node.loop.turn()
    node.flush()
    node.fs.power_cut(node.random)
    node.start()

    assert node.meta.state.flushed_through == 1
    assert write(node, send("p", 1)).duplicate
    assert not write(node, send("p", 2)).duplicate


def test_without_the_policy_a_restart_remembers_no_producer():
    node = Node(1)
    create(node, {})
    write(node, send("p", 5))
    node.loop.run()
    node.fs.kill()
    node.start()

    assert len(node.broker.producers.deduplication) == 0
    assert not write(node, send("p", 5)).duplicate


def test_deduplication_state_is_removed_with_the_policy():
    node = Node(1)
    create(node, DEDUPLICATED)
    write(node, send("p", 5))
    commit = node.broker.cluster.plan_alter(parse_kafka("orders"), {})
    node.meta.write_now(commit.ops(), commit.preconditions)
    commit.apply()

    assert node.partition(0).policies == DEFAULT_POLICIES
    assert len(node.broker.producers.deduplication) == 0


def test_tail_records_the_formats_of_its_entries():
    node = Node(1)
    create(node, {})
    assert node.partition(0).formats == 0
    write(node, send())
    node.loop.run()
    assert node.partition(0).formats == 0b10
    node.fs.kill()
    node.start()
    assert node.partition(0).formats == 0b10

    node.flush()
    assert node.partition(0).formats == 0
