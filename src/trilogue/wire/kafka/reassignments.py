"""AlterPartitionReassignments (45), v0-1, and ListPartitionReassignments (46), v0 (KIP-455)."""

from __future__ import annotations

from trilogue.wire.kafka.schema import boolean, int16, int32, message, since, string


@message()
class ReassignablePartition:
    """Where a partition's replicas shall lie; null ends a move that is under way."""

    partition_index: int32 = since(0)
    replicas: list[int32] | None = since(0, null=0, default=None)


@message()
class ReassignableTopic:
    """Partitions of one topic."""

    name: string = since(0)
    partitions: list[ReassignablePartition] = since(0)


@message(key=45, versions=(0, 1), flexible=0)
class AlterPartitionReassignmentsRequest:
    """Begin or end moves of replicas."""

    timeout_ms: int32 = since(0, default=60000)
    allow_replication_factor_change: boolean = since(1, default=True)
    topics: list[ReassignableTopic] = since(0)


@message()
class ReassignablePartitionResponse:
    """The outcome for one partition."""

    partition_index: int32 = since(0)
    error_code: int16 = since(0)
    error_message: string | None = since(0, null=0)


@message()
class ReassignableTopicResponse:
    """Outcomes of one topic."""

    name: string = since(0)
    partitions: list[ReassignablePartitionResponse] = since(0)


@message(key=45, versions=(0, 1), flexible=0)
class AlterPartitionReassignmentsResponse:
    """Outcomes by topic."""

    throttle_time_ms: int32 = since(0)
    allow_replication_factor_change: boolean = since(1, default=True)
    error_code: int16 = since(0)
    error_message: string | None = since(0, null=0)
    responses: list[ReassignableTopicResponse] = since(0)


@message()
class ListPartitionReassignmentsTopics:
    """Partitions of a topic."""

    name: string = since(0)
    partition_indexes: list[int32] = since(0)


@message(key=46, versions=(0, 0), flexible=0)
class ListPartitionReassignmentsRequest:
    """Tell which of these, or of all, are on the move."""

    timeout_ms: int32 = since(0, default=60000)
    topics: list[ListPartitionReassignmentsTopics] | None = since(0, null=0, default=None)


@message()
class OngoingPartitionReassignment:
    """A partition on the move."""

    partition_index: int32 = since(0)
    replicas: list[int32] = since(0)
    adding_replicas: list[int32] = since(0)
    removing_replicas: list[int32] = since(0)


@message()
class OngoingTopicReassignment:
    """Partitions of one topic."""

    name: string = since(0)
    partitions: list[OngoingPartitionReassignment] = since(0)


@message(key=46, versions=(0, 0), flexible=0)
class ListPartitionReassignmentsResponse:
    """What is on the move."""

    throttle_time_ms: int32 = since(0)
    error_code: int16 = since(0)
    error_message: string | None = since(0, null=0)
    topics: list[OngoingTopicReassignment] = since(0)
