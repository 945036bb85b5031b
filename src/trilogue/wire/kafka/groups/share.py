"""ShareGroupHeartbeat (76) v1: membership of share groups (KIP-932)."""

from __future__ import annotations

from trilogue.wire.kafka.codec.schema import int16, int32, message, since, string, uuid


@message(key=76, versions=(1, 1), flexible=0)
class ShareGroupHeartbeatRequest:
    """A heartbeat with the part of the member's subscription that changed."""

    group_id: string = since(0)
    member_id: string = since(0)
    member_epoch: int32 = since(0)
    rack_id: string | None = since(0, null=0, default=None)
    subscribed_topic_names: list[string] | None = since(0, null=0, default=None)


@message()
class ShareHeartbeatTopicPartitions:
    """Partitions of a topic by its id."""

    topic_id: uuid = since(0)
    partitions: list[int32] = since(0)


@message(frozen=True)
class ShareHeartbeatAssignment:
    """The assignment of a member."""

    topic_partitions: list[ShareHeartbeatTopicPartitions] = since(0)


@message(key=76, versions=(1, 1), flexible=0)
class ShareGroupHeartbeatResponse:
    """The member's epoch, the heartbeat interval and, if changed, its assignment."""

    throttle_time_ms: int32 = since(0)
    error_code: int16 = since(0)
    error_message: string | None = since(0, null=0, default=None)
    member_id: string | None = since(0, null=0, default=None)
    member_epoch: int32 = since(0)
    heartbeat_interval_ms: int32 = since(0)
    assignment: ShareHeartbeatAssignment | None = since(0, null=0, default=None)
