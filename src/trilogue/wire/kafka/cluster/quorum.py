"""DescribeQuorum (55) v0-v2: leader, voters and observers of the metadata quorum (KIP-595).

v1 times of the last fetch and of the last catch-up (KIP-836) · v2 nodes with their endpoints, error
messages (KIP-853).
"""

from __future__ import annotations

from trilogue.wire.kafka.codec.schema import (
    int16,
    int32,
    int64,
    message,
    since,
    string,
    uint16,
    uuid,
)


@message()
class DescribeQuorumPartition:
    """A partition of the metadata log."""

    partition_index: int32 = since(0)


@message()
class DescribeQuorumTopic:
    """The topic of the metadata log: `__cluster_metadata`."""

    topic_name: string = since(0)
    partitions: list[DescribeQuorumPartition] = since(0)


@message(key=55, versions=(0, 2), flexible=0)
class DescribeQuorumRequest:
    """Describe the quorum of these partitions."""

    topics: list[DescribeQuorumTopic] = since(0)


@message()
class QuorumReplica:
    """The log end offset of one node."""

    replica_id: int32 = since(0)
    replica_directory_id: uuid = since(2)
    log_end_offset: int64 = since(0)
    last_fetch_timestamp: int64 = since(1, default=-1)
    last_caught_up_timestamp: int64 = since(1, default=-1)


@message()
class QuorumPartition:
    """The leader, the voters and the observers."""

    partition_index: int32 = since(0)
    error_code: int16 = since(0)
    error_message: string | None = since(2, null=2)
    leader_id: int32 = since(0)
    leader_epoch: int32 = since(0)
    high_watermark: int64 = since(0)
    current_voters: list[QuorumReplica] = since(0)
    observers: list[QuorumReplica] = since(0)


@message()
class QuorumTopic:
    """Partitions of one topic."""

    topic_name: string = since(0)
    partitions: list[QuorumPartition] = since(0)


@message()
class QuorumListener:
    """An endpoint of a node."""

    name: string = since(2)
    host: string = since(2)
    port: uint16 = since(2)


@message()
class QuorumNode:
    """A voter."""

    node_id: int32 = since(2)
    listeners: list[QuorumListener] = since(2)


@message(key=55, versions=(0, 2), flexible=0)
class DescribeQuorumResponse:
    """The quorum by partition; it has no throttle time."""

    error_code: int16 = since(0)
    error_message: string | None = since(2, null=2)
    topics: list[QuorumTopic] = since(0)
    nodes: list[QuorumNode] = since(2)
