"""One transactional id: its state as decided, and its state as far as it is durable.

    decided   what requests are answered by; moves at once
    durable   what a snapshot of the flush cut has; follows when the journal has committed

The partitions and positions of a transaction only grow, so both states share them: each has the
number of the change that added it, and `durable` ends at a number. When a transaction ends, the
decided state gets new, empty ones.
"""

from __future__ import annotations

from trilogue.broker.facts import CursorMove, CursorMoves
from trilogue.broker.promise import Promise
from trilogue.broker.transactions.records import (
    TransactionContent,
    TransactionRow,
    TransactionState,
)


class Contained:
    """What one transaction contains, with the number of the change that added it."""

    __slots__ = ("groups", "offsets", "partitions")

    def __init__(self) -> None:
        self.partitions: dict[int, int] = {}
        self.groups: dict[str, int] = {}
        self.offsets: list[tuple[int, CursorMoves]] = []

    def until(self, change: int) -> TransactionContent:
        """Return what changes up to this number have added."""
        return TransactionContent(
            tuple(each for each, number in self.partitions.items() if number <= change),
            tuple(each for each, number in self.groups.items() if number <= change),
            tuple(moves for number, moves in self.offsets if number <= change),
        )

    def positions(self) -> dict[str, dict[int, CursorMove]]:
        """Return the newest position of each partition, by group."""
        found: dict[str, dict[int, CursorMove]] = {}
        for _, moves in self.offsets:
            positions = found.setdefault(moves.name, {})
            positions.update((move.partition_id, move) for move in moves.moves)
        return found


class Transaction:
    """The state of one transactional id."""

    __slots__ = (
        "changes",
        "contained",
        "durable",
        "durable_change",
        "durable_contained",
        "ending",
        "row",
        "unsaved",
    )

    def __init__(self, row: TransactionRow) -> None:
        self.row = row
        self.contained = Contained()
        self.changes = 0  # made so far
        self.unsaved = 0  # changes that are not durable yet
        self.ending: Promise[None] | None = None  # settled when the outcome is durable
        self.durable: TransactionRow | None = None
        self.durable_contained = self.contained
        self.durable_change = 0

    @property
    def state(self) -> TransactionState:
        """The decided state."""
        return self.row.state

    def begin(self, now_ms: int) -> None:
        """Begin a transaction, if none is ongoing."""
        if self.row.state is not TransactionState.ONGOING:
            self.contained = Contained()
            self.row = self.row._replace(state=TransactionState.ONGOING, started_ms=now_ms)

    def content(self) -> TransactionContent:
        """Return everything that the transaction contains."""
        return self.contained.until(self.changes)

    def saved(self, row: TransactionRow, contained: Contained, change: int) -> None:
        """Note that a change is durable."""
        self.durable, self.durable_contained, self.durable_change = row, contained, change
        self.unsaved -= 1

    def durable_content(self) -> TransactionContent:
        """Return what the durable part of the transaction contains."""
        return self.durable_contained.until(self.durable_change)
