"""DescribeProducers v0: what partitions know of their idempotent producers (KIP-664).

Who may READ a topic is told; others get 29. The time of a producer's last batch is when it was
appended, by the server's clock. Transactions are not served, so no producer has one open.
"""

from __future__ import annotations

import asyncio

from trilogue.broker.access import Resource
from trilogue.broker.errors import AccessDenied, BrokerError
from trilogue.broker.partition import Partition
from trilogue.broker.topic import Topic
from trilogue.gateway.kafka.errors import code_of
from trilogue.gateway.kafka.shared import Call
from trilogue.wire.kafka.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicRequest,
    TopicResponse,
)
from trilogue.wire.kafka.errors import ErrorCode

YIELD_EVERY = 100  # partitions that are looked at in one go, before others may use the loop
NO_COORDINATOR = NO_TRANSACTION = -1


async def handle(call: Call, request: DescribeProducersRequest) -> DescribeProducersResponse:
    """Tell of the producers of each partition."""
    return DescribeProducersResponse(topics=[await _topic(call, each) for each in request.topics])


async def _topic(call: Call, asked: TopicRequest) -> TopicResponse:
    answer = TopicResponse(name=asked.name)
    topic: Topic | None = None
    code, what = ErrorCode.NONE, None
    try:
        topic = call.door.topic(asked.name)
        if not call.allowed(topic.name):
            raise AccessDenied(call.operation, Resource(call.kind, str(topic.name)))
    except BrokerError as problem:
        topic, code, what = None, code_of(problem), str(problem)
    for number, index in enumerate(asked.partition_indexes, 1):
        if number % YIELD_EVERY == 0:
            await asyncio.sleep(0)
        result = PartitionResponse(partition_index=index, error_code=code, error_message=what)
        if topic is not None:
            if 0 <= index < len(topic.partitions):
                result.active_producers = _producers(topic.partitions[index])
            else:
                result.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        answer.partitions.append(result)
    return answer


def _producers(partition: Partition) -> list[ProducerState]:
    return [
        ProducerState(
            producer_id=each.producer_id,
            producer_epoch=each.epoch,
            last_sequence=each.last_sequence,
            last_timestamp=each.active_ms,
            coordinator_epoch=NO_COORDINATOR,
            current_txn_start_offset=NO_TRANSACTION,
        )
        for each in partition.producers.active()
    ]
