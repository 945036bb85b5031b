"""The order of replies: as the requests came, however long each of them takes.

Every request that is answered takes a *place* in a queue. A place becomes ready at once, when the
journal has committed, when a promise is kept, or when data arrives; replies leave from the head of
the queue only, all that are ready with one write.

A place is rendered into bytes only when it is at the head and the peer reads. So a peer that does
not read costs what the transport holds (one response) and at most one more, however many it asks
for.

Nor may one connection keep the loop with what it asked for: replies leave for as much work as is
fair in one turn (`spent`), the rest in another. So does a reply that is large by itself: to send
16 MiB takes 20 ms, most of them in the kernel. What is left of it keeps its place.

A session knows nothing of a protocol; `kafka/connection.py` derives from it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from trilogue.gateway.hot import HotSession, Place
from trilogue.gateway.stream import STOP_SESSION, Buffer, Stream

__all__ = ["BYTES_A_WORK", "TURN_WORK", "Place", "Said", "Session", "Unsent"]

TURN_WORK: Final = 250  # that the replies of one session may cost in one turn of the loop: 1 ms
BYTES_A_WORK: Final = 12  # 4 KiB to be sent (1 << 12) cost about as much as one thing looked at


class Unsent:
    """What replies take that peers do not read, of all sessions that share it."""

    __slots__ = ("size_bytes",)

    def __init__(self) -> None:
        self.size_bytes = 0


class Said(Place):
    """A reply that was ready when it was queued, or that is filled in later."""

    __slots__ = ("buffers",)

    def __init__(self, buffers: list[Buffer] | None = None) -> None:
        super().__init__()
        self.buffers = buffers
        self.ready = buffers is not None

    def render(self) -> list[Buffer] | None:
        """The bytes as they were given."""
        buffers, self.buffers = self.buffers, []
        return buffers


class Session(HotSession):
    """One connection's replies in order, within limits."""

    def __init__(self) -> None:
        self.in_flight = 0
        self.spent = 0  # of this turn's work; places that look at many things add to it
        self.unsent: Unsent | None = None  # where to count what the peer does not read
        self._held_bytes = 0  # counted there, as the peer does not read
        self._rest_bytes = 0  # counted there, of a reply whose beginning has left
        self._flushes_on = False  # what is ready has its next turn already
        self._queue: deque[Place] = deque()
        self._waiting_bytes = 0
        self._full = False
        self._draining = False
        self._opened = False
        self._gone = False

    # ---- what the stream calls

    def opened(self, stream: Stream) -> None:
        """Know the stream to answer to."""
        self.stream = stream
        self._opened = True
        if self._draining:
            self.drain()

    def frame(self, frame: memoryview) -> bool:
        """Take one request; False when it must wait (see Taker)."""
        raise NotImplementedError

    def turn_over(self) -> None:
        """Send what this turn made ready."""
        self.flush()

    def writable(self) -> None:
        """Send what waited for the peer to read."""
        self._let_go()
        self.flush()

    def closed(self) -> None:
        """Let go of everything that was promised."""
        self._gone = True
        self._let_go()
        self._count_rest(0)
        places = list(self._queue)
        self._queue.clear()
        for place in places:
            place.abandon()

    @property
    def busy(self) -> bool:
        """Whether the peer waits for an answer."""
        return bool(self._queue)

    @property
    def is_gone(self) -> bool:
        """Whether the connection is closed."""
        return self._gone

    # ---- replies

    def queue(self, place: Place) -> None:
        """Take the next place in the order of replies; what waits behind others is counted."""
        if not self._queue:
            place.waiting_bytes = 0
        elif place.waiting_bytes:
            self._waiting_bytes += place.waiting_bytes
            if self._waiting_bytes > self.stream.limits.waiting_reply_bytes:
                self._stop()
        self._queue.append(place)
        self.count_one_more()

    def count_one_more(self) -> None:
        """One more request is in flight: enough, perhaps."""
        self.in_flight += 1
        if self.in_flight >= self.stream.limits.in_flight_requests:
            self._stop()

    def say(self, reply: bytearray) -> None:
        """Queue a reply that is ready; it leaves with the turn."""
        place = Said([reply])
        place.waiting_bytes = len(reply)
        self.queue(place)

    def fill(self, place: Said, buffers: list[Buffer]) -> None:
        """Keep a promise: the reply of a place taken earlier."""
        place.buffers = buffers
        self.is_ready(place)

    def is_ready(self, place: Place) -> None:
        """A place became ready outside a turn: send it if it is next."""
        place.ready = True
        if self._queue and self._queue[0] is place:
            self.guarded(self.flush)

    def flush(self) -> None:
        """Send every reply that is ready, from the head, as long as the peer reads."""
        if self._flushes_on:
            return
        queue = self._queue
        stream = self.stream
        self.spent = 0
        while queue and queue[0].ready and not stream.write_paused and not self._gone:
            if self.spent >= TURN_WORK:
                self._flushes_on = True
                stream.call_soon(self._flush_on)
                break
            buffers = self._gather()
            if buffers:
                self._send(buffers)
        if self._full and self._has_room():
            self._full = False
            stream.go_on(STOP_SESSION)
        if self._draining and not queue:
            stream.close()

    def _flush_on(self) -> None:
        self._flushes_on = False
        self.guarded(self.flush)

    def _send(self, buffers: list[Buffer]) -> None:
        """Send, and count what stays here because the peer does not read."""
        self.stream.send(buffers)
        if self.unsent is not None and self.stream.write_paused:
            size = sum(map(len, buffers))
            self._held_bytes += size
            self.unsent.size_bytes += size

    def _let_go(self) -> None:
        if self._held_bytes and self.unsent is not None:
            self.unsent.size_bytes -= self._held_bytes
            self._held_bytes = 0

    def _count_rest(self, size: int) -> None:
        if self.unsent is not None:
            self.unsent.size_bytes += size - self._rest_bytes
            self._rest_bytes = size

    def guarded(self, call: Callable[[], None]) -> None:
        """Run a callback that comes from elsewhere: its failure ends this connection only."""
        if not self._gone:
            self.stream.guarded(call)

    def drain(self) -> None:
        """Take no more requests, answer those in flight, then close."""
        self._draining = True
        if not self._opened:  # it was accepted a moment ago
            return
        self.stream.stop(STOP_SESSION)
        for place in list(self._queue):
            place.hurry()
        self.guarded(self.flush)

    def _gather(self) -> list[Buffer]:
        """Buffers of ready replies, up to about what the transport takes before it says stop."""
        queue = self._queue
        out: list[Buffer] = []
        size, enough = 0, self.stream.limits.write_high_bytes
        while queue and size < enough and self.spent < TURN_WORK:
            place = queue[0]
            if not place.ready:
                break
            buffers = place.render()
            if buffers is None:
                place.ready = False
                break
            queue.popleft()
            if self._rest_bytes:
                self._count_rest(0)
            out += buffers
            for buffer in buffers:
                size += len(buffer)
            if size > 2 * enough:
                self._put_back(place, out, size - enough)
                size = enough
                break
            self.in_flight -= place.requests
            self._waiting_bytes -= place.waiting_bytes
        self.spent += size >> BYTES_A_WORK
        return out

    def _put_back(self, place: Place, out: list[Buffer], excess: int) -> None:
        """Let the last bytes of a large reply wait, in its place."""
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
        waiting = Said(rest)
        waiting.requests, waiting.waiting_bytes = place.requests, place.waiting_bytes
        self._queue.appendleft(waiting)
        self._count_rest(excess)

    def _has_room(self) -> bool:
        limits = self.stream.limits
        return (
            not self._draining
            and self.in_flight <= limits.in_flight_requests // 2
            and self._waiting_bytes <= limits.waiting_reply_bytes // 2
        )

    def _stop(self) -> None:
        self._full = True
        self.stream.stop(STOP_SESSION)
