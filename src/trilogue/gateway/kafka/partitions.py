"""CreatePartitions v0-v3: give topics more partitions.

v1, v3 the same · v2 flexible. Each topic has its own outcome: 3 no such topic, 37 a number that is
no increase, too large, or of a topic without numbered partitions, 39 assignments that are not one
for each new partition, on this node. Partitions that are there keep their numbers and messages.
Pulsar's subscriptions of the topic get the new ones before the client is answered. Growing goes on
when the client's time is over (7). Each new partition counts against the client's quota of changes
(KIP-599): from v3 on what is too much is refused (89).
"""

from __future__ import annotations

import asyncio
from collections import Counter

from trilogue.broker.access import Resource
from trilogue.broker.commit import Commit
from trilogue.broker.errors import AccessDenied, InvalidName, UnknownTopic
from trilogue.broker.growth import subscribe_new
from trilogue.broker.promise import Promise
from trilogue.broker.topic import Topic
from trilogue.gateway.kafka.errors import EXPECTED, code_of
from trilogue.gateway.kafka.shared import Call
from trilogue.gateway.kafka.topics import YIELD_EVERY, all_kept, check_request, kept
from trilogue.wire.kafka.partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

STRICT_SINCE = 3  # KIP-599: told that it is too much


async def create(call: Call, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    """Let every topic grow that can."""
    mentioned = Counter(topic.name for topic in request.topics)
    results: dict[str, CreatePartitionsTopicResult] = {}
    waiting: list[tuple[CreatePartitionsTopicResult, Promise[None]]] = []
    for asked in request.topics:
        if asked.name in results:
            continue
        if len(results) % YIELD_EVERY == YIELD_EVERY - 1:
            await asyncio.sleep(0)
        result = results[asked.name] = CreatePartitionsTopicResult(name=asked.name)
        try:
            check_request(call, len(results) - 1, mentioned[asked.name])
            if request.validate_only:
                _check(call, asked)
            else:
                waiting.append((result, await _grow(call, asked)))
        except EXPECTED as problem:
            _refuse(result, problem)
    outcomes = await all_kept(call, [promise for _, promise in waiting], request.timeout_ms)
    for (result, _), outcome in zip(waiting, outcomes, strict=True):
        if outcome is not None:
            _refuse(result, outcome)
    return CreatePartitionsResponse(results=list(results.values()))


async def _grow(call: Call, asked: CreatePartitionsTopic) -> Promise[None]:
    """Decide to let a topic grow, when no other change of it is under way."""
    cluster = call.broker.cluster
    topic = _check(call, asked)
    while (pending := cluster.altering(topic.name)) is not None:
        await kept(call, pending)
        topic = _check(call, asked)
    more = asked.count - len(topic.partitions)
    call.changed(more, strict=call.version >= STRICT_SINCE)
    commit = cluster.plan_grow(topic.name, asked.count)
    grown: Promise[None] = Promise()
    call.door.spawn(_carry_out(call, commit, len(topic.partitions), grown))
    return grown


async def _carry_out(call: Call, commit: Commit[Topic], first: int, grown: Promise[None]) -> None:
    try:
        await call.door.commit(commit)
        for made in subscribe_new(call.broker.subscriptions, commit.done.result(), first):
            await kept(call, made)
    except EXPECTED as problem:
        grown.set_error(problem)
    else:
        grown.set_result(None)


def _check(call: Call, asked: CreatePartitionsTopic) -> Topic:
    """The topic that is meant, if it may grow so."""
    try:
        topic = call.door.topic(asked.name)
    except InvalidName as error:
        raise UnknownTopic("no topic can have this name") from error
    if not call.allowed(topic.name):
        raise AccessDenied(call.operation, Resource(call.kind, str(topic.name)))
    assignments = asked.assignments
    nodes = None if assignments is None else [each.broker_ids for each in assignments]
    call.broker.cluster.check_grow(topic.name, asked.count, nodes)
    return topic


def _refuse(result: CreatePartitionsTopicResult, problem: BaseException) -> None:
    result.error_code = code_of(problem)
    result.error_message = str(problem) or None
