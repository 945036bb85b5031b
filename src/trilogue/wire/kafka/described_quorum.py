"""DescribeQuorum (55), v0-2, the response: who decides, and how far the others are (KIP-595).

v1 says when an observer asked last and had everything (KIP-836), v2 names nodes with their
endpoints (KIP-853).
"""

from __future__ import annotations

from trilogue.wire.kafka.schema import int16, int32, int64, message, since, string, uint16, uuid


@message()
class ReplicaState:
    """How far one node is."""

    replica_id: int32 = since(0)
    replica_directory_id: uuid = since(2)
    log_end_offset: int64 = since(0)
    last_fetch_timestamp: int64 = since(1, default=-1)
    last_caught_up_timestamp: int64 = since(1, default=-1)


@message()
class PartitionData:
    """The leader, who votes, who looks on."""

    partition_index: int32 = since(0)
    error_code: int16 = since(0)
    error_message: string | None = since(2, null=2)
    leader_id: int32 = since(0)
    leader_epoch: int32 = since(0)
    high_watermark: int64 = since(0)
    current_voters: list[ReplicaState] = since(0)
    observers: list[ReplicaState] = since(0)


@message()
class TopicData:
    """Partitions of one topic."""

    topic_name: string = since(0)
    partitions: list[PartitionData] = since(0)


@message()
class Listener:
    """Where a node is reached."""

    name: string = since(2)
    host: string = since(2)
    port: uint16 = since(2)


@message()
class Node:
    """A node that votes."""

    node_id: int32 = since(2)
    listeners: list[Listener] = since(2)


@message(key=55, versions=(0, 2), flexible=0)
class DescribeQuorumResponse:
    """The quorum by partition; there is no throttle time in it."""

    error_code: int16 = since(0)
    error_message: string | None = since(2, null=2)
    topics: list[TopicData] = since(0)
    nodes: list[Node] = since(2)
