"""Deduplication by producer name: the highest sequence id of each producer in a partition (PIP-6).

The rule is Pulsar's: a message whose sequence id is not above the highest one is stored already, or
was skipped for good. Only topics whose policy enables deduplication have this state. Each entry
holds its producer's key, eight bytes made of the name.

State moves when an entry is appended, so that a repetition before the sync is recognised: its
response waits for the disk, as that of the original does. A snapshot must not be ahead of the disk,
or a producer that repeats what a crash lost would get a receipt for it. So each producer has a list
of what it has written above the durable end. After a start the highest ids come from the snapshot
and from replayed entries.

Of a chunked message only the last chunk counts. A chunk of a complete message is a repetition; a
chunk of an incomplete one is stored even if it was stored before, and the consumer ignores it.

A snapshot row: key "q" | u64 partition id | u64 producer key, value u8 version 1 | i64 highest
sequence id | i64 active_ms. A producer that was idle for six hours is removed, and so is the one
that was idle longest if a partition has too many: both as in Apache Pulsar.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from struct import Struct
from typing import Final
from typing import Protocol as Port

import msgspec

from trilogue.broker.facts import SEQUENCE_KEY, VERSION, SnapshotRow
from trilogue.log.errors import CorruptLog

NO_SEQUENCE: Final = -1

_KEY: Final = Struct(">cQQ")
_ROW: Final = Struct(">Bqq")


class Stamp(Port):
    """The producer and sequence ids of an entry; `entry.pulsar_batch.Stamp` is one."""

    @property
    def sequence_id(self) -> int:
        """The sequence id of the first message."""

    @property
    def highest_sequence_id(self) -> int:
        """The sequence id of the last message."""

    @property
    def producer_key(self) -> int:
        """The key of the producer."""


class DeduplicationLimits(msgspec.Struct, frozen=True):
    """How long an idle producer is kept, and how many per partition."""

    expiration_ms: int = 360 * 60_000
    producers_max: int = 10_000


class _ProducerState:
    """The sequence ids of one producer in one partition."""

    __slots__ = ("active_ms", "dirty", "durable", "gone", "highest", "key", "pending", "saved")

    def __init__(self, key: tuple[int, int]) -> None:
        self.key = key  # partition id, producer key
        self.highest = NO_SEQUENCE
        self.durable = NO_SEQUENCE
        self.active_ms = 0
        self.pending: deque[tuple[int, int]] = deque()  # base offset, highest: not durable yet
        self.dirty = False
        self.gone = False
        self.saved = False  # whether meta has a row, or will have one

    def settle(self, end: int) -> None:
        """Note that everything below this offset is durable."""
        pending = self.pending
        while pending and pending[0][0] < end:
            self.durable = pending.popleft()[1]


class Deduplication:
    """The producers of all partitions whose policy enables deduplication."""

    def __init__(self, limits: DeduplicationLimits | None = None) -> None:
        self.limits = limits or DeduplicationLimits()
        self._partitions: dict[int, OrderedDict[int, _ProducerState]] = {}  # the longest idle first
        self._dirty: list[_ProducerState] = []
        self._gone: dict[tuple[int, int], None] = {}

    def __len__(self) -> int:
        return sum(map(len, self._partitions.values()))

    # -- appending

    def is_duplicate(self, partition_id: int, stamp: Stamp) -> bool:
        """Whether an entry is not above its producer's highest sequence id."""
        state = self._find(partition_id, stamp.producer_key)
        return state is not None and stamp.sequence_id <= state.highest

    def record(
        self, partition_id: int, stamp: Stamp, base_offset: int, now_ms: int, durable_end: int
    ) -> None:
        """Record an entry that was just appended."""
        states = self._partitions.get(partition_id)
        if states is None:
            states = self._partitions[partition_id] = OrderedDict()
        state = states.get(stamp.producer_key)
        if state is None:
            state = states[stamp.producer_key] = _ProducerState((partition_id, stamp.producer_key))
            if len(states) > self.limits.producers_max:
                self._forget(next(iter(states.values())))
        else:
            states.move_to_end(stamp.producer_key)
            state.settle(durable_end)
        highest = max(state.highest, stamp.highest_sequence_id)
        state.highest = highest
        state.active_ms = now_ms
        if base_offset < durable_end:
            state.durable = highest
        else:
            state.pending.append((base_offset, highest))
        if not state.dirty:
            state.dirty = True
            self._dirty.append(state)

    def last_sequence_id(self, partition_id: int, producer_key: int) -> int:
        """Return a producer's highest sequence id, durable or not; NO_SEQUENCE if unknown."""
        state = self._find(partition_id, producer_key)
        return NO_SEQUENCE if state is None else state.highest

    # -- going

    def drop(self, partition_id: int) -> None:
        """Remove the producers of a partition that was deleted, or no longer deduplicates."""
        for state in list(self._partitions.get(partition_id, {}).values()):
            self._forget(state)

    def release(self, partition_id: int) -> None:
        """Forget the producers of a partition that another node has now; their rows stay."""
        for state in self._partitions.pop(partition_id, {}).values():
            state.gone = True

    def retain_only(self, wanted: Callable[[int], bool]) -> None:
        """Drop every partition for which `wanted` returns False."""
        for partition_id in list(self._partitions):
            if not wanted(partition_id):
                self.drop(partition_id)

    # -- the flush cut and the start

    def snapshot(self, now_ms: int, durable_end: Callable[[int], int]) -> list[SnapshotRow]:
        """Return the rows that changed since the last call, after letting idle producers go.

        A producer whose last entry is not durable yet has the durable part in the row, and another
        row in the next call.
        """
        self._expire(now_ms - self.limits.expiration_ms)
        rows = [SnapshotRow(_KEY.pack(SEQUENCE_KEY, *key), None) for key in self._gone]
        self._gone.clear()
        dirty, self._dirty = self._dirty, []
        for state in dirty:
            if state.gone:
                continue
            state.settle(durable_end(state.key[0]))
            if state.durable != NO_SEQUENCE:
                value = _ROW.pack(VERSION, state.durable, state.active_ms)
                rows.append(SnapshotRow(_KEY.pack(SEQUENCE_KEY, *state.key), value))
                state.saved = True
            state.dirty = bool(state.pending)
            if state.dirty:
                self._dirty.append(state)
        return rows

    def load(self, key: bytes, value: bytes, known: Callable[[int], bool]) -> None:
        """Load a snapshot row; CorruptLog."""
        if len(key) != _KEY.size or len(value) != _ROW.size:
            raise CorruptLog("a sequence's snapshot is malformed")
        _, partition_id, producer_key = _KEY.unpack(key)
        version, highest, active_ms = _ROW.unpack(value)
        if version != VERSION:
            raise CorruptLog(f"a sequence's snapshot has version {version}; this program knows 1")
        if not known(partition_id):  # deleted after the last cut
            self._gone[partition_id, producer_key] = None
            return
        state = _ProducerState((partition_id, producer_key))
        state.highest = state.durable = highest
        state.active_ms = active_ms
        state.saved = True
        self._partitions.setdefault(partition_id, OrderedDict())[producer_key] = state

    def finish_loading(self, partition_ids: Iterable[int] | None = None) -> None:
        """Order the producers (of these partitions) by their last use, after rows were loaded."""
        for partition_id in list(self._partitions) if partition_ids is None else partition_ids:
            states = self._partitions.get(partition_id)
            if states is None:
                continue
            by_use: Iterable[tuple[int, _ProducerState]] = sorted(
                states.items(), key=lambda item: item[1].active_ms
            )
            self._partitions[partition_id] = OrderedDict(by_use)

    def restore(self, partition_id: int, stamp: Stamp, end_offset: int, now_ms: int) -> None:
        """Record a replayed entry, which is durable."""
        self.record(partition_id, stamp, end_offset - 1, now_ms, end_offset)

    # -- inside

    def _find(self, partition_id: int, producer_key: int) -> _ProducerState | None:
        states = self._partitions.get(partition_id)
        return None if states is None else states.get(producer_key)

    def _expire(self, oldest_ms: int) -> None:
        for states in list(self._partitions.values()):
            while states and (state := next(iter(states.values()))).active_ms < oldest_ms:
                self._forget(state)

    def _forget(self, state: _ProducerState) -> None:
        partition_id, producer_key = state.key
        states = self._partitions[partition_id]
        del states[producer_key]
        if not states:
            del self._partitions[partition_id]
        state.gone = True
        if state.saved:
            self._gone[state.key] = None
