"""OffsetForLeaderEpoch (23), v0-4: where an epoch of a partition's leader ended.

v1 answers which epoch it is about, v2 adds the epoch that the client knows and the throttle time,
v3 the replica id (-1 a consumer, -2 who does not say), v4 is flexible.
"""

from __future__ import annotations

from trilogue.wire.kafka.schema import int16, int32, int64, message, since, string


@message()
class OffsetForLeaderPartition:
    """The epoch asked for, and the one that the client believes to be the leader's."""

    partition: int32 = since(0)
    current_leader_epoch: int32 = since(2, default=-1)
    leader_epoch: int32 = since(0)


@message()
class OffsetForLeaderTopic:
    """The partitions of one topic."""

    topic: string = since(0)
    partitions: list[OffsetForLeaderPartition] = since(0)


@message(key=23, versions=(0, 4), flexible=4)
class OffsetForLeaderEpochRequest:
    """Ask for the ends of epochs."""

    replica_id: int32 = since(3, default=-2)
    topics: list[OffsetForLeaderTopic] = since(0)


@message()
class EpochEndOffset:
    """The largest epoch up to the one asked for, and the offset behind its last message."""

    error_code: int16 = since(0)
    partition: int32 = since(0)
    leader_epoch: int32 = since(1, default=-1)
    end_offset: int64 = since(0, default=-1)


@message()
class OffsetForLeaderTopicResult:
    """The partitions of one topic."""

    topic: string = since(0)
    partitions: list[EpochEndOffset] = since(0)


@message(key=23, versions=(0, 4), flexible=4)
class OffsetForLeaderEpochResponse:
    """One outcome per partition."""

    throttle_time_ms: int32 = since(2)
    topics: list[OffsetForLeaderTopicResult] = since(0)
