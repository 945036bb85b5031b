"""DescribeProducers v0: the idempotent producers of partitions (KIP-664).

Needs READ on the topic (29). The timestamp of a producer's last batch is its append time by the
broker's clock; an open transaction is shown by its first offset. Every node answers for every
partition, as a replica of Kafka does: the owner is asked where it is another node, and 6 (not
leader) says that it did not answer.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Iterator, Sequence
from typing import Any

from trilogue.broker.errors import BrokerError
from trilogue.broker.node_requests import ProducerRow, ProducerRows
from trilogue.broker.producers.described import describe_producers
from trilogue.broker.topics.topic import Topic
from trilogue.gateway.kafka.context import RequestContext
from trilogue.gateway.kafka.errors import to_error_code
from trilogue.gateway.steps import begin_steps, wait_until_settled
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
NO_COORDINATOR = -1

Remote = list[tuple[int, PartitionResponse]]  # partition ids of other nodes, and what is missing


def handle_describe_producers(
    context: RequestContext, request: DescribeProducersRequest
) -> DescribeProducersResponse | Coroutine[Any, Any, DescribeProducersResponse]:
    """Describe the producers of each requested partition once."""
    remote: Remote = []
    described = begin_steps(_describe(context, request, remote))
    if isinstance(described, DescribeProducersResponse) and not remote:
        return described
    return _complete(context, described, remote)


async def _complete(
    context: RequestContext,
    described: DescribeProducersResponse | Coroutine[Any, Any, DescribeProducersResponse],
    remote: Remote,
) -> DescribeProducersResponse:
    """Add what the owners of other partitions answer."""
    if not isinstance(described, DescribeProducersResponse):
        described = await described
    for partition_id, result in remote:
        await _add_rows(context, partition_id, result)
    return described


async def _add_rows(context: RequestContext, partition_id: int, result: PartitionResponse) -> None:
    after = -1
    is_last = False
    while not is_last:
        async with context.gateway.lists_of_others:
            promise = context.broker.node_producers.request(partition_id, after)
            await wait_until_settled(promise)
        if promise.error is not None:
            result.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            result.error_message = str(promise.error)
            result.active_producers = []
            return
        found = promise.result()
        assert isinstance(found, ProducerRows)
        result.active_producers += _states(found.rows)
        is_last = found.is_last
        after = found.rows[-1].producer_id if found.rows else after


def _describe(
    context: RequestContext, request: DescribeProducersRequest, remote: Remote
) -> Steps[DescribeProducersResponse]:
    requested: dict[str, dict[int, None]] = {}
    for each in request.topics:
        requested.setdefault(each.name, {}).update(dict.fromkeys(each.partition_indexes))
    response = DescribeProducersResponse(topics=[])
    work = 0
    for name, indexes in requested.items():
        topic = TopicResponse(name=name)
        response.topics.append(topic)
        for result in _describe_partitions(context, name, indexes, remote):
            topic.partitions.append(result)
            work += 1 + len(result.active_producers)
            if work >= WORK_PER_STEP:
                work = 0
                yield
    return response


def _describe_partitions(
    context: RequestContext, name: str, indexes: Iterable[int], remote: Remote
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
            if not 0 <= index < len(topic.partitions):
                result.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif (partition := topic.partitions[index]).is_remote:
                remote.append((partition.partition_id, result))
            else:
                result.active_producers = _states(describe_producers(partition))
        yield result


def _states(rows: Sequence[ProducerRow]) -> list[ProducerState]:
    return [
        ProducerState(
            producer_id=each.producer_id,
            producer_epoch=each.epoch,
            last_sequence=each.last_sequence,
            last_timestamp=each.active_ms,
            coordinator_epoch=NO_COORDINATOR,
            current_txn_start_offset=each.transaction_offset,
        )
        for each in rows
    ]
