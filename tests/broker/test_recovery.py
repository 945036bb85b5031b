"""The broker on the real log, over a disk that loses what it may.

Producers retry what was not acknowledged, a reader moves its positions, journal files are sealed
and flushed, and again and again the process or the power goes. Afterwards each producer's batches
are in the log exactly once and in order, and no position is older than the last one acknowledged.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from random import Random

import pytest

from tests.broker.fakes import FakeTimers, batch
from tests.fakes import FakeFileSystem, FakeLoop
from trilogue.broker.broker import Broker
from trilogue.broker.facts import CursorMove, Protocol, SnapshotRow
from trilogue.broker.names import parse_kafka
from trilogue.broker.partition import Partition
from trilogue.broker.producers import WINDOW
from trilogue.broker.promise import Promise
from trilogue.entry.walk import read_header
from trilogue.log.commit import InlineCommitter
from trilogue.log.directory import DataDirectory
from trilogue.log.jobs import flush
from trilogue.log.journal import JournalLimits
from trilogue.log.journal_files import SealedFile
from trilogue.log.log import Log, LogLimits, Surroundings
from trilogue.log.partition_log import Cold
from trilogue.log.segment_info import FlushJob
from trilogue.meta.memory import MemoryMeta
from trilogue.meta.port import (
    DeleteSnapshot,
    PutPartitionState,
    PutSegment,
    PutSnapshot,
    SetFlushedThrough,
)

KAFKA = Protocol.KAFKA
DATA = Path("/data")
LIMITS = LogLimits(
    tail_bytes=1 << 20,
    reserve_bytes=0,
    journal=JournalLimits(
        window_bytes=8 << 10,
        file_bytes=64 << 10,
        first_file_bytes=16 << 10,
        file_entries=25,
        min_free_bytes=0,
    ),
)


class Node:
    """What a node does with broker, log and meta, without a loop or a process."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.fs = FakeFileSystem()
        self.meta = MemoryMeta(b"a cluster's id 1", 1, 0)
        self.start()

    def start(self) -> None:
        self.meta.state.node_epoch += 1
        self.loop = FakeLoop()
        self.cuts: list[tuple[SealedFile, list[SnapshotRow]]] = []
        topic_ids = count(1)
        self.broker = Broker(
            self.meta.state,
            allocate=self.meta.allocate,
            timers=FakeTimers(),
            now_ms=self.loop.now_ms,
            new_topic_id=lambda: next(topic_ids).to_bytes(16, "big"),
            new_member_suffix=str,
        )
        self.broker.restore_snapshot(self.meta.snapshots())
        self.log = Log.open(
            DataDirectory.open(self.fs, DATA),
            self.meta.manifest(),
            Surroundings(
                fs=self.fs,
                scheduler=self.loop,
                background=self.loop.background,
                committer=InlineCommitter(self.loop),
                now_ms=self.loop.now_ms,
                monotonic=self.loop.monotonic,
                random_bytes=self.random.randbytes,
            ),
            node_id=1,
            node_epoch=self.meta.state.node_epoch,
            on_entry=self.broker.restore_entry,
            on_fact=self.broker.apply_fact,
            on_foreign=self.broker.restore_foreign,
            limits=LIMITS,
        )
        self.broker.attach(self.log, self.log.journal)
        for file in self.log.sealed:
            self.cut(file)
        self.log.on_sealed = self.cut

    def cut(self, file: SealedFile) -> None:
        self.cuts.append((file, self.broker.snapshot()))

    def flush(self) -> None:
        """Flush the oldest sealed file."""
        if not self.cuts:
            return
        file, rows = self.cuts.pop(0)
        state = self.meta.state
        segment_id = self.meta.allocate("segment")
        job = FlushJob(
            journal_paths=(str(file.path),),
            segment_path=str(DATA / "segments" / f"{segment_id:016d}.segment"),
            segment_id=segment_id,
            last_sequence=file.last_sequence,
            flushed_through=state.flushed_through,
            flushed_ends={each: at.flushed_end for each, at in state.partitions.items()},
            known=frozenset(state.partitions),
            start_offsets={each: at.start_offset for each, at in state.partitions.items()},
            cluster_id=state.cluster_id,
            node_id=1,
            node_epoch=state.node_epoch,
            now_ms=0,
        )
        result = flush(job, self.fs)
        ops = [
            *(PutSnapshot(key, value) for key, value in rows if value is not None),
            *(DeleteSnapshot(key) for key, value in rows if value is None),
            *(PutPartitionState(each, flushed_end=end) for each, end in result.ends.items()),
            SetFlushedThrough(result.last_sequence),
        ]
        if result.segment is not None:
            ops.append(PutSegment(result.segment))
        self.meta.commit_now(ops)
        self.log.apply_flush(result)

    def crash(self) -> None:
        if self.random.random() < 0.5:
            self.fs.kill()
        else:
            self.fs.power_cut(self.random)
        self.start()

    def create(self, name: str, partition_count: int) -> None:
        cluster = self.broker.cluster
        new = cluster.check_create(parse_kafka(name), partition_count=partition_count)
        commit = cluster.plan_create(new)
        self.meta.commit_now(commit.ops(), commit.preconditions)
        commit.apply()

    def partition(self, index: int) -> Partition:
        return self.broker.cluster.topic(parse_kafka("orders")).partition(index)

    def written(self, index: int) -> list[tuple[int, int, int]]:
        """(producer id, base sequence, span) of every entry that can be read, by offset."""
        partition, found = self.partition(index).log, []
        offset = partition.start_offset
        while offset < partition.high_watermark:
            part = partition.read(offset, 1)
            data = part.run() if isinstance(part, Cold) else b"".join(part.slices)
            header = read_header(memoryview(data))
            assert header.base_offset == offset
            found.append((header.producer_id, header.base_sequence, header.span))
            offset += header.span
        return found


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
        """Ask for the newest acknowledged one again, then send what has no answer."""
        in_window = len(self.unacknowledged) < WINDOW
        for sequence, span, offset in self.acknowledged[-1:] if in_window else ():
            records = batch(span, producer=(self.producer_id, 0, sequence))
            again = node.partition(self.index).append(records, now_ms=node.loop.now_ms())
            assert (again.duplicate, again.base_offset) == (True, offset)
        for sent in list(self.unacknowledged):
            self.append(node, sent)


