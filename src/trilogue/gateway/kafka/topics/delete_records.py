"""DeleteRecords v0-v2: advance the start offset of partitions.

v1 unchanged · v2 flexible. Each partition has its own result: 3 no such partition, 1 an offset
above the high watermark, 44 a topic that is only compacted. An offset below the start offset
changes nothing and is no error. All valid deletions are recorded in one change of `meta`. The
request's timeout is for replicas: a single Kafka broker answers 0 even with timeout 0, so only a
change that exceeds the gateway's own limit is 7, and goes on.
"""

from __future__ import annotations

from trilogue.broker.errors import InvalidName, UnknownTopic
from trilogue.broker.topics.delete_records import (
    Deletion,
    check_delete_records,
    plan_delete_records,
)
from trilogue.broker.topics.topic import Topic
from trilogue.gateway.kafka.context import RequestContext
from trilogue.gateway.kafka.errors import EXPECTED, to_error_code
from trilogue.gateway.kafka.metadata_changes import start_change, wait_for_all
from trilogue.gateway.steps import next_step
from trilogue.wire.kafka.topics.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
    DeleteRecordsTopicResult,
)

NO_OFFSET = -1
HIGH_WATERMARK = -1  # as an offset in the request: delete every record
YIELD_EVERY = 1_000  # partitions per loop iteration

Waiting = list[tuple[DeleteRecordsPartitionResult, Deletion]]


async def handle_delete_records(
    context: RequestContext, request: DeleteRecordsRequest
) -> DeleteRecordsResponse:
    """Delete records of each valid partition."""
    waiting: Waiting = []
    response = DeleteRecordsResponse(
        topics=[await _check_topic(context, requested, waiting) for requested in request.topics]
    )
    if waiting:
        change = plan_delete_records([deletion for _, deletion in waiting])
        limit_ms = context.gateway.settings.topics_timeout_max_ms
        (problem,) = await wait_for_all(context, [start_change(context, change)], limit_ms)
        if problem is None:
            moved = [partition.partition_id for _, (partition, _) in waiting]
            context.broker.subscriptions.on_starts_moved(moved)
        for result, (partition, _) in waiting:
            if problem is not None:
                result.error_code = to_error_code(problem)
            elif partition.deleted:
                result.error_code = to_error_code(UnknownTopic())
            else:
                result.low_watermark = partition.log.start_offset
    return response


async def _check_topic(
    context: RequestContext, requested: DeleteRecordsTopic, waiting: Waiting
) -> DeleteRecordsTopicResult:
    answer = DeleteRecordsTopicResult(name=requested.name)
    found: Topic | None = None
    problem: BaseException | None = None
    try:
        found = _find_topic(context, requested.name)
    except EXPECTED as error:
        problem = error.with_traceback(None)  # it would keep this frame, with all partitions
    for number, each in enumerate(requested.partitions, 1):
        if number % YIELD_EVERY == 0:
            await next_step()
        result = DeleteRecordsPartitionResult(
            partition_index=each.partition_index, low_watermark=NO_OFFSET
        )
        answer.partitions.append(result)
        if found is not None:
            before_offset = None if each.offset == HIGH_WATERMARK else each.offset
            try:
                deletion = check_delete_records(found, each.partition_index, before_offset)
            except EXPECTED as error:
                result.error_code = to_error_code(error)
            else:
                waiting.append((result, deletion))
        elif problem is not None:
            result.error_code = to_error_code(problem)
    return answer


def _find_topic(context: RequestContext, name: str) -> Topic:
    try:
        return context.require_topic(context.operation, name)
    except InvalidName as error:
        raise UnknownTopic("no topic can have this name") from error
