"""De-duplication by producer name: of each producer the highest sequence id that a partition has.

The rule is Pulsar's: what is not above the highest is there already, or was skipped for good. It is
followed only where the topic's policy says so, and only there is anything remembered. Producers are
known by a key, eight bytes made of their name, which stands in each entry.

What is remembered moves when an entry is appended, so that a repetition which comes before the sync
is recognised: its answer waits for the disk, as the one it repeats does. A snapshot must not know
more than the disk: else a producer that sends again what a crash took would be told that it is
there. So each producer has a list of what it has written above the durable end. After a start the
highest ones come from the snapshot and from the stamps of replayed entries.

Of a message in chunks only the last chunk counts. A chunk of a message that is complete is a
repetition; one of a message that is not is taken, whether it was there before or not: its reader
sorts that out.

A snapshot row: key "q" | u64 partition id | u64 producer key, value u8 version 1 | i64 highest
sequence id | i64 active_ms. A producer that was idle for six hours is forgotten, and so is the one
that was idle longest where a partition has too many: both as in a real broker.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from struct import Struct
from typing import Final
from typing import Protocol as Port

from trilogue.broker.facts import SEQUENCE_KEY, VERSION, SnapshotRow
from trilogue.log.errors import CorruptLog

NO_SEQUENCE: Final = -1

_KEY: Final = Struct(">cQQ")
_ROW: Final = Struct(">Bqq")


class Stamp(Port):
    """What an entry says of the one who sent it: `entry.pulsar_batch.Stamp` is one."""

    @property
    def sequence_id(self) -> int:
        """Of its first message, or of all."""

    @property
    def highest_sequence_id(self) -> int:
        """Of its last message."""

    @property
    def producer_key(self) -> int:
        """Who sent it."""


@dataclass(frozen=True, slots=True)
class SequenceLimits:
    """How long an idle producer is remembered, and how many of one partition."""

    expiration_ms: int = 360 * 60_000
    producers_max: int = 10_000


class _Sender:
    """What is known of one producer in one partition."""

    __slots__ = ("active_ms", "dirty", "durable", "gone", "highest", "key", "pending", "saved")

    def __init__(self, key: tuple[int, int]) -> None:
        self.key = key  # partition id, producer key
        self.highest = NO_SEQUENCE
        self.durable = NO_SEQUENCE
        self.active_ms = 0
        self.pending: deque[tuple[int, int]] = deque()  # base offset, highest: not durable yet
        self.dirty = False
        self.gone = False
        self.saved = False  # whether meta has a row, or is about to have one

    def settle(self, end: int) -> None:
        """Everything below this offset is durable."""
        pending = self.pending
        while pending and pending[0][0] < end:
            self.durable = pending.popleft()[1]


class Sequences:
    """The producers of all partitions whose policy says that repetitions are looked for."""

    def __init__(self, limits: SequenceLimits | None = None) -> None:
        self.limits = limits or SequenceLimits()
        self._partitions: dict[int, OrderedDict[int, _Sender]] = {}  # the longest idle first
        self._dirty: list[_Sender] = []
        self._gone: dict[tuple[int, int], None] = {}

    def __len__(self) -> int:
        return sum(map(len, self._partitions.values()))

    # -- appending

    def repeats(self, partition_id: int, stamp: Stamp) -> bool:
        """Whether an entry is not above what its producer has written."""
        sender = self._find(partition_id, stamp.producer_key)
        return sender is not None and stamp.sequence_id <= sender.highest

    def write(
        self, partition_id: int, stamp: Stamp, base_offset: int, now_ms: int, durable_end: int
    ) -> None:
        """Remember an entry that was just appended."""
        senders = self._partitions.get(partition_id)
        if senders is None:
            senders = self._partitions[partition_id] = OrderedDict()
        sender = senders.get(stamp.producer_key)
        if sender is None:
            sender = senders[stamp.producer_key] = _Sender((partition_id, stamp.producer_key))
            if len(senders) > self.limits.producers_max:
                self._forget(next(iter(senders.values())))
        else:
            senders.move_to_end(stamp.producer_key)
            sender.settle(durable_end)
        highest = max(sender.highest, stamp.highest_sequence_id)
        sender.highest = highest
        sender.active_ms = now_ms
        if base_offset < durable_end:
            sender.durable = highest
        else:
            sender.pending.append((base_offset, highest))
        if not sender.dirty:
            sender.dirty = True
            self._dirty.append(sender)

    def last(self, partition_id: int, producer_key: int) -> int:
        """Return a producer's highest sequence id, durable or not; NO_SEQUENCE if unknown."""
        sender = self._find(partition_id, producer_key)
        return NO_SEQUENCE if sender is None else sender.highest

    # -- going

    def drop(self, partition_id: int) -> None:
        """Forget the producers of a partition: it was deleted, or looks for them no more."""
        for sender in list(self._partitions.get(partition_id, {}).values()):
            self._forget(sender)

    def keep(self, wanted: Callable[[int], bool]) -> None:
        """Drop every partition that is not wanted."""
        for partition_id in list(self._partitions):
            if not wanted(partition_id):
                self.drop(partition_id)

    # -- the flush cut and the start

    def snapshot(self, now_ms: int, durable_end: Callable[[int], int]) -> list[SnapshotRow]:
        """Return the rows that changed since the last call, after letting idle producers go.

        A producer whose last entry is not durable yet gives what is, and its turn comes again.
        """
        self._expire(now_ms - self.limits.expiration_ms)
        rows = [SnapshotRow(_KEY.pack(SEQUENCE_KEY, *key), None) for key in self._gone]
        self._gone.clear()
        dirty, self._dirty = self._dirty, []
        for sender in dirty:
            if sender.gone:
                continue
            sender.settle(durable_end(sender.key[0]))
            if sender.durable != NO_SEQUENCE:
                value = _ROW.pack(VERSION, sender.durable, sender.active_ms)
                rows.append(SnapshotRow(_KEY.pack(SEQUENCE_KEY, *sender.key), value))
                sender.saved = True
            sender.dirty = bool(sender.pending)
            if sender.dirty:
                self._dirty.append(sender)
        return rows

    def load(self, key: bytes, value: bytes, known: Callable[[int], bool]) -> None:
        """Take over a snapshot row."""
        if len(key) != _KEY.size or len(value) != _ROW.size:
            raise CorruptLog("a sequence's snapshot is malformed")
        _, partition_id, producer_key = _KEY.unpack(key)
        version, highest, active_ms = _ROW.unpack(value)
        if version != VERSION:
            raise CorruptLog(f"a sequence's snapshot has version {version}; this program knows 1")
        if not known(partition_id):  # deleted after the last cut
            self._gone[partition_id, producer_key] = None
            return
        sender = _Sender((partition_id, producer_key))
        sender.highest = sender.durable = highest
        sender.active_ms = active_ms
        sender.saved = True
        self._partitions.setdefault(partition_id, OrderedDict())[producer_key] = sender

    def loaded(self) -> None:
        """All rows were loaded: put the longest idle first."""
        for partition_id, senders in self._partitions.items():
            by_use: Iterable[tuple[int, _Sender]] = sorted(
                senders.items(), key=lambda item: item[1].active_ms
            )
            self._partitions[partition_id] = OrderedDict(by_use)

    def restore(self, partition_id: int, stamp: Stamp, end_offset: int, now_ms: int) -> None:
        """Take over the stamp of a replayed entry, which is durable."""
        self.write(partition_id, stamp, end_offset - 1, now_ms, end_offset)

    # -- inside

    def _find(self, partition_id: int, producer_key: int) -> _Sender | None:
        senders = self._partitions.get(partition_id)
        return None if senders is None else senders.get(producer_key)

    def _expire(self, oldest_ms: int) -> None:
        for senders in list(self._partitions.values()):
            while senders and (sender := next(iter(senders.values()))).active_ms < oldest_ms:
                self._forget(sender)

    def _forget(self, sender: _Sender) -> None:
        partition_id, producer_key = sender.key
        senders = self._partitions[partition_id]
        del senders[producer_key]
        if not senders:
            del self._partitions[partition_id]
        sender.gone = True
        if sender.saved:
            self._gone[sender.key] = None
