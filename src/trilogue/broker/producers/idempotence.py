"""Idempotent producers (KIP-98): the last batches of each, so that a retry appends nothing.

For each (partition, producer id) the epoch and the last five batches are kept. A batch arrives:

    known producer, same epoch     next sequence (2^31-1 is followed by 0)     append
                                   one of the last five, exactly               its offset again
                                   written before those                        DuplicateSequence
                                   anything else                               OutOfOrderSequence
    higher epoch                   sequence 0                                  append
                                   any other                                   OutOfOrderSequence
    lower epoch                                                                StaleProducerEpoch
    unknown producer               any sequence                                append

An unknown producer may start at any sequence, as in Kafka since 2.5: its state may have expired,
and the refusal of 2.0.0 (UNKNOWN_PRODUCER_ID) only made clients take a new id. DuplicateSequence
means to the client that its batch is stored, so it is raised only for sequences that were surely
written: `written` counts how many follow each other without a gap up to the last one.

State moves when a batch is appended, so that a retry before the sync is recognised (the response
waits for the disk either way). A snapshot must not be ahead of the disk: it holds only batches
below the high watermark. For that a sixth batch is kept (a client has at most five unacked, so the
sixth is durable), and the epoch before the newest one. Where batches are acknowledged from memory
(`flush=interval`) any number of them may not be durable yet: all of those are kept, and five before
them. State comes back from snapshots and from the headers of replayed entries; applying a header
twice changes nothing.

A crash may lose batches that were acknowledged from memory. Their producer, if it is still there,
continues after the gap and gets OutOfOrderSequence; if no state of it was left, it counts as new.

All states are in one list, ordered by last use. At its end idle ones expire (after one day, checked
when a snapshot is made) and give way when there are too many.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable
from operator import attrgetter
from typing import NamedTuple

import msgspec

from trilogue.broker.errors import (
    DuplicateSequence,
    OutOfOrderSequence,
    StaleProducerEpoch,
)
from trilogue.broker.facts import (
    BATCHES_MAX,
    ProducerMark,
    SnapshotRow,
    WrittenBatch,
    encode_mark,
    producer_key,
)
from trilogue.broker.producers.deduplication import Deduplication, DeduplicationLimits
from trilogue.entry.entry import EntryHeader

WINDOW = BATCHES_MAX  # five, whose repetition is answered with their offset
KEPT = WINDOW + 1
PENDING_MAX = 20_000  # of one producer, not durable yet: some intervals' worth on a disk that hangs
SEQUENCE_MASK = 2**31 - 1
BEHIND_MAX = 2**30  # half of the circle of sequences is behind the last one, half ahead


class ProducerLimits(msgspec.Struct, frozen=True):
    """How long an idle producer is kept, and how many (producer, partition) pairs."""

    expiration_ms: int = 86_400_000
    count_max: int = 100_000
    deduplication: DeduplicationLimits = msgspec.field(default_factory=DeduplicationLimits)


class ActiveProducer(NamedTuple):
    """A producer as DescribeProducers shows it; `last_sequence` -1: none in its epoch."""

    producer_id: int
    epoch: int
    last_sequence: int
    active_ms: int


class _Producer:
    """The state of one producer in one partition."""

    __slots__ = (
        "active_ms",
        "batches",
        "dirty",
        "epoch",
        "former",
        "last_sequence",
        "partition_id",
        "producer_id",
        "written",
    )

    def __init__(self, partition_id: int, producer_id: int) -> None:
        self.partition_id = partition_id
        self.producer_id = producer_id
        self.epoch = -1
        self.last_sequence = -1
        self.written = 0
        self.active_ms = 0
        self.batches: list[WrittenBatch] = []
        self.former: tuple[int, list[WrittenBatch], int] | None = None  # the epoch before
        self.dirty = False

    def repeated(self, sequence: int, delta: int) -> WrittenBatch:
        """Return the batch that an unexpected sequence repeats, or refuse it."""
        window = self.batches[-WINDOW:]
        for batch in window:
            if batch.base_sequence == sequence and batch.last_offset_delta == delta:
                return batch
        behind = (self.last_sequence - sequence) & SEQUENCE_MASK
        recent = sum(batch.last_offset_delta + 1 for batch in window)
        if recent <= behind - delta and behind < min(self.written, BEHIND_MAX):
            raise DuplicateSequence(f"sequence {sequence} was written long ago")
        expected = (self.last_sequence + 1) & SEQUENCE_MASK
        raise OutOfOrderSequence(f"sequence {sequence} came where {expected} was expected")

    def begin_epoch(self, epoch: int) -> None:
        """Begin another epoch, in which nothing is written yet."""
        self.former = (self.epoch, self.batches, self.written) if self.batches else None
        self.epoch = epoch
        self.batches = []
        self.last_sequence = -1
        self.written = 0

    def write(
        self,
        header: EntryHeader,
        base_offset: int,
        append_time_ms: int,
        durable_end: int | None = None,
    ) -> None:
        """Record a batch that is in the log; above `durable_end` it is not durable yet."""
        sequence, delta = header.base_sequence, header.last_offset_delta
        if header.producer_epoch != self.epoch:
            self.begin_epoch(header.producer_epoch)
        elif sequence != (self.last_sequence + 1) & SEQUENCE_MASK:
            self.batches.clear()  # a gap that only a replay can have: what was between is unknown
            self.written = 0
        self.last_sequence = (sequence + delta) & SEQUENCE_MASK
        self.written += delta + 1
        self.batches.append(WrittenBatch(sequence, delta, base_offset, append_time_ms))
        if len(self.batches) > KEPT:
            self._trim(durable_end)

    def _trim(self, durable_end: int | None) -> None:
        """Remove the oldest batches."""
        batches = self.batches
        if durable_end is None or len(batches) > PENDING_MAX:
            del batches[0]
        elif batches[WINDOW].base_offset < durable_end:
            durable = bisect_left(batches, durable_end, key=_base_offset)
            del batches[: durable - WINDOW]

    def durable(self, end: int) -> ProducerMark | None:
        """Return the state as of the durable end, or None if it is no longer known."""
        batches = self.batches
        if not batches or batches[-1].base_offset < end:
            return self._mark(self.epoch, batches, self.written)
        states = [(self.epoch, batches, self.written)]
        if self.former is not None:
            states.append(self.former)
        for epoch, batches, written in states:
            below = [batch for batch in batches if batch.base_offset < end]
            above = sum(batch.last_offset_delta + 1 for batch in batches[len(below) :])
            if below:
                return self._mark(epoch, below, written - above)
        return None

    def _mark(self, epoch: int, batches: list[WrittenBatch], written: int) -> ProducerMark:
        return ProducerMark(
            self.partition_id,
            self.producer_id,
            epoch,
            self.active_ms,
            written,
            tuple(batches[-WINDOW:]),
        )


_base_offset = attrgetter("base_offset")


class PartitionProducers:
    """The producers of one partition. `check` before an append, `write` after it."""

    __slots__ = ("_all", "_states", "partition_id")

    def __init__(self, everyone: Producers, partition_id: int) -> None:
        self._all = everyone
        self._states: dict[int, _Producer] = {}
        self.partition_id = partition_id

    def __len__(self) -> int:
        return len(self._states)

    @property
    def deduplication(self) -> Deduplication:
        """The sequence ids of producers by name, of all partitions."""
        return self._all.deduplication

    def last_entries(self) -> dict[int, int]:
        """Return the base offset of the last entry of each producer that is known."""
        return {
            producer_id: state.batches[-1].base_offset
            for producer_id, state in self._states.items()
            if state.batches
        }

    def epoch_of(self, producer_id: int) -> int | None:
        """Return the epoch of a producer, None if it is not known."""
        state = self._states.get(producer_id)
        return None if state is None else state.epoch

    def active(self) -> list[ActiveProducer]:
        """Return the state of each producer."""
        return [
            ActiveProducer(each.producer_id, each.epoch, each.last_sequence, each.active_ms)
            for each in self._states.values()
        ]

    def check(self, header: EntryHeader) -> WrittenBatch | None:
        """Return None for a batch to append, or the batch that it repeats; or refuse it."""
        state = self._states.get(header.producer_id)
        sequence, epoch = header.base_sequence, header.producer_epoch
        if state is None:
            return None
        if epoch == state.epoch:
            if sequence == (state.last_sequence + 1) & SEQUENCE_MASK:
                return None
            return state.repeated(sequence, header.last_offset_delta)
        if epoch < state.epoch:
            raise StaleProducerEpoch(f"epoch {epoch} is over, the producer is at {state.epoch}")
        if sequence != 0:
            raise OutOfOrderSequence(f"a new epoch starts with sequence 0, not {sequence}")
        return None

    def write(
        self,
        header: EntryHeader,
        base_offset: int,
        append_time_ms: int,
        now_ms: int,
        durable_end: int | None = None,
    ) -> None:
        """Record a batch that was just appended.

        With a durable end it was acknowledged from memory: nothing above that end is removed.
        """
        producer_id = header.producer_id
        state = self._states.get(producer_id)
        if state is None:
            state = self._states[producer_id] = _Producer(self.partition_id, producer_id)
        state.write(header, base_offset, append_time_ms, durable_end)
        state.active_ms = now_ms
        self._all.touch(state)

    def mark(self, header: EntryHeader, now_ms: int) -> None:
        """Record a transaction marker: it has no sequence, but may raise the epoch.

        A producer that is fenced has its transaction ended in the next epoch, which starts with
        sequence 0.
        """
        state = self._states.get(header.producer_id)
        if state is None or header.producer_epoch <= state.epoch:
            return
        state.begin_epoch(header.producer_epoch)
        state.active_ms = now_ms
        self._all.touch(state)

    def restore(self, header: EntryHeader, now_ms: int) -> None:
        """Record a replayed entry; one that is known already changes nothing."""
        if header.is_control:
            self.mark(header, now_ms)
            return
        state = self._states.get(header.producer_id)
        known = state.batches[-1].base_offset if state is not None and state.batches else -1
        if header.base_offset <= known:
            return
        append_time_ms = header.max_timestamp if header.log_append_time else -1
        self.write(header, header.base_offset, append_time_ms, now_ms)

    def load(self, mark: ProducerMark) -> None:
        """Set the state of a producer from a snapshot or a mark in the journal."""
        state = self._states.get(mark.producer_id)
        if state is None:
            state = self._states[mark.producer_id] = _Producer(mark.partition_id, mark.producer_id)
        state.epoch = mark.epoch
        state.active_ms = mark.active_ms
        state.written = mark.written
        state.batches = list(mark.batches)
        last = mark.batches[-1] if mark.batches else None
        state.last_sequence = (
            -1 if last is None else (last.base_sequence + last.last_offset_delta) & SEQUENCE_MASK
        )
        self._all.touch(state)

    def forget(self, state: _Producer) -> None:
        """Remove one producer."""
        del self._states[state.producer_id]

    def clear(self) -> list[_Producer]:
        """Remove all producers and return their states."""
        states = list(self._states.values())
        self._states.clear()
        return states


class Producers:
    """The producers of all partitions of this node: expiry, limit, snapshots."""

    def __init__(self, limits: ProducerLimits | None = None) -> None:
        self.limits = limits or ProducerLimits()
        self.deduplication = Deduplication(self.limits.deduplication)
        self._partitions: dict[int, PartitionProducers] = {}
        self._by_use: OrderedDict[_Producer, None] = OrderedDict()  # the longest idle first
        self._dirty: list[_Producer] = []
        self._gone: dict[bytes, None] = {}

    def __len__(self) -> int:
        return len(self._by_use)

    def partition(self, partition_id: int) -> PartitionProducers:
        """Return the producers of one partition."""
        found = self._partitions.get(partition_id)
        if found is None:
            found = self._partitions[partition_id] = PartitionProducers(self, partition_id)
        return found

    def touch(self, state: _Producer) -> None:
        """Note a change of a producer; removes the one idle longest if there are too many."""
        by_use = self._by_use
        if state in by_use:
            by_use.move_to_end(state)
        else:
            by_use[state] = None
            if len(by_use) > self.limits.count_max:
                self._forget(next(iter(by_use)))
        if not state.dirty:
            state.dirty = True
            self._dirty.append(state)

    def drop(self, partition_id: int) -> None:
        """Remove the producers of a deleted partition."""
        self.deduplication.drop(partition_id)
        partition = self._partitions.pop(partition_id, None)
        for state in partition.clear() if partition else ():
            self._remove(state)

    def release(self, partition_id: int) -> None:
        """Forget the producers of a partition that another node has now; their rows stay."""
        self.deduplication.release(partition_id)
        partition = self._partitions.pop(partition_id, None)
        for state in partition.clear() if partition else ():
            del self._by_use[state]
            state.dirty = False

    def replay(self, mark: ProducerMark) -> None:
        """Load a mark found in the journal at the start."""
        self.partition(mark.partition_id).load(mark)

    def load(self, mark: ProducerMark) -> None:
        """Load a snapshot row, which need not be written to the next snapshot."""
        self.partition(mark.partition_id).load(mark)
        self._dirty.pop().dirty = False

    def disown(self, mark: ProducerMark) -> None:
        """Schedule the removal of the row of a partition that was deleted after the last cut."""
        self._gone[producer_key(mark.partition_id, mark.producer_id)] = None

    def snapshot(self, now_ms: int, durable_end: Callable[[int], int]) -> list[SnapshotRow]:
        """Return the rows that changed since the last call, after letting idle producers go.

        A producer without a known durable state keeps its old row and stays in the list.
        """
        oldest_ms = now_ms - self.limits.expiration_ms
        while self._by_use and (state := next(iter(self._by_use))).active_ms < oldest_ms:
            self._forget(state)
        rows = [SnapshotRow(key, None) for key in self._gone]
        self._gone.clear()
        dirty, self._dirty = self._dirty, []
        for state in dirty:
            mark = state.durable(durable_end(state.partition_id)) if state.dirty else None
            if mark is not None:
                state.dirty = mark.batches[-1:] != tuple(state.batches[-1:])
                rows.append(
                    SnapshotRow(
                        producer_key(mark.partition_id, mark.producer_id), encode_mark(mark)
                    )
                )
            if state.dirty:
                self._dirty.append(state)
        return rows

    def _forget(self, state: _Producer) -> None:
        self._partitions[state.partition_id].forget(state)
        self._remove(state)

    def _remove(self, state: _Producer) -> None:
        del self._by_use[state]
        state.dirty = False  # still in the list of changed producers, where it is skipped
        self._gone[producer_key(state.partition_id, state.producer_id)] = None
