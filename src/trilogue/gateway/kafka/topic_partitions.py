"""DescribeTopicPartitions v0: Metadata in pages of partitions (KIP-966).

Topics come in the order of their names, each once, whatever order they were asked in. A page holds
at most as many partitions as the client says, at least one and at most 2,000; `next_cursor` is the
first partition that had no room, and a request with it as its cursor goes on there. A cursor that
names none of the topics asked for is refused, and so is a negative one: 42 for each of them. When
all topics are asked for and the cursor's topic is gone, the page begins with the next name.

Unlike Metadata it never makes a topic, and always tells what the caller may do. Who may not
DESCRIBE a topic gets 29 for it, behind the others. One topic without partitions to tell (an error)
takes no room, so the topics that a request names have a bound; tools name all of a cluster.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterable
from typing import Any, NamedTuple

from trilogue.broker.access import ResourceKind
from trilogue.broker.errors import BrokerError, InvalidName
from trilogue.broker.names import TopicName, kafka_can_spell, parse_kafka, spelled_kafka
from trilogue.broker.topic import Topic
from trilogue.gateway.kafka.access import operations
from trilogue.gateway.kafka.errors import code_of
from trilogue.gateway.kafka.shared import Call
from trilogue.gateway.turns import at_once_or_in_turns
from trilogue.log.steps import Steps
from trilogue.wire.kafka.errors import ErrorCode
from trilogue.wire.kafka.topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)

PAGE_MAX = 2_000  # partitions
AT_ONCE = 200  # topics that are told before others have a turn: 2 ms
LOOKED_AT_ONCE = 500  # that are looked up


class Asked(NamedTuple):
    """A topic as it was spelled, what that names, and the topic if there is one."""

    spelled: str
    name: TopicName | None
    topic: Topic | None
    problem: BrokerError | None


def handle(
    call: Call, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse | Coroutine[Any, Any, DescribeTopicPartitionsResponse]:
    """Tell one page."""
    return at_once_or_in_turns(_steps(call, request))


def _steps(
    call: Call, request: DescribeTopicPartitionsRequest
) -> Steps[DescribeTopicPartitionsResponse]:
    cursor = request.cursor
    names = dict.fromkeys(each.name for each in request.topics)
    if len(names) > call.door.settings.described_per_request_max:
        return _refused(names)
    if cursor is not None and (
        cursor.partition_index < 0 or (names and cursor.topic_name not in names)
    ):
        return _refused(names)
    first = "" if cursor is None else cursor.topic_name
    found = yield from _named(call, names, first) if names else _all(call, first)
    told: list[Asked] = []
    hidden: list[str] = []
    for count, each in enumerate(found, 1):
        if count % LOOKED_AT_ONCE == 0:
            yield
        if each.name is None or call.allowed(each.name):
            told.append(each)
        else:
            hidden.append(each.spelled)
    response = yield from _page(call, told, request.response_partition_limit, cursor)
    response.topics += [
        DescribeTopicPartitionsResponseTopic(
            error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=each
        )
        for each in (hidden if names else ())
    ]
    return response


def _all(call: Call, first: str) -> Steps[list[Asked]]:
    spelled: dict[str, Topic] = {}
    for count, topic in enumerate(list(call.broker.cluster), 1):
        if count % LOOKED_AT_ONCE == 0:
            yield
        if kafka_can_spell(topic.name):
            spelled[spelled_kafka(topic.name)] = topic
    return [Asked(each, spelled[each].name, spelled[each], None) for each in _from(spelled, first)]


def _named(call: Call, names: Iterable[str], first: str) -> Steps[list[Asked]]:
    found: list[Asked] = []
    for count, spelled in enumerate(_from(names, first), 1):
        if count % LOOKED_AT_ONCE == 0:
            yield
        name = None
        try:
            name = parse_kafka(spelled)
            found.append(Asked(spelled, name, call.door.topic(spelled), None))
        except BrokerError as problem:
            found.append(Asked(spelled, name, None, problem))
    return found


def _from(names: Iterable[str], first: str) -> list[str]:
    return sorted(each for each in names if each >= first)


def _page(
    call: Call, found: list[Asked], limit: int, cursor: Cursor | None
) -> Steps[DescribeTopicPartitionsResponse]:
    response = DescribeTopicPartitionsResponse()
    room = max(1, min(limit, PAGE_MAX))
    for count, each in enumerate(found, 1):
        if count % AT_ONCE == 0:
            yield
        if room == 0:
            response.next_cursor = Cursor(topic_name=each.spelled, partition_index=0)
            break
        answer = DescribeTopicPartitionsResponseTopic(name=each.spelled)
        response.topics.append(answer)
        answer.topic_authorized_operations = operations(
            call, ResourceKind.TOPIC, each.name or each.spelled
        )
        if each.topic is None:
            answer.error_code = code_of(each.problem or InvalidName())
            continue
        goes_on = cursor is not None and cursor.topic_name == each.spelled
        first = cursor.partition_index if cursor is not None and goes_on else 0
        answer.topic_id = each.topic.topic_id
        answer.partitions = _partitions(call, each.topic, first, first + room)
        room -= len(answer.partitions)
        if first + len(answer.partitions) < len(each.topic.partitions):
            next_index = first + len(answer.partitions)
            response.next_cursor = Cursor(topic_name=each.spelled, partition_index=next_index)
            break
    return response


def _partitions(
    call: Call, topic: Topic, first: int, end: int
) -> list[DescribeTopicPartitionsResponsePartition]:
    node_id = call.broker.cluster.node_id
    nodes = [node_id]
    return [
        DescribeTopicPartitionsResponsePartition(
            partition_index=index,
            leader_id=node_id,
            leader_epoch=partition.owner_epoch,
            replica_nodes=nodes,
            isr_nodes=nodes,
            eligible_leader_replicas=[],
            last_known_elr=[],
        )
        for index, partition in enumerate(topic.partitions[first:end], first)
    ]


def _refused(names: Iterable[str]) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsResponse(
        topics=[
            DescribeTopicPartitionsResponseTopic(error_code=ErrorCode.INVALID_REQUEST, name=name)
            for name in sorted(names)
        ]
    )
