"""What the requests of one producer have in common, so that the next one need not be decoded.

A producer that sends one batch a request sends the same bytes again and again: client id, acks,
timeout, topic. Only four things change: correlation id, partition, the records and their size.

    api, version | correlation id | client id, acks, ..., topic, 1 partition | index | size | data
                 |   (changes)    |<-------------- the prefix -------------->|

When a request was decoded and answered in the ordinary way, `learn` remembers its prefix, and of
the answer the bytes that the codec wrote with the place of the few numbers that change. A later
request with the same prefix is taken here: one look-up, two unpacks, one pack. The prefix ends
where the codec found the index, the answer is what the codec wrote, and both are compared with the
codec once, when the shape is learned. Whatever is unusual (an error, several partitions, acks 0, a
transaction) goes the ordinary way.

Why it is worth its lines: decoding and encoding by the codec, and the objects between, are half of
what a request with one small record costs.
"""

from __future__ import annotations

from struct import Struct

from trilogue.broker.access import Operation, Resource, ResourceKind
from trilogue.broker.topic import Topic
from trilogue.gateway.kafka import replies
from trilogue.gateway.kafka.apis import Api
from trilogue.gateway.kafka.hot import PREFIX_AT, HotShape
from trilogue.gateway.kafka.produce import SETS_UNTIL, ZSTD_SINCE, is_zstd, told
from trilogue.wire.kafka.errors import ErrorCode
from trilogue.wire.kafka.header import decode_request_header
from trilogue.wire.kafka.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from trilogue.wire.kafka.schema import table

SHAPES_MAX = 1_000  # of all connections of a door
LENGTHS_MAX = 4  # of prefixes on one connection
NO_TAGS = b"\0\0\0"  # of the partition, the topic and the request
FLEXIBLE = table(ProduceRequest).flexible
LOG_START_SINCE = 5
WRITE = Operation.WRITE

_INDEX_AND_SIZE = Struct(">ii").unpack_from
_INDEX = Struct(">i").unpack_from
_CORRELATION = _THROTTLE = Struct(">i").pack_into
_NUMBERS = Struct(">ihqq").pack_into  # index, error, base offset, append time
_NUMBERS_AND_START = Struct(">ihqqq").pack_into  # and the log's start


class Shape(HotShape):
    """Requests of one version to one topic that differ in partition, records and correlation id."""

    __slots__ = ("_topic_data", "client_id")

    def __init__(
        self,
        api: Api,
        topic: Topic,
        topic_data: TopicProduceData,
        start: int,
        client_id: str | None = None,
    ) -> None:
        self.client_id = client_id  # whose requests these are: a part of the prefix
        self._api = api
        self._topic = topic
        self._topic_data = topic_data
        self._resource = Resource(ResourceKind.TOPIC, str(topic.name))
        self._start = start
        self._flexible = api.version >= FLEXIBLE
        self._old_codecs = api.version < ZSTD_SINCE
        self._starts_told = api.version >= LOG_START_SINCE
        zero, other = self.written(0), self.written(-1)
        self._answer = bytes(zero)
        self._numbers_at = next(at for at, byte in enumerate(zero) if byte != other[at])

    def is_new_codec(self, records: memoryview) -> bool:
        """Whether a batch is compressed as clients of old versions do not know."""
        return is_zstd(records)

    def tell_throttle(self, answer: bytearray, throttle_ms: int) -> None:
        """Write into an answer for how long the client should wait: its last field (v1+)."""
        end = len(answer) - (1 if self._api.flexible_reply else 0)  # no tags behind it
        _THROTTLE(answer, end - 4, throttle_ms)

    def refuse(self, correlation_id: int, index: int, code: ErrorCode) -> bytearray:
        """The whole reply when the disk did not keep what was appended."""
        return self.written(index, correlation_id, (-1, -1, -1), code)

    def written(
        self,
        index: int,
        correlation_id: int = 0,
        numbers: tuple[int, int, int] = (0, 0, 0),
        code: ErrorCode = ErrorCode.NONE,
    ) -> bytearray:
        """The reply as the codec writes it."""
        base_offset, append_time_ms, start = numbers
        partition = PartitionProduceResponse(
            index=index,
            error_code=told(code, self._api.version),
            base_offset=base_offset,
            log_append_time_ms=append_time_ms,
            log_start_offset=start,
        )
        topic = TopicProduceResponse(
            name=self._topic_data.name,
            topic_id=self._topic_data.topic_id,
            partition_responses=[partition],
        )
        response = ProduceResponse(responses=[topic])
        out = bytearray()
        flexible = self._api.flexible_reply
        replies.append(out, self._api.encode, response, correlation_id, flexible=flexible)
        return out


class Shapes:
    """All shapes of a door, by their prefixes."""

    def __init__(self) -> None:
        self._shapes: dict[bytes, Shape] = {}
        self.find = self._shapes.get

    def __len__(self) -> int:
        return len(self._shapes)

    def learn(
        self, api: Api, topic: Topic, frame: memoryview, request: ProduceRequest, start: int
    ) -> bool:
        """Remember the shape of a request whose prefix ends there; False if it has none."""
        (topic_data,) = request.topic_data
        (data,) = topic_data.partition_data
        known = TopicProduceData(name=topic_data.name, topic_id=topic_data.topic_id)
        header, _ = decode_request_header(frame)
        shape = Shape(api, topic, known, start, header.client_id)
        if shape.find(frame) != (data.index, data.records):
            return False
        if shape.answer(9, 3, 5, 6, 7) != shape.written(3, 9, (5, 6, 7)):
            return False
        if len(self._shapes) >= SHAPES_MAX:
            self._shapes.clear()
        self._shapes[bytes(frame[PREFIX_AT:start])] = shape
        return True


def prefix_end(api: Api, frame: memoryview, request: ProduceRequest) -> int | None:
    """Where the prefix of a decoded request ends; None if it is not of the simple kind."""
    if api.version <= SETS_UNTIL:  # what old clients send has to be converted
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
