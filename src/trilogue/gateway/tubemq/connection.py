"""The two endpoints of the TubeMQ gateway and their connections: frame, envelope, method, handler.

A request has a serial number, so responses leave in any order; those to sends leave when the
journal has committed the messages of the loop iteration (gateway/connection.py).

    not a request                       FATAL, in the words of real servers, and one line in the log
    a method that does not exist        FATAL "Unsupported method ID"
    a service of the other endpoint     ERROR
    a standby's master                  ERROR StandbyException: the client tries the next master
    older than its own timeout          dropped: its client has given up

The age of a request is known from when this connection stopped being read: what is in its buffer
then arrived before. While the log has no room, a send stays in the buffer; shortly before its
client gives up it is answered with 419.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from google.protobuf.message import Message

from trilogue.gateway.listener_security import ListenerSecurity
from trilogue.gateway.steps import next_step
from trilogue.gateway.stream import STOP_BROKER, STOP_WORK, Buffer, Close, Stream
from trilogue.gateway.telemetry.request_latency import RequestLatencies
from trilogue.gateway.tubemq import send
from trilogue.gateway.tubemq.client_connection import ClientConnection
from trilogue.gateway.tubemq.errors import EXPECTED
from trilogue.gateway.tubemq.gateway_context import TubeGatewayContext
from trilogue.gateway.tubemq.methods import SERVICES
from trilogue.gateway.tubemq.request_context import MethodSpec, RequestContext
from trilogue.gateway.tubemq.send_fast_path import SendFastPath
from trilogue.wire.frames import Frames
from trilogue.wire.tubemq.errors import EXCEPTION, STANDBY, WRONG_SERVICE, UndecodableRequest
from trilogue.wire.tubemq.frame import (
    SERIAL_SIZE,
    BlockFrames,
    RpcRequest,
    encode_failure,
    parse_message,
    parse_request,
    unsupported_method,
)
from trilogue.wire.tubemq.methods import find_method
from trilogue.wire.tubemq.rpc_pb2 import Status

log = logging.getLogger(__name__)

SEND = 13
TIMEOUT_SHARE = 0.9  # of a request's timeout that a send may wait: the rest is for the response
TIMERS_S = 0.001  # by which a timer may be early
IS_STANDBY = "this master is a standby"
IN_TURN_BYTES = 2 << 10  # a longer request takes its turn among those of all connections
UNDECODABLE_MAX = 100  # malformed requests of one connection before it is closed


class TubeEndpoint:
    """The master or the broker: what a listener opens connections for."""

    def __init__(
        self,
        gateway: TubeGatewayContext,
        name: str,
        specs: Iterable[MethodSpec],
        frame_bytes: int,
        *,
        is_standby: Callable[[], bool] = lambda: False,
    ) -> None:
        self.gateway = gateway
        self.name = f"tubemq-{name}"
        self.specs = {spec.method.number: spec for spec in specs}
        self.services = SERVICES[name]
        self.frame_bytes_max = frame_bytes
        self.is_standby = is_standby  # whether it answers that another master is active
        self.requests: Counter[int] = Counter()  # accepted, by method
        self.latencies = RequestLatencies()
        self.connections: dict[TubeConnection, None] = {}

    def make_connection(self, listener: ListenerSecurity | None = None) -> TubeConnection:
        """Return the session of a new connection that came by a listener."""
        connection = TubeConnection(self)
        connection.is_tls = listener is not None and listener.tls
        return connection

    def frames(self, limit: int) -> Frames:
        """Return the frame cutter of a new connection."""
        return BlockFrames(limit)


class TubeConnection(ClientConnection):
    """One TCP connection: takes requests and runs their handlers."""

    def __init__(self, endpoint: TubeEndpoint) -> None:
        super().__init__(endpoint.gateway, endpoint.gateway.bounds)
        self.endpoint = endpoint
        self._specs = endpoint.specs
        self._takes_sends = SEND in endpoint.specs
        self._fast_path: SendFastPath | None = None
        if self._takes_sends and endpoint.gateway.tracer is None:
            self._fast_path = SendFastPath(
                self, self.process_frame, endpoint.requests, endpoint.services
            )
        self._undecodable = 0
        self._had_empty = False
        self._leaving = False
        self.stopped_s = 0.0  # since when it is not read, 0: it is
        self._stopped_at = -1  # the receives by then
        self._retry_timer: asyncio.TimerHandle | None = None

    # ---- called by the stream

    def opened(self, stream: Stream) -> None:
        """Start with this stream."""
        stream.limit_frames(min(stream.limits.frame_bytes, self.endpoint.frame_bytes_max))
        self.endpoint.connections[self] = None
        if self._fast_path is not None:
            self._fast_path.open(stream.writer)
        super().opened(stream)

    @property
    def frame(self) -> Callable[[memoryview], bool]:
        """What takes the frames of this connection, for its stream."""
        fast_path = self._fast_path
        return self.process_frame if fast_path is None else fast_path.take_frame

    def process_frame(self, frame: memoryview) -> bool:
        """Process one request; False while the log has no room for its message."""
        self.in_step = True
        try:
            request = parse_request(frame)
            if request.method == SEND and self._takes_sends:
                return self._process_send(request)
            return self._process_request(request, len(frame))
        except UndecodableRequest as problem:
            if len(frame) <= SERIAL_SIZE:
                self._ignore_empty()
            else:
                self._reject_undecodable(problem)
        return True

    @property
    def end_iteration(self) -> Callable[[], None]:
        """What ends the steps of this connection, for its stream."""
        fast_path = self._fast_path
        return self.end_step if fast_path is None else fast_path.end_iteration

    def end_step(self) -> None:
        """Remember since when received requests wait to be processed."""
        super().end_iteration()
        if self.stream.stops:
            self._note_stop()
        if self.waiting_reads:
            self.resume_sending()

    def closed(self) -> None:
        """Release the held responses; the connection is gone."""
        super().closed()
        if self._fast_path is not None:
            self._fast_path.close()
        self.endpoint.connections.pop(self, None)
        self._set_retry_timer(None)
        held, self.held = self.held, {}
        for each in held.values():
            try:
                each.connection_closed()
            except Exception:  # one mistake must not keep the others
                log.exception("connection.close_failed")

    def drain(self) -> None:
        """Stop reading, answer held requests, then those in flight."""
        if self._opened and not self.is_gone:
            for each in list(self.held.values()):
                self.guarded(each.end_early)
        super().drain()

    def finish_draining(self) -> None:
        """Close once the requests in flight are answered."""
        self._leaving = True
        if not self._requests:
            self.flush_and_close()

    def end_request(self, size: int = 0) -> None:
        """Count a request as answered; the last one of a draining connection closes it."""
        super().end_request(size)
        if self._leaving and not self._requests:
            self.gateway.call_soon(self.flush_and_close)

    def replace_receipts(self, receipts: list[Buffer], problem: BaseException) -> list[Buffer]:
        """Return error responses in place of responses to sends."""
        return send.replace_responses(receipts, problem)

    # ---- requests

    def _process_send(self, request: RpcRequest) -> bool:
        """Append a message, unless the log has no room for it now."""
        if request.service not in self.endpoint.services:
            self._send_failure(request, EXCEPTION, WRONG_SERVICE)
            return True
        waited_s = self._waited_s() if self.stopped_s else 0.0
        if waited_s and 0 < request.timeout_ms < waited_s * 1000:
            self._drop(request)
            return True
        if not self.receipts and self.gateway.log.under_pressure:  # checked once per iteration
            return self._wait_for_room(request, waited_s)
        if self._retry_timer is not None:
            self._set_retry_timer(None)
        self.endpoint.requests[SEND] += 1
        send.append_message(self, request)
        return True

    def _process_request(self, request: RpcRequest, size: int) -> bool:
        method = find_method(request.method)
        if method is None:
            raise unsupported_method(request.serial, request.method)
        spec = self._specs.get(request.method)
        if size > self.gateway.settings.request_bytes_max:
            raise Close("request.too_large", method=method.name, size=size)
        message = parse_message(method.request, request.body, request.serial)
        if self.stopped_s and 0 < request.timeout_ms < self._waited_s() * 1000:
            self._drop(request)
            return True
        if spec is None or request.service not in self.endpoint.services:
            self._send_failure(request, EXCEPTION, WRONG_SERVICE)
            return True
        if self.endpoint.is_standby():
            self._send_failure(request, STANDBY, IS_STANDBY)
            return True
        endpoint = self.endpoint
        endpoint.requests[request.method] += 1
        context = RequestContext(
            self,
            spec,
            message,
            serial=request.serial,
            timeout_ms=request.timeout_ms,
            arrived_s=self.gateway.loop.time(),
            size=size,
            timer=endpoint.latencies.start(request.method, endpoint.requests[request.method]),
        )
        if size > IN_TURN_BYTES:
            self.stream.stop(STOP_WORK)
            self.spawn(self._run_in_turn(context), size)
        else:
            self._run_handler(context)
        return True

    async def _run_in_turn(self, context: RequestContext) -> None:
        """Handle a request that may name very many topics: one of all connections in an iteration.

        Otherwise an iteration would be as long as there are such requests, and others would wait.
        """
        await next_step()
        self.guarded(lambda: self._run_handler(context))
        if not self.is_gone:
            self.stream.go_on(STOP_WORK)

    def _run_handler(self, context: RequestContext) -> None:
        try:
            result = context.spec.handler(context)
        except EXPECTED as problem:
            context.respond_exception(problem)
            result = None
        if result is None:
            if not context.is_answered:
                context.is_pending = True
                self.begin_request(context.size)
        elif isinstance(result, Message):
            context.respond(result)
        else:
            self.spawn(self._run_coroutine(context, result), context.size)
        self.flush_if_large()

    async def _run_coroutine(
        self, context: RequestContext, work: Coroutine[Any, Any, Message | None]
    ) -> None:
        try:
            result = await work
        except EXPECTED as problem:
            context.respond_exception(problem)
        else:
            if result is not None:
                context.respond(result)

    # ---- malformed and late requests

    def _send_failure(self, request: RpcRequest, exception: str, text: str) -> None:
        self.write(encode_failure(request.serial, Status.ERROR, exception, text, request.version))

    def _reject_undecodable(self, problem: UndecodableRequest) -> None:
        self._undecodable += 1
        if self._undecodable == 1:
            log.warning(
                "request.undecodable",
                extra={"address": self.stream.peer[0], "problem": str(problem)},
            )
        if self._undecodable > UNDECODABLE_MAX:
            raise Close("connection.bad_bytes", requests=self._undecodable)
        self.write(encode_failure(problem.serial, Status.FATAL, problem.exception, problem.text))

    def _ignore_empty(self) -> None:
        self.gateway.empty_frames += 1
        if not self._had_empty:
            self._had_empty = True
            log.info("request.empty", extra={"address": self.stream.peer[0]})

    def _drop(self, request: RpcRequest) -> None:
        self.gateway.dropped += 1
        log.debug("request.too_late", extra={"method": request.method})

    def _note_stop(self) -> None:
        if not self.stopped_s:
            self.stopped_s = self.gateway.loop.time()
            self._stopped_at = self.stream.receives

    def _waited_s(self) -> float:
        """Return how long the request at hand has waited in the buffer, in seconds."""
        if self.stream.receives != self._stopped_at:
            self.stopped_s = 0.0  # it arrived after the stop
            return 0.0
        return self.gateway.loop.time() - self.stopped_s

    def _wait_for_room(self, request: RpcRequest, waited_s: float) -> bool:
        """Leave a send in the buffer until the log has room, or until its client gives up."""
        limit_s = request.timeout_ms / 1000 * TIMEOUT_SHARE
        if request.timeout_ms > 0 and waited_s + TIMERS_S >= limit_s:
            self.gateway.overflows += 1
            self._set_retry_timer(None)
            send.reject_overflow(self, request)
            return True
        self._note_stop()
        self.wait_for_log_space()
        self._set_retry_timer(limit_s - waited_s if request.timeout_ms > 0 else None)
        return False

    def _set_retry_timer(self, delay_s: float | None) -> None:
        if self._retry_timer is not None:
            self._retry_timer.cancel()
            self._retry_timer = None
        if delay_s is not None:
            self._retry_timer = self.gateway.loop.call_later(delay_s, self._retry_frame)

    def _retry_frame(self) -> None:
        self._retry_timer = None
        self.stream.go_on(STOP_BROKER)
