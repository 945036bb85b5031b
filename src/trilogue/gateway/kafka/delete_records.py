"""DeleteRecords v0-v2: let partitions start at a later offset.

v1 the same · v2 flexible. Each partition has its own outcome: 3 no such partition, 1 an offset
beyond the high watermark, 44 a topic that is only compacted. An offset below the first one changes
nothing and is no error. What is possible becomes true in one commit of meta. The client's time is
that for which other copies are waited for: a single broker answers 0 where it is 0, and only a
commit that takes longer than a door waits at all ends in 7, and goes on.
"""

from __future__ import annotations

import asyncio

from trilogue.broker.access import Resource
from trilogue.broker.delete_records import Deletion, check_delete_records, plan_delete_records
from trilogue.broker.errors import AccessDenied, InvalidName, UnknownTopic
from trilogue.broker.topic import Topic
from trilogue.gateway.kafka.errors import EXPECTED, code_of
from trilogue.gateway.kafka.shared import Call
from trilogue.gateway.kafka.topics import all_kept, carry_out
from trilogue.wire.kafka.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
    DeleteRecordsTopicResult,
)

NO_OFFSET = -1
YIELD_EVERY = 1_000  # partitions that are looked at in one go, before others may use the loop

Waiting = list[tuple[DeleteRecordsPartitionResult, Deletion]]


async def handle(call: Call, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    """Delete what can be deleted."""
    waiting: Waiting = []
    response = DeleteRecordsResponse(
        topics=[await _topic(call, asked, waiting) for asked in request.topics]
    )
    if waiting:
        commit = plan_delete_records([deletion for _, deletion in waiting])
        limit_ms = call.door.settings.topics_timeout_max_ms
        (problem,) = await all_kept(call, [carry_out(call, commit)], limit_ms)
        if problem is None:
            moved = [partition.partition_id for _, (partition, _) in waiting]
            call.broker.subscriptions.started_later(moved)
        for result, (partition, _) in waiting:
            if problem is not None:
                result.error_code = code_of(problem)
            elif partition.deleted:
                result.error_code = code_of(UnknownTopic())
            else:
                result.low_watermark = partition.log.start_offset
    return response


async def _topic(
    call: Call, asked: DeleteRecordsTopic, waiting: Waiting
) -> DeleteRecordsTopicResult:
    answer = DeleteRecordsTopicResult(name=asked.name)
    found: Topic | None = None
    problem: BaseException | None = None
    try:
        found = _find(call, asked.name)
    except EXPECTED as error:
        problem = error
    for number, each in enumerate(asked.partitions, 1):
        if number % YIELD_EVERY == 0:
            await asyncio.sleep(0)
        result = DeleteRecordsPartitionResult(
            partition_index=each.partition_index, low_watermark=NO_OFFSET
        )
        answer.partitions.append(result)
        if found is not None:
            try:
                deletion = check_delete_records(found, each.partition_index, each.offset)
            except EXPECTED as error:
                result.error_code = code_of(error)
            else:
                waiting.append((result, deletion))
        elif problem is not None:
            result.error_code = code_of(problem)
    return answer


def _find(call: Call, name: str) -> Topic:
    try:
        topic = call.door.topic(name)
    except InvalidName as error:
        raise UnknownTopic("no topic can have this name") from error
    if not call.allowed(topic.name):
        raise AccessDenied(call.operation, Resource(call.kind, str(topic.name)))
    return topic
