"""The coordinator of transactions: who may write in which transaction, and how each one ends.

    EMPTY ──add──► ONGOING ──end──► PREPARE_COMMIT / PREPARE_ABORT ──► COMPLETE_... ──add──► ONGOING

The decision to commit or abort (PREPARE) is made here; what follows it is written by
completion.py: markers, positions, the completion.

A producer is fenced by its epoch. Clients of transaction version 2 (KIP-890) get a higher epoch
with each end, and add partitions by producing; markers then have the higher epoch, so that a late
message or a late end of an earlier transaction is refused. When the epochs are used up the id gets
another producer id.

The coordinator decides at once. What it writes is durable at the journal's next commit: the caller
waits for that, or for the promise that it gets. Source: KIP-98, KIP-360, KIP-588, KIP-890.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from trilogue.broker.cursors.cursor_facts import NOTHING_BELOW
from trilogue.broker.cursors.position import Position
from trilogue.broker.errors import (
    ConcurrentTransactions,
    InvalidRequest,
    InvalidTransactionState,
    InvalidTransactionTimeout,
    NotCoordinator,
    ProducerFenced,
    StorageFailed,
    TooManyTransactions,
    TransactionAborted,
    UnknownProducerMapping,
)
from trilogue.broker.facts import (
    CursorMove,
    CursorMoves,
    FactJournal,
    FactKind,
)
from trilogue.broker.facts import Protocol as Door
from trilogue.broker.node_requests import Part, SubscriptionPart
from trilogue.broker.promise import Promise
from trilogue.broker.transactions.branches import Branches
from trilogue.broker.transactions.completion import EPOCH_MAX, TransactionCompletion, find_marker
from trilogue.broker.transactions.records import (
    COMPLETE,
    NO_EPOCH,
    NO_PRODUCER,
    PREPARED,
    DeferredAck,
    TransactionRow,
    TransactionState,
    encode_forgotten,
    encode_grew,
    encode_offsets,
    encode_pending_ack,
    encode_saved,
)
from trilogue.broker.transactions.transaction import (
    Transaction,
    TransactionLimits,
    TransactionParts,
    VersionedContents,
    count_positions,
)
from trilogue.broker.transactions.transaction_table import NO_CONTENT, TransactionTable

log = logging.getLogger(__name__)

NAME_BYTES_MAX = 1_024
PULSAR_PREFIX = "__pulsar_txn_"
PARTS_A_STEP = 500  # of transactions that time out: some milliseconds
EMPTY, ONGOING = TransactionState.EMPTY, TransactionState.ONGOING


class ProducerIdentity(NamedTuple):
    """The id and epoch of a producer."""

    producer_id: int
    epoch: int


class TransactionCoordinator:
    """All transactional ids of a cluster."""

    def __init__(
        self,
        *,
        allocate_producer_id: Callable[[], int],
        now_ms: Callable[[], int],
        branches: Branches,
        participant: TransactionParts,
        table: TransactionTable,
        completion: TransactionCompletion,
        limits: TransactionLimits | None = None,
    ) -> None:
        self.limits = limits or TransactionLimits()
        self.table = table
        self.completion = completion
        self._allocate_producer_id = allocate_producer_id
        self._now_ms = now_ms
        self._branches = branches
        self._participant = participant
        self._holds_id: Callable[[str], bool] | None = None
        self._held: list[tuple[str, Promise[ProducerIdentity]]] = []  # ends that wait

    def attach(self, journal: FactJournal) -> None:
        """Begin to serve, and finish what was decided before the process ended.

        A transaction that a move of slots has divided is aborted (`abort_divided`).
        """
        self.table.attach(journal)
        self.resume(self.table)

    def resume(self, transactions: Iterable[Transaction]) -> None:
        """Finish what was decided of transactions whose state was read, as at the start."""
        for transaction in transactions:
            if transaction.state.is_ending:
                transaction.ending = Promise()
                self.completion.write_outcome(transaction, find_marker(transaction.row))
            else:
                self.abort_divided(transaction)

    def abort_divided(self, transaction: Transaction) -> None:
        """Abort an open transaction that has positions or acks which are of another node since.

        That node cannot know that they are pending. The producer keeps its id: its requests are
        refused with TransactionAborted, until it has aborted the transaction, too.
        """
        if transaction.state is not ONGOING or transaction.ending is not None:
            return
        if self._branches.have_left(transaction.contained):
            row = transaction.row
            log.info("transaction.divided", extra={"transactional_id": row.transactional_id})
            transaction.aborted_identity = (row.producer_id, row.epoch)
            self._abort(transaction)

    @contextmanager
    def holding_ends(self, has_id: Callable[[str], bool]) -> Iterator[None]:
        """Begin no end of a transaction of some ids meanwhile, so that none is ending soon.

        A client that requests one waits, and repeats it at the next coordinator if ids have left:
        the promise gets NotCoordinator, or ConcurrentTransactions where they have not.
        """
        self._holds_id = has_id
        try:
            yield
        finally:
            self._holds_id = None
            held, self._held = self._held, []
            for name, promise in held:
                here = self.coordinates(name)
                kind = ConcurrentTransactions if here else NotCoordinator
                promise.set_error(kind(f"{name} was about to get another coordinator"))

    def _is_held(self, transactional_id: str) -> bool:
        return self._holds_id is not None and self._holds_id(transactional_id)

    # -- queries

    def coordinates(self, transactional_id: str) -> bool:
        """Whether this node, and no other one, coordinates the transactions of an id."""
        return self._branches.coordinates(transactional_id)

    def check_coordinator(self, transactional_id: str) -> None:
        """Raise NotCoordinator where another node coordinates an id."""
        self._branches.check_coordinator(transactional_id)

    def check_timeout(self, timeout_ms: int) -> None:
        """Raise InvalidTransactionTimeout for a timeout outside the limits."""
        if not 0 < timeout_ms <= self.limits.timeout_max_ms:
            raise InvalidTransactionTimeout(
                f"a transaction may take up to {self.limits.timeout_max_ms} ms"
            )

    # -- requests of producers

    def init_producer(
        self,
        transactional_id: str,
        timeout_ms: int,
        known: ProducerIdentity | None = None,
        creator: str = "",
    ) -> Promise[ProducerIdentity]:
        """Return the identity for a producer of this id; its former producer is fenced.

        An ongoing transaction is aborted first. `known` is the identity that the producer has: it
        keeps the id only if no other took it meanwhile (KIP-360). `creator` is the principal, if it
        has a name. Raises InvalidRequest, NotCoordinator, InvalidTransactionTimeout,
        ConcurrentTransactions, ProducerFenced, TooManyTransactions.
        """
        if not transactional_id or len(transactional_id.encode()) > NAME_BYTES_MAX:
            raise InvalidRequest(f"a transactional id has 1 to {NAME_BYTES_MAX} bytes")
        self._branches.check_coordinator(transactional_id)
        self.check_timeout(timeout_ms)
        transaction = self.table.find_by_id(transactional_id)
        if transaction is None:
            if transactional_id.startswith(PULSAR_PREFIX):
                raise InvalidRequest(f"ids with {PULSAR_PREFIX} are of Pulsar's transactions")
            self.table.check_room(creator, self.limits.ids_max)
            promise = self.create(transactional_id, self._allocate_producer_id(), timeout_ms)
            self.table.creators.add(transactional_id, creator)
            return promise
        transaction.check_settled()
        if transaction.row.owner:
            return self._join(transaction)
        return self._init_known(transaction, timeout_ms, known)

    def _join(self, transaction: Transaction) -> Promise[ProducerIdentity]:
        """Return the identity of an id's one transaction: its producer takes part."""
        if transaction.state is not ONGOING:
            raise InvalidTransactionState("the transaction has ended")
        return self._save_identity(transaction, transaction.row, unchanged=True)

    def _init_known(
        self, transaction: Transaction, timeout_ms: int, known: ProducerIdentity | None
    ) -> Promise[ProducerIdentity]:
        row = transaction.row
        if known is not None:
            if known in row.last_identities and transaction.state is not ONGOING:
                return self._save_identity(transaction, row._replace(timeout_ms=timeout_ms))
            if known != (row.producer_id, row.epoch):
                raise ProducerFenced("another producer has the transactional id")
        if transaction.state is ONGOING:
            former = NO_EPOCH if known is None else row.epoch
            following = self._following(row)._replace(former_epoch=former, timeout_ms=timeout_ms)
            return self._end(transaction, following, commit=False, marker_epoch=row.epoch + 1)
        following = self._following(row)
        if known is None:
            following = following._replace(former_epoch=NO_EPOCH, former_producer_id=NO_PRODUCER)
        state = EMPTY
        return self._save_identity(
            transaction, following._replace(state=state, timeout_ms=timeout_ms, started_ms=-1)
        )

    def add_partitions(
        self, transactional_id: str, identity: ProducerIdentity, partition_ids: Sequence[int]
    ) -> None:
        """Add partitions to the transaction, which begins with the first one.

        Raises UnknownProducerMapping, ProducerFenced, ConcurrentTransactions, TooManyTransactions.
        """
        transaction = self._check(transactional_id, identity)
        self._grow(transaction, partition_ids, ())

    def add_group(self, transactional_id: str, identity: ProducerIdentity, group: str) -> None:
        """Add a group whose positions the transaction will move; raises as `add_partitions`."""
        transaction = self._check(transactional_id, identity)
        self._grow(transaction, (), (group,))

    def check_produce(
        self,
        transactional_id: str,
        identity: ProducerIdentity,
        partition_id: int,
        *,
        adds: bool = False,
    ) -> None:
        """Check that a message belongs to the ongoing transaction; `adds` the partition to it.

        Raises InvalidTransactionState for a partition that was not added, and as `add_partitions`;
        NotReady where another node coordinates, and has to confirm it first (participant.py).
        """
        if self._branches.coordinates(transactional_id):
            self.check_part(transactional_id, identity, partition_id, adds=adds)
        else:
            self._participant.check_confirmed(*identity, partition_id)

    def check_part(
        self,
        transactional_id: str,
        identity: ProducerIdentity,
        part: Part,
        *,
        adds: bool,
    ) -> None:
        """Check that something is a part of the ongoing transaction.

        `adds` it to the transaction. Raises InvalidTransactionState, and as `add_partitions`.
        """
        transaction = self._check(transactional_id, identity)
        if transaction.state is ONGOING and transaction.contained.has_part(part):
            return
        if not adds:
            kind = "group" if isinstance(part, str) else "partition"
            raise InvalidTransactionState(f"the {kind} was not added to the transaction")
        if isinstance(part, str):
            self._grow(transaction, (), (part,))
        elif isinstance(part, int):
            self._grow(transaction, (part,), ())
        else:
            self._add_subscription(transaction, part)

    def add_offsets(
        self,
        transactional_id: str,
        identity: ProducerIdentity,
        group: str,
        moves: Sequence[CursorMove],
        *,
        adds: bool = False,
    ) -> None:
        """Keep positions that are committed with the transaction; `adds` the group to it.

        Raises InvalidTransactionState for a group that was not added, and as `add_partitions`.
        """
        self.check_part(transactional_id, identity, group, adds=adds)
        transaction = self._check(transactional_id, identity)
        contained, most = transaction.contained, self.limits.positions_max
        batch = CursorMoves(Door.KAFKA, group, self._now_ms(), list(moves))
        count = count_positions(batch)
        if contained.position_count + count > most:
            raise TooManyTransactions(f"a transaction moves up to {most} positions")
        self.table.check_parts(count, self.limits.parts_max)
        payload = encode_offsets(transactional_id, batch)
        self.table.add_fact(FactKind.TRANSACTION_OFFSETS, payload)
        transaction.changes += 1
        contained.add_offsets(transaction.changes, batch)
        self.table.part_count += count
        self.table.save_when_durable(transaction)

    def add_ack(
        self, transactional_id: str, identity: ProducerIdentity, ack: DeferredAck, acked: Position
    ) -> None:
        """Keep acks of a subscription that has acked these offsets, to commit with the transaction.

        Raises TransactionConflict, and as `add_partitions`.
        """
        transaction = self.check_ongoing(transactional_id, identity)
        pending, most = self.table.pending_acks, self.limits.ack_ranges_max
        if pending.range_count(transactional_id) + len(ack.ranges) > most:
            raise TooManyTransactions(f"a transaction acks up to {most} ranges of messages")
        pending.check(transactional_id, acked, ack)
        self._put_ack(transaction, ack)
        pending.add(transactional_id, ack)

    def _put_ack(self, transaction: Transaction, ack: DeferredAck) -> None:
        name = transaction.row.transactional_id
        self.table.add_fact(FactKind.TRANSACTION_ACKED, encode_pending_ack(name, ack))
        transaction.changes += 1
        transaction.contained.acks.add(transaction.changes, ack, transaction.durable_change)
        self.table.save_when_durable(transaction)

    def _add_subscription(self, transaction: Transaction, part: SubscriptionPart) -> None:
        """Add a subscription of another node, which has its acks until the end."""
        if transaction.state is not ONGOING:
            raise InvalidTransactionState("the transaction was not begun")
        most = self.limits.subscriptions_max
        if len(transaction.contained.acks.subscriptions) >= most:
            raise TooManyTransactions(f"a transaction has up to {most} subscriptions")
        self._put_ack(transaction, DeferredAck(*part.subscription, NOTHING_BELOW))

    def end(
        self,
        transactional_id: str,
        identity: ProducerIdentity,
        *,
        commit: bool,
        bumps: bool = False,
    ) -> Promise[ProducerIdentity]:
        """End the transaction; the promise has the identity for the next one when it is durable.

        With `bumps` (transaction version 2) that has the next epoch. A repeated request gets the
        same answer. Raises UnknownProducerMapping, ProducerFenced, InvalidTransactionState,
        ConcurrentTransactions, TransactionAborted.
        """
        transaction = self._find(transactional_id, identity, ending=True)
        row = transaction.row
        current = identity == (row.producer_id, row.epoch)
        was_aborted = _is_aborted(transaction, identity)
        if not current and not was_aborted and not (bumps and identity in row.last_identities):
            raise ProducerFenced("the producer has another epoch by now")
        if row.state.is_ending or transaction.ending is not None:
            raise ConcurrentTransactions("the transaction is being ended")
        if row.state is ONGOING:
            if not current:
                raise _former_identity_error(transaction, identity)
            kept = row._replace(former_producer_id=NO_PRODUCER, former_epoch=NO_EPOCH)
            following = self._following(row) if bumps else kept
            marker_epoch = row.epoch + 1 if bumps else row.epoch
            return self._end(transaction, following, commit=commit, marker_epoch=marker_epoch)
        if row.state is COMPLETE[commit] and (not bumps or not current):
            return self._save_identity(transaction, row, unchanged=True)  # repeated
        if bumps and current and not commit:  # nothing was written: only the epoch moves
            following = self._following(row)
            return self._save_identity(
                transaction, following._replace(state=COMPLETE[False], started_ms=-1)
            )
        if not current:
            raise _former_identity_error(transaction, identity)
        raise InvalidTransactionState(f"the transaction is {row.state.name.lower()}")

    # -- several in one decision: batch_commits.py

    def check_ongoing(self, transactional_id: str, identity: ProducerIdentity) -> Transaction:
        """Return the transaction that a producer has open.

        Raises UnknownProducerMapping, ProducerFenced, InvalidTransactionState,
        ConcurrentTransactions.
        """
        transaction = self._check(transactional_id, identity)
        if transaction.state is not ONGOING:
            raise InvalidTransactionState(f"{transactional_id} has no open transaction")
        return transaction

    def prepare_commit(self, row: TransactionRow) -> TransactionRow:
        """Return the row of an open transaction with the decision to commit; nothing changes.

        Raises ConcurrentTransactions while ends are held.
        """
        if self._is_held(row.transactional_id):
            raise ConcurrentTransactions("the transactions of this id are held")
        kept = row._replace(former_producer_id=NO_PRODUCER, former_epoch=NO_EPOCH)
        return kept._replace(state=PREPARED[True], changed_ms=self._now_ms())

    def carry_out(
        self, transaction: Transaction, prepared: TransactionRow, marker: tuple[int, int]
    ) -> Promise[ProducerIdentity]:
        """End a transaction as a decision says that was added to the journal just now.

        `marker` is the producer id and epoch for its markers. The promise has the identity for the
        next transaction when everything is durable.
        """
        transaction.row = prepared
        self.table.save_when_durable(transaction)
        ending = transaction.ending = Promise()
        self.completion.write_outcome(transaction, marker)
        promise: Promise[ProducerIdentity] = Promise()

        def settled(ended: Promise[None]) -> None:
            if ended.error is not None:
                promise.set_error(ended.error)
            else:
                promise.set_result(ProducerIdentity(prepared.producer_id, prepared.epoch))

        ending.then(settled)
        return promise

    # -- by time, by administrators

    def abort_expired(self) -> Iterator[int]:
        """Abort transactions that take longer than their timeout; yield how many, in steps.

        Others may change transactions between the steps.
        """
        now_ms, count, parts = self._now_ms(), 0, 0
        for transaction in self.table:
            row = transaction.row
            if row.state is not ONGOING or row.started_ms + row.timeout_ms > now_ms:
                continue
            if transaction.ending is not None or not self.coordinates(row.transactional_id):
                continue
            if self._is_held(row.transactional_id):
                continue
            parts += 1 + transaction.contained.part_count
            log.info("transaction.timed_out", extra={"transactional_id": row.transactional_id})
            count += 1
            self._abort(transaction)
            if parts >= PARTS_A_STEP:
                yield count
                count = parts = 0
        yield count

    def abort(self, transactional_id: str) -> Promise[ProducerIdentity]:
        """Abort the ongoing transaction of an id, and fence its producer.

        Raises UnknownProducerMapping, InvalidTransactionState, ConcurrentTransactions.
        """
        self._branches.check_coordinator(transactional_id)
        transaction = self.table.find_by_id(transactional_id)
        if transaction is None:
            raise UnknownProducerMapping("there is no such transactional id")
        transaction.check_settled()
        if transaction.state is not ONGOING:
            raise InvalidTransactionState("the transactional id has no ongoing transaction")
        return self._abort(transaction)

    def forget_expired(self) -> int:
        """Forget ids that were not used for long; return how many."""
        before_ms, count = self._now_ms() - self.limits.expiration_ms, 0
        for transaction in self.table:
            idle = transaction.state not in (ONGOING, *PREPARED.values())
            is_old = transaction.ending is None and transaction.row.changed_ms < before_ms
            if idle and is_old and self.coordinates(transaction.row.transactional_id):
                self.forget(transaction)
                count += 1
        return count

    def forget(self, transaction: Transaction) -> None:
        """Forget an id without a transaction."""
        name = transaction.row.transactional_id
        self.table.add_fact(FactKind.TRANSACTION_FORGOTTEN, encode_forgotten(name))
        self.table.remove(name)

    def _abort(self, transaction: Transaction) -> Promise[ProducerIdentity]:
        following, epoch = self._following(transaction.row), transaction.row.epoch + 1
        return self._end(transaction, following, commit=False, marker_epoch=epoch)

    # -- parts

    def create(
        self, transactional_id: str, producer_id: int, timeout_ms: int, *, owner: str | None = None
    ) -> Promise[ProducerIdentity]:
        """Add an id; with an owner its only transaction begins. Raises TooManyTransactions."""
        self.table.check_room("", self.limits.ids_max)
        identity = (producer_id, 0, NO_PRODUCER, NO_EPOCH)
        now_ms = self._now_ms()
        row = TransactionRow(transactional_id, EMPTY, *identity, timeout_ms, -1, now_ms)
        if owner is not None:
            row = row._replace(state=ONGOING, started_ms=now_ms, owner=owner)
        transaction = Transaction(row)
        promise = self._save_identity(transaction, row)
        self.table.add(transaction)
        return promise

    def _following(self, row: TransactionRow) -> TransactionRow:
        """Return the row with the identity after this one."""
        if row.epoch >= EPOCH_MAX:
            producer_id = self._allocate_producer_id()
            self.table.add_producer(producer_id, row.transactional_id)
            return row._replace(
                producer_id=producer_id,
                epoch=0,
                former_producer_id=row.producer_id,
                former_epoch=row.epoch,
            )
        return row._replace(
            epoch=row.epoch + 1, former_producer_id=NO_PRODUCER, former_epoch=row.epoch
        )

    def _find(
        self, transactional_id: str, identity: ProducerIdentity, *, ending: bool = False
    ) -> Transaction:
        if not transactional_id:
            raise InvalidRequest("the transactional id is empty")
        self._branches.check_coordinator(transactional_id)
        transaction = self.table.find_by_id(transactional_id)
        if transaction is None:
            raise UnknownProducerMapping("the transactional id is not known")
        row = transaction.row
        ids = {row.producer_id, row.former_producer_id if ending else row.producer_id}
        if identity.producer_id not in ids:
            raise UnknownProducerMapping("the transactional id has another producer id")
        return transaction

    def _check(self, transactional_id: str, identity: ProducerIdentity) -> Transaction:
        transaction = self._find(transactional_id, identity)
        if identity.epoch != transaction.row.epoch:
            raise _former_identity_error(transaction, identity)
        transaction.check_settled()
        return transaction

    def _grow(
        self, transaction: Transaction, partition_ids: Sequence[int], groups: Sequence[str]
    ) -> None:
        ongoing = transaction.state is ONGOING
        contained = transaction.contained if ongoing else VersionedContents()
        new_ids = [each for each in partition_ids if each not in contained.partitions]
        new_groups = [each for each in groups if each not in contained.groups]
        if ongoing and not new_ids and not new_groups:
            return
        if transaction.row.owner and not ongoing:
            raise InvalidTransactionState("the transaction has ended")
        if len(contained.partitions) + len(new_ids) > self.limits.partitions_max:
            raise TooManyTransactions(
                f"a transaction has up to {self.limits.partitions_max} partitions"
            )
        self.table.check_parts(len(new_ids) + len(new_groups), self.limits.parts_max)
        now_ms = self._now_ms()
        name = transaction.row.transactional_id
        self.table.add_fact(
            FactKind.TRANSACTION_GREW, encode_grew(name, now_ms, new_ids, new_groups)
        )
        transaction.begin(now_ms)
        transaction.changes += 1
        transaction.contained.partitions.update(dict.fromkeys(new_ids, transaction.changes))
        transaction.contained.groups.update(dict.fromkeys(new_groups, transaction.changes))
        self.table.part_count += len(new_ids) + len(new_groups)
        self.table.join_groups(name, new_groups)
        transaction.row = transaction.row._replace(changed_ms=now_ms)
        self.table.save_when_durable(transaction)

    def _end(
        self,
        transaction: Transaction,
        following: TransactionRow,
        *,
        commit: bool,
        marker_epoch: int,
    ) -> Promise[ProducerIdentity]:
        """Decide the outcome, write everything that follows; `following` has the next identity."""
        row = transaction.row
        if self._is_held(row.transactional_id):
            held: Promise[ProducerIdentity] = Promise()
            self._held.append((row.transactional_id, held))
            return held
        prepared = following._replace(
            state=PREPARED[commit], started_ms=row.started_ms, changed_ms=self._now_ms()
        )
        # Without the content: earlier facts have it, and it may be too large for one.
        self.table.add_fact(FactKind.TRANSACTION_SAVED, encode_saved(prepared, NO_CONTENT))
        return self.carry_out(transaction, prepared, (row.producer_id, marker_epoch))

    def _save_identity(
        self, transaction: Transaction, row: TransactionRow, *, unchanged: bool = False
    ) -> Promise[ProducerIdentity]:
        """Write a row whose transaction is empty; the promise has its identity when durable."""
        promise: Promise[ProducerIdentity] = Promise()
        if not unchanged:
            row = row._replace(changed_ms=self._now_ms())
            payload = encode_saved(row, NO_CONTENT)
            self.table.add_fact(FactKind.TRANSACTION_SAVED, payload)
            transaction.row = row
            self.table.clear(transaction)
            self.table.save_when_durable(transaction)

        def committed(problem: BaseException | None) -> None:
            if problem is None:
                promise.set_result(ProducerIdentity(row.producer_id, row.epoch))
            else:
                promise.set_error(StorageFailed(str(problem)))

        self.table.on_commit(committed)
        return promise


def _is_aborted(transaction: Transaction, identity: ProducerIdentity) -> bool:
    """Whether the broker has aborted the last transaction of an identity that it had to."""
    is_last = identity in transaction.row.last_identities
    return is_last and identity == transaction.aborted_identity


def _former_identity_error(transaction: Transaction, identity: ProducerIdentity) -> ProducerFenced:
    """Return why a request with an identity that is not the present one is refused."""
    if _is_aborted(transaction, identity):
        return TransactionAborted("the transaction was aborted, since its slots have moved")
    return ProducerFenced("the producer has another epoch by now")
