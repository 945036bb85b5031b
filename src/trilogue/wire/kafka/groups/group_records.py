"""Records of consumer, share and streams groups in `__consumer_offsets`, as Kafka 4.3 writes them.

    key     i16 kind | group | of a record of a member: member id
    value   i16 version 0 | the message, in the flexible form; without a value the key is gone

Texts of a key have a length of i16. The definitions are those of Kafka's module group-coordinator;
kinds 0 to 2 are in `wire/kafka/internal_topics.py`. Kafka 4.3 reads the kinds 4, 9 and 18 of older
brokers and writes none.
"""

from __future__ import annotations

from enum import IntEnum, unique
from typing import Any, Final, TypeVar

from trilogue.wire.errors import WireError
from trilogue.wire.kafka.codec.compile import decoder, encoder
from trilogue.wire.kafka.codec.schema import (
    Bytes,
    blob,
    int8,
    int32,
    int64,
    message,
    since,
    string,
    uuid,
)
from trilogue.wire.kafka.groups.streams import (
    StreamsEndpoint,
    StreamsKeyValue,
    StreamsSubtopology,
    StreamsTaskIds,
)
from trilogue.wire.kafka.internal_topics import encode_key

VALUE_VERSION: Final = 0
M = TypeVar("M")


@unique
class GroupRecordKind(IntEnum):
    """The first number of a key."""

    CONSUMER_GROUP = 3
    CONSUMER_MEMBER = 5
    CONSUMER_TARGET_EPOCH = 6
    CONSUMER_TARGET = 7
    CONSUMER_CURRENT = 8
    SHARE_MEMBER = 10
    SHARE_GROUP = 11
    SHARE_TARGET_EPOCH = 12
    SHARE_TARGET = 13
    SHARE_CURRENT = 14
    SHARE_PARTITIONS = 15
    CONSUMER_PATTERN = 16
    STREAMS_GROUP = 17
    STREAMS_MEMBER = 19
    STREAMS_TARGET_EPOCH = 20
    STREAMS_TARGET = 21
    STREAMS_CURRENT = 22
    STREAMS_TOPOLOGY = 23


@message(versions=(0, 0), flexible=0)
class ConsumerGroupMetadataValue:
    """The epoch of a consumer group."""

    epoch: int32 = since(0)
    metadata_hash: int64 = since(0, tag=0)


@message()
class ClassicProtocol:
    """A protocol that a classic member supports."""

    name: string = since(0)
    metadata: blob = since(0)


@message(frozen=True)
class StoredClassicMember:
    """The JoinGroup fields of a member that speaks the classic protocol."""

    session_timeout_ms: int32 = since(0)
    supported_protocols: list[ClassicProtocol] = since(0)


@message(versions=(0, 0), flexible=0)
class ConsumerGroupMemberMetadataValue:
    """A member of a consumer group, and what it wants."""

    instance_id: string | None = since(0, null=0)
    rack_id: string | None = since(0, null=0)
    client_id: string = since(0)
    client_host: string = since(0)
    subscribed_topic_names: list[string] = since(0)
    subscribed_topic_regex: string | None = since(0, null=0)
    rebalance_timeout_ms: int32 = since(0, default=-1)
    server_assignor: string | None = since(0, null=0)
    classic_member_metadata: StoredClassicMember | None = since(0, null=0, tag=0)


@message()
class StoredTopicPartitions:
    """Partitions of a topic."""

    topic_id: uuid = since(0)
    partitions: list[int32] = since(0)


@message()
class OwnedTopicPartitions:
    """Partitions of a topic, and the epoch at which the member got each."""

    topic_id: uuid = since(0)
    partitions: list[int32] = since(0)
    assignment_epochs: list[int32] | None = since(0, null=0, tag=0)


@message(versions=(0, 0), flexible=0)
class ConsumerGroupTargetAssignmentMetadataValue:
    """The epoch of a target."""

    assignment_epoch: int32 = since(0)
    assignment_timestamp: int64 = since(0, tag=0)


@message(versions=(0, 0), flexible=0)
class ConsumerGroupTargetAssignmentMemberValue:
    """The target of a member."""

    topic_partitions: list[StoredTopicPartitions] = since(0)


