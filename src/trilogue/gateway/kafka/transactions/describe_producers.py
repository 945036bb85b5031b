"""DescribeProducers v0: the idempotent producers of partitions (KIP-664).

Needs READ on the topic (29). The timestamp of a producer's last batch is its append time by the
broker's clock; an open transaction is shown by its first offset.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Iterator
from typing import Any

from trilogue.broker.errors import BrokerError
from trilogue.broker.topics.partition import Partition
from trilogue.broker.topics.topic import Topic
from trilogue.gateway.kafka.context import RequestContext
from trilogue.gateway.kafka.errors import to_error_code
from trilogue.gateway.steps import begin_steps
from trilogue.log.steps import Steps
from trilogue.wire.kafka.errors import ErrorCode
from trilogue.wire.kafka.transactions.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)

WORK_PER_STEP = 500  # partitions and producers
NO_COORDINATOR = NO_TRANSACTION = NO_SEQUENCE = NO_TIME = -1


def handle_describe_producers(
    context: RequestContext, request: DescribeProducersRequest
) -> DescribeProducersResponse | Coroutine[Any, Any, DescribeProducersResponse]:
    """Describe the producers of each requested partition once."""
    return begin_steps(_describe(context, request))


def _describe(
    context: RequestContext, request: DescribeProducersRequest
) -> Steps[DescribeProducersResponse]:
    requested: dict[str, dict[int, None]] = {}
    for each in request.topics:
        requested.setdefault(each.name, {}).update(dict.fromkeys(each.partition_indexes))
    response = DescribeProducersResponse(topics=[])
    work = 0
    for name, indexes in requested.items():
        topic = TopicResponse(name=name)
        response.topics.append(topic)
        for result in _describe_partitions(context, name, indexes):
            topic.partitions.append(result)
            work += 1 + len(result.active_producers)
            if work >= WORK_PER_STEP:
                work = 0
                yield
    return response


def _describe_partitions(
    context: RequestContext, name: str, indexes: Iterable[int]
) -> Iterator[PartitionResponse]:
    topic: Topic | None = None
    code, message = ErrorCode.NONE, None
    try:
        topic = context.require_topic(context.operation, name)
    except BrokerError as problem:
        topic, code, message = None, to_error_code(problem), str(problem)
    for index in indexes:
        result = PartitionResponse(partition_index=index, error_code=code, error_message=message)
        if topic is not None:
            if 0 <= index < len(topic.partitions):
                result.active_producers = _producers(topic.partitions[index])
            else:
                result.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        yield result


def _producers(partition: Partition) -> list[ProducerState]:
    """Return the producers, and after them those of which only an open transaction is known.

    These are Pulsar's, whose epoch is 0, and those that were idle longest when there were too many:
    tools that abort a hanging transaction find it here.
    """
    ongoing = dict(partition.log.open_transactions)
    found = [
        ProducerState(
            producer_id=each.producer_id,
            producer_epoch=each.epoch,
            last_sequence=each.last_sequence,
            last_timestamp=each.active_ms,
            coordinator_epoch=NO_COORDINATOR,
            current_txn_start_offset=ongoing.pop(each.producer_id, NO_TRANSACTION),
        )
        for each in partition.producers.active()
    ]
    found += [
        ProducerState(
            producer_id=producer_id,
            producer_epoch=0,
            last_sequence=NO_SEQUENCE,
            last_timestamp=NO_TIME,
            coordinator_epoch=NO_COORDINATOR,
            current_txn_start_offset=offset,
        )
        for producer_id, offset in ongoing.items()
    ]
    return found
