"""DeleteGroups (42) v0-v2 and OffsetDelete (47) v0: delete groups, or some of their offsets.

DeleteGroups: v1 unchanged · v2 flexible. OffsetDelete is KIP-496.
"""

from __future__ import annotations

from trilogue.wire.kafka.codec.schema import int16, int32, message, since, string


@message(key=42, versions=(0, 2), flexible=2)
class DeleteGroupsRequest:
    """Delete these groups with all their offsets."""

    groups_names: list[string] = since(0)


@message()
class DeletableGroupResult:
    """The result of one group."""

    group_id: string = since(0)
    error_code: int16 = since(0)


@message(key=42, versions=(0, 2), flexible=2)
class DeleteGroupsResponse:
    """One result per group."""

    throttle_time_ms: int32 = since(0)
    results: list[DeletableGroupResult] = since(0)


@message()
class OffsetDeleteRequestPartition:
    """A partition by its index."""

    partition_index: int32 = since(0)


@message()
class OffsetDeleteRequestTopic:
    """Partitions of one topic."""

    name: string = since(0)
    partitions: list[OffsetDeleteRequestPartition] = since(0)


@message(key=47, versions=(0, 0))
class OffsetDeleteRequest:
    """Delete a group's offsets of these partitions."""

    group_id: string = since(0)
    topics: list[OffsetDeleteRequestTopic] = since(0)


@message()
class OffsetDeleteResponsePartition:
    """The result of one partition."""

    partition_index: int32 = since(0)
    error_code: int16 = since(0)


@message()
class OffsetDeleteResponseTopic:
    """Results of one topic."""

    name: string = since(0)
    partitions: list[OffsetDeleteResponsePartition] = since(0)


@message(key=47, versions=(0, 0))
class OffsetDeleteResponse:
    """An error of the whole group, or a result per partition."""

    error_code: int16 = since(0)
    throttle_time_ms: int32 = since(0)
    topics: list[OffsetDeleteResponseTopic] = since(0)
