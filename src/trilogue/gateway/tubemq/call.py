"""One request of a client, as its handler gets it.

A handler is a function `(call)`. `call.request` is the parsed message of its row in `methods.py`,
or a view of its bytes where the row says `raw`, valid only until the handler returns. It returns

    a message       which is the answer
    a coroutine     which becomes a task of the door, and returns a message or None
    None            it has answered, or somebody will: `answer`, `refuse` or `fail`, once

Answers may leave in any order. A BrokerError or a Refusal that a handler or its coroutine raises is
answered with its code (errors.py).
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Protocol

from google.protobuf.message import Message

from trilogue.broker.access import ANONYMOUS, Operation, Resource, ResourceKind
from trilogue.broker.errors import AccessDenied
from trilogue.gateway.tubemq.errors import TEXT_MAX, code_of
from trilogue.wire.tubemq.errors import TubeCode
from trilogue.wire.tubemq.frame import answer, failure
from trilogue.wire.tubemq.rpc_pb2 import Status

if TYPE_CHECKING:
    from trilogue.gateway.stream import Buffer
    from trilogue.gateway.tubemq.authentication import Certificate, Role
    from trilogue.gateway.tubemq.connection import TubeConnection
    from trilogue.gateway.tubemq.door import TubeDoor
    from trilogue.gateway.tubemq.methods import Row

Handler = Callable[["Call"], Message | Coroutine[Any, Any, Message | None] | None]


class Held(Protocol):
    """What keeps an answer back until there is something to say (a get at the end of data)."""

    def hurry(self) -> None:
        """The server drains: answer now."""

    def gone(self) -> None:
        """The connection is closed, nobody waits any more: let go of everything."""


class Call:
    """One request: who asked, what, and how to answer."""

    __slots__ = (
        "answered",
        "arrived_s",
        "connection",
        "door",
        "principal",
        "request",
        "row",
        "serial",
        "size",
        "timeout_ms",
        "version",
        "waits",
    )

    def __init__(
        self,
        connection: TubeConnection,
        row: Row,
        request: Any,
        *,
        serial: int,
        version: int,
        timeout_ms: int,
        arrived_s: float,
        size: int,
    ) -> None:
        self.connection = connection
        self.door: TubeDoor = connection.door
        self.row = row
        self.request = request
        self.serial = serial
        self.version = version
        self.timeout_ms = timeout_ms  # of the client's patience; 0 and less: none was said
        self.arrived_s = arrived_s  # by the loop's clock
        self.size = size  # bytes of its frame
        self.principal = ANONYMOUS  # who asks; `authenticate` finds out
        self.answered = False
        self.waits = False  # counted as one that is at work

    # ---- one of these, once

    def answer(self, message: Message) -> None:
        """SUCCESS, with a message of the row's response class."""
        self.send(answer(self.serial, self.row.method.number, message.SerializeToString()))

    def refuse(self, code: TubeCode, text: str) -> None:
        """SUCCESS outside, a refusal inside: the row's response with all that it must have."""
        self.answer(self.row.refusal(code, text[:TEXT_MAX]))

    def fail(self, exception: str, text: str) -> None:
        """ERROR: no answer but the name of a Java class (wire/tubemq/errors.py) and a text."""
        self.send(failure(self.serial, Status.ERROR, exception, text[:TEXT_MAX], self.version))

    def send(self, frame: Buffer) -> None:
        """Send the frame of an answer that was made elsewhere."""
        self.done()
        if not self.connection.is_gone:
            self.connection.write(frame)

    def problem(self, problem: BaseException) -> None:
        """Refuse for one of the EXPECTED reasons."""
        self.refuse(code_of(problem), str(problem) or type(problem).__name__)

    # ---- help for handlers

    def hold(self, held: Held) -> None:
        """It is answered when there is something to say; `held` hears when that is over."""
        self.connection.held[self] = held

    def authenticate(self, role: Role, client_id: str, certificate: Certificate) -> None:
        """Know who asks: clients share connections. AuthenticationFailed."""
        self.principal = self.door.authentication.authenticate(
            role, self.connection, client_id, certificate
        )

    def check_access(self, operation: Operation, kind: ResourceKind, name: object) -> None:
        """AccessDenied where the client may not do this to the thing of this canonical name."""
        resource = Resource(kind, str(name))
        if not self.door.authorizer.allowed(self.principal, operation, resource):
            raise AccessDenied(operation, resource)

    def done(self) -> None:
        """It is answered; the connection has one less to wait for."""
        assert not self.answered, "answered twice"
        self.answered = True
        self.connection.held.pop(self, None)
        if self.waits:
            self.waits = False
            self.connection.done(self.size)
