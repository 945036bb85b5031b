"""Produce v0-v13: append record batches, answer when they are on disk.

v1 throttle time · v2 append times · v3 batches, transactions · v5 log start · v7 zstd · v8 error
messages · v9 flexible · v10 leaders in the answer (not told: there is one node) · v13 topics by id.
v0-v2 carry message sets (or a batch: nobody ever checked); they are stored as batches.

acks 1 and -1 are the same here: one durable copy. Topics with `flush=interval` are acknowledged
from memory, unless another topic of the same request wants more. acks 0 gets no answer at all; when
such a request fails the connection is closed, so that the client sees that something went wrong.
From v3 on each partition takes exactly one batch. Refused: transactions (42).

What has to be looked into before it can be appended (broker/intake.py) is, unless it is small,
prepared in the executor; the connection takes no other request meanwhile, so the order stays.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from trilogue.broker.errors import (
    BrokerError,
    InvalidRecord,
    InvalidTimestamp,
    NotServed,
    TooLarge,
    UnknownTopic,
    UnknownTopicId,
    UnsupportedCompression,
)
from trilogue.broker.intake import Prepared, prepare
from trilogue.broker.partition import Partition
from trilogue.broker.settings import TopicSettings
from trilogue.broker.topic import Topic
from trilogue.entry.entry import Codec
from trilogue.entry.kafka_legacy import is_message_set
from trilogue.gateway.kafka.errors import code_of
from trilogue.gateway.kafka.shared import Call, Durable, Shared
from trilogue.gateway.session import Said
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

NO_ANSWER, LEADER, ALL = 0, 1, -1
IDS_SINCE, ZSTD_SINCE = 13, 7
SETS_UNTIL = 2  # the last version that carries message sets
STORAGE_ERROR_SINCE = 4  # versions before know no error of storage
CODEC_AT, CODEC_MASK = 22, 7  # in a batch
# What is looked into on the loop: parts of a request, bytes of one as sent, and decompressed; fewer
# where they may have to be compressed. The rest is for the executor, about so many bytes at once.
PARTS_ON_LOOP = 4
ON_LOOP, UNPACKED_ON_LOOP, PACKED_ON_LOOP = 8 << 10, 16 << 10, 4 << 10
AT_ONCE = 64 << 10


class Later(NamedTuple):
    """A partition's part of a request that is prepared in the executor, and where to answer."""

    partition: Partition
    records: bytes
    settings: TopicSettings
    answer: PartitionProduceResponse


@dataclass(slots=True)
class Asked:
    """What is the same for all parts of a request, and those of them that have to wait."""

    version: int
    now_ms: int
    later: list[Later]
    looked_into: int = 0  # parts, on the loop


Answer = Durable | ProduceResponse | None | Coroutine[Any, Any, ProduceResponse | Said]


def handle(call: Call, request: ProduceRequest) -> Answer:
    """Append every batch, then wait for the commit unless no topic of the request asks for it."""
    code = ErrorCode.NONE
    if request.acks not in {ALL, LEADER, NO_ANSWER}:
        code = ErrorCode.INVALID_REQUIRED_ACKS
    elif request.transactional_id is not None:
        code = code_of(NotServed())
    asked = Asked(call.version, call.door.now_ms(), [])
    response = ProduceResponse()
    patient = bool(request.topic_data)
    for data in request.topic_data:
        answer, found = _topic(call, asked, data, code)
        response.responses.append(answer)
        patient = patient and found is not None and found.partitions[0].patient
    if asked.later:
        return _finish(call, asked, request.acks, response, patient=patient)
    if request.acks == NO_ANSWER:
        _close_on_error(response)
        return None
    return response if patient else Durable(response, partial(failed, version=call.version))


def failed(response: ProduceResponse, code: ErrorCode, *, version: int) -> ProduceResponse:
    """Take back what was promised: the disk did not keep it."""
    code = told(code, version)
    for topic in response.responses:
        for partition in topic.partition_responses:
            if not partition.error_code:
                partition.error_code = code
                partition.base_offset = partition.log_append_time_ms = -1
    return response


def told(code: ErrorCode, version: int) -> ErrorCode:
    """The code that a client of this version knows: Produce v4 says that it knows 56."""
    if code == ErrorCode.KAFKA_STORAGE_ERROR and version < STORAGE_ERROR_SINCE:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER  # it asks again, too
    return code


def find_topic(call: Call, data: TopicProduceData) -> Topic:
    """The topic that a request means, by name or by id."""
    if call.version < IDS_SINCE:
        return call.door.topic(data.name)
    return call.door.topic_by_id(data.topic_id)


def is_zstd(records: memoryview) -> bool:
    """Whether a batch says that it is compressed so; clients of old versions cannot read that."""
    return len(records) > CODEC_AT and records[CODEC_AT] & CODEC_MASK == Codec.ZSTD


def has_error(response: ProduceResponse) -> bool:
    """Whether anything in it was refused."""
    return any(
        each.error_code for topic in response.responses for each in topic.partition_responses
    )


