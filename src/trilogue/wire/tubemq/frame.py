"""Frames of TubeMQ's RPC protocol: cut from a stream, parsed, encoded.

`BlockFrames` (block_frames.py) cuts a frame from the stream and joins its blocks. Here a frame then
is:

    +----------------+---------------+----------------+---------------------------------+
    | serialNo int32 | RpcConnHeader | RequestHeader  | RequestBody                     |
    |                |               | ResponseHeader | RspResponseBody                 |
    |                |               |                | or RspExceptionBody             |
    +----------------+---------------+----------------+---------------------------------+
                       each with its length before it, as a varint

The message of a method is a field of bytes in the third of these.
"""

from __future__ import annotations

from typing import Final, TypeVar

from google.protobuf.message import DecodeError, Message

from trilogue.wire.errors import WireError
from trilogue.wire.texts import check_text
from trilogue.wire.tubemq.block_frames import (
    BLOCK_SIZE,
    MAX_BLOCKS,
    MAX_FRAME_SIZE,
    SERIAL_SIZE,
    TOKEN,
    BlockFrames,
)
from trilogue.wire.tubemq.errors import BAD_MESSAGE, EXCEPTION, UndecodableRequest, exception_name
from trilogue.wire.tubemq.rpc_codec import (
    encode_frame,
    encode_messages_frame,
    encode_request,
    encode_response,
    parse_request,
    parse_response,
)
from trilogue.wire.tubemq.rpc_pb2 import (
    ResponseHeader,
    RpcConnHeader,
    RspExceptionBody,
)
from trilogue.wire.tubemq.rpc_types import RpcRequest, RpcResponse

__all__ = [
    "BLOCK_SIZE",
    "MAX_BLOCKS",
    "MAX_FRAME_SIZE",
    "SERIAL_SIZE",
    "TOKEN",
    "VERSION",
    "BlockFrames",
    "RpcRequest",
    "RpcResponse",
    "encode_failure",
    "encode_frame",
    "encode_request",
    "encode_response",
    "parse_message",
    "parse_request",
    "parse_response",
    "unsupported_method",
]

VERSION: Final = 3

_UNREADABLE: Final = "IPC server handle request error :"

_M = TypeVar("_M", bound=Message)


def encode_failure(
    serial: int, status: int, exception: str, text: str, version: int = VERSION
) -> bytearray:
    """Return a whole frame that answers a request with an exception, ERROR (1) or FATAL (2).

    The Java class has the package that a client of this protocol version knows.
    """
    header = ResponseHeader(status=status)  # type: ignore[arg-type] # the enum's number
    if status == 1:
        header.protocolVer = VERSION
    name = exception_name(exception, version)
    body = RspExceptionBody(exceptionName=name, stackTrace=text)
    parts = (RpcConnHeader(flag=1), header, body)
    return encode_messages_frame(serial, [part.SerializeToString() for part in parts])


def parse_message(kind: type[_M], body: memoryview | bytes, serial: int = 0) -> _M:
    """Parse the message of a method; raises UndecodableRequest with this serial number."""
    message = kind()
    try:
        message.ParseFromString(bytes(body))
        if not message.IsInitialized():
            missing = ", ".join(_missing_fields(message))
            raise WireError(f"Message missing required fields: {missing}")
        if not message.SerializeToString().isascii():
            check_text(message)
    except (DecodeError, WireError) as error:
        raise UndecodableRequest(serial, BAD_MESSAGE, f"{_UNREADABLE}{error}") from error
    return message


def _missing_fields(message: Message) -> list[str]:
    """Return the missing required fields; for one in an embedded message, that message's field."""
    return [
        field.name
        for field in message.DESCRIPTOR.fields
        if not field.is_repeated
        and (
            not getattr(message, field.name).IsInitialized()
            if message.HasField(field.name) and field.message_type is not None
            else field.is_required and not message.HasField(field.name)
        )
    ]


def unsupported_method(serial: int, method: int) -> UndecodableRequest:
    """Return the error for an unknown method number, in the words of a real server."""
    return UndecodableRequest(serial, EXCEPTION, f"{_UNREADABLE}Unsupported method ID :{method}")
