"""FindCoordinator (10) v0-v6, JoinGroup (11) v0-v9, SyncGroup (14) v0-v5, and two more.

Heartbeat (12) v0-v4, LeaveGroup (13) v0-v5. FindCoordinator: v1 key type · v3 flexible · v4 many
keys. JoinGroup: v1 rebalance timeout · v2 throttle time · v4 new members join again with the id
they got · v5 static members · v6 flexible · v7 protocol type · v8 reason · v9 the leader may skip
the assignment. SyncGroup: v1 throttle time · v3 static members · v4 flexible · v5 the protocol is
checked. Heartbeat: v1 throttle time · v3 static members · v4 flexible. LeaveGroup: v1 throttle time
· v3 many members · v4 flexible · v5 reason.
"""

from __future__ import annotations

from trilogue.wire.kafka.codec.schema import (
    blob,
    boolean,
    int8,
    int16,
    int32,
    message,
    since,
    string,
)


@message(key=10, versions=(0, 6), flexible=3)
class FindCoordinatorRequest:
    """Find the coordinator of groups or transactions."""

    key: string = since(0, until=3)
    key_type: int8 = since(1)
    coordinator_keys: list[string] = since(4)


@message()
class Coordinator:
    """The broker for one key."""

    key: string = since(4)
    node_id: int32 = since(4)
    host: string = since(4)
    port: int32 = since(4)
    error_code: int16 = since(4)
    error_message: string | None = since(4, null=4)


@message(key=10, versions=(0, 6), flexible=3)
class FindCoordinatorResponse:
    """The address of the coordinator: one broker up to v3, one for each key from v4."""

    throttle_time_ms: int32 = since(1)
    error_code: int16 = since(0, until=3)
    error_message: string | None = since(1, until=3, null=1)
    node_id: int32 = since(0, until=3)
    host: string = since(0, until=3)
    port: int32 = since(0, until=3)
    coordinators: list[Coordinator] = since(4)


@message()
class JoinGroupRequestProtocol:
    """An assignment strategy and the member's subscription for it."""

    name: string = since(0)
    metadata: blob = since(0)


@message(key=11, versions=(0, 9), flexible=6)
class JoinGroupRequest:
    """Join the group, or stay for another generation."""

    group_id: string = since(0)
    session_timeout_ms: int32 = since(0)
    rebalance_timeout_ms: int32 = since(1, default=-1)
    member_id: string = since(0)
    group_instance_id: string | None = since(5, null=5, default=None)
    protocol_type: string = since(0)
    protocols: list[JoinGroupRequestProtocol] = since(0)
    reason: string | None = since(8, null=8, default=None)


@message()
class JoinGroupResponseMember:
    """A member, for the leader."""

    member_id: string = since(0)
    group_instance_id: string | None = since(5, null=5, default=None)
    metadata: blob = since(0)


@message(key=11, versions=(0, 9), flexible=6)
class JoinGroupResponse:
    """The new generation; the member list goes to the leader only."""

    throttle_time_ms: int32 = since(2)
    error_code: int16 = since(0)
    generation_id: int32 = since(0, default=-1)
    protocol_type: string | None = since(7, null=7, default=None)
    protocol_name: string | None = since(0, null=7)
    leader: string = since(0)
    skip_assignment: boolean = since(9)
    member_id: string = since(0)
    members: list[JoinGroupResponseMember] = since(0)


@message()
class SyncGroupRequestAssignment:
    """The assignment of one member."""

    member_id: string = since(0)
    assignment: blob = since(0)


@message(key=14, versions=(0, 5), flexible=4)
class SyncGroupRequest:
    """Send (leader) or wait for (others) the assignment of this generation."""

    group_id: string = since(0)
    generation_id: int32 = since(0)
    member_id: string = since(0)
    group_instance_id: string | None = since(3, null=3, default=None)
    protocol_type: string | None = since(5, null=5, default=None)
    protocol_name: string | None = since(5, null=5, default=None)
    assignments: list[SyncGroupRequestAssignment] = since(0)


@message(key=14, versions=(0, 5), flexible=4)
class SyncGroupResponse:
    """The assignment of this member."""

    throttle_time_ms: int32 = since(1)
    error_code: int16 = since(0)
    protocol_type: string | None = since(5, null=5, default=None)
    protocol_name: string | None = since(5, null=5, default=None)
    assignment: blob = since(0)


@message(key=12, versions=(0, 4), flexible=4)
class HeartbeatRequest:
    """Keep the member alive."""

    group_id: string = since(0)
    generation_id: int32 = since(0)
    member_id: string = since(0)
    group_instance_id: string | None = since(3, null=3, default=None)


@message(key=12, versions=(0, 4), flexible=4)
class HeartbeatResponse:
    """The result: an error if the member has to rejoin."""

    throttle_time_ms: int32 = since(1)
    error_code: int16 = since(0)


@message()
class MemberIdentity:
    """A leaving member, by its id or its instance id."""

    member_id: string = since(3)
    group_instance_id: string | None = since(3, null=3, default=None)
    reason: string | None = since(5, null=5, default=None)


@message(key=13, versions=(0, 5), flexible=4)
class LeaveGroupRequest:
    """Remove these members: one up to v2, many from v3."""

    group_id: string = since(0)
    member_id: string = since(0, until=2)
    members: list[MemberIdentity] = since(3)


@message()
class MemberResponse:
    """The result of one member."""

    member_id: string = since(3)
    group_instance_id: string | None = since(3, null=3)
    error_code: int16 = since(3)


@message(key=13, versions=(0, 5), flexible=4)
class LeaveGroupResponse:
    """The outcome, for each member from v3."""

    throttle_time_ms: int32 = since(1)
    error_code: int16 = since(0)
    members: list[MemberResponse] = since(3)
