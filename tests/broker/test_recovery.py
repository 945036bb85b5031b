"""The broker on the real log, over a disk that loses what it may.

Producers retry what was not acknowledged, a reader moves its positions and an administrator removes
some, journal files are sealed and flushed, and again and again the process or the power goes.
Afterwards each producer's batches are in the log exactly once and in order, no position is older
than the last one acknowledged, and none that was removed is there again.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from tests.broker.fakes import batch
from tests.broker.node_room import Node, Steps
from tests.sharing import seeds
from trilogue.broker.facts import CursorMove, Protocol
from trilogue.broker.producers.idempotence import WINDOW
from trilogue.broker.promise import Promise

KAFKA = Protocol.KAFKA


@dataclass
class Producer:
    """A client with at most five batches unacknowledged; it sends them again after a crash."""

    producer_id: int
    index: int
    acknowledged: list[tuple[int, int, int]] = field(default_factory=list)  # sequence, span, offset
    unacknowledged: list[tuple[int, int]] = field(default_factory=list)

    @property
    def next_sequence(self) -> int:
        if self.unacknowledged:
            return sum(self.unacknowledged[-1])
        return sum(self.acknowledged[-1][:2]) if self.acknowledged else 0

    def send(self, node: Node) -> None:
        if len(self.unacknowledged) < WINDOW:
            sent = self.next_sequence, node.random.randint(1, 3)
            self.unacknowledged.append(sent)
            self.append(node, sent)

    def append(self, node: Node, sent: tuple[int, int]) -> None:
        sequence, span = sent
        records = batch(span, producer=(self.producer_id, 0, sequence))
        appended = node.partition(self.index).append(records, now_ms=node.loop.now_ms())

        def answered(error: BaseException | None) -> None:
            assert error is None
            if sent in self.unacknowledged:
                self.unacknowledged.remove(sent)
                self.acknowledged.append((sequence, span, appended.base_offset))

        node.log.journal.on_commit(answered)

    def come_back(self, node: Node) -> None:
        """Send the newest acknowledged batch again, then those without a response."""
        in_window = len(self.unacknowledged) < WINDOW
        for sequence, span, offset in self.acknowledged[-1:] if in_window else ():
            records = batch(span, producer=(self.producer_id, 0, sequence))
            again = node.partition(self.index).append(records, now_ms=node.loop.now_ms())
            assert (again.duplicate, again.base_offset) == (True, offset)
        for sent in list(self.unacknowledged):
            self.append(node, sent)


class Reader:
    """Moves and removes positions of one group; remembers which of that is acknowledged."""

    def __init__(self) -> None:
        self.next_offset = 1
        # What each partition's position was to be, one after the other, and which is surely there.
        self.commits: dict[int, list[int | None]] = {0: [None], 1: [None]}
        self.acknowledged = {0: 0, 1: 0}

    def commit(self, node: Node) -> None:
        offset = self.next_offset
        self.next_offset += 1
        indexes = node.random.choice([[0], [1], [0, 1]])
        moves = [CursorMove(node.partition(each).partition_id, offset) for each in indexes]
        self.note(indexes, offset, node.broker.commit(KAFKA, "group", moves))

    def remove(self, node: Node) -> None:
        indexes = node.random.choice([[0], [1], [0, 1]])
        admin = node.broker.group_admin
        if indexes == [0, 1] and node.broker.committed_offsets.positions(KAFKA, "group"):
            promise = admin.delete("group")
        else:
            promise = admin.remove("group", [node.partition(i).partition_id for i in indexes])
        self.note(indexes, None, promise)

    def note(self, indexes: list[int], offset: int | None, promise: Promise[None]) -> None:
        numbers: dict[int, int] = {}
        for index in indexes:
            numbers[index] = len(self.commits[index])
            self.commits[index].append(offset)

        def answered(answer: Promise[None]) -> None:
            assert answer.error is None
            self.acknowledged.update(numbers)

        promise.then(answered)

    def check(self, node: Node) -> None:
        for index, surely in self.acknowledged.items():
            partition_id = node.partition(index).partition_id
            position = node.broker.committed_offsets.position(KAFKA, "group", partition_id)
            found = None if position is None else position.mark
            assert found in self.commits[index][surely:]

    def after_crash(self, node: Node) -> None:
        """What is there now stays; what was requested and lost never comes."""
        self.check(node)
        for index in self.commits:
            partition_id = node.partition(index).partition_id
            position = node.broker.committed_offsets.position(KAFKA, "group", partition_id)
            self.commits[index] = [None if position is None else position.mark]
            self.acknowledged[index] = 0


class World(Steps):
    """One node, four producers on two partitions, one reader."""

    def __init__(self, seed: int) -> None:
        super().__init__(Node(seed))
        self.node.create("orders", 2)
        self.producers = [Producer(100 + each, each % 2) for each in range(4)]
        self.reader = Reader()

    def send(self) -> None:
        self.node.random.choice(self.producers).send(self.node)

    def commit(self) -> None:
        self.reader.commit(self.node)

    def remove(self) -> None:
        self.reader.remove(self.node)

    def flush_all(self) -> None:
        """So that what a crash finds is snapshots alone."""
        self.node.loop.run()
        self.node.log.seal()
        self.node.loop.run()
        while self.node.cuts:
            self.node.flush()

    def crash(self) -> None:
        self.node.crash()
        self.reader.after_crash(self.node)
        for producer in self.producers:
            producer.come_back(self.node)

    def check(self) -> None:
        self.node.loop.run()
        self.reader.check(self.node)
        written = [self.node.written(index) for index in (0, 1)]
        for producer in self.producers:
            mine = [
                (sequence, span)
                for producer_id, sequence, span in written[producer.index]
                if producer_id == producer.producer_id
            ]
            assert producer.unacknowledged == []
            assert mine == [(sequence, span) for sequence, span, _ in producer.acknowledged]


CHANCES = {
    World.send: 60,
    World.commit: 10,
    World.remove: 3,
    World.turn: 20,
    World.work: 3,
    World.seal: 2,
    World.flush: 3,
    World.flush_all: 1,
    World.crash: 2,
}


@pytest.mark.parametrize("seed", seeds(25, quick=10))
def test_nothing_acknowledged_is_lost_repeated_or_reordered(seed: int):
    world = World(seed)

    for step in world.node.random.choices(list(CHANCES), list(CHANCES.values()), k=400):
        step(world)

    world.check()


def test_a_snapshot_does_not_know_of_a_batch_that_came_during_the_cut():
    """Or a retry after the power cut would be taken for a repetition, and its messages be lost."""
    node = Node(1)
    node.create("orders", 1)
    partition = node.partition(0)
    first, second = (batch(producer=(9, 0, sequence)) for sequence in (0, 1))
    now_ms = node.loop.now_ms()
    partition.append(first, now_ms=now_ms)
    node.log.journal.on_commit(lambda _: partition.append(second, now_ms=now_ms) and None)

    node.loop.turn()
    node.log.seal()
    node.loop.turn()
    node.flush()
    node.fs.power_cut(node.random)
    node.start()

    assert node.meta.state.flushed_through == 1
    assert node.partition(0).append(first, now_ms=now_ms).duplicate
    assert not node.partition(0).append(second, now_ms=now_ms).duplicate
