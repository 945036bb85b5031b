"""Steps through the messages of a batch: the payload of an entry that says it is one.

    +-------------+-----------------------+--------------------+-------------+- -
    | size uint32 | SingleMessageMetadata | payload_size bytes | size uint32 | ...
    +-------------+-----------------------+--------------------+-------------+- -

There is one for each message, without padding, and nothing behind the last. Compiled where there
is a compiler, with singles.pxd.
"""

from __future__ import annotations

from typing import TypeAlias

import cython

from trilogue.wire.errors import WireError
from trilogue.wire.pulsar.shapes import Single

__all__ = ["MAX_PROPERTIES", "Single", "Singles"]

Int: TypeAlias = int  # the compiler would take a bare `int` for a Python object, and so on
Buffer: TypeAlias = bytes | bytearray | memoryview

MAX_PROPERTIES = 1_000_000
"""Properties of all messages of a batch together."""

_tuple_new = tuple.__new__

if not cython.compiled:  # singles.pxd takes the compiled twins
    from trilogue.wire.fields import Fields
    from trilogue.wire.memory import bytes_at, bytes_of, signed32, uint32_at
    from trilogue.wire.pulsar.hot import properties_of


class Singles:
    """Reads the messages of one uncompressed payload, in order; those compacted out are passed."""

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

    def read(self, limit: Int) -> list[Single]:
        """Return the next messages, at most `limit`; an empty list after the last one."""
        found: list[Single] = []
        while limit > 0 and self.index < self.count:
            single = self._next()
            if single is not None:
                found.append(single)
                limit -= 1
        if self.index == self.count and self.pos != self.end:
            raise WireError(f"{self.end - self.pos} bytes after the last message of a batch")
        return found

    def _next(self) -> Single | None:
        fields = self.fields
        if self.end - self.pos < 4:
            raise WireError(f"a batch of {self.count} messages ends after {self.index}")
        size = uint32_at(self.data, self.pos)
        at = self.pos + 4
        if size > self.end - at:
            raise WireError(f"metadata of {size} bytes in a batch, {self.end - at} are there")
        fields.scan(at, at + size)
        at += size
        size = signed32(fields.needed(3))
        if size < 0 or size > self.end - at:
            raise WireError(f"a payload of {size} bytes in a batch, {self.end - at} are there")
        self.pos = at + size
        index = self.index
        self.index = index + 1
        if fields.number(4, 0):
            return None
        properties = properties_of(fields, 1) if fields.has_span(1) else ()
        self.budget -= len(properties)
        if self.budget < 0:
            raise WireError(f"a batch with more than {MAX_PROPERTIES} properties")
        sequence_id: object = fields.number(8, 0) if fields.has_number(8) else -1
        values = (
            index,
            None if fields.number(9, 0) else bytes_at(self.data, at, size),
            fields.text(2),
            fields.number(6, 0) != 0,
            fields.number(10, 0) != 0,
            fields.octets(7),
            fields.number(5, 0),
            sequence_id,
            properties,
        )
        single: Single = _tuple_new(Single, values)
        return single
