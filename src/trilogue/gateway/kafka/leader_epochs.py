"""OffsetForLeaderEpoch v0-v4: where an epoch of a partition's leader ended.

v1 says which epoch it is about · v2 the epoch a client knows (74, 75) · v3 who asks · v4 flexible.

A consumer asks when it learns of a new epoch (here: the node was started anew): did what it has
read survive? It did where the epoch that it read last ended at its position or behind, which is
always so with us: nobody is shown what is not durable. Epochs that ended in segments are looked up
in the executor. Followers (replica id >= 0) are refused: there are none.
"""

from __future__ import annotations

from collections.abc import Coroutine
from functools import partial
from typing import Any

from trilogue.broker.topic import Topic
from trilogue.gateway.kafka.by_topic import AT_ONCE, by_topic
from trilogue.gateway.kafka.errors import EXPECTED, code_of
from trilogue.gateway.kafka.shared import Call
from trilogue.gateway.turns import at_once_or_in_turns
from trilogue.log.lookups import EpochEnd, Later
from trilogue.log.steps import Steps
from trilogue.wire.kafka.errors import ErrorCode
from trilogue.wire.kafka.leader_epochs import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
    OffsetForLeaderTopicResult,
)

Searches = list[tuple[EpochEndOffset, Later[EpochEnd]]]


def handle(
    call: Call, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse | Coroutine[Any, Any, OffsetForLeaderEpochResponse]:
    """Answer at once unless a segment has to be asked, or there is much to be looked at."""
    searches: Searches = []
    found = at_once_or_in_turns(_steps(call, request, searches))
    if isinstance(found, OffsetForLeaderEpochResponse) and not searches:
        return found
    return _search(call, found, searches)


def _steps(
    call: Call, request: OffsetForLeaderEpochRequest, searches: Searches
) -> Steps[OffsetForLeaderEpochResponse]:
    is_follower = request.replica_id >= 0
    tell = partial(_topic, call, searches=searches, is_follower=is_follower)
    return OffsetForLeaderEpochResponse(topics=(yield from by_topic(request.topics, tell)))


def _topic(
    call: Call, asked: OffsetForLeaderTopic, *, searches: Searches, is_follower: bool
) -> Steps[OffsetForLeaderTopicResult]:
    topic, code = call.find_topic(asked.topic)
    if topic is not None and is_follower:
        topic, code = None, ErrorCode.TOPIC_AUTHORIZATION_FAILED
    answer = OffsetForLeaderTopicResult(topic=asked.topic)
    for count, each in enumerate(asked.partitions, 1):
        result = EpochEndOffset(partition=each.partition, error_code=code)
        answer.partitions.append(result)
        if topic is not None:
            try:
                _partition(topic, each, result, searches)
            except EXPECTED as problem:
                result.error_code = code_of(problem)
        if count % AT_ONCE == 0:
            yield
    return answer


def _partition(
    topic: Topic,
    asked: OffsetForLeaderPartition,
    result: EpochEndOffset,
    searches: Searches,
) -> None:
    partition = topic.partition(asked.partition)
    partition.check_epoch(asked.current_leader_epoch)
    found = partition.log.epoch_end(asked.leader_epoch)
    if isinstance(found, Later):
        searches.append((result, found))
    else:
        result.leader_epoch, result.end_offset = found


async def _search(
    call: Call,
    found: OffsetForLeaderEpochResponse | Coroutine[Any, Any, OffsetForLeaderEpochResponse],
    searches: Searches,
) -> OffsetForLeaderEpochResponse:
    response = found if isinstance(found, OffsetForLeaderEpochResponse) else await found
    if not searches:
        return response

    def run() -> list[EpochEnd | Exception]:
        outcomes: list[EpochEnd | Exception] = []
        for _, later in searches:
            try:
                outcomes.append(later.run())
            except (*EXPECTED, OSError) as problem:
                outcomes.append(problem)
        return outcomes

    outcomes = await call.door.loop.run_in_executor(call.door.executor, run)
    for (result, _), outcome in zip(searches, outcomes, strict=True):
        if isinstance(outcome, Exception):
            result.error_code = code_of(outcome)
        else:
            result.leader_epoch, result.end_offset = outcome
    return response
