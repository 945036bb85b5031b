"""DescribeTopicPartitions (75), v0: Metadata in pages, with a cursor (KIP-966)."""

from __future__ import annotations

from trilogue.wire.kafka.codec.schema import boolean, int16, int32, message, since, string, uuid


@message()
class DescribeTopicPartitionsTopic:
    """A topic by name."""

    name: string = since(0)


@message(frozen=True)
class Cursor:
    """The first partition that did not fit into the previous page."""

    topic_name: string = since(0)
    partition_index: int32 = since(0)


@message(key=75, versions=(0, 0), flexible=0)
class DescribeTopicPartitionsRequest:
    """Describe these topics, or all, in pages of this many partitions."""

    topics: list[DescribeTopicPartitionsTopic] = since(0)
    response_partition_limit: int32 = since(0, default=2000)
    cursor: Cursor | None = since(0, null=0, default=None)


@message()
class DescribeTopicPartitionsResponsePartition:
    """A partition, its leader and its replicas."""

    error_code: int16 = since(0)
    partition_index: int32 = since(0)
    leader_id: int32 = since(0)
    leader_epoch: int32 = since(0, default=-1)
    replica_nodes: list[int32] = since(0)
    isr_nodes: list[int32] = since(0)
    eligible_leader_replicas: list[int32] | None = since(0, null=0, default=None)
    last_known_elr: list[int32] | None = since(0, null=0, default=None)
    offline_replicas: list[int32] = since(0)


@message()
class DescribeTopicPartitionsResponseTopic:
    """A topic and those of its partitions that are on this page."""

    error_code: int16 = since(0)
    name: string | None = since(0, null=0)
    topic_id: uuid = since(0)
    is_internal: boolean = since(0)
    partitions: list[DescribeTopicPartitionsResponsePartition] = since(0)
    topic_authorized_operations: int32 = since(0, default=-2147483648)


@message(key=75, versions=(0, 0), flexible=0)
class DescribeTopicPartitionsResponse:
    """One page, and the cursor of the next one."""

    throttle_time_ms: int32 = since(0)
    topics: list[DescribeTopicPartitionsResponseTopic] = since(0)
    next_cursor: Cursor | None = since(0, null=0, default=None)
