"""ConsumerGroupHeartbeat (68) v0-v1: membership of consumer groups (KIP-848).

v1 regular expressions (RE2), member ids made by clients (KIP-1082).
"""

from __future__ import annotations

from trilogue.wire.kafka.codec.schema import int16, int32, message, since, string, uuid


@message()
class HeartbeatTopicPartitions:
    """Partitions of a topic by its id."""

    topic_id: uuid = since(0)
    partitions: list[int32] = since(0)


@message(key=68, versions=(0, 1), flexible=0)
class ConsumerGroupHeartbeatRequest:
    """A heartbeat with the changed part of the member's subscription and owned partitions."""

    group_id: string = since(0)
    member_id: string = since(0)
    member_epoch: int32 = since(0)
    instance_id: string | None = since(0, null=0, default=None)
    rack_id: string | None = since(0, null=0, default=None)
    rebalance_timeout_ms: int32 = since(0, default=-1)
    subscribed_topic_names: list[string] | None = since(0, null=0, default=None)
    subscribed_topic_regex: string | None = since(1, null=1, default=None)
    server_assignor: string | None = since(0, null=0, default=None)
    topic_partitions: list[HeartbeatTopicPartitions] | None = since(0, null=0, default=None)


@message(frozen=True)
class HeartbeatAssignment:
    """The assignment of a member."""

    topic_partitions: list[HeartbeatTopicPartitions] = since(0)


@message(key=68, versions=(0, 1), flexible=0)
class ConsumerGroupHeartbeatResponse:
    """The member's epoch, the heartbeat interval and, if changed, its assignment."""

    throttle_time_ms: int32 = since(0)
    error_code: int16 = since(0)
    error_message: string | None = since(0, null=0, default=None)
    member_id: string | None = since(0, null=0, default=None)
    member_epoch: int32 = since(0)
    heartbeat_interval_ms: int32 = since(0)
    assignment: HeartbeatAssignment | None = since(0, null=0, default=None)
