"""DeleteRecords (21) v0-v2: advance the start offset of partitions.

v1 unchanged · v2 flexible.
"""

from __future__ import annotations

from trilogue.wire.kafka.codec.schema import int16, int32, int64, message, since, string


@message()
class DeleteRecordsPartition:
    """Delete records below this offset; -1 is the high watermark."""

    partition_index: int32 = since(0)
    offset: int64 = since(0)


@message()
class DeleteRecordsTopic:
    """The partitions of one topic."""

    name: string = since(0)
    partitions: list[DeleteRecordsPartition] = since(0)


@message(key=21, versions=(0, 2), flexible=2)
class DeleteRecordsRequest:
    """Delete records of these partitions."""

    topics: list[DeleteRecordsTopic] = since(0)
    timeout_ms: int32 = since(0)


@message()
class DeleteRecordsPartitionResult:
    """The new start offset; -1 with an error."""

    partition_index: int32 = since(0)
    low_watermark: int64 = since(0)
    error_code: int16 = since(0)


@message()
class DeleteRecordsTopicResult:
    """The partitions of one topic."""

    name: string = since(0)
    partitions: list[DeleteRecordsPartitionResult] = since(0)


@message(key=21, versions=(0, 2), flexible=2)
class DeleteRecordsResponse:
    """One result per partition."""

    throttle_time_ms: int32 = since(0)
    topics: list[DeleteRecordsTopicResult] = since(0)
