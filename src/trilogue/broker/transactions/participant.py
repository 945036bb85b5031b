"""What this node has of transactions of other coordinators: partitions, and offsets of groups.

A producer writes here after the coordinator has confirmed that the partition, or the group, is a
part of its open transaction (KIP-890); from then on, until the outcome comes, it writes without a
request. The outcome may overtake a confirmation, since they come by two connections: what was
requested before the outcome came counts for nothing, and the producer's request is tried again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from trilogue.broker.errors import (
    BrokerError,
    ConcurrentTransactions,
    NotCoordinator,
    NotOwner,
    NotReady,
    StorageFailed,
    convert_log_error,
)
from trilogue.broker.facts import CursorMove, CursorMoves, FactJournal
from trilogue.broker.facts import Protocol as Door
from trilogue.broker.producers.idempotence import PartitionProducers
from trilogue.broker.promise import Promise
from trilogue.broker.topics.ownership import Ownership
from trilogue.broker.transactions.branches import Branches
from trilogue.broker.transactions.coordinator import ProducerIdentity, TransactionCoordinator
from trilogue.broker.transactions.node_requests import EndBranch, JoinTransaction, NodeRequest
from trilogue.broker.transactions.pending_offsets import PendingOffsets
from trilogue.entry.control import Outcome, build_marker
from trilogue.log.errors import LogError

PRODUCERS_MAX = 100_000  # with confirmed parts; when there are more, all are confirmed again


class BranchPartition(Protocol):
    """A partition, as far as the outcome of a transaction needs it."""

    deleted: bool
    producers: PartitionProducers

    def append_marker(self, marker: bytes, now_ms: int) -> None:
        """Append a transaction marker; raises LogError."""


class Confirmed:
    """The parts of one producer's open transaction that its coordinator has confirmed."""

    __slots__ = ("epoch", "parts")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.parts: set[int | str] = set()


