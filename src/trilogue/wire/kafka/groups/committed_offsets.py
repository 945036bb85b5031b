"""OffsetCommit (8) v0-v10 and OffsetFetch (9) v0-v10: committed offsets of a group.

Commit: v1 member and generation, and (in v1 only) a timestamp · v2-v4 retention time · v3 throttle
time · v6 leader epochs · v7 static members · v8 flexible · v9 member epoch (KIP-848) · v10 topic
ids instead of names. Fetch: v2 all topics, the group's error · v3 throttle time · v5 leader epochs
· v6 flexible · v7 require_stable · v8 many groups · v9 member epoch (KIP-848) · v10 topic ids.
"""

from __future__ import annotations

from trilogue.wire.kafka.codec.schema import (
    boolean,
    int16,
    int32,
    int64,
    message,
    since,
    string,
    uuid,
)


@message()
class OffsetCommitRequestPartition:
    """The offset of one partition, with the client's metadata."""

    partition_index: int32 = since(0)
    committed_offset: int64 = since(0)
    committed_leader_epoch: int32 = since(6, default=-1)
    commit_timestamp: int64 = since(1, until=1, default=-1)
    committed_metadata: string | None = since(0, null=0)


@message()
class OffsetCommitRequestTopic:
    """The partitions of one topic."""

    name: string = since(0, until=9)
    topic_id: uuid = since(10)
    partitions: list[OffsetCommitRequestPartition] = since(0)


@message(key=8, versions=(0, 10), flexible=8)
class OffsetCommitRequest:
    """Commit these offsets for the group; generation -1 without a member is a manual commit."""

    group_id: string = since(0)
    generation_id_or_member_epoch: int32 = since(1, default=-1)
    member_id: string = since(1)
    group_instance_id: string | None = since(7, null=7, default=None)
    retention_time_ms: int64 = since(2, until=4, default=-1)
    topics: list[OffsetCommitRequestTopic] = since(0)


@message()
class OffsetCommitResponsePartition:
    """The result of one partition."""

    partition_index: int32 = since(0)
    error_code: int16 = since(0)


@message()
class OffsetCommitResponseTopic:
    """The partitions of one topic."""

    name: string = since(0, until=9)
    topic_id: uuid = since(10)
    partitions: list[OffsetCommitResponsePartition] = since(0)


@message(key=8, versions=(0, 10), flexible=8)
class OffsetCommitResponse:
    """One result per partition."""

    throttle_time_ms: int32 = since(3)
    topics: list[OffsetCommitResponseTopic] = since(0)


@message()
class OffsetFetchRequestTopic:
    """The partitions of one topic (up to v7)."""

    name: string = since(0, until=7)
    partition_indexes: list[int32] = since(0, until=7)


@message()
class OffsetFetchRequestTopics:
    """The partitions of one topic (from v8)."""

    name: string = since(8, until=9)
    topic_id: uuid = since(10)
    partition_indexes: list[int32] = since(8)


@message()
class OffsetFetchRequestGroup:
    """One group and the requested topics; null is all."""

    group_id: string = since(8)
    member_id: string | None = since(9, null=9, default=None)
    member_epoch: int32 = since(9, default=-1)
    topics: list[OffsetFetchRequestTopics] | None = since(8, null=8)


@message(key=9, versions=(0, 10), flexible=6)
class OffsetFetchRequest:
    """Fetch the offsets of one group (up to v7), of many (from v8)."""

    group_id: string = since(0, until=7)
    topics: list[OffsetFetchRequestTopic] | None = since(0, until=7, null=2)
    groups: list[OffsetFetchRequestGroup] = since(8)
    require_stable: boolean = since(7)


@message()
class OffsetFetchResponsePartition:
    """The offset of one partition, -1 if there is none (up to v7)."""

    partition_index: int32 = since(0, until=7)
    committed_offset: int64 = since(0, until=7)
    committed_leader_epoch: int32 = since(5, until=7, default=-1)
    metadata: string | None = since(0, until=7, null=0)
    error_code: int16 = since(0, until=7)


@message()
class OffsetFetchResponseTopic:
    """The partitions of one topic (up to v7)."""

    name: string = since(0, until=7)
    partitions: list[OffsetFetchResponsePartition] = since(0, until=7)


@message()
class OffsetFetchResponsePartitions:
    """The offset of one partition, -1 if there is none (from v8)."""

    partition_index: int32 = since(8)
    committed_offset: int64 = since(8)
    committed_leader_epoch: int32 = since(8, default=-1)
    metadata: string | None = since(8, null=8)
    error_code: int16 = since(8)


@message()
class OffsetFetchResponseTopics:
    """The partitions of one topic (from v8)."""

    name: string = since(8, until=9)
    topic_id: uuid = since(10)
    partitions: list[OffsetFetchResponsePartitions] = since(8)


@message()
class OffsetFetchResponseGroup:
    """The offsets of one group."""

    group_id: string = since(8)
    topics: list[OffsetFetchResponseTopics] = since(8)
    error_code: int16 = since(8)


@message(key=9, versions=(0, 10), flexible=6)
class OffsetFetchResponse:
    """Offsets: of one group up to v7, of each group from v8."""

    throttle_time_ms: int32 = since(3)
    topics: list[OffsetFetchResponseTopic] = since(0, until=7)
    error_code: int16 = since(2, until=7)
    groups: list[OffsetFetchResponseGroup] = since(8)
