"""DescribeTopicPartitions v0: Metadata in pages of partitions (KIP-966).

Topics are sorted by name, each once. A page has at most as many partitions as the client requests,
at least 1 and at most 2,000; `next_cursor` is the first partition that did not fit, and a request
with it as its cursor continues there. A cursor that names no requested topic, or is negative, is
refused with 42 for each topic. If all topics are requested and the cursor's topic is gone, the page
begins with the next name.

Unlike Metadata it never creates a topic, and always reports authorized operations. A topic that the
client may not DESCRIBE is 29, behind the others. A topic with an error has no partitions and takes
no room, so the number of topics in a request is limited; tools request all topics of a cluster.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterable
from functools import partial
from typing import Any, NamedTuple

from trilogue.broker.access.authorizer import ResourceKind
from trilogue.broker.errors import BrokerError, InvalidName
from trilogue.broker.names import TopicName, format_kafka, is_kafka_name, parse_kafka
from trilogue.broker.topics.topic import Topic
from trilogue.gateway.kafka.authorized_operations import authorized_operations
from trilogue.gateway.kafka.context import RequestContext
from trilogue.gateway.kafka.errors import to_error_code
from trilogue.gateway.steps import begin_steps
from trilogue.log.steps import Steps
from trilogue.wire.kafka.errors import ErrorCode
from trilogue.wire.kafka.metadata.topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)

PAGE_MAX = 2_000  # partitions
TOPICS_PER_STEP = 200  # 2 ms
LOOKUPS_PER_STEP = 500  # topics that are looked up


class NamedTopic(NamedTuple):
    """A name in the request, the topic name that it means, and the topic if it exists."""

    spelled: str
    name: TopicName | None
    topic: Topic | None
    problem: BrokerError | None


def handle_describe_topic_partitions(
    context: RequestContext, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse | Coroutine[Any, Any, DescribeTopicPartitionsResponse]:
    """Return one page."""
    return begin_steps(_steps(context, request))


def _steps(
    context: RequestContext, request: DescribeTopicPartitionsRequest
) -> Steps[DescribeTopicPartitionsResponse]:
    cursor = request.cursor
    names = dict.fromkeys(each.name for each in request.topics)
    if len(names) > context.gateway.settings.described_per_request_max:
        return _error_response(names)
    if cursor is not None and (
        cursor.partition_index < 0 or (names and cursor.topic_name not in names)
    ):
        return _error_response(names)
    first = "" if cursor is None else cursor.topic_name
    found = yield from _named(context, names, first) if names else _all(context, first)
    may_describe = (
        context.is_allowed
        if names
        else partial(  # a list leaves topics out
            context.can_see, context.operation, ResourceKind.TOPIC
        )
    )
    visible: list[NamedTopic] = []
    hidden: list[str] = []
    for count, each in enumerate(found, 1):
        if count % LOOKUPS_PER_STEP == 0:
            yield
        if each.name is None or may_describe(each.name):
            visible.append(each)
        else:
            hidden.append(each.spelled)
    response = yield from _page(context, visible, request.response_partition_limit, cursor)
    response.topics += [
        DescribeTopicPartitionsResponseTopic(
            error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=each
        )
        for each in (hidden if names else ())
    ]
    return response


def _all(context: RequestContext, first: str) -> Steps[list[NamedTopic]]:
    spelled: dict[str, Topic] = {}
    for count, topic in enumerate(list(context.broker.cluster), 1):
        if count % LOOKUPS_PER_STEP == 0:
            yield
        if is_kafka_name(topic.name):
            spelled[format_kafka(topic.name)] = topic
    return [
        NamedTopic(each, spelled[each].name, spelled[each], None) for each in _from(spelled, first)
    ]


def _named(context: RequestContext, names: Iterable[str], first: str) -> Steps[list[NamedTopic]]:
    found: list[NamedTopic] = []
    for count, spelled in enumerate(_from(names, first), 1):
        if count % LOOKUPS_PER_STEP == 0:
            yield
        name = None
        try:
            name = parse_kafka(spelled)
            found.append(NamedTopic(spelled, name, context.gateway.topic(spelled), None))
        except BrokerError as problem:
            found.append(NamedTopic(spelled, name, None, problem))
    return found


def _from(names: Iterable[str], first: str) -> list[str]:
    return sorted(each for each in names if each >= first)


def _page(
    context: RequestContext, found: list[NamedTopic], limit: int, cursor: Cursor | None
) -> Steps[DescribeTopicPartitionsResponse]:
    response = DescribeTopicPartitionsResponse()
    room = max(1, min(limit, PAGE_MAX))
    for count, each in enumerate(found, 1):
        if count % TOPICS_PER_STEP == 0:
            yield
        if room == 0:
            response.next_cursor = Cursor(topic_name=each.spelled, partition_index=0)
            break
        answer = DescribeTopicPartitionsResponseTopic(name=each.spelled)
        response.topics.append(answer)
        answer.topic_authorized_operations = authorized_operations(
            context, ResourceKind.TOPIC, each.name or each.spelled
        )
        if each.topic is None:
            answer.error_code = to_error_code(each.problem or InvalidName())
            continue
        goes_on = cursor is not None and cursor.topic_name == each.spelled
        first = cursor.partition_index if cursor is not None and goes_on else 0
        answer.topic_id = each.topic.topic_id
        answer.is_internal = each.topic.is_internal
        answer.partitions = _partitions(context, each.topic, first, first + room)
        room -= len(answer.partitions)
        if first + len(answer.partitions) < len(each.topic.partitions):
            next_index = first + len(answer.partitions)
            response.next_cursor = Cursor(topic_name=each.spelled, partition_index=next_index)
            break
    return response


def _partitions(
    context: RequestContext, topic: Topic, first: int, end: int
) -> list[DescribeTopicPartitionsResponsePartition]:
    ownership = context.broker.cluster.ownership
    leader_of, copies = ownership.partition_leader, ownership.copies_by_owner()
    owned = [
        (partition, leader_of(partition.partition_id)) for partition in topic.partitions[first:end]
    ]
    return [
        DescribeTopicPartitionsResponsePartition(
            partition_index=index,
            leader_id=owner,
            leader_epoch=partition.owner_epoch,
            replica_nodes=copies[owner],
            isr_nodes=copies[owner],
            eligible_leader_replicas=[],
            last_known_elr=[],
        )
        for index, (partition, owner) in enumerate(owned, first)
    ]


def _error_response(names: Iterable[str]) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsResponse(
        topics=[
            DescribeTopicPartitionsResponseTopic(error_code=ErrorCode.INVALID_REQUEST, name=name)
            for name in sorted(names)
        ]
    )
