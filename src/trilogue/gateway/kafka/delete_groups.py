"""DeleteGroups v0-v2 and OffsetDelete v0: forget groups, or some of their positions.

DeleteGroups: v2 flexible. Each group has its own outcome: 69 unknown, 68 it has members. A name
that is said twice is deleted, and answered, once.

OffsetDelete (KIP-496): an error of the whole group (24, 69, and 68 where its members are of another
kind than readers), or one outcome for each partition: 3 no such partition, 86 the group reads the
topic. A partition without a position is fine. When no partition can be meant the group is not even
looked at. Each topic wants READ besides the group's DELETE.

Both are answered when what was removed is gone on disk too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from trilogue.broker.access import Operation, ResourceKind
from trilogue.broker.errors import BrokerError
from trilogue.broker.names import TopicName
from trilogue.broker.promise import Promise
from trilogue.broker.topic import Topic
from trilogue.gateway.kafka.errors import code_of
from trilogue.gateway.kafka.shared import Call, Mapped
from trilogue.gateway.kafka.topics import kept
from trilogue.wire.kafka.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from trilogue.wire.kafka.errors import ErrorCode

YIELD_EVERY = 100  # groups in one go, before others may use the loop

Named = list[tuple[Topic, OffsetDeleteResponsePartition]]  # partitions that are there


# ---- groups


async def handle(call: Call, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    """Forget groups without members; some are decided at a time, all waited for together."""
    results: list[DeletableGroupResult] = []
    waiting: list[tuple[DeletableGroupResult, Promise[None]]] = []
    for number, name in enumerate(dict.fromkeys(request.groups_names), 1):
        if number % YIELD_EVERY == 0:
            await asyncio.sleep(0)
        result = DeletableGroupResult(group_id=name)
        results.append(result)
        if not call.allowed(name):
            result.error_code = ErrorCode.GROUP_AUTHORIZATION_FAILED
            continue
        try:
            waiting.append((result, call.broker.group_admin.delete(name)))
        except BrokerError as problem:
            result.error_code = code_of(problem)
    for result, promise in waiting:
        await kept(call, promise)
        if promise.error is not None:
            result.error_code = code_of(promise.error)
    return DeleteGroupsResponse(results=results)


# ---- positions


def positions(call: Call, request: OffsetDeleteRequest) -> OffsetDeleteResponse | Mapped[None]:
    """Forget positions of topics that the group does not read."""
    group = request.group_id
    if not call.allowed(group):
        return OffsetDeleteResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    named: Named = []
    response = OffsetDeleteResponse(topics=[_topic(call, each, named) for each in request.topics])
    try:
        call.broker.group_admin.check_removal(group)
        if not named:
            return response
        promise = call.broker.group_admin.remove(group, _removable(call, group, named))
    except BrokerError as problem:
        return OffsetDeleteResponse(error_code=code_of(problem))

    def respond(promise: Promise[None]) -> OffsetDeleteResponse:
        if promise.error is None:
            return response
        return OffsetDeleteResponse(error_code=code_of(promise.error))

    return Mapped(promise, respond)


def _topic(call: Call, asked: OffsetDeleteRequestTopic, named: Named) -> OffsetDeleteResponseTopic:
    topic, code = _find(call, asked.name)
    answer = OffsetDeleteResponseTopic(name=asked.name)
    for each in asked.partitions:
        outcome = OffsetDeleteResponsePartition(partition_index=each.partition_index)
        answer.partitions.append(outcome)
        if topic is None:
            outcome.error_code = code
        elif 0 <= each.partition_index < len(topic.partitions):
            named.append((topic, outcome))
        else:
            outcome.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return answer


def _find(call: Call, name: str) -> tuple[Topic | None, ErrorCode]:
    try:
        topic = call.door.topic(name)
    except BrokerError:
        return None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if not call.may(Operation.READ, ResourceKind.TOPIC, topic.name):
        return None, ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return topic, ErrorCode.NONE


def _removable(call: Call, group: str, named: Named) -> list[int]:
    """Return the ids of partitions whose positions may go, and say of the others why not."""
    refused: dict[Topic, ErrorCode] = {}
    check = call.broker.group_admin.topic_check(group)
    ids: list[int] = []
    for topic, outcome in named:
        if topic not in refused:
            refused[topic] = _refusal(check, topic)
        outcome.error_code = refused[topic]
        if not outcome.error_code:
            ids.append(topic.partitions[outcome.partition_index].partition_id)
    return ids


def _refusal(check: Callable[[TopicName], None], topic: Topic) -> ErrorCode:
    try:
        check(topic.name)
    except BrokerError as problem:
        return code_of(problem)
    return ErrorCode.NONE
