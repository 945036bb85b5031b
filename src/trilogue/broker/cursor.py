"""Cursors: how far each reader has come, per (protocol, name, partition).

Today a cursor is a mark (everything below its offset is acked) with what Kafka keeps beside it: the
owner epoch the reader saw, a text of its own, the time. Acked ranges above the mark come with
Pulsar's individual acks, and so does the mapping of several names to one shared cursor.

A move is a fact record in the journal, and so is a removal. Memory follows when the journal says it
is durable, in the order of the journal, so nobody is told a position, or that it is gone, that a
power cut could take back. Positions of deleted partitions go with them, also those that were still
on their way to the disk.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import NamedTuple
from typing import Protocol as Port

from trilogue.broker.errors import (
    BrokerError,
    InvalidGroupName,
    MetadataTooLarge,
    StorageFailed,
    TooManyPositions,
    failure,
)
from trilogue.broker.facts import (
    NOT_SAID,
    CursorMove,
    CursorMoves,
    CursorsGone,
    FactKind,
    Protocol,
    SnapshotRow,
    cursor_key,
    decode_gone,
    decode_moves,
    encode_gone,
    encode_moves,
)
from trilogue.broker.promise import Promise
from trilogue.log.errors import LogError

NAME_SIZE_MAX = 1_024  # bytes of UTF-8
MOVES_IN_FACT = 200  # with the longest metadata below the size of a fact
GONE_IN_FACT = 10_000  # ids of 8 bytes, likewise


class FactJournal(Port):
    """What cursors need of the journal."""

    def add_fact(self, kind: int, payload: bytes) -> None:
        """Put a fact into the window that is being filled."""

    def on_commit(self, callback: Callable[[BaseException | None], None]) -> None:
        """Call back when everything added so far is durable, or never will be."""


class Position(NamedTuple):
    """Where a reader of one partition will go on."""

    offset: int
    owner_epoch: int
    metadata: str
    committed_ms: int
    retention_ms: int = NOT_SAID  # after the commit, if the client said how long


@dataclass(frozen=True, slots=True)
class CursorLimits:
    """Bounds on what clients may leave with us."""

    metadata_size_max: int = 4_096  # bytes of UTF-8
    count_max: int = 1_000_000


Applied = Callable[[], None]  # what a fact does to memory

_NONE: Mapping[int, Position] = MappingProxyType({})


class Cursors:
    """All positions of this node. `known` says whether a partition (still) exists."""

    def __init__(self, known: Callable[[int], bool], limits: CursorLimits | None = None) -> None:
        self.limits = limits or CursorLimits()
        self._known = known
        self._positions: dict[tuple[Protocol, str], dict[int, Position]] = {}
        self._count = 0
        self._dirty: dict[tuple[Protocol, str, int], None] = {}

    def __len__(self) -> int:
        return self._count

    def position(self, protocol: Protocol, name: str, partition_id: int) -> Position | None:
        """Return the durable position, if there is one."""
        return self._positions.get((protocol, name), _NONE).get(partition_id)

    def positions(self, protocol: Protocol, name: str) -> Mapping[int, Position]:
        """Return all durable positions of a name by partition id; a view, not to be kept."""
        return self._positions.get((protocol, name), _NONE)

    def names(self, protocol: Protocol) -> list[str]:
        """Return every name of a protocol that has a position."""
        return [name for spoken, name in self._positions if spoken is protocol]

    def check(self, move: CursorMove) -> None:
        """Refuse a move that cannot be; one bad partition need not spoil a whole commit."""
        limit = self.limits.metadata_size_max
        if len(move.metadata) > limit or len(move.metadata.encode()) > limit:
            raise MetadataTooLarge(f"metadata may have {limit} bytes")

    def commit(
        self,
        journal: FactJournal,
        protocol: Protocol,
        name: str,
        moves: Sequence[CursorMove],
        now_ms: int,
        *,
        retention_ms: int = NOT_SAID,
    ) -> Promise[None]:
        """Move marks; the promise is kept when the moves are durable and visible.

        `retention_ms` is how long the client wants them kept; NOT_SAID leaves that to the broker.
        """
        if len(name.encode()) > NAME_SIZE_MAX:
            raise InvalidGroupName(f"a name may have {NAME_SIZE_MAX} bytes")
        there = self.positions(protocol, name)
        coming = sum(move.partition_id not in there for move in moves)
        if coming and self._count + coming > self.limits.count_max:
            raise TooManyPositions(f"the broker keeps {self.limits.count_max} positions")
        for move in moves:
            self.check(move)
        parts = [
            CursorMoves(protocol, name, now_ms, moves[first : first + MOVES_IN_FACT], retention_ms)
            for first in range(0, len(moves), MOVES_IN_FACT)
        ]
        return self._tell(
            journal,
            FactKind.CURSOR_MOVE,
            [(encode_moves(part), partial(self._apply, part)) for part in parts],
        )

    def remove(
        self,
        journal: FactJournal,
        protocol: Protocol,
        name: str,
        partition_ids: Collection[int] | None = None,
    ) -> Promise[None]:
        """Forget positions of a name: on these partitions, or all of them, also those under way.

        The promise is kept when that is durable; what is not there is gone already.
        """
        if partition_ids is None:
            parts = [CursorsGone(protocol, name, None)]
        else:
            ids = list(partition_ids)
            parts = [
                CursorsGone(protocol, name, ids[first : first + GONE_IN_FACT])
                for first in range(0, len(ids), GONE_IN_FACT)
            ]
        return self._tell(
            journal,
            FactKind.CURSORS_GONE,
            [(encode_gone(part), partial(self._remove, part)) for part in parts],
        )

    def _tell(
        self, journal: FactJournal, kind: FactKind, facts: Sequence[tuple[bytes, Applied]]
    ) -> Promise[None]:
        promise: Promise[None] = Promise()
        left = len(facts)
        try:
            for payload, apply in facts:
                left -= 1
                journal.add_fact(kind, payload)
                journal.on_commit(self._when_durable(apply, promise, last=not left))
        except LogError as error:
            raise failure(error) from error
        if not facts:
            promise.set_result(None)
        return promise

    @staticmethod
    def _when_durable(
        apply: Applied, promise: Promise[None], *, last: bool
    ) -> Callable[[BaseException | None], None]:
        """Say what happens when one fact's frame is durable.

        Each fact is applied with its own frame, not with the last of its commit: a flush may cut
        between the two frames, and what its snapshot lacks no replay would bring back.
        """

        def settle(error: BaseException | None) -> None:
            if error is None:
                apply()
            if last and error is not None:
                promise.set_error(StorageFailed(str(error)))
            elif last:
                promise.set_result(None)

        return settle

    def replay(self, payload: bytes) -> None:
        """Apply a move found in the journal at start."""
        self._apply(decode_moves(payload))

    def replay_gone(self, payload: bytes) -> None:
        """Apply a removal found in the journal at start."""
        self._remove(decode_gone(payload))

    def load(self, payload: bytes) -> None:
        """Apply a snapshot row; it need not be written to the next snapshot."""
        batch = decode_moves(payload)
        self._apply(batch)
        for move in batch.moves:
            key = (batch.protocol, batch.name, move.partition_id)
            if self._known(move.partition_id):
                del self._dirty[key]
            else:
                self._dirty[key] = None  # the partition was deleted after the last cut

    def drop(self, partition_ids: Collection[int]) -> None:
        """Forget positions on partitions that were deleted."""
        gone = set(partition_ids)
        for (protocol, name), positions in list(self._positions.items()):
            for partition_id in positions.keys() & gone:
                del positions[partition_id]
                self._count -= 1
                self._dirty[protocol, name, partition_id] = None
            if not positions:
                del self._positions[protocol, name]

    def snapshot(self) -> list[SnapshotRow]:
        """Return the rows that changed since the last call."""
        dirty, self._dirty = self._dirty, {}
        return [self._row(*key) for key in dirty]

    def _row(self, protocol: Protocol, name: str, partition_id: int) -> SnapshotRow:
        key = cursor_key(protocol, name, partition_id)
        position = self.position(protocol, name, partition_id)
        if position is None:
            return SnapshotRow(key, None)
        move = CursorMove(partition_id, position.offset, position.owner_epoch, position.metadata)
        kept = position.committed_ms, (move,), position.retention_ms
        moves = CursorMoves(protocol, name, *kept)
        return SnapshotRow(key, encode_moves(moves))

    def _apply(self, batch: CursorMoves) -> None:
        key = (batch.protocol, batch.name)
        positions = self._positions.get(key)
        for partition_id, offset, owner_epoch, metadata in batch.moves:
            if not self._known(partition_id):
                continue
            if positions is None:
                positions = self._positions[key] = {}
            if partition_id not in positions:
                self._count += 1
            said = offset, owner_epoch, metadata
            positions[partition_id] = Position(*said, batch.committed_ms, batch.retention_ms)
            self._dirty[batch.protocol, batch.name, partition_id] = None

    def _remove(self, gone: CursorsGone) -> None:
        key = (gone.protocol, gone.name)
        positions = self._positions.get(key)
        if positions is None:
            return
        for partition_id in gone.partition_ids if gone.partition_ids is not None else [*positions]:
            if positions.pop(partition_id, None) is not None:
                self._count -= 1
                self._dirty[gone.protocol, gone.name, partition_id] = None
        if not positions:
            del self._positions[key]


def refusal(cursors: Cursors, move: CursorMove) -> BrokerError | None:
    """Say why a move cannot be, or None."""
    try:
        cursors.check(move)
    except BrokerError as error:
        return error
    return None
