# ruff: noqa: ERA001 -- the next line is for the compiler
# cython: annotation_typing=False
"""Reads a sendMessageP2B of the form that producers send, envelope and message in one pass.

`parse_request` and `parse_send` (rpc_codec.py) read any form of it. Here the fields have to stand
in the order of their numbers, each once, in the fewest bytes, and nothing may follow them; then no
table of fields is needed, and no text is made of names that were read before:

    serial | 02 | flag 0 | size | service, version | size | method 13, timeout, request:
             clientId, topicName, partitionId, data, flag, checkSum, sentAddr
             |<---- names ---->|                              [, msgType, msgTime][, authInfo]

Of `authInfo` only a visit token is expected, which the Java client sends always; its value is not
kept, so a reader that needs it parses the frame.

Compiled (plain_send.pxd adds the types), since it runs once per send; uncompiled it is plain
Python.
"""

from __future__ import annotations

import cython

if not cython.compiled:  # plain_send.pxd imports the compiled versions
    from trilogue.wire.memory import bytes_of, signed32, uint32_at

_NAMES_MAX = 4096
_NO_DATA = memoryview(b"")
_ENVELOPE_MIN = 20
_BODY_AT = 7  # behind the serial number and 02 08 00: a message of flag 0, which is a request
_METHOD = 13
_SHIFT_MAX = 63

_SERVICE, _VERSION = 1 << 3, 2 << 3
_BODY_METHOD, _TIMEOUT, _REQUEST = 1 << 3, 2 << 3, 3 << 3 | 2
_CLIENT_ID, _TOPIC, _PARTITION, _DATA = 1 << 3 | 2, 2 << 3 | 2, 3 << 3, 4 << 3 | 2
_FLAG, _CHECKSUM, _ADDRESS = 5 << 3, 6 << 3, 7 << 3
_MESSAGE_TYPE, _MESSAGE_TIME, _AUTH_INFO = 8 << 3 | 2, 9 << 3 | 2, 10 << 3 | 2
_VISIT_TOKEN = 1 << 3


class PlainSend:
    """The last send that was read; `data` is a view of its frame."""

    __slots__ = (
        "_end",
        "_is_plain",
        "_octets",
        "_pos",
        "address",
        "checksum",
        "data",
        "flag",
        "message_time",
        "message_type",
        "names",
        "partition_id",
        "serial",
        "service",
        "size",
    )

    def read(self, frame: memoryview) -> bool:
        """Whether a frame is such a request; the fields are set if it is, else they mean nothing.

        `frame` is what `BlockFrames` returns: the serial number, then the messages.
        """
        end = len(frame)
        if end < _ENVELOPE_MIN:
            return False
        octets = self._octets = bytes_of(frame)
        self._pos, self._end = _BODY_AT, end
        self._is_plain = octets[4] == 2 and octets[5] == 8 and octets[6] == 0
        self.serial = signed32(uint32_at(octets, 0))
        self._read_envelope()
        names_at = self._pos
        self._skip(self._field(_CLIENT_ID))
        self._skip(self._field(_TOPIC))
        names_end = self._pos
        self.partition_id = signed32(self._field(_PARTITION))
        self.size = self._field(_DATA)
        data_at = self._pos
        self._skip(self.size)
        self.flag = signed32(self._field(_FLAG))
        self.checksum = signed32(self._field(_CHECKSUM))
        self.address = signed32(self._field(_ADDRESS))
        self.message_type: str | None = None
        self.message_time: str | None = None
        if self._is_plain and self._pos < end and octets[self._pos] == _MESSAGE_TYPE:
            self._read_attributes(frame)
        if self._is_plain and self._pos < end:
            self._read_login()
        if not self._is_plain or names_end - names_at > _NAMES_MAX:
            return False
        self.names = bytes(frame[names_at:names_end])
        self.data = frame[data_at : data_at + self.size]
        return True

    def _read_envelope(self) -> None:
        """Read up to the message of the method, which has to end with the frame."""
        size = self._number()
        at = self._pos
        self.service = self._field(_SERVICE)
        self._field(_VERSION)
        is_whole = self._pos == at + size
        size = self._number()
        is_whole = is_whole and size == self._end - self._pos
        is_send = self._field(_BODY_METHOD) == _METHOD
        self._field(_TIMEOUT)
        size = self._field(_REQUEST)
        if not (is_whole and is_send and size == self._end - self._pos):
            self._is_plain = False

    def _read_attributes(self, frame: memoryview) -> None:
        """Read the type and the time of the message, which come together."""
        size = self._field(_MESSAGE_TYPE)
        type_at = self._pos
        self._skip(size)
        type_end = self._pos
        size = self._field(_MESSAGE_TIME)
        time_at = self._pos
        self._skip(size)
        try:
            self.message_type = str(frame[type_at:type_end], "utf-8")
            self.message_time = str(frame[time_at : self._pos], "utf-8")
        except UnicodeDecodeError:
            self._is_plain = False

    def _read_login(self) -> None:
        """Pass over a visit token, which has to be the last."""
        size = self._field(_AUTH_INFO)
        if size != self._end - self._pos:
            self._is_plain = False
        self._field(_VISIT_TOKEN)
        if self._pos != self._end:
            self._is_plain = False

    def forget(self) -> None:
        """Refer to no frame any more: its memory may be needed."""
        self.data = _NO_DATA

    def _number(self) -> int:
        """Read a varint; one that does not end is not plain, and moves nothing."""
        value = shift = 0
        pos = self._pos
        end = self._end
        octets = self._octets
        while pos < end and shift <= _SHIFT_MAX:
            byte = octets[pos]
            pos += 1
            if shift == _SHIFT_MAX and byte > 1:
                break
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                self._pos = pos
                return value
            shift += 7
        self._is_plain = False
        return 0

    def _field(self, tag: int) -> int:
        """Read the number, or the size, of the field with this tag, which has to be the next."""
        if self._pos >= self._end or self._octets[self._pos] != tag:
            self._is_plain = False
            return 0
        self._pos += 1
        return self._number()

    def _skip(self, size: int) -> None:
        if size > self._end - self._pos:
            self._is_plain = False
        else:
            self._pos += size
