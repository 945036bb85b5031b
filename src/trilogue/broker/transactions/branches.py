"""The coordinator's side of transactions that have parts on other nodes.

Each partition and group of a transaction belongs to the owner of its slot. When the decision is
durable, every other owner gets the outcome, again and again until it has answered: an owner may be
down, or have left the slot to another node. Only then the coordinator completes the transaction, so
its producer cannot begin the next one before.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from trilogue.broker.errors import NotCoordinator
from trilogue.broker.groups.classic.members import Timers
from trilogue.broker.node_requests import EndBranch, NodePort, NodeReply, NoNodes
from trilogue.broker.promise import Promise
from trilogue.broker.topics.ownership import Ownership
from trilogue.broker.transactions.records import DeferredAck
from trilogue.broker.transactions.transaction import VersionedContents

log = logging.getLogger(__name__)

RETRY_S = 0.5


class Branches:
    """Which parts of transactions other nodes have, and how those end."""

    def __init__(
        self,
        ownership: Ownership,
        has_partition: Callable[[int], bool],
        timers: Timers,
        coordinator_epoch: int,
    ) -> None:
        self.port: NodePort = NoNodes()
        self.coordinator_epoch = coordinator_epoch
        self.timers = timers
        self._ownership = ownership
        self._has_partition = has_partition

    def coordinates(self, transactional_id: str) -> bool:
        """Whether this node coordinates the transactions of an id."""
        ownership = self._ownership
        return not ownership.is_divided or ownership.owns_name(transactional_id)

    def check_coordinator(self, transactional_id: str) -> None:
        """Raise NotCoordinator where another node coordinates the id."""
        if not self.coordinates(transactional_id):
            owner = self._ownership.name_owner(transactional_id)
            raise NotCoordinator(f"node {owner} coordinates {transactional_id}")

    def partition_owner(self, partition_id: int) -> int | None:
        """Return the node that owns a partition; None if this one serves it, or without a topic.

        That may be this node before it has adopted the slot: then nothing is sent, but tried again.
        """
        if not self._has_partition(partition_id) or self._ownership.owns_partition(partition_id):
            return None
        return self._ownership.partition_owner(partition_id)

    def group_owner(self, group: str) -> int | None:
        """Return the node that coordinates a group; None if it is this one, as above."""
        if not self._ownership.is_divided or self._ownership.owns_name(group):
            return None
        return self._ownership.name_owner(group)

    def exist(self, contained: VersionedContents) -> bool:
        """Whether other nodes have parts of a transaction."""
        if not self._ownership.is_divided:
            return False
        subscriptions = contained.acks.subscriptions
        return (
            any(self.partition_owner(each) is not None for each in contained.partitions)
            or any(self.group_owner(each) is not None for each in contained.groups)
            or any(self.partition_owner(key.partition_id) is not None for key, _ in subscriptions)
        )

    def has_acks(self, ack: DeferredAck) -> bool:
        """Whether this node commits an ack that a transaction of this coordinator has."""
        return not ack.is_empty and self.partition_owner(ack.key.partition_id) is None

    def have_left(self, contained: VersionedContents) -> bool:
        """Whether positions or acks of a transaction have another owner since."""
        return any(self.group_owner(group) is not None for group in contained.positions()) or any(
            not ack.is_empty and self.partition_owner(ack.key.partition_id) is not None
            for ack in contained.acks.merge()
        )

    def end(
        self,
        transactional_id: str,
        contained: VersionedContents,
        marker: tuple[int, int],
        *,
        commit: bool,
    ) -> Promise[None]:
        """End the parts of other nodes; the promise is kept when all of them have answered."""
        ending = BranchEnding(self, transactional_id, contained, marker, commit=commit)
        ending.send()
        return ending.promise


class BranchEnding:
    """The end of one transaction on its way to other nodes."""

    def __init__(
        self,
        branches: Branches,
        transactional_id: str,
        contained: VersionedContents,
        marker: tuple[int, int],
        *,
        commit: bool,
    ) -> None:
        self.promise: Promise[None] = Promise()
        self._branches = branches
        self._transactional_id = transactional_id
        self._marker = marker
        self._commit = commit
        self._partition_ids = dict.fromkeys(contained.partitions)
        self._groups = dict.fromkeys(contained.groups)
        self._positions = contained.positions() if commit else {}  # of groups that have moved
        acks = contained.acks.merge()
        self._acks = {each.subscription: each if commit else each.without_acks() for each in acks}
        self._unanswered = 0
        self._failures = 0

    def send(self) -> None:
        """Send the outcome to the present owners of what has not ended yet."""
        requests = self._make_requests()
        if not requests:
            self.promise.set_result(None)
            return
        self._unanswered = len(requests)
        for node_id, request in requests.items():
            self._branches.port.send(node_id, request).then(partial(self._answered, request))

    def _make_requests(self) -> dict[int, EndBranch]:
        branches = self._branches
        partition_ids: dict[int, list[int]] = {}
        groups: dict[int, list[str]] = {}
        acks: dict[int, list[DeferredAck]] = {}
        for partition_id in self._partition_ids:
            owner = branches.partition_owner(partition_id)
            if owner is not None:
                partition_ids.setdefault(owner, []).append(partition_id)
        for group in self._groups:
            owner = branches.group_owner(group)
            if owner is not None:
                groups.setdefault(owner, []).append(group)
        for ack in self._acks.values():
            owner = branches.partition_owner(ack.key.partition_id)
            if owner is not None:
                acks.setdefault(owner, []).append(ack)
        producer_id, epoch = self._marker
        return {
            node_id: EndBranch(
                self._transactional_id,
                producer_id,
                epoch,
                branches.coordinator_epoch,
                self._commit,
                tuple(partition_ids.get(node_id, ())),
                tuple(groups.get(node_id, ())),
                tuple(
                    (group, tuple(self._positions[group].values()))
                    for group in groups.get(node_id, ())
                    if group in self._positions
                ),
                tuple(acks.get(node_id, ())),
            )
            for node_id in sorted({*partition_ids, *groups, *acks})
        }

    def _answered(self, request: EndBranch, answer: Promise[NodeReply]) -> None:
        self._unanswered -= 1
        if answer.error is None:
            for partition_id in request.partition_ids:
                del self._partition_ids[partition_id]
            for group in request.groups:
                del self._groups[group]
            for ack in request.acks:
                del self._acks[ack.subscription]
        else:
            self._failures += 1
            if self._failures == 1:
                log.info(
                    "transaction.branch_waits",
                    extra={
                        "transactional_id": self._transactional_id,
                        "reason": str(answer.error),
                    },
                )
        if self._unanswered:
            return
        if self._failures:
            self._failures = 0
            self._branches.timers.call_later(RETRY_S, self.send)
        else:
            self.promise.set_result(None)
