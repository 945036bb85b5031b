# ruff: noqa: ERA001 -- the next line is for the compiler
# cython: annotation_typing=False
"""Split a byte stream into frames, without copying them and without trusting their lengths.

A frame of Kafka and of Pulsar is a big-endian int32 and that many bytes:

    +--------------+------------------------+--------------+-----
    | length int32 | body (length bytes)    | length int32 | ...
    +--------------+------------------------+--------------+-----

TubeMQ's are blocks behind a token (tubemq/frame.py). One buffer receives the bytes, and frames are
views of it:

    0         start                 end                capacity
    +---------+---------------------+------------------+
    | handed  | received, not yet   | free: what       |
    | out     | handed out          | get_buffer gives |
    +---------+---------------------+------------------+

Goals: a frame that lies in the buffer is handed out as a view of it; a frame is moved at most
once before it is complete (to the front, when the room behind it runs out), beyond that only
when the buffer grows; the buffer doubles when it is *full of received bytes*, so a peer that
declares 100 MiB and sends ten bytes costs ten bytes; a buffer that grew is released, at once if it
is very large and empty, else as far as it was not needed for a while: a client that sends a
mebibyte at a time would make it grow again for each. So at `rest` a grown buffer is set aside, and
a small one receives; when that is full the same memory is used again, a doubling at a time; what
was not used by the next `rest` is released. Nothing is counted for that while bytes come.

A connection begins with a small buffer. Where the peer sends faster than it is read, a wider one
costs fewer calls: `widen`, if the owner has the memory.

The memory is mapped, not taken from the heap: what no byte was received into costs nothing, so an
idle connection has one page of its 16 KiB, and what is released goes back to the system at once.

Compiled (frames.pxd), since it runs for every request.
"""

from __future__ import annotations

from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from struct import Struct
from typing import Protocol

import cython

from trilogue.wire.errors import FrameTooLarge, WireError

if not cython.compiled:  # frames.pxd takes the compiled version
    from trilogue.wire.memory import bytes_of, signed32, uint32_at

PREFIX = 4
_PREFIX = PREFIX
_LENGTH = Struct(">i").unpack_from
INITIAL_CAPACITY = 16 * 1024
WIDE_CAPACITY = 64 * 1024
RETAINED_CAPACITY = 256 * 1024
"""Bytes: a larger buffer is released when it is not needed, so most connections stay small."""
BUSY_CAPACITY = 4 * 1024 * 1024
"""Bytes: a larger buffer is released as soon as it is empty."""
ROOM = 4 * 1024
"""Bytes: the least free room that is worth a receive call."""
_ROOM = ROOM  # compiled: a number of C


HTTP_METHODS = (
    b"GET ", b"HEAD", b"POST", b"PUT ", b"DELE", b"OPTI", b"PATC", b"CONN", b"TRAC", b"PRI ",
)  # fmt: skip
TLS_HANDSHAKE = b"\x16\x03"


def describe_bad_length(length: int, limit: int) -> str:
    """Say what a peer of another protocol sent where a frame's length was expected."""
    prefix = length.to_bytes(PREFIX, "big", signed=True)
    text = f"frame of {length} bytes, the limit is {limit}"
    if prefix in HTTP_METHODS:
        return f"{text}: this is an HTTP request, sent to a port that does not serve HTTP"
    if prefix.startswith(TLS_HANDSHAKE):
        return f"{text}: this is a TLS handshake, sent to a port without TLS"
    return text


class Frames(Protocol):
    """Splits a stream into the frames of a protocol."""

    limit: int
    """The longest frame that is accepted; may be raised once the peer is known."""

    @property
    def capacity(self) -> int:
        """Bytes of memory held now."""

    @property
    def pending(self) -> int:
        """Bytes received that no frame has taken yet."""

    def get_buffer(self) -> memoryview:
        """Free room to receive into; frames handed out before are no longer valid."""

    def received(self, count: int) -> None:
        """The first `count` bytes of the buffer that was handed out last are filled."""

    def rest(self) -> None:
        """Release memory that was not needed since the last call; called about once a second."""

    def rest_idle(self) -> None:
        """Release the memory of a peer that sent nothing since the last call of `rest`."""

    def release(self) -> None:
        """Release all memory that is not needed now; frames handed out before stay valid."""

    def close(self) -> None:
        """Release everything: no bytes come any more."""

    def is_full(self) -> bool:
        """Whether the buffer is full, so that it may have to grow for the next bytes."""

    def next_capacity(self) -> int:
        """Bytes of memory that the next bytes need; 0: no more than there is."""

    def frame_bytes(self) -> int:
        """Bytes of the frame that has begun, as far as they are known; 0: none has."""

    def widen(self) -> None:
        """Have at least `WIDE_CAPACITY` bytes of memory; frames handed out before stay valid."""

    def next(self) -> memoryview | None:
        """The next whole frame, valid until `get_buffer`; None: more is needed."""


_PRIVATE = MAP_PRIVATE | MAP_ANONYMOUS
_CLOSED = memoryview(b"")


