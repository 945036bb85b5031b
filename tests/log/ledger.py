"""The transactions and epochs of one partition, recomputed from all of its entries at each call.

tests/log/test_transactions_model.py compares the log's results with these after any history.
`flush_all` and the other functions do for a rig what the node does.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from msgspec.structs import replace

from tests.log.rig import CLUSTER, Rig
from trilogue.entry.control import Outcome, build_marker
from trilogue.entry.entry import Record
from trilogue.entry.kafka.record_batch import build_batch
from trilogue.log.jobs.flush import flush
from trilogue.log.segments.manifest import PartitionRange
from trilogue.log.segments.segment import AbortedTransaction
from trilogue.log.segments.segment_info import FlushJob, FlushResult, MergeJob, segment_name
from trilogue.log.transactions import stable_end_of


@dataclass
class Written:
    """One entry as the test wrote it."""

    base: int
    span: int
    producer: int | None  # None: not transactional
    outcome: Outcome | None  # of a marker
    epoch: int
    append_ms: int = -1  # -1: not durable

    @property
    def end(self) -> int:
        return self.base + self.span


@dataclass
class Ledger:
    """All that was ever written to a partition, and where it starts."""

    entries: list[Written] = field(default_factory=list)
    start: int = 0
    owner: tuple[int, int] = (1, 0)  # the owner's epoch, and where it began

    @property
    def durable(self) -> list[Written]:
        return [each for each in self.entries if each.append_ms >= 0]

    @property
    def end(self) -> int:
        return max([self.start, *(each.end for each in self.durable)])

    def transactions(self) -> tuple[dict[int, int], list[AbortedTransaction]]:
        """Those that are open, and those that were aborted, in the order of their ends."""
        opened: dict[int, int] = {}
        aborted = []
        for each in self.durable:
            if each.producer is None:
                continue
            if each.outcome is None:
                opened.setdefault(each.producer, each.base)
            elif each.producer in opened:
                first = opened.pop(each.producer)
                if each.outcome is Outcome.ABORT:
                    stable = min(opened.values(), default=each.base + 1)
                    aborted.append(AbortedTransaction(each.producer, first, each.base, stable))
        return opened, aborted

    def stable_end(self) -> int:
        opened, _ = self.transactions()
        return min(self.end, max(self.start, min(opened.values(), default=self.end)))

    def aborted(self, from_offset: int, to_offset: int) -> list[AbortedTransaction]:
        _, aborted = self.transactions()
        return [
            row
            for row in aborted
            if row.first_offset < to_offset and row.last_offset >= from_offset
        ]

    def epoch_end(self, wanted_epoch: int) -> tuple[int, int]:
        """As Kafka's LeaderEpochFileCache.endOffsetFor, with what its truncateFromStart keeps."""
        starts: list[tuple[int, int]] = []
        for each in self.durable:
            if not starts or starts[-1][0] != each.epoch:
                starts.append((each.epoch, each.base))
        if not starts or starts[-1][0] != self.owner[0]:
            starts.append(self.owner)
        gone = [epoch for epoch, first in starts if first <= self.start]
        starts = [each for each in starts if each[1] > self.start]
        if gone:
            starts.insert(0, (gone[-1], self.start))
        if wanted_epoch == self.owner[0]:
            return wanted_epoch, self.end
        higher = [each for each in starts if each[0] > wanted_epoch]
        if wanted_epoch < 0 or not higher:
            return -1, -1
        floor = [each for each in starts if each[0] <= wanted_epoch]
        return (floor[-1][0] if floor else wanted_epoch), higher[0][1]

    def first_appended(self, timestamp_ms: int, from_offset: int) -> int | None:
        """The first offset from one on that became durable at a time or later."""
        for each in self.durable:
            if each.end > max(from_offset, self.start) and each.append_ms >= timestamp_ms:
                return max(each.base, from_offset, self.start)
        return None


def data(producer: int | None, count: int = 1, *, size: int = 10) -> bytes:
    """A batch of so many messages, in a transaction of a producer if there is one."""
    records = [Record(at, 1000, None, b"x" * size) for at in range(count)]
    if producer is None:
        return build_batch(records)
    return build_batch(
        records, transactional=True, producer_id=producer, producer_epoch=0, base_sequence=0
    )


def marker(producer: int, outcome: Outcome, *, producer_epoch: int = 0) -> bytes:
    return build_marker(
        outcome,
        producer_id=producer,
        producer_epoch=producer_epoch,
        coordinator_epoch=0,
        timestamp_ms=1000,
    )


def next_id(rig: Rig) -> int:
    """Return an id that no segment ever had: files stay after their segment is removed."""
    names = rig.fs.listdir(rig.directory.segments)
    return 1 + max((int(name.split(".")[0]) for name in names), default=0)


def flush_job(rig: Rig, *, files: int = 1) -> FlushJob:
    """What the node orders for the oldest sealed files."""
    chosen = list(rig.log.sealed)[:files]
    segment_id = next_id(rig)
    return FlushJob(
        journal_paths=tuple(str(file.path) for file in chosen),
        segment_path=str(rig.directory.segments / segment_name(segment_id)),
        segment_id=segment_id,
        last_sequence=chosen[-1].last_sequence,
        flushed_through=rig.flushed_through,
        flushed_ends={each: known.flushed_end for each, known in rig.ranges.items()},
        known=frozenset(rig.ranges),
        start_offsets={each: known.start_offset for each, known in rig.ranges.items()},
        cluster_id=CLUSTER,
        node_id=1,
        node_epoch=rig.epoch,
        now_ms=0,
        open_transactions={
            each: known.open_transactions
            for each, known in rig.ranges.items()
            if known.open_transactions
        },
    )


def merge_job(rig: Rig, *, own_bytes: int, target_bytes: int) -> MergeJob:
    """Order a merge of all segments."""
    first = next_id(rig)
    return MergeJob(
        inputs=tuple(rig.segments),
        directory=str(rig.directory.segments),
        segment_ids=tuple(range(first, first + 500)),
        level=1,
        starts={each: known.start_offset for each, known in rig.ranges.items()},
        own_bytes=own_bytes,
        target_bytes=target_bytes,
        cluster_id=CLUSTER,
        node_id=1,
        node_epoch=rig.epoch,
        now_ms=0,
    )


def record(rig: Rig, result: FlushResult) -> None:
    """Do meta's part of a flush."""
    rig.flushed_through = result.last_sequence
    if result.segment is not None:
        rig.segments.append(result.segment)
    for each, end in result.ends.items():
        known = rig.ranges[each]
        opened = result.open_transactions.get(each, known.open_transactions)
        rig.ranges[each] = range_of(known.start_offset, end, opened)


def range_of(start: int, end: int, opened: Iterable[tuple[int, int]]) -> PartitionRange:
    opened = tuple(opened)
    return PartitionRange(start, end, stable_end_of(opened, start, end), open_transactions=opened)


def flush_all(rig: Rig) -> FlushResult:
    """Seal and flush everything that is durable."""
    rig.log.seal()
    result = flush(flush_job(rig, files=len(rig.log.sealed)), rig.fs)
    record(rig, result)
    rig.log.apply_flush(result)
    rig.loop.run()
    return result


def retain(rig: Rig, partition_id: int, start_offset: int) -> None:
    """Move the start of a partition, in meta and in the log."""
    known = rig.ranges[partition_id]
    rig.ranges[partition_id] = replace(known, start_offset=start_offset)
    rig.log.apply_retention({partition_id: start_offset})
