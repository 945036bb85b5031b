"""DeleteGroups (42), v0-2, and OffsetDelete (47), v0: forget groups, or some of their positions."""

from __future__ import annotations

from trilogue.wire.kafka.schema import int16, int32, message, since, string


@message(key=42, versions=(0, 2), flexible=2)
class DeleteGroupsRequest:
    """Forget these groups with all their positions."""

    groups_names: list[string] = since(0)


@message()
class DeletableGroupResult:
    """The outcome for one group."""

    group_id: string = since(0)
    error_code: int16 = since(0)


@message(key=42, versions=(0, 2), flexible=2)
class DeleteGroupsResponse:
    """One outcome per group."""

    throttle_time_ms: int32 = since(0)
    results: list[DeletableGroupResult] = since(0)


@message()
class OffsetDeleteRequestPartition:
    """A partition by number."""

    partition_index: int32 = since(0)


@message()
class OffsetDeleteRequestTopic:
    """Partitions of one topic."""

    name: string = since(0)
    partitions: list[OffsetDeleteRequestPartition] = since(0)


@message(key=47, versions=(0, 0))
class OffsetDeleteRequest:
    """Forget a group's positions in these partitions."""

    group_id: string = since(0)
    topics: list[OffsetDeleteRequestTopic] = since(0)


@message()
class OffsetDeleteResponsePartition:
    """The outcome for one partition."""

    partition_index: int32 = since(0)
    error_code: int16 = since(0)


@message()
class OffsetDeleteResponseTopic:
    """Outcomes of one topic."""

    name: string = since(0)
    partitions: list[OffsetDeleteResponsePartition] = since(0)


@message(key=47, versions=(0, 0))
class OffsetDeleteResponse:
    """An error of the whole group, or outcomes one by one."""

    error_code: int16 = since(0)
    throttle_time_ms: int32 = since(0)
    topics: list[OffsetDeleteResponseTopic] = since(0)
