"""ConsumerGroupDescribe (69) v0-v1: state, members and targets of consumer groups (KIP-848).

v1 member type.
"""

from __future__ import annotations

from trilogue.wire.kafka.codec.schema import (
    boolean,
    int8,
    int16,
    int32,
    message,
    since,
    string,
    uuid,
)


@message(key=69, versions=(0, 1), flexible=0)
class ConsumerGroupDescribeRequest:
    """Describe these groups."""

    group_ids: list[string] = since(0)
    include_authorized_operations: boolean = since(0)


@message()
class DescribedTopicPartitions:
    """Partitions of a topic."""

    topic_id: uuid = since(0)
    topic_name: string = since(0)
    partitions: list[int32] = since(0)


@message(frozen=True)
class DescribedAssignment:
    """The current or the target assignment of a member."""

    topic_partitions: list[DescribedTopicPartitions] = since(0)


@message()
class DescribedConsumerGroupMember:
    """A member, its subscription, its current and its target assignment."""

    member_id: string = since(0)
    instance_id: string | None = since(0, null=0, default=None)
    rack_id: string | None = since(0, null=0, default=None)
    member_epoch: int32 = since(0)
    client_id: string = since(0)
    client_host: string = since(0)
    subscribed_topic_names: list[string] = since(0)
    subscribed_topic_regex: string | None = since(0, null=0, default=None)
    assignment: DescribedAssignment = since(0)
    target_assignment: DescribedAssignment = since(0)
    member_type: int8 = since(1, default=-1)


@message()
class DescribedConsumerGroup:
    """A group, or its error."""

    error_code: int16 = since(0)
    error_message: string | None = since(0, null=0, default=None)
    group_id: string = since(0)
    group_state: string = since(0)
    group_epoch: int32 = since(0)
    assignment_epoch: int32 = since(0)
    assignor_name: string = since(0)
    members: list[DescribedConsumerGroupMember] = since(0)
    authorized_operations: int32 = since(0, default=-2147483648)


@message(key=69, versions=(0, 1), flexible=0)
class ConsumerGroupDescribeResponse:
    """One result per group."""

    throttle_time_ms: int32 = since(0)
    groups: list[DescribedConsumerGroup] = since(0)
