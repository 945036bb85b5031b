"""ConsumerGroupHeartbeat (68), v0-1: membership of KIP-848, where the broker assigns.

v1 adds regular expressions (RE2).
"""

from __future__ import annotations

from trilogue.wire.kafka.schema import int16, int32, message, since, string, uuid


@message()
class TopicPartitions:
    """Partitions of a topic by its id."""

    topic_id: uuid = since(0)
    partitions: list[int32] = since(0)


@message(key=68, versions=(0, 1), flexible=0)
class ConsumerGroupHeartbeatRequest:
    """A member's life and, where it changed, what it wants and has."""

    group_id: string = since(0)
    member_id: string = since(0)
    member_epoch: int32 = since(0)
    instance_id: string | None = since(0, null=0, default=None)
    rack_id: string | None = since(0, null=0, default=None)
    rebalance_timeout_ms: int32 = since(0, default=-1)
    subscribed_topic_names: list[string] | None = since(0, null=0, default=None)
    subscribed_topic_regex: string | None = since(1, null=1, default=None)
    server_assignor: string | None = since(0, null=0, default=None)
    topic_partitions: list[TopicPartitions] | None = since(0, null=0, default=None)


@message(frozen=True)
class Assignment:
    """What a member shall have."""

    topic_partitions: list[TopicPartitions] = since(0)


@message(key=68, versions=(0, 1), flexible=0)
class ConsumerGroupHeartbeatResponse:
    """The member's epoch, when to come again and, where it changed, its partitions."""

    throttle_time_ms: int32 = since(0)
    error_code: int16 = since(0)
    error_message: string | None = since(0, null=0, default=None)
    member_id: string | None = since(0, null=0, default=None)
    member_epoch: int32 = since(0)
    heartbeat_interval_ms: int32 = since(0)
    assignment: Assignment | None = since(0, null=0, default=None)
