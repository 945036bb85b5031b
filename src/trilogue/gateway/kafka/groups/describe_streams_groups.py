"""StreamsGroupDescribe v0: topology, state and members of streams groups (KIP-1071).

A group of another kind, or none, is 69. A topic that the client may not describe hides the whole
group (29), as in Kafka.
"""

from __future__ import annotations

from collections.abc import Iterable

from trilogue.broker.groups.streams.group import StreamsGroup
from trilogue.broker.groups.streams.members import StreamsGroupMember
from trilogue.broker.groups.streams.tasks import NO_TASKS, Tasks
from trilogue.broker.groups.streams.topology import Subtopology
from trilogue.broker.names import format_kafka
from trilogue.gateway.kafka.context import RequestContext
from trilogue.gateway.kafka.groups.described_groups import describe_each, describe_group
from trilogue.gateway.kafka.groups.streams import (
    describe_endpoint,
    describe_pairs,
    describe_topics,
    task_ids_by_role,
)
from trilogue.wire.kafka.groups.describe_streams_groups import (
    DescribedStreamsGroup,
    DescribedStreamsMember,
    DescribedSubtopology,
    DescribedTasks,
    DescribedTopology,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
)


async def handle_streams_group_describe(
    context: RequestContext, request: StreamsGroupDescribeRequest
) -> StreamsGroupDescribeResponse:
    """Describe each requested group once."""
    groups = await describe_each(
        context,
        request.group_ids,
        _describe_group,
        with_operations=request.include_authorized_operations,
    )
    return StreamsGroupDescribeResponse(groups=groups)


def _describe_group(context: RequestContext, name: str) -> DescribedStreamsGroup:
    return describe_group(
        context,
        name,
        DescribedStreamsGroup,
        find=context.broker.streams_groups.find_group,
        list_topics=lambda group: group.topology.topics if group.topology is not None else (),
        describe=_describe_found,
    )


def _describe_found(group: StreamsGroup) -> DescribedStreamsGroup:
    return DescribedStreamsGroup(
        group_id=group.name,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        topology=_describe_topology(group),
        members=[
            _describe_member(member, group.target.get(member.member_id, NO_TASKS))
            for member in group.members
        ],
    )


def _describe_topology(group: StreamsGroup) -> DescribedTopology | None:
    """Return the topology with the numbers of partitions, once its topics are there."""
    if group.topology is None:
        return None
    subtopologies: Iterable[Subtopology] = group.topology.subtopologies
    if group.configured is not None and group.configured.is_ready:
        subtopologies = (each.subtopology for each in group.configured.subtopologies.values())
    return DescribedTopology(
        epoch=group.topology.epoch,
        subtopologies=[
            DescribedSubtopology(
                subtopology_id=each.subtopology_id,
                source_topics=sorted(map(format_kafka, each.source_topics)),
                repartition_sink_topics=sorted(map(format_kafka, each.repartition_sinks)),
                state_changelog_topics=describe_topics(each.changelogs),
                repartition_source_topics=describe_topics(each.repartition_sources),
            )
            for each in subtopologies
        ],
    )


def _describe_member(member: StreamsGroupMember, target: Tasks) -> DescribedStreamsMember:
    return DescribedStreamsMember(
        member_id=member.member_id,
        member_epoch=member.epoch,
        rack_id=member.rack,
        client_id=member.client_id,
        client_host=member.client_host,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        user_endpoint=describe_endpoint(member.endpoint),
        client_tags=describe_pairs(member.tags),
        assignment=_describe_tasks(member.assigned),
        target_assignment=_describe_tasks(target),
    )


def _describe_tasks(tasks: Tasks) -> DescribedTasks:
    active, standby, warmup = task_ids_by_role(tasks)
    return DescribedTasks(active_tasks=active, standby_tasks=standby, warmup_tasks=warmup)
