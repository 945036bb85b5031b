"""ListOffsets (2) v0-v11: the first and last offset of a partition, and offsets by timestamp.

v0 a list of offsets · v1 one offset and its timestamp · v2 isolation level, throttle time · v3, v5
unchanged · v4 leader epochs · v6 flexible · v7 timestamp -3 · v8 -4 · v9 -5 · v10 a timeout · v11
-6.
"""

from __future__ import annotations

from trilogue.wire.kafka.codec.schema import int8, int16, int32, int64, message, since, string


@message()
class ListOffsetsPartition:
    """The timestamp to look for; negative ones have special meanings."""

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
    """Get offsets by timestamp."""

    replica_id: int32 = since(0)
    isolation_level: int8 = since(2)
    topics: list[ListOffsetsTopic] = since(0)
    timeout_ms: int32 = since(10)


@message()
class ListOffsetsPartitionResponse:
    """The offset and its timestamp; -1 if there is none."""

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
