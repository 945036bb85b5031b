"""What this node has of transactions of other coordinators: partitions, offsets, acks.

A client writes here after the coordinator has confirmed that the partition, group or subscription
is a part of its open transaction (KIP-890); from then on, until the outcome comes, it writes
without a request. The outcome may overtake a confirmation, since they come by two connections: what
was requested before the outcome came counts for nothing, and the producer's request is tried again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from trilogue.broker.cursors.position import Position
from trilogue.broker.errors import (
    BrokerError,
    ConcurrentTransactions,
    NotCoordinator,
    NotOwner,
    NotReady,
    StorageFailed,
    convert_log_error,
)
from trilogue.broker.facts import CursorMove, CursorMoves, FactJournal, FactKind, SnapshotRow
from trilogue.broker.facts import Protocol as Door
from trilogue.broker.node_requests import (
    CreateSubscription,
    DescribeProducers,
    EndBranch,
    FindTransaction,
    JoinTransaction,
    ListSubscriptions,
    NodeReply,
    NodeRequest,
    Part,
    SubscriptionPart,
    SubscriptionRequest,
    TransactionName,
)
from trilogue.broker.producers.idempotence import PartitionProducers
from trilogue.broker.promise import Promise
from trilogue.broker.topics.ownership import Ownership
from trilogue.broker.transactions.branch_acks import BranchAcks
from trilogue.broker.transactions.branches import Branches
from trilogue.broker.transactions.coordinator import ProducerIdentity, TransactionCoordinator
from trilogue.broker.transactions.pending_acks import SubscriptionId
from trilogue.broker.transactions.pending_offsets import PendingOffsets
from trilogue.broker.transactions.records import DeferredAck
from trilogue.entry.control import Outcome, build_marker
from trilogue.log.errors import LogError

PRODUCERS_MAX = 100_000  # with confirmed parts; when there are more, all are confirmed again


class BranchPartition(Protocol):
    """A partition, as far as the outcome of a transaction needs it."""

    deleted: bool
    producers: PartitionProducers

    def append_marker(self, marker: bytes, now_ms: int) -> None:
        """Append a transaction marker; raises LogError."""


class ConfirmedParts:
    """The parts of one producer's open transaction that its coordinator has confirmed."""

    __slots__ = ("epoch", "parts")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.parts: set[Part] = set()