@message(versions=(0, 0), flexible=0)
class ConsumerGroupCurrentMemberAssignmentValue:
    """Where a member is: its epochs, what it has, and what it has to give up."""

    member_epoch: int32 = since(0)
    previous_member_epoch: int32 = since(0)
    state: int8 = since(0)
    assigned_partitions: list[OwnedTopicPartitions] = since(0)
    partitions_pending_revocation: list[OwnedTopicPartitions] = since(0)


@message(versions=(0, 0), flexible=0)
class ConsumerGroupRegularExpressionValue:
    """The topics that a pattern of a consumer group matches."""

    topics: list[string] = since(0)
    version: int64 = since(0)
    timestamp: int64 = since(0)


@message(versions=(0, 0), flexible=0)
class ShareGroupMetadataValue:
    """The epoch of a share group."""

    epoch: int32 = since(0)
    metadata_hash: int64 = since(0)


@message(versions=(0, 0), flexible=0)
class ShareGroupMemberMetadataValue:
    """A member of a share group, and what it wants."""

    rack_id: string | None = since(0, null=0)
    client_id: string = since(0)
    client_host: string = since(0)
    subscribed_topic_names: list[string] = since(0)


@message(versions=(0, 0), flexible=0)
class ShareGroupTargetAssignmentMetadataValue:
    """The epoch of a target."""

    assignment_epoch: int32 = since(0)
    assignment_timestamp: int64 = since(0, tag=0)


@message(versions=(0, 0), flexible=0)
class ShareGroupTargetAssignmentMemberValue:
    """The target of a member."""

    topic_partitions: list[StoredTopicPartitions] = since(0)


@message(versions=(0, 0), flexible=0)
class ShareGroupCurrentMemberAssignmentValue:
    """Where a member is."""

    member_epoch: int32 = since(0)
    previous_member_epoch: int32 = since(0)
    state: int8 = since(0)
    assigned_partitions: list[StoredTopicPartitions] = since(0)


@message()
class SharedTopicPartitions:
    """Partitions of a topic that have a share state."""

    topic_id: uuid = since(0)
    topic_name: string = since(0)
    partitions: list[int32] = since(0)


@message()
class SharedTopic:
    """A topic whose share states are being deleted."""

    topic_id: uuid = since(0)
    topic_name: string = since(0)


@message(versions=(0, 0), flexible=0)
class ShareGroupStatePartitionMetadataValue:
    """The partitions that a share group has positions of."""

    initializing_topics: list[SharedTopicPartitions] = since(0)
    initialized_topics: list[SharedTopicPartitions] = since(0)
    deleting_topics: list[SharedTopic] = since(0)


@message()
class LastAssignmentConfig:
    """A setting that the assignor used."""

    key: string = since(0)
    value: string = since(0)


@message(versions=(0, 0), flexible=0)
class StreamsGroupMetadataValue:
    """The epoch of a streams group."""

    epoch: int32 = since(0)
    metadata_hash: int64 = since(0)
    validated_topology_epoch: int32 = since(0, tag=0, default=-1)
    last_assignment_configs: list[LastAssignmentConfig] | None = since(0, null=0, tag=1)


@message(versions=(0, 0), flexible=0)
class StreamsGroupMemberMetadataValue:
    """A member of a streams group."""

    instance_id: string | None = since(0, null=0)
    rack_id: string | None = since(0, null=0)
    client_id: string = since(0)
    client_host: string = since(0)
    rebalance_timeout_ms: int32 = since(0, default=-1)
    topology_epoch: int32 = since(0)
    process_id: string = since(0)
    user_endpoint: StreamsEndpoint | None = since(0, null=0, default=None)
    client_tags: list[StreamsKeyValue] = since(0)


@message(versions=(0, 0), flexible=0)
class StreamsGroupTargetAssignmentMetadataValue:
    """The epoch of a target."""

    assignment_epoch: int32 = since(0)
    assignment_timestamp: int64 = since(0, tag=0)


@message(versions=(0, 0), flexible=0)
class StreamsGroupTargetAssignmentMemberValue:
    """The target of a member."""

    active_tasks: list[StreamsTaskIds] = since(0)
    standby_tasks: list[StreamsTaskIds] = since(0)
    warmup_tasks: list[StreamsTaskIds] = since(0)


