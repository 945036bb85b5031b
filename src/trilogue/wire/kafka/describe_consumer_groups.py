"""ConsumerGroupDescribe (69), v0-1: state, members and targets of KIP-848 groups.

v1 adds the kind of a member.
"""

from __future__ import annotations

from trilogue.wire.kafka.schema import boolean, int8, int16, int32, message, since, string, uuid


@message(key=69, versions=(0, 1), flexible=0)
class ConsumerGroupDescribeRequest:
    """Tell of these groups."""

    group_ids: list[string] = since(0)
    include_authorized_operations: boolean = since(0)


@message()
class TopicPartitions:
    """Partitions of a topic."""

    topic_id: uuid = since(0)
    topic_name: string = since(0)
    partitions: list[int32] = since(0)


@message(frozen=True)
class Assignment:
    """What a member has, or shall have."""

    topic_partitions: list[TopicPartitions] = since(0)


@message()
class Member:
    """A member, what it wants, has and shall have."""

    member_id: string = since(0)
    instance_id: string | None = since(0, null=0, default=None)
    rack_id: string | None = since(0, null=0, default=None)
    member_epoch: int32 = since(0)
    client_id: string = since(0)
    client_host: string = since(0)
    subscribed_topic_names: list[string] = since(0)
    subscribed_topic_regex: string | None = since(0, null=0, default=None)
    assignment: Assignment = since(0)
    target_assignment: Assignment = since(0)
    member_type: int8 = since(1, default=-1)


@message()
class DescribedGroup:
    """A group, or why it is not told of."""

    error_code: int16 = since(0)
    error_message: string | None = since(0, null=0, default=None)
    group_id: string = since(0)
    group_state: string = since(0)
    group_epoch: int32 = since(0)
    assignment_epoch: int32 = since(0)
    assignor_name: string = since(0)
    members: list[Member] = since(0)
    authorized_operations: int32 = since(0, default=-2147483648)


@message(key=69, versions=(0, 1), flexible=0)
class ConsumerGroupDescribeResponse:
    """One answer per group."""

    throttle_time_ms: int32 = since(0)
    groups: list[DescribedGroup] = since(0)
