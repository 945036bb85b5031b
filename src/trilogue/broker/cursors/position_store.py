"""The positions of one kind on this node, by (protocol, name, partition), and their way to disk.

A change is a fact record in the journal; a flush cut writes one snapshot row for each position that
changed since the cut before. This module keeps what all positions have in common: the tables, the
set of changed positions, snapshots, deletion with the partition, and the order of facts and memory.
When a position may move, and when its new place is visible, is for the two users of a store:

    committed_offsets.py       Kafka, TubeMQ    visible when durable
    subscription_cursors.py    Pulsar           visible at once

Lookup by partition is for stores that need it: the lowest cursor of a partition holds back its
retention, which no committed offset does.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, Final, Generic, NamedTuple, TypeVar

from trilogue.broker.cursors.position import Position, PositionKey
from trilogue.broker.errors import StorageFailed, convert_log_error
from trilogue.broker.facts import FactJournal, FactKind, Protocol, SnapshotRow
from trilogue.broker.promise import Promise
from trilogue.log.errors import LogError

NAME_SIZE_MAX: Final = 1_024  # bytes of UTF-8

P = TypeVar("P", bound=Position)

_NONE: Mapping[Any, Any] = MappingProxyType({})


class Fact(NamedTuple):
    """A fact to be written, and the change in memory that follows when it is durable."""

    kind: FactKind
    payload: bytes
    apply: Callable[[], object] | None = None


class PositionStore(Generic[P]):
    """See the module. `partition_exists` answers also before there is a log."""

    def __init__(
        self,
        partition_exists: Callable[[int], bool],
        *,
        row_key: Callable[[PositionKey], bytes],
        encode_row: Callable[[PositionKey, P], bytes],
        indexed: Protocol | None = None,
        text_size: Callable[[P], int] | None = None,
    ) -> None:
        self.partition_exists = partition_exists
        self._row_key = row_key
        self._encode_row = encode_row
        self._journal: FactJournal | None = None
        self._by_name: dict[tuple[Protocol, str], dict[int, P]] = {}
        self._indexed = (
            indexed  # all positions here are of this protocol, and are found by partition
        )
        self._by_partition: dict[int, dict[str, P]] = {}
        self._count = 0
        self._text_size = text_size
        self.text_bytes = 0  # by `text_size`, of all positions
        self._dirty: dict[tuple[Protocol, str, int], None] = {}  # keys as plain tuples: cheaper

    def attach(self, journal: FactJournal) -> None:
        """Begin to write facts: the log has recovered."""
        self._journal = journal

    # -- lookups

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[P]:
        for positions in self._by_name.values():
            yield from positions.values()

    def get(self, protocol: Protocol, name: str, partition_id: int) -> P | None:
        """Return a position if there is one."""
        return self._by_name.get((protocol, name), _NONE).get(partition_id)

    def of_name(self, protocol: Protocol, name: str) -> Mapping[int, P]:
        """Return the positions of a name by partition id; a view, valid until the next change."""
        return self._by_name.get((protocol, name), _NONE)

    def names(self, protocol: Protocol) -> list[str]:
        """Return every name of a protocol that has a position."""
        return [name for each, name in self._by_name if each is protocol]

    def of_partition(self, partition_id: int) -> Mapping[str, P]:
        """Return the positions of a partition by name; a view, valid until the next change."""
        assert self._indexed is not None, "this store has no lookup by partition"
        return self._by_partition.get(partition_id, _NONE)

    def partition_ids(self) -> list[int]:
        """Return the ids of the partitions that have positions."""
        assert self._indexed is not None, "this store has no lookup by partition"
        return [*self._by_partition]

    # -- changes in memory

    def put(self, protocol: Protocol, name: str, moved: Iterable[tuple[int, P]]) -> None:
        """Create or replace positions of a name; those of partitions that are gone are ignored."""
        positions = self._by_name.get((protocol, name))
        for partition_id, position in moved:
            if not self.partition_exists(partition_id):
                continue
            if positions is None:
                positions = self._by_name[protocol, name] = {}
            former = positions.get(partition_id)
            if former is None:
                self._count += 1
            if self._text_size is not None:
                freed = 0 if former is None else self._text_size(former)
                self.text_bytes += self._text_size(position) - freed
            positions[partition_id] = position
            if self._indexed is not None:
                self._by_partition.setdefault(partition_id, {})[name] = position
            self._dirty[protocol, name, partition_id] = None

    def mark_dirty(self, key: PositionKey) -> None:
        """Have the next snapshot write a position that was changed in place, or is gone."""
        self._dirty[key] = None

    def remove(
        self, protocol: Protocol, name: str, partition_ids: Iterable[int] | None = None
    ) -> list[P]:
        """Remove positions of a name, on these partitions or on all, and return them."""
        positions = self._by_name.get((protocol, name))
        if positions is None:
            return []
        removed: list[P] = []
        for partition_id in [*positions] if partition_ids is None else partition_ids:
            position = positions.pop(partition_id, None)
            if position is None:
                continue
            removed.append(position)
            if self._text_size is not None:
                self.text_bytes -= self._text_size(position)
            self._dirty[protocol, name, partition_id] = None
            if self._indexed is not None:
                names = self._by_partition[partition_id]
                del names[name]
                if not names:
                    del self._by_partition[partition_id]
        self._count -= len(removed)
        if not positions:
            del self._by_name[protocol, name]
        return removed

    def drop(self, partition_ids: Collection[int]) -> list[P]:
        """Remove all positions of partitions that were deleted, and return them."""
        dropped: list[P] = []
        gone = set(partition_ids)
        if self._indexed is not None:
            for partition_id in gone & self._by_partition.keys():
                for name in [*self._by_partition[partition_id]]:
                    dropped += self.remove(self._indexed, name, (partition_id,))
            return dropped
        for (protocol, name), positions in list(self._by_name.items()):
            dropped += self.remove(protocol, name, positions.keys() & gone)
        return dropped

    def release(self, is_given: Callable[[Protocol, str, int], bool]) -> list[P]:
        """Remove positions that another node has now, and return them; no row is to be deleted.

        The next snapshot names them, and its caller leaves rows of another node's slots out.
        """
        released: list[P] = []
        for (protocol, name), positions in list(self._by_name.items()):
            ids = [each for each in positions if is_given(protocol, name, each)]
            if ids:
                released += self.remove(protocol, name, ids)
        return released

    # -- facts

    def write(self, facts: Sequence[Fact]) -> Promise[None]:
        """Write facts; the promise is kept when all of them are durable and applied.

        Each fact is applied with its own frame, not with the last one: a flush may cut between two
        frames, and what its snapshot lacks no replay brings back. Raises BrokerError where the
        journal takes no more facts.
        """
        promise: Promise[None] = Promise()
        journal = self._current_journal
        left = len(facts)
        try:
            for kind, payload, apply in facts:
                left -= 1
                journal.add_fact(kind, payload)
                journal.on_commit(partial(_settle, None if left else promise, apply))
        except LogError as error:
            raise convert_log_error(error) from error
        if not facts:
            promise.set_result(None)
        return promise

    def add_fact(self, kind: FactKind, payload: bytes, *, acks_from_memory: bool = False) -> None:
        """Write one fact without waiting for it; raises BrokerError as `write` does."""
        try:
            self._current_journal.add_fact(kind, payload, acks_from_memory)
        except LogError as error:
            raise convert_log_error(error) from error

    @property
    def _current_journal(self) -> FactJournal:
        assert self._journal is not None, "no log yet"
        return self._journal

    # -- snapshots

    def snapshot(self) -> list[SnapshotRow]:
        """Return the rows that changed since the last call; a row without a value is deleted."""
        dirty, self._dirty = self._dirty, {}
        return [self._row(PositionKey(*key)) for key in dirty]

    def load(self, key: PositionKey, position: P) -> None:
        """Take over a snapshot row, which the next snapshot need not write again.

        The row of a partition that was deleted after the last cut is deleted by the next one.
        """
        self.put(key.protocol, key.name, ((key.partition_id, position),))
        if self.partition_exists(key.partition_id):
            del self._dirty[key]
        else:
            self._dirty[key] = None

    def _row(self, key: PositionKey) -> SnapshotRow:
        position = self.get(*key)
        value = None if position is None else self._encode_row(key, position)
        return SnapshotRow(self._row_key(key), value)


def _settle(
    promise: Promise[None] | None,
    apply: Callable[[], object] | None,
    error: BaseException | None,
) -> None:
    """Apply a fact whose frame is durable, or failed; settle the promise, if this is the last."""
    if error is None and apply is not None:
        apply()
    if promise is None:
        return
    if error is None:
        promise.set_result(None)
    else:
        promise.set_error(StorageFailed(str(error)))
