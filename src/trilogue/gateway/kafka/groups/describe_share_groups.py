"""ShareGroupDescribe v1: state and members of share groups (KIP-932).

A group of another kind, or none, is 69. A topic that the client may not describe hides the whole
group (29), as in Kafka.
"""

from __future__ import annotations

from collections.abc import Mapping

from trilogue.broker.groups.share.assignor import SIMPLE
from trilogue.broker.groups.share.group import ShareGroup
from trilogue.broker.groups.share.members import ShareGroupMember
from trilogue.broker.names import TopicName, format_kafka
from trilogue.gateway.kafka.context import RequestContext
from trilogue.gateway.kafka.groups.described_groups import describe_each, describe_group
from trilogue.wire.kafka.groups.describe_share_groups import (
    DescribedShareAssignment,
    DescribedShareGroup,
    DescribedShareGroupMember,
    DescribedShareTopicPartitions,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)


async def handle_share_group_describe(
    context: RequestContext, request: ShareGroupDescribeRequest
) -> ShareGroupDescribeResponse:
    """Describe each requested group once."""
    groups = await describe_each(
        context,
        request.group_ids,
        _describe_group,
        with_operations=request.include_authorized_operations,
    )
    return ShareGroupDescribeResponse(groups=groups)


def _describe_group(context: RequestContext, name: str) -> DescribedShareGroup:
    return describe_group(
        context,
        name,
        DescribedShareGroup,
        find=context.broker.share_groups.find_group,
        list_topics=lambda group: group.subscribed.view,
        describe=_describe_found,
    )


def _describe_found(group: ShareGroup) -> DescribedShareGroup:
    names = {seen.topic_id: topic for topic, seen in group.subscribed.view.items()}
    return DescribedShareGroup(
        group_id=group.name,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=SIMPLE,
        members=[_describe_member(member, names) for member in group.members],
    )


def _describe_member(
    member: ShareGroupMember, names: Mapping[bytes, TopicName]
) -> DescribedShareGroupMember:
    return DescribedShareGroupMember(
        member_id=member.member_id,
        rack_id=member.rack,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(map(format_kafka, member.topics)),
        assignment=DescribedShareAssignment(
            topic_partitions=[
                DescribedShareTopicPartitions(
                    topic_id=topic_id,
                    topic_name=format_kafka(names[topic_id]),
                    partitions=sorted(indexes),
                )
                for topic_id, indexes in member.assigned.items()
                if topic_id in names
            ]
        ),
    )
