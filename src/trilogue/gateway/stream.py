"""One connection's bytes: a buffer cut into frames, fair turns, back-pressure both ways.

    socket ──get_buffer, buffer_updated──► Frames ──one frame at a time──► Taker (a session)
    socket ◄──write, writelines── send() ◄── replies

Nobody may take the loop for long: a connection gets at most `turn_bytes` or `turn_frames` in one
turn, the rest of what it has sent waits for the next round of the loop. Nobody may fill memory
either: a connection is not read while its peer does not read our answers (the transport's buffer is
full), while the session behind it has too much in flight, or while the broker asks for a pause. TCP
then tells the peer.

Frames are views into the receive buffer. They stay valid until the next `get_buffer`, which does
not come while reading is paused: that is why a frame may be left untaken and offered again later.

Deadlines are kept by one sweep over all connections (listen.py), not by a timer per connection: the
hot path only counts. What runs for each request stands in hot.py.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, cast

from trilogue.gateway.hot import Flow
from trilogue.wire.errors import EncodeError, WireError
from trilogue.wire.frames import Frames, Int32Frames

log = logging.getLogger(__name__)

Buffer = bytes | bytearray | memoryview

KIB, MIB = 1 << 10, 1 << 20

# Why a connection is not read now; bits, since several can hold at once. Plain numbers: this is
# a hot path.
STOP_WRITING = 1  # the peer does not read our answers
STOP_SESSION = 2  # the session has enough in flight
STOP_BROKER = 4  # the broker wants producers to pause
STOP_WORK = 8  # a long request of this connection is being worked on
STOP_DRAIN = 16  # no more requests: this connection is being closed in order
STOP_QUOTA = 32  # its client has used more than its share


@dataclass(frozen=True, slots=True)
class Limits:
    """Every bound a connection meets, for one door."""

    frame_bytes: int = 100 * MIB
    unauthenticated_frame_bytes: int = 512 * KIB  # waits for authentication: all are let in now
    turn_bytes: int = 64 * KIB
    turn_frames: int = 100
    write_high_bytes: int = 256 * KIB
    in_flight_requests: int = 1_000
    waiting_reply_bytes: int = 16 * MIB
    incomplete_frame_s: float = 30.0
    incomplete_frame_bytes_per_s: int = (
        1 * MIB
    )  # a large frame that keeps coming is given more time
    idle_s: float = 600.0
    connections: int = 10_000
    connections_per_address: int = 5_000
    sweep_s: float = 1.0
    accept_retry_s: float = 0.5
    spare_descriptors: int = 64  # kept for files: a journal that cannot open one ends the process


class Close(Exception):
    """Raised by a session while it takes a frame; the reason is logged once."""

    def __init__(self, reason: str, **fields: object) -> None:
        super().__init__(reason)
        self.reason = reason
        self.fields = fields


class Taker(Protocol):
    """What stands behind a stream: a session of some protocol."""

    def opened(self, stream: Stream) -> None:
        """The connection is there."""

    def frame(self, frame: memoryview) -> bool:
        """Take one frame; False leaves it to be offered again once the stream goes on."""

    def turn_over(self) -> None:
        """The frames of this turn have been given: the time to send what is ready."""

    def writable(self) -> None:
        """The peer reads again."""

    @property
    def busy(self) -> bool:
        """Whether the peer waits for us, so that its silence is no idleness."""

    def closed(self) -> None:
        """The connection is gone: release everything."""

    def drain(self) -> None:
        """Take no more frames, answer what is in flight, then close."""


class Stream(Flow, asyncio.BufferedProtocol):
    """A connection of the server: frames in, buffers out, fair and bounded."""

    def __init__(
        self,
        taker: Taker,
        limits: Limits,
        *,
        call_soon: Callable[[Callable[[], None]], object],
        on_gone: Callable[[Stream], None],
        framer: Callable[[int], Frames] = Int32Frames,
    ) -> None:
        self.limits = limits
        self.write_paused = False
        self.stops = 0
        self.peer: tuple[str, int] = ("", 0)
        self._taker = taker
        self._frames = framer(limits.frame_bytes)
        self._on_gone = on_gone
        self._call_soon = call_soon
        self._transport = None
        self._held = None
        self._turn_waits = False
        self._reading = True
        self.receives = 0
        self._frames_taken = 0
        self._marks = Marks()
        # Looked up once: these are asked for at every receive.
        self._next_frame = self._frames.next
        self._take = taker.frame
        self._turn_frames = limits.turn_frames
        self._turn_bytes = limits.turn_bytes

    # ---- what the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport; small answers must not wait for Nagle."""
        self._transport = transport = cast(
            "asyncio.Transport", transport
        )  # uvloop's is no subclass
        transport.set_write_buffer_limits(high=self.limits.write_high_bytes)
        raw = transport.get_extra_info("socket")
        if raw is not None and raw.family in {socket.AF_INET, socket.AF_INET6}:
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        peer = transport.get_extra_info("peername")
        if isinstance(peer, tuple):
            self.peer = (str(peer[0]), int(peer[1]))
        self._taker.opened(self)

    def connection_lost(self, _problem: Exception | None) -> None:
        """Release the session; what it still promises goes nowhere."""
        self._transport = None
        self._held = None
        try:
            self._taker.closed()
        finally:
            self._on_gone(self)

    def eof_received(self) -> bool:
        """The peer sends no more: nothing can be answered in order after that, so close."""
        return False

    def pause_writing(self) -> None:
        """The peer does not read: take no more requests until it does."""
        self.write_paused = True
        self.stop(STOP_WRITING)

    def resume_writing(self) -> None:
        """The peer reads again: first what waits to be sent, then new requests."""
        self.write_paused = False
        self.guarded(self._taker.writable)
        if not self.write_paused:
            self.go_on(STOP_WRITING)

    # ---- what the session calls

    @property
    def is_open(self) -> bool:
        """Whether something written now can still arrive."""
        return self._transport is not None and not self._transport.is_closing()

    def call_soon(self, call: Callable[[], None]) -> None:
        """Do something in another turn of the loop."""
        self._call_soon(call)

    def limit_frames(self, size: int) -> None:
        """Take frames up to this size from here on: something is known of the peer now."""
        self._frames.limit = size

    def guarded(self, call: Callable[[], None]) -> None:
        """Run a callback that comes from elsewhere: its failure ends this connection only."""
        try:
            call()
        except Close as order:
            self.abort(order.reason, **order.fields)
        except Exception:
            log.exception("connection.failed", extra={"address": self.peer[0]})
            self.abort("connection.cut")

    def stop(self, reason: int) -> None:
        """Take no more frames for this reason."""
        self.stops |= reason
        self._pause_reading()

    def go_on(self, reason: int) -> None:
        """This reason is over; take frames again, in a turn of their own, when it was the last."""
        if not self.stops & reason:
            return
        self.stops &= ~reason
        if not self.stops:
            self._later()

    def abort(self, reason: str, **fields: object) -> None:
        """Cut the connection and say why, once."""
        if self._transport is None:
            return
        fields["address"] = self.peer[0]
        fields["port"] = self.peer[1]
        log.warning(reason, extra=fields)
        self.stops |= STOP_DRAIN
        self._transport.abort()

    def close(self) -> None:
        """Close when everything written has left."""
        self.stop(STOP_DRAIN)
        if self._transport is not None:
            self._transport.close()

    # ---- turns

    def _turned(self, rest: bool) -> None:
        if rest:
            self._pause_reading()
            if not self.stops:
                self._later()
        elif not self.stops and not self._reading:
            self._resume_reading()

    def _failed(self, problem: Exception) -> None:
        if isinstance(problem, Close):
            self.abort(problem.reason, **problem.fields)
        elif isinstance(problem, WireError) and not isinstance(problem, EncodeError):
            self.abort("connection.bad_bytes", problem=str(problem))
        else:
            log.exception("connection.failed", extra={"address": self.peer[0]})  # noqa: LOG004
            self.abort("connection.cut")

    def _later(self) -> None:
        if not self._turn_waits and self._transport is not None:
            self._turn_waits = True
            self._call_soon(self._turn)

    def _pause_reading(self) -> None:
        if self._reading and self.is_open:
            assert self._transport is not None
            self._reading = False
            self._transport.pause_reading()

    def _resume_reading(self) -> None:
        if self.is_open:
            assert self._transport is not None
            self._reading = True
            self._transport.resume_reading()

    # ---- deadlines

    def sweep(self, now_s: float) -> None:
        """Cut this connection if its peer is too slow; called about once a second."""
        if self._transport is None:
            return
        marks, limits = self._marks, self.limits
        self._frames.rest()
        incomplete = self._frames.pending
        if incomplete == 0 or self._frames_taken != marks.frames or self.stops:
            marks.frames, marks.frame_since_s = self._frames_taken, now_s
        elif now_s - marks.frame_since_s > limits.incomplete_frame_s + (
            incomplete / limits.incomplete_frame_bytes_per_s
        ):
            self.abort("connection.incomplete_frame", received_bytes=incomplete)
            return
        unsent = self._transport.get_write_buffer_size()
        waits_for_us = not self.write_paused and (self._taker.busy or self.stops)
        if waits_for_us or self.receives != marks.receives or unsent < marks.unsent:
            marks.idle_since_s = now_s
        elif now_s - marks.idle_since_s > limits.idle_s:
            self.abort("connection.idle")
            return
        marks.receives, marks.unsent = self.receives, unsent


@dataclass(slots=True)
class Marks:
    """What the last sweep saw, and since when it has not changed."""

    receives: int = -1
    frames: int = -1
    unsent: int = 0
    frame_since_s: float = 0.0
    idle_since_s: float = 0.0
