"""DeleteGroups v0-v2 and OffsetDelete v0: delete groups, or some of their offsets.

DeleteGroups: v2 flexible. Each group has its own result: 69 unknown, 68 it has members. A group
named twice is deleted and reported once.

OffsetDelete (KIP-496): an error of the whole group (24, 69, or 68 if its members are no consumers),
or a result per partition: 3 no such partition, 86 the group is subscribed to the topic. A partition
without an offset is no error. Each topic needs READ besides the group's DELETE.

Both are answered when the deletion is synced.
"""

from __future__ import annotations

from collections.abc import Callable

from trilogue.broker.access.authorizer import Operation
from trilogue.broker.errors import BrokerError
from trilogue.broker.names import TopicName
from trilogue.broker.promise import Promise
from trilogue.broker.topics.topic import Topic
from trilogue.gateway.kafka.context import PromisedResponse, RequestContext
from trilogue.gateway.kafka.errors import to_error_code
from trilogue.gateway.steps import next_step, wait_until_settled
from trilogue.wire.kafka.errors import ErrorCode
from trilogue.wire.kafka.groups.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

YIELD_EVERY = 100  # groups per loop iteration

Named = list[tuple[Topic, OffsetDeleteResponsePartition]]  # partitions that exist


# ---- groups


async def handle_delete_groups(
    context: RequestContext, request: DeleteGroupsRequest
) -> DeleteGroupsResponse:
    """Delete groups without members; waits for all deletions together."""
    results: list[DeletableGroupResult] = []
    waiting: list[tuple[DeletableGroupResult, Promise[None]]] = []
    for number, name in enumerate(dict.fromkeys(request.groups_names), 1):
        if number % YIELD_EVERY == 0:
            await next_step()
        result = DeletableGroupResult(group_id=name)
        results.append(result)
        if refusal := context.group_refusal(name):
            result.error_code = refusal
            continue
        try:
            waiting.append((result, context.broker.group_admin.delete(name)))
        except BrokerError as problem:
            result.error_code = to_error_code(problem)
    for result, promise in waiting:
        await wait_until_settled(promise)
        if promise.error is not None:
            result.error_code = to_error_code(promise.error)
    return DeleteGroupsResponse(results=results)


# ---- positions


def handle_offset_delete(
    context: RequestContext, request: OffsetDeleteRequest
) -> OffsetDeleteResponse | PromisedResponse[None]:
    """Delete offsets of topics that the group is not subscribed to."""
    group = request.group_id
    if refusal := context.group_refusal(group):
        return OffsetDeleteResponse(error_code=refusal)
    named: Named = []
    response = OffsetDeleteResponse(
        topics=[_check_topic(context, each, named) for each in request.topics]
    )
    try:
        context.broker.group_admin.check_removal(group)
        if not named:
            return response
        promise = context.broker.group_admin.remove(group, _list_removable(context, group, named))
    except BrokerError as problem:
        return OffsetDeleteResponse(error_code=to_error_code(problem))

    def respond(promise: Promise[None]) -> OffsetDeleteResponse:
        if promise.error is None:
            return response
        return OffsetDeleteResponse(error_code=to_error_code(promise.error))

    return PromisedResponse(promise, respond)


def _check_topic(
    context: RequestContext, requested: OffsetDeleteRequestTopic, named: Named
) -> OffsetDeleteResponseTopic:
    topic, code = context.find_topic_for(Operation.READ, requested.name)
    answer = OffsetDeleteResponseTopic(name=requested.name)
    for each in requested.partitions:
        outcome = OffsetDeleteResponsePartition(partition_index=each.partition_index)
        answer.partitions.append(outcome)
        if topic is None:
            outcome.error_code = code
        elif 0 <= each.partition_index < len(topic.partitions):
            named.append((topic, outcome))
        else:
            outcome.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return answer


def _list_removable(context: RequestContext, group: str, named: Named) -> list[int]:
    """Return the partition ids whose offsets may go, and set the errors of the others."""
    refused: dict[Topic, ErrorCode] = {}
    check = context.broker.group_admin.topic_check(group)
    ids: list[int] = []
    for topic, outcome in named:
        if topic not in refused:
            refused[topic] = _check_topic_removal(check, topic)
        outcome.error_code = refused[topic]
        if not outcome.error_code:
            ids.append(topic.partitions[outcome.partition_index].partition_id)
    return ids


def _check_topic_removal(check: Callable[[TopicName], None], topic: Topic) -> ErrorCode:
    try:
        check(topic.name)
    except BrokerError as problem:
        return to_error_code(problem)
    return ErrorCode.NONE