class Reader:
    """Moves positions of one group; remembers which are acknowledged."""

    def __init__(self) -> None:
        self.next_offset = 1
        self.acknowledged = {0: 0, 1: 0}

    def commit(self, node: Node) -> None:
        offset = self.next_offset
        self.next_offset += 1
        indexes = node.random.choice([[0], [1], [0, 1]])
        moves = [CursorMove(node.partition(each).partition_id, offset) for each in indexes]
        promise = node.broker.commit(KAFKA, "group", moves)

        def answered(answer: Promise[None]) -> None:
            assert answer.error is None
            self.acknowledged.update(dict.fromkeys(indexes, offset))

        promise.then(answered)

    def check(self, node: Node) -> None:
        for index, least in self.acknowledged.items():
            partition_id = node.partition(index).partition_id
            position = node.broker.cursors.position(KAFKA, "group", partition_id)
            assert (0 if position is None else position.offset) >= least


class World:
    """One node, four producers on two partitions, one reader."""

    def __init__(self, seed: int) -> None:
        self.node = Node(seed)
        self.node.create("orders", 2)
        self.producers = [Producer(100 + each, each % 2) for each in range(4)]
        self.reader = Reader()

    def send(self) -> None:
        self.node.random.choice(self.producers).send(self.node)

    def commit(self) -> None:
        self.reader.commit(self.node)

    def turn(self) -> None:
        self.node.loop.turn()

    def work(self) -> None:
        self.node.loop.work()

    def seal(self) -> None:
        self.node.log.seal()

    def flush(self) -> None:
        self.node.flush()

    def crash(self) -> None:
        self.node.crash()
        self.reader.check(self.node)
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
    World.turn: 20,
    World.work: 3,
    World.seal: 2,
    World.flush: 3,
    World.crash: 2,
}


@pytest.mark.parametrize("seed", range(25))
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
