"""Durable subscriptions of a topic get a cursor on each partition that is added.

The subscriptions are those of partition 0. Its owner lists them, and the owners of the added
partitions create the cursors: each node knows those of its own partitions only. An owner that does
not answer, or does not know the partitions yet, is asked again for a while; the node that adds the
partitions reports success when all cursors are durable.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final

from trilogue.broker.cursors.position import Cursor
from trilogue.broker.cursors.subscription_cursors import SubscriptionCursors
from trilogue.broker.errors import BrokerError, NotOwner, NotReady
from trilogue.broker.node_requests import (
    CreateSubscription,
    ListSubscriptions,
    NodeReply,
    SubscriptionRequest,
    SubscriptionRow,
    SubscriptionRows,
)
from trilogue.broker.promise import Promise
from trilogue.broker.topics.cluster import Cluster
from trilogue.broker.topics.topic import Topic
from trilogue.broker.transactions.branches import Branches

log = logging.getLogger(__name__)

RETRY_S: Final = 0.5
ATTEMPTS_MAX: Final = 60
ROWS_MAX: Final = 2_000  # of one list: requests to each owner at once
SIZE_MAX: Final = 1 << 20  # of the texts of one list

RETRIABLE: Final = (NotReady, NotOwner)


class AddedPartitions:
    """Subscribes added partitions, here and at other nodes, and answers those nodes."""

    def __init__(
        self, cluster: Cluster, subscriptions: SubscriptionCursors, branches: Branches
    ) -> None:
        self.cluster = cluster
        self._subscriptions = subscriptions
        self._branches = branches

    def subscribe(self, topic: Topic, first: int) -> Promise[None]:
        """Create the cursors on the partitions from `first` on, at their first message.

        The promise is kept when they are durable; it has NotReady where an owner was not reached,
        or another error of the broker: then some may be missing.
        """
        ids = [each.partition_id for each in topic.partitions]
        growth = _Growth(self, ids[0], ids[first:])
        growth.run()
        return growth.done

    def send(self, owner: int, request: SubscriptionRequest) -> Promise[NodeReply]:
        """Send a request to its owner, which may be this node."""
        if owner == self.cluster.node_id:
            return self.handle(request)
        return self._branches.port.send(owner, request)

    def retry(self, step: Callable[[], None]) -> None:
        """Take a step again after a pause."""
        self._branches.timers.call_later(RETRY_S, step)

    def handle(self, request: SubscriptionRequest) -> Promise[NodeReply]:
        """Answer a request for partitions that this node serves."""
        try:
            if isinstance(request, ListSubscriptions):
                return Promise.resolved(self._list(request))
            return self._create(request)
        except BrokerError as error:
            return Promise.rejected(error)

    def _list(self, request: ListSubscriptions) -> SubscriptionRows:
        self.cluster.require_partition(request.partition_id)
        cursors = self._subscriptions.of_partition(request.partition_id)
        names = sorted(name for name in cursors if name > request.after)
        rows: list[SubscriptionRow] = []
        size = 0
        for name in names[:ROWS_MAX]:
            properties = dict(cursors[name].properties)
            size += len(name) + sum(len(key) + len(text) for key, text in properties.items())
            if rows and size > SIZE_MAX:
                break
            rows.append(SubscriptionRow(name, properties))
        return SubscriptionRows(tuple(rows), len(rows) == len(names))

    def _create(self, request: CreateSubscription) -> Promise[NodeReply]:
        for each in request.partition_ids:
            self.cluster.require_partition(each)
        return join_promises(
            self._subscriptions.create(each, request.row.name, 0, request.row.properties)
            for each in request.partition_ids
        )


class _Growth:
    """The partitions that a topic was given at once, until they are subscribed."""

    def __init__(self, nodes: AddedPartitions, begin: int, added: Sequence[int]) -> None:
        self.done: Promise[None] = Promise()
        self._nodes = nodes
        self._begin = begin
        self._added = added
        self._after = ""
        self._is_last = False
        self._attempts = 0
        self._unanswered = 0
        self._missing: list[tuple[SubscriptionRow, tuple[int, ...]]] = []
        self._error: BaseException | None = None

    def run(self) -> None:
        """List the next subscriptions, and create them."""
        if not self._exists(self._begin):  # the topic was deleted meanwhile
            self.done.set_result(None)
            return
        owner = self._nodes.cluster.ownership.partition_owner(self._begin)
        found = self._nodes.send(owner, ListSubscriptions(self._begin, self._after))
        found.then(self._on_list)

    def _on_list(self, found: Promise[NodeReply]) -> None:
        if found.error is not None:
            self._retry(found.error, self.run)
            return
        rows = found.result()
        assert isinstance(rows, SubscriptionRows)
        self._is_last = rows.is_last
        if rows.rows:
            self._after = rows.rows[-1].name
        self._missing = [(row, tuple(self._added)) for row in rows.rows]
        self._create()

    def _create(self) -> None:
        """Send what is missing to the owners of this moment."""
        owner_of = self._nodes.cluster.ownership.partition_owner
        wanted, self._missing = self._missing, []
        self._unanswered = 1  # until all are sent
        for row, partition_ids in wanted:
            by_owner: defaultdict[int, list[int]] = defaultdict(list)
            for each in filter(self._exists, partition_ids):
                by_owner[owner_of(each)].append(each)
            for owner, ids in by_owner.items():
                self._unanswered += 1
                request = CreateSubscription(row, tuple(ids))
                self._nodes.send(owner, request).then(partial(self._on_created, request))
        self._settle_one()

    def _on_created(self, request: CreateSubscription, created: Promise[NodeReply]) -> None:
        error = created.error
        if isinstance(error, RETRIABLE):
            self._missing.append((request.row, request.partition_ids))
        if self._error is None or isinstance(self._error, RETRIABLE):
            self._error = error or self._error
        self._settle_one()

    def _settle_one(self) -> None:
        self._unanswered -= 1
        if self._unanswered:
            return
        error, self._error = self._error, None
        if error is not None:
            self._retry(error, self._create)
        elif self._is_last:
            self.done.set_result(None)
        else:
            self._attempts = 0
            self.run()

    def _retry(self, error: BaseException, step: Callable[[], None]) -> None:
        self._attempts += 1
        if isinstance(error, RETRIABLE) and self._attempts < ATTEMPTS_MAX:
            self._nodes.retry(step)
            return
        log.warning("subscriptions.not_added", extra={"reason": str(error)})
        self.done.set_error(error)

    def _exists(self, partition_id: int) -> bool:
        return self._nodes.cluster.has_partition(partition_id)


def join_promises(promises: Iterable[Promise[Cursor]]) -> Promise[NodeReply]:
    """Return a promise that is kept when all are, with the last error if there is one."""
    every = list(promises)
    joined: Promise[NodeReply] = Promise()
    left = len(every)

    def settle(_promise: object) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            error = next((each.error for each in every if each.error is not None), None)
            if error is None:
                joined.set_result(None)
            else:
                joined.set_error(error)

    if not every:
        joined.set_result(None)
    for each in every:
        each.then(settle)
    return joined
