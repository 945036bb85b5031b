"""The Kafka gateway and its connections: decode a request, call its handler, reply in order.

How a node starts the gateway (this is the whole contract with `node/`):

    gateway = KafkaGateway(
        broker=broker,              # trilogue.broker.broker.Broker
        log=log,                    # trilogue.log.log.Log
        # async (trilogue.broker.metadata_change.MetadataChange) -> object: applies the change,
        # shielded from cancellation, or raises the error of `commit.abandon`
        write_metadata=write_metadata,
        advertised=advertised,      # () -> (host, port): the address that clients connect to
        settings=KafkaSettings(),   # auto-creation, limits of fetches and of requests
        authorizer=authorizer,      # trilogue.broker.access.authorizer.Authorizer
        now_ms=now_ms,              # wall clock
        executor=executor,          # concurrent.futures.Executor for cold reads
    )
    async with gateway:                                  # owns the tasks of long requests
        async with Listener(gateway, Limits(), monotonic=loop.time) as listener:
            host, port = await listener.open("127.0.0.1", 9092)     # port 0 takes a free one
            ...
            await listener.drain(deadline_s=10.0)        # no new requests, replies are sent
    # leaving `listener` closes the remaining connections; leaving `gateway` cancels its tasks

The listener calls `gateway.make_connection()` for each new connection; `gateway.name` is "kafka".
Counters for /metrics: `listener.connections` (open now), `listener.refused`, `gateway.requests` (by
API key).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from struct import Struct
from typing import TYPE_CHECKING, Any, Unpack

from trilogue.broker.access.authorizer import CLUSTER, Operation, Principal, ResourceKind
from trilogue.broker.errors import AuthenticationFailed
from trilogue.broker.promise import Promise
from trilogue.gateway.authentication import Login
from trilogue.gateway.dependencies import GatewayDependencies
from trilogue.gateway.kafka import apis, response_frames
from trilogue.gateway.kafka.api_table import ApiTable, VersionedApi
from trilogue.gateway.kafka.context import (
    ClientConnection,
    DurableResponse,
    GatewayContext,
    HandlerResult,
    KafkaSettings,
    PromisedResponse,
    RequestContext,
)
from trilogue.gateway.kafka.produce import produce
from trilogue.gateway.kafka.produce.durable_replies import DurableReplies
from trilogue.gateway.kafka.produce.fast_path import PRODUCE, ProduceFastPath
from trilogue.gateway.kafka.produce.request_template import (
    LENGTHS_MAX,
    RequestTemplates,
    prefix_end,
)
from trilogue.gateway.kafka.quotas.metering import Metering
from trilogue.gateway.kafka.security.audit_lines import AUDIT_LINES, record_audit_lines
from trilogue.gateway.kafka.security.sasl_login import FAILURE_DELAY_S, SaslLogin
from trilogue.gateway.listener_security import ListenerSecurity
from trilogue.gateway.memory_budget import WorkMemory
from trilogue.gateway.reply_queue import BufferedReply
from trilogue.gateway.reply_slots import ReplySlot
from trilogue.gateway.steps import next_step
from trilogue.gateway.stream import STOP_BROKER, STOP_WORK, Close, Stream
from trilogue.gateway.telemetry.request_latency import RequestTimer
from trilogue.wire.errors import WireError
from trilogue.wire.kafka.codec.header import RequestHeader, decode_request_header
from trilogue.wire.kafka.codec.schema import table
from trilogue.wire.kafka.errors import ErrorCode
from trilogue.wire.kafka.produce import ProduceRequest, ProduceResponse

if TYPE_CHECKING:
    from trilogue.gateway.telemetry.traces import MessageTracer

log = logging.getLogger(__name__)

KEY_AND_CORRELATION = Struct(">Ii").unpack_from  # the key and version as one number
HEADER_SIZE_MIN = 8
BEFORE_LOGIN = {17, 18, 36}  # SaslHandshake, ApiVersions, SaslAuthenticate
LOGIN_S = 30.0  # from the connection to the login
API_VERSIONS = 18 << 16
LARGE = 64 << 10  # smaller frames cannot hold many elements, and are decoded within 5 ms
DECODED_FACTOR = 16  # a decoded request takes so many times its bytes, about
DECODED_BYTES_MAX = 32 << 20  # that a large request reserves, unless it is larger itself
ENCODED_BYTES = 4 << 20  # counted for a response that may be large before its size is known


def reply(api: VersionedApi, correlation_id: int, response: object) -> bytearray:
    """Return one complete response frame."""
    out = bytearray()
    response_frames.append_frame(
        out, api.encode, response, correlation_id, flexible=api.flexible_reply
    )
    return out


def count_elements(message: object) -> int:
    """Return how many array elements a message has, at all levels."""
    count = 0
    for field in table(type(message)).fields:
        if field.wire.kind == "array":
            listed = getattr(message, field.name) or ()
            count += len(listed)
            if isinstance(field.item, type):
                count += sum(map(count_elements, listed))
    return count


def decode_large(api: VersionedApi, frame: bytes) -> tuple[RequestHeader, Any]:
    """Decode a large request; runs in the executor.

    Raises `WireError`, and `Close` if the request has more elements than its API allows.
    """
    header, position = decode_request_header(frame)
    request, _ = api.decode(frame, position)
    count = count_elements(request)
    if count > api.spec.elements_max:
        raise Close("request.too_many_elements", api=api.name, count=count)
    return header, request


async def _ready(response: object) -> object:
    return response


class KafkaConnection(ClientConnection):
    """One connection of a client: requests in, replies out in the same order.

    Its frames go to a `ProduceFastPath` first, which passes on what it has no template for.
    """

    def __init__(self, gateway: KafkaGateway, listener: ListenerSecurity | None = None) -> None:
        super().__init__()
        self._decoded_memory: WorkMemory | None = None  # of the request that is executed
        self.gateway = gateway
        self.listener = listener
        self._apis = gateway.find_apis(listener)
        self.login: SaslLogin | None = None  # on a listener with SASL
        self._login_timer: asyncio.TimerHandle | None = None
        self.access = gateway.make_access("")
        self._replies = DurableReplies(self, self.slots, gateway.journal.on_commit)
        self._fast_path = ProduceFastPath(
            self, gateway, gateway.templates, self._replies, self._apis.cached_api
        )
        # Bound once: the stream calls them for every request.
        self.frame = self._fast_path.take_frame
        if listener is not None and listener.sasl:
            self.frame = self._take_frame_with_login
        if listener is not None and listener.is_internal:
            self.frame = self._take_frame_of_broker
        self._is_traced = False  # whether the frame at hand gets a span
        if gateway.tracer is not None:
            self.frame = partial(self._take_traced, gateway.tracer, self.frame)
        self.end_iteration = self._fast_path.end_iteration

    def opened(self, stream: Stream) -> None:
        """Keep the stream to reply to, and its limits."""
        self._replies.open(stream)
        self.access.host = stream.peer[0]
        listener = self.listener
        if listener is not None and listener.sasl:
            self._require_login(stream)
        elif listener is not None and listener.tls:
            login = self.gateway.authenticator.identify_certificate(stream.peer_certificate)
            if login is not None:
                self.access.set_principal(login.principal)
        super().opened(stream)

    # ---- the login

    def _require_login(self, stream: Stream) -> None:
        settings = self.gateway.settings
        self.login = SaslLogin(
            self.gateway.authenticator,
            stream.peer[0],
            settings.sasl_mechanisms,
            self._logged_in,
            lifetime_max_ms=settings.sasl_session_max_ms,
        )
        stream.expect_login()
        self._login_timer = self.gateway.loop.call_later(
            LOGIN_S, stream.abort, "connection.no_login"
        )

    def _logged_in(self, login: Login) -> None:
        if self._login_timer is not None:
            self._login_timer.cancel()
            self._login_timer = None
            self.access.set_principal(login.principal)
            if self._metering is not None:
                self._metering.set_user(login.principal.name)
            self.gateway.authenticator.add_session(login.principal, self)
            self.stream.limit_frames(self.stream.limits.frame_bytes)
        self.gateway.authenticator.set_signers(self, [login])
        self._leave_token()
        if login.token_id:
            self.gateway.authenticator.add_token_session(login.token_id, self)

    def _leave_token(self) -> None:
        """Forget the delegation token of the login before, if it was by one."""
        if self.login is not None and self.login.token_id:
            self.gateway.authenticator.remove_token_session(self.login.token_id, self)

    def _take_frame_with_login(self, frame: memoryview) -> bool:
        """Process a frame of a listener with SASL."""
        login = self.login
        assert login is not None
        if login.is_bare and login.is_exchanging:
            self.stream.stop(STOP_WORK)
            self.gateway.spawn(self._answer_bare(login, bytes(frame)))
            return True
        if not login.is_valid:
            if len(frame) < HEADER_SIZE_MIN:
                raise Close("request.cut", size=len(frame))
            key = KEY_AND_CORRELATION(frame)[0] >> 16
            if key not in BEFORE_LOGIN:
                raise Close("request.before_login", key=key)
        return self._fast_path.take_frame(frame)

    def _take_frame_of_broker(self, frame: memoryview) -> bool:
        """Process a frame of the internal listener, where only cluster principals have access."""
        login = self.login
        if login is None or login.is_valid:
            if len(frame) < HEADER_SIZE_MIN:
                raise Close("request.cut", size=len(frame))
            key = KEY_AND_CORRELATION(frame)[0] >> 16
            if key not in BEFORE_LOGIN and not self.gateway.is_cluster_principal(self.principal):
                self.access.record_refusal(
                    Operation.CLUSTER_ACTION, ResourceKind.CLUSTER, CLUSTER.name
                )
                raise Close("request.not_of_cluster", key=key, principal=str(self.principal))
        if login is None:
            return self._fast_path.take_frame(frame)
        return self._take_frame_with_login(frame)

    def _take_traced(
        self, tracer: MessageTracer, take: Callable[[memoryview], bool], frame: memoryview
    ) -> bool:
        """Process a frame; a produce request that gets a span is decoded, without a template."""
        is_produce = (
            len(frame) >= HEADER_SIZE_MIN and KEY_AND_CORRELATION(frame)[0] >> 16 == PRODUCE
        )
        if not is_produce or not tracer.is_due():
            return take(frame)
        fast_path = self._fast_path
        prefixes, fast_path.prefixes = fast_path.prefixes, ()
        self._is_traced = True
        try:
            return take(frame)
        finally:
            self._is_traced = False
            fast_path.prefixes = tuple(dict.fromkeys((*prefixes, *fast_path.prefixes)))

    def _trace(
        self, call: RequestContext, request: ProduceRequest, answer: object, start_ns: int
    ) -> None:
        from trilogue.gateway.kafka.tracing import trace_produced

        tracer = self.gateway.tracer
        response = answer.response if isinstance(answer, DurableResponse) else answer
        if tracer is not None and isinstance(response, ProduceResponse):
            trace_produced(tracer, call, request, response, start_ns)

    async def _answer_bare(self, login: SaslLogin, token: bytes) -> None:
        """Answer a token that has no request around it, after SaslHandshake v0."""
        try:
            answer = await login.answer(token)
        except AuthenticationFailed:
            await asyncio.sleep(FAILURE_DELAY_S)
            self.stream.abort("connection.login_failed")
            return
        if not self.is_gone:
            self.queue_reply(bytearray(len(answer).to_bytes(4, "big") + answer))
            self.guarded(self.flush)
            self.stream.go_on(STOP_WORK)

    @property
    def principal(self) -> Principal:
        """The identity of the client."""
        return self.access.principal

    def end_session(self, reason: str) -> None:
        """Close: the client's user or delegation token was removed, or has another secret."""
        if not self.is_gone:
            self.stream.abort("connection.session_ended", problem=reason)

    # ---- requests

    def handle_first(self, frame: memoryview) -> bool:
        """Handle the first request of an API key and version."""
        number, correlation_id = KEY_AND_CORRELATION(frame)
        if self._apis.find_api(number) is not None:
            return self.frame(frame)  # it is known from now on
        self._answer_unknown_version(number, correlation_id)
        return True

    def wait_for_relief(self) -> None:
        """Accept no more requests until the broker has memory for their records."""
        self.stream.stop(STOP_BROKER)
        self.gateway.wait_for_relief(self)

    def handle_request(self, api: VersionedApi, frame: memoryview) -> None:
        """Decode a request and execute it."""
        if len(frame) > api.spec.frame_bytes_max:
            raise Close("request.too_large", api=api.name, size=len(frame))
        if len(frame) > LARGE and api.key != PRODUCE:
            self._decode_large_request(api, bytes(frame))
            return
        header, position = decode_request_header(frame)
        request, _ = api.decode(frame, position)  # trailing bytes are ignored, as in Kafka
        if self.gateway.broker.cluster.ownership.is_expecting and self._waits(api, request, frame):
            return
        self._execute(api, header, request, frame)

    def _waits(self, api: VersionedApi, request: object, frame: memoryview) -> bool:
        """Whether a request waits, as it is for slots of a dead node that are recovered."""
        from trilogue.gateway.kafka.expected_slots import has_expected_slots

        if not has_expected_slots(self.gateway, api.key, request):
            return False
        slot = BufferedReply()
        self.queue(slot)
        self.stream.stop(STOP_WORK)
        self.gateway.spawn(self._execute_later(slot, api, bytes(frame)))
        return True

    async def _execute_later(self, slot: BufferedReply, api: VersionedApi, frame: bytes) -> None:
        """Execute a request when its slots are served; its reply takes the reserved slot."""
        from trilogue.gateway.kafka.expected_slots import wait_for_slots

        header, position = decode_request_header(frame)
        request, _ = api.decode(memoryview(frame), position)
        with WorkMemory(self.stream.memory.received, self.stream.peer[0], len(frame)):
            await wait_for_slots(self.gateway, api.key, request)
        if not self.is_gone:
            self.guarded(lambda: self._decoded(slot, api, header, request, frame))

    def _decode_large_request(self, api: VersionedApi, frame: bytes) -> None:
        """Decode a request in the executor: a million small elements take a second.

        Meanwhile its reply slot is reserved, and the connection accepts no other request.
        """
        slot = BufferedReply()
        self.queue(slot)
        self.stream.stop(STOP_WORK)
        self.gateway.spawn(self._decode_in_executor(slot, api, frame))

    async def _decode_in_executor(
        self, slot: BufferedReply, api: VersionedApi, frame: bytes
    ) -> None:
        budget, size = self.stream.memory.received, len(frame)
        memory = WorkMemory(budget, self.stream.peer[0], size)
        loop, executor = self.gateway.loop, self.gateway.executor
        is_passed_on = False  # to work that takes longer
        try:
            await budget.reserve(memory, max(size, min(DECODED_FACTOR * size, DECODED_BYTES_MAX)))
            if self.is_gone:
                return  # it did not begin, and no client waits for it
            header, request = await loop.run_in_executor(executor, decode_large, api, frame)
            await next_step()  # its first step may be long: not of many requests in one iteration
        except WireError as problem:
            self.stream.abort("connection.bad_bytes", problem=str(problem))
        except Close as order:
            self.stream.abort(order.reason, **order.fields)
        except Exception:
            log.exception("request.failed", extra={"api": api.name, "version": api.version})
            self.stream.abort("connection.cut")
        else:
            self._decoded_memory = memory
            self.guarded(lambda: self._decoded(slot, api, header, request, frame))
            is_passed_on = self._decoded_memory is None
            self._decoded_memory = None
        finally:
            if not is_passed_on:
                memory.resize(0)

    def _decoded(
        self,
        slot: BufferedReply,
        api: VersionedApi,
        header: RequestHeader,
        request: Any,
        frame: bytes,
    ) -> None:
        """Execute a large request after decoding; its reply takes the reserved slot."""
        assert self.slots.queue[-1] is slot, "no other request is accepted meanwhile"
        self.slots.queue.pop()
        self.slots.in_flight -= 1
        self.stream.go_on(STOP_WORK)  # in another loop iteration, unless stopped again before
        self._execute(api, header, request, memoryview(frame))
        self.end_iteration()

    def _execute(
        self, api: VersionedApi, header: RequestHeader, request: Any, frame: memoryview
    ) -> None:
        """Call the handler of a request and reply."""
        gateway = self.gateway
        count = gateway.requests[api.key] = gateway.requests[api.key] + 1
        timer = gateway.latencies.start(api.key, count)
        if timer is None:
            self._handle_decoded(api, header, request, frame)
            return
        in_flight = self.slots.in_flight
        self._handle_decoded(api, header, request, frame)
        if self.slots.in_flight <= in_flight:  # it was answered at once, or is not answered
            timer.stop()
            return
        self._set_timer(timer)

    def _set_timer(self, timer: RequestTimer) -> None:
        """Stop a timer when the reply that was queued last leaves, which may be of several."""
        slot = self.slots.queue[-1]
        if slot.timer is None:
            slot.timer = timer
        else:
            slot.timer.weight += timer.weight

    def measure_reply(self, count: int) -> None:
        """Measure the latency of the produce request of this number, which was queued last."""
        timer = self.gateway.latencies.start(PRODUCE, count)
        if timer is not None:
            self._set_timer(timer)

    def _handle_decoded(
        self, api: VersionedApi, header: RequestHeader, request: Any, frame: memoryview
    ) -> None:
        """Call the handler and reply as its result requires."""
        metering = self._metering
        if metering is not None:
            metering.set_client(header.client_id)
            metering.begin()
        call = RequestContext(
            self.gateway,
            self,
            api.version,
            correlation_id=header.correlation_id,
            client_id=header.client_id,
            kind=api.spec.resource,
            operation=api.spec.operation,
            access=self.access,
            metering=metering,
        )
        start_ns = time.time_ns() if self._is_traced else 0
        answer = api.handler(call, request)
        if api.key != PRODUCE:
            if api.key in AUDIT_LINES:
                answer = record_audit_lines(call, api.key, request, answer)
            if len(frame) > LARGE and isinstance(answer, api.response):
                answer = _ready(answer)  # its response is large as well
            self._answer(api, call, answer, aside=api.spec.encode_in_thread or len(frame) > LARGE)
            return
        if metering is not None:
            metering.count_produced(len(frame))
        if start_ns:
            self._trace(call, request, answer, start_ns)
        self._answer(api, call, answer)
        response = answer.response if isinstance(answer, DurableResponse) else answer
        if isinstance(response, ProduceResponse):
            self._learn(api, call, frame, request, response)

    def _answer(
        self, api: VersionedApi, call: RequestContext, answer: HandlerResult, *, aside: bool = False
    ) -> None:
        """Reply as the type of the handler's result requires; `aside`: encode in the executor."""
        if isinstance(answer, api.response):
            self.queue_reply(self._reply(api, call.correlation_id, answer))
        elif isinstance(answer, DurableResponse):
            self._queue_durable(api, call.correlation_id, answer)
        elif isinstance(answer, PromisedResponse):
            self._queue_promised(api, call, answer)
        elif isinstance(answer, ReplySlot):
            self.queue(answer)
        elif answer is not None:
            assert asyncio.iscoroutine(answer), answer
            self._start_work(api, call, answer, aside=aside)

    def _learn(
        self,
        api: VersionedApi,
        call: RequestContext,
        frame: memoryview,
        request: ProduceRequest,
        answer: ProduceResponse,
    ) -> None:
        """Learn a template of this request, if it is simple, for the fast path."""
        end = prefix_end(api, frame, request)
        prefixes = self._fast_path.prefixes
        if end is None or (end not in prefixes and len(prefixes) >= LENGTHS_MAX):
            return
        if produce.has_error(answer):
            return
        topic = produce.find_topic(call, request.topic_data[0])
        learned = self.gateway.templates.learn(api, topic, frame, request, end)
        if learned and end not in prefixes:
            self._fast_path.prefixes = (*prefixes, end)

    def _answer_unknown_version(self, number: int, correlation_id: int) -> None:
        """Reply to an unknown ApiVersions version by version 0 with error 35; otherwise close."""
        key, version = number >> 16, number & 0xFFFF
        if number & 0xFFFF0000 != API_VERSIONS:
            raise Close("request.not_served", key=key, version=version)
        self.queue_reply(reply(apis.api_versions_v0(), correlation_id, apis.unsupported_version()))

    # ---- quotas

    def start_metering(self) -> Metering:
        """Return the object that counts this connection's requests for quotas."""
        gateway = self.gateway
        return Metering(
            gateway.quotas, self.principal.name, self.stream, gateway.loop, gateway.cpu_s
        )

    def require_metering(self) -> Metering:
        """Return the same object, also where there are no quotas: a topic has a rate."""
        fast_path = self._fast_path
        if fast_path.metering is None:
            fast_path.metering = self.start_metering()
        return fast_path.metering

    @property
    def _metering(self) -> Metering | None:
        return None if self.is_gone else self._fast_path.metering

    def _reply(self, api: VersionedApi, correlation_id: int, response: Any) -> bytearray:
        """Return one complete response frame, with the throttle time of the client."""
        self._set_throttle_time(api, response)
        return reply(api, correlation_id, response)

    def _set_throttle_time(self, api: VersionedApi, response: Any) -> None:
        if self._metering is not None and api.throttles:
            response.throttle_time_ms = max(response.throttle_time_ms, self._metering.throttle_ms())

    def guarded(self, call: Callable[[], None]) -> None:
        """Run a callback as every connection does, and count its cost for quotas."""
        metering = self._metering
        if metering is None:
            super().guarded(call)
            return
        metering.begin()
        super().guarded(call)
        metering.end()

    def closed(self) -> None:
        """Release the replies and the quota wait."""
        if self._metering is not None:
            self._metering.close()
        if self._login_timer is not None:
            self._login_timer.cancel()
        if self.login is not None and self.login.principal is not None:
            self.gateway.authenticator.remove_session(self.login.principal, self)
            self.gateway.authenticator.set_signers(self, ())
            self._leave_token()
        super().closed()
        for release in list(self.closing.values()):
            release()
        self._replies.close()
        del self.frame, self.end_iteration, self._fast_path, self._replies  # they refer to this

    # ---- kinds of replies

    def queue(self, slot: ReplySlot) -> None:
        """Append a slot; replies to a later commit must not overtake it."""
        self._replies.close_slot()
        super().queue(slot)

    def _queue_durable(
        self, api: VersionedApi, correlation_id: int, answer: DurableResponse
    ) -> None:
        def refuse(correlation_id: int, response: Any, code: ErrorCode) -> bytearray:
            return reply(api, correlation_id, answer.failed(response, code))

        response = answer.response
        written = self._reply(api, correlation_id, response)
        self._replies.add((written, refuse, correlation_id, response))

    def _queue_promised(
        self, api: VersionedApi, call: RequestContext, answer: PromisedResponse[Any]
    ) -> None:
        slot = BufferedReply()
        self.queue(slot)

        def settled(promise: Promise[Any]) -> None:
            if not self.is_gone:
                self._fill(slot, api, call, answer.respond(promise))

        answer.promise.then(lambda promise: self.guarded(lambda: settled(promise)))

    def _fill(
        self, slot: BufferedReply, api: VersionedApi, call: RequestContext, response: object
    ) -> None:
        self.fill(slot, [self._reply(api, call.correlation_id, response)])

    def _written(self, slot: BufferedReply, written: bytearray) -> None:
        if not self.is_gone:
            self.fill(slot, [written])

    def _start_work(
        self,
        api: VersionedApi,
        call: RequestContext,
        work: Coroutine[Any, Any, object],
        *,
        aside: bool,
    ) -> None:
        slot = BufferedReply()
        self.queue(slot)
        self.stream.stop(STOP_WORK)
        counted = work if call.metering is None else call.metering.timed(work)
        if self._decoded_memory is not None:
            counted = _hold_memory(self._decoded_memory, counted)
            self._decoded_memory = None
        self.gateway.spawn(self._finish(slot, api, call, counted, aside=aside))

    async def _finish(
        self,
        slot: BufferedReply,
        api: VersionedApi,
        call: RequestContext,
        work: Awaitable[object],
        *,
        aside: bool,
    ) -> None:
        """Run one long request to its end, even if the connection closes meanwhile."""
        try:
            response = await work
            if not self.is_gone:
                if isinstance(response, BufferedReply):  # encoded already
                    self.fill(slot, response.render() or [])
                elif aside:
                    await self._encode_in_executor(slot, api, call, response)
                else:
                    self._fill(slot, api, call, response)
                self.stream.go_on(STOP_WORK)
        except Close as order:
            self.stream.abort(order.reason, **order.fields)
        except Exception:
            log.exception("request.failed", extra={"api": api.name, "version": api.version})
            self.stream.abort("connection.cut")

    async def _encode_in_executor(
        self, slot: BufferedReply, api: VersionedApi, call: RequestContext, response: Any
    ) -> None:
        """Encode a response that may be large, once there is memory for it, and fill its slot."""
        with WorkMemory(self.stream.memory.unsent, self.stream.peer[0]) as memory:
            await memory.budget.reserve(memory, ENCODED_BYTES)
            if self.is_gone:
                return
            self._set_throttle_time(api, response)
            write = partial(reply, api, call.correlation_id, response)
            written = await self.gateway.loop.run_in_executor(self.gateway.executor, write)
            memory.resize(len(written))
            self._written(slot, written)  # the connection counts it itself from now on


async def _hold_memory(memory: WorkMemory, work: Awaitable[object]) -> object:
    """Run the work of a large request; what was decoded is counted until it ends."""
    with memory:
        return await work


class KafkaGateway(GatewayContext):
    """Serves Kafka clients: creates connections and owns the tasks of long requests."""

    name = "kafka"

    def __init__(
        self, *, settings: KafkaSettings, **dependencies: Unpack[GatewayDependencies]
    ) -> None:
        super().__init__(settings=settings, **dependencies)
        self.templates = RequestTemplates()
        self.advertised_versions = lambda listener, own: self.find_apis(
            listener
        ).advertised_versions(own=own)

    def find_apis(self, listener: ListenerSecurity | None) -> ApiTable:
        """Return the APIs of a listener; those between brokers are loaded for the internal one."""
        if listener is None or not listener.is_internal:
            return apis.PUBLIC
        from trilogue.gateway.kafka.internal.apis import INTERNAL

        return INTERNAL

    def make_connection(self, listener: ListenerSecurity | None = None) -> KafkaConnection:
        """Return the session of a new connection; without a listener it has no login."""
        return KafkaConnection(self, listener)
