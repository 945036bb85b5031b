"""One transactional id: its state as decided, and its state as far as it is durable.

    decided   what requests are answered by; moves at once
    durable   what a snapshot of the flush cut has; follows when the journal has committed

The partitions and positions of a transaction only grow, so both states share them: each has the
number of the change that added it, and `durable` ends at a number. When a transaction ends, the
decided state gets new, empty ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

import msgspec

from trilogue.broker.cursors.cursor_facts import NOTHING_BELOW
from trilogue.broker.cursors.position import Position, PositionKey
from trilogue.broker.errors import ConcurrentTransactions
from trilogue.broker.facts import CursorMove, CursorMoves
from trilogue.broker.node_requests import Part, SubscriptionPart
from trilogue.broker.promise import Promise
from trilogue.broker.transactions.records import (
    DeferredAck,
    TransactionContent,
    TransactionRow,
    TransactionState,
)

ACKS_MERGED_FROM: Final = 1_000
METADATA_OF_POSITION: Final = 128  # characters


class TransactionLimits(msgspec.Struct, frozen=True):
    """Bounds on transactions and on what is kept of their ids."""

    timeout_max_ms: int = 900_000
    expiration_ms: int = 7 * 86_400_000
    ids_max: int = 50_000
    partitions_max: int = 20_000  # of one transaction
    positions_max: int = 100_000  # of one transaction
    subscriptions_max: int = 5_000  # of one transaction, on other nodes: the outcome names them
    open_max: int = 10_000  # that clients of Pulsar have begun
    ended_max: int = 1_000  # transactions of Pulsar whose outcome is known after their end
    ack_ranges_max: int = 30_000  # of one transaction: they are one fact when it ends
    parts_max: int = 500_000  # partitions, groups and positions of all open transactions together


class MarkedPartition(Protocol):
    """A partition, as far as the end of a transaction needs it."""

    deleted: bool

    def append_marker(self, marker: bytes, now_ms: int) -> None:
        """Append a transaction marker; raises LogError."""


class NumberedAcks:
    """Acks of one transaction, with the number of the change that added them."""

    __slots__ = ("_acks", "_merge_at", "subscriptions")

    def __init__(self) -> None:
        self.subscriptions: set[tuple[PositionKey, int]] = set()  # with the time of their creation
        self._acks: list[tuple[int, DeferredAck]] = []
        self._merge_at = ACKS_MERGED_FROM

    def __len__(self) -> int:
        return len(self._acks)

    def restore(self, acks: Iterable[DeferredAck]) -> None:
        """Add what is durable, of a snapshot or the journal."""
        for ack in acks:
            self.subscriptions.add(ack.subscription)
            self._acks.append((0, ack))

    def add(self, change: int, ack: DeferredAck, durable_change: int) -> None:
        """Add an ack; at times merge those that are durable, so that many small ones are few."""
        self.subscriptions.add(ack.subscription)
        self._acks.append((change, ack))
        if len(self._acks) < self._merge_at:
            return
        newer = [each for each in self._acks if each[0] > durable_change]
        self._acks = [(durable_change, each) for each in self.until(durable_change)] + newer
        self._merge_at = max(ACKS_MERGED_FROM, 2 * len(self._acks))

    def until(self, change: int) -> tuple[DeferredAck, ...]:
        """Return what changes up to this number have added: one ack for each subscription."""
        return merge_acks(ack for number, ack in self._acks if number <= change)

    def merge(self) -> tuple[DeferredAck, ...]:
        """Return one ack for each subscription."""
        return merge_acks(ack for _, ack in self._acks)


class TransactionParts(Protocol):
    """What this node has of transactions that another node coordinates, or did (participant.py)."""

    def check_confirmed(self, producer_id: int, epoch: int, part: Part) -> None:
        """Raise NotReady where the coordinator has to confirm first."""

    def end_pending(self, group: str, producer_id: int, *, commit: bool) -> None:
        """Commit or drop the offsets of a group that a producer has pending; BrokerError."""

    def end_acks(
        self, transactional_id: str, subscription: tuple[PositionKey, int], *, commit: bool
    ) -> None:
        """Commit or drop the acks that a transaction has pending; BrokerError."""


class VersionedContents:
    """What one transaction contains, with the number of the change that added it."""

    __slots__ = ("acks", "groups", "moved_ids", "offsets", "partitions", "position_count")

    def __init__(self) -> None:
        self.partitions: dict[int, int] = {}
        self.groups: dict[str, int] = {}
        self.offsets: list[tuple[int, CursorMoves]] = []
        self.moved_ids: dict[str, set[int]] = {}  # partitions of `offsets`, by group
        self.position_count = 0
        self.acks = NumberedAcks()

    @property
    def part_count(self) -> int:
        """Partitions, groups and positions."""
        return len(self.partitions) + len(self.groups) + self.position_count

    def add_offsets(self, change: int, moves: CursorMoves) -> None:
        """Add positions of a group."""
        self.offsets.append((change, moves))
        self.position_count += count_positions(moves)
        moved = self.moved_ids.setdefault(moves.name, set())
        moved.update(move.partition_id for move in moves.moves)

    def has_part(self, part: Part) -> bool:
        """Whether a partition, group or subscription was added."""
        if isinstance(part, int):
            return part in self.partitions
        return part in self.groups if isinstance(part, str) else self._has_subscription(part)

    def _has_subscription(self, part: SubscriptionPart) -> bool:
        return part.subscription in self.acks.subscriptions

    def restore(self, content: TransactionContent) -> None:
        """Add what is durable, of a snapshot or the journal."""
        self.partitions.update(dict.fromkeys(content.partition_ids, 0))
        self.groups.update(dict.fromkeys(content.groups, 0))
        for moves in content.offsets:
            self.add_offsets(0, moves)
        self.acks.restore(content.acks)

    def until(self, change: int) -> TransactionContent:
        """Return what changes up to this number have added."""
        return TransactionContent(
            tuple(each for each, number in self.partitions.items() if number <= change),
            tuple(each for each, number in self.groups.items() if number <= change),
            tuple(moves for number, moves in self.offsets if number <= change),
            self.acks.until(change),
        )

    def positions(self) -> dict[str, dict[int, CursorMove]]:
        """Return the newest position of each partition, by group."""
        found: dict[str, dict[int, CursorMove]] = {}
        for _, moves in self.offsets:
            positions = found.setdefault(moves.name, {})
            positions.update((move.partition_id, move) for move in moves.moves)
        return found


def count_positions(moves: CursorMoves) -> int:
    """Return how many positions these count for: one with long metadata counts for several."""
    return sum(1 + len(move.metadata) // METADATA_OF_POSITION for move in moves.moves)


def merge_acks(acks: Iterable[DeferredAck]) -> tuple[DeferredAck, ...]:
    """Return one ack for each subscription, with the ranges of all."""
    found: dict[tuple[PositionKey, int], tuple[DeferredAck, Position]] = {}
    for ack in acks:
        subscription = ack.key, ack.created_ms
        first, ranges = found.setdefault(subscription, (ack, Position(NOTHING_BELOW)))
        if ack.until > first.until:
            found[subscription] = ack, ranges
        for each in ack.ranges:
            ranges.ack(*each)
    return tuple(ack._replace(ranges=ranges.ranges()) for ack, ranges in found.values())


class Transaction:
    """The state of one transactional id."""

    __slots__ = (
        "aborted_identity",
        "changes",
        "contained",
        "durable",
        "durable_change",
        "durable_contained",
        "ending",
        "row",
    )

    def __init__(self, row: TransactionRow) -> None:
        self.row = row
        self.contained = VersionedContents()
        self.changes = 0  # made so far
        self.aborted_identity: tuple[int, int] | None = None  # whose transaction a move has divided
        self.ending: Promise[None] | None = None  # settled when the outcome is durable
        self.durable: TransactionRow | None = None
        self.durable_contained = self.contained
        self.durable_change = 0

    @property
    def state(self) -> TransactionState:
        """The decided state."""
        return self.row.state

    def check_settled(self) -> None:
        """Raise ConcurrentTransactions while the transaction before is being ended."""
        if self.ending is not None or self.row.state.is_ending:
            raise ConcurrentTransactions("the transaction before is being ended")

    def begin(self, now_ms: int) -> None:
        """Begin a transaction, if none is ongoing."""
        if self.row.state is not TransactionState.ONGOING:
            self.contained = VersionedContents()
            self.row = self.row._replace(state=TransactionState.ONGOING, started_ms=now_ms)

    def content(self) -> TransactionContent:
        """Return everything that the transaction contains."""
        return self.contained.until(self.changes)

    def saved(self, row: TransactionRow, contained: VersionedContents, change: int) -> None:
        """Note that a change is durable."""
        self.durable, self.durable_contained, self.durable_change = row, contained, change

    def durable_content(self) -> TransactionContent:
        """Return what the durable part of the transaction contains."""
        return self.durable_contained.until(self.durable_change)
