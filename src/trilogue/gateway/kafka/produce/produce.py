"""Produce v0-v13: append record batches, respond when they are durable.

v1 throttle time · v2 append times · v3 batches, transactions · v5 log start · v7 zstd · v8 error
messages · v9 flexible · v10 current leaders (left empty: there is one node) · v13 topics by id.
v0-v2 carry message sets, or a batch, which Kafka accepts too; message sets are stored as batches.

acks=1 and acks=all (-1) are the same: one durable copy. Topics with `flush=interval` are
acknowledged from memory, unless another topic of the same request requires the commit. acks=0 has
no response; when such a request fails the broker closes the connection, as Kafka does, so that
the client notices.
From v3 on each partition gets exactly one batch. A transactional batch needs WRITE on the
transactional id (53) and belongs to its ongoing transaction (48, 120 since v11), which from v12 on
it joins by itself (KIP-890). One whose coordinator is another node waits for it
(joined_produce.py).

A batch whose records must be read before the append (broker/topics/batch_validation.py) is
validated in the executor unless it is small. Meanwhile the connection accepts no other request, so
that the order of appends is the order of requests.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from trilogue.broker.access.authorizer import Operation, Resource, ResourceKind
from trilogue.broker.errors import (
    AccessDenied,
    BrokerError,
    InvalidRecord,
    InvalidTimestamp,
    InvalidTransactionState,
    ProducerFenced,
    StaleProducerEpoch,
    TooLarge,
    TransactionAborted,
    UnknownTopic,
    UnknownTopicId,
    UnsupportedCompression,
)
from trilogue.broker.settings.topic_settings import TopicSettings
from trilogue.broker.topics.batch_validation import ValidatedBatch, validate_batch
from trilogue.broker.topics.partition import Partition
from trilogue.broker.topics.topic import Topic
from trilogue.broker.transactions.coordinator import ProducerIdentity, TransactionCoordinator
from trilogue.entry.entry import CODEC_MASK, TRANSACTIONAL, Codec, EntryError
from trilogue.entry.header import CODEC_AT, HEADER_SIZE, MAGIC, MAGIC_AT
from trilogue.entry.kafka.message_set_conversion import is_message_set
from trilogue.entry.kafka.record_batch import DECOMPRESSED_LIMIT, check_produced
from trilogue.gateway.kafka.context import (
    DurableResponse,
    GatewayContext,
    RequestContext,
    wait_for_commit,
)
from trilogue.gateway.kafka.errors import to_error_code
from trilogue.gateway.memory_budget import WorkMemory
from trilogue.gateway.reply_queue import BufferedReply
from trilogue.gateway.stream import Close
from trilogue.wire.kafka.errors import ErrorCode
from trilogue.wire.kafka.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

if TYPE_CHECKING:
    from trilogue.gateway.kafka.produce.joined_produce import Joins

NO_RESPONSE, LEADER, ALL = 0, 1, -1
IDS_SINCE, ZSTD_SINCE = 13, 7
ADDS_SINCE = 12  # a batch adds its partition to the transaction (KIP-890)
MESSAGE_SETS_UNTIL = 2  # the last version that carries message sets
ABORTABLE_SINCE = 11  # a batch of a partition that was not added ends only its transaction
STORAGE_ERROR_SINCE = 4  # earlier versions do not have KAFKA_STORAGE_ERROR
# Limits for validation on the event loop: partitions of a request, bytes of a batch as sent, bytes
# decompressed, and fewer of these if the topic compresses. Larger batches are validated in the
# executor, in runs of about EXECUTOR_BYTES.
PARTS_ON_LOOP = 4
ON_LOOP, UNCOMPRESSED_ON_LOOP, COMPRESSED_ON_LOOP = 8 << 10, 16 << 10, 4 << 10
EXECUTOR_BYTES = 64 << 10


class DeferredBatch(NamedTuple):
    """The records for one partition that the executor validates, and their response."""

    partition: Partition
    records: bytes
    settings: TopicSettings
    answer: PartitionProduceResponse


class ProduceContext(msgspec.Struct):
    """The version and time of a request, and its batches that the executor validates."""

    version: int
    now_ms: int
    deferred: list[DeferredBatch]
    call: RequestContext
    validated_parts: int = 0  # partitions validated on the event loop
    transactional_id: str | None = None
    transactions: TransactionCoordinator | None = None
    refusals: dict[int, BrokerError] | None = (
        None  # of the coordinator of the transaction, on another node
    )


Answer = (
    DurableResponse | ProduceResponse | None | Coroutine[Any, Any, ProduceResponse | BufferedReply]
)


def handle_produce(call: RequestContext, request: ProduceRequest) -> Answer:
    """Append all batches, then wait for the commit unless all topics ack from memory."""
    name = request.transactional_id
    if name is not None and not call.broker.transactions.coordinates(name):
        from trilogue.gateway.kafka.produce.joined_produce import copy_records, find_joins

        find_ids = partial(_find_partition_ids, call)
        joins = find_joins(call, request, name, find_ids, adds=call.version >= ADDS_SINCE)
        if joins:
            copy_records(request)
            return _produce_joined(call, request, joins)
    return _produce(call, request)


async def _produce_joined(
    call: RequestContext, request: ProduceRequest, joins: Joins
) -> ProduceResponse | BufferedReply:
    """Do the same when the coordinator has confirmed the partitions."""
    from trilogue.gateway.kafka.produce.joined_produce import join_partitions

    answer = _produce(call, request, await join_partitions(call, joins))
    if isinstance(answer, DurableResponse):
        failure = await wait_for_commit(call.gateway)
        if failure is not None:
            replace_by_error(answer.response, to_error_code(failure), version=call.version)
        response: ProduceResponse = answer.response
        return response
    if isinstance(answer, ProduceResponse):
        return answer
    return BufferedReply([]) if answer is None else await answer


def _find_partition_ids(call: RequestContext, data: TopicProduceData) -> dict[int, int]:
    """Return the ids of the partitions of a topic that this node owns, by index."""
    try:
        topic = find_topic(call, data)
    except BrokerError:
        return {}
    if not call.is_allowed(topic.name):
        return {}
    partitions = topic.partitions
    return {
        each.index: partitions[each.index].partition_id
        for each in data.partition_data
        if 0 <= each.index < len(partitions) and not partitions[each.index].is_remote
    }


def _produce(
    call: RequestContext, request: ProduceRequest, refusals: dict[int, BrokerError] | None = None
) -> Answer:
    code = ErrorCode.NONE
    if request.acks not in {ALL, LEADER, NO_RESPONSE}:
        code = ErrorCode.INVALID_REQUIRED_ACKS
    elif request.transactional_id is not None and not call.is_allowed_to(
        Operation.WRITE, ResourceKind.TRANSACTION, request.transactional_id
    ):
        code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    context = ProduceContext(
        call.version,
        call.gateway.now_ms(),
        [],
        call,
        transactional_id=request.transactional_id,
        transactions=call.broker.transactions,
        refusals=refusals,
    )
    response = ProduceResponse()
    acks_from_memory = bool(request.topic_data)
    for data in request.topic_data:
        answer, found = _topic(call, context, data, code)
        response.responses.append(answer)
        acks_from_memory = (
            acks_from_memory and found is not None and found.partitions[0].acks_from_memory
        )
    if context.deferred:
        return _finish(call, context, request.acks, response, acks_from_memory=acks_from_memory)
    if request.acks == NO_RESPONSE:
        _close_on_error(response)
        return None
    return (
        response
        if acks_from_memory
        else DurableResponse(response, partial(replace_by_error, version=call.version))
    )


def replace_by_error(
    response: ProduceResponse, code: ErrorCode, *, version: int
) -> ProduceResponse:
    """Set the error of a failed commit for all partitions of a response without one."""
    code = downgrade_error_code(code, version)
    for topic in response.responses:
        for partition in topic.partition_responses:
            if not partition.error_code:
                partition.error_code = code
                partition.base_offset = partition.log_append_time_ms = -1
    return response


def downgrade_error_code(code: ErrorCode, version: int) -> ErrorCode:
    """Return the code that this version has.

    KAFKA_STORAGE_ERROR (56) is since v4, and TRANSACTION_ABORTABLE (120) instead of 48 since v11.
    """
    if code == ErrorCode.INVALID_TXN_STATE and version >= ABORTABLE_SINCE:
        return ErrorCode.TRANSACTION_ABORTABLE
    if code == ErrorCode.KAFKA_STORAGE_ERROR and version < STORAGE_ERROR_SINCE:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER  # clients retry on it, too
    return code


def find_topic(call: RequestContext, data: TopicProduceData) -> Topic:
    """Return the topic of a request, by name or by id."""
    if call.version < IDS_SINCE:
        return call.gateway.topic(data.name)
    return call.gateway.topic_by_id(data.topic_id)


def _require_topic(call: RequestContext, data: TopicProduceData) -> Topic:
    """Return the same if the client may write to it."""
    if call.version < IDS_SINCE:
        return call.require_topic(call.operation, data.name)
    topic = call.gateway.topic_by_id(data.topic_id)
    if not call.is_allowed(topic.name):
        raise AccessDenied(call.operation, Resource(ResourceKind.TOPIC, str(topic.name)))
    return topic


def is_zstd(records: memoryview) -> bool:
    """Whether the header of a batch names zstd, which clients of old versions cannot read."""
    return len(records) > CODEC_AT and records[CODEC_AT] & CODEC_MASK == Codec.ZSTD


def has_error(response: ProduceResponse) -> bool:
    """Whether any partition of a response has an error."""
    return any(
        each.error_code for topic in response.responses for each in topic.partition_responses
    )


def _topic(
    call: RequestContext, context: ProduceContext, data: TopicProduceData, code: ErrorCode
) -> tuple[TopicProduceResponse, Topic | None]:
    found: Topic | None = None
    if not code:
        try:
            found = _require_topic(call, data)
        except UnknownTopicId:
            code = ErrorCode.UNKNOWN_TOPIC_ID
        except AccessDenied:
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        except BrokerError:  # also for an invalid topic name
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    answer = TopicProduceResponse(
        name=data.name,
        topic_id=data.topic_id,
        partition_responses=[
            PartitionProduceResponse(index=each.index, error_code=code, base_offset=-1)
            if code or found is None
            else _partition(context, found, each)
            for each in data.partition_data
        ],
    )
    return answer, found


def _partition(
    context: ProduceContext, topic: Topic, data: PartitionProduceData
) -> PartitionProduceResponse:
    answer = PartitionProduceResponse(index=data.index, base_offset=-1)
    try:
        if not 0 <= data.index < len(topic.partitions):
            raise UnknownTopic("there is no such partition")
        partition = topic.partitions[data.index]
        records = data.records
        if not isinstance(records, memoryview):
            raise InvalidRecord("a partition takes one batch, and there is none")
        is_set = context.version <= MESSAGE_SETS_UNTIL and is_message_set(records)
        if not records:
            if context.version <= MESSAGE_SETS_UNTIL:
                return answer  # an empty message set is no error, as in Kafka
            raise InvalidRecord("a partition takes one batch, and there is none")
        if context.version < ZSTD_SINCE and not is_set and is_zstd(records):
            raise UnsupportedCompression(f"zstd is for version {ZSTD_SINCE} on")
        prepared = None
        if is_set or partition.needs_validation:
            prepared = _validate_on_loop(context, partition, records)
            if prepared is None:
                batch = DeferredBatch(partition, bytes(records), partition.settings, answer)
                context.deferred.append(batch)
                return answer
        _append(context, partition, records, prepared, answer)
    except BrokerError as problem:
        _refuse(answer, problem, context.version)
    return answer


def _validate_on_loop(
    context: ProduceContext, partition: Partition, records: memoryview
) -> ValidatedBatch | None:
    """Validate a small batch; None for a batch that is too large for the event loop."""
    if len(records) > ON_LOOP or context.validated_parts >= PARTS_ON_LOOP:
        return None
    context.validated_parts += 1
    compresses = partition.settings.compression is not None
    try:
        return validate_batch(
            records,
            partition.settings,
            now_ms=context.now_ms,
            is_old=context.version <= MESSAGE_SETS_UNTIL,
            limit=COMPRESSED_ON_LOOP if compresses else UNCOMPRESSED_ON_LOOP,
        )
    except TooLarge:
        return None


def _append(
    context: ProduceContext,
    partition: Partition,
    records: memoryview,
    prepared: ValidatedBatch | None,
    answer: PartitionProduceResponse,
) -> None:
    in_transaction = _is_transactional(records)
    if in_transaction and not partition.is_remote:  # else the client has to learn the owner
        _check_transaction(context, partition, records)
    appended = partition.append(
        records, now_ms=context.now_ms, validated=prepared, in_transaction=in_transaction
    )
    if partition.rates is not None and not appended.duplicate:
        count = partition.log.end_offset - appended.base_offset
        context.call.count_published(partition, count, len(records))
    answer.base_offset = appended.base_offset
    answer.log_append_time_ms = appended.log_append_time_ms
    answer.log_start_offset = partition.log.start_offset


def _is_transactional(records: memoryview) -> bool:
    return (
        len(records) >= HEADER_SIZE
        and records[MAGIC_AT] == MAGIC
        and bool(records[CODEC_AT] & TRANSACTIONAL)
    )


def _check_transaction(context: ProduceContext, partition: Partition, records: memoryview) -> None:
    """Check that a batch belongs to the ongoing transaction; from v12 on it adds the partition."""
    try:
        header = check_produced(records)
    except EntryError:
        return  # the append refuses it, with the reason
    name, transactions = context.transactional_id, context.transactions
    if name is None or transactions is None:
        raise AccessDenied(Operation.WRITE, Resource(ResourceKind.TRANSACTION, ""))
    try:
        if context.refusals and partition.partition_id in context.refusals:
            raise context.refusals[partition.partition_id]
        transactions.check_produce(
            name,
            ProducerIdentity(header.producer_id, header.producer_epoch),
            partition.partition_id,
            adds=context.version >= ADDS_SINCE,
        )
    except ProducerFenced as problem:
        aborted = isinstance(problem, TransactionAborted) and context.version >= ABORTABLE_SINCE
        kind = InvalidTransactionState if aborted else StaleProducerEpoch
        raise kind(str(problem)) from problem


def _refuse(answer: PartitionProduceResponse, problem: BrokerError, version: int) -> None:
    answer.error_code = downgrade_error_code(to_error_code(problem), version)
    answer.error_message = str(problem) or None
    if isinstance(problem, InvalidRecord | InvalidTimestamp):
        answer.record_errors = [
            BatchIndexAndErrorMessage(batch_index=at, batch_index_error_message=why)
            for at, why in problem.messages
        ]


async def _finish(
    call: RequestContext,
    context: ProduceContext,
    acks: int,
    response: ProduceResponse,
    *,
    acks_from_memory: bool,
) -> ProduceResponse | BufferedReply:
    """Validate the deferred batches in the executor, append them, wait for the commit."""
    gateway, stream = call.gateway, call.session.stream
    size = sum(len(each.records) for each in context.deferred)
    with WorkMemory(stream.memory.received, stream.peer[0], size) as memory:
        await _append_deferred(gateway, context, memory)
    if acks == NO_RESPONSE:
        _close_on_error(response)
        return BufferedReply([])
    if not acks_from_memory:
        failure = await wait_for_commit(gateway)
        if failure is not None:
            replace_by_error(response, to_error_code(failure), version=context.version)
    return response


async def _append_deferred(
    gateway: GatewayContext, context: ProduceContext, memory: WorkMemory
) -> None:
    size = memory.size_bytes
    for parts in _split_for_executor(context.deferred):
        async with gateway.validations.hold(gateway.validations.request(memory.address)):
            memory.resize(size + DECOMPRESSED_LIMIT)
            outcomes = await gateway.loop.run_in_executor(
                gateway.executor, _validate_deferred, context, parts
            )
            memory.resize(size)
        for (partition, records, _, answer), outcome in zip(parts, outcomes, strict=True):
            if isinstance(outcome, BrokerError):
                _refuse(answer, outcome, context.version)
                continue
            try:
                _append(context, partition, memoryview(records), outcome, answer)
            except BrokerError as problem:
                _refuse(answer, problem, context.version)
    context.deferred.clear()  # not kept until the commit


def _split_for_executor(deferred: list[DeferredBatch]) -> Iterator[list[DeferredBatch]]:
    """Yield runs of about EXECUTOR_BYTES: other requests get the executor in between."""
    share: list[DeferredBatch] = []
    size = 0
    for each in deferred:
        if share and size + len(each.records) > EXECUTOR_BYTES:
            yield share
            share, size = [], 0
        share.append(each)
        size += len(each.records)
    yield share


def _validate_deferred(
    context: ProduceContext, parts: list[DeferredBatch]
) -> list[ValidatedBatch | BrokerError]:
    """Validate batches in the executor; return a result or an error for each."""
    found: list[ValidatedBatch | BrokerError] = []
    is_old = context.version <= MESSAGE_SETS_UNTIL
    for _, records, settings, _ in parts:
        view = memoryview(records)
        try:
            found.append(validate_batch(view, settings, now_ms=context.now_ms, is_old=is_old))
        except BrokerError as problem:
            # The frames of the traceback refer to this list and may hold decompressed bytes: the
            # cycle would stay until a garbage collection, 32 MiB for every bomb.
            found.append(problem.with_traceback(None))
    return found


def _close_on_error(response: ProduceResponse) -> None:
    for topic in response.responses:
        for partition in topic.partition_responses:
            if partition.error_code:
                raise Close(
                    "produce.failed_unanswered",
                    topic=topic.name,
                    partition=partition.index,
                    code=int(partition.error_code),
                )
