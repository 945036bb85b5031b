"""DescribeProducers (61) v0: the idempotent producers of partitions (KIP-664)."""

from __future__ import annotations

from trilogue.wire.kafka.codec.schema import int16, int32, int64, message, since, string


@message()
class DescribeProducersTopic:
    """Partitions of a topic."""

    name: string = since(0)
    partition_indexes: list[int32] = since(0)


@message(key=61, versions=(0, 0), flexible=0)
class DescribeProducersRequest:
    """Describe the producers of these partitions."""

    topics: list[DescribeProducersTopic] = since(0)


@message()
class ProducerState:
    """A producer: its last sequence and timestamp, and the start of its open transaction."""

    producer_id: int64 = since(0)
    producer_epoch: int32 = since(0)
    last_sequence: int32 = since(0, default=-1)
    last_timestamp: int64 = since(0, default=-1)
    coordinator_epoch: int32 = since(0)
    current_txn_start_offset: int64 = since(0, default=-1)


@message()
class PartitionResponse:
    """The producers of a partition, or its error."""

    partition_index: int32 = since(0)
    error_code: int16 = since(0)
    error_message: string | None = since(0, null=0, default=None)
    active_producers: list[ProducerState] = since(0)


@message()
class TopicResponse:
    """Partitions of one topic."""

    name: string = since(0)
    partitions: list[PartitionResponse] = since(0)


@message(key=61, versions=(0, 0), flexible=0)
class DescribeProducersResponse:
    """Producers by topic."""

    throttle_time_ms: int32 = since(0)
    topics: list[TopicResponse] = since(0)
