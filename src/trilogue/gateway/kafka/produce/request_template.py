# ruff: noqa: ERA001 -- the next line is for the compiler
# cython: annotation_typing=False
"""Templates of produce requests: a request like an earlier one is not decoded.

A producer that sends one batch per request sends the same bytes again and again: client id, acks,
timeout, topic. Only four things change: correlation id, partition, the records and their size.

    api, version | correlation id | client id, acks, ..., topic, 1 partition | index | size | data
                 |   (changes)    |<-------------- the prefix -------------->|

When a request was decoded and answered by the codec, `RequestTemplates.learn` remembers its prefix,
and of the response the bytes that the codec wrote, with the place of the few numbers that change. A
later request with the same prefix is answered from the template: one look-up, two reads, one write.
The prefix ends where the codec found the partition index, the response is what the codec wrote, and
both are compared with the codec once, when the template is learned. Whatever is not simple (an
error, several partitions, acks 0) is decoded.

Why: decoding and encoding by the codec, and the objects between, are half of what a request with
one small record costs (docs/decisions/0015). Compiled (request_template.pxd adds the types);
uncompiled it is plain Python. See docs/decisions/0061.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Protocol

import cython

from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.broker.errors import BrokerError
from trilogue.broker.topics.topic import Topic
from trilogue.broker.transactions.coordinator import ProducerIdentity
from trilogue.gateway.kafka import response_frames
from trilogue.gateway.kafka.produce.produce import (
    ADDS_SINCE,
    MESSAGE_SETS_UNTIL,
    ZSTD_SINCE,
    downgrade_error_code,
    is_zstd,
)
from trilogue.wire.kafka.codec.header import decode_request_header
from trilogue.wire.kafka.codec.schema import table
from trilogue.wire.kafka.errors import ErrorCode
from trilogue.wire.kafka.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

if not cython.compiled:  # request_template.pxd imports the compiled version
    from trilogue.entry.memory import of_bytes, store32, store64
    from trilogue.wire.memory import bytes_of, copy, new_bytes, room_of, signed32, uint32_at

if TYPE_CHECKING:
    from collections.abc import Callable

    from trilogue.broker.access.client_access import ClientAccess
    from trilogue.entry.entry import EntryHeader
    from trilogue.gateway.kafka.api_table import VersionedApi
    from trilogue.gateway.kafka.context import CommitReply, GatewayContext

TEMPLATES_MAX = 1_000  # of all connections of a gateway
LENGTHS_MAX = 4  # of prefixes on one connection
PREFIX_AT = 8  # after API key, version and correlation id
NO_TAGS = b"\0\0\0"  # of the partition, the topic and the request
FLEXIBLE = table(ProduceRequest).flexible
LOG_START_SINCE = 5
WRITE, TOPIC, TRANSACTION = Operation.WRITE, ResourceKind.TOPIC, ResourceKind.TRANSACTION

_THROTTLE = Struct(">i").pack_into
_TAGS_SIZE = len(NO_TAGS)
_CORRELATION_ID_AT = 4  # in a response frame
# In a response, from the partition's index on.
_BASE_OFFSET_AT = 6
_APPEND_TIME_AT = 14
_LOG_START_AT = 22


class Sender(Protocol):
    """The client connection that a request came from."""

    access: ClientAccess


class RequestTemplate:
    """Requests of one version to one topic that differ in partition, records and correlation id."""

    __slots__ = (
        "_api",
        "_flexible",
        "_log_start",
        "_numbers_at",
        "_old_codecs",
        "_resource",
        "_response",
        "_start",
        "_topic",
        "_topic_data",
        "_transactional_id",
        "client_id",
    )

    def __init__(
        self,
        api: VersionedApi,
        topic: Topic,
        topic_data: TopicProduceData,
        start: int,
        *,
        client_id: str | None = None,
        transactional_id: str | None = None,
    ) -> None:
        self._transactional_id = transactional_id
        self.client_id = client_id  # whose requests these are: a part of the prefix
        self._api = api
        self._topic = topic
        self._topic_data = topic_data
        self._resource = str(topic.name)
        self._start = start  # where the partition's index is
        self._flexible = api.version >= FLEXIBLE  # whether lengths are varints and tags follow
        self._old_codecs = api.version < ZSTD_SINCE  # whether zstd is not allowed
        self._log_start = api.version >= LOG_START_SINCE  # whether the response has it
        zero, other = self.encode_response(0), self.encode_response(-1)
        self._response = bytes(zero)  # to be copied and overwritten
        self._numbers_at = next(at for at, byte in enumerate(zero) if byte != other[at])

    def append(
        self,
        gateway: GatewayContext,
        api: VersionedApi,
        frame: memoryview,
        correlation_id: int,
        sender: Sender,
    ) -> CommitReply | bytearray | None:
        """Append the records of a request and return its reply; None = the request must be decoded.

        Nothing is appended then. A `CommitReply` waits for the commit; a `bytearray` is for a topic
        that acknowledges from memory.
        """
        parsed = self.parse(frame) if api is self._api else None
        if parsed is None or not (gateway.allows_all or self._is_allowed(sender.access)):
            return None
        index, records = parsed
        partitions = self._topic.partitions
        if index >= len(partitions):
            return None
        partition = partitions[index]
        append_time_ms, acks_from_memory = -1, False
        try:
            plain = partition.plain
            base_offset = plain.append(records)
            if base_offset < 0:
                if partition.needs_validation or partition.rates is not None:
                    return None
                check = None
                if self._transactional_id is not None:
                    check = self._make_check(gateway, self._transactional_id)
                appended = partition.append_sent(records, gateway.now_ms, check)
                base_offset, append_time_ms, _, acks_from_memory = appended
        except BrokerError:
            return None  # the handler decodes and refuses it, with the reason
        log_start = partition.log.start_offset
        response = self.write_response(
            correlation_id, index, base_offset, append_time_ms, log_start
        )
        if acks_from_memory:
            return response
        return response, self.encode_refusal, correlation_id, index

    def _is_allowed(self, access: ClientAccess) -> bool:
        """Whether a client may write to the topic, and use the transactional id if there is one."""
        name = self._transactional_id
        return access.can_see(WRITE, TOPIC, self._resource) and (
            name is None or access.can_see(WRITE, TRANSACTION, name)
        )

    def _make_check(self, gateway: GatewayContext, name: str) -> Callable[[int, EntryHeader], None]:
        """Return what checks a batch of a transactional id's transaction."""
        check_produce = gateway.broker.transactions.check_produce
        adds = self._api.version >= ADDS_SINCE

        def check(partition_id: int, header: EntryHeader) -> None:
            identity = ProducerIdentity(header.producer_id, header.producer_epoch)
            check_produce(name, identity, partition_id, adds=adds)

        return check

    def parse(self, frame: memoryview) -> tuple[int, memoryview] | None:
        """Return the partition's index and its records, if the rest of the frame is as expected."""
        data = bytes_of(frame)
        at = self._start
        end = len(frame)
        if at + 8 > end:
            return None
        index = signed32(uint32_at(data, at))
        if self._flexible:
            end -= _TAGS_SIZE
            if data[end] | data[end + 1] | data[end + 2]:
                return None
            at += 4
            size = shift = 0
            while True:
                if at >= end or shift > 28:
                    return None
                byte = data[at]
                at += 1
                size |= (byte & 0x7F) << shift
                if byte < 0x80:
                    break
                shift += 7
            size -= 1
        else:
            size = signed32(uint32_at(data, at + 4))
            at += 8
        if size != end - at or size <= 0 or index < 0:
            return None
        records = frame[at:end]
        if self._old_codecs and is_zstd(records):
            return None
        return index, records

    def write_response(
        self, correlation_id: int, index: int, base_offset: int, append_time_ms: int, log_start: int
    ) -> bytearray:
        """Return the complete reply to a batch that was appended."""
        size = len(self._response)
        out = new_bytes(size)
        room = room_of(out)
        copy(room, 0, of_bytes(self._response), 0, size)
        store32(room, _CORRELATION_ID_AT, correlation_id)
        at = self._numbers_at
        store32(room, at, index)
        store64(room, at + _BASE_OFFSET_AT, base_offset)
        store64(room, at + _APPEND_TIME_AT, append_time_ms)
        if self._log_start:
            store64(room, at + _LOG_START_AT, log_start)
        return out

    def write_throttle(self, response: bytearray, throttle_ms: int) -> None:
        """Write into a reply for how long the client should wait: its last field (v1+)."""
        end = len(response) - (1 if self._api.flexible_reply else 0)  # no tags behind it
        _THROTTLE(response, end - 4, throttle_ms)

    def encode_refusal(self, correlation_id: int, index: int, code: ErrorCode) -> bytearray:
        """Return the complete reply for a failed commit."""
        return self.encode_response(index, correlation_id, (-1, -1, -1), code)

    def encode_response(
        self,
        index: int,
        correlation_id: int = 0,
        numbers: tuple[int, int, int] = (0, 0, 0),
        code: ErrorCode = ErrorCode.NONE,
    ) -> bytearray:
        """Return the reply as the codec writes it."""
        base_offset, append_time_ms, log_start = numbers
        partition = PartitionProduceResponse(
            index=index,
            error_code=downgrade_error_code(code, self._api.version),
            base_offset=base_offset,
            log_append_time_ms=append_time_ms,
            log_start_offset=log_start,
        )
        topic = TopicProduceResponse(
            name=self._topic_data.name,
            topic_id=self._topic_data.topic_id,
            partition_responses=[partition],
        )
        response = ProduceResponse(responses=[topic])
        out = bytearray()
        flexible = self._api.flexible_reply
        response_frames.append_frame(
            out, self._api.encode, response, correlation_id, flexible=flexible
        )
        return out


