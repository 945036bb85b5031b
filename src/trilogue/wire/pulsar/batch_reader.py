"""The messages of a batch, which is the payload of an entry with num_messages_in_batch.

    +-------------+-----------------------+--------------------+-------------+- -
    | size uint32 | SingleMessageMetadata | payload_size bytes | size uint32 | ...
    +-------------+-----------------------+--------------------+-------------+- -

There is one pair of metadata and payload for each message, without padding, and nothing follows the
last. Compiled where there is a compiler, together with batch_reader.pxd, which only adds types.
"""

from __future__ import annotations

from typing import TypeAlias

import cython

from trilogue.wire.errors import WireError
from trilogue.wire.pulsar.message_types import SingleMessage

__all__ = ["MAX_PROPERTIES", "BatchReader", "SingleMessage"]

Int: TypeAlias = int  # the compiler would take a bare `int` for a Python object, and so on
Buffer: TypeAlias = bytes | bytearray | memoryview

MAX_PROPERTIES = 1_000_000
"""Properties of all messages of a batch together."""

# Field numbers of SingleMessageMetadata; batch_reader.pxd declares them as C variables.
_PROPERTIES = 1
_PARTITION_KEY = 2
_PAYLOAD_SIZE = 3
_COMPACTED_OUT = 4
_EVENT_TIME = 5
_KEY_IS_B64 = 6
_ORDERING_KEY = 7
_SEQUENCE_ID = 8
_NULL_VALUE = 9
_NULL_KEY = 10

_tuple_new = tuple.__new__

if not cython.compiled:  # batch_reader.pxd takes the compiled versions
    from trilogue.wire.fields import Fields
    from trilogue.wire.memory import bytes_at, bytes_of, signed32, uint32_at
    from trilogue.wire.pulsar.message_codec import properties_of


class BatchReader:
    """Reads the messages of one uncompressed payload in order, without those compacted out."""

    def __init__(self, payload: Buffer, count: Int) -> None:
        view = payload if type(payload) is memoryview else memoryview(payload)
        self.view = view
        self.data = bytes_of(view)
        self.pos = 0
        self.end = len(view)
        self.index = 0
        self.count = count
        self.budget = MAX_PROPERTIES
        self.fields = Fields(view)

    def read(self, limit: Int) -> list[SingleMessage]:
        """Return the next messages, at most `limit`; an empty list after the last one."""
        found: list[SingleMessage] = []
        while limit > 0 and self.index < self.count:
            single = self._next()
            if single is not None:
                found.append(single)
                limit -= 1
        if self.index == self.count and self.pos != self.end:
            raise WireError(f"{self.end - self.pos} bytes after the last message of a batch")
        return found

    def _next(self) -> SingleMessage | None:
        fields = self.fields
        if self.end - self.pos < 4:
            raise WireError(f"a batch of {self.count} messages ends after {self.index}")
        size = uint32_at(self.data, self.pos)
        at = self.pos + 4
        if size > self.end - at:
            raise WireError(f"metadata of {size} bytes in a batch, {self.end - at} follow")
        fields.scan(at, at + size)
        at += size
        size = signed32(fields.needed(_PAYLOAD_SIZE))
        if size < 0 or size > self.end - at:
            raise WireError(f"a payload of {size} bytes in a batch, {self.end - at} follow")
        self.pos = at + size
        index = self.index
        self.index = index + 1
        if fields.number(_COMPACTED_OUT, 0):
            return None
        properties = properties_of(fields, _PROPERTIES) if fields.has_span(_PROPERTIES) else ()
        self.budget -= len(properties)
        if self.budget < 0:
            raise WireError(f"a batch with more than {MAX_PROPERTIES} properties")
        sequence_id: object = -1
        if fields.has_number(_SEQUENCE_ID):
            sequence_id = fields.number(_SEQUENCE_ID, 0)
        values = (
            index,
            None if fields.number(_NULL_VALUE, 0) else bytes_at(self.data, at, size),
            fields.text(_PARTITION_KEY),
            fields.number(_KEY_IS_B64, 0) != 0,
            fields.number(_NULL_KEY, 0) != 0,
            fields.octets(_ORDERING_KEY),
            fields.number(_EVENT_TIME, 0),
            sequence_id,
            properties,
        )
        single: SingleMessage = _tuple_new(SingleMessage, values)
        return single