@message()
class OwnedTaskIds:
    """Tasks of a subtopology, and the epoch at which the member got each."""

    subtopology_id: string = since(0)
    partitions: list[int32] = since(0)
    assignment_epochs: list[int32] | None = since(0, null=0, tag=0)


@message(versions=(0, 0), flexible=0)
class StreamsGroupCurrentMemberAssignmentValue:
    """Where a member is: its epochs, the tasks that it has, and those that it has to give up."""

    member_epoch: int32 = since(0)
    previous_member_epoch: int32 = since(0)
    state: int8 = since(0)
    active_tasks: list[OwnedTaskIds] = since(0)
    standby_tasks: list[OwnedTaskIds] = since(0)
    warmup_tasks: list[OwnedTaskIds] = since(0)
    active_tasks_pending_revocation: list[OwnedTaskIds] = since(0)
    standby_tasks_pending_revocation: list[OwnedTaskIds] = since(0)
    warmup_tasks_pending_revocation: list[OwnedTaskIds] = since(0)


@message(versions=(0, 0), flexible=0)
class StreamsGroupTopologyValue:
    """The topology of a streams group."""

    epoch: int32 = since(0)
    subtopologies: list[StreamsSubtopology] = since(0)


KIND_OF_VALUE: Final[dict[type, GroupRecordKind]] = {
    ConsumerGroupMetadataValue: GroupRecordKind.CONSUMER_GROUP,
    ConsumerGroupMemberMetadataValue: GroupRecordKind.CONSUMER_MEMBER,
    ConsumerGroupTargetAssignmentMetadataValue: GroupRecordKind.CONSUMER_TARGET_EPOCH,
    ConsumerGroupTargetAssignmentMemberValue: GroupRecordKind.CONSUMER_TARGET,
    ConsumerGroupCurrentMemberAssignmentValue: GroupRecordKind.CONSUMER_CURRENT,
    ConsumerGroupRegularExpressionValue: GroupRecordKind.CONSUMER_PATTERN,
    ShareGroupMetadataValue: GroupRecordKind.SHARE_GROUP,
    ShareGroupMemberMetadataValue: GroupRecordKind.SHARE_MEMBER,
    ShareGroupTargetAssignmentMetadataValue: GroupRecordKind.SHARE_TARGET_EPOCH,
    ShareGroupTargetAssignmentMemberValue: GroupRecordKind.SHARE_TARGET,
    ShareGroupCurrentMemberAssignmentValue: GroupRecordKind.SHARE_CURRENT,
    ShareGroupStatePartitionMetadataValue: GroupRecordKind.SHARE_PARTITIONS,
    StreamsGroupMetadataValue: GroupRecordKind.STREAMS_GROUP,
    StreamsGroupMemberMetadataValue: GroupRecordKind.STREAMS_MEMBER,
    StreamsGroupTargetAssignmentMetadataValue: GroupRecordKind.STREAMS_TARGET_EPOCH,
    StreamsGroupTargetAssignmentMemberValue: GroupRecordKind.STREAMS_TARGET,
    StreamsGroupCurrentMemberAssignmentValue: GroupRecordKind.STREAMS_CURRENT,
    StreamsGroupTopologyValue: GroupRecordKind.STREAMS_TOPOLOGY,
}
VALUE_OF_KIND: Final = {kind: cls for cls, kind in KIND_OF_VALUE.items()}


def encode_record_key(kind: GroupRecordKind, group: str, member_id: str | None = None) -> bytes:
    """Encode the key of a record of a group or, with an id, of a member or a pattern."""
    return encode_key(kind, group) if member_id is None else encode_key(kind, group, member_id)


def encode_record_value(value: Any) -> bytes:
    """Encode a value of one of the classes above."""
    out = bytearray(VALUE_VERSION.to_bytes(2, "big"))
    encoder(type(value), VALUE_VERSION)(value, out)
    return bytes(out)


def decode_record_value(cls: type[M], data: Bytes) -> M:
    """Decode a value; raises WireError."""
    if len(data) < 2 or int.from_bytes(data[:2], "big") != VALUE_VERSION:
        raise WireError(f"{cls.__name__} of another version")
    found, _ = decoder(cls, VALUE_VERSION)(data, 2)
    return found
