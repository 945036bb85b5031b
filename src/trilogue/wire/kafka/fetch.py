"""Fetch (1) v0-v18: read record batches, with long polling.

v1 throttle time · v2 magic 1 · v3 max_bytes and an order of partitions · v4 isolation level, magic
2 · v5 log start offset · v7 fetch sessions · v9 leader epochs · v10 zstd · v11 racks · v12 flexible
· v13 topic ids instead of names · v15 replica_id as a tagged field · v16 endpoints of new leaders ·
v17, v18 for followers.
"""

from __future__ import annotations

from trilogue.wire.kafka.codec.schema import (
    batches,
    int8,
    int16,
    int32,
    int64,
    message,
    since,
    string,
    uuid,
)
from trilogue.wire.kafka.leader import LeaderIdAndEpoch, NodeEndpoint


@message(frozen=True)
class ReplicaState:
    """The follower that fetches."""

    replica_id: int32 = since(15, default=-1)
    replica_epoch: int64 = since(15, default=-1)


@message()
class FetchPartition:
    """The fetch offset of one partition, and how many bytes to read."""

    partition: int32 = since(0)
    current_leader_epoch: int32 = since(9, default=-1)
    fetch_offset: int64 = since(0)
    last_fetched_epoch: int32 = since(12, default=-1)
    log_start_offset: int64 = since(5, default=-1)
    partition_max_bytes: int32 = since(0)
    replica_directory_id: uuid = since(17, tag=0)
    high_watermark: int64 = since(18, tag=1, default=0x7FFFFFFFFFFFFFFF)


@message()
class FetchTopic:
    """The partitions of one topic."""

    topic: string = since(0, until=12)
    topic_id: uuid = since(13)
    partitions: list[FetchPartition] = since(0)


@message()
class ForgottenTopic:
    """Partitions that leave the fetch session."""

    topic: string = since(7, until=12)
    topic_id: uuid = since(13)
    partitions: list[int32] = since(7)


@message(key=1, versions=(0, 18), flexible=12)
class FetchRequest:
    """Read from these partitions; wait up to max_wait_ms for min_bytes."""

    cluster_id: string | None = since(12, null=12, tag=0, default=None)
    replica_id: int32 = since(0, until=14, default=-1)
    replica_state: ReplicaState = since(15, tag=1)
    max_wait_ms: int32 = since(0)
    min_bytes: int32 = since(0)
    max_bytes: int32 = since(3, default=0x7FFFFFFF)
    isolation_level: int8 = since(4)
    session_id: int32 = since(7)
    session_epoch: int32 = since(7, default=-1)
    topics: list[FetchTopic] = since(0)
    forgotten_topics_data: list[ForgottenTopic] = since(7)
    rack_id: string = since(11)


@message(frozen=True)
class DivergingEpoch:
    """The last epoch that leader and follower share, and its end offset."""

    epoch: int32 = since(12, default=-1)
    end_offset: int64 = since(12, default=-1)


@message(frozen=True)
class SnapshotId:
    """The snapshot to fetch instead (raft only)."""

    end_offset: int64 = since(0, default=-1)
    epoch: int32 = since(0, default=-1)


@message()
class AbortedTransaction:
    """Skip records of this producer from this offset to its abort marker."""

    producer_id: int64 = since(4)
    first_offset: int64 = since(4)


@message()
class PartitionData:
    """Record batches of one partition, its high watermark and its last stable offset."""

    partition_index: int32 = since(0)
    error_code: int16 = since(0)
    high_watermark: int64 = since(0)
    last_stable_offset: int64 = since(4, default=-1)
    log_start_offset: int64 = since(5, default=-1)
    diverging_epoch: DivergingEpoch = since(12, tag=0)
    current_leader: LeaderIdAndEpoch = since(12, tag=1)
    snapshot_id: SnapshotId = since(12, tag=2)
    aborted_transactions: list[AbortedTransaction] | None = since(4, null=4)
    preferred_read_replica: int32 = since(11, default=-1)
    records: batches | None = since(0, null=0)


@message()
class FetchableTopicResponse:
    """The partitions of one topic."""

    topic: string = since(0, until=12)
    topic_id: uuid = since(13)
    partitions: list[PartitionData] = since(0)


@message(key=1, versions=(0, 18), flexible=12)
class FetchResponse:
    """Records by partition."""

    throttle_time_ms: int32 = since(1)
    error_code: int16 = since(7)
    session_id: int32 = since(7)
    responses: list[FetchableTopicResponse] = since(0)
    node_endpoints: list[NodeEndpoint] = since(16, tag=0)
