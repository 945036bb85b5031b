"""Fetch (1), v0-18: read record batches, waiting for them if need be.

v1 adds the throttle time, v2 answers in magic 1, v3 adds max_bytes and minds the order of
partitions, v4 isolation and magic 2, v5 log starts, v7 fetch sessions, v9 leader epochs, v10
allows zstd, v11 adds racks, v12 is flexible, v13 names topics by id, v15 moves replica_id to a
tagged field, v16 gives the addresses of new leaders, v17 and v18 are for followers.
"""

from __future__ import annotations

from trilogue.wire.kafka.schema import (
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


@message(frozen=True)
class ReplicaState:
    """Who fetches, when it is a follower broker."""

    replica_id: int32 = since(15, default=-1)
    replica_epoch: int64 = since(15, default=-1)


@message()
class FetchPartition:
    """From where to read one partition, and how much."""

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
    """Read from these partitions; wait up to max_wait_ms until there are min_bytes."""

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
class EpochEndOffset:
    """Where the follower has diverged: the last epoch both know, and its end."""

    epoch: int32 = since(12, default=-1)
    end_offset: int64 = since(12, default=-1)


@message(frozen=True)
class LeaderIdAndEpoch:
    """Who leads the partition now; -1 when that is not known."""

    leader_id: int32 = since(12, default=-1)
    leader_epoch: int32 = since(12, default=-1)


@message(frozen=True)
class SnapshotId:
    """The snapshot to fetch instead (raft only)."""

    end_offset: int64 = since(0, default=-1)
    epoch: int32 = since(0, default=-1)


@message()
class AbortedTransaction:
    """Skip records of this producer from here to its abort marker."""

    producer_id: int64 = since(4)
    first_offset: int64 = since(4)


@message()
class PartitionData:
    """Record batches of one partition, and how far it may be read."""

    partition_index: int32 = since(0)
    error_code: int16 = since(0)
    high_watermark: int64 = since(0)
    last_stable_offset: int64 = since(4, default=-1)
    log_start_offset: int64 = since(5, default=-1)
    diverging_epoch: EpochEndOffset = since(12, tag=0)
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


@message()
class NodeEndpoint:
    """The address of a leader named in this response."""

    node_id: int32 = since(16)
    host: string = since(16)
    port: int32 = since(16)
    rack: string | None = since(16, null=16, default=None)


@message(key=1, versions=(0, 18), flexible=12)
class FetchResponse:
    """Records, partition by partition."""

    throttle_time_ms: int32 = since(1)
    error_code: int16 = since(7)
    session_id: int32 = since(7)
    responses: list[FetchableTopicResponse] = since(0)
    node_endpoints: list[NodeEndpoint] = since(16, tag=0)
