"""AlterReplicaLogDirs (34) v0-v2 and DescribeLogDirs (35) v0-v5: log directories (KIP-113).

Alter: v1 unchanged · v2 flexible. Describe: v1 unchanged · v2 flexible · v3 top-level error · v4
total and usable bytes · v5 cordoned directories.
"""

from __future__ import annotations

from trilogue.wire.kafka.codec.schema import boolean, int16, int32, int64, message, since, string


@message()
class AlterReplicaLogDirTopic:
    """Partitions of a topic."""

    name: string = since(0)
    partitions: list[int32] = since(0)


@message()
class AlterReplicaLogDir:
    """A log directory, and the replicas to move there."""

    path: string = since(0)
    topics: list[AlterReplicaLogDirTopic] = since(0)


@message(key=34, versions=(0, 2), flexible=2)
class AlterReplicaLogDirsRequest:
    """Move replicas between log directories of a broker."""

    dirs: list[AlterReplicaLogDir] = since(0)


@message()
class AlterReplicaLogDirPartitionResult:
    """The result of one partition."""

    partition_index: int32 = since(0)
    error_code: int16 = since(0)


@message()
class AlterReplicaLogDirTopicResult:
    """Results of one topic."""

    topic_name: string = since(0)
    partitions: list[AlterReplicaLogDirPartitionResult] = since(0)


@message(key=34, versions=(0, 2), flexible=2)
class AlterReplicaLogDirsResponse:
    """Results by topic."""

    throttle_time_ms: int32 = since(0)
    results: list[AlterReplicaLogDirTopicResult] = since(0)


@message()
class DescribableLogDirTopic:
    """Partitions of a topic."""

    topic: string = since(0)
    partitions: list[int32] = since(0)


@message(key=35, versions=(0, 5), flexible=2)
class DescribeLogDirsRequest:
    """Describe these partitions, or all."""

    topics: list[DescribableLogDirTopic] | None = since(0, null=0)


@message()
class DescribeLogDirsPartition:
    """A replica: its size in bytes, and its offset lag."""

    partition_index: int32 = since(0)
    partition_size: int64 = since(0)
    offset_lag: int64 = since(0)
    is_future_key: boolean = since(0)


@message()
class DescribeLogDirsTopic:
    """Replicas of one topic."""

    name: string = since(0)
    partitions: list[DescribeLogDirsPartition] = since(0)


@message()
class DescribeLogDirsResult:
    """A log directory: its replicas and its capacity."""

    error_code: int16 = since(0)
    log_dir: string = since(0)
    topics: list[DescribeLogDirsTopic] = since(0)
    total_bytes: int64 = since(4, default=-1)
    usable_bytes: int64 = since(4, default=-1)
    is_cordoned: boolean = since(5)


@message(key=35, versions=(0, 5), flexible=2)
class DescribeLogDirsResponse:
    """The log directories of the broker."""

    throttle_time_ms: int32 = since(0)
    error_code: int16 = since(3)
    results: list[DescribeLogDirsResult] = since(0)
