"""What passes once per request or per message, read and written by hand.

The envelopes, sendMessageP2B and its answer, the answer of getMessagesC2B; all else goes through
the protobuf runtime (frame.py). Compiled where there is a compiler, together with hot.pxd, which
only adds types. What is read agrees with the runtime about any bytes but these, which nobody sends:
a group, or an embedded message that comes twice, is refused here, and what stands in fields that
nobody asks for is passed over unread.

A frame that is read is what BlockFrames hands out: serialNo, then three messages with their
lengths. A frame that is written is whole: token, serialNo, blocks of 8192 bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import cython

from trilogue.wire.errors import WireError
from trilogue.wire.tubemq.errors import BAD_ENVELOPE, BAD_MESSAGE, Undecodable
from trilogue.wire.tubemq.shapes import Answer, Request, Send, Transfer

__all__ = [
    "answer",
    "ask",
    "enclose",
    "messages_answer",
    "parse_answer",
    "parse_request",
    "read_send",
    "send_answer",
    "split",
]

Int: TypeAlias = int  # the compiler would take a bare `int` for a Python object, and so on
View: TypeAlias = memoryview
Buffer: TypeAlias = bytes | bytearray | memoryview
Octets: TypeAlias = bytes
Parts: TypeAlias = Sequence[bytes]
Transfers: TypeAlias = Sequence[Transfer]
Bytes: TypeAlias = memoryview | bytearray  # which the compiler has as a pointer

_EMPTY = memoryview(b"")
_tuple_new = tuple.__new__

if not cython.compiled:  # hot.pxd takes the compiled twins
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


def _part(fields: Fields, pos: Int, end: Int) -> Int:
    """Read one of the three messages of an envelope, which begins at `pos`; where it ends."""
    fields.pos = pos
    fields.end = end
    size = fields.short()
    pos = fields.pos
    if size > end - pos:
        raise WireError(f"a message of {size} bytes, {end - pos} are there")
    fields.scan(pos, pos + size)
    return pos + size


def parse_request(frame: View) -> Request:
    """Read the envelope of a request. Undecodable where that is none, for a FATAL answer."""
    size = len(frame)
    data = bytes_of(frame)
    serial = signed32(uint32_at(data, 0))
    fields = Fields(frame)
    try:
        pos = _part(fields, 4, size)
        fields.needed(1)  # 0 for a request; real servers do not look at it
        pos = _part(fields, pos, size)
        service = signed32(fields.number(1, 0))
        version = signed32(fields.number(2, 0))
        pos = _part(fields, pos, size)
        method = signed32(fields.needed(1))
        timeout_ms: object = signed64(fields.number(2, 0)) if fields.has_number(2) else -1
        if size - pos > 9:
            raise WireError(f"{size - pos} bytes after a request")
        while pos < size:  # C++ clients take four bytes for each of three lengths, use fewer
            if data[pos]:
                raise WireError(f"{size - pos} bytes after a request")
            pos += 1
    except WireError as error:
        text = f"IPC server unable to read call parameters:{error}"
        raise Undecodable(serial, BAD_ENVELOPE, text) from error
    body = _EMPTY
    if fields.has_span(3):
        body = frame[fields.ats[3] : fields.ats[3] + fields.sizes[3]]
    values = (serial, service, version, method, timeout_ms, body)
    request: Request = _tuple_new(Request, values)
    return request


def parse_answer(frame: View) -> Answer:
    """Read the envelope of an answer, as a client does; WireError where that is none."""
    size = len(frame)
    data = bytes_of(frame)
    serial = signed32(uint32_at(data, 0))
    fields = Fields(frame)
    pos = _part(fields, 4, size)
    fields.needed(1)
    pos = _part(fields, pos, size)
    status = fields.needed(1)
    if status > 2:
        raise WireError(f"an answer with status {status}")
    pos = _part(fields, pos, size)
    if pos != size:
        raise WireError(f"{size - pos} bytes after an answer")
    if status:
        name = fields.text(1)
        if name is None:
            raise WireError("an exception without its name")
        values = (serial, status, 0, _EMPTY, name, fields.text(2) or "")
    else:
        method = signed32(fields.needed(1))
        if not fields.has_span(2):
            raise WireError("an answer without its message")
        body = frame[fields.ats[2] : fields.ats[2] + fields.sizes[2]]
        values = (serial, 0, method, body, "", "")
    answer: Answer = _tuple_new(Answer, values)
    return answer


def read_send(body: View, serial: Int = 0) -> Send:
    """Read sendMessageP2B; Undecodable where that is none, for a FATAL answer with this serial."""
    fields = Fields(body)
    try:
        fields.scan(0, len(body))
        client_id = fields.text(1)
        topic = fields.text(2)
        if client_id is None or topic is None or not fields.has_span(4):
            raise WireError("clientId, topicName or data is missing")
        at = fields.ats[4]
        data = body[at : at + fields.sizes[4]]
        partition_id = signed32(fields.needed(3))
        flag = signed32(fields.needed(5))
        checksum = signed32(fields.needed(6))
        sent_addr = signed32(fields.needed(7))
        kind = fields.text(8)
        time = fields.text(9)
        visit_token: object = None
        auth_token = None
        if fields.has_span(10):
            fields.into(10)
            visit_token = signed64(fields.needed(1))
            auth_token = fields.text(2)
    except WireError as error:
        text = f"IPC server handle request error :{error}"
        raise Undecodable(serial, BAD_MESSAGE, text) from error
    values = (
        client_id,
        topic,
        partition_id,
        data,
        flag,
        checksum,
        sent_addr,
        kind,
        time,
        visit_token,
        auth_token,
    )
    send: Send = _tuple_new(Send, values)
    return send


# ---- Writing. Fields in the order of their numbers, as the runtime writes them.


class Blocks:
    """A whole frame to write into: what is put goes into blocks of 8192 bytes and a rest."""

    def __init__(self, serial: Int, size: Int) -> None:
        count = (size + 8191) // 8192
        self.frame = new_bytes(12 + 4 * count + size)
        self.data = room_of(self.frame)
        self.pos = 0
        self.left = 0  # in the block that is being filled
        self.rest = size  # behind that block
        self.uint32(0xFF7FF4FE)
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
                self.left = min(self.rest, 8192)
                self.rest -= self.left
                self.uint32(self.left)
            part = min(self.left, size)
            copy(self.data, self.pos, octets, at, part)
            self.pos += part
            self.left -= part
            at += part
            size -= part


def split(serial: Int, body: Buffer) -> bytearray:
    """Write a whole frame with this body."""
    size = len(body)
    blocks = Blocks(serial, size)
    if size:
        blocks.put(bytes_of(memoryview(body)), 0, size)
    return blocks.frame


def enclose(serial: Int, parts: Parts) -> bytearray:
    """Write a whole frame of messages, each with its length before it."""
    body = b""
    for part in parts:
        room = Room(16)
        room.varint(len(part))
        body += room.written() + part
    return split(serial, body)


def _head(room: Room, method: Int, size: Int) -> None:
    """Write the envelope of an answer as far as its message of `size` bytes."""
    number = unsigned64(method)
    room.uint32(0x02080104)
    room.uint32(0x08001803)
    room.varint(2 + size_of(number) + size_of(size) + size)
    room.field(8, number)
    room.field(18, size)


def ask(  # noqa: PLR0917 - once per request
    serial: Int, service: Int, version: Int, method: Int, timeout_ms: Int, message: Octets
) -> bytearray:
    """Write a whole frame that asks something."""
    size = len(message)
    head = Room(64)
    head.field(8, unsigned64(service))
    head.field(16, unsigned64(version))
    inner = Room(64)
    inner.field(8, unsigned64(method))
    inner.field(16, unsigned64(timeout_ms))
    inner.field(26, size)
    room = Room(192)
    room.byte(2)
    room.field(8, 0)
    room.varint(head.pos)
    copy(room.data, room.pos, head.data, 0, head.pos)
    room.pos += head.pos
    room.varint(inner.pos + size)
    copy(room.data, room.pos, inner.data, 0, inner.pos)
    room.pos += inner.pos
    blocks = Blocks(serial, room.pos + size)
    blocks.put(room.data, 0, room.pos)
    if size:
        blocks.put(bytes_of(memoryview(message)), 0, size)
    return blocks.frame


def answer(serial: Int, method: Int, message: Octets) -> bytearray:
    """Write a whole frame that answers a request with a message."""
    size = len(message)
    room = Room(64)
    _head(room, method, size)
    blocks = Blocks(serial, room.pos + size)
    blocks.put(room.data, 0, room.pos)
    if size:
        blocks.put(bytes_of(memoryview(message)), 0, size)
    return blocks.frame


def send_answer(serial: Int, message_id: Int, append_ms: Int, offset: Int) -> bytearray:
    """Write a whole frame that says that a message is stored, and where."""
    digits = b"%d" % message_id
    size = 12 + len(digits) + size_of(message_id) + size_of(append_ms) + size_of(offset)
    room = Room(192)
    _head(room, 13, size)
    room.field(8, 1)
    room.field(16, 200)
    room.byte(26)
    room.byte(len(digits))
    for digit in digits:
        room.byte(digit)
    room.field(32, 0)
    room.field(40, message_id)
    room.field(48, append_ms)
    room.field(56, offset)
    blocks = Blocks(serial, room.pos)
    blocks.put(room.data, 0, room.pos)
    return blocks.frame


def _transfer_size(message_id: Int, checksum: Int, size: Int, flag: Int) -> Int:
    """How many bytes the fields of a TransferedMessage take."""
    numbers = size_of(message_id) + size_of(checksum) + size_of(size) + size_of(flag)
    return 4 + numbers + size


def messages_answer(  # noqa: PLR0917 - once per read
    serial: Int,
    messages: Transfers,
    offset: Int,
    lag_bytes: Int,
    end: Int,
    require_slow: Int = False,
    escape: Int = False,
) -> bytearray:
    """Write a whole frame that hands out messages read at `offset`, `end` being the partition's.

    `lag_bytes` is how much is left unread. Numbers of a Transfer are not negative.
    """
    size = 19 + size_of(offset) + size_of(lag_bytes) + size_of(end)
    for message in messages:
        message_id, checksum, view, flag = message
        inner = _transfer_size(message_id, checksum, len(view), flag)
        size += 1 + size_of(inner) + inner
    room = Room(128)
    _head(room, 17, size)
    blocks = Blocks(serial, room.pos + size)
    room.field(8, 1)
    room.field(16, 200)
    room.uint32(0x1A034F4B)  # errMsg "OK!"
    room.byte(0x21)
    blocks.put(room.data, 0, room.pos)
    for message in messages:
        message_id, checksum, view, flag = message
        length = len(view)
        room.pos = 0
        room.field(34, _transfer_size(message_id, checksum, length, flag))
        room.field(8, message_id)
        room.field(16, checksum)
        room.field(26, length)
        blocks.put(room.data, 0, room.pos)
        if length:
            octets = view if type(view) is memoryview else memoryview(view)
            blocks.put(bytes_of(octets), 0, length)
        room.pos = 0
        room.field(32, flag)
        blocks.put(room.data, 0, room.pos)
    room.pos = 0
    room.field(40, offset)
    room.field(48, 0)
    room.field(56, escape)
    room.field(64, lag_bytes)
    room.field(72, require_slow)
    room.field(80, end)
    blocks.put(room.data, 0, room.pos)
    return blocks.frame