class RequestTemplates:
    """All templates of a gateway, by their prefixes."""

    def __init__(self) -> None:
        self._templates: dict[bytes, RequestTemplate] = {}
        self.find_template = self._templates.get

    def __len__(self) -> int:
        return len(self._templates)

    def learn(
        self,
        api: VersionedApi,
        topic: Topic,
        frame: memoryview,
        request: ProduceRequest,
        start: int,
    ) -> bool:
        """Remember the template of a request whose prefix ends at `start`; False if it has none."""
        (topic_data,) = request.topic_data
        (data,) = topic_data.partition_data
        known = TopicProduceData(name=topic_data.name, topic_id=topic_data.topic_id)
        header, _ = decode_request_header(frame)
        template = RequestTemplate(
            api,
            topic,
            known,
            start,
            client_id=header.client_id,
            transactional_id=request.transactional_id,
        )
        if template.parse(frame) != (data.index, data.records):
            return False
        if template.write_response(9, 3, 5, 6, 7) != template.encode_response(3, 9, (5, 6, 7)):
            return False
        if len(self._templates) >= TEMPLATES_MAX:
            self._templates.clear()
        self._templates[bytes(frame[PREFIX_AT:start])] = template
        return True


def prefix_end(api: VersionedApi, frame: memoryview, request: ProduceRequest) -> int | None:
    """Return where the prefix of a decoded request ends; None if it is not a simple one."""
    if api.version <= MESSAGE_SETS_UNTIL:  # message sets have to be converted
        return None
    if len(request.topic_data) != 1 or len(request.topic_data[0].partition_data) != 1:
        return None
    records = request.topic_data[0].partition_data[0].records
    if not isinstance(records, memoryview) or not records:
        return None
    size = len(records)
    if api.version < FLEXIBLE:
        end = len(frame) - size - 8
    else:
        end = len(frame) - len(NO_TAGS) - size - _uvarint_size(size + 1) - 4
    return end if end > PREFIX_AT else None


def _uvarint_size(value: int) -> int:
    return max(1, -(-value.bit_length() // 7))
