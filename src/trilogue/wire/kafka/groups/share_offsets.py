"""Describe-, Alter- and DeleteShareGroupOffsets (90 v0-v1, 91 v0, 92 v0), of share groups.

90 v1 lag (KIP-1226).
"""

from __future__ import annotations

from trilogue.wire.kafka.codec.schema import int16, int32, int64, message, since, string, uuid


@message()
class DescribeShareGroupOffsetsRequestTopic:
    """Partitions of one topic."""

    topic_name: string = since(0)
    partitions: list[int32] = since(0)


@message()
class DescribeShareGroupOffsetsRequestGroup:
    """A group, and the topics to describe; None: all."""

    group_id: string = since(0)
    topics: list[DescribeShareGroupOffsetsRequestTopic] | None = since(0, null=0)


@message(key=90, versions=(0, 1), flexible=0)
class DescribeShareGroupOffsetsRequest:
    """Describe the positions of these groups."""

    groups: list[DescribeShareGroupOffsetsRequestGroup] = since(0)


@message()
class DescribeShareGroupOffsetsResponsePartition:
    """The start offset of one partition, -1 without one, and its lag."""

    partition_index: int32 = since(0)
    start_offset: int64 = since(0)
    leader_epoch: int32 = since(0)
    lag: int64 = since(1, default=-1)
    error_code: int16 = since(0)
    error_message: string | None = since(0, null=0, default=None)


@message()
class DescribeShareGroupOffsetsResponseTopic:
    """The partitions of one topic."""

    topic_name: string = since(0)
    topic_id: uuid = since(0)
    partitions: list[DescribeShareGroupOffsetsResponsePartition] = since(0)


@message()
class DescribeShareGroupOffsetsResponseGroup:
    """The topics of one group, or its error."""

    group_id: string = since(0)
    topics: list[DescribeShareGroupOffsetsResponseTopic] = since(0)
    error_code: int16 = since(0)
    error_message: string | None = since(0, null=0, default=None)


@message(key=90, versions=(0, 1), flexible=0)
class DescribeShareGroupOffsetsResponse:
    """One result per group."""

    throttle_time_ms: int32 = since(0)
    groups: list[DescribeShareGroupOffsetsResponseGroup] = since(0)


@message()
class AlterShareGroupOffsetsRequestPartition:
    """The new start offset of a partition."""

    partition_index: int32 = since(0)
    start_offset: int64 = since(0)


@message()
class AlterShareGroupOffsetsRequestTopic:
    """Partitions of one topic."""

    topic_name: string = since(0)
    partitions: list[AlterShareGroupOffsetsRequestPartition] = since(0)


@message(key=91, versions=(0, 0), flexible=0)
class AlterShareGroupOffsetsRequest:
    """Move the start offsets of a group without members."""

    group_id: string = since(0)
    topics: list[AlterShareGroupOffsetsRequestTopic] = since(0)


@message()
class AlterShareGroupOffsetsResponsePartition:
    """The result of one partition."""

    partition_index: int32 = since(0)
    error_code: int16 = since(0)
    error_message: string | None = since(0, null=0, default=None)


@message()
class AlterShareGroupOffsetsResponseTopic:
    """The partitions of one topic."""

    topic_name: string = since(0)
    topic_id: uuid = since(0)
    partitions: list[AlterShareGroupOffsetsResponsePartition] = since(0)


@message(key=91, versions=(0, 0), flexible=0)
class AlterShareGroupOffsetsResponse:
    """One result per partition, or the error of the group."""

    throttle_time_ms: int32 = since(0)
    error_code: int16 = since(0)
    error_message: string | None = since(0, null=0, default=None)
    responses: list[AlterShareGroupOffsetsResponseTopic] = since(0)


@message()
class DeleteShareGroupOffsetsRequestTopic:
    """A topic whose positions go."""

    topic_name: string = since(0)


@message(key=92, versions=(0, 0), flexible=0)
class DeleteShareGroupOffsetsRequest:
    """Delete the positions of a group without members on these topics."""

    group_id: string = since(0)
    topics: list[DeleteShareGroupOffsetsRequestTopic] = since(0)


@message()
class DeleteShareGroupOffsetsResponseTopic:
    """The result of one topic."""

    topic_name: string = since(0)
    topic_id: uuid = since(0)
    error_code: int16 = since(0)
    error_message: string | None = since(0, null=0, default=None)


@message(key=92, versions=(0, 0), flexible=0)
class DeleteShareGroupOffsetsResponse:
    """One result per topic, or the error of the group."""

    throttle_time_ms: int32 = since(0)
    error_code: int16 = since(0)
    error_message: string | None = since(0, null=0, default=None)
    responses: list[DeleteShareGroupOffsetsResponseTopic] = since(0)
