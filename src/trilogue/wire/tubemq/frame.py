"""Frames of TubeMQ's RPC protocol: cut from a stream, parsed, encoded.

On the wire a frame is a list of blocks. Their cuts mean nothing: they are where Java's buffers
ended.

    +---------------+----------------+----------------+--------------+-------+--------------+---
    | token         | serialNo int32 | listSize int32 | length int32 | bytes | length int32 | ...
    | ff 7f f4 fe   |                | 0 .. 3584      |<----------- listSize times ------------>
    +---------------+----------------+----------------+--------------+-------+--------------+---

`BlockFrames` cuts a frame from the stream and joins its blocks. Here a frame then is:

    +----------------+---------------+----------------+---------------------------------+
    | serialNo int32 | RpcConnHeader | RequestHeader  | RequestBody                     |
    |                |               | ResponseHeader | RspResponseBody                 |
    |                |               |                | or RspExceptionBody             |
    +----------------+---------------+----------------+---------------------------------+
                       each with its length before it, as a varint

The message of a method is a field of bytes in the third of these. A frame with nothing behind its
serial number (listSize 0) is ignored, as by real servers. A wrong token ends the connection,
because the begin of the next frame is unknown then.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, TypeVar

from google.protobuf.message import DecodeError, Message

from trilogue.wire.errors import WireError
from trilogue.wire.frames import ReceiveBuffer
from trilogue.wire.texts import check_text
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

TOKEN: Final = 0xFF7FF4FE
BLOCK_SIZE: Final = 8192
"""The size of encoded blocks; blocks of any size are read."""
MAX_BLOCKS: Final = 3584
MAX_FRAME_SIZE: Final = MAX_BLOCKS * BLOCK_SIZE
"""The longest frame that real servers and clients read: 28 MiB."""
SERIAL_SIZE: Final = 4
"""A frame no longer than this is empty and ignored."""
VERSION: Final = 3

_HEAD: Final = Struct(">IiiI").unpack_from  # up to the length of the first block
_HEAD_SIZE: Final = 12
_SERIAL_AT: Final = 4
_BLOCKS_AT: Final = 8
_EMPTY: Final = Struct(">Iii").unpack_from  # the head of a frame without blocks
_LENGTH: Final = Struct(">I").unpack_from
_LENGTH_SIZE: Final = 4
_UNREADABLE: Final = "IPC server handle request error :"

_M = TypeVar("_M", bound=Message)


class BlockFrames(ReceiveBuffer):
    """Cuts frames from a stream and joins their blocks in place, however the bytes arrive.

        start       +12      +16         joined          scan                 end
        +-----------+--------+-----------+---------------+--------------------+------
        | token ... | serial | blocks    | where lengths | the next block,    | free
        |           | number | so far    | stood         | not yet whole      |
        +-----------+--------+-----------+---------------+--------------------+------

    The state of a frame is kept between calls: a frame that arrives in small pieces is not scanned
    again, and each byte is moved once. `limit` bounds the bytes of all blocks of a frame.
    """

    __slots__ = ("_blocks", "_joined", "_length", "_scan")

    def __init__(self, limit: int = MAX_FRAME_SIZE) -> None:
        super().__init__(limit)
        self._blocks = 0  # blocks still to be joined; 0: no frame has begun
        self._joined = self._scan = 0
        self._length = -1  # of the block at `scan`, or -1 while its length is to come

    def next(self) -> memoryview | None:
        """Return the next frame, serial number first, or None until more bytes arrive.

        The view is valid until `get_buffer`. Raises WireError for a wrong token, too many blocks,
        or more bytes than the limit.
        """
        if self._blocks:
            return self._join()
        start = self._start
        first = start + _HEAD_SIZE + _LENGTH_SIZE
        if first > self._end:
            return self._empty() if self._end - start >= _HEAD_SIZE else None
        buffer = self._buffer
        token, _, blocks, length = _HEAD(buffer, start)
        if token != TOKEN or not 0 < blocks <= MAX_BLOCKS or length > self.limit:
            return self._unusual(token, blocks, length)
        stop = first + length
        serial = first - SERIAL_SIZE
        buffer[serial:first] = buffer[start + _SERIAL_AT : start + _BLOCKS_AT]
        if blocks == 1 and stop <= self._end:
            self._start = stop
            return buffer[serial:stop]
        self._blocks, self._length = blocks, length
        self._joined = self._scan = first
        return self._join()

    def _unusual(self, token: int, blocks: int, length: int) -> memoryview | None:
        """Return a frame without blocks, or raise WireError for a malformed head."""
        if token != TOKEN:
            raise WireError(f"a frame that begins with {token:08x}")
        if not 0 <= blocks <= MAX_BLOCKS:
            raise WireError(f"a frame of {blocks} blocks, the limit is {MAX_BLOCKS}")
        if blocks:
            raise WireError(f"a frame of {length} bytes and more, the limit is {self.limit}")
        return self._empty()

    def _empty(self) -> memoryview | None:
        """Return a frame without blocks: its serial number alone."""
        start = self._start
        token, _, blocks = _EMPTY(self._buffer, start)
        if token != TOKEN or not 0 <= blocks <= MAX_BLOCKS:
            self._unusual(token, blocks, 0)
        if blocks:
            return None
        self._start = start + _HEAD_SIZE
        return self._buffer[start + _SERIAL_AT : start + _BLOCKS_AT]

    def _join(self) -> memoryview | None:
        """Join the blocks that have arrived; return the frame once it is whole."""
        buffer, end, begin = self._buffer, self._end, self._start + _HEAD_SIZE
        room = begin + SERIAL_SIZE + self.limit
        joined, scan, length = self._joined, self._scan, self._length
        while True:
            if length < 0:
                if scan + _LENGTH_SIZE > end:
                    break
                (length,) = _LENGTH(buffer, scan)
                if length > room - joined:
                    self._joined, self._scan, self._length = joined, scan, -1
                    size = joined - begin - SERIAL_SIZE + length
                    raise WireError(f"a frame of {size} bytes and more, the limit is {self.limit}")
                scan += _LENGTH_SIZE
            stop = scan + length
            if stop > end:
                break
            if joined != scan:
                buffer[joined : joined + length] = buffer[scan:stop]
            joined += length
            scan, length = stop, -1
            self._blocks -= 1
            if not self._blocks:
                self._start = scan
                return buffer[begin:joined]
        self._joined, self._scan, self._length = joined, scan, length
        return None

    def _missing(self) -> int:
        if not self._blocks:
            return max(1, _HEAD_SIZE + _LENGTH_SIZE - self.pending)
        wanted = _LENGTH_SIZE if self._length < 0 else self._length
        return max(1, self._scan + wanted - self._end)

    def _move(self, start: int) -> None:
        self._joined += start - self._start
        self._scan += start - self._start
        super()._move(start)

    def _make_room(self) -> None:
        """Close the gap that joining left before the buffer grows."""
        if self._blocks and self._joined < self._scan:
            rest = self._end - self._scan
            self._buffer[self._joined : self._joined + rest] = self._buffer[self._scan : self._end]
            self._scan, self._end = self._joined, self._joined + rest
        super()._make_room()


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
