"""A node without a loop or a process: the broker on the real log, over a disk that may lose."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path
from random import Random

from tests.broker.fakes import FakeTimers
from tests.fakes import FakeFileSystem, FakeLoop
from trilogue.broker.broker import Broker
from trilogue.broker.facts import SnapshotRow
from trilogue.broker.internal.records import InternalRecords
from trilogue.broker.names import parse_kafka
from trilogue.broker.topics.partition import Partition
from trilogue.entry.walk import read_header
from trilogue.log.directory import DataDirectory
from trilogue.log.jobs.flush import flush
from trilogue.log.journal.commit import InlineCommitter
from trilogue.log.journal.files import SealedFile
from trilogue.log.journal.journal import JournalLimits
from trilogue.log.log import Log, LogEnvironment, LogLimits
from trilogue.log.partition_log import SegmentSlice
from trilogue.log.segments.segment_info import FlushJob
from trilogue.meta.memory import MemoryMeta
from trilogue.meta.operations import (
    DeleteSnapshot,
    PutPartitionState,
    PutSegment,
    PutSnapshot,
    SetFlushedThrough,
)

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

    def __init__(
        self, seed: int, load_internal_records: Callable[[], InternalRecords] | None = None
    ) -> None:
        self.load_internal_records = load_internal_records
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
            load_internal_records=self.load_internal_records,
        )
        self.broker.restore_snapshot(self.meta.snapshots())
        self.log = Log.open(
            DataDirectory.open(self.fs, DATA),
            self.meta.manifest(),
            LogEnvironment(
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
        self.meta.write_now(ops)
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
        self.meta.write_now(commit.ops(), commit.preconditions)
        commit.apply()

    def partition(self, index: int) -> Partition:
        return self.broker.cluster.topic(parse_kafka("orders")).partition(index)

    def written(self, index: int) -> list[tuple[int, int, int]]:
        """(producer id, base sequence, span) of every entry that can be read, by offset."""
        partition, found = self.partition(index).log, []
        offset = partition.start_offset
        while offset < partition.high_watermark:
            part = partition.read(offset, 1)
            data = part.run() if isinstance(part, SegmentSlice) else b"".join(part.slices)
            header = read_header(memoryview(data))
            assert header.base_offset == offset
            found.append((header.producer_id, header.base_sequence, header.span))
            offset += header.span
        return found


class Steps:
    """What may happen to a node at any moment, independent of its clients."""

    def __init__(self, node: Node) -> None:
        self.node = node

    def turn(self) -> None:
        self.node.loop.turn()

    def work(self) -> None:
        self.node.loop.work()

    def seal(self) -> None:
        self.node.log.seal()

    def flush(self) -> None:
        self.node.flush()
