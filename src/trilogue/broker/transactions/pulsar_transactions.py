"""Transactions by Pulsar's TxnID: the same transactions that Kafka's clients name by an id.

    TxnID           (most, least): the coordinator, which is 0, and epoch << 48 | producer id
    Kafka's names   the producer id and the epoch of `least`; of a transaction that a Pulsar client
                    begins the transactional id is `__pulsar_txn_` and the producer id

A Pulsar client's transaction has a producer id of its own, with epoch 0, so that its entries are
one transactional producer's in the log. Its transactional id has this one transaction and is
forgotten after it. A TxnID that is made of a Kafka producer's id and epoch names the transaction
that it has open. See docs/decisions/0067-pulsar-transactions.md.

The principal that began a transaction may use it; any other one needs WRITE on the transactional
id, which the gateway checks.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from trilogue.broker.cursors.position import Cursor
from trilogue.broker.errors import (
    BrokerError,
    InvalidTransactionState,
    NotServed,
    ProducerFenced,
    TooManyTransactions,
    UnknownTransaction,
)
from trilogue.broker.promise import Promise
from trilogue.broker.transactions.coordinator import (
    COMPLETE,
    PULSAR_PREFIX,
    ProducerIdentity,
    TransactionCoordinator,
)
from trilogue.broker.transactions.records import DeferredAck, TransactionRow, TransactionState
from trilogue.broker.transactions.transaction import Transaction, TransactionLimits

log = logging.getLogger(__name__)

COORDINATOR: Final = 0
EPOCH_SHIFT: Final = 48
PRODUCER_MASK: Final = (1 << EPOCH_SHIFT) - 1


class TxnId(NamedTuple):
    """The TxnID of Pulsar's protocol."""

    most: int
    least: int

    def __str__(self) -> str:
        return f"({self.most},{self.least})"

    @property
    def identity(self) -> ProducerIdentity:
        """The producer whose entries those of the transaction are."""
        return ProducerIdentity(self.least & PRODUCER_MASK, self.least >> EPOCH_SHIFT)


def txn_id_of(row: TransactionRow) -> TxnId:
    """Return the TxnID of the transaction of a transactional id."""
    epoch = 0 if row.owner else row.epoch
    return TxnId(COORDINATOR, epoch << EPOCH_SHIFT | row.producer_id)


class PulsarTransactions:
    """The transactions of a coordinator by TxnID."""

    def __init__(
        self,
        coordinator: TransactionCoordinator,
        allocate_producer_id: Callable[[], int],
        limits: TransactionLimits,
        is_alone: Callable[[], bool],
    ) -> None:
        self._is_alone = is_alone
        self.coordinator = coordinator
        self._allocate_producer_id = allocate_producer_id
        self._limits = limits
        self._open = 0
        self._ended: deque[str] = deque()  # ids whose transaction has ended, oldest first
        coordinator.on_end = self._on_end

    def attach(self) -> None:
        """Count what a recovered coordinator has; it begins to serve after this."""
        rows = [each.row for each in self.coordinator.table if each.row.owner]
        ended = [row for row in rows if row.state in COMPLETE.values()]
        self._ended.extend(
            row.transactional_id for row in sorted(ended, key=lambda row: row.changed_ms)
        )
        self._open = len(rows) - len(ended)

    # -- requests of clients

    def begin(self, timeout_ms: int, owner: str) -> Promise[ProducerIdentity]:
        """Begin a transaction; the promise has its producer when that is durable.

        Raises NotServed, InvalidTransactionTimeout, TooManyTransactions, ProducerIdsExhausted.
        """
        self._check_served()
        self.coordinator.check_timeout(timeout_ms)
        if self._open >= self._limits.open_max:
            raise TooManyTransactions(f"up to {self._limits.open_max} transactions may be open")
        producer_id = self._allocate_producer_id()
        name = f"{PULSAR_PREFIX}{producer_id}"
        promise = self.coordinator.create(name, producer_id, timeout_ms, owner=owner)
        self._open += 1
        return promise

    def find_transaction(self, txn_id: TxnId) -> Transaction:
        """Return the transaction of a TxnID, also one that has ended.

        Raises UnknownTransaction; NotServed on one of several nodes.
        """
        self._check_served()
        found = None
        if txn_id.most == COORDINATOR:
            found = self.coordinator.table.find_by_producer(txn_id.identity.producer_id)
        if found is None:
            raise UnknownTransaction(f"there is no transaction {txn_id}")
        return found

    def _check_served(self) -> None:
        if not self._is_alone():
            raise NotServed("Pulsar's transactions are served by one node: start it with --nodes 1")

    def find_open(self, txn_id: TxnId) -> Transaction:
        """Return the open transaction of a TxnID.

        Raises UnknownTransaction, or InvalidTransactionState for one that has ended.
        """
        found = self.find_transaction(txn_id)
        row = found.row
        if row.state is not TransactionState.ONGOING or row.epoch != txn_id.identity.epoch:
            raise InvalidTransactionState(f"transaction {txn_id} has ended")
        return found

    def add_partitions(self, txn_id: TxnId, partition_ids: Sequence[int]) -> None:
        """Add partitions; raises as `find_open`, and TooManyTransactions."""
        name = self.find_open(txn_id).row.transactional_id
        self.coordinator.add_partitions(name, txn_id.identity, partition_ids)

    def add_ack(
        self, txn_id: TxnId, cursor: Cursor, until: int, ranges: Sequence[tuple[int, int]]
    ) -> None:
        """Add acks of a subscription: all below `until`, or ranges.

        Raises as `find_open`, and TransactionConflict or TooManyTransactions.
        """
        name = self.find_open(txn_id).row.transactional_id
        ack = DeferredAck(cursor.key, cursor.created_ms, until, ranges)
        self.coordinator.add_ack(name, txn_id.identity, ack, cursor)

    def end(self, txn_id: TxnId, *, commit: bool) -> Promise[ProducerIdentity]:
        """End the transaction; the promise is settled when that is durable.

        A repeated request gets the same answer. Raises UnknownTransaction, InvalidTransactionState,
        ConcurrentTransactions.
        """
        row = self.find_transaction(txn_id).row
        settled = row.state in (TransactionState.EMPTY, *COMPLETE.values())
        if settled and (row.owner or row.epoch == txn_id.identity.epoch):
            if row.state is not COMPLETE[commit]:
                raise InvalidTransactionState(f"transaction {txn_id} is {row.state.name.lower()}")
            return Promise.resolved(ProducerIdentity(row.producer_id, row.epoch))
        try:
            return self.coordinator.end(
                row.transactional_id, txn_id.identity, commit=commit, bumps=True
            )
        except ProducerFenced as error:
            raise InvalidTransactionState(f"transaction {txn_id} has ended") from error

    # -- the end

    def _on_end(self, row: TransactionRow) -> None:
        if not row.owner:
            return
        self._open -= 1
        self._ended.append(row.transactional_id)
        while len(self._ended) > self._limits.ended_max:
            found = self.coordinator.table.find_by_id(self._ended[0])
            try:
                if found is not None:
                    self.coordinator.forget(found)
            except BrokerError as error:  # as on a full disk: the next end forgets it
                log.warning("transaction.not_forgotten", extra={"reason": str(error)})
                return
            del self._ended[0]