def _topic(
    call: Call, asked: Asked, data: TopicProduceData, code: ErrorCode
) -> tuple[TopicProduceResponse, Topic | None]:
    found: Topic | None = None
    if not code:
        try:
            found = find_topic(call, data)
        except UnknownTopicId:
            code = ErrorCode.UNKNOWN_TOPIC_ID
        except BrokerError:  # also what is no name at all: there is no such topic
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        else:
            if not call.allowed(found.name):
                code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    answer = TopicProduceResponse(
        name=data.name,
        topic_id=data.topic_id,
        partition_responses=[
            PartitionProduceResponse(index=each.index, error_code=code, base_offset=-1)
            if code or found is None
            else _partition(asked, found, each)
            for each in data.partition_data
        ],
    )
    return answer, found


def _partition(asked: Asked, topic: Topic, data: PartitionProduceData) -> PartitionProduceResponse:
    answer = PartitionProduceResponse(index=data.index, base_offset=-1)
    try:
        if not 0 <= data.index < len(topic.partitions):
            raise UnknownTopic("there is no such partition")
        partition = topic.partitions[data.index]
        records = data.records
        if not isinstance(records, memoryview):
            raise InvalidRecord("a partition takes one batch, and there is none")
        is_set = asked.version <= SETS_UNTIL and is_message_set(records)
        if not records:
            if asked.version <= SETS_UNTIL:
                return answer  # a set of no messages: a real Kafka says the same
            raise InvalidRecord("a partition takes one batch, and there is none")
        if asked.version < ZSTD_SINCE and not is_set and is_zstd(records):
            raise UnsupportedCompression(f"zstd is for version {ZSTD_SINCE} on")
        prepared = None
        if is_set or partition.prepares:
            prepared = _prepared_here(asked, partition, records)
            if prepared is None:
                later = Later(partition, bytes(records), partition.settings, answer)
                asked.later.append(later)
                return answer
        _append(asked, partition, records, prepared, answer)
    except BrokerError as problem:
        _refuse(answer, problem, asked.version)
    return answer


def _prepared_here(asked: Asked, partition: Partition, records: memoryview) -> Prepared | None:
    """What comes of a small batch; None: it is too much for the loop."""
    if len(records) > ON_LOOP or asked.looked_into >= PARTS_ON_LOOP:
        return None
    asked.looked_into += 1
    packs = partition.settings.compression is not None
    try:
        return prepare(
            records,
            partition.settings,
            now_ms=asked.now_ms,
            is_old=asked.version <= SETS_UNTIL,
            limit=PACKED_ON_LOOP if packs else UNPACKED_ON_LOOP,
        )
    except TooLarge:
        return None


def _append(
    asked: Asked,
    partition: Partition,
    records: memoryview,
    prepared: Prepared | None,
    answer: PartitionProduceResponse,
) -> None:
    appended = partition.append(records, now_ms=asked.now_ms, prepared=prepared)
    answer.base_offset = appended.base_offset
    answer.log_append_time_ms = appended.log_append_time_ms
    answer.log_start_offset = partition.log.start_offset


def _refuse(answer: PartitionProduceResponse, problem: BrokerError, version: int) -> None:
    answer.error_code = told(code_of(problem), version)
    answer.error_message = str(problem) or None
    if isinstance(problem, InvalidRecord | InvalidTimestamp):
        answer.record_errors = [
            BatchIndexAndErrorMessage(batch_index=at, batch_index_error_message=why)
            for at, why in problem.messages
        ]


async def _finish(
    call: Call, asked: Asked, acks: int, response: ProduceResponse, *, patient: bool
) -> ProduceResponse | Said:
    """Prepare what was too much for the loop, append it, wait for the commit."""
    door = call.door
    for parts in _shares(asked.later):
        outcomes = await door.loop.run_in_executor(door.executor, _prepare, asked, parts)
        for (partition, records, _, answer), outcome in zip(parts, outcomes, strict=True):
            if isinstance(outcome, BrokerError):
                _refuse(answer, outcome, asked.version)
                continue
            try:
                _append(asked, partition, memoryview(records), outcome, answer)
            except BrokerError as problem:
                _refuse(answer, problem, asked.version)
    if acks == NO_ANSWER:
        _close_on_error(response)
        return Said([])
    if not patient:
        failure = await _committed(door)
        if failure is not None:
            failed(response, code_of(failure), version=asked.version)
    return response


async def _committed(door: Shared) -> BaseException | None:
    """Wait until everything added so far is durable, or say why it never will be."""
    committed: asyncio.Future[BaseException | None] = door.loop.create_future()

    def tell(failure: BaseException | None) -> None:
        if not committed.done():  # the door may have closed
            committed.set_result(failure)

    door.journal.on_commit(tell)
    return await committed


def _shares(later: list[Later]) -> Iterator[list[Later]]:
    """Parts in runs of about AT_ONCE bytes: others want the executor, too."""
    share: list[Later] = []
    size = 0
    for each in later:
        if share and size + len(each.records) > AT_ONCE:
            yield share
            share, size = [], 0
        share.append(each)
        size += len(each.records)
    yield share


def _prepare(asked: Asked, parts: list[Later]) -> list[Prepared | BrokerError]:
    """In the executor: each part with its own outcome."""
    found: list[Prepared | BrokerError] = []
    is_old = asked.version <= SETS_UNTIL
    for _, records, settings, _ in parts:
        view = memoryview(records)
        try:
            found.append(prepare(view, settings, now_ms=asked.now_ms, is_old=is_old))
        except BrokerError as problem:
            # Its frames know this list, and may hold what was unpacked: together they would stay
            # until the collector comes, 32 MiB for every bomb.
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
