"""ConsumerGroupDescribe v0-v1: state, members and targets of KIP-848 groups.

v1 adds the kind of a member: 0 speaks as classic members do, 1 as KIP-848 says. What a member is
giving up counts as its own until it has. A group of the other kind is "not found" (69), as one that
is none. A group with a topic that who asks may not describe is not told of (29), as in Kafka 4.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from trilogue.broker.access import Operation, ResourceKind
from trilogue.broker.consumer_group import ConsumerGroup
from trilogue.broker.consumer_group_assignors import NOTHING, Parts
from trilogue.broker.consumer_group_members import Member as GroupMember
from trilogue.broker.errors import BrokerError
from trilogue.broker.names import TopicName, spelled_kafka
from trilogue.gateway.kafka.access import operations
from trilogue.gateway.kafka.errors import code_of
from trilogue.gateway.kafka.shared import Call
from trilogue.wire.kafka.describe_consumer_groups import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)
from trilogue.wire.kafka.errors import ErrorCode

CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1
YIELD_EVERY = 100  # members told in one go, before others may use the loop


async def handle(
    call: Call, request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse:
    """Tell of each group; of one that is named again once."""
    response = ConsumerGroupDescribeResponse()
    told = 0
    for name in dict.fromkeys(request.group_ids):
        group = _described(call, name, asked=request.include_authorized_operations)
        response.groups.append(group)
        told += 1 + len(group.members)
        if told >= YIELD_EVERY:
            told = 0
            await asyncio.sleep(0)
    return response


def _described(call: Call, name: str, *, asked: bool) -> DescribedGroup:
    if not call.allowed(name):
        return _refused(name, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if not name:
        return _refused(name, ErrorCode.INVALID_GROUP_ID)
    try:
        group = call.broker.consumer_groups.find(name)
    except BrokerError as refusal:
        return _refused(name, code_of(refusal), str(refusal))
    names = {seen.topic_id: topic for topic, seen in group.wanted.view.items()}
    for topic in names.values():
        if not call.may(Operation.DESCRIBE, ResourceKind.TOPIC, topic):
            return _refused(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    found = DescribedGroup(
        group_id=name,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=group.assignor,
        members=[_member(group, member, names) for member in group.members],
    )
    if asked:
        found.authorized_operations = operations(call, ResourceKind.GROUP, name)
    return found


def _refused(name: str, code: ErrorCode, text: str | None = None) -> DescribedGroup:
    return DescribedGroup(error_code=code, error_message=text, group_id=name)


def _member(group: ConsumerGroup, member: GroupMember, names: Mapping[bytes, TopicName]) -> Member:
    target = group.target.get(member.member_id, NOTHING)
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(map(spelled_kafka, member.topics)),
        subscribed_topic_regex=member.pattern,
        assignment=_assignment(member.holds, names),
        target_assignment=_assignment(target, names),
        member_type=CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
    )


def _assignment(parts: Parts, names: Mapping[bytes, TopicName]) -> Assignment:
    """Partitions by names; those of topics that are gone have none and are left out."""
    return Assignment(
        topic_partitions=[
            TopicPartitions(
                topic_id=topic_id,
                topic_name=spelled_kafka(names[topic_id]),
                partitions=sorted(indexes),
            )
            for topic_id, indexes in parts.items()
            if topic_id in names
        ]
    )
