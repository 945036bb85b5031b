"""A topic: a name, a unique id, its overrides, and its partitions in order."""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

import msgspec

from trilogue.broker.errors import UnknownTopic
from trilogue.broker.names import INTERNAL_TOPICS, TopicName
from trilogue.broker.topics.partition import Partition
from trilogue.meta.operations import TopicRow

INTERNAL_PARTITIONS: Final = 50  # of an internal topic, as in Kafka; one per slot if these are more


class Topic(msgspec.Struct, frozen=True, eq=False):
    """A topic. Replaced, not changed, when its row changes."""

    row: TopicRow
    name: TopicName
    partitions: tuple[Partition, ...]

    @property
    def topic_id(self) -> bytes:
        """16 bytes; another topic of the same name has another id."""
        return self.row.topic_id

    @property
    def partitioned(self) -> bool:
        """False: one partition that is reached by the bare name (Pulsar's unpartitioned topics)."""
        return self.row.partitioned

    @property
    def is_internal(self) -> bool:
        """Whether the broker itself writes it, and its clients read it only."""
        return self.name in INTERNAL_TOPICS and len(self.row.partitions) >= INTERNAL_PARTITIONS

    @property
    def local_partitions(self) -> list[Partition]:
        """The partitions that this node owns, in order."""
        return [each for each in self.partitions if not each.is_remote]

    @property
    def settings(self) -> dict[str, str]:
        """The overrides, as stored."""
        return self.row.settings

    def number_of(self, partition_id: int) -> int:
        """Return the number of one of its partitions."""
        ids = self.row.partitions
        found = bisect_left(ids, partition_id)  # in order, unless another node has added some
        return found if ids[found : found + 1] == (partition_id,) else ids.index(partition_id)

    def partition(self, index: int) -> Partition:
        """Return one partition by its number; UnknownTopic."""
        if not 0 <= index < len(self.partitions):
            raise UnknownTopic(f"the topic has no partition {index}")
        if self.partitions[index].deleted:  # it went while the caller had the object
            raise self.partitions[index].refusal()
        return self.partitions[index]
