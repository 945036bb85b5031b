"""ShareFetch (78) v1-v2: acquire records of a share group, and acknowledge others (KIP-932).

v2 acquire mode (KIP-1206), renew acknowledgements (KIP-1222).
"""

from __future__ import annotations

from trilogue.wire.kafka.codec.schema import (
    batches,
    boolean,
    int8,
    int16,
    int32,
    int64,
    message,
    since,
    string,
    uuid,
)
from trilogue.wire.kafka.leader import NodeEndpoint


@message()
class AcknowledgementBatch:
    """The types of acknowledgement of a range of offsets: one for all, or one for each."""

    first_offset: int64 = since(0)
    last_offset: int64 = since(0)
    acknowledge_types: list[int8] = since(0)


@message()
class ShareFetchPartition:
    """A partition to fetch, and what is acknowledged of it."""

    partition_index: int32 = since(0)
    acknowledgement_batches: list[AcknowledgementBatch] = since(0)


@message()
class ShareFetchTopic:
    """The partitions of one topic."""

    topic_id: uuid = since(0)
    partitions: list[ShareFetchPartition] = since(0)


@message()
class ShareForgottenTopic:
    """Partitions that leave the session."""

    topic_id: uuid = since(0)
    partitions: list[int32] = since(0)


@message(key=78, versions=(1, 2), flexible=0)
class ShareFetchRequest:
    """Acquire records within these limits."""

    group_id: string | None = since(0, null=0, default=None)
    member_id: string | None = since(0, null=0)
    share_session_epoch: int32 = since(0)
    max_wait_ms: int32 = since(0)
    min_bytes: int32 = since(0)
    max_bytes: int32 = since(0, default=0x7FFFFFFF)
    max_records: int32 = since(1)
    batch_size: int32 = since(1)
    share_acquire_mode: int8 = since(2)
    is_renew_ack: boolean = since(2)
    topics: list[ShareFetchTopic] = since(0)
    forgotten_topics_data: list[ShareForgottenTopic] = since(0)


@message()
class AcquiredRecords:
    """A range of offsets that the member has acquired."""

    first_offset: int64 = since(0)
    last_offset: int64 = since(0)
    delivery_count: int16 = since(0)


@message(frozen=True)
class SharePartitionLeader:
    """The leader of a partition and its epoch, where the client has another one."""

    leader_id: int32 = since(0)
    leader_epoch: int32 = since(0)


@message()
class SharePartitionData:
    """Record batches of one partition, and which of their records are acquired."""

    partition_index: int32 = since(0)
    error_code: int16 = since(0)
    error_message: string | None = since(0, null=0, default=None)
    acknowledge_error_code: int16 = since(0)
    acknowledge_error_message: string | None = since(0, null=0, default=None)
    current_leader: SharePartitionLeader = since(0)
    records: batches | None = since(0)
    acquired_records: list[AcquiredRecords] = since(0)


@message()
class ShareFetchableTopicResponse:
    """The partitions of one topic."""

    topic_id: uuid = since(0)
    partitions: list[SharePartitionData] = since(0)


@message(key=78, versions=(1, 2), flexible=0)
class ShareFetchResponse:
    """Acquired records by partition."""

    throttle_time_ms: int32 = since(0)
    error_code: int16 = since(0)
    error_message: string | None = since(0, null=0, default=None)
    acquisition_lock_timeout_ms: int32 = since(1)
    responses: list[ShareFetchableTopicResponse] = since(0)
    node_endpoints: list[NodeEndpoint] = since(0)
