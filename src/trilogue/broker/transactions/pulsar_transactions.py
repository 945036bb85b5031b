"""Transactions by Pulsar's TxnID: the same transactions that Kafka's clients name by an id.

    TxnID           (most, least): the coordinator, and epoch << 48 | producer id
    Kafka's names   the producer id and the epoch of `least`; of a transaction that a Pulsar client
                    begins the transactional id is `__pulsar_txn_` and the producer id

A Pulsar client's transaction has a producer id of its own, with epoch 0, so that its entries are
one transactional producer's in the log. Its transactional id has this one transaction and is
forgotten after it. A TxnID that is made of a Kafka producer's id and epoch names the transaction
that it has open. See docs/decisions/0067-pulsar-transactions.md.

Each slot has a coordinator of its number, at the node that owns it: that of a transaction is the
slot of its transactional id. With one node there is one, 0. Each transaction has a producer id
whose name has its coordinator's slot. A client that sends messages and acks to other nodes takes
part there (participant.py): see docs/decisions/0098-pulsar-transactions-over- nodes.md.

The principal that began a transaction may use it; any other one needs WRITE on the transactional
id, which the gateway checks.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from trilogue.broker.cursors.position import Cursor
from trilogue.broker.errors import (
    BrokerError,
    InvalidTransactionState,
    NotCoordinator,
    NotReady,
    ProducerFenced,
    TooManyTransactions,
    UnknownTransaction,
)
from trilogue.broker.node_requests import (
    FindTransaction,
    Part,
    SubscriptionPart,
    TransactionName,
)
from trilogue.broker.promise import Promise
from trilogue.broker.topics.ownership import Ownership
from trilogue.broker.transactions.coordinator import (
    PULSAR_PREFIX,
    ProducerIdentity,
    TransactionCoordinator,
)
from trilogue.broker.transactions.participant import TransactionParticipant
from trilogue.broker.transactions.records import (
    COMPLETE,
    DeferredAck,
    TransactionRow,
    TransactionState,
)
from trilogue.broker.transactions.transaction import Transaction, TransactionLimits

log = logging.getLogger(__name__)

DRAWS_MAX: Final = 10_000  # producer ids, until one has a name of the coordinator
SPARES_MAX: Final = 16  # producer ids of one coordinator
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


def make_part(cursor: Cursor) -> SubscriptionPart:
    """Return a subscription as a part of a transaction."""
    return SubscriptionPart(cursor.partition_id, cursor.key.name, cursor.created_ms)


class PulsarTransactions:
    """The transactions of a coordinator by TxnID."""

    def __init__(
        self,
        coordinator: TransactionCoordinator,
        allocate_producer_id: Callable[[], int],
        limits: TransactionLimits,
        ownership: Ownership,
        participant: TransactionParticipant,
    ) -> None:
        self._ownership = ownership
        self._participant = participant
        self.coordinator = coordinator
        self._allocate_producer_id = allocate_producer_id
        self._limits = limits
        self._open = 0
        self._spares: dict[int, deque[int]] = {}  # producer ids, by slot
        self._ended: deque[str] = deque()  # ids whose transaction has ended, oldest first
        coordinator.completion.on_end = self._on_end

    def attach(self) -> None:
        """Count what a recovered coordinator has; it begins to serve after this."""
        self.adopt(self.coordinator.table)

    def adopt(self, transactions: Iterable[Transaction]) -> None:
        """Count transactions whose state was read."""
        rows = [each.row for each in transactions if each.row.owner]
        ended = [row for row in rows if row.state in COMPLETE.values()]
        self._ended.extend(
            row.transactional_id for row in sorted(ended, key=lambda row: row.changed_ms)
        )
        self._open += len(rows) - len(ended)

    def release(self, gives_name: Callable[[str], bool]) -> None:
        """Count no more what another node is to coordinate."""
        rows = [each.row for each in self.coordinator.table if each.row.owner]
        ended = {*COMPLETE.values()}
        self._open -= sum(
            row.state not in ended and gives_name(row.transactional_id) for row in rows
        )
        self._ended = deque(name for name in self._ended if not gives_name(name))

    # -- coordinators

    def find_coordinator(self, number: int) -> int:
        """Return the id of the node that has a coordinator; NotCoordinator if there is none."""
        owner = self._ownership.slot_owner(number)
        if owner is None:
            raise NotCoordinator(f"there is no transaction coordinator {number}")
        return owner

    def check_coordinator(self, number: int) -> None:
        """Raise NotCoordinator where another node has this coordinator, or none has it yet."""
        owner = self.find_coordinator(number)
        if not self._ownership.owns_slot(number):
            raise NotCoordinator(f"node {owner} has transaction coordinator {number}")

    def coordinates(self, txn_id: TxnId) -> bool:
        """Whether this node has the coordinator of a transaction, or there is no such one."""
        slot = txn_id.most
        return self._ownership.slot_owner(slot) is None or self._ownership.owns_slot(slot)

    def txn_id_of(self, row: TransactionRow) -> TxnId:
        """Return the TxnID of the transaction of a transactional id."""
        epoch = 0 if row.owner else row.epoch
        slot = self._ownership.slot_of(row.transactional_id)
        return TxnId(slot, epoch << EPOCH_SHIFT | row.producer_id)

    # -- requests of clients

    def begin(self, number: int, timeout_ms: int, owner: str) -> Promise[TxnId]:
        """Begin a transaction of a coordinator; the promise has its TxnID when that is durable.

        Raises NotCoordinator, InvalidTransactionTimeout, TooManyTransactions, ProducerIdsExhausted,
        NotReady.
        """
        self.check_coordinator(number)
        self.coordinator.check_timeout(timeout_ms)
        if self._open >= self._limits.open_max:
            raise TooManyTransactions(f"up to {self._limits.open_max} transactions may be open")
        producer_id = self._draw_producer_id(number)
        name = f"{PULSAR_PREFIX}{producer_id}"
        created = self.coordinator.create(name, producer_id, timeout_ms, owner=owner)
        self._open += 1
        begun: Promise[TxnId] = Promise()

        def settle(_: Promise[ProducerIdentity]) -> None:
            if created.error is not None:
                begun.set_error(created.error)
            else:
                begun.set_result(TxnId(number, producer_id))

        created.then(settle)
        return begun

    def _draw_producer_id(self, number: int) -> int:
        """Return a new producer id whose transactional id is of a coordinator.

        Those that are of other ones are spares: clients use the coordinators in turn.
        """
        spares = self._spares.get(number)
        if spares:
            return spares.popleft()
        for _ in range(DRAWS_MAX):
            producer_id = self._allocate_producer_id()
            slot = self._ownership.slot_of(f"{PULSAR_PREFIX}{producer_id}")
            if slot == number:
                return producer_id
            if self._ownership.slot_owner(slot) == self._ownership.node_id:
                self._spares.setdefault(slot, deque(maxlen=SPARES_MAX)).append(producer_id)
        raise NotReady("there is no producer id for this coordinator yet")

    def find_transaction(self, txn_id: TxnId) -> Transaction:
        """Return the transaction of a TxnID, also one that has ended.

        Raises UnknownTransaction; NotCoordinator where another node has its coordinator.
        """
        if not self.coordinates(txn_id):
            self.check_coordinator(txn_id.most)
        found = self.coordinator.table.find_by_producer(txn_id.identity.producer_id)
        if found is None or self._ownership.slot_of(found.row.transactional_id) != txn_id.most:
            raise UnknownTransaction(f"there is no transaction {txn_id}")
        return found

    def is_large(self, txn_id: TxnId) -> bool:
        """Whether the end of a transaction of this node's writes to many parts."""
        table = self.coordinator.table
        found = table.find_by_producer(txn_id.identity.producer_id)
        return found is not None and table.is_large(found.row.transactional_id)

    def find_name(self, txn_id: TxnId) -> TransactionName:
        """Return the transactional id of a TxnID of any coordinator, and which principal has it.

        Raises UnknownTransaction; NotReady where `look_up` has to find it first.
        """
        if self.coordinates(txn_id):
            row = self.find_transaction(txn_id).row
            return TransactionName(row.transactional_id, row.owner)
        name = self._participant.find_name(txn_id.identity.producer_id)
        if self._ownership.slot_of(name.transactional_id) != txn_id.most:
            raise UnknownTransaction(f"there is no transaction {txn_id}")
        return name

    def answer_name(self, request: FindTransaction) -> TransactionName:
        """Return the name of an open transaction of this node's; raises as `find_open`."""
        row = self.find_open(TxnId(request.most, request.least)).row
        return TransactionName(row.transactional_id, row.owner)

    def look_up(self, txn_id: TxnId) -> Promise[None]:
        """Have the coordinator on another node name a transaction, as the participant does."""
        owner = self.find_coordinator(txn_id.most)
        return self._participant.look_up(
            owner, txn_id.identity.producer_id, FindTransaction(txn_id.most, txn_id.least)
        )

    def is_joined(self, txn_id: TxnId, part: Part) -> bool:
        """Whether a client may write to a part of this node without a request to another one."""
        if self.coordinates(txn_id):
            return True
        try:
            self.find_name(txn_id)
        except NotReady:
            return False
        except UnknownTransaction:
            return True
        return self._participant.is_confirmed(*txn_id.identity, part)

    def find_open(self, txn_id: TxnId) -> Transaction:
        """Return the open transaction of a TxnID.

        Raises UnknownTransaction, or InvalidTransactionState for one that has ended.
        """
        found = self.find_transaction(txn_id)
        row = found.row
        if row.state is not TransactionState.ONGOING or row.epoch != txn_id.identity.epoch:
            raise InvalidTransactionState(f"transaction {txn_id} has ended")
        return found

    def check_send(self, txn_id: TxnId, partition_id: int) -> None:
        """Add the partition of a message; raises as `add_partitions`.

        With a coordinator on another node it has confirmed the partition, or this is NotReady.
        """
        if self.coordinates(txn_id):
            self.add_partitions(txn_id, (partition_id,))
        else:
            self._participant.check_confirmed(*txn_id.identity, partition_id)

    def add_partitions(self, txn_id: TxnId, partition_ids: Sequence[int]) -> None:
        """Add partitions; raises as `find_open`, and TooManyTransactions."""
        name = self.find_open(txn_id).row.transactional_id
        self.coordinator.add_partitions(name, txn_id.identity, partition_ids)

    def add_ack(
        self, txn_id: TxnId, cursor: Cursor, until: int, ranges: Sequence[tuple[int, int]]
    ) -> None:
        """Add acks of a subscription: all below `until`, or ranges.

        Raises as `find_open`, and TransactionConflict or TooManyTransactions; NotReady where the
        coordinator on another node has to confirm the subscription first.
        """
        ack = DeferredAck(cursor.key, cursor.created_ms, until, ranges)
        if not self.coordinates(txn_id):
            name = self.find_name(txn_id).transactional_id
            self._participant.add_ack(name, txn_id.identity, ack, cursor)
            return
        name = self.find_open(txn_id).row.transactional_id
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
