"""OffsetCommit (8), v0-10, and OffsetFetch (9), v0-10: the positions of a group.

Commit: v1 adds member and generation and (only there) a time, v2-4 a retention time, v3 the
throttle time, v6 leader epochs, v7 static members, v8 is flexible, v10 names topics by id.
Fetch: v2 adds "all topics" and the group's error, v3 the throttle time, v5 leader epochs, v6 is
flexible, v7 adds require_stable, v8 asks for many groups, v9 adds members, v10 names topics by id.
"""

from __future__ import annotations

from trilogue.wire.kafka.schema import boolean, int16, int32, int64, message, since, string, uuid


@message()
class OffsetCommitRequestPartition:
    """The position of one partition, with a note of the client."""

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
    """Remember these positions for the group; generation -1 without a member is by hand."""

    group_id: string = since(0)
    generation_id_or_member_epoch: int32 = since(1, default=-1)
    member_id: string = since(1)
    group_instance_id: string | None = since(7, null=7, default=None)
    retention_time_ms: int64 = since(2, until=4, default=-1)
    topics: list[OffsetCommitRequestTopic] = since(0)


@message()
class OffsetCommitResponsePartition:
    """The outcome for one partition."""

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
    """One outcome per partition."""

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
    """One group and the topics asked for; null is all."""

    group_id: string = since(8)
    member_id: string | None = since(9, null=9, default=None)
    member_epoch: int32 = since(9, default=-1)
    topics: list[OffsetFetchRequestTopics] | None = since(8, null=8)


@message(key=9, versions=(0, 10), flexible=6)
class OffsetFetchRequest:
    """Asks for the positions of one group (up to v7), of many (from v8)."""

    group_id: string = since(0, until=7)
    topics: list[OffsetFetchRequestTopic] | None = since(0, until=7, null=2)
    groups: list[OffsetFetchRequestGroup] = since(8)
    require_stable: boolean = since(7)


@message()
class OffsetFetchResponsePartition:
    """The position of one partition, -1 when there is none (up to v7)."""

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
    """The position of one partition, -1 when there is none (from v8)."""

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
    """The positions of one group."""

    group_id: string = since(8)
    topics: list[OffsetFetchResponseTopics] = since(8)
    error_code: int16 = since(8)


@message(key=9, versions=(0, 10), flexible=6)
class OffsetFetchResponse:
    """Positions: of one group up to v7, of each group from v8."""

    throttle_time_ms: int32 = since(3)
    topics: list[OffsetFetchResponseTopic] = since(0, until=7)
    error_code: int16 = since(2, until=7)
    groups: list[OffsetFetchResponseGroup] = since(8)
