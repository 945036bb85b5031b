"""The RPC envelope, sendMessageP2B and the getMessagesC2B response, parsed and encoded by hand.

These pass once per request or per message; all other messages go through the protobuf runtime
(frame.py). Compiled where there is a compiler, together with rpc_codec.pxd, which only adds types.
The parsers agree with the runtime about any bytes but these, which no known client sends: a group
and an embedded message that comes twice are refused, and fields that are not used are skipped
without validation.

A frame to parse is what BlockFrames returns: the serial number, then three messages, each with its
length before it. An encoded frame is whole: token, serial number, blocks of 8192 bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import cython

from trilogue.wire.errors import WireError
from trilogue.wire.tubemq.errors import BAD_ENVELOPE, BAD_MESSAGE, UndecodableRequest
from trilogue.wire.tubemq.rpc_types import MessageTransfer, RpcRequest, RpcResponse, SendRequest

__all__ = [
    "encode_frame",
    "encode_get_response",
    "encode_messages_frame",
    "encode_request",
    "encode_response",
    "encode_send_response",
    "parse_request",
    "parse_response",
    "parse_send",
]

Int: TypeAlias = int  # the compiler would take a bare `int` for a Python object, and so on
View: TypeAlias = memoryview
Buffer: TypeAlias = bytes | bytearray | memoryview
Octets: TypeAlias = bytes
Parts: TypeAlias = Sequence[bytes]
MessageTransfers: TypeAlias = Sequence[MessageTransfer]
Bytes: TypeAlias = memoryview | bytearray  # which the compiler has as a pointer

_EMPTY = memoryview(b"")
_tuple_new = tuple.__new__

# Layout of a frame. rpc_codec.pxd declares these and the field numbers below as C variables.
_TOKEN = 0xFF7FF4FE
_BLOCK_SIZE = 8192
_BLOCK_SHIFT = 13  # its logarithm
_FRAME_HEAD_SIZE = 12  # token, serial number, count of blocks
_SERIAL_SIZE = 4
_UNUSED_LENGTHS_MAX = 9  # trailing zero bytes: C++ reserves 4 bytes for each of 3 lengths

_VERSION = 3
_RESPONSE_CONN_HEADER = 0x02080104  # its length, flag 1, and the length of the next one
_RESPONSE_HEADER = 0x08001803  # status SUCCESS, protocolVer 3
_STATUS_MAX = 2  # SUCCESS, ERROR, FATAL
_ERR_CODE_SUCCESS = 200
_OK = 0x034F4B21  # "OK!" after its length
_SEND_METHOD = 13
_GET_METHOD = 17

# Field numbers of the messages that are parsed (rpc.proto, broker.proto).
_HEAD_FLAG = 1
_HEADER_SERVICE = 1
_HEADER_VERSION = 2
_HEADER_STATUS = 1
_BODY_METHOD = 1
_BODY_TIMEOUT = 2
_BODY_REQUEST = 3
_BODY_DATA = 2
_EXCEPTION_NAME = 1
_EXCEPTION_TEXT = 2
_SEND_CLIENT_ID = 1
_SEND_TOPIC = 2
_SEND_PARTITION = 3
_SEND_DATA = 4
_SEND_FLAG = 5
_SEND_CHECKSUM = 6
_SEND_ADDRESS = 7
_SEND_MESSAGE_TYPE = 8
_SEND_MESSAGE_TIME = 9
_SEND_AUTH_INFO = 10
_AUTH_VISIT_TOKEN = 1
_AUTH_TOKEN = 2

# Tags of the fields that are encoded: field number << 3 | wire type (0 a varint, 2 bytes).
_TAG_HEAD_FLAG = 1 << 3
_TAG_HEADER_SERVICE = 1 << 3
_TAG_HEADER_VERSION = 2 << 3
_TAG_BODY_METHOD = 1 << 3
_TAG_BODY_TIMEOUT = 2 << 3
_TAG_BODY_REQUEST = 3 << 3 | 2
_TAG_BODY_DATA = 2 << 3 | 2
_TAG_SUCCESS = 1 << 3  # of SendMessageResponseB2P and of GetMessageResponseB2C, as the next two
_TAG_ERR_CODE = 2 << 3
_TAG_ERR_MSG = 3 << 3 | 2
_TAG_SEND_REQUIRE_AUTH = 4 << 3
_TAG_SEND_MESSAGE_ID = 5 << 3
_TAG_SEND_APPEND_TIME = 6 << 3
_TAG_SEND_APPEND_OFFSET = 7 << 3
_TAG_GET_MESSAGES = 4 << 3 | 2
_TAG_GET_OFFSET = 5 << 3
_TAG_GET_MIN_LIMIT_TIME = 6 << 3
_TAG_GET_ESCAPE = 7 << 3
_TAG_GET_LAG = 8 << 3
_TAG_GET_REQUIRE_SLOW = 9 << 3
_TAG_GET_MAX_OFFSET = 10 << 3
_TAG_MESSAGE_ID = 1 << 3
_TAG_MESSAGE_CHECKSUM = 2 << 3
_TAG_MESSAGE_DATA = 3 << 3 | 2
_TAG_MESSAGE_FLAG = 4 << 3

# Bytes of the fields of fixed size in a response, tags included.
_SEND_FIXED_SIZE = 12  # success, errCode, errMsg and requireAuth; three tags; a length
_GET_FIXED_SIZE = 19  # success, errCode, errMsg, three flags and limits; three tags
_MESSAGE_TAGS_SIZE = 4

if not cython.compiled:  # rpc_codec.pxd imports the compiled versions
    from trilogue.wire.fields import Fields, Room, size_of
    from trilogue.wire.memory import (
        bytes_of,
        copy,
        new_bytes,
        room_of,
        signed32,
        signed64,
        uint32_at,
        unsigned64,
    )


def _scan_part(fields: Fields, pos: Int, end: Int) -> Int:
    """Scan the message of an envelope whose length stands at `pos`; return the offset of its end.

    Raises WireError.
    """
    fields.pos = pos
    fields.end = end
    size = fields.short()
    pos = fields.pos
    if size > end - pos:
        raise WireError(f"a message of {size} bytes, {end - pos} are there")
    fields.scan(pos, pos + size)
    return pos + size


def parse_request(frame: View) -> RpcRequest:
    """Parse the envelope of a request; raises UndecodableRequest, which becomes a FATAL answer."""
    size = len(frame)
    data = bytes_of(frame)
    serial = signed32(uint32_at(data, 0))
    fields = Fields(frame)
    try:
        pos = _scan_part(fields, _SERIAL_SIZE, size)
        fields.needed(_HEAD_FLAG)  # 0 for a request; real servers do not check it
        pos = _scan_part(fields, pos, size)
        service = signed32(fields.number(_HEADER_SERVICE, 0))
        version = signed32(fields.number(_HEADER_VERSION, 0))
        pos = _scan_part(fields, pos, size)
        method = signed32(fields.needed(_BODY_METHOD))
        timeout_ms: object = -1
        if fields.has_number(_BODY_TIMEOUT):
            timeout_ms = signed64(fields.number(_BODY_TIMEOUT, 0))
        if size - pos > _UNUSED_LENGTHS_MAX:
            raise WireError(f"{size - pos} bytes after a request")
        while pos < size:  # C++ clients reserve four bytes for each of three lengths, use fewer
            if data[pos]:
                raise WireError(f"{size - pos} bytes after a request")
            pos += 1
    except WireError as error:
        text = f"IPC server unable to read call parameters:{error}"
        raise UndecodableRequest(serial, BAD_ENVELOPE, text) from error
    body = _EMPTY
    if fields.has_span(_BODY_REQUEST):
        at = fields.ats[_BODY_REQUEST]
        body = frame[at : at + fields.sizes[_BODY_REQUEST]]
    values = (serial, service, version, method, timeout_ms, body)
    request: RpcRequest = _tuple_new(RpcRequest, values)
    return request


def parse_response(frame: View) -> RpcResponse:
    """Parse the envelope of a response, as a client does; raises WireError."""
    size = len(frame)
    data = bytes_of(frame)
    serial = signed32(uint32_at(data, 0))
    fields = Fields(frame)
    pos = _scan_part(fields, _SERIAL_SIZE, size)
    fields.needed(_HEAD_FLAG)
    pos = _scan_part(fields, pos, size)
    status = fields.needed(_HEADER_STATUS)
    if status > _STATUS_MAX:
        raise WireError(f"an answer with status {status}")
    pos = _scan_part(fields, pos, size)
    if pos != size:
        raise WireError(f"{size - pos} bytes after an answer")
    if status:
        name = fields.text(_EXCEPTION_NAME)
        if name is None:
            raise WireError("an exception without its name")
        values = (serial, status, 0, _EMPTY, name, fields.text(_EXCEPTION_TEXT) or "")
    else:
        method = signed32(fields.needed(_BODY_METHOD))
        if not fields.has_span(_BODY_DATA):
            raise WireError("an answer without its message")
        at = fields.ats[_BODY_DATA]
        body = frame[at : at + fields.sizes[_BODY_DATA]]
        values = (serial, 0, method, body, "", "")
    response: RpcResponse = _tuple_new(RpcResponse, values)
    return response


def parse_send(body: View, serial: Int = 0) -> SendRequest:
    """Parse sendMessageP2B; raises UndecodableRequest with this serial number."""
    fields = Fields(body)
    try:
        fields.scan(0, len(body))
        client_id = fields.text(_SEND_CLIENT_ID)
        topic = fields.text(_SEND_TOPIC)
        if client_id is None or topic is None or not fields.has_span(_SEND_DATA):
            raise WireError("clientId, topicName or data is missing")
        at = fields.ats[_SEND_DATA]
        data = body[at : at + fields.sizes[_SEND_DATA]]
        partition_id = signed32(fields.needed(_SEND_PARTITION))
        flag = signed32(fields.needed(_SEND_FLAG))
        checksum = signed32(fields.needed(_SEND_CHECKSUM))
        sent_addr = signed32(fields.needed(_SEND_ADDRESS))
        message_type = fields.text(_SEND_MESSAGE_TYPE)
        message_time = fields.text(_SEND_MESSAGE_TIME)
        visit_token: object = None
        auth_token = None
        if fields.has_span(_SEND_AUTH_INFO):
            fields.into(_SEND_AUTH_INFO)
            visit_token = signed64(fields.needed(_AUTH_VISIT_TOKEN))
            auth_token = fields.text(_AUTH_TOKEN)
    except WireError as error:
        text = f"IPC server handle request error :{error}"
        raise UndecodableRequest(serial, BAD_MESSAGE, text) from error
    values = (
        client_id,
        topic,
        partition_id,
        data,
        flag,
        checksum,
        sent_addr,
        message_type,
        message_time,
        visit_token,
        auth_token,
    )
    send: SendRequest = _tuple_new(SendRequest, values)
    return send


# ---- Encoding. Fields stand in the order of their numbers, as the protobuf runtime writes them.


class BlockWriter:
    """A whole frame to fill: the body goes into blocks of 8192 bytes and a shorter last one."""

    def __init__(self, serial: Int, size: Int) -> None:
        count = (size + _BLOCK_SIZE - 1) >> _BLOCK_SHIFT
        self.frame = new_bytes(_FRAME_HEAD_SIZE + 4 * count + size)
        self.data = room_of(self.frame)
        self.pos = 0
        self.left = 0  # bytes of the current block that are not written yet
        self.rest = size  # bytes of the body behind the current block
        self.uint32(_TOKEN)
        self.uint32(serial & 0xFFFFFFFF)
        self.uint32(count)

    def uint32(self, value: Int) -> None:
        """Write a big-endian number."""
        pos = self.pos
        self.data[pos] = (value >> 24) & 255
        self.data[pos + 1] = (value >> 16) & 255
        self.data[pos + 2] = (value >> 8) & 255
        self.data[pos + 3] = value & 255
        self.pos = pos + 4

    def put(self, octets: Bytes, at: Int, size: Int) -> None:
        """Write the next bytes of the body."""
        while size > 0:
            if self.left == 0:
                self.left = min(self.rest, _BLOCK_SIZE)
                self.rest -= self.left
                self.uint32(self.left)
            part = min(self.left, size)
            copy(self.data, self.pos, octets, at, part)
            self.pos += part
            self.left -= part
            at += part
            size -= part


def encode_frame(serial: Int, body: Buffer) -> bytearray:
    """Return a whole frame with this body, cut as real clients and servers cut it."""
    size = len(body)
    blocks = BlockWriter(serial, size)
    if size:
        blocks.put(bytes_of(memoryview(body)), 0, size)
    return blocks.frame


def encode_messages_frame(serial: Int, parts: Parts) -> bytearray:
    """Return a whole frame of messages, each with its length before it."""
    body = b""
    for part in parts:
        room = Room(16)
        room.varint(len(part))
        body += room.written() + part
    return encode_frame(serial, body)


def _put_response_envelope(room: Room, method: Int, size: Int) -> None:
    """Write the envelope of a SUCCESS response up to its message of `size` bytes."""
    number = unsigned64(method)
    room.uint32(_RESPONSE_CONN_HEADER)
    room.uint32(_RESPONSE_HEADER)
    room.varint(2 + size_of(number) + size_of(size) + size)
    room.field(_TAG_BODY_METHOD, number)
    room.field(_TAG_BODY_DATA, size)


def encode_request(  # noqa: PLR0917 - once per request
    serial: Int,
    service: Int,
    method: Int,
    message: Octets,
    timeout_ms: Int,
    version: Int = _VERSION,
) -> bytearray:
    """Return a whole frame with a request; `message` is the serialized message of the method."""
    size = len(message)
    head = Room(64)
    head.field(_TAG_HEADER_SERVICE, unsigned64(service))
    head.field(_TAG_HEADER_VERSION, unsigned64(version))
    inner = Room(64)
    inner.field(_TAG_BODY_METHOD, unsigned64(method))
    inner.field(_TAG_BODY_TIMEOUT, unsigned64(timeout_ms))
    inner.field(_TAG_BODY_REQUEST, size)
    room = Room(192)
    room.byte(2)
    room.field(_TAG_HEAD_FLAG, 0)
    room.varint(head.pos)
    copy(room.data, room.pos, head.data, 0, head.pos)
    room.pos += head.pos
    room.varint(inner.pos + size)
    copy(room.data, room.pos, inner.data, 0, inner.pos)
    room.pos += inner.pos
    blocks = BlockWriter(serial, room.pos + size)
    blocks.put(room.data, 0, room.pos)
    if size:
        blocks.put(bytes_of(memoryview(message)), 0, size)
    return blocks.frame


def encode_response(serial: Int, method: Int, message: Octets) -> bytearray:
    """Return a whole frame with a SUCCESS response."""
    size = len(message)
    room = Room(64)
    _put_response_envelope(room, method, size)
    blocks = BlockWriter(serial, room.pos + size)
    blocks.put(room.data, 0, room.pos)
    if size:
        blocks.put(bytes_of(memoryview(message)), 0, size)
    return blocks.frame


def encode_send_response(serial: Int, message_id: Int, append_ms: Int, offset: Int) -> bytearray:
    """Return a whole frame with the SUCCESS response to sendMessageP2B: errMsg is the id."""
    digits = b"%d" % message_id
    numbers = size_of(message_id) + size_of(append_ms) + size_of(offset)
    size = _SEND_FIXED_SIZE + len(digits) + numbers
    room = Room(192)
    _put_response_envelope(room, _SEND_METHOD, size)
    room.field(_TAG_SUCCESS, 1)
    room.field(_TAG_ERR_CODE, _ERR_CODE_SUCCESS)
    room.byte(_TAG_ERR_MSG)
    room.byte(len(digits))
    for digit in digits:
        room.byte(digit)
    room.field(_TAG_SEND_REQUIRE_AUTH, 0)
    room.field(_TAG_SEND_MESSAGE_ID, message_id)
    room.field(_TAG_SEND_APPEND_TIME, append_ms)
    room.field(_TAG_SEND_APPEND_OFFSET, offset)
    blocks = BlockWriter(serial, room.pos)
    blocks.put(room.data, 0, room.pos)
    return blocks.frame


def _message_size(message_id: Int, checksum: Int, size: Int, flag: Int) -> Int:
    """Return the size of an encoded TransferedMessage with `size` bytes of data."""
    numbers = size_of(message_id) + size_of(checksum) + size_of(size) + size_of(flag)
    return _MESSAGE_TAGS_SIZE + numbers + size


def encode_get_response(  # noqa: PLR0917 - once per read
    serial: Int,
    messages: MessageTransfers,
    offset: Int,
    lag_bytes: Int,
    end: Int,
    require_slow: Int = False,
    escape: Int = False,
) -> bytearray:
    """Return a whole frame with the messages that getMessagesC2B read at `offset`.

    `lag_bytes` is how much of the partition is left unread, `end` the partition's end offset.
    Numbers of a MessageTransfer must not be negative.
    """
    size = _GET_FIXED_SIZE + size_of(offset) + size_of(lag_bytes) + size_of(end)
    for message in messages:
        message_id, checksum, view, flag = message
        inner = _message_size(message_id, checksum, len(view), flag)
        size += 1 + size_of(inner) + inner
    room = Room(128)
    _put_response_envelope(room, _GET_METHOD, size)
    blocks = BlockWriter(serial, room.pos + size)
    room.field(_TAG_SUCCESS, 1)
    room.field(_TAG_ERR_CODE, _ERR_CODE_SUCCESS)
    room.byte(_TAG_ERR_MSG)
    room.uint32(_OK)
    blocks.put(room.data, 0, room.pos)
    for message in messages:
        message_id, checksum, view, flag = message
        length = len(view)
        room.pos = 0
        room.field(_TAG_GET_MESSAGES, _message_size(message_id, checksum, length, flag))
        room.field(_TAG_MESSAGE_ID, message_id)
        room.field(_TAG_MESSAGE_CHECKSUM, checksum)
        room.field(_TAG_MESSAGE_DATA, length)
        blocks.put(room.data, 0, room.pos)
        if length:
            octets = view if type(view) is memoryview else memoryview(view)
            blocks.put(bytes_of(octets), 0, length)
        room.pos = 0
        room.field(_TAG_MESSAGE_FLAG, flag)
        blocks.put(room.data, 0, room.pos)
    room.pos = 0
    room.field(_TAG_GET_OFFSET, offset)
    room.field(_TAG_GET_MIN_LIMIT_TIME, 0)
    room.field(_TAG_GET_ESCAPE, escape)
    room.field(_TAG_GET_LAG, lag_bytes)
    room.field(_TAG_GET_REQUIRE_SLOW, require_slow)
    room.field(_TAG_GET_MAX_OFFSET, end)
    blocks.put(room.data, 0, room.pos)
    return blocks.frame
