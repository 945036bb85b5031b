"""A connection whose answers may leave in any order: gathered writes, one commit a turn.

    frame ──► handler ──► write(frame) ──────────────► gathered, leaves at the end of the turn
                    └──► sends.append(receipt) ─────► leaves when the journal has committed the turn

There is no queue of answers as in `session.py`: an answer names its request. What must keep its
order is what producers are told of their messages. That is made when the messages are appended,
waits in one list a turn, and leaves when the journal has committed what the turn added
(docs/decisions/0035).

Frames that handlers write are gathered and leave with one write, at the end of the turn or of the
callback. A peer that does not read them is not read from, and `write_paused` says to whoever sends
messages that it has had enough; `tell_writable` is called when there is room again.

A connection knows nothing of a protocol; `pulsar/connection.py` and `tubemq/connection.py` derive
from it: they take frames, setting `_in_turn`, and say what a failed commit makes of receipts.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trilogue.broker.access import ANONYMOUS, Operation, Resource, ResourceKind
from trilogue.gateway.stream import STOP_BROKER, STOP_SESSION, Buffer, Close

if TYPE_CHECKING:
    from trilogue.gateway.doorway import Doorway
    from trilogue.gateway.stream import Stream

log = logging.getLogger(__name__)

GATHERED_MAX = 64 << 10  # smaller writes are joined: one system call, one copy


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much of one connection may be on its way."""

    sends: int = 5_000  # not durable yet
    requests: int = 1_000  # being worked on, or held until there is something to say
    request_bytes: int = 8 << 20  # of their frames


