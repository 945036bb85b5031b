"""Protobuf payloads as values: by the descriptors of a PROTOBUF_NATIVE schema.

A producer of Pulsar sends the message alone, one of Confluent's serializers a frame before it: a
zero byte, the id of the schema, and the path of the message in its file as zigzag numbers
(https://docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/).
"""

from __future__ import annotations

from typing import Any, Final

from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from trilogue.broker.schemas.compatibility import root_message
from trilogue.broker.schemas.protobuf_schemas import find_root, make_pool

FRAME_BYTES: Final = 5  # the zero byte and the id
DEPTH_MAX: Final = 16  # of a message in others
VARINT_BITS_MAX: Final = 28


class ProtobufReader:
    """Reads the payloads of one schema. Raises InvalidSchema, and what the pool raises."""

    def __init__(self, native: bytes) -> None:
        self._pool = make_pool(native)
        self._root = self._pool.FindMessageTypeByName(root_message(native))
        self._file = self._pool.FindFileByName(find_root(native).name)

    def decode(self, payload: bytes) -> dict[str, Any]:
        """Return the fields of a payload; DecodeError, ValueError, json_format.Error."""
        if payload[:1] == b"\0" and len(payload) > FRAME_BYTES:  # no message begins with field 0
            descriptor, payload = self._open_frame(payload)
        else:
            descriptor = self._root
        message = GetMessageClass(descriptor)()
        message.ParseFromString(payload)
        return dict(
            json_format.MessageToDict(
                message, preserving_proto_field_name=True, descriptor_pool=self._pool
            )
        )

    def _open_frame(self, payload: bytes) -> tuple[Descriptor, bytes]:
        """Return the type of a framed message and its bytes."""
        end = FRAME_BYTES
        path: list[int] = []
        count, end = _read_zigzag(payload, end)
        if not 0 <= count <= DEPTH_MAX:
            raise DecodeError("the path of the message is too long")
        for _ in range(count):
            number, end = _read_zigzag(payload, end)
            path.append(number)
        types = list(self._file.message_types_by_name.values())
        for number in path or [0]:
            if not 0 <= number < len(types):
                raise DecodeError("the frame names no message of the schema")
            descriptor = types[number]
            types = list(descriptor.nested_types)
        return descriptor, payload[end:]


def _read_zigzag(payload: bytes, end: int) -> tuple[int, int]:
    """Return the zigzag number at a place, and where it ends; DecodeError."""
    value = 0
    for shift in range(0, VARINT_BITS_MAX, 7):
        if end >= len(payload):
            break
        octet = payload[end]
        end += 1
        value |= (octet & 0x7F) << shift
        if octet < 0x80:
            return value >> 1 ^ -(value & 1), end
    raise DecodeError("no number of a frame")


BAD_PAYLOAD: Final = (
    DecodeError,
    json_format.Error,
    ValueError,
    TypeError,
    KeyError,
    RecursionError,
)
