"""ListOffsets (2), v0-11: the offset at a time, the first and the last.

v0 answers a list of offsets, v1 one offset and its time.  v2 adds isolation and the throttle
time, v4 leader epochs, v6 is flexible, v7 (-3), v8 (-4), v9 (-5) and v11 (-6) give more negative
times a meaning, v10 adds a timeout.
"""

from __future__ import annotations

from trilogue.wire.kafka.schema import int8, int16, int32, int64, message, since, string


@message()
class ListOffsetsPartition:
    """The time to look for; negative times have meanings of their own."""

    partition_index: int32 = since(0)
    current_leader_epoch: int32 = since(4, default=-1)
    timestamp: int64 = since(0)
    max_num_offsets: int32 = since(0, until=0, default=1)


@message()
class ListOffsetsTopic:
    """The partitions of one topic."""

    name: string = since(0)
    partitions: list[ListOffsetsPartition] = since(0)


@message(key=2, versions=(0, 11), flexible=6)
class ListOffsetsRequest:
    """Asks at which offset a time begins."""

    replica_id: int32 = since(0)
    isolation_level: int8 = since(2)
    topics: list[ListOffsetsTopic] = since(0)
    timeout_ms: int32 = since(10)


@message()
class ListOffsetsPartitionResponse:
    """The offset found and its time; -1 when there is none."""

    partition_index: int32 = since(0)
    error_code: int16 = since(0)
    old_style_offsets: list[int64] = since(0, until=0)
    timestamp: int64 = since(1, default=-1)
    offset: int64 = since(1, default=-1)
    leader_epoch: int32 = since(4, default=-1)


@message()
class ListOffsetsTopicResponse:
    """The partitions of one topic."""

    name: string = since(0)
    partitions: list[ListOffsetsPartitionResponse] = since(0)


@message(key=2, versions=(0, 11), flexible=6)
class ListOffsetsResponse:
    """One offset per partition."""

    throttle_time_ms: int32 = since(2)
    topics: list[ListOffsetsTopicResponse] = since(0)
