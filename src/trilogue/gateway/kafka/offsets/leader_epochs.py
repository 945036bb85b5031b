"""OffsetForLeaderEpoch v0-v4: the end offset of a leader epoch.

v1 the epoch in the response · v2 current leader epoch (74, 75) · v3 replica id · v4 flexible.

A consumer sends it when it learns of a new epoch (here: after a restart of the node), to find out
whether its log was truncated. Here it never is: only synced records are readable. Epochs begin at
1; 0, which programs send that were told none, is taken for the present one. Epochs that ended in
segments are looked up in the executor. Followers (replica id >= 0) send it before they copy a
partition, at the internal listener; at the others they are refused.
"""

from __future__ import annotations

from collections.abc import Coroutine
from functools import partial
from typing import Any

from trilogue.broker.topics.topic import Topic
from trilogue.gateway.kafka.context import RequestContext
from trilogue.gateway.kafka.errors import EXPECTED, to_error_code
from trilogue.gateway.kafka.offsets.topic_results import PARTITIONS_PER_STEP, build_topic_results
from trilogue.gateway.steps import begin_steps
from trilogue.log.partition_lookups import EpochEnd, SegmentLookup
from trilogue.log.steps import Steps
from trilogue.wire.kafka.offsets.leader_epochs import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
    OffsetForLeaderTopicResult,
)

Searches = list[tuple[EpochEndOffset, SegmentLookup[EpochEnd]]]


def handle_offset_for_leader_epoch(
    context: RequestContext, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse | Coroutine[Any, Any, OffsetForLeaderEpochResponse]:
    """Respond at once, unless a segment has to be searched or there are many partitions."""
    searches: Searches = []
    found = begin_steps(_steps(context, request, searches))
    if isinstance(found, OffsetForLeaderEpochResponse) and not searches:
        return found
    return _search(context, found, searches)


def _steps(
    context: RequestContext, request: OffsetForLeaderEpochRequest, searches: Searches
) -> Steps[OffsetForLeaderEpochResponse]:
    is_follower = request.replica_id >= 0
    build = partial(_topic, context, searches=searches, is_follower=is_follower)
    return OffsetForLeaderEpochResponse(
        topics=(yield from build_topic_results(request.topics, build))
    )


def _topic(
    context: RequestContext,
    requested: OffsetForLeaderTopic,
    *,
    searches: Searches,
    is_follower: bool,
) -> Steps[OffsetForLeaderTopicResult]:
    topic, code = context.find_topic_for_replica(requested.topic, is_follower=is_follower)
    answer = OffsetForLeaderTopicResult(topic=requested.topic)
    for count, each in enumerate(requested.partitions, 1):
        result = EpochEndOffset(partition=each.partition, error_code=code)
        answer.partitions.append(result)
        if topic is not None:
            try:
                _partition(topic, each, result, searches)
            except EXPECTED as problem:
                result.error_code = to_error_code(problem)
        if count % PARTITIONS_PER_STEP == 0:
            yield
    return answer


def _partition(
    topic: Topic,
    requested: OffsetForLeaderPartition,
    result: EpochEndOffset,
    searches: Searches,
) -> None:
    partition = topic.partition(requested.partition)
    partition.check_epoch(requested.current_leader_epoch)
    found = partition.log.epoch_end(requested.leader_epoch or partition.owner_epoch)
    if isinstance(found, SegmentLookup):
        searches.append((result, found))
    else:
        result.leader_epoch, result.end_offset = found


async def _search(
    context: RequestContext,
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

    outcomes = await context.gateway.loop.run_in_executor(context.gateway.executor, run)
    for (result, _), outcome in zip(searches, outcomes, strict=True):
        if isinstance(outcome, Exception):
            result.error_code = to_error_code(outcome)
        else:
            result.leader_epoch, result.end_offset = outcome
    return response
