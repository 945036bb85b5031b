"""Describe-, Alter- and DeleteShareGroupOffsets: the positions of share groups (KIP-932).

Alter and Delete need a group without members (68), and READ on each topic. Both are answered when
the change is durable. A partition that the group has not read has no position: its start offset is
-1. Lag is the number of offsets that are not done (KIP-1226). The positions are of partitions that
this node serves; those of other nodes are 6.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.broker.errors import BrokerError, GroupNotEmpty, InvalidGroupName
from trilogue.broker.names import format_kafka
from trilogue.broker.promise import Promise
from trilogue.broker.topics.topic import Topic
from trilogue.gateway.kafka.context import PromisedResponse, RequestContext, wait_for_commit
from trilogue.gateway.kafka.errors import set_error, to_error_code
from trilogue.gateway.kafka.offsets.topic_results import PARTITIONS_PER_STEP, build_topic_results
from trilogue.gateway.steps import next_step, run_in_turns
from trilogue.log.steps import Steps
from trilogue.wire.kafka.errors import ErrorCode
from trilogue.wire.kafka.groups.share_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)

NO_OFFSET = -1
YIELD_EVERY = 1_000  # partitions per loop iteration


# ---- describe


async def handle_describe_share_group_offsets(
    context: RequestContext, request: DescribeShareGroupOffsetsRequest
) -> DescribeShareGroupOffsetsResponse:
    """Describe the positions of each group."""
    response = DescribeShareGroupOffsetsResponse()
    work = 0
    for each in request.groups:
        work += 1
        if work >= YIELD_EVERY:
            work = 0
            await next_step()
        group = DescribeShareGroupOffsetsResponseGroup(group_id=each.group_id)
        response.groups.append(group)
        if code := context.group_refusal(each.group_id):
            group.error_code = code
            continue
        try:
            context.broker.share_groups.find_group(each.group_id)
        except BrokerError as refusal:
            set_error(group, refusal)
            continue
        for topic in _describe_topics(context, each):
            group.topics.append(topic)
            work += 1 + len(topic.partitions)
            if work >= YIELD_EVERY:
                work = 0
                await next_step()
    return response


def _describe_topics(
    context: RequestContext, group: DescribeShareGroupOffsetsRequestGroup
) -> Iterator[DescribeShareGroupOffsetsResponseTopic]:
    if group.topics is not None:
        for requested in group.topics:
            topic, code = context.find_topic_for(Operation.DESCRIBE, requested.topic_name)
            if topic is None:
                yield DescribeShareGroupOffsetsResponseTopic(
                    topic_name=requested.topic_name,
                    partitions=[
                        DescribeShareGroupOffsetsResponsePartition(
                            partition_index=index, start_offset=NO_OFFSET, error_code=code
                        )
                        for index in requested.partitions
                    ],
                )
            else:
                yield _describe_topic(context, group.group_id, topic, requested.partitions)
        return
    positions = context.broker.share_partitions.positions.of_group(group.group_id)
    for topic in list(context.broker.cluster):
        indexes = [
            index for index, each in enumerate(topic.partitions) if each.partition_id in positions
        ]
        if indexes and context.can_see(Operation.DESCRIBE, ResourceKind.TOPIC, topic.name):
            yield _describe_topic(context, group.group_id, topic, indexes)


def _describe_topic(
    context: RequestContext, group: str, topic: Topic, indexes: list[int]
) -> DescribeShareGroupOffsetsResponseTopic:
    return DescribeShareGroupOffsetsResponseTopic(
        topic_name=format_kafka(topic.name),
        topic_id=topic.topic_id,
        partitions=[_describe_partition(context, group, topic, index) for index in indexes],
    )


def _describe_partition(
    context: RequestContext, group: str, topic: Topic, index: int
) -> DescribeShareGroupOffsetsResponsePartition:
    described = DescribeShareGroupOffsetsResponsePartition(
        partition_index=index, start_offset=NO_OFFSET
    )
    if not 0 <= index < len(topic.partitions):
        described.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return described
    partition = topic.partitions[index]
    if partition.is_remote:
        described.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        return described
    positions = context.broker.share_partitions.positions
    position = positions.find_position(group, partition.partition_id)
    if position is not None:
        positions.follow_start(position)
        described.start_offset = position.mark
        described.leader_epoch = partition.owner_epoch
        end = partition.log.high_watermark
        described.lag = max(0, end - position.mark - position.acked_above)
    return described


# ---- alter


async def handle_alter_share_group_offsets(
    context: RequestContext, request: AlterShareGroupOffsetsRequest
) -> AlterShareGroupOffsetsResponse:
    """Let a group begin again at other offsets; an unknown one is created without members."""
    if code := context.group_refusal(request.group_id):
        return AlterShareGroupOffsetsResponse(error_code=code)
    response = AlterShareGroupOffsetsResponse()
    build = partial(_alter_topic, context, request.group_id)
    try:
        _check_without_members(context, request.group_id, may_create=True)
        response.responses = await run_in_turns(build_topic_results(request.topics, build))
    except BrokerError as refusal:
        set_error(response, refusal)
        return response
    failure = await wait_for_commit(context.gateway)
    if failure is not None:
        response.error_code = to_error_code(failure)
    return response


def _check_without_members(context: RequestContext, name: str, *, may_create: bool = False) -> None:
    """Raise InvalidGroupName, UnknownGroup or GroupNotEmpty."""
    if not name:
        raise InvalidGroupName("a group needs a name")
    groups = context.broker.share_groups
    group = groups.create_group(name) if may_create else groups.find_group(name)
    if not group.is_empty:
        raise GroupNotEmpty(f"The group is not empty: {name} has members.")


def _alter_topic(
    context: RequestContext, group: str, requested: AlterShareGroupOffsetsRequestTopic
) -> Steps[AlterShareGroupOffsetsResponseTopic]:
    """Raises GroupNotEmpty where a member has come since the step before."""
    _check_without_members(context, group)
    topic, code = context.find_topic_for(Operation.READ, requested.topic_name)
    answer = AlterShareGroupOffsetsResponseTopic(
        topic_name=requested.topic_name,
        topic_id=bytes(16) if topic is None else topic.topic_id,
    )
    for count, each in enumerate(requested.partitions, 1):
        if count % PARTITIONS_PER_STEP == 0:
            yield
            _check_without_members(context, group)
        result = AlterShareGroupOffsetsResponsePartition(
            partition_index=each.partition_index, error_code=code
        )
        answer.partitions.append(result)
        if topic is None:
            continue
        try:
            partition = topic.partition(each.partition_index)
            plog = partition.log
            mark = min(max(each.start_offset, plog.start_offset), plog.high_watermark)
            context.broker.share_partitions.reset(group, partition.partition_id, mark)
        except BrokerError as refusal:
            set_error(result, refusal)
    return answer


# ---- delete


def handle_delete_share_group_offsets(
    context: RequestContext, request: DeleteShareGroupOffsetsRequest
) -> DeleteShareGroupOffsetsResponse | PromisedResponse[None]:
    """Remove the positions of a group on whole topics."""
    if code := context.group_refusal(request.group_id):
        return DeleteShareGroupOffsetsResponse(error_code=code)
    response = DeleteShareGroupOffsetsResponse()
    try:
        _check_without_members(context, request.group_id)
        positions = context.broker.share_partitions.positions.of_group(request.group_id)
        removed: list[int] = []
        for each in request.topics:
            topic, code = context.find_topic_for(Operation.READ, each.topic_name)
            result = DeleteShareGroupOffsetsResponseTopic(
                topic_name=each.topic_name, error_code=code
            )
            response.responses.append(result)
            if topic is not None:
                result.topic_id = topic.topic_id
                ids = [partition.partition_id for partition in topic.partitions]
                removed += [partition_id for partition_id in ids if partition_id in positions]
        durable = context.broker.share_partitions.remove(request.group_id, removed)
    except BrokerError as refusal:
        set_error(response, refusal)
        return response

    def respond(promise: Promise[None]) -> DeleteShareGroupOffsetsResponse:
        if promise.error is None:
            return response
        return DeleteShareGroupOffsetsResponse(error_code=to_error_code(promise.error))

    return PromisedResponse(durable, respond)
