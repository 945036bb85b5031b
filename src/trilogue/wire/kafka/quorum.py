"""DescribeQuorum (55), v0-2, the request: who decides about the cluster (KIP-595)."""

from __future__ import annotations

from trilogue.wire.kafka.schema import int32, message, since, string


@message()
class PartitionData:
    """A partition of the log of decisions."""

    partition_index: int32 = since(0)


@message()
class TopicData:
    """The log of decisions: `__cluster_metadata`, partition 0."""

    topic_name: string = since(0)
    partitions: list[PartitionData] = since(0)


@message(key=55, versions=(0, 2), flexible=0)
class DescribeQuorumRequest:
    """Tell of the quorum of these partitions."""

    topics: list[TopicData] = since(0)
