"""AlterPartitionReassignments (45) v0-v1, ListPartitionReassignments (46) v0 (KIP-455).

Alter: v1 `allow_replication_factor_change` (KIP-860).
"""

from __future__ import annotations

from trilogue.wire.kafka.codec.schema import boolean, int16, int32, message, since, string


@message()
class ReassignablePartition:
    """The new replicas of a partition; null cancels a reassignment in progress."""

    partition_index: int32 = since(0)
    replicas: list[int32] | None = since(0, null=0, default=None)


@message()
class ReassignableTopic:
    """Partitions of one topic."""

    name: string = since(0)
    partitions: list[ReassignablePartition] = since(0)


@message(key=45, versions=(0, 1), flexible=0)
class AlterPartitionReassignmentsRequest:
    """Start or cancel reassignments."""

    timeout_ms: int32 = since(0, default=60000)
    allow_replication_factor_change: boolean = since(1, default=True)
    topics: list[ReassignableTopic] = since(0)


@message()
class ReassignablePartitionResponse:
    """The result of one partition."""

    partition_index: int32 = since(0)
    error_code: int16 = since(0)
    error_message: string | None = since(0, null=0)


@message()
class ReassignableTopicResponse:
    """Results of one topic."""

    name: string = since(0)
    partitions: list[ReassignablePartitionResponse] = since(0)


@message(key=45, versions=(0, 1), flexible=0)
class AlterPartitionReassignmentsResponse:
    """Results by topic."""

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
    """List reassignments of these partitions, or of all."""

    timeout_ms: int32 = since(0, default=60000)
    topics: list[ListPartitionReassignmentsTopics] | None = since(0, null=0, default=None)


@message()
class OngoingPartitionReassignment:
    """A reassignment in progress."""

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
    """The reassignments in progress."""

    throttle_time_ms: int32 = since(0)
    error_code: int16 = since(0)
    error_message: string | None = since(0, null=0)
    topics: list[OngoingTopicReassignment] = since(0)
