"""One connection's bytes: a buffer cut into frames, fair shares, back-pressure in both directions.

    socket ──get_buffer, buffer_updated──► Frames ──one frame at a time──► session
    socket ◄──write, writelines── send() ◄── replies

No connection may keep the event loop for long: it gets at most `turn_bytes` or `turn_frames` in one
loop iteration, the rest of what it has sent waits for a later one. Nor may it fill memory: a
connection is not read while its peer does not read the replies (the transport's buffer is full),
while its session has too much in flight, or while the broker requests a pause. TCP then slows the
peer down.

Frames are views into the receive buffer. They stay valid until the next `get_buffer`, which is not
called while reading is paused: so a session may leave a frame, and is offered it again later.

Memory that all connections share is counted where it is large (memory_budget.py): what the peer
does not read, and a receive buffer that grows for a large frame. Before it grows the connection
waits for room, unread.

Deadlines are checked by one sweep over all connections (listener.py), not by a timer per
connection. What runs for each request is in frame_dispatcher.py and transport_writer.py, which are
compiled.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Mapping
from typing import Protocol, cast

import msgspec

from trilogue.gateway.frame_dispatcher import FrameDispatcher
from trilogue.gateway.memory_budget import ConnectionMemory, MemoryBudget
from trilogue.gateway.stream_memory import ReceivedMemory, UnsentMemory
from trilogue.gateway.transport_writer import TransportWriter
from trilogue.wire.errors import EncodeError, WireError
from trilogue.wire.frames import WIDE_CAPACITY, Frames, Int32Frames

log = logging.getLogger(__name__)

Buffer = bytes | bytearray | memoryview

KIB, MIB = 1 << 10, 1 << 20

# Why a connection is not read now; bits, since several can hold at once. Plain numbers: this is
# a hot path.
STOP_WRITING = 1  # the peer does not read the replies
STOP_SESSION = 2  # the session has too many requests in flight
STOP_BROKER = 4  # the broker pauses producers
STOP_WORK = 8  # a long request of this connection is running
STOP_DRAIN = 16  # no more requests: this connection drains and closes
STOP_QUOTA = 32  # its client exceeded a quota
STOP_MEMORY = 64  # its frame is large, and there is no memory for the rest of it now
STOP_TURN = 128  # large requests of other connections are in flight
SERVER_STOPS = STOP_BROKER | STOP_WORK | STOP_QUOTA | STOP_TURN


class Limits(msgspec.Struct, frozen=True):
    """The limits of the connections of one listener."""

    frame_bytes: int = 100 * MIB
    unauthenticated_frame_bytes: int = 512 * KIB  # before the client has logged in
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
    connections_of: Mapping[str, int] = {}  # single addresses with another number
    sweep_s: float = 1.0
    accept_retry_s: float = 0.5
    accept_quiet_s: float = 5.0  # without a pause of accepting: then pauses are over
    spare_descriptors: int = 64  # kept for files: a journal that cannot open one ends the process


class Close(Exception):
    """Raised by a session while it takes a frame; the reason is logged once."""

    def __init__(self, reason: str, **fields: object) -> None:
        super().__init__(reason)
        self.reason = reason
        self.fields = fields


class StreamSession(Protocol):
    """The session of a protocol that a stream serves."""

    def opened(self, stream: Stream) -> None:
        """The connection is established."""

    def frame(self, frame: memoryview) -> bool:
        """Process one frame; False leaves it to be offered again when the stream continues."""

    def end_iteration(self) -> None:
        """All frames of this loop iteration were given: send the replies that are ready."""

    def writable(self) -> None:
        """The peer reads again."""

    @property
    def busy(self) -> bool:
        """Whether the peer waits for a reply, so that it is not idle."""

    def closed(self) -> None:
        """The connection is gone: release everything."""

    def drain(self) -> None:
        """Accept no more frames, answer the requests in flight, then close."""


class GetBuffer(Protocol):
    """The method of a protocol that returns memory to receive into."""

    def __call__(self, sizehint: int) -> memoryview:
        """Return memory to receive into."""


class BufferUpdated(Protocol):
    """The method of a protocol that is called after bytes were received."""

    def __call__(self, nbytes: int) -> None:
        """Process `nbytes` received bytes."""


class Stream(asyncio.BufferedProtocol):
    """A connection of the server: frames in, buffers out, fair and bounded."""

    # Compiled methods, bound in each instance: the transport calls them for every request.
    get_buffer: GetBuffer
    buffer_updated: BufferUpdated

    def __init__(
        self,
        session: StreamSession,
        limits: Limits,
        *,
        call_soon: Callable[[Callable[[], None]], object],
        on_gone: Callable[[Stream], None],
        framer: Callable[[int], Frames] = Int32Frames,
        memory: ConnectionMemory | None = None,
    ) -> None:
        self.limits = limits
        self.memory = memory or ConnectionMemory()
        self.peer: tuple[str, int] = ("", 0)
        self._session = session
        self._frames = framer(limits.frame_bytes)
        self._on_gone = on_gone
        self._call_soon = call_soon
        self._marks = SweepMarks()
        self._unsent: UnsentMemory | None = None
        self._received: ReceivedMemory | None = None
        self._received_budget = self.memory.received
        self._writer = TransportWriter()
        self._dispatcher = FrameDispatcher(
            self,
            self._writer,
            self._frames,
            take_frame=session.frame,
            end_iteration=session.end_iteration,
            iteration_frames=limits.turn_frames,
            iteration_bytes=limits.turn_bytes,
            budget=self.memory.iterations,
        )
        self.get_buffer = self._dispatcher.get_buffer
        self.buffer_updated = self._dispatcher.buffer_updated
        self.send = self._writer.send
        self.send_one = self._writer.send_one

    @property
    def peer_certificate(self) -> dict[str, object]:
        """The client's certificate, which the TLS listener has verified; empty without one."""
        transport = self._writer.transport
        found = None if transport is None else transport.get_extra_info("peercert")
        return found or {}

    @property
    def writer(self) -> TransportWriter:
        """Where replies are written."""
        return self._writer

    @property
    def write_paused(self) -> bool:
        """Whether the peer does not read what was written."""
        return self._writer.is_paused

    @property
    def stops(self) -> int:
        """Why no frames are taken: bits, 0 = they are."""
        return self._dispatcher.stops

    @property
    def receives(self) -> int:
        """How often bytes were received."""
        return self._dispatcher.receives

    @property
    def unsent(self) -> UnsentMemory:
        """What this connection holds of the memory for unsent data."""
        if self._unsent is None:
            self._unsent = UnsentMemory(self.memory.unsent, self, self.peer[0])
        return self._unsent

    @property
    def unsent_bytes(self) -> int:
        """Bytes in the transport's buffer."""
        transport = self._writer.transport
        return 0 if transport is None else transport.get_write_buffer_size()

    @property
    def waits_for_server(self) -> bool:
        """Whether the connection is not read for reasons of the server."""
        return bool(self.stops & SERVER_STOPS)

    @property
    def holds_frame(self) -> bool:
        """Whether the session left a frame to be offered again."""
        return self._dispatcher.held is not None

    @property
    def frames_taken(self) -> int:
        """How many frames the session took."""
        return self._dispatcher.frames_taken

    @property
    def has_rest(self) -> bool:
        """Whether bytes that were received wait for a later loop iteration."""
        return self._dispatcher.is_scheduled or self.holds_frame

    # ---- called by the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport, without Nagle's delay of small replies."""
        self._writer.transport = transport = cast(
            "asyncio.Transport", transport
        )  # uvloop's is no subclass
        transport.set_write_buffer_limits(high=self.limits.write_high_bytes)
        raw = transport.get_extra_info("socket")
        if raw is not None and raw.family in {socket.AF_INET, socket.AF_INET6}:
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if raw is not None and transport.get_extra_info("sslcontext") is None:
            self._writer.socket_number = raw.fileno()
        peer = transport.get_extra_info("peername")
        if isinstance(peer, tuple):
            self.peer = (str(peer[0]), int(peer[1]))
        self._session.opened(self)

    def connection_lost(self, _problem: Exception | None) -> None:
        """Release the session; later replies are dropped."""
        self._writer.transport = None
        try:
            self._session.closed()
        finally:
            if self._unsent is not None:
                self._unsent.release()
            if self._received is not None:
                self._received.release()
                self._received = None
            self._on_gone(self)
            # Nothing refers to each other from now on, so memory does not wait for the collector.
            self._dispatcher.close()
            del self._session, self._on_gone

    def eof_received(self) -> bool:
        """Close: the peer has shut down its side."""
        return False

    def pause_writing(self) -> None:
        """The peer does not read: accept no more requests until it does."""
        self._writer.is_paused = True
        self.unsent.set_buffered(self.unsent_bytes)
        self.stop(STOP_WRITING)

    def resume_writing(self) -> None:
        """The peer reads again: send the waiting replies, then accept requests."""
        self._writer.is_paused = False
        self.unsent.set_buffered(0)
        self.guarded(self._session.writable)
        if not self.write_paused:
            self.go_on(STOP_WRITING)

    # ---- called by the session

    @property
    def is_open(self) -> bool:
        """Whether something written now can still arrive."""
        return self._writer.transport is not None and not self._writer.transport.is_closing()

    def duplicate_socket(self) -> socket.socket | None:
        """Return a socket to the same peer, for bytes that a thread sends instead of the transport.

        None where the transport has bytes to send, or encrypts them.
        """
        transport = self._writer.transport
        if transport is None or transport.is_closing() or transport.get_write_buffer_size():
            return None
        raw = transport.get_extra_info("socket")
        if raw is None or transport.get_extra_info("sslcontext") is not None:
            return None
        try:
            return socket.socket(raw.family, raw.type, raw.proto, os.dup(raw.fileno()))
        except OSError:  # no descriptor is left
            return None

    def call_soon(self, call: Callable[[], None]) -> None:
        """Call in another loop iteration."""
        self._call_soon(call)

    def limit_frames(self, size: int) -> None:
        """Set the limit of bytes of a frame, when the session knows more of the peer."""
        self._frames.limit = size
        self._receive_within(self.memory.received)

    def expect_login(self) -> None:
        """Take small frames only until `limit_frames`, within a budget of such connections."""
        limits = self.limits
        self._frames.limit = min(limits.frame_bytes, limits.unauthenticated_frame_bytes)
        self._receive_within(self.memory.unauthenticated)

    def _receive_within(self, budget: MemoryBudget) -> None:
        """Count the receive buffer in this budget from now on."""
        self._received_budget = budget
        if self._received is not None:
            self._received.release()
            self._received = None
            self._count_received().measure()
            self.go_on(STOP_MEMORY)  # it waits in the other budget then

    def guarded(self, call: Callable[[], None]) -> None:
        """Run a callback of another part; its failure ends this connection only."""
        try:
            call()
        except Close as order:
            self.abort(order.reason, **order.fields)
        except Exception:
            log.exception("connection.failed", extra={"address": self.peer[0]})
            self.abort("connection.cut")

    def stop(self, reason: int) -> None:
        """Pause the frames for a reason, one of the STOP bits."""
        self._dispatcher.stops |= reason
        self._pause_reading()

    def go_on(self, reason: int) -> None:
        """End a reason; after the last one frames continue, in a loop iteration of their own."""
        if not self.stops & reason:
            return
        self._dispatcher.stops &= ~reason
        if not self.stops:
            self._schedule_dispatch()

    def abort(self, reason: str, **fields: object) -> None:
        """Abort the connection and log the reason, once."""
        if self._writer.transport is None:
            return
        fields["address"] = self.peer[0]
        fields["port"] = self.peer[1]
        log.warning(reason, extra=fields)
        self._dispatcher.stops |= STOP_DRAIN
        self._writer.transport.abort()

    def close(self) -> None:
        """Close after all written bytes are sent."""
        self.stop(STOP_DRAIN)
        if self._writer.transport is not None:
            self._writer.transport.close()

    # ---- dispatch

    def after_dispatch(self, has_rest: bool) -> None:
        """Stop reading while a rest waits for its iteration; read again when none is left."""
        if has_rest:
            self._pause_reading()
            if not self.stops:
                self._schedule_dispatch()
        elif not self.stops and not self._dispatcher.is_reading and self._may_grow():
            self._resume_reading()

    def after_large(self) -> None:
        """Stop reading until it is the turn of the large frame that waits."""
        self._pause_reading()
        if not self.stops and not self._dispatcher.is_scheduled and self.is_open:
            self._dispatcher.is_scheduled = True
            self.memory.iterations.defer_large(self._dispatcher.dispatch)

    def buffer_full(self) -> None:
        """Wait, unread, until there is memory for the rest of a large frame."""
        if not self._may_grow():
            self._pause_reading()

    def _may_grow(self) -> bool:
        """Whether the receive buffer may grow for the next bytes, if it has to."""
        if not self._frames.is_full():
            return True
        capacity = self._frames.next_capacity()
        if not capacity:
            if self._frames.capacity < WIDE_CAPACITY and self._count_received().widen():
                self._frames.widen()
            return True
        if self._count_received().admit(capacity, self._grow):
            return True
        self._dispatcher.stops |= STOP_MEMORY
        return False

    def _count_received(self) -> ReceivedMemory:
        if self._received is None:
            self._received = ReceivedMemory(
                self._received_budget, self, self.peer[0], self._frames, lambda: self.receives
            )
        return self._received

    def _grow(self) -> None:
        self.go_on(STOP_MEMORY)

    def fail(self, problem: Exception) -> None:
        """End the connection: the session raised this, and it is being handled."""
        if isinstance(problem, Close):
            self.abort(problem.reason, **problem.fields)
        elif isinstance(problem, WireError) and not isinstance(problem, EncodeError):
            self.abort("connection.bad_bytes", problem=str(problem))
        else:
            log.exception("connection.failed", extra={"address": self.peer[0]})  # noqa: LOG004
            self.abort("connection.cut")

    def _schedule_dispatch(self) -> None:
        if not self._dispatcher.is_scheduled and self._writer.transport is not None:
            self._dispatcher.is_scheduled = True
            self._call_soon(self._dispatcher.dispatch)

    def _pause_reading(self) -> None:
        if self._dispatcher.is_reading and self.is_open:
            assert self._writer.transport is not None
            self._dispatcher.is_reading = False
            self._writer.transport.pause_reading()

    def _resume_reading(self) -> None:
        if self.is_open:
            assert self._writer.transport is not None
            self._dispatcher.is_reading = True
            self._writer.transport.resume_reading()

    # ---- deadlines

    def sweep(self, now_s: float) -> None:
        """Cut this connection if its peer is too slow; called about once a second."""
        if self._writer.transport is None:
            return
        marks, limits = self._marks, self.limits
        self._frames.rest()
        if self.receives == marks.receives and not self.holds_frame:
            self._frames.rest_idle()
        if self._received is not None and not self.stops & STOP_MEMORY:
            self._received.measure()
        dispatcher, incomplete = self._dispatcher, self._frames.pending
        waits = self.stops or self.has_rest  # for the server
        if incomplete == 0 or dispatcher.frames_taken != marks.frames or waits:
            marks.frames, marks.frame_since_s = dispatcher.frames_taken, now_s
        elif now_s - marks.frame_since_s > limits.incomplete_frame_s + (
            incomplete / limits.incomplete_frame_bytes_per_s
        ):
            self.abort("connection.incomplete_frame", received_bytes=incomplete)
            return
        unsent = self.unsent_bytes
        if unsent or self._unsent is not None:
            self.unsent.set_buffered(unsent)
        waits_for_us = not self.write_paused and (self._session.busy or self.stops)
        if waits_for_us or self.receives != marks.receives or unsent < marks.unsent:
            marks.idle_since_s = now_s
        elif now_s - marks.idle_since_s > limits.idle_s:
            self.abort("connection.idle")
            return
        marks.receives, marks.unsent = self.receives, unsent


class SweepMarks(msgspec.Struct):
    """The values of the last sweep, and since when they are unchanged."""

    receives: int = -1
    frames: int = -1
    unsent: int = 0
    frame_since_s: float = 0.0
    idle_since_s: float = 0.0
