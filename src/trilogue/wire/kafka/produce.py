"""Produce (0) v0-v13: append record batches.

v0, v1 message sets of magic 0 · v2 magic 1 · v3+ record batches of magic 2, transactional id. v1
throttle time · v2 append time · v5 log start offset · v7 zstd · v8 errors of single records · v9
flexible · v10 new leader · v11, v12 for transactions · v13 topic ids instead of names.

A request has at most 25,000 topics and partitions, far more than fit into a producer's default
request: the server decodes it on its event loop.
"""

from __future__ import annotations

from trilogue.wire.kafka.codec.schema import (
    batches,
    int16,
    int32,
    int64,
    message,
    since,
    string,
    uuid,
)
from trilogue.wire.kafka.leader import LeaderIdAndEpoch, NodeEndpoint


@message()
class PartitionProduceData:
    """The record batch for one partition."""

    index: int32 = since(0)
    records: batches | None = since(0, null=0)


@message()
class TopicProduceData:
    """The partitions of one topic."""

    name: string = since(0, until=12)
    topic_id: uuid = since(13)
    partition_data: list[PartitionProduceData] = since(0)


@message(key=0, versions=(0, 13), flexible=9)
class ProduceRequest:
    """Append these batches; acks 0 means no response."""

    transactional_id: string | None = since(3, null=3, default=None)
    acks: int16 = since(0)
    timeout_ms: int32 = since(0)
    topic_data: list[TopicProduceData] = since(0)


@message()
class BatchIndexAndErrorMessage:
    """A refused record, by its index in the batch."""

    batch_index: int32 = since(8)
    batch_index_error_message: string | None = since(8, null=8, default=None)


@message()
class PartitionProduceResponse:
    """The base offset of the batch, or its error."""

    index: int32 = since(0)
    error_code: int16 = since(0)
    base_offset: int64 = since(0)
    log_append_time_ms: int64 = since(2, default=-1)
    log_start_offset: int64 = since(5, default=-1)
    record_errors: list[BatchIndexAndErrorMessage] = since(8)
    error_message: string | None = since(8, null=8, default=None)
    current_leader: LeaderIdAndEpoch = since(10, tag=0)


@message()
class TopicProduceResponse:
    """The partitions of one topic."""

    name: string = since(0, until=12)
    topic_id: uuid = since(13)
    partition_responses: list[PartitionProduceResponse] = since(0)


@message(key=0, versions=(0, 13), flexible=9)
class ProduceResponse:
    """One result per partition."""

    responses: list[TopicProduceResponse] = since(0)
    throttle_time_ms: int32 = since(1)
    node_endpoints: list[NodeEndpoint] = since(10, tag=0)