class ReceiveBuffer:
    """The buffer of a framer; a derived class finds the frames in it."""

    __slots__ = ("_aside", "_buffer", "_capacity", "_end", "_filled", "_start", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._aside: memoryview | None = None
        self._start = self._end = self._filled = 0
        self._renew(INITIAL_CAPACITY)

    @property
    def capacity(self) -> int:
        """Bytes of memory held now."""
        aside = self._aside
        if aside is None:
            return self._capacity
        # What grew since the last rest is a part of it.
        return len(aside) + (self._capacity if self._capacity == INITIAL_CAPACITY else 0)

    @property
    def pending(self) -> int:
        """Bytes received that no frame has taken yet."""
        return self._end - self._start

    def get_buffer(self) -> memoryview:
        """Free room to receive into; frames handed out before are no longer valid."""
        if self._start == self._end:
            if self._end:
                self._move(0)
            if self._capacity > BUSY_CAPACITY:
                self._renew(INITIAL_CAPACITY)
            return self._buffer
        if self._capacity - self._end < ROOM:
            self._make_room()
        return self._buffer[self._end :]

    def received(self, count: int) -> None:
        """The first `count` bytes of the buffer that was handed out last are filled."""
        assert 0 <= count <= self._capacity - self._end, "more received than there was room for"
        self._end += count
        self._filled = max(self._filled, self._end)

    def rest(self) -> None:
        """Release memory that was not needed since the last call; called about once a second."""
        aside = self._aside
        if aside is not None:
            self._aside = None
            if self._capacity > INITIAL_CAPACITY:
                self._replace(self._capacity)
        elif self._capacity > RETAINED_CAPACITY and self.pending <= INITIAL_CAPACITY - ROOM:
            grown = self._buffer
            self._replace(INITIAL_CAPACITY)
            self._aside = grown

    def rest_idle(self) -> None:
        """Release the memory of a peer that sent nothing since the last call of `rest`.

        Frames handed out before stay valid. One page is kept: it is not worth the call.
        """
        if self._start == self._end and self._filled > ROOM:
            self._start = self._end = 0
            self._renew(INITIAL_CAPACITY)

    def release(self) -> None:
        """Release all memory that is not needed now; frames handed out before stay valid."""
        if self.pending <= INITIAL_CAPACITY - ROOM and self.capacity > INITIAL_CAPACITY:
            self._replace(INITIAL_CAPACITY)

    def close(self) -> None:
        """Release everything: no bytes come any more. Frames handed out before stay valid."""
        self._aside = None
        self._start = self._end = self._capacity = 0
        self._buffer = _CLOSED

    def is_full(self) -> bool:
        """Whether the buffer is full, so that it may have to grow for the next bytes.

        Called after each receive, when all whole frames are taken.
        """
        return self._capacity - self._end < _ROOM

    def next_capacity(self) -> int:
        """Bytes of memory that the next bytes need; 0: no more than there is."""
        if self._aside is not None or not self._must_grow():
            return 0
        return 2 * self._capacity

    def frame_bytes(self) -> int:
        """Bytes of the frame that has begun, as far as they are known; 0: none has."""
        pending = self.pending
        return pending + self._missing() if pending else 0

    def widen(self) -> None:
        """Have at least `WIDE_CAPACITY` bytes of memory; frames handed out before stay valid."""
        while self._capacity < WIDE_CAPACITY:
            pending = self.pending
            kept = self._buffer[self._start : self._end]
            self._grow()
            self._buffer[:pending] = kept
            self._move(0)

    def _must_grow(self) -> bool:
        return self._capacity - self.pending < min(ROOM, self._missing())

    def _missing(self) -> int:
        """Return how many bytes the current frame still needs, at least; ROOM if unknown."""
        return ROOM

    def _move(self, start: int) -> None:
        """Set where the pending bytes begin."""
        self._end += start - self._start
        self._start = start

    def _make_room(self) -> None:
        """Move what is pending to the front; double the buffer if it is full even so."""
        pending = self.pending
        kept = self._buffer[self._start : self._end]
        if self._must_grow():
            self._grow()
        elif self._start == 0:
            return
        self._buffer[:pending] = kept
        self._move(0)

    def _grow(self) -> None:
        """Double the capacity; the caller copies the pending bytes."""
        aside = self._aside
        if aside is None:
            self._renew(2 * self._capacity)
            return
        self._capacity *= 2
        self._buffer = aside[: self._capacity]
        if self._capacity == len(aside):
            self._aside = None

    def _replace(self, capacity: int) -> None:
        """Use a new buffer with the pending bytes; views of the old one stay valid."""
        pending = self.pending
        kept = self._buffer[self._start : self._end]
        self._renew(capacity)
        self._buffer[:pending] = kept
        self._move(0)

    def _renew(self, capacity: int) -> None:
        self._aside = None
        self._capacity = capacity
        self._filled = 0
        self._buffer = memoryview(mmap(-1, capacity, _PRIVATE))


class Int32Frames(ReceiveBuffer):
    """Frames with an int32 length before them; works with any cutting of the stream."""

    __slots__ = ()

    def next(self) -> memoryview | None:
        """The body of the next whole frame, valid until `get_buffer`; None: more is needed."""
        start = self._start + _PREFIX
        if start > self._end:
            return None
        data = bytes_of(self._buffer)
        length = signed32(uint32_at(data, self._start))
        if not 0 <= length <= self.limit:
            problem = FrameTooLarge if length > self.limit else WireError
            raise problem(describe_bad_length(length, self.limit))
        stop = start + length
        if stop > self._end:
            return None
        if stop == self._end:
            self._start = self._end = 0  # what comes next goes to the front
        else:
            self._start = stop
        return self._buffer[start:stop]

    def _missing(self) -> int:
        if self.pending < PREFIX:
            return PREFIX - self.pending
        length: int = _LENGTH(self._buffer, self._start)[0]
        return max(1, PREFIX + length - self.pending)
