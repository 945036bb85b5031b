"""What one connection holds of the node's memory: unsent data, and frames received in part."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, Protocol

from trilogue.gateway.memory_budget import MemoryBudget, MemoryHolder
from trilogue.wire.frames import BUSY_CAPACITY, INITIAL_CAPACITY, WIDE_CAPACITY, Frames

RECEIVED_FREE: Final = 1 << 20
"""Bytes of a receive buffer for which a connection does not wait while the budget is not spent."""

REQUEST_BYTES_MAX: Final = 64 << 20
"""What requests in flight of one protocol may keep before large ones wait."""


class ConnectionControl(Protocol):
    """The stream, for its memory."""

    @property
    def unsent_bytes(self) -> int:
        """Bytes in the transport's buffer."""

    @property
    def waits_for_server(self) -> bool:
        """Whether the connection is not read for reasons of the server."""

    @property
    def holds_frame(self) -> bool:
        """Whether the session left a frame to be offered again."""

    @property
    def frames_taken(self) -> int:
        """How many frames the session took."""

    def abort(self, reason: str, **fields: object) -> None:
        """Abort the connection."""


class WaitingConnection(Protocol):
    """A connection that is not read until requests of others are answered."""

    def resume_requests(self) -> None:
        """Read again, if nothing else is against it."""


class RequestMemory:
    """What the requests in flight of all connections of a gateway keep in memory.

    Each connection has a bound of its own as well. Where `is_full`, a connection leaves its next
    large request in its buffer and calls `wait`. All that wait go on together: one alone may be
    unable to.
    """

    def __init__(self, bytes_max: int = REQUEST_BYTES_MAX) -> None:
        self.used = 0  # bytes
        self._bytes_max = bytes_max
        self._waiting: dict[WaitingConnection, None] = {}

    @property
    def is_full(self) -> bool:
        """Whether large requests wait."""
        return self.used >= self._bytes_max

    def wait(self, connection: WaitingConnection) -> None:
        """Call `resume_requests` when half of the memory is free."""
        self._waiting[connection] = None

    def forget(self, connection: WaitingConnection) -> None:
        """Do not call it: it is closed."""
        self._waiting.pop(connection, None)

    def add(self, size: int) -> None:
        """Count bytes that a request keeps; negative once it is answered."""
        self.used += size
        if size < 0 and self._waiting and self.used <= self._bytes_max // 2:
            waiting, self._waiting = self._waiting, {}
            for connection in waiting:
                connection.resume_requests()


class UnsentMemory(MemoryHolder):
    """What the peer does not read: in the transport, gathered, and the reply that is being sent."""

    __slots__ = ("_stream", "buffered_bytes", "gathered_bytes", "reply_bytes")

    def __init__(self, budget: MemoryBudget, stream: ConnectionControl, address: str) -> None:
        super().__init__(budget, address)
        self.buffered_bytes = 0  # in the transport
        self.gathered_bytes = 0  # that wait for the transport
        self.reply_bytes = 0  # of a large reply, until all of it was given to the transport
        self._stream: ConnectionControl | None = stream

    def set_buffered(self, size: int) -> None:
        """Count what the transport holds."""
        self.buffered_bytes = size
        self._count()

    def set_gathered(self, size: int) -> None:
        """Count what waits for the transport."""
        self.gathered_bytes = size
        self._count()

    def set_reply(self, size: int) -> None:
        """Count the memory of the reply that is being sent."""
        self.reply_bytes = size
        self._count()

    def release(self) -> None:
        """Count nothing from now on: the connection is closed."""
        self.budget.count_lost(self.size_bytes)
        self._stream = None
        self._count()

    @property
    def moved_bytes(self) -> int:
        """Bytes that the peer has read, or that wait for the transport."""
        return self.largest_bytes - (self._stream.unsent_bytes if self._stream is not None else 0)

    def progress(self) -> int | None:
        """What the transport has left to send."""
        return (self._stream.unsent_bytes or None) if self._stream is not None else None

    def evict(self) -> None:
        """Close: the peer does not read, and others wait for the memory."""
        if self._stream is not None:
            self._stream.abort("connection.unread", unsent_bytes=self.size_bytes)

    def _count(self) -> None:
        size = self.buffered_bytes + self.gathered_bytes + self.reply_bytes
        self.resize(size if self._stream is not None else 0)


class ReceivedMemory(MemoryHolder):
    """The receive buffer of a connection, once it has grown.

    Above `RECEIVED_FREE` there has to be room for all of a frame: connections that have half of
    theirs would wait for each other.
    """

    __slots__ = ("_frames", "_frames_taken", "_receives", "_stream")

    def __init__(
        self,
        budget: MemoryBudget,
        stream: ConnectionControl,
        address: str,
        frames: Frames,
        receives: Callable[[], int],
    ) -> None:
        super().__init__(budget, address)
        self._stream = stream
        self._frames = frames
        self._receives = receives
        self._frames_taken = stream.frames_taken

    def admit(self, capacity: int, resume: Callable[[], None]) -> bool:
        """Whether the buffer may have this capacity now; otherwise `resume` is called once."""
        size = capacity if capacity <= RECEIVED_FREE else self._frames.frame_bytes()
        more = size - self.size_bytes
        if more <= 0:
            return True
        is_free = capacity <= RECEIVED_FREE and not self.budget.is_spent
        if not is_free and not self.budget.admit(self, more, self.address):
            self.budget.wait(self, more, resume, connection=self, address=self.address)
            return False
        self.resize(size)
        self.since_s = time.monotonic()  # the peer could not go on before
        return True

    def widen(self) -> bool:
        """Whether the buffer of a busy peer may have `WIDE_CAPACITY` bytes; they are counted."""
        if self.budget.is_spent:
            return False
        self.resize(WIDE_CAPACITY)
        return True

    def measure(self) -> None:
        """Count the capacity that the buffer has now, and all of a large frame."""
        capacity = self._frames.capacity
        if capacity <= INITIAL_CAPACITY:
            self.resize(0)
        elif capacity <= RECEIVED_FREE or (frame := self._frames.frame_bytes()) <= RECEIVED_FREE:
            self.resize(capacity)
        else:
            self.resize(frame if frame > BUSY_CAPACITY else max(frame, capacity))

    def release(self) -> None:
        """Count nothing: the connection is closed."""
        self.budget.forget(self)
        self.resize(0)

    def reclaim(self) -> None:
        """Release a buffer that holds nothing."""
        if not self._frames.pending and not self._stream.holds_frame:
            self._frames.release()
            self.measure()

    def progress(self) -> int | None:
        """How often bytes came, while a frame is incomplete and the server would read the rest."""
        if not self._frames.pending or self._stream.waits_for_server:
            return None
        if self._frames_taken != self._stream.frames_taken:
            self._frames_taken = self._stream.frames_taken
            self.since_s = time.monotonic()
        return self._receives()

    @property
    def moved_bytes(self) -> int:
        """Bytes that have come of the frame."""
        return self._frames.pending

    def evict(self) -> None:
        """Close: the frame does not become complete, and others wait for the memory."""
        self._stream.abort("connection.stalled_frame", received_bytes=self._frames.pending)
