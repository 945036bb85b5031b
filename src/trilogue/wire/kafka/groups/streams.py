"""StreamsGroupHeartbeat (88) v0: membership of streams groups (KIP-1071)."""

from __future__ import annotations

from trilogue.wire.kafka.codec.schema import (
    boolean,
    int8,
    int16,
    int32,
    int64,
    message,
    since,
    string,
    uint16,
)


@message()
class StreamsKeyValue:
    """A setting of a topic, or a tag of a client."""

    key: string = since(0)
    value: string = since(0)


@message()
class StreamsTopicInfo:
    """An internal topic. A number of partitions of 0 is to be found out."""

    name: string = since(0)
    partitions: int32 = since(0)
    replication_factor: int16 = since(0)
    topic_configs: list[StreamsKeyValue] = since(0)


@message()
class StreamsCopartitionGroup:
    """Topics with the same number of partitions, as indexes into lists of their subtopology."""

    source_topics: list[int16] = since(0)
    source_topic_regex: list[int16] = since(0)
    repartition_source_topics: list[int16] = since(0)


@message()
class StreamsSubtopology:
    """A subtopology and its topics."""

    subtopology_id: string = since(0)
    source_topics: list[string] = since(0)
    source_topic_regex: list[string] = since(0)
    state_changelog_topics: list[StreamsTopicInfo] = since(0)
    repartition_sink_topics: list[string] = since(0)
    repartition_source_topics: list[StreamsTopicInfo] = since(0)
    copartition_groups: list[StreamsCopartitionGroup] = since(0)


@message(frozen=True)
class StreamsTopology:
    """The topology of an application."""

    epoch: int32 = since(0)
    subtopologies: list[StreamsSubtopology] = since(0)


@message()
class StreamsTaskIds:
    """Tasks of a subtopology."""

    subtopology_id: string = since(0)
    partitions: list[int32] = since(0)


@message(frozen=True)
class StreamsEndpoint:
    """Where a member is reached for interactive queries."""

    host: string = since(0)
    port: uint16 = since(0)


@message()
class StreamsTaskOffset:
    """The sum of the changelog offsets of a task."""

    subtopology_id: string = since(0)
    partition: int32 = since(0)
    offset: int64 = since(0)


@message(key=88, versions=(0, 0), flexible=0)
class StreamsGroupHeartbeatRequest:
    """A heartbeat with what changed of the member; a topology when it joins."""

    group_id: string = since(0)
    member_id: string = since(0)
    member_epoch: int32 = since(0)
    endpoint_information_epoch: int32 = since(0)
    instance_id: string | None = since(0, null=0, default=None)
    rack_id: string | None = since(0, null=0, default=None)
    rebalance_timeout_ms: int32 = since(0, default=-1)
    topology: StreamsTopology | None = since(0, null=0, default=None)
    active_tasks: list[StreamsTaskIds] | None = since(0, null=0, default=None)
    standby_tasks: list[StreamsTaskIds] | None = since(0, null=0, default=None)
    warmup_tasks: list[StreamsTaskIds] | None = since(0, null=0, default=None)
    process_id: string | None = since(0, null=0, default=None)
    user_endpoint: StreamsEndpoint | None = since(0, null=0, default=None)
    client_tags: list[StreamsKeyValue] | None = since(0, null=0, default=None)
    task_offsets: list[StreamsTaskOffset] | None = since(0, null=0, default=None)
    task_end_offsets: list[StreamsTaskOffset] | None = since(0, null=0, default=None)
    shutdown_application: boolean = since(0)


@message()
class StreamsStatus:
    """A state of the group that the member should know."""

    status_code: int8 = since(0)
    status_detail: string = since(0)


@message()
class StreamsTopicPartitions:
    """Partitions of a topic by its name."""

    topic: string = since(0)
    partitions: list[int32] = since(0)


@message()
class StreamsEndpointPartitions:
    """The partitions whose stores an endpoint has."""

    user_endpoint: StreamsEndpoint = since(0)
    active_partitions: list[StreamsTopicPartitions] = since(0)
    standby_partitions: list[StreamsTopicPartitions] = since(0)


@message(key=88, versions=(0, 0), flexible=0)
class StreamsGroupHeartbeatResponse:
    """The member's epoch, the heartbeat interval and, if changed, its tasks."""

    throttle_time_ms: int32 = since(0)
    error_code: int16 = since(0)
    error_message: string | None = since(0, null=0, default=None)
    member_id: string = since(0)
    member_epoch: int32 = since(0)
    heartbeat_interval_ms: int32 = since(0)
    acceptable_recovery_lag: int32 = since(0)
    task_offset_interval_ms: int32 = since(0)
    status: list[StreamsStatus] | None = since(0, null=0)
    active_tasks: list[StreamsTaskIds] | None = since(0, null=0, default=None)
    standby_tasks: list[StreamsTaskIds] | None = since(0, null=0, default=None)
    warmup_tasks: list[StreamsTaskIds] | None = since(0, null=0, default=None)
    endpoint_information_epoch: int32 = since(0)
    partitions_by_user_endpoint: list[StreamsEndpointPartitions] | None = since(
        0, null=0, default=None
    )
