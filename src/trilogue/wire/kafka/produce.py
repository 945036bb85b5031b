"""Produce (0), v0-13: append record batches.

v0 and v1 carry message sets of magic 0, v2 magic 1, v3 and later record batches of magic 2 and
the transactional id.  v1 adds the throttle time, v2 the append time, v5 the log start, v7 allows
zstd, v8 adds errors of single records, v9 is flexible, v10 tells the new leader, v13 names topics
by id only.

A request names at most 25,000 topics and partitions, many more than go into a producer's mebibyte:
a server reads it where everybody waits.
"""

from __future__ import annotations

from trilogue.wire.kafka.schema import batches, int16, int32, int64, message, since, string, uuid


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
    """Append these batches; acks 0 wants no response at all."""

    transactional_id: string | None = since(3, null=3, default=None)
    acks: int16 = since(0)
    timeout_ms: int32 = since(0)
    topic_data: list[TopicProduceData] = since(0)


@message()
class BatchIndexAndErrorMessage:
    """A record that was refused, by its place in the batch."""

    batch_index: int32 = since(8)
    batch_index_error_message: string | None = since(8, null=8, default=None)


@message(frozen=True)
class LeaderIdAndEpoch:
    """Who leads the partition now; -1 when that is not known."""

    leader_id: int32 = since(10, default=-1)
    leader_epoch: int32 = since(10, default=-1)


@message()
class PartitionProduceResponse:
    """Where the batch now stands, or why it was refused."""

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


@message()
class NodeEndpoint:
    """The address of a leader named in this response."""

    node_id: int32 = since(10)
    host: string = since(10)
    port: int32 = since(10)
    rack: string | None = since(10, null=10, default=None)


@message(key=0, versions=(0, 13), flexible=9)
class ProduceResponse:
    """One outcome per partition."""

    responses: list[TopicProduceResponse] = since(0)
    throttle_time_ms: int32 = since(1)
    node_endpoints: list[NodeEndpoint] = since(10, tag=0)
