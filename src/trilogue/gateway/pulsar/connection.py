"""One connection of the Pulsar door: frame, row of the table, handler, frames back.

A command that wants an answer has a request id, and may be answered before others that came first.
What must keep its order are the receipts of a producer (gateway/connection.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from trilogue.broker.errors import NotAllowed
from trilogue.gateway.connection import Connection
from trilogue.gateway.pulsar import commands, send
from trilogue.gateway.pulsar.errors import EXPECTED, code_of
from trilogue.gateway.pulsar.shared import NO_REQUEST, Attached
from trilogue.gateway.stream import Buffer, Close
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
CLOSED_IDS_MAX = 1_000
SAID_FREE = 1_024  # of one producer or consumer: bounded by how many there may be


class PulsarConnection(Connection):
    """One client: commands in, frames out."""

    door: PulsarDoor

    def __init__(self, door: PulsarDoor) -> None:
        super().__init__(door, door.bounds)
        self.connected = False
        self.protocol_version = 0
        self.features = FeatureFlags()  # what the client said it can
        self.client_version = ""
        self.producers: dict[int, Producer] = {}
        self.consumers: dict[int, Any] = {}
        self.watchers: dict[int, Attached] = {}
        self.closing: dict[int, asyncio.Future[None]] = {}  # producers that wait for their last
        self.closed_producers: dict[int, None] = {}  # recently
        self.on_close: list[Callable[[], None]] = []
        self._heard = True
        self._opened_s = self._heard_s = self._pinged_s = 0.0

    # ---- what the stream calls

    def opened(self, stream: Stream) -> None:
        """Know the stream, and take only small frames until there is a CONNECT."""
        self.stream = stream  # before anything else asks for it
        self._opened_s = self._heard_s = self._pinged_s = self.door.loop.time()
        limits = stream.limits
        stream.limit_frames(min(limits.frame_bytes, limits.unauthenticated_frame_bytes))
        self.door.joined(self)
        super().opened(stream)

    def frame(self, frame: memoryview) -> bool:
        """Take one frame; False when the broker has no room for what it brings."""
        kind = command_type(frame)
        if kind == SEND:
            if not self.sends and self.door.log.under_pressure:  # asked once a turn
                self.hold_back()
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
        self.send_if_much()

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

    def closed(self) -> None:
        """The connection is gone: so are its producers, consumers and watchers."""
        super().closed()
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

    def tell_writable(self) -> None:
        """Let consumers and watchers go on."""
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

    def taken_back(self, receipts: list[Buffer], problem: BaseException) -> list[Buffer]:
        """Errors instead of receipts."""
        return send.taken_back(receipts, problem)

    # ---- help for handlers

    def check_said(self, size: int) -> None:
        """Refuse a producer or consumer that says too much of itself, with all that are there."""
        if size <= SAID_FREE:
            return
        there = [*self.producers.values(), *self.consumers.values()]
        if size + sum(each.said for each in there) > self.door.settings.said_bytes_max:
            raise NotAllowed("the connection's producers and consumers say too much of themselves")

    # ---- life

    def established(self) -> None:
        """CONNECT was accepted: frames may be as large as messages are."""
        self.connected = True
        self.stream.limit_frames(self.door.frame_bytes_max)

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

    def turn_away(self) -> None:
        """Tell the client to look elsewhere."""
        for producer_id in list(self.producers):
            self.say("close_producer", producer_id=producer_id, request_id=NO_REQUEST)
        for consumer_id in list(self.consumers):
            self.say("close_consumer", consumer_id=consumer_id, request_id=NO_REQUEST)
        self.end()
