"""What follows the decision to commit or abort a transaction: markers, positions, the completion.

    PREPARE_COMMIT / PREPARE_ABORT ──parts on other nodes──► markers ──► positions ──► COMPLETE_...

The end of a transaction is written without a pause: the decision, a marker in each of its
partitions, the positions of its groups, the completion. All of it is in the window that fills, so
it is one frame of the journal as long as it fits; if it does not, and the process ends in between,
the next start finds the decision and writes the rest. Markers may be written twice: one that finds
no open transaction has no effect.

What other nodes have of a transaction ends before it completes, when the decision is durable
(branches.py).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from trilogue.broker.errors import BrokerError, StorageFailed, convert_log_error
from trilogue.broker.facts import CursorMove, FactKind
from trilogue.broker.groups.classic.members import Timers
from trilogue.broker.transactions.branches import Branches
from trilogue.broker.transactions.records import (
    COMPLETE,
    NO_PRODUCER,
    PREPARED,
    DeferredAck,
    TransactionRow,
    encode_saved,
)
from trilogue.broker.transactions.transaction import (
    MarkedPartition,
    Transaction,
    TransactionParts,
)
from trilogue.broker.transactions.transaction_table import NO_CONTENT, TransactionTable
from trilogue.entry.control import Outcome, build_marker
from trilogue.log.errors import LogError

log = logging.getLogger(__name__)

RETRY_S: Final = 0.5
EPOCH_MAX: Final = 32_766  # the last of a producer; the marker of its end may have one more


def find_marker(row: TransactionRow) -> tuple[int, int]:
    """Return the producer id and epoch for the markers of an end that was decided before."""
    if row.former_producer_id != NO_PRODUCER:
        return row.former_producer_id, EPOCH_MAX + 1
    return row.producer_id, row.epoch


class TransactionCompletion:
    """Writes what follows a decision, at once or when the parts on other nodes have ended."""

    def __init__(
        self,
        table: TransactionTable,
        *,
        find_partition: Callable[[int], MarkedPartition | None],
        commit_offsets: Callable[[str, Sequence[CursorMove]], object],
        commit_acks: Callable[[Sequence[DeferredAck]], object],
        timers: Timers,
        now_ms: Callable[[], int],
        branches: Branches,
        participant: TransactionParts,
    ) -> None:
        self.on_end: Callable[[TransactionRow], object] = lambda _row: None
        self._table = table
        self._find_partition = find_partition
        self._commit_offsets = commit_offsets
        self._commit_acks = commit_acks
        self._timers = timers
        self._now_ms = now_ms
        self._branches = branches
        self._participant = participant

    def write_outcome(self, transaction: Transaction, marker: tuple[int, int]) -> None:
        """Write what follows the decision; first on other nodes, when it is durable.

        `marker` is the producer id and epoch of the markers.
        """
        if not self._branches.exist(transaction.contained):
            self._complete(transaction, marker)
            return

        def decided(problem: BaseException | None) -> None:
            if problem is not None:
                self._settle(transaction, StorageFailed(str(problem)))
                return
            row = transaction.row
            commit = row.state is PREPARED[True]
            name, contained = row.transactional_id, transaction.contained
            ended = self._branches.end(name, contained, marker, commit=commit)
            ended.then(lambda _: self._complete(transaction, marker))

        self._table.on_commit(decided)

    def _complete(self, transaction: Transaction, marker: tuple[int, int]) -> None:
        """Write markers, positions and the completion; try again later what the log refuses."""
        row = transaction.row
        commit = row.state is PREPARED[True]
        try:
            self._write_markers(transaction, commit, marker)
            for group in transaction.contained.groups:
                self._participant.end_pending(group, marker[0], commit=commit)
            acks = transaction.contained.acks.merge()
            for ack in acks:
                name = row.transactional_id
                self._participant.end_acks(name, ack.subscription, commit=commit)
            if commit:
                for group, positions in transaction.contained.positions().items():
                    if self._branches.group_owner(group) is None:
                        self._commit_offsets(group, tuple(positions.values()))
                self._commit_acks([ack for ack in acks if self._branches.has_acks(ack)])
            complete = row._replace(state=COMPLETE[commit], changed_ms=self._now_ms())
            payload = encode_saved(complete, NO_CONTENT)
            self._table.add_fact(FactKind.TRANSACTION_SAVED, payload)
        except StorageFailed as error:
            self._settle(transaction, error)
            return
        except BrokerError as error:
            log.warning(
                "transaction.end_waits",
                extra={"transactional_id": row.transactional_id, "reason": str(error)},
            )
            self._timers.call_later(RETRY_S, partial(self._complete, transaction, marker))
            return
        self._table.leave_groups(row.transactional_id)
        transaction.row = complete
        self._table.clear(transaction)
        self._table.save_when_durable(transaction, partial(self._settle, transaction))

    def _write_markers(
        self, transaction: Transaction, commit: bool, marker: tuple[int, int]
    ) -> None:
        producer_id, epoch = marker
        now_ms = self._now_ms()
        entry = build_marker(
            Outcome.COMMIT if commit else Outcome.ABORT,
            producer_id=producer_id,
            producer_epoch=epoch,
            coordinator_epoch=self._branches.coordinator_epoch,
            timestamp_ms=now_ms,
        )
        try:
            for partition_id in transaction.contained.partitions:
                partition = self._find_partition(partition_id)
                if partition is not None and not partition.deleted:
                    partition.append_marker(entry, now_ms)
        except LogError as error:
            raise convert_log_error(error) from error

    def _settle(self, transaction: Transaction, problem: BaseException | None = None) -> None:
        ending, transaction.ending = transaction.ending, None
        if ending is None:
            return
        if problem is None:
            row = transaction.row
            self._table.pending_acks.release(
                row.transactional_id, committed=row.state is COMPLETE[True]
            )
            ending.set_result(None)
            self.on_end(row)
        else:
            ending.set_error(problem)
