"""Where partitions are: those whose slot this node serves have a log here, others are remote.

Slots come and go while a node serves: a partition is opened when its slot comes, and closed when it
goes. The log of a closed one stays until another node has it, as what is in it may not be durable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final
from typing import Protocol as Port

from trilogue.broker.producers.idempotence import Producers
from trilogue.broker.settings.topic_settings import TopicSettings
from trilogue.broker.topics.ownership import Ownership
from trilogue.broker.topics.partition import Partition
from trilogue.broker.topics.remote_partition import RemotePartition
from trilogue.log.partition_log import PartitionLog
from trilogue.log.segments.manifest import PartitionRange
from trilogue.meta.state import MetaState

PARTITIONS_PER_STEP: Final = 200  # opened or removed in one step: 1 ms


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


class PartitionPlacement:
    """Opens and closes partitions of this node, and makes those of other nodes."""

    def __init__(self, state: MetaState, ownership: Ownership, producers: Producers) -> None:
        self.logs: PartitionLogs | None = None  # before the log is recovered
        self.leaving: dict[int, Partition] = {}  # closed, and not yet another node's
        self._meta = state
        self._ownership = ownership
        self._producers = producers

    def open(
        self,
        opened: list[Partition],
        partition_ids: Sequence[int],
        settings: TopicSettings,
        open_log: Callable[[int], PartitionLog] | None = None,
    ) -> Iterator[None]:
        """Append partitions with these ids to `opened`, in steps; those of this node have a log.

        The log is a new one unless `open_log` returns another.
        """
        for count, each in enumerate(partition_ids, 1):
            state = self._producers.partition(each)
            if self._ownership.owns_partition(each):
                opened.append(Partition((open_log or self._create_log)(each), state, settings))
            else:
                opened.append(RemotePartition(each, self._ownership, state, settings))
            if count % PARTITIONS_PER_STEP == 0:
                yield

    def place(self, parts: Sequence[Partition]) -> Sequence[Partition]:
        """Return partitions: those that this node serves by now with a log, others remote."""
        owns = self._ownership.owns_partition
        return [
            each
            if each.is_remote is not owns(each.partition_id)
            else (self._adopt(each) if each.is_remote else self._release(each))
            for each in parts
        ]

    def end_release(self) -> list[int]:
        """Return the ids of closed partitions, which another node has now."""
        released, self.leaving = list(self.leaving), {}
        return released

    def drop_log(self, partition_id: int) -> None:
        """Drop the log of a partition that was deleted or that another node has."""
        assert self.logs is not None, "no log yet"
        self.logs.drop_partition(partition_id)

    def _create_log(self, partition_id: int) -> PartitionLog:
        assert self.logs is not None, "no log yet"
        return self.logs.create_partition(
            partition_id, self._ownership.partition_epoch(partition_id)
        )

    def _release(self, part: Partition) -> Partition:
        remote = RemotePartition(part.partition_id, self._ownership, part.producers, part.settings)
        part.move_away(remote.refusal)
        self.leaving[part.partition_id] = part
        return remote

    def _adopt(self, part: Partition) -> Partition:
        assert self.logs is not None, "no log yet"
        partition_id = part.partition_id
        known = self._meta.partition_range(partition_id) or PartitionRange(0, 0, 0)
        epoch = self._ownership.partition_epoch(partition_id)
        log = self.logs.adopt_partition(partition_id, epoch, known)
        return Partition(log, self._producers.partition(partition_id), part.settings)
