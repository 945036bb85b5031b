"""ConsumerGroupDescribe v0-v1: state, members and targets of KIP-848 groups.

v1 member type: 0 classic, 1 consumer. Partitions that a member is revoking count as its own until
it has revoked them. A classic group is "not found" (69), like a missing one. A group with a topic
that the client may not describe is 29, as in Kafka 4.
"""

from __future__ import annotations

from collections.abc import Mapping

from trilogue.broker.groups.consumer.assignors import NO_PARTITIONS, PartitionIndexes
from trilogue.broker.groups.consumer.group import ConsumerGroup
from trilogue.broker.groups.consumer.members import ConsumerGroupMember
from trilogue.broker.names import TopicName, format_kafka
from trilogue.gateway.kafka.context import RequestContext
from trilogue.gateway.kafka.groups.described_groups import describe_each, describe_group
from trilogue.wire.kafka.groups.describe_consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedAssignment,
    DescribedConsumerGroup,
    DescribedConsumerGroupMember,
    DescribedTopicPartitions,
)

CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1


async def handle_consumer_group_describe(
    context: RequestContext, request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse:
    """Describe each requested group once."""
    groups = await describe_each(
        context,
        request.group_ids,
        _describe_group,
        with_operations=request.include_authorized_operations,
    )
    return ConsumerGroupDescribeResponse(groups=groups)


def _describe_group(context: RequestContext, name: str) -> DescribedConsumerGroup:
    return describe_group(
        context,
        name,
        DescribedConsumerGroup,
        find=context.broker.consumer_groups.find_group,
        list_topics=lambda group: group.subscribed.view,
        describe=_describe_found,
    )


def _describe_found(group: ConsumerGroup) -> DescribedConsumerGroup:
    names = {seen.topic_id: topic for topic, seen in group.subscribed.view.items()}
    return DescribedConsumerGroup(
        group_id=group.name,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=group.assignor,
        members=[_describe_member(group, member, names) for member in group.members],
    )


def _describe_member(
    group: ConsumerGroup, member: ConsumerGroupMember, names: Mapping[bytes, TopicName]
) -> DescribedConsumerGroupMember:
    target = group.target.get(member.member_id, NO_PARTITIONS)
    return DescribedConsumerGroupMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(map(format_kafka, member.topics)),
        subscribed_topic_regex=member.pattern,
        assignment=_describe_assignment(member.held, names),
        target_assignment=_describe_assignment(target, names),
        member_type=CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
    )


def _describe_assignment(
    parts: PartitionIndexes, names: Mapping[bytes, TopicName]
) -> DescribedAssignment:
    """Return partitions by topic name; those of deleted topics are left out."""
    return DescribedAssignment(
        topic_partitions=[
            DescribedTopicPartitions(
                topic_id=topic_id,
                topic_name=format_kafka(names[topic_id]),
                partitions=sorted(indexes),
            )
            for topic_id, indexes in parts.items()
            if topic_id in names
        ]
    )
