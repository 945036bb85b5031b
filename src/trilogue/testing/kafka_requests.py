"""Kafka requests as faults see them: their topics, and the response that refuses one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from struct import Struct
from typing import Any

from trilogue.testing.faults import Request
from trilogue.wire.kafka.api import MESSAGES, NAMES
from trilogue.wire.kafka.codec.compile import decoder, encoder
from trilogue.wire.kafka.codec.header import decode_request_header, encode_response_header
from trilogue.wire.kafka.codec.schema import ZERO_UUID, is_message, table
from trilogue.wire.kafka.errors import ErrorCode
from trilogue.wire.kafka.produce import ProduceRequest

PROTOCOL = "kafka"
_SIZE = Struct(">i")
TOPIC_FIELDS = frozenset({"topic", "topic_name"})
# Response fields that repeat a request's field under another name.
REPEATED = {
    "responses": ("topic_data", "topics", "resources"),
    "partition_responses": ("partition_data",),
    "results": ("resources", "topics", "creations", "deletions"),
    "partition_index": ("partition", "index"),
    "index": ("partition_index", "partition"),
    "topic": ("name",),
    "name": ("topic",),
}


class KafkaRequests:
    """Reads the frames of clients. `topic_name` returns the name of a topic id, or None."""

    protocol = PROTOCOL
    replies_by_request = True

    def __init__(self, topic_name: Callable[[bytes], str | None]) -> None:
        self._topic_name = topic_name

    def split(self, received: bytearray) -> Iterator[bytes]:
        """Take the complete frames, of either side, away from the front of what was received."""
        return split_int32(received)

    def describe(self, frame: bytes) -> Request | None:
        """Return the request of a frame; None for one that is none, which the broker refuses."""
        try:
            header, position = decode_request_header(memoryview(frame)[4:])
            cls = MESSAGES[header.api_key][0]
            message: Any = decoder(cls, header.api_version)(memoryview(frame)[4:], position)[0]
        except Exception:  # noqa: BLE001 - whatever it is, the broker answers it
            return None
        return Request(
            PROTOCOL,
            cls.__name__.removesuffix("Request"),
            topics=tuple(dict.fromkeys(self._topics(message))),
            client_id=header.client_id or "",
            version=header.api_version,
            correlation_id=header.correlation_id,
        )

    def has_reply(self, frame: bytes, /) -> bool:
        """Whether the broker replies to this frame: not to a Produce with acks=0."""
        try:
            header, position = decode_request_header(memoryview(frame)[4:])
            cls = MESSAGES[header.api_key][0]
            if cls is not ProduceRequest:
                return True
            message: Any = decoder(cls, header.api_version)(memoryview(frame)[4:], position)[0]
        except Exception:  # noqa: BLE001 - whatever it is, the broker answers it
            return True
        return bool(message.acks)

    def encode_error(self, frame: bytes, error: str) -> bytes:
        """Return a response frame in which everything has this error; KeyError for its name."""
        code = ErrorCode[error]
        header, position = decode_request_header(memoryview(frame)[4:])
        key, version = header.api_key, header.api_version
        request_cls, response_cls = MESSAGES[key]
        request: Any = decoder(request_cls, version)(memoryview(frame)[4:], position)[0]
        out = bytearray(4)
        encode_response_header(out, key, version, header.correlation_id)
        encoder(response_cls, version)(_refuse(response_cls, request, code), out)
        _SIZE.pack_into(out, 0, len(out) - 4)
        return bytes(out)

    def _topics(self, message: Any) -> Iterator[str]:
        names_topics = "Topic" in type(message).__name__
        for field in table(type(message)).fields:
            value = getattr(message, field.name)
            if field.name in TOPIC_FIELDS or (names_topics and field.name == "name"):
                if isinstance(value, str) and value:
                    yield value
            elif field.name == "topic_id" and value != ZERO_UUID:
                name = self._topic_name(value)
                if name is not None:
                    yield name
            elif field.wire.kind == "array":
                for each in value or ():
                    if is_message(type(each)):
                        yield from self._topics(each)
                    elif field.name in {"topics", "topic_names"} and isinstance(each, str):
                        yield each


def list_requests() -> list[str]:
    """Return the names of all requests."""
    return [name for name, _ in NAMES.values()]


def list_errors() -> list[str]:
    """Return the names of all errors."""
    return [each.name for each in ErrorCode if each is not ErrorCode.NONE]


def _refuse(cls: type, request: Any, code: ErrorCode) -> Any:
    """Return a response, or a part of one, with the elements of the request and this error."""
    response = cls()
    for field in table(cls).fields:
        if field.name == "error_code":
            response.error_code = code
            continue
        given = _repeated(request, field.name)
        if given is None:
            continue
        if field.wire.kind != "array":
            if type(given) is type(getattr(response, field.name)):
                setattr(response, field.name, given)
        elif isinstance(field.item, type) and is_message(field.item):
            parts = [_refuse(field.item, each, code) for each in given if is_message(type(each))]
            setattr(response, field.name, parts)
    return response


def _repeated(request: Any, name: str) -> Any:
    for each in (name, *REPEATED.get(name, ())):
        found = getattr(request, each, None)
        if found is not None:
            return found
    return None


def split_int32(received: bytearray) -> Iterator[bytes]:
    """Take complete frames with an int32 before them away from the front."""
    while len(received) >= _SIZE.size:
        end = _SIZE.size + max(0, _SIZE.unpack_from(received)[0])
        if len(received) < end:
            return
        frame = bytes(received[:end])
        del received[:end]
        yield frame
