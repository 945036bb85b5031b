"""TxnOffsetCommit (28) v0-v5: positions that are committed with a transaction.

v1 unchanged · v2 leader epochs · v3 flexible; the member of the group, which must be current · v4
an abortable error · v5 adds the group to the transaction (KIP-890).
"""

from __future__ import annotations

from trilogue.wire.kafka.codec.schema import int16, int32, int64, message, since, string


@message()
class TxnOffsetCommitRequestPartition:
    """The position of one partition."""

    partition_index: int32 = since(0)
    committed_offset: int64 = since(0)
    committed_leader_epoch: int32 = since(2, default=-1)
    committed_metadata: string | None = since(0, null=0)


@message()
class TxnOffsetCommitRequestTopic:
    """The positions of a topic."""

    name: string = since(0)
    partitions: list[TxnOffsetCommitRequestPartition] = since(0)


@message(key=28, versions=(0, 5), flexible=3)
class TxnOffsetCommitRequest:
    """Keep positions until the transaction ends."""

    transactional_id: string = since(0)
    group_id: string = since(0)
    producer_id: int64 = since(0)
    producer_epoch: int16 = since(0)
    generation_id: int32 = since(3, default=-1)
    member_id: string = since(3)
    group_instance_id: string | None = since(3, null=3, default=None)
    topics: list[TxnOffsetCommitRequestTopic] = since(0)


@message()
class TxnOffsetCommitResponsePartition:
    """The result of one partition."""

    partition_index: int32 = since(0)
    error_code: int16 = since(0)


@message()
class TxnOffsetCommitResponseTopic:
    """The results of a topic."""

    name: string = since(0)
    partitions: list[TxnOffsetCommitResponsePartition] = since(0)


@message(key=28, versions=(0, 5), flexible=3)
class TxnOffsetCommitResponse:
    """The results."""

    throttle_time_ms: int32 = since(0)
    topics: list[TxnOffsetCommitResponseTopic] = since(0)
