"""One request of a client, as its handler gets it.

A handler is a function `(context)`. `context.request` is the parsed message of its method, or a
view of its bytes where the method's `MethodSpec` says `raw`, valid only until the handler returns.
It returns

    a message       the response
    a coroutine     runs as a task of the gateway, and returns a message or None
    None            the response was sent, or will be: `respond` or `respond_error`, once

Responses may leave in any order. A BrokerError or a TubeRequestError that a handler or its
coroutine raises is answered with its code (errors.py).
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from google.protobuf.message import Message

from trilogue.broker.access.authorizer import ANONYMOUS, Operation, Resource, ResourceKind
from trilogue.broker.errors import AccessDenied, InvalidName
from trilogue.broker.names import parse_tubemq
from trilogue.gateway.stream import Buffer
from trilogue.gateway.telemetry.request_latency import RequestTimer
from trilogue.gateway.tubemq.auth.authentication import Certificate, Role
from trilogue.gateway.tubemq.client_connection import ClientConnection, HeldResponse
from trilogue.gateway.tubemq.errors import TEXT_MAX, code_of
from trilogue.gateway.tubemq.gateway_context import PublishTarget
from trilogue.wire.tubemq.errors import TubeCode
from trilogue.wire.tubemq.frame import encode_response
from trilogue.wire.tubemq.methods import Method


class MethodSpec(NamedTuple):
    """One method: its handler, the access it needs, and the response that reports an error."""

    method: Method
    handler: Callable[..., Any]  # a Handler, where it is not raw
    resource: ResourceKind
    operation: Operation
    failed: Mapping[str, Any] = MappingProxyType({})
    raw: bool = False

    def error_response(self, code: TubeCode, text: str) -> Message:
        """Return the method's response with this code and all required fields."""
        return self.method.response(errCode=code, errMsg=text, **self.failed)


class RequestContext:
    """One request: its client, its message, and how to answer it."""

    __slots__ = (
        "arrived_s",
        "connection",
        "gateway",
        "is_answered",
        "is_pending",
        "principal",
        "request",
        "serial",
        "size",
        "spec",
        "timeout_ms",
        "timer",
    )

    def __init__(
        self,
        connection: ClientConnection,
        spec: MethodSpec,
        request: Any,
        *,
        serial: int,
        timeout_ms: int,
        arrived_s: float,
        size: int,
        timer: RequestTimer | None = None,
    ) -> None:
        self.connection = connection
        self.gateway = connection.gateway
        self.spec = spec
        self.request = request
        self.serial = serial
        self.timeout_ms = timeout_ms  # after which the client gives up; 0 and less: not stated
        self.arrived_s = arrived_s  # by the loop's clock
        self.size = size  # bytes of its frame
        self.timer = timer  # of a request that is measured
        self.principal = ANONYMOUS  # `authenticate` sets it
        self.is_answered = False
        self.is_pending = False  # counted in the connection's requests in flight

    # ---- one of these, once

    def respond(self, message: Message) -> None:
        """Send SUCCESS with a message of the method's response class."""
        method = self.spec.method.number
        self.send_frame(encode_response(self.serial, method, message.SerializeToString()))

    def respond_error(self, code: TubeCode, text: str) -> None:
        """Send SUCCESS in the envelope and an error code in the method's response."""
        self.respond(self.spec.error_response(code, text[:TEXT_MAX]))

    def respond_exception(self, problem: BaseException) -> None:
        """Send the error code of one of the EXPECTED exceptions."""
        self.respond_error(code_of(problem), str(problem) or type(problem).__name__)

    def send_frame(self, frame: Buffer) -> None:
        """Send the frame of a response that the caller encoded."""
        self.finish()
        if not self.connection.is_gone:
            self.connection.write(frame)

    # ---- for handlers

    def hold(self, held: HeldResponse) -> None:
        """Delay the response; `held` is called when the server drains or the connection closes."""
        self.connection.held[self] = held

    def authenticate(self, role: Role, client_id: str, certificate: Certificate) -> None:
        """Set the principal; clients share connections. Raises AuthenticationFailed."""
        self.principal = self.gateway.authentication.authenticate(
            role, self.connection, client_id, certificate
        )

    def check_access(self, operation: Operation, kind: ResourceKind, name: object) -> None:
        """Check that the principal may do this to the resource; raises AccessDenied."""
        text = str(name)
        if not self.connection.access_of(self.principal).is_allowed(operation, kind, text):
            raise AccessDenied(operation, Resource(kind, text))

    def check_topic(self, operation: Operation, spelled: str) -> None:
        """Check the same by the name of a topic, which need not exist; an invalid one has none."""
        try:
            name = parse_tubemq(spelled)
        except InvalidName:
            return
        self.check_access(operation, ResourceKind.TOPIC, name)

    def require_target(self, operation: Operation, spelled: str) -> PublishTarget:
        """Return a topic; raises AccessDenied, then UnknownTopic: no answer reveals what exists."""
        self.check_topic(operation, spelled)
        return self.gateway.find_target(spelled)

    @property
    def broker_infos(self) -> list[str]:
        """`brokerId:host:port` of each broker, with TLS for a client that came with it."""
        return self.gateway.broker_infos(tls=self.connection.is_tls)

    @property
    def broker_checksum(self) -> int:
        """The number that identifies these addresses."""
        return self.gateway.broker_checksum(tls=self.connection.is_tls)

    def finish(self) -> None:
        """Note that the request is answered."""
        assert not self.is_answered, "answered twice"
        self.is_answered = True
        if self.timer is not None:
            self.timer.stop()
        self.connection.held.pop(self, None)
        if self.is_pending:
            self.is_pending = False
            self.connection.end_request(self.size)


Handler = Callable[[RequestContext], Message | Coroutine[Any, Any, Message | None] | None]
