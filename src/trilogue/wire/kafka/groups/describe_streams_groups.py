"""StreamsGroupDescribe (89) v0: topology, tasks and members of streams groups (KIP-1071)."""

from __future__ import annotations

from trilogue.wire.kafka.codec.schema import boolean, int16, int32, message, since, string
from trilogue.wire.kafka.groups.streams import (
    StreamsEndpoint,
    StreamsKeyValue,
    StreamsTaskIds,
    StreamsTaskOffset,
    StreamsTopicInfo,
)


@message(key=89, versions=(0, 0), flexible=0)
class StreamsGroupDescribeRequest:
    """Describe these groups."""

    group_ids: list[string] = since(0)
    include_authorized_operations: boolean = since(0)


@message()
class DescribedSubtopology:
    """A subtopology and its topics."""

    subtopology_id: string = since(0)
    source_topics: list[string] = since(0)
    repartition_sink_topics: list[string] = since(0)
    state_changelog_topics: list[StreamsTopicInfo] = since(0)
    repartition_source_topics: list[StreamsTopicInfo] = since(0)


@message(frozen=True)
class DescribedTopology:
    """A topology."""

    epoch: int32 = since(0)
    subtopologies: list[DescribedSubtopology] | None = since(0, null=0, default=None)


@message(frozen=True)
class DescribedTasks:
    """The tasks of a member, by role."""

    active_tasks: list[StreamsTaskIds] = since(0)
    standby_tasks: list[StreamsTaskIds] = since(0)
    warmup_tasks: list[StreamsTaskIds] = since(0)


@message()
class DescribedStreamsMember:
    """A member and its tasks."""

    member_id: string = since(0)
    member_epoch: int32 = since(0)
    instance_id: string | None = since(0, null=0, default=None)
    rack_id: string | None = since(0, null=0, default=None)
    client_id: string = since(0)
    client_host: string = since(0)
    topology_epoch: int32 = since(0)
    process_id: string = since(0)
    user_endpoint: StreamsEndpoint | None = since(0, null=0, default=None)
    client_tags: list[StreamsKeyValue] = since(0)
    task_offsets: list[StreamsTaskOffset] = since(0)
    task_end_offsets: list[StreamsTaskOffset] = since(0)
    assignment: DescribedTasks = since(0)
    target_assignment: DescribedTasks = since(0)
    is_classic: boolean = since(0)


@message()
class DescribedStreamsGroup:
    """A group, or its error."""

    error_code: int16 = since(0)
    error_message: string | None = since(0, null=0, default=None)
    group_id: string = since(0)
    group_state: string = since(0)
    group_epoch: int32 = since(0)
    assignment_epoch: int32 = since(0)
    topology: DescribedTopology | None = since(0, null=0, default=None)
    members: list[DescribedStreamsMember] = since(0)
    authorized_operations: int32 = since(0, default=-2147483648)


@message(key=89, versions=(0, 0), flexible=0)
class StreamsGroupDescribeResponse:
    """One result per group."""

    throttle_time_ms: int32 = since(0)
    groups: list[DescribedStreamsGroup] = since(0)