class TransactionParticipant:
    """Writes in transactions of other coordinators, and their outcome."""

    def __init__(
        self,
        branches: Branches,
        ownership: Ownership,
        pending_offsets: PendingOffsets,
        *,
        find_partition: Callable[[int], BranchPartition | None],
        commit_offsets: Callable[[str, Sequence[CursorMove]], object],
        now_ms: Callable[[], int],
    ) -> None:
        self.pending_offsets = pending_offsets
        self._branches = branches
        self._ownership = ownership
        self._find_partition = find_partition
        self._commit_offsets = commit_offsets
        self._now_ms = now_ms
        self._journal: FactJournal
        self._confirmed: dict[int, Confirmed] = {}
        self._joining: dict[int, set[Promise[None]]] = {}  # by producer id: sent, not overtaken

    def attach(self, journal: FactJournal) -> None:
        """Begin to serve, from a log that has recovered."""
        self._journal = journal
        self.pending_offsets.attach(journal)

    # -- producers

    def is_confirmed(self, producer_id: int, epoch: int, part: int | str) -> bool:
        """Whether a producer may write to a partition or a group in its open transaction."""
        found = self._confirmed.get(producer_id)
        return found is not None and found.epoch == epoch and part in found.parts

    def check_confirmed(self, producer_id: int, epoch: int, part: int | str) -> None:
        """Raise NotReady where the coordinator has to confirm first."""
        if not self.is_confirmed(producer_id, epoch, part):
            raise NotReady("the coordinator of the transaction has not confirmed it yet")

    def join(self, request: JoinTransaction) -> Promise[None]:
        """Have the coordinator confirm a part.

        The promise has the coordinator's refusal; NotReady, NotCoordinator or
        ConcurrentTransactions where a later try may succeed.
        """
        joined: Promise[None] = Promise()
        producer_id = request.producer_id
        joining = self._joining.setdefault(producer_id, set())
        joining.add(joined)

        def settle(answer: Promise[None]) -> None:
            is_current = joined in self._joining.get(producer_id, ())
            self._forget_join(producer_id, joined)
            if answer.error is not None:
                joined.set_error(answer.error)
            elif not is_current:
                joined.set_error(ConcurrentTransactions("the transaction ended meanwhile"))
            else:
                self._confirm(producer_id, request.epoch, request.part)
                joined.set_result(None)

        owner = self._ownership.name_owner(request.transactional_id)
        self._branches.port.send(owner, request).then(settle)
        return joined

    def _forget_join(self, producer_id: int, joined: Promise[None]) -> None:
        joining = self._joining.get(producer_id)
        if joining is not None:
            joining.discard(joined)
            if not joining:
                del self._joining[producer_id]

    def _confirm(self, producer_id: int, epoch: int, part: int | str) -> None:
        found = self._confirmed.get(producer_id)
        if found is None or found.epoch != epoch:
            if len(self._confirmed) >= PRODUCERS_MAX:
                self._confirmed.clear()
            found = self._confirmed[producer_id] = Confirmed(epoch)
        found.parts.add(part)

    def add_offsets(
        self, producer_id: int, epoch: int, group: str, moves: Sequence[CursorMove]
    ) -> None:
        """Keep offsets of a group that was confirmed; they are durable at the next commit.

        Raises NotReady, and as PendingOffsets.add.
        """
        self.check_confirmed(producer_id, epoch, group)
        batch = CursorMoves(Door.KAFKA, group, self._now_ms(), list(moves))
        self.pending_offsets.add(producer_id, batch)

    # -- the outcome

    def end_pending(self, group: str, producer_id: int, *, commit: bool) -> None:
        """Commit or drop the offsets of a group that a producer has pending; BrokerError."""
        self.pending_offsets.end(group, producer_id, commit=commit)

    def end_branch(self, sender: int, request: EndBranch) -> Promise[None]:
        """Write the outcome of a transaction; the promise is kept when that is durable.

        It has NotCoordinator if the sender does not coordinate the id, NotOwner for a part of
        another node, and the error of a log that refuses.
        """
        ownership = self._ownership
        if ownership.name_owner(request.transactional_id) != sender:
            return Promise.rejected(NotCoordinator(f"node {sender} is not the coordinator"))
        self._confirmed.pop(request.producer_id, None)
        self._joining.pop(request.producer_id, None)
        try:
            self._write_markers(request)
            for group in request.groups:
                if not ownership.owns_name(group):
                    owner = ownership.name_owner(group)
                    raise NotOwner(f"node {owner} coordinates {group}", owner)
                self.end_pending(group, request.producer_id, commit=request.is_commit)
            for group, moves in request.positions:
                self._commit_offsets(group, moves)
        except BrokerError as error:
            return Promise.rejected(error)
        except LogError as error:
            return Promise.rejected(convert_log_error(error))
        promise: Promise[None] = Promise()
        self._journal.on_commit(partial(_settle, promise))
        return promise

    def _write_markers(self, request: EndBranch) -> None:
        """Append a marker to each partition; one whose producer has gone on gets none."""
        now_ms = self._now_ms()
        entry = build_marker(
            Outcome.COMMIT if request.is_commit else Outcome.ABORT,
            producer_id=request.producer_id,
            producer_epoch=request.epoch,
            coordinator_epoch=request.coordinator_epoch,
            timestamp_ms=now_ms,
        )
        for partition_id in request.partition_ids:
            owner = self._branches.partition_owner(partition_id)
            if owner is not None:
                raise NotOwner(f"node {owner} is the owner of the partition", owner)
            partition = self._find_partition(partition_id)
            if partition is None or partition.deleted:
                continue
            epoch = partition.producers.epoch_of(request.producer_id)
            if epoch is None or epoch <= request.epoch:
                partition.append_marker(entry, now_ms)


class NodeRequestHandler:
    """Answers what other nodes request of the coordinator and the participant of this one."""

    def __init__(
        self, coordinator: TransactionCoordinator, participant: TransactionParticipant
    ) -> None:
        self._coordinator = coordinator
        self._participant = participant

    def handle(self, sender: int, request: NodeRequest) -> Promise[None]:
        """Return a promise that is kept when the request is done and durable."""
        if isinstance(request, EndBranch):
            return self._participant.end_branch(sender, request)
        return self._join(request)

    def _join(self, request: JoinTransaction) -> Promise[None]:
        identity = ProducerIdentity(request.producer_id, request.epoch)
        try:
            self._coordinator.check_part(
                request.transactional_id, identity, request.part, adds=request.adds
            )
        except BrokerError as error:
            return Promise.rejected(error)
        promise: Promise[None] = Promise()
        self._coordinator.table.on_commit(partial(_settle, promise))
        return promise


def _settle(promise: Promise[None], problem: BaseException | None) -> None:
    if problem is None:
        promise.set_result(None)
    else:
        promise.set_error(StorageFailed(str(problem)))
