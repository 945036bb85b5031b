# ruff: noqa: ERA001 -- the next line is for the compiler
# cython: annotation_typing=False
"""The way of a request through a stream, compiled: received, cut off, taken, answered.

`Flow` is the hot half of `Stream` (stream.py), which derives from it and has everything else: what
a transport calls seldom, reasons to stop, deadlines. `Place` stands here because the hottest of
them, `Committing` (kafka/hot.py), derives from it. Cython reads this file together with hot.pxd,
which only adds types; uncompiled it is plain Python (docs/decisions/0058).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections import deque
    from collections.abc import Callable, Sequence
    from typing import Any

    from trilogue.gateway.stream import Buffer, Limits, Stream, Taker
    from trilogue.wire.frames import Frames


class Place:
    """One reply's place in the order; some other kinds hold several replies.

    `waiting_bytes` is what it takes while others are before it: a reply, or a request to be looked
    at later.
    """

    __slots__ = ("ready", "requests", "waiting_bytes")

    ready: bool
    requests: int
    waiting_bytes: int

    def __init__(self) -> None:
        self.ready = False
        self.requests = 1
        self.waiting_bytes = 0

    def render(self) -> list[Buffer] | None:
        """The bytes to send, at the head of the queue; None: not yet, `ready` will be set again."""
        raise NotImplementedError

    def hurry(self) -> None:
        """The server drains: if this waits only for more to come, it should wait no longer."""

    def abandon(self) -> None:
        """Nobody will read this reply: let go of what it waits for."""


class Flow:
    """Frames in, in fair turns, and buffers out."""

    __slots__ = (
        "_frames",
        "_frames_taken",
        "_held",
        "_next_frame",
        "_reading",
        "_take",
        "_taker",
        "_transport",
        "_turn_bytes",
        "_turn_frames",
        "_turn_waits",
        "limits",
        "receives",
        "stops",
        "write_paused",
    )

    limits: Limits
    receives: int
    stops: int  # bits: why no frames are taken
    write_paused: bool
    _frames: Frames
    _frames_taken: int
    _held: memoryview | None  # a frame that was not taken
    _next_frame: Callable[[], memoryview | None]
    _reading: bool
    _take: Callable[[memoryview], bool]
    _taker: Taker
    _transport: asyncio.Transport | None
    _turn_bytes: int  # a share of one turn
    _turn_frames: int
    _turn_waits: bool

    def get_buffer(self, _sizehint: int) -> memoryview:
        """Room to receive into."""
        return self._frames.get_buffer()

    def buffer_updated(self, size: int) -> None:
        """Bytes arrived: give the frames that are whole to the session."""
        self._frames.received(size)
        self.receives += 1
        if not self.stops and not self._turn_waits:
            self._turn()

    def send(self, buffers: Sequence[Buffer]) -> None:
        """Write whole replies with one call; they must not be changed afterwards."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if len(buffers) == 1:
            transport.write(buffers[0])
        else:
            transport.writelines(buffers)

    def send_one(self, buffer: Buffer) -> None:
        """Do the same with a reply in one piece."""
        transport = self._transport
        if transport is not None and not transport.is_closing():
            transport.write(buffer)

    def _turn(self) -> None:
        """Give frames until none is left, this had its share, or something says stop."""
        self._turn_waits = False
        if self._transport is None:
            return
        try:
            rest = self._give()
            self._taker.turn_over()
        except Exception as problem:  # noqa: BLE001 -- it is logged there
            self._failed(problem)
        else:
            if rest or not self._reading:
                self._turned(rest)

    def _give(self) -> bool:
        """Whether the rest comes in another turn: what is left, or what is still to be read.

        The transport reads up to 32 times in a round of the loop as long as more has come: who had
        its share has to stop it, or a producer of large batches would get 32 shares.
        """
        frames_left, bytes_left = self._turn_frames, self._turn_bytes
        frame, self._held = self._held, None
        while True:
            if frame is None:
                frame = self._next_frame()
                if frame is None:
                    return bytes_left <= 0
            if self.stops or frames_left <= 0 or bytes_left <= 0 or not self._take(frame):
                self._held = frame
                return True
            self._frames_taken += 1
            frames_left -= 1
            bytes_left -= len(frame)
            frame = None

    def _turned(self, rest: bool) -> None:
        """A turn is over, and the rest waits, or nothing is read."""
        raise NotImplementedError

    def _failed(self, problem: Exception) -> None:
        """A turn failed: called while the problem is handled."""
        raise NotImplementedError


class HotSession:
    """What is asked of a session for each request: the fields of `Session` (session.py)."""

    stream: Stream
    in_flight: int
    _draining: bool
    _full: bool
    _gone: bool
    _queue: deque[Any]  # of places

    def flush(self) -> None:
        """Send every reply that is ready, from the head, as long as the peer reads."""
        raise NotImplementedError

    def say(self, reply: bytearray) -> None:
        """Queue a reply that is ready; it leaves with the turn."""
        raise NotImplementedError

    def guarded(self, call: Callable[[], None]) -> None:
        """Run a callback that comes from elsewhere: its failure ends this connection only."""
        raise NotImplementedError

    def _stop(self) -> None:
        raise NotImplementedError
