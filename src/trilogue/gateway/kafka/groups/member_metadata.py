"""What classic members carry in JoinGroup and SyncGroup, as values of the broker.

The broker passes the bytes of `Subscription` and `Assignment` (v0-v3) through unread. It reads a
subscription where a rule depends on the topics of a member: OffsetDelete (error 86) and classic
members of consumer groups (KIP-848). It reads an assignment when a classic group becomes a consumer
group, and writes one for a classic member of a consumer group, in the version that the member used
for its subscription.
"""

from __future__ import annotations

from trilogue.broker.errors import InvalidName
from trilogue.broker.groups.consumer.mixed_group import AssignmentCodec, PartitionsByTopic
from trilogue.broker.groups.group import MemberSubscription
from trilogue.broker.names import TopicName, format_kafka, parse_kafka
from trilogue.wire.errors import WireError
from trilogue.wire.kafka.codec.schema import table
from trilogue.wire.kafka.groups.member_metadata import (
    AssignedPartitions,
    Assignment,
    decode_assignment,
    decode_subscription,
    encode_assignment,
)

VERSION_MAX = table(Assignment).last


def read_subscription(metadata: bytes) -> MemberSubscription | None:
    """Decode a subscription, without invalid topic names; None for malformed bytes."""
    try:
        decoded = decode_subscription(metadata)
    except WireError:
        return None
    owned = ((_name(each.topic), tuple(each.partitions)) for each in decoded.owned_partitions)
    return MemberSubscription(
        frozenset(name for name in map(_name, decoded.topics) if name is not None),
        tuple((name, partitions) for name, partitions in owned if name is not None),
        decoded.generation_id,
        decoded.rack_id,
        bytes(decoded.user_data or b""),
    )


def _name(spelled: str) -> TopicName | None:
    try:
        return parse_kafka(spelled)
    except InvalidName:
        return None


def read_assignment(data: bytes) -> PartitionsByTopic | None:
    """Decode an assignment, without invalid topic names; None for malformed bytes."""
    try:
        decoded = decode_assignment(data)
    except WireError:
        return None
    found = {}
    for each in decoded.assigned_partitions:
        try:
            found[parse_kafka(each.topic)] = tuple(each.partitions)
        except InvalidName:
            continue
    return found


def write_assignment(parts: PartitionsByTopic, like: bytes) -> bytes:
    """Encode an assignment in the version of the member's own bytes, up to the newest one here."""
    version = int.from_bytes(like[:2], "big", signed=True)
    assigned = [
        AssignedPartitions(topic=format_kafka(name), partitions=list(indexes))
        for name, indexes in parts.items()
    ]
    assignment = Assignment(assigned_partitions=assigned, user_data=None)
    return encode_assignment(assignment, min(max(version, 0), VERSION_MAX))


CLASSIC_ASSIGNMENTS = AssignmentCodec(read_assignment, write_assignment)
