"""The Kafka door and one of its connections: header, row of the table, handler, reply in order.

How a node opens the door (this is the whole agreement with `node/`):

    door = KafkaDoor(
        broker=broker,              # trilogue.broker.broker.Broker
        log=log,                    # trilogue.log.log.Log
        commit=commit,              # async (trilogue.broker.commit.Commit) -> object: carries it
                                    #   out, shielded, or raises what `commit.abandon` says
        advertised=advertised,      # () -> (host, port): where clients shall come back to
        settings=KafkaSettings(),   # auto-creation, limits of fetches and of requests
        authorizer=authorizer,      # trilogue.broker.access.Authorizer
        now_ms=now_ms,              # wall clock
        executor=executor,          # concurrent.futures.Executor for cold reads
    )
    async with door:                                     # owns the tasks of long requests
        async with Listener(door, Limits(), monotonic=loop.time) as listener:
            host, port = await listener.open("127.0.0.1", 9092)     # port 0 takes a free one
            ...
            await listener.drain(deadline_s=10.0)        # nothing new comes in, answers leave
    # leaving `listener` cuts what is still connected; leaving `door` cancels what still runs

`door.session()` gives the listener a session for a new connection; `door.name` is "kafka". Counters
for /metrics: `listener.connections` (open now), `listener.refused`, `door.requests` (by API key).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from struct import Struct
from typing import Any, Unpack

from trilogue.broker.access import ANONYMOUS
from trilogue.broker.promise import Promise
from trilogue.gateway.doorway import Behind
from trilogue.gateway.hot import Place
from trilogue.gateway.kafka import apis, produce, replies
from trilogue.gateway.kafka.apis import Api
from trilogue.gateway.kafka.hot import PRODUCE, HotConnection
from trilogue.gateway.kafka.metering import Metering
from trilogue.gateway.kafka.produce_shape import LENGTHS_MAX, Shape, Shapes, prefix_end
from trilogue.gateway.kafka.shared import (
    Answer,
    Call,
    Durable,
    KafkaSettings,
    Mapped,
    Reply,
    Shared,
)
from trilogue.gateway.session import Said, Session
from trilogue.gateway.stream import STOP_WORK, Close, Stream
from trilogue.wire.errors import WireError
from trilogue.wire.kafka.errors import ErrorCode
from trilogue.wire.kafka.header import RequestHeader, decode_request_header
from trilogue.wire.kafka.produce import ProduceRequest, ProduceResponse
from trilogue.wire.kafka.schema import table

log = logging.getLogger(__name__)

KEY_AND_CORRELATION = Struct(">Ii").unpack_from  # the key and version as one number
API_VERSIONS = 18 << 16
LARGE = 64 << 10  # smaller frames cannot hold many elements, and are decoded within 5 ms


def reply(api: Api, correlation_id: int, response: object) -> bytearray:
    """One whole response frame."""
    out = bytearray()
    replies.append(out, api.encode, response, correlation_id, flexible=api.flexible_reply)
    return out


def count_elements(message: object) -> int:
    """How many things are listed in a message, at all levels."""
    count = 0
    for field in table(type(message)).fields:
        if field.wire.kind == "array":
            listed = getattr(message, field.name) or ()
            count += len(listed)
            if isinstance(field.item, type):
                count += sum(map(count_elements, listed))
    return count


def decode_large(api: Api, frame: bytes) -> tuple[RequestHeader, Any]:
    """In the executor: read a request that may name many things, but not too many.

    Raises `WireError`, `Close`.
    """
    header, position = decode_request_header(frame)
    request, _ = api.decode(frame, position)
    count = count_elements(request)
    if count > api.row.elements_max:
        raise Close("request.too_many_elements", api=api.name, count=count)
    return header, request


async def _ready(response: object) -> object:
    return response


class KafkaConnection(HotConnection, Session):
    """One client: requests in, replies out in the same order."""

    def __init__(self, door: KafkaDoor) -> None:
        super().__init__()
        self.door = door
        self.principal = ANONYMOUS
        self._journal = door.journal
        self._open = None
        self._committing = deque()
        self._spare = None
        self._on_commit = self._committed
        self._prefixes = ()
        self._metering = None
        self._most_in_flight = 1  # until there is a stream
        self._spoken = apis.spoken

    def opened(self, stream: Stream) -> None:
        """Know the stream to answer to, and its limits."""
        self._most_in_flight = stream.limits.in_flight_requests
        super().opened(stream)

    # ---- requests

    def _take_other(self, frame: memoryview) -> bool:
        """Take a request of a kind that nobody has sent before."""
        number, correlation_id = KEY_AND_CORRELATION(frame)
        if apis.find(number) is not None:
            return self.frame(frame)  # it is known now
        self._unknown(number, correlation_id)
        return True

    def _handle(self, api: Api, frame: memoryview) -> None:
        """Decode a request, find its answer, and answer."""
        if len(frame) > api.row.frame_bytes_max:
            raise Close("request.too_large", api=api.name, size=len(frame))
        if len(frame) > LARGE and api.key != PRODUCE:
            self._take_large(api, bytes(frame))
            return
        header, position = decode_request_header(frame)
        request, _ = api.decode(frame, position)  # bytes behind it are ignored, as Kafka does
        self._obey(api, header, request, frame)

    def _take_large(self, api: Api, frame: bytes) -> None:
        """Have a request decoded in a thread: a million small things take a second.

        Meanwhile its place in the order of replies is kept, and no other request is taken.
        """
        place = Said()
        self.queue(place)
        self.stream.stop(STOP_WORK)
        self.door.spawn(self._decode_aside(place, api, frame))

    async def _decode_aside(self, place: Said, api: Api, frame: bytes) -> None:
        work = self.door.loop.run_in_executor(self.door.executor, decode_large, api, frame)
        try:
            header, request = await work
        except WireError as problem:
            self.stream.abort("connection.bad_bytes", problem=str(problem))
        except Close as order:
            self.stream.abort(order.reason, **order.fields)
        except Exception:
            log.exception("request.failed", extra={"api": api.name, "version": api.version})
            self.stream.abort("connection.cut")
        else:
            self.guarded(lambda: self._decoded(place, api, header, request, frame))

    def _decoded(
        self, place: Said, api: Api, header: RequestHeader, request: Any, frame: bytes
    ) -> None:
        """Go on with a large request as with any other: its answer takes the place kept."""
        assert self._queue[-1] is place, "nothing is taken meanwhile"
        self._queue.pop()
        self.in_flight -= 1
        self.stream.go_on(STOP_WORK)  # in another turn, and not if it is stopped again now
        self._obey(api, header, request, memoryview(frame))
        self.turn_over()

    def _obey(self, api: Api, header: RequestHeader, request: Any, frame: memoryview) -> None:
        """Do what a request asks for, and answer."""
        self.door.requests[api.key] += 1
        metering = self._metering
        if metering is not None:
            metering.client_is(header.client_id)
            metering.begin()
        call = Call(
            self.door,
            self,
            api.version,
            correlation_id=header.correlation_id,
            client_id=header.client_id,
            kind=api.row.resource,
            operation=api.row.operation,
            principal=self.principal,
            metering=metering,
        )
        answer = api.row.handler(call, request)
        if api.key != PRODUCE:
            if len(frame) > LARGE and isinstance(answer, api.row.response):
                answer = _ready(answer)  # its answer is large as well
            self._answer(api, call, answer, aside=api.row.aside or len(frame) > LARGE)
            return
        if metering is not None:
            metering.produced(len(frame))
        self._answer(api, call, answer)
        response = answer.response if isinstance(answer, Durable) else answer
        if isinstance(response, ProduceResponse):
            self._learn(api, call, frame, request, response)

    def _answer(self, api: Api, call: Call, answer: Answer, *, aside: bool = False) -> None:
        """Answer in the way that the handler chose; `aside`: what takes time is also written so."""
        if isinstance(answer, api.row.response):
            self.say(self._reply(api, call.correlation_id, answer))
        elif isinstance(answer, Durable):
            self._durable(api, call.correlation_id, answer)
        elif isinstance(answer, Mapped):
            self._promise(api, call, answer)
        elif isinstance(answer, Place):
            self.queue(answer)
        elif answer is not None:
            assert asyncio.iscoroutine(answer), answer
            self._work(api, call, answer, aside=aside)

    def _learn(
        self,
        api: Api,
        call: Call,
        frame: memoryview,
        request: ProduceRequest,
        answer: ProduceResponse,
    ) -> None:
        """Take requests like this one by a shorter way from now on, if it was a simple one."""
        end = prefix_end(api, frame, request)
        prefixes = self._prefixes
        if end is None or (end not in prefixes and len(prefixes) >= LENGTHS_MAX):
            return
        if produce.has_error(answer):
            return
        topic = produce.find_topic(call, request.topic_data[0])
        learned = self.door.shapes.learn(api, topic, frame, request, end)
        if learned and end not in prefixes:
            self._prefixes = (*prefixes, end)

    def _unknown(self, number: int, correlation_id: int) -> None:
        """Only ApiVersions has a way to say that a version is unknown: version 0 with error 35."""
        key, version = number >> 16, number & 0xFFFF
        if number & 0xFFFF0000 != API_VERSIONS:
            raise Close("request.not_served", key=key, version=version)
        self.say(reply(apis.versions_v0(), correlation_id, apis.unsupported_version()))

    # ---- quotas

    def _begin_metering(self) -> None:
        if self._metering is None:
            door = self.door
            self._metering = Metering(
                door.quotas, self.principal.name, self.stream, door.loop, door.cpu_s
            )
        self._metering.begin()

    def _count(self, metering: Metering, shape: Shape, taken: Reply | bytearray, size: int) -> None:
        """Count a request that took the shorter way; its answer is written already."""
        metering.client_is(shape.client_id)
        metering.produced(size)
        throttle_ms = metering.throttle_ms()
        if throttle_ms:
            shape.tell_throttle(taken[0] if isinstance(taken, tuple) else taken, throttle_ms)

    def _reply(self, api: Api, correlation_id: int, response: Any) -> bytearray:
        """One whole response frame that says for how long the client should wait, if it should."""
        self._tell_throttle(api, response)
        return reply(api, correlation_id, response)

    def _tell_throttle(self, api: Api, response: Any) -> None:
        if self._metering is not None and api.throttles:
            response.throttle_time_ms = max(response.throttle_time_ms, self._metering.throttle_ms())

    def guarded(self, call: Callable[[], None]) -> None:
        """As for any session; what the client's answers cost meanwhile is counted."""
        metering = self._metering
        if metering is None:
            super().guarded(call)
            return
        metering.begin()
        super().guarded(call)
        metering.end()

    def closed(self) -> None:
        """Let go of everything that was promised, and of the wait."""
        if self._metering is not None:
            self._metering.close()
        super().closed()

    # ---- ways of answering

    def queue(self, place: Place) -> None:
        """Take the next place; replies to a commit that come later must not overtake it."""
        self._open = None
        super().queue(place)

    def _durable(self, api: Api, correlation_id: int, answer: Durable) -> None:
        def refuse(correlation_id: int, response: Any, code: ErrorCode) -> bytearray:
            return reply(api, correlation_id, answer.failed(response, code))

        response = answer.response
        told = self._reply(api, correlation_id, response)
        self.durable((told, refuse, correlation_id, response))

    def _promise(self, api: Api, call: Call, answer: Mapped[Any]) -> None:
        place = Said()
        self.queue(place)

        def settled(promise: Promise[Any]) -> None:
            if not self.is_gone:
                self._fill(place, api, call, answer.respond(promise))

        answer.promise.then(lambda promise: self.guarded(lambda: settled(promise)))

    def _fill(self, place: Said, api: Api, call: Call, response: object) -> None:
        self.fill(place, [self._reply(api, call.correlation_id, response)])

    def _written(self, place: Said, written: bytearray) -> None:
        if not self.is_gone:
            self.fill(place, [written])

    def _work(
        self, api: Api, call: Call, work: Coroutine[Any, Any, object], *, aside: bool
    ) -> None:
        place = Said()
        self.queue(place)
        self.stream.stop(STOP_WORK)
        counted = work if call.metering is None else call.metering.timed(work)
        self.door.spawn(self._finish(place, api, call, counted, aside=aside))

    async def _finish(
        self, place: Said, api: Api, call: Call, work: Awaitable[object], *, aside: bool
    ) -> None:
        """Run one long request to its end, whether or not somebody still waits for its answer."""
        try:
            response = await work
            if not self.is_gone:
                if isinstance(response, Said):  # written already
                    self.fill(place, response.render() or [])
                elif aside:
                    self._tell_throttle(api, response)
                    write = partial(reply, api, call.correlation_id, response)
                    written = await self.door.loop.run_in_executor(self.door.executor, write)
                    self._written(place, written)
                else:
                    self._fill(place, api, call, response)
                self.stream.go_on(STOP_WORK)
        except Close as order:
            self.stream.abort(order.reason, **order.fields)
        except Exception:
            log.exception("request.failed", extra={"api": api.name, "version": api.version})
            self.stream.abort("connection.cut")


class KafkaDoor(Shared):
    """Where Kafka clients come in: makes sessions, owns the tasks of long requests."""

    name = "kafka"

    def __init__(self, *, settings: KafkaSettings, **behind: Unpack[Behind]) -> None:
        super().__init__(settings=settings, **behind)
        self.versions = apis.advertised()
        self.shapes = Shapes()

    def session(self) -> KafkaConnection:
        """A session for a new connection."""
        return KafkaConnection(self)

    def early_s(self, address: str) -> float:
        """How much too early a connection from an address comes, for the quota of the address."""
        return self.quotas.connection_wait_s(address, self.loop.time())