class TransactionParticipant:
    """Writes in transactions of other coordinators, and their outcome."""

    def __init__(
        self,
        branches: Branches,
        ownership: Ownership,
        pending_offsets: PendingOffsets,
        acks: BranchAcks,
        *,
        find_partition: Callable[[int], BranchPartition | None],
        commit_offsets: Callable[[str, Sequence[CursorMove]], object],
        commit_acks: Callable[[Sequence[DeferredAck]], object],
        now_ms: Callable[[], int],
    ) -> None:
        self.pending_offsets = pending_offsets
        self.acks = acks
        self._branches = branches
        self._ownership = ownership
        self._find_partition = find_partition
        self._commit_offsets = commit_offsets
        self._commit_acks = commit_acks
        self._now_ms = now_ms
        self._journal: FactJournal
        self._confirmed: dict[int, ConfirmedParts] = {}
        self._joining: dict[int, set[Promise[None]]] = {}  # by producer id: sent, not overtaken
        self._names: dict[int, TransactionName] = {}  # of TxnIDs, by producer id

    def attach(self, journal: FactJournal) -> None:
        """Begin to serve, from a log that has recovered."""
        self._journal = journal
        self.pending_offsets.attach(journal)
        self.acks.attach(journal)

    # -- the flush cut and the start

    def snapshot(self) -> list[SnapshotRow]:
        """Return the rows that changed since the last call, as far as they are durable."""
        return [*self.pending_offsets.snapshot(), *self.acks.snapshot()]

    def replay(self, kind: int, payload: bytes) -> None:
        """Take over one of PENDING_KINDS found in the journal at start; CorruptLog."""
        if kind in {FactKind.PENDING_ACKS, FactKind.PENDING_ACKS_ENDED}:
            self.acks.replay(kind, payload)
        else:
            self.pending_offsets.replay(kind, payload)

    def forget_confirmed(self) -> None:
        """Have coordinators confirm everything again: some parts are another node's."""
        self._confirmed.clear()
        self._names.clear()

    def release(
        self, gives_name: Callable[[str], bool], gives_partition: Callable[[int], bool]
    ) -> None:
        """Forget what is pending in groups and partitions that another node has now."""
        self.pending_offsets.release(gives_name)
        self.acks.release_partitions(gives_partition)

    # -- producers

    def is_confirmed(self, producer_id: int, epoch: int, part: Part) -> bool:
        """Whether a producer may write to a partition or a group in its open transaction."""
        found = self._confirmed.get(producer_id)
        return found is not None and found.epoch == epoch and part in found.parts

    def check_confirmed(self, producer_id: int, epoch: int, part: Part) -> None:
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

        def settle(answer: Promise[NodeReply]) -> None:
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

    def _confirm(self, producer_id: int, epoch: int, part: Part) -> None:
        found = self._confirmed.get(producer_id)
        if found is None or found.epoch != epoch:
            if len(self._confirmed) >= PRODUCERS_MAX:
                self._confirmed.clear()
            found = self._confirmed[producer_id] = ConfirmedParts(epoch)
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

    def find_name(self, producer_id: int) -> TransactionName:
        """Return whose transaction a producer id is of; NotReady where `look_up` has to find it."""
        found = self._names.get(producer_id)
        if found is None:
            raise NotReady("the coordinator of the transaction has not named it yet")
        return found

    def look_up(self, node_id: int, producer_id: int, request: FindTransaction) -> Promise[None]:
        """Have the coordinator name a transaction; the promise has its error, or NotReady."""
        found: Promise[None] = Promise()

        def settle(answer: Promise[NodeReply]) -> None:
            if answer.error is not None:
                found.set_error(answer.error)
                return
            name = answer.result()
            assert isinstance(name, TransactionName)
            if len(self._names) >= PRODUCERS_MAX:
                self._names.clear()
            self._names[producer_id] = name
            found.set_result(None)

        self._branches.port.send(node_id, request).then(settle)
        return found

    def add_ack(
        self, transactional_id: str, producer: tuple[int, int], ack: DeferredAck, acked: Position
    ) -> None:
        """Keep acks of a subscription that was confirmed; they are durable at the next commit.

        Raises NotReady, and as BranchAcks.add.
        """
        key, created_ms = ack.subscription
        self.check_confirmed(*producer, SubscriptionPart(key.partition_id, key.name, created_ms))
        self.acks.add(transactional_id, ack, acked)

    # -- the outcome

    def end_acks(
        self, transactional_id: str, subscription: SubscriptionId, *, commit: bool
    ) -> None:
        """Commit or drop the acks that a transaction has pending; BrokerError."""
        self.acks.end(transactional_id, subscription, commit=commit)

    def end_pending(self, group: str, producer_id: int, *, commit: bool) -> None:
        """Commit or drop the offsets of a group that a producer has pending; BrokerError."""
        self.pending_offsets.end(group, producer_id, commit=commit)

    def end_branch(self, sender: int, request: EndBranch) -> Promise[NodeReply]:
        """Write the outcome of a transaction; the promise is kept when that is durable.

        It has NotCoordinator if the sender does not coordinate the id, NotOwner for a part of
        another node, and the error of a log that refuses.
        """
        ownership = self._ownership
        if ownership.name_owner(request.transactional_id) != sender:
            return Promise.rejected(NotCoordinator(f"node {sender} is not the coordinator"))
        self._confirmed.pop(request.producer_id, None)
        self._joining.pop(request.producer_id, None)
        self._names.pop(request.producer_id, None)
        try:
            self._write_markers(request)
            for group in request.groups:
                if not ownership.owns_name(group):
                    owner = ownership.name_owner(group)
                    raise NotOwner(f"node {owner} coordinates {group}", owner)
                self.end_pending(group, request.producer_id, commit=request.is_commit)
            for group, moves in request.positions:
                self._commit_offsets(group, moves)
            self._end_acks(request)
        except BrokerError as error:
            return Promise.rejected(error)
        except LogError as error:
            return Promise.rejected(convert_log_error(error))
        promise: Promise[NodeReply] = Promise()

        def release(problem: BaseException | None) -> None:
            if problem is None and request.acks:
                subscriptions = [each.subscription for each in request.acks]
                name, committed = request.transactional_id, request.is_commit
                self.acks.release(name, subscriptions, committed=committed)
            _settle(promise, problem)

        self._journal.on_commit(release)
        return promise

    def _end_acks(self, request: EndBranch) -> None:
        for ack in request.acks:
            self._check_owner(ack.key.partition_id)
            self.end_acks(request.transactional_id, ack.subscription, commit=request.is_commit)
        self._commit_acks([ack for ack in request.acks if not ack.is_empty])

    def _check_owner(self, partition_id: int) -> None:
        owner = self._branches.partition_owner(partition_id)
        if owner is not None:
            raise NotOwner(f"node {owner} is the owner of the partition", owner)

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
            self._check_owner(partition_id)
            partition = self._find_partition(partition_id)
            if partition is None or partition.deleted:
                continue
            epoch = partition.producers.epoch_of(request.producer_id)
            if epoch is None or epoch <= request.epoch:
                partition.append_marker(entry, now_ms)


class NodeRequestHandler:
    """Answers what other nodes request of this one."""

    def __init__(
        self,
        coordinator: TransactionCoordinator,
        participant: TransactionParticipant,
        find_name: Callable[[FindTransaction], TransactionName],
        handle_subscriptions: Callable[[SubscriptionRequest], Promise[NodeReply]],
        describe_producers: Callable[[DescribeProducers], Promise[NodeReply]],
    ) -> None:
        self._coordinator = coordinator
        self._participant = participant
        self._find_name = find_name
        self._handle_subscriptions = handle_subscriptions
        self._describe_producers = describe_producers

    def handle(self, sender: int, request: NodeRequest) -> Promise[NodeReply]:
        """Return a promise that is kept when the request is done and durable."""
        if isinstance(request, EndBranch):
            return self._participant.end_branch(sender, request)
        if isinstance(request, JoinTransaction):
            return self._join(request)
        if isinstance(request, ListSubscriptions | CreateSubscription):
            return self._handle_subscriptions(request)
        if isinstance(request, DescribeProducers):
            return self._describe_producers(request)
        try:
            return Promise.resolved(self._find_name(request))
        except BrokerError as error:
            return Promise.rejected(error)

    def _join(self, request: JoinTransaction) -> Promise[NodeReply]:
        identity = ProducerIdentity(request.producer_id, request.epoch)
        try:
            self._coordinator.check_part(
                request.transactional_id, identity, request.part, adds=request.adds
            )
        except BrokerError as error:
            return Promise.rejected(error)
        promise: Promise[NodeReply] = Promise()
        self._coordinator.table.on_commit(partial(_settle, promise))
        return promise


def _settle(promise: Promise[NodeReply], problem: BaseException | None) -> None:
    if problem is None:
        promise.set_result(None)
    else:
        promise.set_error(StorageFailed(str(problem)))
