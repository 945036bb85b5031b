"""Replies in the order of their requests, however long each of them takes.

Every request that has a reply has a slot in a queue. A slot becomes ready at once, when the journal
has committed, when a promise is resolved, or when data arrives; replies are sent only from the head
of the queue, all that are ready with one write.

A slot is rendered into bytes only when it is at the head and the peer reads. So a peer that does
not read costs the bytes in the transport (one response) and at most one more response, for any
number of requests.

A connection does not block the event loop: one step sends replies up to a limit of work (`spent`),
the next step continues. That includes a single large reply: sending 16 MiB takes 20 ms, most of it
in the kernel. A thread sends it where that is possible (transfers/reply_transfers.py), else the
rest of it stays at the head of the queue.

This class knows no protocol; `kafka/connection.py` derives from it.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable
from typing import Final

from trilogue.gateway.reply_slots import ReplySlot, ReplySlots
from trilogue.gateway.stream import STOP_SESSION, Buffer, Stream
from trilogue.gateway.transfers.socket_sender import drop_bytes

__all__ = ["BYTES_A_WORK", "ITERATION_WORK", "BufferedReply", "PipelinedConnection"]

ITERATION_WORK: Final = (
    250  # that the replies of one connection may cost in one loop iteration: 1 ms
)
BYTES_A_WORK: Final = (
    12  # 4 KiB to send (1 << 12) cost about as much as one partition or topic to look up
)
PIECE_SHARE: Final = 4
"""A large reply is written in pieces of so many times the limit of the transport's buffer: 1 MiB,
which is what one loop iteration may send (`ITERATION_WORK`)."""

SLOW_PIECES: Final = 64
"""What the loop sends to a peer that was too slow for a thread, before a thread tries again."""


class BufferedReply(ReplySlot):
    """A reply that was ready when it was queued, or that is filled in later."""

    __slots__ = ("buffers",)

    def __init__(self, buffers: list[Buffer] | None = None) -> None:
        super().__init__()
        self.buffers = buffers
        self.ready = buffers is not None

    def render(self) -> list[Buffer] | None:
        """Return the buffers of the reply."""
        buffers, self.buffers = self.buffers, []
        return buffers


def take_over(slot: ReplySlot, successor: ReplySlot) -> None:
    """Let another slot stand for the requests of one that has left the queue."""
    successor.requests, successor.waiting_bytes = slot.requests, slot.waiting_bytes
    successor.timer, slot.timer = slot.timer, None


class TransferSlot(ReplySlot):
    """The slot of a reply that a thread sends; what it could not send is rendered."""

    __slots__ = ("_connection", "rest")

    def __init__(self, connection: socket.socket, replaced: ReplySlot) -> None:
        super().__init__()
        take_over(replaced, self)
        self.rest: list[Buffer] = []
        self._connection = connection

    def render(self) -> list[Buffer]:
        """Return what is left to be sent by the loop."""
        rest, self.rest = self.rest, []
        return rest

    def abandon(self) -> None:
        """End the transfer: the connection is closed."""
        with contextlib.suppress(OSError):  # the peer has closed it
            self._connection.shutdown(socket.SHUT_RDWR)


class PipelinedConnection:
    """The replies of one connection, in order and within limits."""

    logged_events: tuple[str, ...] = ()  # see connection_log.py

    def __init__(self) -> None:
        self.slots = ReplySlots()
        self.spent = 0  # work of this step; replies with many lookups add to it
        self._counts_reply = False  # the reply at the head is large: its memory is counted
        self._pieces_by_loop = 0  # of large replies, before a thread sends one
        self._flush_scheduled = False  # the next flush is scheduled
        self._waiting_bytes = 0
        self._opened = False

    # ---- called by the stream

    def opened(self, stream: Stream) -> None:
        """Keep the stream to reply to."""
        self.stream = stream
        self._opened = True
        if self.slots.is_draining:
            self.drain()

    def writable(self) -> None:
        """Send the replies that waited for the peer to read."""
        self.flush()

    def closed(self) -> None:
        """Abandon all replies."""
        self.slots.is_gone = True
        slots = list(self.slots.queue)
        self.slots.queue.clear()
        for slot in slots:
            slot.abandon()

    @property
    def busy(self) -> bool:
        """Whether the peer waits for an answer."""
        return bool(self.slots.queue)

    @property
    def in_flight(self) -> int:
        """The number of requests whose reply is not sent yet."""
        return self.slots.in_flight

    @property
    def is_gone(self) -> bool:
        """Whether the connection is closed."""
        return self.slots.is_gone

    # ---- replies

    def queue(self, slot: ReplySlot) -> None:
        """Append a slot; its waiting bytes count unless it is the first."""
        if not self.slots.queue:
            slot.waiting_bytes = 0
        elif slot.waiting_bytes:
            self._waiting_bytes += slot.waiting_bytes
            if self._waiting_bytes > self.stream.limits.waiting_reply_bytes:
                self.stop_reading()
        self.slots.queue.append(slot)
        self.count_one_more()

    def count_one_more(self) -> None:
        """Count a request in flight; at the limit no more are read."""
        self.slots.in_flight += 1
        if self.slots.in_flight >= self.stream.limits.in_flight_requests:
            self.stop_reading()

    def queue_reply(self, reply: bytearray) -> None:
        """Queue a reply that is ready; the next flush sends it."""
        slot = BufferedReply([reply])
        slot.waiting_bytes = len(reply)
        self.queue(slot)

    def fill(self, slot: BufferedReply, buffers: list[Buffer]) -> None:
        """Set the reply of a slot that was queued earlier."""
        slot.buffers = buffers
        self.is_ready(slot)

    def is_ready(self, slot: ReplySlot) -> None:
        """Mark a reply ready outside a step, and send it if it is the next one."""
        slot.ready = True
        if self.slots.queue and self.slots.queue[0] is slot:
            self.guarded(self.flush)

    def flush(self) -> None:
        """Send every reply that is ready, from the head on, as long as the peer reads."""
        if self._flush_scheduled:
            return
        queue = self.slots.queue
        stream = self.stream
        self.spent = 0
        while queue and queue[0].ready and not stream.write_paused and not self.slots.is_gone:
            if self.spent >= ITERATION_WORK:
                self._flush_scheduled = True
                stream.call_soon(self._resume_flush)
                break
            buffers = self._take_ready()
            if buffers:
                stream.send(buffers)
        if self.slots.is_full and self._has_room():
            self.slots.is_full = False
            stream.go_on(STOP_SESSION)
        if self.slots.is_draining and not queue:
            stream.close()

    def _resume_flush(self) -> None:
        self._flush_scheduled = False
        self.guarded(self.flush)

    def count_reply(self, size: int) -> None:
        """Count the bytes of the reply at the head until the transport has all of it."""
        self._counts_reply = size > 0
        self.stream.unsent.set_reply(size)

    def guarded(self, call: Callable[[], None]) -> None:
        """Run a callback of another part; its failure ends this connection only."""
        if not self.slots.is_gone:
            self.stream.guarded(call)

    def drain(self) -> None:
        """Accept no more requests, answer those in flight, then close."""
        self.slots.is_draining = True
        if not self._opened:  # accepted, but not connected to its stream yet
            return
        self.stream.stop(STOP_SESSION)
        for slot in list(self.slots.queue):
            slot.hurry()
        self.guarded(self.flush)

    def _take_ready(self) -> list[Buffer]:
        """Return buffers of ready replies, up to about one piece of a large reply."""
        queue = self.slots.queue
        out: list[Buffer] = []
        little = self.stream.limits.write_high_bytes
        size, enough = 0, PIECE_SHARE * little
        while queue and size < enough and self.spent < ITERATION_WORK:
            slot = queue[0]
            buffers = slot.render() if slot.ready else None
            if buffers is None:
                slot.ready = False
                break
            queue.popleft()
            out += buffers
            for buffer in buffers:
                size += len(buffer)
            if size > enough + little:
                if self._start_transfer(slot, buffers, size, is_first=len(out) == len(buffers)):
                    return []
                self._requeue_rest(slot, out, size - enough)
                size = enough
                break
            if self._counts_reply:
                if self.stream.unsent.reply_bytes > 2 * little:
                    if size > little:  # so that the last piece is a small one
                        self._requeue_rest(slot, out, little)
                        size -= little
                        break
                    out = [b"".join(out)]  # no view keeps all that was read
                self.count_reply(0)
            if slot.timer is not None:
                slot.timer.stop()
                slot.timer = None
            self.slots.in_flight -= slot.requests
            self._waiting_bytes -= slot.waiting_bytes
        self.spent += size >> BYTES_A_WORK
        return out

    def _start_transfer(
        self, slot: ReplySlot, buffers: list[Buffer], size: int, *, is_first: bool
    ) -> bool:
        """Have a thread send a large reply, if one is free and the peer is quick."""
        if not is_first:  # other replies leave before it
            return False
        transfers = self.stream.memory.transfers
        if self._pieces_by_loop or not transfers.has_room:
            self._pieces_by_loop = max(0, self._pieces_by_loop - 1)
            return False
        connection = self.stream.duplicate_socket()
        if connection is None:
            return False
        if not self._counts_reply:
            self.count_reply(size)
        waiting = TransferSlot(connection, slot)
        self.slots.queue.appendleft(waiting)

        def done(sent: int) -> None:
            if self.slots.is_gone:
                return
            if sent < size:
                self._pieces_by_loop = SLOW_PIECES
                waiting.rest = drop_bytes(buffers, sent)
            self.count_reply(size - sent)
            self.is_ready(waiting)

        transfers.start(connection, buffers, done)
        return True

    def _requeue_rest(self, slot: ReplySlot, out: list[Buffer], excess: int) -> None:
        """Leave the last bytes of a large reply at the head of the queue."""
        rest: list[Buffer] = []
        left = excess
        while left:
            buffer = out.pop()
            if len(buffer) > left:
                view = memoryview(buffer)
                out.append(view[:-left])
                buffer = view[-left:]
            rest.append(buffer)
            left -= len(buffer)
        rest.reverse()
        waiting = BufferedReply(rest)
        take_over(slot, waiting)
        self.slots.queue.appendleft(waiting)
        if not self._counts_reply:
            self.count_reply(excess)

    def _has_room(self) -> bool:
        limits = self.stream.limits
        return (
            not self.slots.is_draining
            and self.slots.in_flight <= limits.in_flight_requests // 2
            and self._waiting_bytes <= limits.waiting_reply_bytes // 2
        )

    def stop_reading(self) -> None:
        """Accept no more requests until enough replies were sent."""
        self.slots.is_full = True
        self.stream.stop(STOP_SESSION)
