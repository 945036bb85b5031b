"""A TubeMQ connection: requests by serial number, their answers in any order, and its end.

    send_request() ──► pending[serial] ──► frame ──► (once a loop iteration) ──► server
              pending[serial] ◄── answer     or the time-out, or the end of the connection

Every request is kept until its answer is there or its time is over, at most `max_pending`. Serial
numbers are this connection's own and tie the two together. There is no task here: all of it happens
in callbacks of the loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, NamedTuple

from google.protobuf.message import Message

from trilogue.client.connection import FrameConnection
from trilogue.client.errors import ClientError, ConnectionLost, ServerUnreachable
from trilogue.client.pool import Address
from trilogue.client.tubemq.errors import BadFrame, QueueFull, error_for_exception
from trilogue.client.tubemq.options import BadFrames, ClientOptions
from trilogue.wire.errors import WireError
from trilogue.wire.tubemq.frame import (
    SERIAL_SIZE,
    BlockFrames,
    encode_request,
    parse_message,
    parse_response,
)
from trilogue.wire.tubemq.methods import Method

log = logging.getLogger("trilogue.client.tubemq")
ResponseCallback = Callable[[Message | None, Exception | None], None]
"""Gets the answer, or what came instead of it."""
LAST_SERIAL: Final = (1 << 31) - 1


class PendingRequest(NamedTuple):
    """A request that has no answer yet."""

    method: Method
    done: ResponseCallback
    sent_at: float
    expires: float


class TubeConnection:
    """One connection to one master or broker; `on_gone` is called with its end and the reason."""

    def __init__(
        self,
        where: Address,
        options: ClientOptions,
        on_gone: Callable[[TubeConnection, Exception], None],
    ) -> None:
        self.where = where
        self.watchers: set[Callable[[], None]] = set()
        """Called once, at the end of the connection."""
        self._options = options
        self._on_gone = on_gone
        self._loop = asyncio.get_running_loop()
        self._frames = FrameConnection(
            self._on_frame, self._on_lost, options.max_frame_size, BlockFrames
        )
        self._pending: dict[int, PendingRequest] = {}  # in the order of their time-outs
        self._serial = 0
        self._out: list[bytes | bytearray] = []
        self._expiry: asyncio.TimerHandle | None = None
        self._idle: asyncio.TimerHandle | None = None
        self._used_at = self._received_at = 0.0
        self.has_answered = False
        """Whether a response came."""

    @property
    def is_open(self) -> bool:
        """Whether requests may be sent."""
        return self._frames.is_open

    @property
    def address(self) -> str:
        """Where it leads, for messages."""
        return f"{self.where[0]}:{self.where[1]}"

    @property
    def waiting(self) -> int:
        """How many requests have no answer yet."""
        return len(self._pending)

    async def open(self) -> None:
        """Connect; ConnectionLost."""
        tls = self._options.make_context()
        await self._frames.open(*self.where, self._options.connect_timeout_s, tls)
        self._used_at = self._received_at = self._loop.time()
        self._idle = self._loop.call_later(self._options.idle_s, self._look_if_idle)

    def send_request(self, method: Method, message: Message, done: ResponseCallback) -> None:
        """Send a request; `done` is called exactly once. ConnectionLost, QueueFull at once."""
        if not self._frames.is_open:
            raise ConnectionLost(f"{self.address}: connection is closed")
        if len(self._pending) >= self._options.max_pending:
            raise QueueFull(f"{len(self._pending)} requests to {self.address} wait for answers")
        timeout_s = self._options.request_timeout_s
        octets = encode_request(
            self._next_serial(),
            method.service,
            method.number,
            message.SerializeToString(),
            timeout_ms=int(timeout_s * 1000),
        )
        now = self._used_at = self._loop.time()
        self._pending[self._serial] = PendingRequest(method, done, now, now + timeout_s)
        if self._expiry is None:
            self._expiry = self._loop.call_at(now + timeout_s, self._expire)
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(octets)

    async def request(self, method: Method, message: Message) -> Message:
        """Send a request and wait for its answer.

        ConnectionLost, TimedOut, QueueFull, RemoteFailure, StandbyError.
        """
        future: asyncio.Future[Message] = self._loop.create_future()

        def done(answer: Message | None, problem: Exception | None) -> None:
            if future.done():
                return  # the caller is cancelled
            if answer is not None:
                future.set_result(answer)
            else:
                assert problem is not None
                future.set_exception(problem)

        self.send_request(method, message, done)
        return await future

    def close(self) -> None:
        """Close; pending requests fail with ConnectionLost after they are sent."""
        self._flush()
        self._frames.close()

    async def wait_closed(self) -> None:
        """Wait until the socket of a closed connection is closed."""
        await self._frames.wait_closed()

    def _next_serial(self) -> int:
        while True:
            self._serial = self._serial % LAST_SERIAL + 1
            if self._serial not in self._pending:
                return self._serial

    def _flush(self) -> None:
        out, self._out = self._out, []
        if out and self._frames.is_open:
            self._frames.send(out)

    def _on_frame(self, frame: memoryview) -> None:
        self._received_at = self._loop.time()
        if len(frame) <= SERIAL_SIZE:
            return
        answer = parse_response(frame)
        self.has_answered = True
        pending = self._pending.get(answer.serial)
        if pending is None:
            return  # of a request that was given up
        if answer.status:
            about = f"{pending.method.name} at {self.address}"
            del self._pending[answer.serial]
            pending.done(None, error_for_exception(answer.exception, answer.text, about))
            return
        if answer.method != pending.method.number:
            raise WireError(f"{pending.method.name} is answered as method {answer.method}")
        message = parse_message(pending.method.response, answer.body)
        del self._pending[answer.serial]
        try:
            pending.done(message, None)
        except Exception as problem:
            log.exception("tubemq.answer_failed")
            about = f"{pending.method.name} at {self.address}"
            pending.done(None, ClientError(f"{about}: the answer cannot be used: {problem!r}"))

    def _expire(self) -> None:
        """Fail requests after their time-out; a server without any response is given up."""
        now, last_sent = self._loop.time(), 0.0
        self._expiry = None
        while self._pending:
            serial, first = next(iter(self._pending.items()))
            if first.expires > now:
                self._expiry = self._loop.call_at(first.expires, self._expire)
                break
            del self._pending[serial]
            last_sent = first.sent_at
            first.done(
                None,
                ServerUnreachable(
                    f"{self.address} did not answer {first.method.name} "
                    f"within {self._options.request_timeout_s:g} s"
                ),
            )
        if last_sent > self._received_at:
            self._frames.abort()

    def _look_if_idle(self) -> None:
        """Close after `idle_s` without a request."""
        quiet_s = self._loop.time() - self._used_at
        if quiet_s >= self._options.idle_s and not self._pending:
            self._idle = None
            self.close()
            return
        wait_s = max(self._options.idle_s - quiet_s, self._options.idle_s / 10)
        self._idle = self._loop.call_later(wait_s, self._look_if_idle)

    def _on_lost(self, reason: Exception) -> None:
        for timer in (self._expiry, self._idle):
            if timer is not None:
                timer.cancel()
        problem: Exception
        if isinstance(reason, WireError) and self._options.bad_frames is BadFrames.RAISE:
            problem = BadFrame(f"{self.address}: {reason}")
        else:
            problem = ConnectionLost(f"{self.address}: {reason}")
        self._on_gone(self, reason)
        pending, self._pending = self._pending, {}
        for one in pending.values():
            one.done(None, problem)
        watchers, self.watchers = self.watchers, set()
        for watcher in watchers:
            watcher()
