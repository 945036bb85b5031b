"""OffsetForLeaderEpoch (23) v0-v4: the end offset of a leader epoch.

v1 the epoch in the response · v2 current leader epoch, throttle time · v3 replica id (-1 a
consumer, -2 unknown) · v4 flexible.
"""

from __future__ import annotations

from trilogue.wire.kafka.codec.schema import int16, int32, int64, message, since, string


@message()
class OffsetForLeaderPartition:
    """The requested epoch, and the current leader epoch as the client knows it."""

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
    """Get the end offsets of epochs."""

    replica_id: int32 = since(3, default=-2)
    topics: list[OffsetForLeaderTopic] = since(0)


@message()
class EpochEndOffset:
    """The largest epoch up to the requested one, and its end offset."""

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
    """One result per partition."""

    throttle_time_ms: int32 = since(2)
    topics: list[OffsetForLeaderTopicResult] = since(0)
