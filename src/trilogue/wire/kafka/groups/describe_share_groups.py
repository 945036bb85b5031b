"""ShareGroupDescribe (77) v1: state and members of share groups (KIP-932)."""

from __future__ import annotations

from trilogue.wire.kafka.codec.schema import boolean, int16, int32, message, since, string, uuid


@message(key=77, versions=(1, 1), flexible=0)
class ShareGroupDescribeRequest:
    """Describe these groups."""

    group_ids: list[string] = since(0)
    include_authorized_operations: boolean = since(0)


@message()
class DescribedShareTopicPartitions:
    """Partitions of a topic."""

    topic_id: uuid = since(0)
    topic_name: string = since(0)
    partitions: list[int32] = since(0)


@message(frozen=True)
class DescribedShareAssignment:
    """The assignment of a member."""

    topic_partitions: list[DescribedShareTopicPartitions] = since(0)


@message()
class DescribedShareGroupMember:
    """A member, its subscription and its assignment."""

    member_id: string = since(0)
    rack_id: string | None = since(0, null=0, default=None)
    member_epoch: int32 = since(0)
    client_id: string = since(0)
    client_host: string = since(0)
    subscribed_topic_names: list[string] = since(0)
    assignment: DescribedShareAssignment = since(0)


@message()
class DescribedShareGroup:
    """A group, or its error."""

    error_code: int16 = since(0)
    error_message: string | None = since(0, null=0, default=None)
    group_id: string = since(0)
    group_state: string = since(0)
    group_epoch: int32 = since(0)
    assignment_epoch: int32 = since(0)
    assignor_name: string = since(0)
    members: list[DescribedShareGroupMember] = since(0)
    authorized_operations: int32 = since(0, default=-2147483648)


@message(key=77, versions=(1, 1), flexible=0)
class ShareGroupDescribeResponse:
    """One result per group."""

    throttle_time_ms: int32 = since(0)
    groups: list[DescribedShareGroup] = since(0)
