"""One connection of a TubeMQ door: frame, envelope, row of the table, handler, frames back.

A request names itself by a serial number, so answers leave in any order; those to sends leave when
the journal has committed the turn (gateway/connection.py).

    not a request                       FATAL, as real servers say it, and one line in the log
    a method that does not exist        FATAL "Unsupported method ID"
    a service that is not this door's   ERROR
    a standby's master                  ERROR StandbyException: the client tries the next master
    older than its own timeout          dropped: nobody waits for the answer any more

How old a request is, is known from when this connection stopped being read: what lay in its buffer
then had come before. While the log has no room for more, a send is left in the buffer; shortly
before its client gives up it is answered with 419.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from google.protobuf.message import Message

from trilogue.gateway.connection import Connection
from trilogue.gateway.stream import STOP_BROKER, Buffer, Close
from trilogue.gateway.tubemq import send
from trilogue.gateway.tubemq.authentication import Peer
from trilogue.gateway.tubemq.call import Call, Held
from trilogue.gateway.tubemq.errors import EXPECTED
from trilogue.wire.tubemq.errors import EXCEPTION, STANDBY, Undecodable
from trilogue.wire.tubemq.frame import (
    SERIAL_SIZE,
    Request,
    failure,
    parse_request,
    read_message,
    unsupported,
)
from trilogue.wire.tubemq.methods import find
from trilogue.wire.tubemq.rpc_pb2 import Status

if TYPE_CHECKING:
    from trilogue.gateway.stream import Stream
    from trilogue.gateway.tubemq.door import Side, TubeDoor

log = logging.getLogger(__name__)

SEND = 13
PATIENCE = 0.9  # of a request's timeout: then there is still time for the answer
TIMERS_S = 0.001  # by which a timer may be early
WRONG_SERVICE = "Service Type is invalid!"
IS_STANDBY = "this master is a standby"
PACKS_MAX = 8  # read for one connection at a time: each may be as large as a message
UNDECODABLE_MAX = 100  # requests of one connection that were none: enough of that


class TubeConnection(Connection, Peer):
    """One TCP connection; several clients of a process may share it."""

    door: TubeDoor

    def __init__(self, side: Side) -> None:
        super().__init__(side.door, side.door.bounds)
        Peer.__init__(self)
        self.side = side
        self.held: dict[Call, Held] = {}
        self._rows = side.rows
        self._takes_sends = SEND in side.rows
        self._undecodable = 0
        self._had_empty = False
        self._leaving = False
        self._packs = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._stopped_s = 0.0  # since when it is not read, 0: it is
        self._stopped_at = -1  # what it had received by then
        self._patience: asyncio.TimerHandle | None = None

    # ---- what the stream calls

    def opened(self, stream: Stream) -> None:
        """Know the stream."""
        stream.limit_frames(min(stream.limits.frame_bytes, self.side.frame_bytes_max))
        self.side.connections[self] = None
        super().opened(stream)

    def frame(self, frame: memoryview) -> bool:
        """Take one request; False when the broker has no room for what it brings."""
        self._in_turn = True
        try:
            request = parse_request(frame)
            if request.method == SEND and self._takes_sends:
                return self._send(request)
            return self._other(request, len(frame))
        except Undecodable as problem:
            if len(frame) <= SERIAL_SIZE:
                self._ignore_empty()
            else:
                self._refuse_undecodable(problem)
        return True

    def turn_over(self) -> None:
        """Remember since when requests wait that were received but not taken."""
        super().turn_over()
        if self.stream.stops:
            self._note_stop()
        if self._waiting:
            self.tell_writable()

    def closed(self) -> None:
        """The connection is gone, and so is whoever held an answer for it."""
        super().closed()
        self.side.connections.pop(self, None)
        self._be_patient(None)
        while self._waiting:
            self._wake_one()
        held, self.held = self.held, {}
        for each in held.values():
            try:
                each.gone()
            except Exception:  # one mistake must not keep the others
                log.exception("connection.close_failed")

    def drain(self) -> None:
        """Take no more, answer what is held, then what is in flight."""
        if self._opened and not self.is_gone:
            for each in list(self.held.values()):
                self.guarded(each.hurry)
        super().drain()

    def turn_away(self) -> None:
        """End, once the requests that are at work are answered."""
        self._leaving = True
        if not self._requests:
            self.end()

    def done(self, size: int = 0) -> None:
        """One request less; the last one of a connection that drains ends it."""
        super().done(size)
        if self._leaving and not self._requests:
            self.door.call_soon(self.end)

    def taken_back(self, receipts: list[Buffer], problem: BaseException) -> list[Buffer]:
        """Refusals instead of answers to sends."""
        return send.taken_back(receipts, problem)

    # ---- packs of messages

    @asynccontextmanager
    async def room_for_pack(self) -> AsyncIterator[None]:
        """Wait until the peer reads, and few packs are read for it: one may have thousands of gets.

        Comes back when the connection is gone, too.
        """
        while not self.is_gone and (self.write_paused or self._packs >= PACKS_MAX):
            waiter = self.door.loop.create_future()
            self._waiting.append(waiter)
            await waiter
        self._packs += 1
        try:
            yield
        finally:
            self._packs -= 1
            self._wake_one()

    def tell_writable(self) -> None:
        """Let gets go on that wait for the peer to read."""
        for _ in range(PACKS_MAX - self._packs):
            self._wake_one()

    def _wake_one(self) -> None:
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    # ---- requests

    def _send(self, request: Request) -> bool:
        """Append a message, unless there is no room for it now."""
        if request.service not in self.side.services:
            self._fail(request, EXCEPTION, WRONG_SERVICE)
            return True
        late_s = self._late_s() if self._stopped_s else 0.0
        if late_s and 0 < request.timeout_ms < late_s * 1000:
            self._drop(request)
            return True
        if not self.sends and self.door.log.under_pressure:  # asked once a turn
            return self._wait_for_room(request, late_s)
        if self._patience is not None:
            self._be_patient(None)
        self.side.requests[SEND] += 1
        send.take(self, request)
        return True

    def _other(self, request: Request, size: int) -> bool:
        method = find(request.method)
        if method is None:
            raise unsupported(request.serial, request.method)
        row = self._rows.get(request.method)
        if size > self.door.settings.request_bytes_max:
            raise Close("request.too_large", method=method.name, size=size)
        message = read_message(method.request, request.body, request.serial)
        if self._stopped_s and 0 < request.timeout_ms < self._late_s() * 1000:
            self._drop(request)
            return True
        if row is None or request.service not in self.side.services:
            self._fail(request, EXCEPTION, WRONG_SERVICE)
            return True
        if self.door.settings.standby and self.side is self.door.master_side:
            self._fail(request, STANDBY, IS_STANDBY)
            return True
        self.side.requests[request.method] += 1
        call = Call(
            self,
            row,
            message,
            serial=request.serial,
            version=request.version,
            timeout_ms=request.timeout_ms,
            arrived_s=self.door.loop.time(),
            size=size,
        )
        self._handle(call)
        return True

    def _handle(self, call: Call) -> None:
        try:
            found = call.row.handler(call)
        except EXPECTED as problem:
            call.problem(problem)
            found = None
        if found is None:
            if not call.answered:
                call.waits = True
                self.begin(call.size)
        elif isinstance(found, Message):
            call.answer(found)
        else:
            self.spawn(self._worked(call, found), call.size)
        self.send_if_much()

    async def _worked(self, call: Call, work: Coroutine[Any, Any, Message | None]) -> None:
        try:
            found = await work
        except EXPECTED as problem:
            call.problem(problem)
        else:
            if found is not None:
                call.answer(found)

    # ---- what is no request, or comes too late

    def _fail(self, request: Request, exception: str, text: str) -> None:
        self.write(failure(request.serial, Status.ERROR, exception, text, request.version))

    def _refuse_undecodable(self, problem: Undecodable) -> None:
        self._undecodable += 1
        if self._undecodable == 1:
            log.warning(
                "request.undecodable",
                extra={"address": self.stream.peer[0], "problem": str(problem)},
            )
        if self._undecodable > UNDECODABLE_MAX:
            raise Close("connection.bad_bytes", requests=self._undecodable)
        self.write(failure(problem.serial, Status.FATAL, problem.exception, problem.text))

    def _ignore_empty(self) -> None:
        self.door.empty_frames += 1
        if not self._had_empty:
            self._had_empty = True
            log.info("request.empty", extra={"address": self.stream.peer[0]})

    def _drop(self, request: Request) -> None:
        self.door.dropped += 1
        log.debug("request.too_late", extra={"method": request.method})

    def _note_stop(self) -> None:
        if not self._stopped_s:
            self._stopped_s = self.door.loop.time()
            self._stopped_at = self.stream.receives

    def _late_s(self) -> float:
        """How long the request at hand has been waiting."""
        if self.stream.receives != self._stopped_at:
            self._stopped_s = 0.0  # it came after that
            return 0.0
        return self.door.loop.time() - self._stopped_s

    def _wait_for_room(self, request: Request, late_s: float) -> bool:
        """Leave a send where it is until the log has room, but not until its client gives up."""
        patience_s = request.timeout_ms / 1000 * PATIENCE
        if request.timeout_ms > 0 and late_s + TIMERS_S >= patience_s:
            self.door.overflows += 1
            self._be_patient(None)
            send.overflow(self, request)
            return True
        self._note_stop()
        self.hold_back()
        self._be_patient(patience_s - late_s if request.timeout_ms > 0 else None)
        return False

    def _be_patient(self, for_s: float | None) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None
        if for_s is not None:
            self._patience = self.door.loop.call_later(for_s, self._offer_again)

    def _offer_again(self) -> None:
        self._patience = None
        self.stream.go_on(STOP_BROKER)
