"""Creating partitions, of a new topic or more of an existing one, in steps.

New partitions become visible with their topic's row. Durable subscriptions of an existing topic get
a cursor on each of its new partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final
from typing import Protocol as Port

from trilogue.broker.errors import InvalidAssignment
from trilogue.broker.producers.idempotence import Producers
from trilogue.broker.settings.topic_settings import TopicSettings
from trilogue.broker.topics.ownership import Ownership
from trilogue.broker.topics.partition import Partition
from trilogue.broker.topics.remote_partition import RemotePartition
from trilogue.log.partition_log import PartitionLog
from trilogue.log.segments.manifest import PartitionRange

if TYPE_CHECKING:
    from trilogue.broker.cursors.position import Cursor
    from trilogue.broker.cursors.subscription_cursors import SubscriptionCursors
    from trilogue.broker.promise import Promise
    from trilogue.broker.topics.topic import Topic

PARTITIONS_PER_STEP: Final = 200  # created or removed in one step: 1 ms


class PartitionLogs(Port):
    """What the cluster needs of the log."""

    def partition(self, partition_id: int, /) -> PartitionLog:
        """Return the log of an existing partition."""

    def create_partition(self, partition_id: int, owner_epoch: int, /) -> PartitionLog:
        """Create the log of a new partition."""

    def adopt_partition(
        self, partition_id: int, owner_epoch: int, known: PartitionRange, /
    ) -> PartitionLog:
        """Open the log of a partition that another node had."""

    def drop_partition(self, partition_id: int, /) -> None:
        """Remove the log of a partition."""


def check_assignment(assignment: Mapping[int, Sequence[int]], node_id: int) -> None:
    """Refuse an assignment that does not name this node for each partition from 0 on."""
    if sorted(assignment) != list(range(len(assignment))):
        raise InvalidAssignment("an assignment names every partition from 0 on, once")
    check_nodes(assignment.values(), node_id)


def check_nodes(assignments: Iterable[Sequence[int]], node_id: int) -> None:
    """Refuse other nodes than this one, and more than one copy."""
    for nodes in assignments:
        if list(nodes) != [node_id]:
            raise InvalidAssignment(f"node {node_id} is the only one")


def open_partitions(
    opened: list[Partition],
    partition_ids: Sequence[int],
    *,
    ownership: Ownership,
    open_log: Callable[[int], PartitionLog],
    producers: Producers,
    settings: TopicSettings,
) -> Iterator[None]:
    """Append the partitions of these ids to `opened`, in steps; those of other nodes are remote."""
    for count, each in enumerate(partition_ids, 1):
        state = producers.partition(each)
        if ownership.owns_partition(each):
            opened.append(Partition(open_log(each), state, settings))
        else:
            opened.append(RemotePartition(each, ownership, state, settings))
        if count % PARTITIONS_PER_STEP == 0:
            yield


def subscribe_new_partitions(
    subscriptions: SubscriptionCursors, topic: Topic, first: int
) -> list[Promise[Cursor]]:
    """Create cursors of a topic's durable subscriptions on its new partitions, at offset 0.

    The subscriptions are those of partition 0; `first` is the index of the first new partition.
    Each node knows the cursors of its own partitions only.
    """
    known = list(subscriptions.of_partition(topic.partitions[0].partition_id).values())
    return [
        subscriptions.create(partition.partition_id, cursor.name, 0, cursor.properties)
        for cursor in known
        for partition in topic.partitions[first:]
        if not partition.is_remote
    ]
