"""DeleteRecords (21), v0-2. v1 is the same, v2 is flexible."""

from __future__ import annotations

from trilogue.wire.kafka.schema import int16, int32, int64, message, since, string


@message()
class DeleteRecordsPartition:
    """Delete what is before this offset; -1 is everything up to the high watermark."""

    partition_index: int32 = since(0)
    offset: int64 = since(0)


@message()
class DeleteRecordsTopic:
    """The partitions of one topic."""

    name: string = since(0)
    partitions: list[DeleteRecordsPartition] = since(0)


@message(key=21, versions=(0, 2), flexible=2)
class DeleteRecordsRequest:
    """Let these partitions start later."""

    topics: list[DeleteRecordsTopic] = since(0)
    timeout_ms: int32 = since(0)


@message()
class DeleteRecordsPartitionResult:
    """The first offset that is left; -1 with an error."""

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
    """One outcome per partition."""

    throttle_time_ms: int32 = since(0)
    topics: list[DeleteRecordsTopicResult] = since(0)
