"""AlterReplicaLogDirs (34), v0-2, and DescribeLogDirs (35), v0-5: where replicas lie, how large."""

from __future__ import annotations

from trilogue.wire.kafka.schema import boolean, int16, int32, int64, message, since, string


@message()
class AlterReplicaLogDirTopic:
    """Partitions of a topic."""

    name: string = since(0)
    partitions: list[int32] = since(0)


@message()
class AlterReplicaLogDir:
    """A folder, and what shall move there."""

    path: string = since(0)
    topics: list[AlterReplicaLogDirTopic] = since(0)


@message(key=34, versions=(0, 2), flexible=2)
class AlterReplicaLogDirsRequest:
    """Move replicas between folders of a broker."""

    dirs: list[AlterReplicaLogDir] = since(0)


@message()
class AlterReplicaLogDirPartitionResult:
    """The outcome for one partition."""

    partition_index: int32 = since(0)
    error_code: int16 = since(0)


@message()
class AlterReplicaLogDirTopicResult:
    """Outcomes of one topic."""

    topic_name: string = since(0)
    partitions: list[AlterReplicaLogDirPartitionResult] = since(0)


@message(key=34, versions=(0, 2), flexible=2)
class AlterReplicaLogDirsResponse:
    """Outcomes by topic."""

    throttle_time_ms: int32 = since(0)
    results: list[AlterReplicaLogDirTopicResult] = since(0)


@message()
class DescribableLogDirTopic:
    """Partitions of a topic."""

    topic: string = since(0)
    partitions: list[int32] = since(0)


@message(key=35, versions=(0, 5), flexible=2)
class DescribeLogDirsRequest:
    """Tell of these partitions, or of all."""

    topics: list[DescribableLogDirTopic] | None = since(0, null=0)


@message()
class DescribeLogDirsPartition:
    """A replica: its bytes, and how far it lags behind the leader."""

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
    """A folder: what lies there, how much it holds."""

    error_code: int16 = since(0)
    log_dir: string = since(0)
    topics: list[DescribeLogDirsTopic] = since(0)
    total_bytes: int64 = since(4, default=-1)
    usable_bytes: int64 = since(4, default=-1)
    is_cordoned: boolean = since(5)


@message(key=35, versions=(0, 5), flexible=2)
class DescribeLogDirsResponse:
    """The folders of this broker."""

    throttle_time_ms: int32 = since(0)
    error_code: int16 = since(3)
    results: list[DescribeLogDirsResult] = since(0)
