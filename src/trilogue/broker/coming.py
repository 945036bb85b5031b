"""Partitions that come: made some in a step, before their topic is seen by anybody."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final
from typing import Protocol as Port

from trilogue.broker.partition import Partition
from trilogue.broker.producers import Producers
from trilogue.broker.settings import TopicSettings
from trilogue.log.partition_log import PartitionLog

AT_ONCE: Final = 200  # partitions that come or go in one step: 1 ms


class PartitionLogs(Port):
    """What the cluster needs of the log."""

    def partition(self, partition_id: int, /) -> PartitionLog:
        """Return the log of a partition that exists."""

    def create_partition(self, partition_id: int, owner_epoch: int, /) -> PartitionLog:
        """Make the log of a new partition."""

    def drop_partition(self, partition_id: int, /) -> None:
        """Let a partition's log go."""


def make_partitions(
    made: list[Partition],
    partition_ids: Sequence[int],
    *,
    logs: PartitionLogs,
    producers: Producers,
    owner_epoch: int,
    settings: TopicSettings,
) -> Iterator[None]:
    """Add new partitions with these ids to `made`, in steps."""
    for count, each in enumerate(partition_ids, 1):
        made.append(
            Partition(logs.create_partition(each, owner_epoch), producers.of(each), settings)
        )
        if count % AT_ONCE == 0:
            yield
