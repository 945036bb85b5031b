"""DescribeGroups (15) v0-v6: state and members of classic groups.

v1 throttle time · v2 unchanged · v3 authorized operations · v4 static members · v5 flexible · v6
error message.
"""

from __future__ import annotations

from trilogue.wire.kafka.codec.schema import blob, boolean, int16, int32, message, since, string


@message(key=15, versions=(0, 6), flexible=5)
class DescribeGroupsRequest:
    """Describe these groups."""

    groups: list[string] = since(0)
    include_authorized_operations: boolean = since(3)


@message()
class DescribedGroupMember:
    """A member: its identity, its metadata, its assignment."""

    member_id: string = since(0)
    group_instance_id: string | None = since(4, null=4, default=None)
    client_id: string = since(0)
    client_host: string = since(0)
    member_metadata: blob = since(0)
    member_assignment: blob = since(0)


@message()
class DescribedGroup:
    """A group, or its error."""

    error_code: int16 = since(0)
    error_message: string | None = since(6, null=6, default=None)
    group_id: string = since(0)
    group_state: string = since(0)
    protocol_type: string = since(0)
    protocol_data: string = since(0)
    members: list[DescribedGroupMember] = since(0)
    authorized_operations: int32 = since(3, default=-2147483648)


@message(key=15, versions=(0, 6), flexible=5)
class DescribeGroupsResponse:
    """One result per group."""

    throttle_time_ms: int32 = since(1)
    groups: list[DescribedGroup] = since(0)
