"""The producers of partitions as tools see them: of this node's, and of those of other nodes."""

from __future__ import annotations

from typing import Final

from trilogue.broker.errors import BrokerError
from trilogue.broker.node_requests import DescribeProducers, NodeReply, ProducerRow, ProducerRows
from trilogue.broker.promise import Promise
from trilogue.broker.topics.cluster import Cluster
from trilogue.broker.topics.partition import Partition
from trilogue.broker.transactions.branches import Branches

NO_TRANSACTION: Final = -1
NO_SEQUENCE: Final = -1
NO_TIME: Final = -1
ROWS_MAX: Final = 10_000  # of one answer: 45 bytes each at most


def describe_producers(partition: Partition) -> list[ProducerRow]:
    """Return the producers, and after them those of which only an open transaction is known.

    These are Pulsar's, whose epoch is 0, and those that were idle longest when there were too many:
    tools that abort a hanging transaction find it here. Raises NotOwner.
    """
    ongoing = dict(partition.log.open_transactions)
    found = [
        ProducerRow(
            each.producer_id,
            each.epoch,
            each.last_sequence,
            each.active_ms,
            ongoing.pop(each.producer_id, NO_TRANSACTION),
        )
        for each in partition.producers.active()
    ]
    found += [
        ProducerRow(producer_id, 0, NO_SEQUENCE, NO_TIME, offset)
        for producer_id, offset in ongoing.items()
    ]
    return found


class NodeProducers:
    """Requests the producers of other nodes' partitions, and answers those nodes."""

    def __init__(self, cluster: Cluster, branches: Branches) -> None:
        self._cluster = cluster
        self._branches = branches

    def request(self, partition_id: int, after: int = -1) -> Promise[NodeReply]:
        """Request rows of the owner; the promise has ProducerRows, or an error of the broker."""
        owner = self._cluster.ownership.partition_owner(partition_id)
        request = DescribeProducers(partition_id, after)
        if owner == self._cluster.node_id:
            return self.handle(request)
        return self._branches.port.send(owner, request)

    def handle(self, request: DescribeProducers) -> Promise[NodeReply]:
        """Answer a request for a partition that this node serves."""
        try:
            return Promise.resolved(self._list(request))
        except BrokerError as error:
            return Promise.rejected(error)

    def _list(self, request: DescribeProducers) -> ProducerRows:
        partition = self._cluster.require_partition(request.partition_id)
        found = [each for each in describe_producers(partition) if each.producer_id > request.after]
        found.sort(key=lambda each: each.producer_id)
        return ProducerRows(tuple(found[:ROWS_MAX]), len(found) <= ROWS_MAX)
