"""Committed offsets of Kafka groups, and confirmed offsets of TubeMQ groups.

A commit is a fact in the journal, and so is a removal. Memory follows when the journal reports the
fact as durable, in the order of the journal: no OffsetFetch returns an offset, or its absence, that
a power cut could take back. Offsets of deleted partitions go with them, also those that are still
on their way to the disk.

An offset comes into being with its first commit and holds back no retention.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

import msgspec

from trilogue.broker.cursors.position import CommittedOffset, PositionKey
from trilogue.broker.cursors.position_store import (
    NAME_SIZE_MAX,
    Fact,
    PositionStore,
)
from trilogue.broker.errors import (
    BrokerError,
    InvalidGroupName,
    MetadataTooLarge,
    TooManyPositions,
)
from trilogue.broker.facts import (
    DEFAULT_RETENTION,
    CursorMove,
    CursorMoves,
    CursorRemoval,
    FactJournal,
    FactKind,
    Protocol,
    SnapshotRow,
    cursor_key,
    decode_moves,
    decode_removal,
    encode_moves,
    encode_removal,
)
from trilogue.broker.promise import Promise

MOVES_IN_FACT: Final = 200  # with the longest metadata below the size of a fact
REMOVALS_IN_FACT: Final = 10_000  # ids of 8 bytes, likewise
SHORT_TEXT: Final = 100  # characters of metadata that do not count: Kafka Streams commits about 30


# Called before the fact of a Kafka group's moves, or of a removal (all: None); may refuse it.
OnMoves = Callable[[str, Iterable[tuple[int, CommittedOffset]]], None]
OnRemoval = Callable[[str, Collection[int] | None], None]


class OffsetLimits(msgspec.Struct, frozen=True):
    """Bounds on what clients may store."""

    metadata_size_max: int = 4_096  # bytes of UTF-8
    count_max: int = 1_000_000
    text_bytes_max: int = 64 << 20  # of memory: metadata of all positions, but for short ones


class CommittedOffsets:
    """The committed offsets of this node; `partition_exists` answers also before there is a log."""

    def __init__(
        self, partition_exists: Callable[[int], bool], limits: OffsetLimits | None = None
    ) -> None:
        self.limits = limits or OffsetLimits()
        self.on_moves: OnMoves = lambda _, __: None
        self.on_removal: OnRemoval = lambda _, __: None
        self._store: PositionStore[CommittedOffset] = PositionStore(
            partition_exists, row_key=_row_key, encode_row=_encode_row, text_size=_text_size
        )

    def attach(self, journal: FactJournal) -> None:
        """Begin to serve: the log has recovered."""
        self._store.attach(journal)

    def __len__(self) -> int:
        return len(self._store)

    def position(self, protocol: Protocol, name: str, partition_id: int) -> CommittedOffset | None:
        """Return the durable offset of a group in a partition, if there is one."""
        return self._store.get(protocol, name, partition_id)

    def positions(self, protocol: Protocol, name: str) -> Mapping[int, CommittedOffset]:
        """Return the durable offsets of a group by partition id; a view, not to be kept."""
        return self._store.of_name(protocol, name)

    def names(self, protocol: Protocol) -> list[str]:
        """Return the name of every group of a protocol that has an offset."""
        return self._store.names(protocol)

    def check(self, move: CursorMove) -> None:
        """Raise MetadataTooLarge; one refused partition need not refuse a whole commit."""
        limit = self.limits.metadata_size_max
        if len(move.metadata) > limit or len(move.metadata.encode()) > limit:
            raise MetadataTooLarge(f"metadata may have {limit} bytes")

    def check_room(self, move: CursorMove) -> None:
        """Raise TooManyPositions where metadata is long, and all have as much as there may be.

        A commit of a transaction that ends is not refused: this was checked when it came.
        """
        most = self.limits.text_bytes_max
        if len(move.metadata) > SHORT_TEXT and self._store.text_bytes >= most:
            raise TooManyPositions(f"the broker keeps {most >> 20} MiB of metadata of positions")

    def commit(
        self,
        protocol: Protocol,
        name: str,
        moves: Sequence[CursorMove],
        now_ms: int,
        *,
        retention_ms: int = DEFAULT_RETENTION,
    ) -> Promise[None]:
        """Commit offsets; the promise is kept when they are durable and visible.

        `retention_ms` is how long the client wants them kept; DEFAULT_RETENTION leaves that to the
        broker. Raises InvalidGroupName, MetadataTooLarge, TooManyPositions.
        """
        if len(name.encode()) > NAME_SIZE_MAX:
            raise InvalidGroupName(f"a name may have {NAME_SIZE_MAX} bytes")
        present = self.positions(protocol, name)
        added = sum(move.partition_id not in present for move in moves)
        if added and len(self._store) + added > self.limits.count_max:
            raise TooManyPositions(f"the broker keeps {self.limits.count_max} positions")
        for move in moves:
            self.check(move)
        parts = [
            CursorMoves(protocol, name, now_ms, moves[first : first + MOVES_IN_FACT], retention_ms)
            for first in range(0, len(moves), MOVES_IN_FACT)
        ]
        if protocol is Protocol.KAFKA:
            for part in parts:
                self.on_moves(name, _offsets(part))
        return self._store.write(
            [
                Fact(FactKind.CURSOR_MOVE, encode_moves(part), partial(self._apply, part))
                for part in parts
            ]
        )

    def remove(
        self, protocol: Protocol, name: str, partition_ids: Collection[int] | None = None
    ) -> Promise[None]:
        """Remove offsets of a group, on these partitions or on all, also those not durable yet.

        The promise is kept when the removal is durable.
        """
        if partition_ids is None:
            parts = [CursorRemoval(protocol, name, None)]
        else:
            ids = list(partition_ids)
            parts = [
                CursorRemoval(protocol, name, ids[first : first + REMOVALS_IN_FACT])
                for first in range(0, len(ids), REMOVALS_IN_FACT)
            ]
        if protocol is Protocol.KAFKA:
            self.on_removal(name, partition_ids)
        remove = self._store.remove
        return self._store.write(
            [
                Fact(FactKind.CURSORS_REMOVED, encode_removal(part), partial(remove, *part))
                for part in parts
            ]
        )

    def drop(self, partition_ids: Collection[int]) -> None:
        """Remove the offsets of partitions that were deleted."""
        self._store.drop(partition_ids)

    def release(
        self, gives_name: Callable[[str], bool], gives_partition: Callable[[int], bool]
    ) -> None:
        """Remove the offsets that another node has now: of Kafka's groups and of partitions."""
        self._store.release(
            lambda protocol, name, partition_id: (
                gives_name(name) if protocol is Protocol.KAFKA else gives_partition(partition_id)
            )
        )

    # -- the flush cut and the start

    def snapshot(self) -> list[SnapshotRow]:
        """Return the rows that changed since the last call."""
        return self._store.snapshot()

    def load(self, payload: bytes) -> None:
        """Take over a snapshot row."""
        batch = decode_moves(payload)
        for partition_id, offset in _offsets(batch):
            self._store.load(PositionKey(batch.protocol, batch.name, partition_id), offset)

    def replay(self, kind: int, payload: bytes) -> None:
        """Take over a fact found in the journal at start."""
        if kind == FactKind.CURSOR_MOVE:
            self._apply(decode_moves(payload))
        else:
            self._store.remove(*decode_removal(payload))

    def _apply(self, batch: CursorMoves) -> None:
        self._store.put(batch.protocol, batch.name, _offsets(batch))


def find_refusal(offsets: CommittedOffsets, move: CursorMove) -> BrokerError | None:
    """Return the error with which `CommittedOffsets` refuses a client's move, or None."""
    try:
        offsets.check(move)
        offsets.check_room(move)
    except BrokerError as error:
        return error
    return None


def _offsets(batch: CursorMoves) -> list[tuple[int, CommittedOffset]]:
    committed_ms, retention_ms = batch.committed_ms, batch.retention_ms
    return [
        (partition_id, CommittedOffset(offset, owner_epoch, metadata, committed_ms, retention_ms))
        for partition_id, offset, owner_epoch, metadata in batch.moves
    ]


def _text_size(offset: CommittedOffset) -> int:
    """Return the bytes of memory of metadata that counts."""
    return 0 if len(offset.metadata) <= SHORT_TEXT else sys.getsizeof(offset.metadata)


def _row_key(key: PositionKey) -> bytes:
    return cursor_key(*key)


def _encode_row(key: PositionKey, offset: CommittedOffset) -> bytes:
    move = CursorMove(key.partition_id, offset.mark, offset.owner_epoch, offset.metadata)
    batch = CursorMoves(key.protocol, key.name, offset.committed_ms, (move,), offset.retention_ms)
    return encode_moves(batch)
