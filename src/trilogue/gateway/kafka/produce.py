"""Produce v3-v13: append record batches, answer when they are on disk.

v4-v6 the same as v3 · v5 log start · v7 zstd · v8 error messages · v9 flexible · v10 leaders in the
answer (not told: there is one node) · v13 topics by id. v0-v2 carry message sets, which are not
converted yet: they are advertised for librdkafka's sake and close the connection.

acks 1 and -1 are the same here: one durable copy. Topics with `flush=interval` are acknowledged
from memory, unless another topic of the same request wants more. acks 0 gets no answer at all; when
such a request fails the connection is closed, so that the client sees that something went wrong.
Each partition takes exactly one batch. Refused: transactions (42).
"""

from __future__ import annotations

from trilogue.broker.errors import (
    BrokerError,
    InvalidRecord,
    NotServed,
    UnknownTopic,
    UnknownTopicId,
    UnsupportedCompression,
)
from trilogue.broker.topic import Topic
from trilogue.entry.entry import Codec
from trilogue.gateway.kafka.errors import code_of
from trilogue.gateway.kafka.shared import Call, Durable
from trilogue.gateway.stream import Close
from trilogue.wire.kafka.errors import ErrorCode
from trilogue.wire.kafka.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

NO_ANSWER, LEADER, ALL = 0, 1, -1
IDS_SINCE, ZSTD_SINCE = 13, 7
CODEC_AT, CODEC_MASK = 22, 7  # in a batch


def handle(call: Call, request: ProduceRequest) -> Durable | ProduceResponse | None:
    """Append every batch, then wait for the commit unless no topic of the request asks for it."""
    code = ErrorCode.NONE
    if request.acks not in {ALL, LEADER, NO_ANSWER}:
        code = ErrorCode.INVALID_REQUIRED_ACKS
    elif request.transactional_id is not None:
        code = code_of(NotServed())
    now_ms = call.door.now_ms()
    response = ProduceResponse()
    patient = bool(request.topic_data)
    for data in request.topic_data:
        answer, found = _topic(call, data, code, now_ms)
        response.responses.append(answer)
        patient = patient and found is not None and found.partitions[0].patient
    if request.acks == NO_ANSWER:
        _close_on_error(response)
        return None
    return response if patient else Durable(response, failed)


def failed(response: ProduceResponse, code: ErrorCode) -> ProduceResponse:
    """Take back what was promised: the disk did not keep it."""
    for topic in response.responses:
        for partition in topic.partition_responses:
            if not partition.error_code:
                partition.error_code = code
                partition.base_offset = partition.log_append_time_ms = -1
    return response


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
    call: Call, data: TopicProduceData, code: ErrorCode, now_ms: int
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
            else _partition(call.version, found, each, now_ms)
            for each in data.partition_data
        ],
    )
    return answer, found


def _partition(
    version: int, topic: Topic, data: PartitionProduceData, now_ms: int
) -> PartitionProduceResponse:
    try:
        if not 0 <= data.index < len(topic.partitions):
            raise UnknownTopic("there is no such partition")
        partition = topic.partitions[data.index]
        records = data.records
        if not isinstance(records, memoryview) or not records:
            raise InvalidRecord("a partition takes one batch, and there is none")
        if version < ZSTD_SINCE and is_zstd(records):
            raise UnsupportedCompression(f"zstd is for version {ZSTD_SINCE} on")
        appended = partition.append(records, now_ms=now_ms)
    except BrokerError as problem:
        return PartitionProduceResponse(
            index=data.index,
            error_code=code_of(problem),
            base_offset=-1,
            error_message=str(problem) or None,
        )
    return PartitionProduceResponse(
        index=data.index,
        base_offset=appended.base_offset,
        log_append_time_ms=appended.log_append_time_ms,
        log_start_offset=partition.log.start_offset,
    )


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
