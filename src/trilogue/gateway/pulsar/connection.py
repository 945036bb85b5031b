"""One connection of the Pulsar door: frame, row of the table, handler, frames back.

There is no queue of answers: a command that wants one has a request id, and may be answered before
others that came first. What must keep its order are the receipts of a producer. They are made when
the messages are appended, wait in one list a turn, and leave when the journal has committed what
the turn added (docs/decisions/0035).

Frames that handlers write are gathered and leave with one write, at the end of the turn or of the
callback. A peer that does not read them is not read from, and `write_paused` says to whoever sends
messages that it has had enough; `Attached.writable` is called when there is room again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from trilogue.broker.access import ANONYMOUS, Operation, Resource, ResourceKind
from trilogue.broker.errors import NotAllowed
from trilogue.gateway.pulsar import commands, send
from trilogue.gateway.pulsar.errors import EXPECTED, code_of
from trilogue.gateway.pulsar.shared import NO_REQUEST, Attached
from trilogue.gateway.stream import STOP_BROKER, STOP_SESSION, Buffer, Close
from trilogue.wire.pulsar.errors import ServerError
from trilogue.wire.pulsar.frame import parse_command, simple
from trilogue.wire.pulsar.hot import command_type
from trilogue.wire.pulsar.pulsar_pb2 import BaseCommand, FeatureFlags

if TYPE_CHECKING:
    from trilogue.gateway.pulsar.door import PulsarDoor
    from trilogue.gateway.pulsar.producers import Producer
    from trilogue.gateway.stream import Stream

log = logging.getLogger(__name__)

SEND = BaseCommand.SEND
GATHERED_MAX = 64 << 10  # smaller writes are joined: one system call, one copy
CLOSED_IDS_MAX = 1_000
SAID_FREE = 1_024  # of one producer or consumer: bounded by how many there may be


class PulsarConnection:
    """One client: commands in, frames out."""

    def __init__(self, door: PulsarDoor) -> None:
        self.door = door
        self.stream: Stream
        self.connected = False
        self.protocol_version = 0
        self.features = FeatureFlags()  # what the client said it can
        self.client_version = ""
        self.principal = ANONYMOUS
        self.producers: dict[int, Producer] = {}
        self.consumers: dict[int, Any] = {}
        self.watchers: dict[int, Attached] = {}
        self.closing: dict[int, asyncio.Future[None]] = {}  # producers that wait for their last
        self.closed_producers: dict[int, None] = {}  # recently
        self.on_close: list[Callable[[], None]] = []
        self.is_gone = False
        self.sends: list[bytes] = []  # receipts of this turn: what the next commit confirms
        self.turn = 1  # how often a list of them was begun
        self.turns_done = 0
        self.in_flight = 0  # of all these lists
        self._committing: deque[list[bytes]] = deque()
        self._on_commit = self._committed
        self._out: list[Buffer] = []
        self._out_bytes = 0
        self._in_turn = self._flush_due = False
        self._requests = self._requests_bytes = 0  # coroutines at work, and what they hold
        self._full = self._draining = self._opened = False
        self._heard = True
        self._opened_s = self._heard_s = self._pinged_s = 0.0

    # ---- what the stream calls

    def opened(self, stream: Stream) -> None:
        """Know the stream, and take only small frames until there is a CONNECT."""
        self.stream = stream
        self._opened = True
        self._opened_s = self._heard_s = self._pinged_s = self.door.loop.time()
        limits = stream.limits
        stream.limit_frames(min(limits.frame_bytes, limits.unauthenticated_frame_bytes))
        self.door.joined(self)
        if self._draining:
            self.drain()

    def frame(self, frame: memoryview) -> bool:
        """Take one frame; False when the broker has no room for what it brings."""
        kind = command_type(frame)
        if kind == SEND:
            if not self.sends and self.door.log.under_pressure:  # asked once a turn
                self.stream.stop(STOP_BROKER)
                self.door.wait_for_relief(self)
                return False
            self._in_turn = self._heard = True
            send.take(self, None, frame)
            return True
        self._in_turn = self._heard = True
        row = commands.find(kind)
        if row is None:
            raise Close("command.not_served", type=kind)
        if not self.connected and not row.before_connect:
            raise Close("command.before_connect", command=row.field)
        self.door.commands[kind] += 1
        if row.raw:
            row.handler(self, None, frame)
            return True
        if len(frame) > self.door.settings.command_bytes_max:
            raise Close("command.too_large", command=row.field, size=len(frame))
        self._handle(row, parse_command(frame), frame)
        return True

    def _handle(self, row: commands.Row, command: BaseCommand, frame: memoryview) -> None:
        message = getattr(command, row.field)
        try:
            work = row.handler(self, message, frame)
        except EXPECTED as problem:
            self._answer_problem(row, message, problem)
        else:
            if work is not None:
                self.spawn(self._worked(row, message, work), len(frame))
        if self._out_bytes >= self.stream.limits.write_high_bytes:
            self._send_out()  # and who does not read that is asked for no more in this turn

    async def _worked(
        self, row: commands.Row, message: Any, work: Coroutine[Any, Any, None]
    ) -> None:
        try:
            await work
        except EXPECTED as problem:
            if not self.is_gone:
                self._answer_problem(row, message, problem)

    def _answer_problem(self, row: commands.Row, message: Any, problem: Exception) -> None:
        if not row.answers_error:
            raise Close("command.failed", command=row.field, problem=str(problem)) from problem
        self.error(message.request_id, problem)

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
        self._tell_writable()

    @property
    def busy(self) -> bool:
        """Whether the peer waits for us."""
        return self.in_flight > 0 or self._requests > 0

    def closed(self) -> None:
        """The connection is gone: so are its producers, consumers and watchers."""
        self.is_gone = True
        self._out.clear()
        self._committing.clear()
        self.door.left(self)
        attached = [*self.consumers.values(), *self.watchers.values(), *self.producers.values()]
        for gone in [*(each.gone for each in attached), *self.on_close]:
            try:
                gone()
            except Exception:  # one mistake must not keep the others
                log.exception("connection.close_failed")
        self.producers.clear()
        self.consumers.clear()
        self.watchers.clear()
        for closed in self.closing.values():
            closed.set_result(None)
        self.closing.clear()
        self.on_close.clear()

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
            self._tell_writable()

    def _send_out(self) -> None:
        self._flush_due = False
        out, stream = self._out, self.stream
        if out and not self.is_gone and not stream.write_paused:
            self._out = []
            stream.send([b"".join(out)] if self._out_bytes <= GATHERED_MAX else out)
            self._out_bytes = 0

    def _tell_writable(self) -> None:
        for each in [*self.consumers.values(), *self.watchers.values()]:
            if self.write_paused or self.is_gone:
                return
            self.guarded(each.writable)

    def reply(self, command: BaseCommand) -> bool:
        """Send a command, unless the client is too old to know it; whether it was sent.

        Seed 000, "Connect": the broker will not send commands introduced in newer revisions of
        the protocol than the client's.
        """
        if self.protocol_version < commands.SINCE.get(command.type, 0):
            return False
        self.write(simple(command))
        return True

    def say(self, field: str, **fields: Any) -> bool:
        """Send a command by its field's name; whether it was sent (see `reply`)."""
        return self.reply(commands.command(field, fields))

    def error(self, request_id: int, problem: Exception | ServerError, message: str = "") -> None:
        """Send ERROR."""
        code = problem if isinstance(problem, ServerError) else code_of(problem)
        self.say("error", request_id=request_id, error=code, message=message or str(problem))

    def close_producer(self, producer_id: int) -> None:
        """Tell the client that one of its producers is closed; it looks up and comes again.

        Seed 000, "CloseProducer". What it sent before is confirmed first: after that it would be
        sent again. Clients below protocol version 5 lose the connection instead.
        """
        self.forget_producer(producer_id)

        def durable(_problem: BaseException | None) -> None:
            if not self.say("close_producer", producer_id=producer_id, request_id=NO_REQUEST):
                self.end()

        if self.sends or self.in_flight:
            self.on_commit(durable)
        else:
            durable(None)

    def close_consumer(self, consumer_id: int) -> None:
        """The same for a consumer, whose owner has let go of it."""
        self.consumers.pop(consumer_id, None)
        if not self.say("close_consumer", consumer_id=consumer_id, request_id=NO_REQUEST):
            self.end()

    def forget_producer(self, producer_id: int) -> None:
        """Remember an id as one whose messages may still be on their way."""
        self.producers.pop(producer_id, None)
        closed = self.closed_producers
        closed.pop(producer_id, None)
        closed[producer_id] = None
        if len(closed) > CLOSED_IDS_MAX:
            del closed[next(iter(closed))]

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
        if self.in_flight >= self.door.settings.sends_in_flight_max:
            self._stop()

    def _committed(self, problem: BaseException | None) -> None:
        """What the turns up to a certain one added is durable, or never will be."""
        if self.is_gone:
            return
        receipts = self._committing.popleft()
        self.turns_done += 1
        self.in_flight -= len(receipts)
        if problem is not None:
            receipts = send.taken_back(receipts, problem)
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

    def check_said(self, size: int) -> None:
        """Refuse a producer or consumer that says too much of itself, with all that are there."""
        if size <= SAID_FREE:
            return
        there = [*self.producers.values(), *self.consumers.values()]
        if size + sum(each.said for each in there) > self.door.settings.said_bytes_max:
            raise NotAllowed("the connection's producers and consumers say too much of themselves")

    def may(self, operation: Operation, kind: ResourceKind, name: object) -> bool:
        """Whether the client may do this, to the thing of this canonical name."""
        return self.door.authorizer.allowed(self.principal, operation, Resource(kind, str(name)))

    def guarded(self, call: Callable[[], None]) -> None:
        """Run a callback that comes from elsewhere: its failure ends this connection only."""
        if self.is_gone:
            return
        try:
            call()
        except Close as order:
            self.stream.abort(order.reason, **order.fields)
        except Exception:
            log.exception("connection.failed", extra={"address": self.stream.peer[0]})
            self.stream.abort("connection.cut")

    def spawn(self, work: Coroutine[Any, Any, None], size: int = 0) -> None:
        """Run a request to its end, whether or not somebody still waits for its answer.

        `size` is about how many bytes it keeps of the peer's meanwhile.
        """
        settings = self.door.settings
        self._requests += 1
        self._requests_bytes += size
        too_much = self._requests_bytes >= settings.requests_bytes_max
        if too_much or self._requests >= settings.requests_in_flight_max:
            self._stop()
        self.door.spawn(self._finish(work, size))

    async def _finish(self, work: Coroutine[Any, Any, None], size: int) -> None:
        try:
            await work
        except Close as order:
            self.stream.abort(order.reason, **order.fields)
        except Exception:
            log.exception("request.failed", extra={"address": self.stream.peer[0]})
            self.stream.abort("connection.cut")
        finally:
            self._requests -= 1
            self._requests_bytes -= size
            if self._full and not self.is_gone:
                self._go_on()

    # ---- life

    def established(self) -> None:
        """CONNECT was accepted: frames may be as large as messages are."""
        self.connected = True
        self.stream.limit_frames(self.door.frame_bytes_max)

    def end(self) -> None:
        """Send what there is and close, in order."""
        if self.is_gone:
            return
        if self._out:
            out, self._out, self._out_bytes = self._out, [], 0
            self.stream.send(out)
        self.stream.close()

    def tick(self, now_s: float) -> None:
        """Once a second: has the client said CONNECT, is it there? Seed 000, "Keep alive"."""
        settings = self.door.settings
        if self._heard or self.stream.stops:  # what we do not read from cannot be heard
            self._heard = False
            self._heard_s = now_s
        if not self.connected:
            if now_s - self._opened_s >= settings.connect_s:
                self.stream.abort("connection.no_connect")
            return
        if now_s - self._heard_s >= 2 * settings.keep_alive_s and self.protocol_version > 0:
            self.stream.abort("connection.silent")
        elif now_s - self._pinged_s >= settings.keep_alive_s:
            self._pinged_s = now_s
            self.say("ping")

    def check_alive(self) -> None:
        """Somebody wants what this connection holds: ask at once whether it is still there."""
        settings, now_s = self.door.settings, self.door.loop.time()
        if now_s - self._pinged_s < settings.alive_s:
            return  # it was asked a moment ago: time for its answer
        self._heard, self._pinged_s = False, now_s
        self._heard_s = min(self._heard_s, now_s - 2 * settings.keep_alive_s + settings.alive_s)
        self.say("ping")

    def drain(self) -> None:
        """Take no more commands, confirm what is in flight, tell the client to look elsewhere."""
        self._draining = True
        if not self._opened or self.is_gone:
            return
        self.stream.stop(STOP_SESSION)
        self.on_commit(lambda _: self._turn_away())

    def _turn_away(self) -> None:
        for producer_id in list(self.producers):
            self.say("close_producer", producer_id=producer_id, request_id=NO_REQUEST)
        for consumer_id in list(self.consumers):
            self.say("close_consumer", consumer_id=consumer_id, request_id=NO_REQUEST)
        self.end()

    def _stop(self) -> None:
        self._full = True
        self.stream.stop(STOP_SESSION)

    def _go_on(self) -> None:
        settings = self.door.settings
        if (
            not self._draining
            and self.in_flight <= settings.sends_in_flight_max // 2
            and self._requests <= settings.requests_in_flight_max // 2
            and self._requests_bytes <= settings.requests_bytes_max // 2
        ):
            self._full = False
            self.stream.go_on(STOP_SESSION)
