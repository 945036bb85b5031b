# ruff: noqa: ERA001 -- the next line is for the compiler
# cython: annotation_typing=False
"""The fast path of a Kafka connection: known produce requests are answered without decoding.

    frame ──► API key and version ──► template of its prefix ──► append ──► DurableReplies
                     │                        │ none, or the request is not a simple one
                     └────────────────────────┴──► KafkaConnection.handle_request

`KafkaConnection` owns one, which takes its frames. Compiled (fast_path.pxd adds the types), since
it runs once per request; uncompiled it is plain Python. See docs/decisions/0061.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import cython

from trilogue.gateway.kafka.produce.durable_replies import DurableReplies
from trilogue.gateway.kafka.produce.request_template import (
    PREFIX_AT,
    RequestTemplate,
    RequestTemplates,
)
from trilogue.gateway.stream import Close
from trilogue.gateway.telemetry.request_latency import EXACT, SAMPLED
from trilogue.log.pressure import LogPressure

if not cython.compiled:  # fast_path.pxd imports the compiled version
    from trilogue.wire.memory import bytes_at, bytes_of, signed32, uint32_at

if TYPE_CHECKING:
    from collections.abc import Callable

    from trilogue.broker.access.client_access import ClientAccess
    from trilogue.gateway.kafka.api_table import VersionedApi
    from trilogue.gateway.kafka.context import CommitReply, GatewayContext
    from trilogue.gateway.kafka.quotas.metering import Metering

HEADER_MIN = 8
PRODUCE = 0

_HEADER_MIN = HEADER_MIN
_PREFIX_AT = PREFIX_AT
_EXACT = EXACT
_UNSAMPLED = SAMPLED - 1


class RequestHandler(Protocol):
    """The connection, for its fast path: it handles every other request."""

    access: ClientAccess

    def handle_request(self, api: VersionedApi, frame: memoryview) -> None:
        """Decode a request and answer it."""

    def handle_first(self, frame: memoryview) -> bool:
        """Handle the first request of an API key and version."""

    def start_metering(self) -> Metering:
        """Return the object that counts this connection's requests for quotas."""

    def wait_for_relief(self) -> None:
        """Accept no more requests until the broker has memory for their records."""

    def queue_reply(self, reply: bytearray, /) -> None:
        """Queue a reply that is ready."""

    def measure_reply(self, count: int) -> None:
        """Measure the latency of the produce request of this number, which was queued last."""


class ProduceFastPath:
    """Receives the frames of one connection; `prefixes` has the ends of known request prefixes.

    `metering` is None until quotas are set.
    """

    __slots__ = (
        "_find_api",
        "_find_template",
        "_gateway",
        "_handler",
        "_pressure",
        "_quotas",
        "_replies",
        "metering",
        "prefixes",
    )

    def __init__(
        self,
        handler: RequestHandler,
        gateway: GatewayContext,
        templates: RequestTemplates,
        replies: DurableReplies,
        find_api: Callable[[int], VersionedApi | None],
    ) -> None:
        self.prefixes: tuple[int, ...] = ()
        self.metering: Metering | None = None
        self._handler = handler
        self._gateway = gateway
        self._pressure: LogPressure = gateway.log.pressure
        self._quotas = gateway.quotas
        self._replies = replies
        self._find_api = find_api
        self._find_template = templates.find_template

    def take_frame(self, frame: memoryview) -> bool:
        """Process one request; False while the broker has no memory for its records."""
        size = len(frame)
        if size < _HEADER_MIN:
            raise Close("request.cut", size=size)
        number = uint32_at(bytes_of(frame), 0)  # the API key and version as one number
        api = self._find_api(number)
        if api is None:
            return self._handler.handle_first(frame)
        if self._quotas.active:
            if self.metering is None:
                self.metering = self._handler.start_metering()
            self.metering.begin()
        if number >> 16 == PRODUCE:
            if self._pressure.is_high():
                self._handler.wait_for_relief()
                return False
            if self._append_by_template(api, frame):
                return True
        self._handler.handle_request(api, frame)
        return True

    def _append_by_template(self, api: VersionedApi, frame: memoryview) -> bool:
        """Append and reply by the template of an earlier request; False where there is none."""
        size = len(frame)
        data = bytes_of(frame)
        correlation_id = signed32(uint32_at(data, 4))
        gateway = self._gateway
        for start in self.prefixes:
            if start > size:
                continue
            template = self._find_template(bytes_at(data, _PREFIX_AT, start - _PREFIX_AT))
            if template is None:
                continue
            reply = template.append(gateway, api, frame, correlation_id, self._handler)
            if reply is None:
                continue
            count = gateway.requests[PRODUCE] + 1
            gateway.requests[PRODUCE] = count
            if self.metering is not None:
                self._count(self.metering, template, reply, size)
            if isinstance(reply, tuple):
                self._replies.add(reply)
            else:
                self._handler.queue_reply(reply)
            if count & _UNSAMPLED == 0 or count < _EXACT:
                self._handler.measure_reply(count)
            return True
        return False

    def _count(
        self,
        metering: Metering,
        template: RequestTemplate,
        reply: CommitReply | bytearray,
        size: int,
    ) -> None:
        """Count a request for quotas, and set the throttle time in its encoded reply."""
        metering.set_client(template.client_id)
        metering.count_produced(size)
        throttle_ms = metering.throttle_ms()
        if throttle_ms:
            written = reply[0] if isinstance(reply, tuple) else reply
            template.write_throttle(written, throttle_ms)

    def end_iteration(self) -> None:
        """Wait for one commit for all requests of the iteration, and send what is ready."""
        if self.metering is not None:
            self.metering.end()
        self._replies.end_iteration()
