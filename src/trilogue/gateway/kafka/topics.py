"""CreateTopics v0-v7 and DeleteTopics v0-v6, and how a topic comes to be that was only mentioned.

Create: v1 validate_only, messages · v4 -1 partitions or copies mean the broker's defaults (accepted
in every version) · v5 flexible, tells the settings made · v7 topic id. Delete: v4 flexible · v5
messages · v6 by id.

What the broker plans becomes true when meta has recorded it. The recording goes on when the
client's time is over or its connection gone: the answer is then 7 (timed out), as in Kafka. To
create wants CREATE on the topic or on the cluster. Each partition made or deleted counts against
the client's quota of changes (KIP-599): from v6 and v5 on what is too much is refused (89).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from trilogue.broker.access import Operation, Resource, ResourceKind
from trilogue.broker.commit import Commit
from trilogue.broker.errors import (
    AccessDenied,
    BrokerError,
    InvalidAssignment,
    InvalidName,
    InvalidRequest,
    UnknownTopic,
    UnknownTopicId,
)
from trilogue.broker.names import TopicName, parse_kafka, spelled_kafka
from trilogue.broker.promise import Promise
from trilogue.broker.settings_table import TABLE as SETTINGS
from trilogue.broker.topic import Topic
from trilogue.gateway.kafka.config_rows import Behind, behind_topics, topic_value
from trilogue.gateway.kafka.errors import EXPECTED, code_of
from trilogue.gateway.kafka.shared import Call
from trilogue.wire.kafka.schema import ZERO_UUID
from trilogue.wire.kafka.topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

IDS_SINCE = 6
STRICT_CREATE_SINCE, STRICT_DELETE_SINCE = 6, 5  # KIP-599: told that it is too much
YIELD_EVERY = 50  # topics that are decided in one go, before others may use the loop


# ---- create


async def create(call: Call, request: CreateTopicsRequest) -> CreateTopicsResponse:
    """Make every topic that can be made."""
    mentioned = Counter(topic.name for topic in request.topics)
    behind = behind_topics(call.broker.values)
    results: dict[str, CreatableTopicResult] = {}
    waiting: list[tuple[CreatableTopicResult, Promise[Topic]]] = []
    for topic in request.topics:
        if topic.name in results:
            continue
        if len(results) % YIELD_EVERY == YIELD_EVERY - 1:
            await asyncio.sleep(0)
        try:
            check_request(call, len(results), mentioned[topic.name])
            result, promise = _create(call, topic, behind, validate_only=request.validate_only)
            if promise is not None:
                waiting.append((result, promise))
        except EXPECTED as problem:
            result = _create_refused(topic.name, problem)
        results[topic.name] = result
    outcomes = await all_kept(call, [promise for _, promise in waiting], request.timeout_ms)
    for (result, promise), outcome in zip(waiting, outcomes, strict=True):
        if outcome is None:
            result.topic_id = promise.result().topic_id
        else:
            _refuse(result, outcome)
    return CreateTopicsResponse(topics=list(results.values()))


def _create(
    call: Call, topic: CreatableTopic, behind: Behind, *, validate_only: bool
) -> tuple[CreatableTopicResult, Promise[Topic] | None]:
    name = parse_kafka(topic.name)
    _check_create(call, name)
    cluster = call.broker.cluster
    new = cluster.check_create(
        name,
        partition_count=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignment=_assignment(topic),
        settings={each.name: each.value for each in topic.configs},
    )
    result = CreatableTopicResult(
        name=topic.name,
        num_partitions=new.partition_count,
        replication_factor=1,
        configs=_settings(new.settings, behind),
        error_message=None,
    )
    if validate_only:
        return result, None
    call.changed(new.partition_count, strict=call.version >= STRICT_CREATE_SINCE)
    return result, carry_out(call, cluster.plan_create(new))


def _assignment(topic: CreatableTopic) -> dict[int, list[int]] | None:
    found = {each.partition_index: each.broker_ids for each in topic.assignments}
    if len(found) < len(topic.assignments):
        raise InvalidAssignment("an assignment names a partition more than once")
    return found or None


def _check_create(call: Call, name: TopicName) -> None:
    cluster = call.may(Operation.CREATE, ResourceKind.CLUSTER, "cluster")
    if not cluster and not call.may(Operation.CREATE, ResourceKind.TOPIC, name):
        raise AccessDenied(Operation.CREATE, Resource(ResourceKind.TOPIC, str(name)))


def _settings(given: dict[str, str], behind: Behind) -> list[CreatableTopicConfigs]:
    found = []
    for row in SETTINGS.values():
        value, source = topic_value(row, given, behind)
        found.append(
            CreatableTopicConfigs(
                name=row.key, value=value, read_only=row.fixed, config_source=source
            )
        )
    return found


def _create_refused(name: str, problem: BaseException) -> CreatableTopicResult:
    result = CreatableTopicResult(name=name, error_message=None)
    _refuse(result, problem)
    return result


def _refuse(result: CreatableTopicResult, problem: BaseException) -> None:
    result.error_code = code_of(problem)
    result.error_message = str(problem) or None
    result.num_partitions = result.replication_factor = -1
    result.configs = []


# ---- delete


async def delete(call: Call, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    """Delete every topic that can be deleted."""
    asked = request.topics
    if call.version < IDS_SINCE:
        asked = [DeleteTopicState(name=name) for name in request.topic_names]
    mentioned = Counter((each.name, each.topic_id) for each in asked)
    results: dict[tuple[str | None, bytes], DeletableTopicResult] = {}
    waiting: list[tuple[DeletableTopicResult, Promise[None]]] = []
    for each in asked:
        key = each.name, each.topic_id
        if key in results:
            continue
        result = DeletableTopicResult(name=each.name, topic_id=each.topic_id)
        if len(results) % YIELD_EVERY == YIELD_EVERY - 1:
            await asyncio.sleep(0)
        try:
            check_request(call, len(results), mentioned[key])
            topic = await _at_rest(call, each)
            result.name = each.name or spelled_kafka(topic.name)
            result.topic_id = topic.topic_id
            call.changed(len(topic.partitions), strict=call.version >= STRICT_DELETE_SINCE)
            waiting.append((result, carry_out(call, call.broker.cluster.plan_delete(topic.name))))
        except EXPECTED as problem:
            result.error_code = code_of(problem)
            result.error_message = str(problem) or None
        results[key] = result
    outcomes = await all_kept(call, [promise for _, promise in waiting], request.timeout_ms)
    for (result, _), outcome in zip(waiting, outcomes, strict=True):
        if outcome is not None:
            result.error_code = code_of(outcome)
            result.error_message = str(outcome) or None
    return DeleteTopicsResponse(responses=list(results.values()))


async def _at_rest(call: Call, asked: DeleteTopicState) -> Topic:
    """The topic to delete, when no change of its settings is under way."""
    topic = _find(call, asked)
    while (pending := call.broker.cluster.altering(topic.name)) is not None:
        await kept(call, pending)
        topic = _find(call, asked)
    return topic


def _find(call: Call, asked: DeleteTopicState) -> Topic:
    """The topic to delete; who may not even know of it learns no more than that."""
    by_id = asked.topic_id != ZERO_UUID
    if by_id == (asked.name is not None):
        raise InvalidRequest("a topic is named by its name or by its id")
    cluster = call.broker.cluster
    topic: Topic | None
    if asked.name is not None:
        try:
            name = parse_kafka(asked.name)
        except InvalidName as error:
            raise UnknownTopic("no topic can have this name") from error
        topic = cluster.find(name)
    else:
        topic = cluster.topic_by_id(asked.topic_id)
        name = topic.name
        if not call.may(Operation.DESCRIBE, ResourceKind.TOPIC, name):
            raise UnknownTopicId("no topic has this id")
    if not call.allowed(name):
        raise AccessDenied(Operation.DELETE, Resource(ResourceKind.TOPIC, str(name)))
    return topic if topic is not None else cluster.topic(name)


# ---- both


def check_request(call: Call, before: int, mentioned: int) -> None:
    """Refuse a topic that the request names twice, or that is one too many."""
    most = call.door.settings.topics_per_request_max
    if before >= most:
        raise InvalidRequest(f"a request may name {most} topics")
    if mentioned > 1:
        raise InvalidRequest("the request names this topic more than once")


def carry_out(call: Call, commit: Commit[Any]) -> Promise[Any]:
    """Have a commit carried out by a task of the door; its promise tells how it went."""

    async def work() -> None:
        try:
            await call.door.commit(commit)
        except BrokerError:
            return  # told by the promise

    call.door.spawn(work())
    return commit.done


async def kept(call: Call, promise: Promise[Any]) -> None:
    """Wait until a promise is settled, either way."""
    if promise.done:
        return
    future: asyncio.Future[None] = call.door.loop.create_future()

    def settle(_promise: Promise[Any]) -> None:
        if not future.done():
            future.set_result(None)

    promise.then(settle)
    await future


async def all_kept(
    call: Call, promises: list[Promise[Any]], timeout_ms: int
) -> list[BaseException | None]:
    """Wait for all; what is not settled in time is a TimeoutError, and goes on."""
    timeout_ms = max(0, min(timeout_ms, call.door.settings.topics_timeout_max_ms))
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            for promise in promises:
                await kept(call, promise)
    except TimeoutError:
        pass
    return [
        promise.error if promise.done else TimeoutError("not recorded in time; it goes on")
        for promise in promises
    ]
