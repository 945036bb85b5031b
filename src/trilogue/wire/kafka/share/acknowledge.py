"""ShareAcknowledge (79) v1-v2: acknowledge acquired records of a share group (KIP-932).

v2 renew acknowledgements (KIP-1222).
"""

from __future__ import annotations

from trilogue.wire.kafka.codec.schema import boolean, int16, int32, message, since, string, uuid
from trilogue.wire.kafka.leader import NodeEndpoint
from trilogue.wire.kafka.share.fetch import AcknowledgementBatch, SharePartitionLeader


@message()
class AcknowledgePartition:
    """What is acknowledged of a partition."""

    partition_index: int32 = since(0)
    acknowledgement_batches: list[AcknowledgementBatch] = since(0)


@message()
class AcknowledgeTopic:
    """The partitions of one topic."""

    topic_id: uuid = since(0)
    partitions: list[AcknowledgePartition] = since(0)


@message(key=79, versions=(1, 2), flexible=0)
class ShareAcknowledgeRequest:
    """Acknowledge these records."""

    group_id: string | None = since(0, null=0, default=None)
    member_id: string | None = since(0, null=0)
    share_session_epoch: int32 = since(0)
    is_renew_ack: boolean = since(2)
    topics: list[AcknowledgeTopic] = since(0)


@message()
class AcknowledgePartitionData:
    """The result of one partition."""

    partition_index: int32 = since(0)
    error_code: int16 = since(0)
    error_message: string | None = since(0, null=0, default=None)
    current_leader: SharePartitionLeader = since(0)


@message()
class ShareAcknowledgeTopicResponse:
    """The partitions of one topic."""

    topic_id: uuid = since(0)
    partitions: list[AcknowledgePartitionData] = since(0)


@message(key=79, versions=(1, 2), flexible=0)
class ShareAcknowledgeResponse:
    """One result per partition."""

    throttle_time_ms: int32 = since(0)
    error_code: int16 = since(0)
    error_message: string | None = since(0, null=0, default=None)
    acquisition_lock_timeout_ms: int32 = since(2)
    responses: list[ShareAcknowledgeTopicResponse] = since(0)
    node_endpoints: list[NodeEndpoint] = since(0)
