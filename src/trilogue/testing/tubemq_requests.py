"""TubeMQ requests as faults see them: their topics, and the response that refuses one."""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Any

from trilogue.testing.faults import Request
from trilogue.wire.tubemq.errors import TubeCode
from trilogue.wire.tubemq.frame import MAX_BLOCKS, TOKEN, encode_response, parse_request
from trilogue.wire.tubemq.methods import METHODS, find_method

PROTOCOL = "tubemq"
_HEAD = Struct(">Iii")  # token, serial number, count of blocks
_LENGTH = Struct(">I")
TEXT = "a fault of the test"
TOPIC_FIELDS = ("topicName", "topicList")


class TubeRequests:
    """Reads the frames of clients of a master or a broker."""

    protocol = PROTOCOL
    replies_by_request = False

    def split(self, received: bytearray) -> Iterator[bytes]:
        """Take the complete frames, of either side, away from the front of what was received."""
        while (end := _frame_end(received)) is not None:
            frame = bytes(received[:end])
            del received[:end]
            yield frame

    def describe(self, frame: bytes) -> Request | None:
        """Return the request of a frame; None for one that is none, which the broker refuses."""
        try:
            request = parse_request(memoryview(_join_blocks(frame)))
            method = find_method(request.method)
            assert method is not None
            body: Any = method.request()
            body.ParseFromString(bytes(request.body))
        except Exception:  # noqa: BLE001 - whatever it is, the broker answers it
            return None
        topics: list[str] = []
        for name in TOPIC_FIELDS:
            value = getattr(body, name, ())
            topics += [value] if isinstance(value, str) else list(value)
        return Request(
            PROTOCOL,
            method.name,
            topics=tuple(topics),
            client_id=str(getattr(body, "clientId", "")),
            correlation_id=request.serial,
        )

    def has_reply(self, _frame: bytes, /) -> bool:
        """Return True: clients find the request of a reply by its number."""
        return True

    def encode_error(self, frame: bytes, error: str) -> bytes:
        """Return a response with this error code, a number as text (ValueError)."""
        code = int(error)
        request = parse_request(memoryview(_join_blocks(frame)))
        method = find_method(request.method)
        assert method is not None
        response: Any = method.response()
        for field in response.DESCRIPTOR.fields:
            if field.is_required:
                setattr(response, field.name, field.default_value)
        response.success, response.errCode, response.errMsg = False, code, TEXT
        return bytes(
            encode_response(request.serial, request.method, response.SerializePartialToString())
        )


def list_requests() -> list[str]:
    """Return the names of all methods."""
    return [each.name for each in METHODS]


def list_errors() -> list[str]:
    """Return the codes of all errors, numbers as text."""
    return [str(int(each)) for each in TubeCode if each is not TubeCode.SUCCESS]


def _frame_end(received: bytearray) -> int | None:
    """Return the size of the first frame, None where it is not whole."""
    if len(received) < _HEAD.size:
        return None
    token, _, count = _HEAD.unpack_from(received)
    if token != TOKEN or not 0 <= count <= MAX_BLOCKS:
        return len(received)  # the broker closes the connection
    end = _HEAD.size
    for _ in range(count):
        if len(received) < end + _LENGTH.size:
            return None
        end += _LENGTH.size + _LENGTH.unpack_from(received, end)[0]
    return end if len(received) >= end else None


def _join_blocks(frame: bytes) -> bytes:
    """Return the serial number and the joined blocks."""
    _, serial, count = _HEAD.unpack_from(frame)
    parts, end = [serial.to_bytes(4, "big", signed=True)], _HEAD.size
    for _ in range(count):
        size = _LENGTH.unpack_from(frame, end)[0]
        parts.append(frame[end + _LENGTH.size : end + _LENGTH.size + size])
        end += _LENGTH.size + size
    return b"".join(parts)