class Connection:
    """One client: frames in, frames out."""

    door: Doorway
    stream: Stream

    def __init__(self, door: Doorway, bounds: Bounds) -> None:
        self.door = door
        self.bounds = bounds
        self.principal = ANONYMOUS
        self.is_gone = False
        self.sends: list[Buffer] = []  # receipts of this turn: what the next commit confirms
        self.turn = 1  # how often a list of them was begun
        self.turns_done = 0
        self.in_flight = 0  # of all these lists
        self._committing: deque[list[Buffer]] = deque()
        self._on_commit = self._committed
        self._out: list[Buffer] = []
        self._out_bytes = 0
        self._in_turn = self._flush_due = False
        self._requests = self._requests_bytes = 0  # at work, and what they hold
        self._full = self._draining = self._opened = False

    # ---- what the stream calls

    def opened(self, stream: Stream) -> None:
        """Know the stream to answer to."""
        self.stream = stream
        self._opened = True
        if self._draining:
            self.drain()

    def turn_over(self) -> None:
        """Ask the journal once for all the messages of the turn; let the frames go."""
        self._in_turn = False
        if self.sends:
            self.settle()
        if self._out:
            self.flush()

    def writable(self) -> None:
        """The peer reads again: what waits to be sent first, then who waits to send."""
        self._send_out()
        self.tell_writable()

    @property
    def is_draining(self) -> bool:
        """Whether nothing new is taken: what is held should be answered."""
        return self._draining

    @property
    def busy(self) -> bool:
        """Whether the peer waits for us."""
        return self.in_flight > 0 or self._requests > 0

    def closed(self) -> None:
        """The connection is gone: nothing leaves any more."""
        self.is_gone = True
        self._out.clear()
        self._committing.clear()

    # ---- what a protocol says

    def taken_back(self, receipts: list[Buffer], problem: BaseException) -> list[Buffer]:
        """What is said instead of these receipts when the disk did not keep the messages."""
        raise NotImplementedError

    def tell_writable(self) -> None:
        """Let those go on who wait to send."""

    def turn_away(self) -> None:
        """The server drains, and what was in flight is durable: say what there is to say, end."""
        self.end()

    # ---- frames out

    @property
    def write_paused(self) -> bool:
        """Whether nobody should send messages now: the peer has enough to read."""
        stream = self.stream
        return stream.write_paused or self._out_bytes >= stream.limits.write_high_bytes

    def write(self, buffer: Buffer) -> None:
        """Send bytes of frames; they must not be changed afterwards."""
        self._out.append(buffer)
        self._out_bytes += len(buffer)
        if not self._in_turn and not self._flush_due:
            self._flush_due = True
            self.door.call_soon(self.flush)

    def flush(self) -> None:
        """Let what was gathered go, if the peer reads."""
        was_full = self._out_bytes >= self.stream.limits.write_high_bytes
        self._send_out()
        if was_full:
            self.tell_writable()

    def _send_out(self) -> None:
        self._flush_due = False
        out, stream = self._out, self.stream
        if out and not self.is_gone and not stream.write_paused:
            self._out = []
            stream.send([b"".join(out)] if self._out_bytes <= GATHERED_MAX else out)
            self._out_bytes = 0

    def send_if_much(self) -> None:
        """In the middle of a turn: who does not read is asked for no more in this turn."""
        if self._out_bytes >= self.stream.limits.write_high_bytes:
            self._send_out()

    # ---- what is durable

    def settle(self) -> None:
        """Let the next commit confirm what was sent so far."""
        if not self.sends:
            return
        self._committing.append(self.sends)
        self.in_flight += len(self.sends)
        self.sends = []
        self.turn += 1
        self.door.journal.on_commit(self._on_commit)
        if self.in_flight >= self.bounds.sends:
            self._stop()

    def _committed(self, problem: BaseException | None) -> None:
        """What the turns up to a certain one added is durable, or never will be."""
        if self.is_gone:
            return
        receipts = self._committing.popleft()
        self.turns_done += 1
        self.in_flight -= len(receipts)
        if problem is not None:
            receipts = self.taken_back(receipts, problem)
        if self._out or self.stream.write_paused or self._in_turn:
            for receipt in receipts:
                self.write(receipt)
            if not self._in_turn:
                self.flush()
        else:
            self.stream.send((b"".join(receipts) if len(receipts) > 1 else receipts[0],))
        if self._full:
            self._go_on()

    def on_commit(self, callback: Callable[[BaseException | None], None]) -> None:
        """Call when all that was done so far is durable, or never will be.

        After the receipts of what was sent before; not at all when the connection is gone by then.
        """
        self.settle()
        self.door.journal.on_commit(lambda problem: self.guarded(lambda: callback(problem)))

    # ---- help for handlers

    def may(self, operation: Operation, kind: ResourceKind, name: object) -> bool:
        """Whether the client may do this, to the thing of this canonical name."""
        return self.door.authorizer.allowed(self.principal, operation, Resource(kind, str(name)))

    def guarded(self, call: Callable[[], None]) -> None:
        """Run a callback that comes from elsewhere: its failure ends this connection only."""
        if not self.is_gone:
            self.stream.guarded(call)

    def hold_back(self) -> None:
        """The log has no room: take no more frames until it has; the one at hand is not taken."""
        self.stream.stop(STOP_BROKER)
        self.door.wait_for_relief(self)

    def spawn(self, work: Coroutine[Any, Any, None], size: int = 0) -> None:
        """Run a request to its end, whether or not somebody still waits for its answer.

        `size` is about how many bytes it keeps of the peer's meanwhile.
        """
        self.begin(size)
        self.door.spawn(self._finish(work, size))

    def begin(self, size: int = 0) -> None:
        """One more request is at work, or is held; `done` must follow."""
        bounds = self.bounds
        self._requests += 1
        self._requests_bytes += size
        if self._requests_bytes >= bounds.request_bytes or self._requests >= bounds.requests:
            self._stop()

    def done(self, size: int = 0) -> None:
        """One request less: enough room, perhaps."""
        self._requests -= 1
        self._requests_bytes -= size
        if self._full and not self.is_gone:
            self._go_on()

    async def _finish(self, work: Coroutine[Any, Any, None], size: int) -> None:
        try:
            await work
        except Close as order:
            self.stream.abort(order.reason, **order.fields)
        except Exception:
            log.exception("request.failed", extra={"address": self.stream.peer[0]})
            self.stream.abort("connection.cut")
        finally:
            self.done(size)

    # ---- life

    def end(self) -> None:
        """Send what there is and close, in order."""
        if self.is_gone:
            return
        if self._out:
            out, self._out, self._out_bytes = self._out, [], 0
            self.stream.send(out)
        self.stream.close()

    def drain(self) -> None:
        """Take no more frames, confirm what is in flight, then turn the client away."""
        self._draining = True
        if not self._opened or self.is_gone:
            return
        self.stream.stop(STOP_SESSION)
        self.on_commit(lambda _: self.turn_away())

    def _stop(self) -> None:
        self._full = True
        self.stream.stop(STOP_SESSION)

    def _go_on(self) -> None:
        bounds = self.bounds
        if (
            not self._draining
            and self.in_flight <= bounds.sends // 2
            and self._requests <= bounds.requests // 2
            and self._requests_bytes <= bounds.request_bytes // 2
        ):
            self._full = False
            self.stream.go_on(STOP_SESSION)
