"""Acks that a partition's owner keeps for transactions of another node, until they end.

A transaction moves cursors with its end. If its coordinator also owns the partition, the
transaction has the acks (transaction.py). Otherwise they are here, by subscription and
transactional id, and the transaction names the subscription only: its coordinator sends the
outcome, and an outcome that comes again finds nothing. Dispatch passes over them in either case
(pending_acks.py).

    PENDING_ACKS        as TRANSACTION_ACKED (records.py)
    PENDING_ACKS_ENDED  the same, with an ACK of nothing

What is acked is in the journal before the end of the pending acks, and acks that are repeated have
no effect. At the flush cut each pair that changed has one row, key "a" | u64 partition id |
i64 created_ms | u16 length, subscription | transactional id, value PENDING_ACKS with all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from struct import Struct
from typing import Final, NamedTuple

from trilogue.broker.cursors.position import Cursor, Position
from trilogue.broker.errors import TooManyTransactions, convert_log_error
from trilogue.broker.facts import PENDING_ACKS_KEY, FactJournal, FactKind, SnapshotRow
from trilogue.broker.transactions.pending_acks import PendingAcks, SubscriptionId
from trilogue.broker.transactions.records import (
    DeferredAck,
    decode_pending_ack,
    encode_pending_ack,
)
from trilogue.broker.transactions.transaction import NumberedAcks
from trilogue.log.errors import LogError

_KEY: Final = Struct(">cQqH")


class AckKey(NamedTuple):
    """The acks of one subscription in the transaction of one id."""

    subscription: SubscriptionId
    transactional_id: str


class BranchAcks:
    """The acks in transactions of other coordinators, of the partitions that this node owns."""

    def __init__(
        self,
        pending_acks: PendingAcks,
        commit_acks: Callable[[Sequence[DeferredAck]], object],
        exists: Callable[[int], bool],
        *,
        ranges_max: int,
    ) -> None:
        self._pending_acks = pending_acks
        self._commit_acks = commit_acks
        self._exists = exists
        self._ranges_max = ranges_max  # of one transaction
        self._journal: FactJournal
        self._pending: dict[AckKey, NumberedAcks] = {}
        self._changes = 0
        self._durable: dict[AckKey, tuple[NumberedAcks, int]] = {}  # up to this change
        self._dirty: dict[AckKey, None] = {}

    def attach(self, journal: FactJournal) -> None:
        """Begin to serve: the log has recovered."""
        self._journal = journal

    def __len__(self) -> int:
        return len(self._pending)

    def find_ack(self, transactional_id: str, cursor: Cursor) -> DeferredAck | None:
        """Return what a transaction has acked in a subscription, or None."""
        found = self._pending.get(AckKey((cursor.key, cursor.created_ms), transactional_id))
        return None if found is None else found.merge()[0]

    def add(self, transactional_id: str, ack: DeferredAck, acked: Position) -> None:
        """Keep acks of a subscription that has acked these offsets; durable at the next commit.

        Raises TransactionConflict, TooManyTransactions, StorageFailed, DiskFull, TooLarge.
        """
        pending_acks = self._pending_acks
        if pending_acks.range_count(transactional_id) + len(ack.ranges) > self._ranges_max:
            raise TooManyTransactions(f"a transaction acks up to {self._ranges_max} ranges here")
        pending_acks.check(transactional_id, acked, ack)
        self._add_fact(FactKind.PENDING_ACKS, transactional_id, ack)
        key = AckKey(ack.subscription, transactional_id)
        self._changes += 1
        _, durable_change = self._durable.get(key, (None, 0))
        acks = self._pending.setdefault(key, NumberedAcks())
        acks.add(self._changes, ack, durable_change)
        pending_acks.add(transactional_id, ack)
        self._save_when_durable(key, acks, self._changes)

    def end(self, transactional_id: str, subscription: SubscriptionId, *, commit: bool) -> None:
        """Commit or drop what is pending; nothing pending is no error. `release` must follow.

        Raises as `add`, and what committing acks raises.
        """
        key = AckKey(subscription, transactional_id)
        pending = self._pending.get(key)
        if pending is None:
            return
        (ack,) = pending.merge()
        if commit:
            self._commit_acks((ack,))
        self._add_fact(FactKind.PENDING_ACKS_ENDED, transactional_id, ack.without_acks())
        del self._pending[key]
        self._save_when_durable(key)

    def release_partitions(self, gives_partition: Callable[[int], bool]) -> None:
        """Forget what is pending in partitions that another node has now; its rows stay."""
        for key in [each for each in self._pending if gives_partition(each[0][0].partition_id)]:
            del self._pending[key]
            self._durable.pop(key, None)
            self.release(key.transactional_id, (key.subscription,), committed=False)

    def release(
        self, transactional_id: str, subscriptions: Iterable[SubscriptionId], *, committed: bool
    ) -> None:
        """Let dispatch go on with what was pending: the outcome is durable."""
        self._pending_acks.release(
            transactional_id, committed=committed, subscriptions=subscriptions
        )

    def _add_fact(self, kind: FactKind, transactional_id: str, ack: DeferredAck) -> None:
        try:
            self._journal.add_fact(kind, encode_pending_ack(transactional_id, ack))
        except LogError as error:
            raise convert_log_error(error) from error

    def _save_when_durable(
        self, key: AckKey, acks: NumberedAcks | None = None, change: int = 0
    ) -> None:
        def committed(problem: BaseException | None) -> None:
            if problem is None:
                self._save(key, acks, change)

        self._journal.on_commit(committed)

    def _save(self, key: AckKey, acks: NumberedAcks | None, change: int) -> None:
        if acks is None:
            self._durable.pop(key, None)
        else:
            self._durable[key] = acks, change
        self._dirty[key] = None

    # -- the flush cut and the start

    def snapshot(self) -> list[SnapshotRow]:
        """Return the rows that changed since the last call, as far as they are durable."""
        self._forget_deleted()
        dirty, self._dirty = self._dirty, {}
        rows = []
        for key in dirty:
            value = None
            if key in self._durable:
                acks, change = self._durable[key]
                (ack,) = acks.until(change)
                value = encode_pending_ack(key.transactional_id, ack)
            rows.append(SnapshotRow(_encode_key(key), value))
        return rows

    def _forget_deleted(self) -> None:
        """Drop what is pending in topics that are deleted: no outcome comes for them."""
        for key in [each for each in self._pending if not self._exists(each[0][0].partition_id)]:
            del self._pending[key]
            self.release(key.transactional_id, (key.subscription,), committed=False)
            self._save(key, None, 0)

    def load(self, value: bytes) -> None:
        """Take over a snapshot row; CorruptLog."""
        self._restore(*decode_pending_ack(value))

    def replay(self, kind: int, payload: bytes) -> None:
        """Take over a fact found in the journal at start; CorruptLog."""
        name, ack = decode_pending_ack(payload)
        if kind == FactKind.PENDING_ACKS:
            key = self._restore(name, ack)
        else:
            key = AckKey(ack.subscription, name)
            self._pending.pop(key, None)
            self._durable.pop(key, None)
            self.release(name, (key.subscription,), committed=False)
        self._dirty[key] = None

    def _restore(self, name: str, ack: DeferredAck) -> AckKey:
        key = AckKey(ack.subscription, name)
        acks = self._pending.setdefault(key, NumberedAcks())
        acks.restore((ack,))
        self._durable[key] = acks, 0
        self._pending_acks.add(name, ack)
        return key


def _encode_key(key: AckKey) -> bytes:
    position, created_ms = key.subscription
    name = position.name.encode()
    head = _KEY.pack(PENDING_ACKS_KEY, position.partition_id, created_ms, len(name))
    return head + name + key.transactional_id.encode()
