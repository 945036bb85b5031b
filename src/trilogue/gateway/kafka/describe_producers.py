"""DescribeProducers v0: what partitions know of their idempotent producers (KIP-664).

Who may READ a topic is told; others get 29. The time of a producer's last batch is when it was
appended, by the server's clock. Transactions are not served, so no producer has one open.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

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
    TopicResponse,
)
from trilogue.wire.kafka.errors import ErrorCode

YIELD_EVERY = 1_000  # partitions and producers in one go, before others may use the loop
NO_COORDINATOR = NO_TRANSACTION = -1


async def handle(call: Call, request: DescribeProducersRequest) -> DescribeProducersResponse:
    """Tell of the producers of each partition, once: there may be many."""
    asked: dict[str, dict[int, None]] = {}
    for each in request.topics:
        asked.setdefault(each.name, {}).update(dict.fromkeys(each.partition_indexes))
    return DescribeProducersResponse(
        topics=[await _topic(call, name, indexes) for name, indexes in asked.items()]
    )


async def _topic(call: Call, name: str, indexes: Iterable[int]) -> TopicResponse:
    answer = TopicResponse(name=name)
    topic: Topic | None = None
    code, what = ErrorCode.NONE, None
    try:
        topic = call.door.topic(name)
        if not call.allowed(topic.name):
            raise AccessDenied(call.operation, Resource(call.kind, str(topic.name)))
    except BrokerError as problem:
        topic, code, what = None, code_of(problem), str(problem)
    told = 0
    for index in indexes:
        if told >= YIELD_EVERY:
            told = 0
            await asyncio.sleep(0)
        result = PartitionResponse(partition_index=index, error_code=code, error_message=what)
        if topic is not None:
            if 0 <= index < len(topic.partitions):
                result.active_producers = _producers(topic.partitions[index])
            else:
                result.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        told += 1 + len(result.active_producers)
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
